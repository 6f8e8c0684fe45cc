//! Sends lines over TLS.

use super::lines::{all_durable, connect, series};
use crate::harness::tls::Client;
use crate::harness::{Options, Server, now_ms, wait_for};
use crate::tls::{authority, with_clients};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

/// Sends a line, and ends the stream. True if the server ended its side in order, so that the point is durable.
fn send(client: &Client, address: SocketAddr, name: &str) -> bool {
    let Ok(mut connection) = client.open(address) else { return false };
    let stream = connection.stream();
    let line = format!("{name} 1 {}\n", now_ms() / 1000);
    if stream.write_all(line.as_bytes()).is_err() {
        return false;
    }
    stream.conn.send_close_notify();
    if stream.flush().is_err() {
        return false;
    }
    match stream.read(&mut [0; 1]) {
        Ok(read) => {
            assert_eq!(read, 0, "the server never sends anything");
            true
        }
        Err(error) => {
            let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::InvalidData];
            assert!(kinds.contains(&error.kind()), "{error}");
            false
        }
    }
}

#[test]
fn encrypted_lines_are_durable_when_their_connection_has_ended() {
    let Some((authority, _dir)) = authority() else { return };
    let options = crate::tls::options(&authority).client(Client::new(&[&authority], None));
    let mut server = Server::start(options.arg("--graphite-tls=127.0.0.1:0").arg("--graphite=127.0.0.1:0"));
    let client = Client::new(&[&authority], None);
    for round in 1..=3 {
        let address = server.logged_address("graphite_tls");
        let mut connection = client.open(address).unwrap();
        let stream = connection.stream();
        let many: String = (0..20_000).map(|i| format!("many.n{i} {round} {}\n", now_ms() / 1000)).collect();
        stream.write_all(many.as_bytes()).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        server.kill9();
        server.restart();
        let sum = server.value(r#"sum({__name__=~"many.*"})"#, now_ms());
        assert_eq!(sum, Some(20_000.0 * f64::from(round)));
    }
    // lines that are not encrypted
    let plain = connect(&server);
    (&plain).write_all(format!("plain 1 {}\n", now_ms() / 1000).as_bytes()).unwrap();
    assert!(all_durable(&plain));
    assert_eq!(series(&server), 20_001);
    let mut wrong = std::net::TcpStream::connect(server.logged_address("graphite_tls")).unwrap();
    wrong.write_all(format!("wrong 1 {}\n", now_ms() / 1000).as_bytes()).unwrap();
    assert_eq!(wrong.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    wait_for("the refused connection", || {
        (server.metric("floodmark_graphite_rejected_connections_total") == 1.0).then_some(())
    });
    assert_eq!(series(&server), 20_001);
}

/// A stream that ends without notice may have been cut by somebody else.
#[test]
fn an_encrypted_stream_that_is_cut_is_reset() {
    let Some((authority, _dir)) = authority() else { return };
    let options = crate::tls::options(&authority).client(Client::new(&[&authority], None));
    let server = Server::start(options.arg("--graphite-tls=127.0.0.1:0"));
    let mut connection =
        Client::new(&[&authority], None).open(server.logged_address("graphite_tls")).unwrap();
    let stream = connection.stream();
    stream.write_all(format!("cut 1 {}\n", now_ms() / 1000).as_bytes()).unwrap();
    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.sock.read(&mut [0; 4096]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(series(&server), 1, "what was read is stored");
}

#[test]
fn the_name_of_a_certificate_decides_about_the_tenant() {
    let Some((authority, dir)) = authority() else { return };
    let options: Options = with_clients(&authority, dir.path(), "optional");
    let client = |name| Client::new(&[&authority], name);
    let server = Server::start(options.arg("--graphite-tls=127.0.0.1:0").client(client(Some("team-a"))));
    let address = server.logged_address("graphite_tls");
    assert!(send(&client(Some("team-a")), address, "of.team"));
    for refused in [None, Some("other")] {
        assert!(!send(&client(refused), address, "of.nobody"), "{refused:?}");
    }
    // at most one line a second about a sender and reason
    let refused = wait_for("the line in the log", || {
        Some(server.log_lines("requests refused")).filter(|lines| !lines.is_empty())
    });
    assert!(
        refused[0].contains("graphite_tls") && refused[0].contains("no client certificate"),
        "{refused:?}"
    );
    assert_eq!(series(&server), 1);
}
