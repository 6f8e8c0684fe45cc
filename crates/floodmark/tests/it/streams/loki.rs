//! Push requests of Loki: requests of all forms, and clients for Python and Node.js. Telegraf is in `senders/telegraf.rs`.

use super::{ask, check, kill_and_restart, stored_records, wait_until_loaded};
use crate::authentication::sha256;
use crate::harness::pages::{Page, run, shell, with};
use crate::harness::programs::{cache, find, free_port};
use crate::harness::{Options, Request, Server};
use crate::tls;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

const PYTHON: &str = include_str!("loki.py");
const NODE: &str = include_str!("loki.js");

const PATH: &str = "/loki/api/v1/push";

const NS: i64 = 1_795_284_000_123_456_789;

/// Records reach their tables quickly.
fn server(config: &str) -> Server {
    let config = format!("stream_freshness = \"100ms\"\n{config}");
    Server::start(Options::default().port(free_port()).config(&config))
}

fn post(content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    Request::post(PATH, body.into()).header("Content-Type", content_type)
}

fn json(streams: &Value) -> Request {
    post("application/json", json!({ "streams": streams }).to_string())
}

/// A stream of a service in JSON.
fn of(service: &str, values: Value) -> Value {
    json!({"stream": {"service_name": service}, "values": values})
}

/// A length-delimited field of protobuf, of less than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn varint(number: u8, mut value: u64) -> Vec<u8> {
    let mut bytes = vec![number << 3];
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A stream with one entry in protobuf.
fn protobuf(labels: &str, line: &str) -> Vec<u8> {
    let time = [varint(1, NS as u64 / 1_000_000_000), varint(2, NS as u64 % 1_000_000_000)].concat();
    let metadata = [field(1, b"trace"), field(2, b"7b")].concat();
    let entry = [field(1, &time), field(2, line.as_bytes()), field(3, &metadata)].concat();
    field(1, &[field(1, labels.as_bytes()), field(2, &entry)].concat())
}

fn snappy(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn entries_are_durable() {
    let mut server = server("");
    let message = [protobuf(r#"{app="shop", env="a\"b"}"#, "größe"), protobuf("{job=\"x\"}", "")].concat();
    for request in [
        Request::post(PATH, snappy(&message)),
        post("application/x-protobuf", snappy(&message)),
        post("application/x-protobuf", snappy(&message)).header("Content-Encoding", "snappy"),
        post("application/x-protobuf", snappy(&message)).tenant("other"),
    ] {
        let reply = server.send(&request);
        assert!(reply.expect(204, &[]).text().is_empty());
    }
    let streams = json!([
        {"stream": {"app": "shop", "env": "a\"b"}, "values": [[NS.to_string(), "größe", {"trace": "7b"}]]},
        {"stream": {"job": "x"}, "values": [[NS.to_string(), "", {"trace": "7b"}]]},
    ]);
    let body = json!({ "streams": streams }).to_string();
    let zstd = zstd::bulk::compress(body.as_bytes(), 3).unwrap();
    for request in [
        post("application/json", body.as_bytes()),
        post("application/json; charset=utf-8", gzip(body.as_bytes())).header("Content-Encoding", "gzip"),
        post("application/json", zstd).header("Content-Encoding", "zstd"),
        json(&streams).tenant("other"),
    ] {
        let reply = server.send(&request);
        assert!(reply.expect(204, &[]).text().is_empty());
    }
    server.send(&json(&streams).header("X-Floodmark-Stream", "named")).expect(204, &[]);
    server.send(&json(&json!([{"stream": {}, "values": [[(NS - 5000).to_string(), "a"]]}]))).expect(204, &[]);
    for nothing in [json(&json!([])), post("application/json", "{}"), post("application/x-protobuf", "\0")] {
        server.send(&nothing).expect(204, &[]);
    }
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    let query = r#"SELECT message, epoch_us("time"), time_unix_nano, "labels.app", "labels.env", "metadata.trace", count(*)
        FROM t GROUP BY ALL"#;
    check(&server, "shop", query, &json!([["größe", NS / 1000, NS, "shop", "a\"b", "7b", 6]]));
    check(
        &server,
        "x",
        r#"SELECT message, "labels.job", count(*) FROM t GROUP BY ALL"#,
        &json!([["", "x", 6]]),
    );
    check(&server, "named", "SELECT count(*) FROM t", &json!([[2]]));
    check(&server, "logs", r#"SELECT message, epoch_us("time") FROM t"#, &json!([["a", (NS - 5000) / 1000]]));
    let found = ask("deltalake", &server, "other", "shop", "SELECT count(*) FROM t");
    assert!(found.as_ref().is_none_or(|found| *found == json!([[2]])), "{found:?}");
}

/// Senders that repeat whatever is not answered with a 204 must not store the other entries again.
#[test]
fn entries_that_can_never_be_stored_are_counted() {
    let server = server("");
    let long = json!({"n".repeat(1_020): "x"});
    let ns = NS.to_string();
    let values = json!([[ns, "a"], ["-1", "b"], [ns, "c", long], [ns, "d"]]);
    server.send(&json(&json!([of("s", values)]))).expect(204, &[]);
    assert_eq!(server.metric("floodmark_records_refused_total"), 2.0);
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="partial_write"}"#), 1.0);
    let message = [protobuf("{a}", "x"), protobuf("{app=\"s\"}", "e")].concat();
    server.send(&post("application/x-protobuf", snappy(&message))).expect(204, &[]);
    assert_eq!(server.metric("floodmark_records_refused_total"), 3.0);
    server.send(&post("application/x-protobuf", snappy(&protobuf("{a}", "x")))).expect(204, &[]);
    assert_eq!(server.metric("floodmark_records_refused_total"), 4.0);
    wait_until_loaded(&server);
    check(&server, "s", "SELECT message FROM t ORDER BY message", &json!([["a"], ["d"], ["e"]]));
}

#[test]
fn errors_are_text() {
    let server = server("[tenant.few]\nstreams = 1\n");
    let check = |request: Request, status: u16, what: &str| {
        let reply = server.send(&request);
        reply.expect(status, &[what]);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.header("retry-after").is_some(), [429, 503].contains(&status));
    };
    let one = json(&json!([of("s", json!([[NS.to_string(), "x"]]))]));
    check(post("application/x-protobuf", ""), 400, "snappy");
    check(post("application/x-protobuf", snappy(b"\xff")), 400, "invalid protobuf at byte 0");
    check(post("application/json", "[]"), 400, "unexpected JSON at byte 0");
    check(post("application/json", r#"{"streams":[{"values":[["x","y"]]}]}"#), 400, "in nanoseconds");
    check(post("text/plain", "x"), 415, "send application/x-protobuf or application/json");
    check(one.clone().header("Content-Encoding", "deflate"), 415, "gzip or zstd");
    check(one.clone().header("Content-Encoding", "gzip"), 400, "gzip");
    let gzip = post("application/x-protobuf", gzip(&snappy(&protobuf("{}", "x"))));
    check(gzip.header("Content-Encoding", "gzip"), 415, "send snappy");
    check(one.clone().header("X-Floodmark-Stream", "a/b"), 400, "X-Floodmark-Stream");
    check(one.clone().header("Idempotency-Key", &"k".repeat(257)), 400, "257");
    check(one.clone().header("Content-Length", "99999999"), 413, "limit");
    check(one.clone().tenant(".."), 400, "tenant");
    server.send(&one.clone().tenant("few")).expect(204, &[]);
    check(one.clone().tenant("few").header("X-Floodmark-Stream", "more"), 429, "setting streams");
    check(one.header("X-Floodmark-Stream", "LOGS"), 400, "differs only in case");
    server.send(&Request::get(PATH)).expect(405, &[]);
}

/// Entries of further services must not hold up those that are in the same request.
#[test]
fn entries_of_one_service_too_many_are_of_the_stream_logs() {
    let server = server("[tenant.few]\nstreams = 2\n");
    for n in 0..2 {
        let value = json!([[NS.to_string(), n.to_string()]]);
        let streams = ["a", "b", "c", "B", "Logs"].map(|service| of(service, value.clone()));
        server.send(&json(&json!(streams)).tenant("few")).expect(204, &[]);
    }
    assert_eq!(server.metric("floodmark_records_refused_total"), 0.0);
    wait_until_loaded(&server);
    for (stream, records) in [("a", 2), ("b", 2), ("logs", 6)] {
        let found = ask("deltalake", &server, "few", stream, "SELECT count(*) FROM t");
        assert!(found.is_none_or(|found| found == json!([[records]])), "{stream}");
    }
}

/// With a key, a repetition is stored once.
#[test]
fn repetitions_with_a_key_are_stored_once() {
    let mut server = server("");
    let values = |n: u64| json!([[NS.to_string(), n.to_string()], ["-1", "left out"]]);
    let request = json(&json!([of("a", values(1)), of("b", values(2))])).header("Idempotency-Key", "k");
    for _ in 0..2 {
        server.send(&request).expect(204, &[]);
        kill_and_restart(&mut server);
        server.send(&request).expect(204, &[]);
    }
    wait_until_loaded(&server);
    for (stream, n) in [("a", "1"), ("b", "2")] {
        check(&server, stream, "SELECT message FROM t", &json!([[n]]));
    }
}

/// A small request must take neither much memory nor many files.
#[test]
fn hostile_requests_are_answered() {
    let options = Options::default().config("stream_freshness = \"100ms\"\nmemory = \"256MiB\"");
    let server = Server::start(options.port(free_port()));
    let labels: Value = (0..128)
        .map(|n| (format!("{n:01000}"), "v".repeat(1_000).into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let entries =
        |count: usize| json!([{"stream": labels, "values": vec![[NS.to_string(), String::new()]; count]}]);
    server.send(&json(&entries(10))).expect(204, &[]);
    server.send(&json(&entries(1_000))).expect(413, &["bytes of records"]);
    // two bytes for each entry
    let many = [&[0x12, 0][..]; 100_000].concat();
    let labels = format!("{{a=\"{}\"}}", "v".repeat(16_000));
    let long = |number: u8, content: &[u8]| {
        let mut bytes = varint(number, content.len() as u64);
        bytes[0] |= 2;
        [bytes, content.to_vec()].concat()
    };
    let message = long(1, &[long(1, labels.as_bytes()), many].concat());
    server.send(&post("application/x-protobuf", snappy(&message))).expect(413, &["bytes of records"]);
    let deep = format!(r#"{{"streams":[{{"values":{}"#, "[".repeat(100_000));
    server.send(&post("application/json", deep)).expect(400, &["nested too deeply"]);
    let bomb = snappy(&vec![0; 60 << 20]);
    server.send(&post("application/x-protobuf", bomb)).expect(413, &[]);
    let days: Vec<_> =
        (0..101).map(|day| json!([(NS - day * 86_400_000_000_000).to_string(), "x"])).collect();
    server.send(&json(&json!([of("days", json!(days))]))).expect(204, &[]);
    assert_eq!(server.metric("floodmark_records_refused_total"), 1.0);
    wait_until_loaded(&server);
    check(&server, "days", "SELECT count(*), count(DISTINCT date) FROM t", &json!([[100, 100]]));
    assert!(server.peak_bytes() < 300 << 20, "{} bytes", server.peak_bytes());
}

#[test]
fn credentials_are_required() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("auth.toml");
    let entries = format!(
        "[token.writer]\nsha256 = \"{}\"\ntenants = [\"a\"]\nroles = [\"write\"]\n\
         [token.reader]\nsha256 = \"{}\"\ntenants = [\"a\"]\nroles = [\"read\"]\n",
        sha256("write"),
        sha256("read")
    );
    std::fs::write(&file, entries).unwrap();
    let options = Options::default().arg("--auth-file").arg(tls::text(&file));
    let server = Server::start(options.allow("requests refused"));
    let request = json(&json!([]));
    let with =
        |token: &str| server.send(&request.clone().header("Authorization", &format!("Bearer {token}")));
    server.send(&request).expect(401, &[]);
    with("read").expect(403, &[]);
    with("write").expect(204, &[]);
}

/// Returns false, and reports that the test is skipped, if the client for Python is missing.
fn has_python() -> bool {
    let installed = cache().join("py/bin/python").is_file()
        && shell("python -c 'import logging_loki'", Path::new("/"))
            .output()
            .is_ok_and(|o| o.status.success());
    if !installed {
        stdx::skipped::for_want_of("the Python package python-logging-loki (scripts/test-servers.sh)");
    }
    installed
}

/// The folder with the clients for Node.js. `None`, and the test is skipped, if they are missing.
fn node_modules() -> Option<String> {
    let modules = cache().join("winston-loki/node_modules");
    if find(&["node"]).is_none() || !modules.join("winston-loki").is_dir() {
        stdx::skipped::for_want_of("winston-loki (install Node.js, then run scripts/test-servers.sh)");
        return None;
    }
    Some(modules.display().to_string())
}

#[test]
fn the_programs_of_the_page_send() {
    let (server, dir) = (server(""), tempfile::tempdir().unwrap());
    let page = Page::read("docs/senders/loki.md");
    let program = |heading: &str, language: &str| {
        let text = with(page.block(heading, language), &[("127.0.0.1:9009", server.address.to_string())]);
        std::fs::write(dir.path().join(format!("program.{language}")), text).unwrap();
    };
    let answers = |expected: &Value| {
        wait_until_loaded(&server);
        let query = r#"SELECT message, "labels.level" FROM t"#;
        let found = ask("deltalake", &server, "team-a", "shop", query);
        assert!(found.as_ref().is_none_or(|found| found == expected), "{found:?}");
    };
    if has_python() {
        program("Python", "python");
        run("python -B program.python", dir.path());
        answers(&json!([["order received", "info"]]));
    }
    if let Some(modules) = node_modules() {
        program("Node.js", "js");
        run(&format!("NODE_PATH='{modules}' node program.js"), dir.path());
        assert!([1, 2].contains(&stored_records(&server)));
    }
}

#[test]
fn lines_of_the_python_client_are_read_back() {
    const LINES: i64 = 600;
    if !has_python() {
        return;
    }
    let (mut server, dir) = (server(""), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("loki.py"), PYTHON).unwrap();
    run(&format!("python -B loki.py http://{}{PATH} {LINES}", server.address), dir.path());
    assert_eq!(stored_records(&server), LINES);
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    let query = r#"SELECT time_unix_nano, epoch_us("time"), message, "labels.app", "labels.severity", "labels.logger",
        "labels.n" FROM t ORDER BY "labels.n"::INT"#;
    for remainder in 0..2 {
        for engine in ["duckdb", "deltalake"] {
            let stream = format!("app-{remainder}");
            let Some(found) = ask(engine, &server, "anonymous", &stream, query) else { return };
            let of = |n: i64| {
                // the client has the time as a float
                let ns = ((1_795_284_000.0 + n as f64 / 8.0) * 1e9) as i64;
                let line = format!("größe \"{n}\"\n");
                json!([ns, ns / 1000, line, stream, "warning", "orders", n.to_string()])
            };
            let expected: Value = (0..LINES).filter(|n| n % 2 == remainder).map(of).collect();
            assert_eq!(found, expected, "{engine}");
        }
    }
}

/// The client for Node.js sends protobuf and JSON.
#[test]
fn lines_of_the_node_client_are_read_back() {
    const LINES: i64 = 3_000;
    let Some(modules) = node_modules() else { return };
    let (mut server, dir) = (server(""), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("loki.js"), NODE).unwrap();
    for form in ["protobuf", "json"] {
        let program = format!("NODE_PATH='{modules}' node loki.js http://{} {form} {LINES}", server.address);
        run(&program, dir.path());
    }
    assert_eq!(stored_records(&server), 2 * LINES);
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    let query = r#"SELECT time_unix_nano, epoch_us("time"), message, "labels.job", "labels.level", "labels.kind"
        FROM t ORDER BY time_unix_nano"#;
    for form in ["protobuf", "json"] {
        for engine in ["duckdb", "deltalake"] {
            let Some(found) = ask(engine, &server, "anonymous", form, query) else { return };
            let of = |n: i64| {
                let us = 1_795_284_000_000_000 + 1000 * n;
                json!([1000 * us, us, format!("größe {n}"), form, "info", format!("k{}", n % 3)])
            };
            assert_eq!(found, (0..LINES).map(of).collect::<Value>(), "{engine} {form}");
        }
    }
}
