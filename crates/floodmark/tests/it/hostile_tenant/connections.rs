//! Attacks that only need connections.

use super::{check_form, of, secret};
use crate::harness::{Connection, Reply, Request, Server};
use std::io::{BufReader, Write};
use std::time::Duration;

/// How many requests are sent on one connection before the first answer is read.
const PIPELINED: usize = 1_000;

const IDLE: usize = 1_000;

type Held = Vec<Connection>;

/// Runs all attacks one after another. The connections of earlier attacks stay open.
pub(super) fn attack(server: &Server) {
    let mut held = Held::new();
    not_http(server);
    step(server, "exports that nobody reads", || held.extend(unread(server, "/api/v1/export", 16)));
    step(server, "lists that nobody reads", || held.extend(unread(server, "/api/v1/series", 40)));
    step(server, "bodies that never arrive", || held.extend(begun(server, &body_head(), &[0; 1_000], 200)));
    step(server, "bodies that stop", || held.extend(begun(server, &body_head(), &vec![0; 900_000], 40)));
    let chunk =
        of("hostile", Request::write(&[]).header("Transfer-Encoding", "chunked")).head() + "fffffff\r\n";
    step(server, "chunks that never arrive", || held.extend(begun(server, &chunk, &[0; 1_000], 100)));
    step(server, "idle connections", || held.extend(begun(server, "", &[], IDLE)));
    let head =
        format!("GET / HTTP/1.1\r\nAuthorization: Bearer {}\r\nX: {}", secret("hostile"), "x".repeat(60_000));
    step(server, "heads without end", || held.extend(begun(server, &head, &[], 200)));
    step(server, "pipelined requests", || pipelined(server));
    step(server, "a connection for each request", || short(server, 2_000));
    eprintln!("{} connections held", held.len());
}

fn step(server: &Server, name: &str, attack: impl FnOnce()) {
    let began = std::time::Instant::now();
    attack();
    eprintln!("{name}: {:.1} s, {} MiB", began.elapsed().as_secs_f64(), server.peak_bytes() >> 20);
}

fn body_head() -> String {
    of("hostile", Request::write(&[]).header("Content-Length", "1000000")).head()
}

/// Opens connections and sends only the beginning of a request on each. The server may close them.
fn begun(server: &Server, head: &str, body: &[u8], count: usize) -> Held {
    let bytes = [head.as_bytes(), body].concat();
    let begin = |_| {
        let mut connection = Connection::open(server.address).ok()?;
        connection.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = connection.send_bytes(&bytes);
        Some(connection)
    };
    (0..count).filter_map(begin).collect()
}

fn unread(server: &Server, path: &str, count: usize) -> Held {
    let request = of("hostile", Request::ask(path, &[("match[]", "own")]));
    begun(server, &request.head(), &[], count)
}

/// Sends many requests at once on one connection. Their answers must come in the same order, but the server
/// may close the connection.
fn pipelined(server: &Server) {
    let connection = Connection::open(server.address).unwrap();
    let mut writing = connection.stream.try_clone().unwrap();
    let request = |number: usize| {
        of("hostile", Request::ask("/api/v1/query", &[("query", &format!("vector({number})"))]))
    };
    let mut reader = BufReader::new(connection.stream);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut sent = (0..PIPELINED).map(|number| writing.write_all(request(number).head().as_bytes()));
            sent.find(Result::is_err)
        });
        let replies = (0..PIPELINED).map_while(|number| Some((number, Reply::read(&mut reader).ok()?)));
        let mut answered = 0;
        for (number, reply) in replies {
            check_form("pipelined", &request(number), &reply);
            if reply.status == 200 {
                assert_eq!(reply.json()["data"]["result"][0]["value"][1], number.to_string());
            }
            answered += 1;
        }
        eprintln!("{answered} of {PIPELINED} pipelined requests were answered");
        assert!(answered > 0);
    });
}

fn short(server: &Server, count: usize) {
    let request = of("hostile", Request::ask("/api/v1/query", &[("query", "count(own)")]));
    for _ in 0..count {
        let _ = Connection::open(server.address)
            .and_then(|mut connection| connection.send(&request.clone().path("/-/healthy")));
        let _ = Connection::open(server.address)
            .and_then(|mut connection| connection.send_bytes(request.head().as_bytes()));
    }
}

/// Input that is not HTTP must be answered with a 4xx status, or the connection must be closed.
fn not_http(server: &Server) {
    let head = |more: &str| format!("POST /api/v1/write HTTP/1.1\r\nHost: localhost\r\n{more}\r\n\r\n");
    let long = "x".repeat(200_000);
    let many: String = (0..1_000).map(|i| format!("X-{i}: y\r\n")).collect();
    for (name, bytes) in [
        ("no request", "\0\x01\x02\x03\r\n\r\n".to_owned()),
        ("a long path", format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        ("a long header", head(&format!("X: {long}"))),
        ("many headers", head(&format!("{many}X: y"))),
        ("a negative length", head("Content-Length: -1")),
        ("a length beyond all numbers", head("Content-Length: 99999999999999999999999")),
        ("two lengths", head("Content-Length: 1\r\nContent-Length: 2")),
        ("a length and chunks", head("Content-Length: 1\r\nTransfer-Encoding: chunked")),
        ("a chunk beyond all numbers", head("Transfer-Encoding: chunked") + "fffffffffffffffff\r\n"),
        ("a chunk of no number", head("Transfer-Encoding: chunked") + "zz\r\n"),
        ("an unknown coding", head("Transfer-Encoding: gzip, chunked, gzip")),
        ("a space before the colon", head("Content-Length : 1")),
        ("a version to come", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n".to_owned()),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
    ] {
        let mut connection = Connection::open(server.address).unwrap();
        let sent = connection.send_bytes(bytes.as_bytes());
        let reply = sent.and_then(|()| connection.reply());
        let is_refused =
            reply.as_ref().map_or(true, |reply| (400..500).contains(&reply.status) || reply.status == 505);
        assert!(is_refused, "{name}: {:?}", reply.map(|reply| (reply.status, reply.text())));
    }
}
