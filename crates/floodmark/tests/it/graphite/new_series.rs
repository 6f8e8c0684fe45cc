//! Points of series that do not exist yet wait for their creation, and known series never wait for them.

use super::lines::{all_durable, connect, options, series};
use crate::harness::{Request, Server, now_ms, wait_for};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};

fn stats(server: &Server) -> Value {
    let reply = server.send(&Request::get("/api/v1/user_stats"));
    serde_json::from_str::<Value>(&reply.text()).unwrap()["data"].take()
}

fn lines(name: &str, numbers: std::ops::Range<usize>, value: i64, time_s: i64) -> String {
    numbers.map(|i| format!("{name}.n{i} {value} {time_s}\n")).collect()
}

#[test]
fn new_series_are_created_at_a_rate_that_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let overrides = dir.path().join("overrides.toml");
    std::fs::write(&overrides, "new_series_per_second = 5\nrate_burst = '1s'").unwrap();
    let options =
        options().config(&format!("overrides = '{}'", overrides.display())).allow("has no settings");
    let server = Server::start(options);
    let now_s = now_ms() / 1000;
    let known = connect(&server);
    (&known).write_all(lines("known", 0..5, 1, now_s - 60).as_bytes()).unwrap();
    wait_for("the known series", || (series(&server) == 5).then_some(()));

    let new = connect(&server);
    for round in 0..3 {
        // each series has several points, in several bodies
        (&new).write_all(lines("new", 0..3000, round, now_s - 3 + round).as_bytes()).unwrap();
    }
    let queued = wait_for("the queue", || {
        Some(stats(&server))
            .filter(|stats| stats["queuedPoints"].as_u64().is_some_and(|points| points > 8000))
    });
    assert!(queued["queuedSeries"].as_u64().unwrap() <= 3000, "{queued}");
    assert!(server.metric("floodmark_graphite_queued_points") > 8000.0);
    // known series are stored meanwhile, from the same connection too
    for (connection, value) in [(&known, 2), (&new, 3)] {
        let mut connection = connection;
        connection.write_all(lines("known", 0..5, value, now_s - 50 + value).as_bytes()).unwrap();
        let query = format!(r#"count({{__name__=~"known.*"}} == {value})"#);
        wait_for("points of known series", || server.value(&query, now_ms()).filter(|count| *count == 5.0));
    }
    // a sender that waits for the end of its connection is told in time that it will take long
    let early = connect(&server);
    (&early).write_all(lines("early", 0..5, 1, now_s).as_bytes()).unwrap();
    assert!(!all_durable(&early), "the creation takes more than 5 s");
    wait_for("the count", || {
        (server.metric("floodmark_graphite_uncertain_connections_total") == 1.0).then_some(())
    });
    assert!(stats(&server)["queuedSeries"].as_u64().unwrap() > 1000, "{}", stats(&server));
    std::fs::write(&overrides, "").unwrap();
    server.signal_hangup();
    wait_for("all series", || (series(&server) == 3010).then_some(()));
    wait_for("the end of the queue", || (stats(&server)["queuedPoints"] == 0).then_some(()));
    let stored = server.samples(r#"{__name__=~"new.*"}[1m]"#, now_ms());
    assert_eq!(stored.values().map(Vec::len).sum::<usize>(), 9000);
    assert!(all_durable(&new) && all_durable(&known));
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
}

#[test]
fn points_of_new_series_count_once_against_the_rates() {
    // bursts of 6,000 points and 60 bodies
    let limits = "samples_per_second = 100\nrequests_per_second = 1\nrate_burst = '1m'";
    let server = Server::start(options().config(limits));
    let (now_s, stream) = (now_ms() / 1000, connect(&server));
    (&stream).write_all(lines("new", 0..4000, 1, now_s).as_bytes()).unwrap();
    wait_for("all series", || (series(&server) == 4000).then_some(()));
    wait_for("the end of the queue", || (stats(&server)["queuedPoints"] == 0).then_some(()));
    // counted twice, they would exceed the burst
    let line = format!("new.n0 2 {}\n", now_s + 1);
    server.send(&Request::post("/api/v1/graphite", line.into_bytes())).expect(204, &[]);
}

#[test]
fn when_the_queue_is_full_the_newest_points_are_dropped_by_name() {
    let limits = "memory = '64MiB'\nnew_series_per_second = 1\nrate_burst = '1s'";
    let mut server = Server::start(options().config(limits));
    let now_s = now_ms() / 1000;
    let known = connect(&server);
    (&known).write_all(format!("known.a 1 {}\n", now_s - 60).as_bytes()).unwrap();
    wait_for("the known series", || (series(&server) == 1).then_some(()));
    let new = connect(&server);
    (&new).write_all(lines("new", 0..50_000, 1, now_s).as_bytes()).unwrap();
    (&new).write_all(format!("known.a 2 {now_s}\n").as_bytes()).unwrap();
    wait_for("the known series", || server.value(r#"{"known.a"} == 2"#, now_ms()));
    assert!(!all_durable(&new), "points were dropped, so the end of the connection is a reset");
    let dropped = server.metric(r#"floodmark_graphite_dropped_points_total{reason="new_series_queue"}"#);
    let queued = server.metric("floodmark_graphite_queued_points");
    assert!(dropped > 1000.0 && queued > 1000.0, "{dropped} dropped, {queued} queued");
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    for part in [r#""reason":"new_series_queue""#, r#""series":"new.n"#, "new_series_per_second"] {
        assert!(refusals.contains(part), "{part} is missing in {refusals}");
    }
    let listed = server.send(&Request::get("/api/v1/refusals")).json();
    let groups = listed["data"].as_array().unwrap();
    let groups: Vec<_> = groups.iter().filter(|group| group["reason"] == "new_series_queue").collect();
    assert_eq!(groups.len(), 1, "{listed}");
    assert!(groups[0]["metric"].is_null() && !groups[0]["earlier"].is_null(), "{listed}");
    assert!(server.metric(r#"floodmark_budget_used_bytes{account="inflight"}"#) < (64 << 20) as f64 / 4.0);
    // what was only counted is logged at the end, although no further point is dropped for this reason
    server.terminate();
    let lines = wait_for("lines with all dropped points", || {
        let lines = server.log_lines(r#"reason="new_series_queue""#);
        let points = |line: &String| line.split_once("points=")?.1.split(' ').next()?.parse::<f64>().ok();
        (lines.iter().filter_map(points).sum::<f64>() == dropped).then_some(lines)
    });
    assert!((2..10).contains(&lines.len()), "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains("tenant=anonymous") && line.contains("127.0.0.1")),
        "{lines:?}"
    );
}

#[test]
fn series_beyond_a_limit_of_the_tenant_are_dropped() {
    let server = Server::start(options().config("active_series = 10"));
    let stream = connect(&server);
    (&stream).write_all(lines("new", 0..30, 1, now_ms() / 1000).as_bytes()).unwrap();
    assert!(!all_durable(&stream));
    assert_eq!(series(&server), 10);
    let dropped = r#"floodmark_graphite_dropped_points_total{reason="new_series_limit"}"#;
    assert_eq!(server.metric(dropped), 20.0);
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    assert!(refusals.contains("setting active_series"), "{refusals}");
    assert!(refusals.contains(r#""sender":"127.0.0.1""#), "{refusals}");
    assert!(!refusals.contains("retry the request"), "the sender got no answer: {refusals}");
}

/// If the server is killed, the system closes its connections. This must not look as if all points were durable.
#[test]
fn a_kill_resets_connections_whose_points_are_queued() {
    let mut server = Server::start(options().config("new_series_per_second = 1\nrate_burst = '1s'"));
    let stream = connect(&server);
    (&stream).write_all(lines("new", 0..1000, 1, now_ms() / 1000).as_bytes()).unwrap();
    wait_for("the queue", || (server.metric("floodmark_graphite_queued_points") > 900.0).then_some(()));
    server.kill9();
    let end = (&stream).read(&mut [0; 1]);
    assert_eq!(end.expect_err("the end of the stream").kind(), ErrorKind::ConnectionReset);
}

/// While the first points of a series wait for its creation, later ones of the same connection must not overtake them.
#[test]
fn of_two_values_for_the_same_time_the_later_wins_although_the_series_is_new() {
    const SERIES: usize = 400;
    let server = Server::start(options());
    let (now_s, stream) = (now_ms() / 1000, connect(&server));
    for value in 0..12 {
        for age_s in 0..6 {
            (&stream).write_all(lines("new", 0..SERIES, value, now_s - age_s).as_bytes()).unwrap();
        }
    }
    assert!(all_durable(&stream));
    let stored = server.samples(r#"{__name__=~"new.*"}[1m]"#, now_ms());
    assert_eq!(stored.len(), SERIES);
    for (series, samples) in stored {
        assert!(samples.iter().all(|(_, value)| *value == 11f64.to_bits()), "{series:?}: {samples:?}");
        assert_eq!(samples.len(), 6);
    }
}
