//! Sends lines over TCP, as carbon's clients do, and queries them with PromQL.

use crate::harness::{Options, PATIENCE, Request, Server, now_ms, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Is logged for a tenant with paused bodies.
const WAIT: &str = "points of known series wait";

pub(crate) fn options() -> Options {
    Options::default().arg("--graphite=127.0.0.1:0")
}

pub(crate) fn connect(server: &Server) -> TcpStream {
    connect_to(server.logged_address("graphite"))
}

pub(crate) fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Ends the stream and waits until the server closes its side. True if the server ended its side in order, which means
/// that all points are durable.
pub(crate) fn all_durable(mut stream: &TcpStream) -> bool {
    stream.shutdown(Shutdown::Write).expect("shut down");
    match stream.read(&mut [0; 1]) {
        Ok(read) => {
            assert_eq!(read, 0, "the server never sends anything");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            false
        }
    }
}

pub(crate) fn series(server: &Server) -> u64 {
    server.value(r#"count({__name__=~".+"})"#, now_ms()).unwrap_or(0.0) as u64
}

#[test]
fn the_end_of_a_connection_means_that_its_points_are_durable() {
    let mut server = Server::start(options());
    let now_s = now_ms() / 1000;
    for round in 0..3 {
        let stream = connect(&server);
        let mut text: String =
            (0..500).map(|i| format!("load.host{i} {round} {}\n", now_s - 20 + round)).collect();
        text.push_str(&format!("disk.used;rack=b;host=web1 {round} {}.5\n", now_s - 20 + round));
        (&stream).write_all(text.as_bytes()).unwrap();
        assert!(all_durable(&stream), "round {round}");
        server.kill9();
        server.restart();
        assert_eq!(series(&server), 501);
        let at_ms = (now_s - 20 + round) * 1000;
        assert_eq!(server.value(r#"sum({__name__=~"load.+"})"#, at_ms), Some(500.0 * round as f64));
        assert_eq!(server.value(r#"{"disk.used", host="web1", rack="b"}"#, at_ms + 500), Some(round as f64));
    }
    assert_eq!(server.metric("floodmark_graphite_connections"), 0.0);
}

/// Points of known series become durable without the end of the connection.
#[test]
fn a_kill_loses_at_most_what_was_not_committed_yet() {
    let mut server = Server::start(options());
    let now_s = now_ms() / 1000;
    let stream = connect(&server);
    (&stream).write_all(format!("a.b 1 {}\nc.d 1 {}", now_s - 2, now_s - 2).as_bytes()).unwrap();
    wait_for("the first point", || server.value(r#"{"a.b"}"#, now_ms()));
    // the rest of a line, and another line
    (&stream).write_all(format!("\na.b 2 {}\n", now_s - 1).as_bytes()).unwrap();
    wait_for("the second point", || server.value(r#"{"a.b"} == 2"#, now_ms()));
    wait_for("the rest of the line", || server.value(r#"{"c.d"}"#, now_ms()));
    server.kill9();
    server.restart();
    assert_eq!(server.samples_of_one(r#"{"a.b"}[1m]"#, now_ms()).len(), 2);
}

#[test]
fn wrong_lines_are_counted_and_the_others_stored() {
    let server = Server::start(options());
    let now_s = now_ms() / 1000;
    let stream = connect(&server);
    let mut text = format!("good 1 {now_s}\nbad\x1b one {now_s}\nold 1 7\n\r\n\n \nalso.good 2 {now_s}\r\n")
        .into_bytes();
    text.extend_from_slice(&vec![b'x'; 300_000]);
    text.extend_from_slice(format!(" 1 {now_s}\nafter.long 1 {now_s}\nunfinished 1 {now_s}").as_bytes());
    (&stream).write_all(&text).unwrap();
    assert!(all_durable(&stream), "wrong lines cause no reset");
    assert_eq!(series(&server), 3);
    let dropped =
        |reason| server.metric(&format!(r#"floodmark_graphite_dropped_points_total{{reason="{reason}"}}"#));
    for reason in ["malformed", "too_long", "invalid", "unfinished"] {
        assert_eq!(dropped(reason), 1.0, "{reason}");
    }
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    for part in [r#""reason":"malformed""#, "127.0.0.1", "too old"] {
        assert!(refusals.contains(part), "{part} is missing in {refusals}");
    }
    let check = |reason: &str, expected: &str| {
        let message = example(&server, reason)["message"].to_string();
        assert!(message.contains(expected), "{expected} is missing in {message}");
        let logged = server.log_lines("points were dropped");
        let logged: Vec<_> =
            logged.iter().filter(|line| line.contains(&format!("reason={reason:?}"))).collect();
        let log = logged[0];
        assert!(log.contains(expected) && log.contains("127.0.0.1"), "{expected} is missing in {log}");
    };
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', r#"\""#); // in JSON and in the log
    check("malformed", &escaped(&format!(r#"value "one" is not a number, in "bad\u{{1b}} one {now_s}""#)));
    check("too_long", &escaped(&format!(r#"it is skipped, in "{}…""#, "x".repeat(120))));
    check("unfinished", &escaped(&format!(r#"within a message, in "unfinished 1 {now_s}""#)));
}

/// The group of a reason in the list of recent refusals.
pub(crate) fn example(server: &Server, reason: &str) -> serde_json::Value {
    let listed = server.send(&Request::get("/api/v1/refusals")).json();
    let groups = listed["data"].as_array().unwrap();
    groups.iter().find(|group| group["reason"] == reason).cloned().unwrap_or_else(|| panic!("{listed}"))
}

#[test]
fn a_point_that_cannot_be_stored_has_an_example_behind_many_wrong_lines() {
    let server = Server::start(options());
    let stream = connect(&server);
    let text = "wrong line\n".repeat(50) + "past.final 3 5\n";
    (&stream).write_all(text.as_bytes()).unwrap();
    assert!(all_durable(&stream));
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    for part in ["past.final", "too old", "is not a number"] {
        assert!(refusals.contains(part), "{part} is missing in {refusals}");
    }
}

/// A web page can send such requests through the browser of its visitor.
#[test]
fn lines_in_an_http_request_are_not_stored() {
    let server = Server::start(options());
    let line = format!("from.page 1 {}\n", now_ms() / 1000);
    let post = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{line}", line.len())
    };
    let malformed =
        || server.metric(r#"floodmark_graphite_dropped_points_total{reason="malformed"}"#) as usize;
    let mut stream = connect(&server);
    stream.write_all(post("/").as_bytes()).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(malformed(), 1, "the connection is closed before its other lines are read");
    // a path that is longer than a line can be
    let mut stream = connect(&server);
    let _ = stream.write_all(post(&format!("/{}", "x".repeat(300_000))).as_bytes()); // it may be reset earlier
    wait_for("the second request", || (malformed() == 2).then_some(()));
    let _ = stream.read(&mut [0; 1]); // until the connection is closed
    assert_eq!(series(&server), 0);
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    assert!(
        refusals.contains("not lines of Graphite; the connection is closed, in a line of an HTTP request"),
        "{refusals}"
    );
    // a name may look like a method
    let stream = connect(&server);
    (&stream).write_all(format!("POST 1 {}\n", now_ms() / 1000).as_bytes()).unwrap();
    assert!(all_durable(&stream));
    assert_eq!(series(&server), 1);
}

/// Sends points of known series until the server is killed. Points that were sent longer ago than the commit interval
/// are all there.
#[test]
fn after_a_kill_only_points_of_the_last_commit_interval_are_missing() {
    const INTERVAL: Duration = Duration::from_secs(3);
    let mut server = Server::start(options().config("graphite_commit_interval = '3s'"));
    let start_ms = now_ms() - 600_000;
    let stream = connect(&server);
    (&stream).write_all(format!("tick 0 {}\n", start_ms / 1000).as_bytes()).unwrap();
    wait_for("the series", || server.value(r#"last_over_time({"tick"}[1h])"#, now_ms()));
    let mut sent: Vec<Instant> = vec![Instant::now()];
    while sent.len() < 500 {
        let line =
            format!("tick {} {}.{}\n", sent.len(), start_ms / 1000 + sent.len() as i64 / 10, sent.len() % 10);
        sent.push(Instant::now());
        (&stream).write_all(line.as_bytes()).unwrap();
        wait_for("the next tick", || {
            (sent[0].elapsed() >= Duration::from_millis(10) * sent.len() as u32).then_some(())
        });
    }
    let killed = Instant::now();
    server.kill9();
    server.restart();
    let stored = server.samples_of_one(r#"{"tick"}[1h]"#, now_ms());
    let values: Vec<usize> = stored.iter().map(|(_, value)| *value as usize).collect();
    assert!(values.iter().copied().eq(0..values.len()), "a gap in {values:?}");
    let due = sent.iter().filter(|sent| killed - **sent > INTERVAL).count();
    assert!(values.len() >= due, "{} of {due} points are there", values.len());
}

#[test]
fn a_stop_makes_durable_what_was_read() {
    let mut server = Server::start(options().config("graphite_commit_interval = '10m'"));
    let now_s = now_ms() / 1000;
    let stream = connect(&server);
    let text: String = (0..1000).map(|i| format!("stop.n{i} 1 {now_s}\n")).collect();
    (&stream).write_all(text.as_bytes()).unwrap();
    let read = || server.metric("floodmark_graphite_bytes_total");
    wait_for("all bytes", || (read() as usize == text.len()).then_some(()));
    assert_eq!(series(&server), 0, "points are gathered for five minutes");
    server.terminate();
    server.restart();
    assert_eq!(series(&server), 1000);
}

/// While the tenant is above its rate, nothing is read, and nothing is lost.
#[test]
fn a_connection_waits_while_its_points_cannot_be_stored() {
    let server = Server::start(options().config("samples_per_second = 1000\nrate_burst = '1s'"));
    let (start_ms, stream) = (now_ms() - 30_000, connect(&server));
    let line = |i: i64| format!("paused {i} {}.{:03}\n", (start_ms + i) / 1000, (start_ms + i) % 1000);
    (&stream).write_all(line(0).as_bytes()).unwrap();
    let stored = || server.value(r#"count_over_time({"paused"}[3h])"#, now_ms()).unwrap_or(0.0) as i64;
    wait_for("the series", || (stored() == 1).then_some(()));
    for batch in 0..4 {
        let times = batch * 1000 + 1..=(batch + 1) * 1000;
        let text: String = times.map(line).collect();
        (&stream).write_all(text.as_bytes()).unwrap();
        wait_for("the points", || (stored() == (batch + 1) * 1000 + 1).then_some(()));
    }
    assert!(all_durable(&stream));
    assert!(server.metric("floodmark_graphite_pauses_total") >= 1.0);
    assert_eq!(server.metric("floodmark_graphite_paused_bodies"), 0.0);
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
    // the list and the log say for which tenant, and why
    let listed = example(&server, "samples_rate");
    let message = listed["message"].as_str().unwrap();
    assert!(message.starts_with("points wait: ") && message.contains("samples_per_second"), "{listed}");
    assert!(listed["sender"] == "127.0.0.1" && listed["status"].is_null(), "{listed}");
    let logged = wait_for("the line", || server.log_lines(WAIT).into_iter().next());
    for part in [r#"reason="samples_rate""#, "tenant=anonymous", "127.0.0.1", "samples_per_second"] {
        assert!(logged.contains(part), "{part} is missing in {logged}");
    }
}

/// The server does not read a connection while it tries to write what it has read. This time is not the sender's, whose line is
/// unfinished only because the rest was not read.
#[test]
fn a_pause_of_the_server_ends_no_unfinished_line() {
    const CONNECTIONS: i64 = 40;
    let rate = "samples_per_second = 1000\nrate_burst = '1s'\nbody_timeout = '1s'";
    let mut server = Server::start(options().config(rate));
    let now_s = now_ms() / 1000;
    // the tenant is above its rate for four seconds
    let points = (0..5000).map(|i| format!("late.n{} 0 {}\n", i % CONNECTIONS, now_s - 6000 + i));
    let flood = Request::post("/api/v1/graphite", points.collect::<String>().into());
    server.send(&flood).expect(204, &[]);
    let open: Vec<_> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    for (i, mut stream) in open.iter().enumerate() {
        stream.write_all(format!("late.n{i} 1 {now_s}\nlate.n{i} 2 ").as_bytes()).unwrap();
    }
    wait_for("the pause", || {
        (server.metric("floodmark_graphite_paused_bodies") == CONNECTIONS as f64).then_some(())
    });
    for mut stream in &open {
        stream.write_all(format!("{}\n", now_s + 1).as_bytes()).unwrap();
    }
    for (i, stream) in open.iter().enumerate() {
        assert!(all_durable(stream), "connection {i} was reset");
    }
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
    assert_eq!(server.value(r#"sum({__name__=~"late.+"})"#, now_ms() + 2000), Some(2.0 * CONNECTIONS as f64));
    let pauses = server.metric("floodmark_graphite_pauses_total");
    server.terminate();
    let lines = wait_for("lines with all pauses", || {
        let lines = server.log_lines(WAIT);
        let refusals = |line: &String| line.split_once("refusals=")?.1.split(' ').next()?.parse::<f64>().ok();
        (lines.iter().filter_map(refusals).sum::<f64>() == pauses).then_some(lines)
    });
    assert!(lines.len() < CONNECTIONS as usize, "{lines:?}");
}

#[test]
fn idle_connections_make_room_for_others() {
    let server = Server::start(options().config("graphite_connections = 50"));
    let now_s = now_ms() / 1000;
    let mut open = Vec::new();
    for i in 0..200 {
        let stream = connect(&server);
        (&stream).write_all(format!("many.n{i} 1 {now_s}\n").as_bytes()).unwrap();
        wait_for("the point", || {
            (server.metric("floodmark_graphite_points_total") as usize == i + 1).then_some(())
        });
        open.push(stream);
    }
    assert!(server.metric("floodmark_graphite_connections") <= 50.0);
    wait_for("all series", || (series(&server) == 200).then_some(()));
}

/// A connection whose points wait keeps its place when others come, even if it was idle before.
#[test]
fn a_connection_whose_points_wait_makes_no_room_for_others() {
    let server = server_with_rate_limit(4);
    let stream = connect(&server);
    send_waiting_point(&server, &stream);
    let mut others = Vec::new();
    wait_for("the point", || {
        others.push(connect(&server));
        waiting_point_is_stored(&server).then_some(())
    });
    assert!(others.len() > 4, "only {} connections were opened", others.len());
    assert_eq!(server.metric_sum("floodmark_graphite_dropped_points_total"), 0.0);
}

/// A sender whose points were stored keeps its connection when strangers come whose points of new series wait, although it is idle
/// and they are not.
#[test]
fn a_known_sender_makes_no_room_for_strangers() {
    const STRANGERS: usize = 5;
    let limits =
        format!("graphite_connections = {}\nnew_series_per_second = 1\nrate_burst = '1s'", STRANGERS + 1);
    let server = Server::start(options().config(&limits));
    let now_s = now_ms() / 1000;
    let write = |mut stream: &TcpStream, text: String| stream.write_all(text.as_bytes()).unwrap();
    let is_stored = |value| server.value(r#"{"kept"}"#, now_ms()) == Some(value);
    let known = connect(&server);
    for value in [1, 2] {
        write(&known, format!("kept {value} {}\n", now_s - 9 + value));
        wait_for("the point", || is_stored(value as f64).then_some(()));
    }
    let mut strangers = Vec::new();
    for number in 0..STRANGERS {
        let stream = connect(&server);
        write(&stream, (0..100).map(|i| format!("new{number}.n{i} 1 {now_s}\n")).collect());
        strangers.push(stream);
    }
    let queued = || server.metric("floodmark_graphite_queued_points");
    wait_for("the queue", || (queued() > 90.0 * STRANGERS as f64).then_some(()));
    let rejected = || server.metric("floodmark_graphite_rejected_connections_total");
    wait_for("connections without a place", || {
        strangers.push(connect(&server));
        (rejected() >= 10.0).then_some(())
    });
    assert_eq!(server.metric("floodmark_graphite_replaced_connections_total"), 0.0);
    write(&known, format!("kept 3 {now_s}\n"));
    wait_for("the next point of the known sender", || is_stored(3.0).then_some(()));
}

/// A sender must not take the end of a connection that never had a place for the answer that its points are durable.
#[test]
fn a_connection_without_a_place_is_reset() {
    let server = server_with_rate_limit(1);
    let stream = connect(&server);
    send_waiting_point(&server, &stream);
    let mut other = connect(&server);
    let end = other.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    assert!(server.metric("floodmark_graphite_rejected_connections_total") >= 1.0);
    wait_for("the point", || waiting_point_is_stored(&server).then_some(()));
}

fn server_with_rate_limit(connections: usize) -> Server {
    let settings =
        format!("graphite_connections = {connections}\nsamples_per_second = 1000\nrate_burst = '1s'");
    Server::start(options().config(&settings))
}

/// Sends a point of a known series that the server pauses with, because its tenant is above its rate for four seconds.
fn send_waiting_point(server: &Server, mut stream: &TcpStream) {
    let now_s = now_ms() / 1000;
    let post = |points: String| {
        server.send(&Request::post("/api/v1/graphite", points.into())).expect(204, &[]);
    };
    post(format!("kept 0 {}\n", now_s - 10));
    stream.write_all(format!("kept 1 {}\n", now_s - 9).as_bytes()).unwrap();
    wait_for("the first point", || (server.value(r#"{"kept"}"#, now_ms()) == Some(1.0)).then_some(()));
    post((0..5000).map(|i| format!("flood 0 {}\n", now_s - 6000 + i)).collect());
    stream.write_all(format!("kept 2 {now_s}\n").as_bytes()).unwrap();
    // until then, the connection is idle
    wait_for("the pause", || (server.metric("floodmark_graphite_paused_bodies") == 1.0).then_some(()));
}

fn waiting_point_is_stored(server: &Server) -> bool {
    server.value(r#"{"kept"}"#, now_ms()) == Some(2.0)
}

/// Idle connections take little memory, and each is served.
#[test]
fn thousands_of_connections_are_served() {
    const CONNECTIONS: usize = 3000;
    let server = Server::start(options().config("graphite_connections = 4000"));
    let (now_s, before) = (now_ms() / 1000, server.memory_bytes("VmRSS"));
    let open: Vec<_> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    for (i, stream) in open.iter().enumerate() {
        let mut stream = stream;
        stream.write_all(format!("wide.n{i} 1 {now_s}\nwide.unfinished").as_bytes()).unwrap();
    }
    wait_for("all series", || (series(&server) == CONNECTIONS as u64).then_some(()));
    let grown = server.memory_bytes("VmRSS").saturating_sub(before);
    assert!(grown < CONNECTIONS as u64 * (64 << 10), "{} MiB for {CONNECTIONS} connections", grown >> 20);
    assert_eq!(server.metric("floodmark_graphite_connections"), CONNECTIONS as f64);
}

#[test]
fn pickles_and_protobuf_messages_are_accepted_by_http() {
    let server = Server::new();
    let post = |body: &[u8], content_type| {
        server.send(&Request::post("/api/v1/graphite", body.to_vec()).header("Content-Type", content_type))
    };
    let now_s = (now_ms() / 1000) as u32;
    let pickle = [&b"](U\x07pickledJ"[..], &now_s.to_le_bytes(), b"K\x02\x86\x86e."].concat();
    post(&pickle, "application/python-pickle").expect(204, &[]);
    let mut point = vec![0x08];
    let mut rest = now_s;
    while rest >= 0x80 {
        point.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    point.push(rest as u8);
    point.push(0x11);
    point.extend_from_slice(&3f64.to_le_bytes());
    let metric = [&b"\x0a\x05proto\x12"[..], &[point.len() as u8], &point].concat();
    post(&[&[0x0a, metric.len() as u8][..], &metric].concat(), "application/protobuf; q=1").expect(204, &[]);
    assert_eq!(server.value(r#"{"pickled"}"#, now_ms()), Some(2.0));
    assert_eq!(server.value(r#"{"proto"}"#, now_ms()), Some(3.0));
    post(b"cos\nsystem\n.", "application/python-pickle").expect(400, &["GLOBAL", "not allowed"]);
    post(b"\x0a\x05a", "application/x-protobuf").expect(400, &["invalid protobuf"]);
}

#[test]
fn the_first_part_of_a_path_may_be_the_tenant() {
    let config = "graphite_tenant_from_path = true\n[tenant.slow]\nsamples_per_second = 1\nrate_burst = '1s'";
    let server = Server::start(options().config(config));
    let (now_s, stream) = (now_ms() / 1000, connect(&server));
    let send = |text: &str| (&stream).write_all(text.replace("NOW", &now_s.to_string()).as_bytes()).unwrap();
    send("a.load.web1 1 NOW\nb.load.web1 2 NOW\nslow.x 1 NOW\nslow.y 1 NOW\n");
    send("no_tenant 1 NOW\n/.x 1 NOW\nfloodmark-system.x 1 NOW\nb.load.web2;dc=x 3 NOW\n");
    let count = |tenant| {
        let result = server.query_as(Some(tenant), r#"count({__name__=~".+"})"#, now_ms());
        result["result"][0]["value"][1].as_str().map_or(0, |count| count.parse::<u64>().unwrap())
    };
    wait_for("the points", || (count("a") == 1 && count("b") == 2 && count("slow") == 2).then_some(()));
    // a tenant above its rate does not stop the others
    send("slow.x 2 NOW\n");
    send("a.load.web3 1 NOW\n");
    wait_for("the other tenant", || (count("a") == 2).then_some(()));
    assert!(all_durable(&stream) || server.metric_sum("floodmark_graphite_dropped_points_total") > 2.0);
    let dropped =
        |reason| server.metric(&format!(r#"floodmark_graphite_dropped_points_total{{reason="{reason}"}}"#));
    assert_eq!(dropped("malformed"), 2.0);
    // readers of the address's tenant do not see what others have sent
    let wrong = example(&server, "malformed")["message"].to_string();
    assert!(
        wrong.contains("does not begin with the name of a tenant") && !wrong.contains("no_tenant"),
        "{wrong}"
    );
    assert!(dropped("refused") >= 1.0, "nobody may write to the server's own tenant");
}

#[test]
fn other_machines_need_permission() {
    let check = |args: &[&str], expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = format!("--data-dir={}", dir.path().join("data").display());
        let args = [&["serve", "--http=127.0.0.1:0", &data_dir][..], args].concat();
        let output = crate::harness::process::command(&args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{args:?}: {text}");
    };
    check(&["--graphite=0.0.0.0:0"], "graphite_allow_unauthenticated");
    check(&["--graphite-pickle=0.0.0.0:0"], "graphite_allow_unauthenticated");
    check(&["--graphite=127.0.0.1:0", "--graphite-tenant=floodmark-system"], "only the server may write");
    check(
        &["--graphite-pickle=127.0.0.1:0", "--graphite-tenant-from-path=true"],
        "works only with the plaintext protocol",
    );
    let _open = Server::start(
        options().arg("--graphite-pickle=0.0.0.0:0").config("graphite_allow_unauthenticated = true"),
    );
}
