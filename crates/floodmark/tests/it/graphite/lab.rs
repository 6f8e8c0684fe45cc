//! Runs `floodmark lab` against targets of Graphite.

use crate::harness::lab::{good, lab};
use std::io::Read;
use std::net::TcpListener;

/// Accepts one connection on a new port, and returns the port and what was received until the connection's end.
fn sink() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("the address").port().to_string();
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut received = String::new();
        stream.read_to_string(&mut received).expect("read");
        received
    });
    (port, receiving)
}

/// Names of the points, in the order of the lines.
fn names(lines: &str) -> Vec<&str> {
    lines.lines().map(|line| line.split(' ').next().expect("a name")).collect()
}

#[test]
fn the_stresser_prints_what_it_would_send() {
    let printed = good(&lab(&["stresser", "--hosts", "2", "--timers", "3", "--debug"]));
    let all = names(&printed);
    assert_eq!(
        (all.len(), all[0], all[89]),
        (90, "STRESS.host-0.timer-0.count", "STRESS.host-1.timer-2.stddev")
    );

    let (port, receiving) = sink();
    let timers = ["--timers", "3", "--interval", "1s", "--duration", "2s"];
    let flags = ["--port", &port, "--prefix", "a.b", "--json", "--quiet"];
    let result = good(&lab(&[&["stresser"], timers.as_slice(), &flags].concat()));
    let result: serde_json::Value = serde_json::from_str(&result).expect("read the result");
    assert_eq!(result["totals"]["samples_acknowledged"], 90, "{}", result["totals"]);
    let received = receiving.join().expect("receive");
    let sent = names(&received);
    assert_eq!((sent.len(), sent[0]), (90, "a.b.host-0.timer-0.count"));
    assert_eq!(sent[..45], sent[45..], "two reports of the same timers");
}

#[test]
fn other_machines_must_be_allowed() {
    let output = lab(&["stresser", "--host", "192.0.2.1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("--allow-host 192.0.2.1"), "{said}");
}
