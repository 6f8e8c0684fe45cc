//! What gRPC's connections may take from each other, and from requests over HTTP.

use super::super::gauge_in_protobuf;
use super::frames::Frames;
use crate::harness::{Connection, Options, Request, Server, now_ms};

/// A request that is alone, and that is told to try again, would be told so for ever.
#[test]
fn memory_of_idle_connections_is_not_memory_that_requests_wait_for() {
    let server = Server::start(Options::default().arg("--otlp-grpc=127.0.0.1:0").arg("--memory=64MiB"));
    let mut idle = Frames::open(server.logged_address("grpc"), &[]);
    idle.exports(1, &gauge_in_protobuf(now_ms()));
    let mut answers = Vec::new();
    for kib in (256..8192).step_by(256) {
        // bodies that are read completely cannot be decoded; those that are not end before the client has sent all
        let mut connection = Connection::open(server.address).unwrap();
        let _ = connection.send_bytes(&Request::write(&vec![0xff; kib << 10]).bytes());
        let reply = connection.reply().unwrap();
        assert!([400, 413].contains(&reply.status), "{kib} KiB: {} {}", reply.status, reply.text());
        answers.push(reply.status);
    }
    assert!(answers.is_sorted() && answers[0] == 400 && answers.ends_with(&[413]), "{answers:?}");
    idle.exports(3, &gauge_in_protobuf(now_ms()));
}
