//! Sends statsd's datagrams, and queries what they add up to.

use crate::graphite::lines::example;
use crate::harness::process::command;
use crate::harness::{Options, Server, now_ms, wait_for};
use std::net::UdpSocket;

fn options() -> Options {
    Options::default().arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=200ms")
}

fn send(server: &Server, datagram: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(datagram.as_bytes(), server.logged_address("statsd")).unwrap();
}

/// Waits until a query has a value.
#[track_caller]
fn wait_for_value(server: &Server, query: &str, expected: f64) {
    wait_for(query, || (server.value(query, now_ms()) == Some(expected)).then_some(()));
}

#[test]
fn statsd_lines_are_counters_gauges_timers_and_sets() {
    let mut server = Server::start(options());
    send(
        &server,
        "hits:1|c|#code:200\nhits:2|c|@0.5|#code:200\nhits,code=500:1|c\nsize:7|g\nsize:-2|g\nwrong\n",
    );
    send(&server, "latency:1:2:3|ms\nusers:a|s\nusers:b|s\nusers:a|s");
    wait_for_value(&server, r#"hits{code="200"}"#, 5.0);
    wait_for_value(&server, r#"hits{code="500"}"#, 1.0);
    wait_for_value(&server, "size", 5.0);
    wait_for_value(&server, "latency_count", 3.0);
    wait_for_value(&server, "latency_sum", 6.0);
    wait_for_value(&server, r#"latency{quantile="0.5"}"#, 2.0);
    wait_for_value(&server, "max_over_time(users[1m])", 2.0);
    send(&server, "hits:1|c|#code:200");
    wait_for_value(&server, r#"hits{code="200"}"#, 6.0);
    assert_eq!(server.metric(r#"floodmark_statsd_dropped_total{reason="malformed"}"#), 1.0);
    server.kill9();
    server.restart();
    wait_for_value(&server, r#"last_over_time(hits{code="200"}[5m])"#, 6.0);
    // the last interval is stored when the server stops
    send(&server, "last:1|c");
    wait_for("the line", || (server.metric("floodmark_statsd_lines_total") > 0.0).then_some(()));
    server.terminate();
    server.restart();
    wait_for_value(&server, "last_over_time(last[5m])", 1.0);
}

/// A flood of new series is bounded in memory, and series that are known go on.
#[test]
fn a_flood_of_statsd_series_is_bounded() {
    let server = Server::start(options().arg("--memory=64MiB"));
    send(&server, "known:1|c");
    wait_for_value(&server, "known", 1.0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.logged_address("statsd");
    let mut number = 0;
    wait_for("a full memory", || {
        let lines: String = (number..number + 500).map(|i| format!("flood{i}:1|c\n")).collect();
        number += 500;
        socket.send_to(lines.as_bytes(), address).unwrap();
        (server.metric(r#"floodmark_statsd_dropped_total{reason="memory"}"#) > 0.0).then_some(())
    });
    wait_for("the known series", || {
        socket.send_to(b"known:1|c", address).unwrap();
        (server.value("known", now_ms()) > Some(2.0)).then_some(())
    });
}

/// Long labels are refused, and labels that are just short enough do not stop the storage of other series.
#[test]
fn long_labels_do_not_stop_the_storage_of_statsd() {
    let server = Server::start(options().arg("--memory=64MiB"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.logged_address("statsd");
    let invalid = || server.metric(r#"floodmark_statsd_dropped_total{reason="invalid"}"#);
    let tag = |length| "y".repeat(length);
    for i in 0..35 {
        let line = format!("long{i},a={0},b={0},c={0},d={0}:1|ms", tag(15_000));
        // datagrams may be lost, so each is sent until one was received
        let before = invalid();
        wait_for("the datagram", || {
            socket.send_to(line.as_bytes(), address).unwrap();
            (invalid() > before).then_some(())
        });
    }
    let mut number = 0;
    wait_for("a full memory", || {
        for _ in 0..20 {
            let line = format!("short{number},a={0},b={0},c={0}:1:2:3|ms", tag(1300));
            number += 1;
            socket.send_to(line.as_bytes(), address).unwrap();
        }
        (server.metric(r#"floodmark_statsd_dropped_total{reason="memory"}"#) > 0.0).then_some(())
    });
    wait_for("series with many labels", || {
        (server.value("count({__name__=~\"short.*_count\"})", now_ms()) > Some(20.0)).then_some(())
    });
}

/// An interval is one request, although it is stored in several batches.
#[test]
fn the_rate_of_requests_does_not_divide_an_interval() {
    let server = Server::start(options().config("requests_per_second = 1\nrate_burst = '1s'"));
    for part in 0..30 {
        let lines: Vec<_> = (0..100).map(|i| format!("c{part}_{i}:1|c")).collect();
        send(&server, &lines.join("\n"));
    }
    wait_for("all series", || (server.metric("floodmark_head_series_created_total") >= 3000.0).then_some(()));
    assert_eq!(server.metric(r#"floodmark_statsd_dropped_total{reason="refused"}"#), 0.0);
}

/// A sender of statsd gets no answer, so the list and the log say what its tenant's limit refuses.
#[test]
fn values_of_statsd_beyond_a_limit_are_listed_and_logged() {
    const LOGGED: &str = "values of statsd were not stored";
    let server = Server::start(options().arg("--active-series=2").allow(LOGGED));
    send(&server, "a:1|c\nb:1|c\nc:1|c\nd:1|c\ne:1|c");
    let logged = wait_for("the line", || server.log_lines(LOGGED).into_iter().next());
    for part in [r#"reason="active_series""#, "samples=3 ", "tenant=anonymous", "(setting active_series)"] {
        assert!(logged.contains(part), "{part} is missing in {logged}");
    }
    let listed = example(&server, "active_series");
    assert!(listed["message"].to_string().contains("(setting active_series)"), "{listed}");
    assert!(listed["series"].is_string() && listed["metric"].is_null(), "{listed}");
    assert!(server.metric(r#"floodmark_statsd_dropped_total{reason="refused"}"#) >= 3.0);
}

#[test]
fn statsd_is_not_open_to_other_machines_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let ended = command(&["serve", "--statsd=0.0.0.0:0", "--data-dir", data_dir]).output().unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("statsd_allow_unauthenticated"), "{said}");
}
