//! Senders that are too slow.

use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms, wait_for};
use std::io::Read;
use std::time::{Duration, Instant};

/// How long the server may take to answer or to close the connection. It waits 10 s for a head and 3 s for a
/// body, and the rest is slack for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends `bytes`, and then one more byte per second until the server answers or closes the connection.
/// Returns what was received.
fn trickle(server: &Server, bytes: &[u8]) -> String {
    let mut connection = Connection::open(server.address).unwrap();
    connection.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    connection.send_bytes(bytes).unwrap();
    let began = Instant::now();
    let mut came = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match connection.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => came.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                assert!(began.elapsed() < LIMIT, "the server still waits after {LIMIT:?}");
                assert!(
                    came.is_empty(),
                    "the server answered, but neither closed the connection nor read on"
                );
                if connection.send_bytes(b"x").is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&came).into_owned()
}

#[test]
fn slow_senders_are_cut_off_and_harm_nobody() {
    let server = Server::start(Options::default().config("body_timeout = \"3s\""));
    let write = Request::write(&[]).header("Content-Length", "100000").head();
    let chunked = Request::write(&[]).header("Transfer-Encoding", "chunked").head() + "ffff\r\n";
    let form = Request::form("/api/v1/query", &[]).header("Content-Length", "100000").head();
    std::thread::scope(|threads| {
        let slow = |bytes: &str| {
            let (server, bytes) = (&server, bytes.to_string());
            threads.spawn(move || trickle(server, bytes.as_bytes()))
        };
        let heads = [slow("POST /api/v1/write HTTP/1.1\r\nX-Slow: "), slow("G")];
        let bodies = [slow(&write), slow(&chunked)];
        let forms = slow(&form);
        // meanwhile, other senders must be served
        for i in 0..20 {
            let now = now_ms();
            let body = wire::v1(&[Series::named("quick").sample(now, f64::from(i))]);
            server.send(&Request::write(&body)).expect(204, &[]);
            assert_eq!(server.value("quick", now), Some(f64::from(i)));
        }
        for head in heads {
            let came = head.join().unwrap();
            assert!(came.is_empty() || came.starts_with("HTTP/1.1 408"), "{came}");
        }
        for body in bodies {
            let came = body.join().unwrap();
            // the status must allow a retry, because the data may be valid
            assert!(came.starts_with("HTTP/1.1 503"), "{came}");
            assert!(came.contains("retry-after: ") && came.contains("did not arrive within 3 s"), "{came}");
        }
        let came = forms.join().unwrap();
        assert!(came.starts_with("HTTP/1.1 408") && came.contains("did not arrive within 3 s"), "{came}");
    });
    server.wait_until_zero("floodmark_write_inflight_bytes");
}

/// The settings allow a body to take minutes, so the server must close slow connections when other clients
/// need them.
#[test]
fn requests_that_do_not_come_to_an_end_leave_connections_to_others() {
    const CONNECTIONS: usize = 16;
    let server =
        Server::start(Options::default().config(&format!(
            "body_timeout = \"10m\"\ntransfer_rate = \"64KiB\"\nconnections = {CONNECTIONS}"
        )));
    let half = Request::write(&[]).header("Content-Length", "1000").head();
    let open_halves = || {
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = Connection::open(server.address).unwrap();
            connection.send_bytes(half.as_bytes()).unwrap();
            open.push(connection);
        }
        open
    };
    let mut halves = open_halves();
    for i in 0..20 {
        let now = now_ms();
        let body = wire::v1(&[Series::named("quick").sample(now, f64::from(i))]);
        wait_for("a connection", || {
            let mut connection = Connection::open(server.address).ok()?;
            connection.send(&Request::write(&body)).ok().filter(|reply| reply.status == 204)
        });
        if i == 10 {
            halves.extend(open_halves());
        }
    }
}
