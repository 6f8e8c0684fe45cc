//! Sends lines over TCP, as carbon's clients do, and queries them with PromQL.

use crate::harness::{Options, PATIENCE, Request, Server, now_ms, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

pub(crate) fn options() -> Options {
    Options::default().arg("--graphite=127.0.0.1:0")
}

pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.logged_address("graphite")).expect("connect");
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
    let mut text =
        format!("good 1 {now_s}\nbad one {now_s}\nold 1 7\n\r\n\n \nalso.good 2 {now_s}\r\n").into_bytes();
    text.extend_from_slice(&vec![b'x'; 300_000]);
    text.extend_from_slice(format!(" 1 {now_s}\nafter.long 1 {now_s}\nunfinished 1 {now_s}").as_bytes());
    (&stream).write_all(&text).unwrap();
    assert!(all_durable(&stream), "wrong lines are no reason for a reset");
    assert_eq!(series(&server), 3);
    let dropped =
        |reason| server.metric(&format!(r#"floodmark_graphite_dropped_points_total{{reason="{reason}"}}"#));
    for reason in ["malformed", "too_long", "invalid", "unfinished"] {
        assert_eq!(dropped(reason), 1.0, "{reason}");
    }
    let refusals = server.send(&Request::get("/api/v1/refusals")).text();
    for part in [r#"value \"one\" is not a number"#, r#""reason":"malformed""#, "127.0.0.1", "too old"] {
        assert!(refusals.contains(part), "{part} is missing in {refusals}");
    }
    assert!(server.log_lines("points were dropped").iter().any(|line| line.contains("malformed")));
}
