//! What gRPC's connections may take from each other, and from requests over HTTP.

use super::super::gauge_in_protobuf;
use super::frames::Frames;
use crate::harness::tls::Client;
use crate::harness::{Connection, Options, Request, Server, now_ms, wait_for};
use crate::tls;
use std::net::TcpStream;
use tokio_rustls::rustls::version::TLS13;

/// With this memory and TLS, there are at most 8 connections, of which 2 may be in a handshake, and one of each network.
const MEMORY: &str = "--memory=256MiB";
const SENDERS: usize = 6;
const SILENT: usize = 30;

#[test]
fn silent_clients_do_not_take_the_places_of_senders() {
    let Some((authority, _dir)) = tls::authority() else { return };
    let options = tls::options(&authority).arg("--otlp-grpc=127.0.0.1:0").arg(MEMORY);
    let server = Server::start(options.client(Client::new(&[&authority], None)));
    let address = server.logged_address("grpc");
    let client = Client::with(&[&authority], None, &[&TLS13], b"h2");
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        let mut sender = client.open(address).unwrap();
        let mut frames = Frames(sender.stream());
        frames.begin(&[]);
        frames.exports(1, &gauge_in_protobuf(now_ms()));
        senders.push(sender);
    }
    let _silent: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(address).unwrap()).collect();
    let ended =
        |result: &str| server.metric(&format!("floodmark_tls_handshakes_total{{result=\"{result}\"}}"));
    wait_for("the silent clients", || {
        let ended = ended("refused") + ended("displaced") + ended("timeout");
        let all = ended + server.metric("floodmark_tls_handshakes_pending");
        (all >= SILENT as f64).then_some(())
    });
    for sender in &mut senders {
        Frames(sender.stream()).exports(3, &gauge_in_protobuf(now_ms()));
    }
    let limits = server.send(&Request::get("/api/v1/admin/limits")).text();
    assert!(limits.contains(r#"{"name":"TLS handshakes of gRPC in progress","value":2,"#), "{limits}");
}

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
