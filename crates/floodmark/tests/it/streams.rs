//! Records of datastreams: each acknowledged record is in the table of its stream, once.

mod deletion;
mod elastic;
mod loki;
mod otlp;

use crate::harness::programs::{cache, free_port};
use crate::harness::{Connection, Options, Reply, Request, Server, SetOnDrop, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stdx::rng::Rng;

const READERS: &str = "Python with deltalake and duckdb (scripts/test-servers.sh)";

/// Records reach their tables quickly.
fn server() -> Server {
    Server::start(Options::default().port(free_port()).config("stream_freshness = \"100ms\""))
}

fn post(stream: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    Request::post(format!("/api/v1/streams/{stream}"), body.into()).header("Content-Type", content_type)
}

pub(crate) fn json_lines(stream: &str, lines: &[Value]) -> Request {
    let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    post(stream, "application/x-ndjson", lines.join("\n"))
}

fn now_s() -> u64 {
    crate::harness::now_ms().unsigned_abs() / 1000
}

#[track_caller]
pub(crate) fn stored(reply: &Reply, records: u64, refused: u64) -> Value {
    reply.expect(200, &[]);
    let answer = reply.json();
    assert_eq!((&answer["stored"], &answer["refused"]), (&records.into(), &refused.into()), "{answer}");
    answer
}

/// Records that became durable since the server was started.
fn stored_records(server: &Server) -> i64 {
    server.metric("floodmark_records_total") as i64
}

pub(crate) fn wait_until_replayed(server: &Server) {
    wait_for("the end of replay", || (server.metric("floodmark_records_ready") == 1.0).then_some(()));
}

/// Kills the server, and starts it again. Returns once its journal of records is replayed.
fn kill_and_restart(server: &mut Server) {
    server.kill9();
    server.restart();
    wait_until_replayed(server);
}

pub(crate) fn wait_until_loaded(server: &Server) {
    // during replay, there may be no batches between two of the journal
    wait_until_replayed(server);
    wait_for("records in tables", || {
        (server.metric("floodmark_records_waiting_batches") == 0.0).then_some(())
    });
}

/// What an engine answers to a query of a stream's table, `t`. `None` if Python or a package is missing.
pub(crate) fn ask(engine: &str, server: &Server, tenant: &str, stream: &str, query: &str) -> Option<Value> {
    let table = server.data_dir().join("tables").join(tenant).join("streams").join(stream);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/streams/ask.py");
    let mut command = Command::new(cache().join("py/bin/python"));
    let ended = command.arg("-B").arg(script).arg(engine).arg(table).arg(query).output().ok()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("ModuleNotFoundError") {
        return None;
    }
    assert!(ended.status.success(), "{engine}: {said}");
    Some(serde_json::from_slice(&ended.stdout).expect("the script prints no JSON"))
}

/// Both engines must give this answer.
#[track_caller]
pub(crate) fn check(server: &Server, stream: &str, query: &str, expected: &Value) {
    for engine in ["duckdb", "deltalake"] {
        match ask(engine, server, "anonymous", stream, query) {
            Some(found) => assert_eq!(&found, expected, "{engine}: {query}"),
            None => stdx::skipped::for_want_of(READERS),
        }
    }
}

#[test]
fn records_become_columns_of_a_table() {
    let server = server();
    let lines = [
        json!({"time": "2026-11-27T10:00:00.25Z", "level": "info", "http": {"status": 200, "took": 0.5}}),
        json!({"time": 1_795_000_000, "level": "warn", "user": "ada", "tags": ["a", "b"], "ok": true}),
        json!({"level": "info", "http": {"status": "none"}, "empty": {}, "nothing": null}),
    ];
    stored(&server.send(&json_lines("app", &lines)), 3, 0);
    let table = "level,status,text\ninfo,200,\"a, \"\"b\"\"\"\nwarn,,\n";
    stored(&server.send(&post("app", "text/csv", table)), 2, 0);
    stored(&server.send(&post("lines", "text/plain", "one\ntwo\n\nthree")), 3, 0);
    wait_until_loaded(&server);
    check(&server, "app", "SELECT count(*), count(DISTINCT level) FROM t", &json!([[5, 2]]));
    check(
        &server,
        "app",
        r#"SELECT epoch_us("time"), "user", "http.status" FROM t WHERE level = 'warn' AND "user" IS NOT NULL"#,
        &json!([[1_795_000_000_000_000_i64, "ada", null]]),
    );
    check(&server, "lines", "SELECT message FROM t ORDER BY message", &json!([["one"], ["three"], ["two"]]));
}

#[test]
fn wrong_records_are_named_and_the_others_stored() {
    let server = server();
    let body = b"{\"a\":1}\n{\"a\":\n[1]\n{\"a\":\"\xff\"}\n{\"time\":\"1969-01-01T00:00:00Z\"}\n{\"a\":2}\n";
    let reply = server.send(&post("s", "application/x-ndjson", body.to_vec()));
    let answer = stored(&reply, 2, 4);
    let errors: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    for (error, line) in errors.iter().zip(["line 2", "line 3", "line 4", "line 5"]) {
        assert!(error.starts_with(line), "{errors:?}");
    }
    server.send(&post("s", "application/x-ndjson", "[1]\n")).expect(400, &[]);
    server
        .send(&post("s", "application/x-ndjson", "{}x\n{\n"))
        .expect(400, &["no record is stored", "line 1"]);
    server.send(&post("s", "application/json", "[{},")).expect(400, &[]);
    for name in ["_x", "a%2Fb", "%00", &"x".repeat(101)] {
        server.send(&post(name, "application/json", "{}")).expect(400, &["name of the stream"]);
    }
    server.send(&post("s?format=xml", "text/plain", "x")).expect(400, &["format"]);
    let request = post("s", "application/json", "{}").header("Content-Encoding", "br");
    server.send(&request).expect(415, &["gzip"]);
    let request = post("s", "application/json", "{}").header("Idempotency-Key", &"k".repeat(257));
    server.send(&request).expect(400, &["257"]);
}

#[test]
fn a_batch_with_a_key_is_stored_once() {
    let mut server = server();
    let send = |server: &Server, stream: &str, key: &str, n: u64| {
        server.send(&json_lines(stream, &[json!({"n": n})]).header("Idempotency-Key", key)).json()["repeated"]
            .take()
    };
    assert_eq!(send(&server, "s", "a", 1), false);
    assert_eq!(send(&server, "s", "a", 1), true);
    assert_eq!(send(&server, "other", "a", 1), false, "streams do not share keys");
    kill_and_restart(&mut server);
    assert_eq!(send(&server, "s", "a", 1), true);
    wait_until_loaded(&server);
    assert_eq!(send(&server, "s", "a", 1), true, "the journal may forget the batch, but not its key");
    kill_and_restart(&mut server);
    assert_eq!(send(&server, "s", "a", 1), true);
    assert_eq!(send(&server, "s", "b", 2), false);
    wait_until_loaded(&server);
    check(&server, "s", "SELECT n, count(*) FROM t GROUP BY n ORDER BY n", &json!([[1, 1], [2, 1]]));
}

/// Senders repeat a batch with the same key until it is acknowledged, while the server is killed again and again.
#[test]
fn after_kills_every_acknowledged_record_is_there_once() {
    const SENDERS: u64 = 4;
    const KILLS: usize = 8;
    let seed = Rng::fresh_seed();
    eprintln!("seed {seed}");
    let mut server = server();
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (address, done, acknowledged) = (server.address, &done, &acknowledged);
    let sent = std::thread::scope(|threads| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                threads.spawn(move || {
                    let mut rng = Rng::new(seed ^ sender);
                    let (mut connection, mut batch) = (None, 0);
                    let mut sent = BTreeMap::new();
                    while !done.load(Ordering::Relaxed) {
                        let stream = format!("s{}", rng.below(3));
                        let records = 1 + rng.below(50);
                        let lines: Vec<_> =
                            (0..records).map(|n| json!({"sender": sender, "batch": batch, "n": n})).collect();
                        let key = format!("{sender}-{batch}");
                        let request = json_lines(&stream, &lines).header("Idempotency-Key", &key);
                        // a batch that was not answered may be stored, so it must be sent until it is
                        loop {
                            let open = connection.take().or_else(|| Connection::open(address).ok());
                            let Some(mut open) = open else {
                                std::thread::yield_now();
                                continue;
                            };
                            let reply = open.send(&request);
                            if let Ok(reply) = reply {
                                connection = Some(open);
                                if reply.status == 200 {
                                    break;
                                }
                                assert_eq!(reply.status, 503, "{reply:?}");
                            }
                        }
                        acknowledged.fetch_add(records, Ordering::Relaxed);
                        sent.insert(batch, (stream, records));
                        batch += 1;
                    }
                    sent
                })
            })
            .collect();
        let stop = SetOnDrop(done);
        for _ in 0..KILLS {
            let before = acknowledged.load(Ordering::Relaxed);
            wait_for("acknowledged records", || {
                (acknowledged.load(Ordering::Relaxed) > before + 1_000).then_some(())
            });
            server.kill9();
            server.restart();
        }
        drop(stop);
        senders.into_iter().map(|sender| sender.join().unwrap()).collect::<Vec<_>>()
    });
    wait_until_loaded(&server);
    for stream in ["s0", "s1", "s2"] {
        let of = |(_, (of, _)): &(&u64, &(String, u64))| of == stream;
        let records: u64 = sent.iter().flat_map(|sent| sent.iter().filter(of).map(|(_, (_, n))| n)).sum();
        let batches: u64 = sent.iter().map(|sent| sent.iter().filter(of).count() as u64).sum();
        check(
            &server,
            stream,
            "SELECT count(*), count(DISTINCT (sender, batch, n)), count(DISTINCT (sender, batch)) FROM t",
            &json!([[records, records, batches]]),
        );
    }
}

#[test]
fn the_number_of_streams_is_limited() {
    let mut server =
        Server::start(Options::default().config("stream_freshness = \"100ms\"\n[tenant.few]\nstreams = 2"));
    let send = |server: &Server, stream: &str, tenant: &str| {
        server.send(&json_lines(stream, &[json!({"a": 1})]).tenant(tenant))
    };
    for stream in ["a", "b", "a"] {
        send(&server, stream, "few").expect(200, &[]);
    }
    send(&server, "c", "few").expect(429, &["2 streams", "setting streams"]);
    send(&server, "c", "others").expect(200, &[]);
    wait_until_loaded(&server);
    kill_and_restart(&mut server);
    // their tables say which streams the tenant has
    send(&server, "c", "few").expect(429, &["2 streams"]);
    send(&server, "b", "few").expect(200, &[]);
}

/// Each day of a stream has files of its own.
#[test]
fn times_far_from_the_present_are_refused() {
    const DAY_S: u64 = 86_400;
    let config = "stream_freshness = \"100ms\"\npast_limit = \"2d\"";
    let server = Server::start(Options::default().port(free_port()).config(config));
    let at = |time_s: u64| json!({"time": time_s, "ts": now_s()});
    let times = [now_s() - DAY_S, now_s(), now_s() + DAY_S, now_s() - 3 * DAY_S, now_s() + 2 * DAY_S];
    let answer = stored(&server.send(&json_lines("s", &times.map(at))), 3, 2);
    let errors = answer["errors"].to_string();
    assert!(errors.contains("line 4") && errors.contains("past_limit"), "{errors}");
    assert!(errors.contains("line 5") && errors.contains("one day later"), "{errors}");
    server.send(&json_lines("s", &[at(100_000_000)])).expect(400, &["no record is stored", "past_limit"]);
    wait_until_loaded(&server);
    check(&server, "s", "SELECT count(DISTINCT date) FROM t", &json!([[3]]));
}

/// Tenants that send records only are in no head.
#[test]
fn tenants_that_have_records_are_not_new_again() {
    const TENANTS: usize = 70; // more than are remembered as admitted
    let settings = format!("tenant_burst = {TENANTS}\ntenants_per_minute = 1");
    let server = Server::start(Options::default().config(&settings));
    let send = |tenant: usize| server.send(&json_lines("app", &[json!({})]).tenant(&format!("t{tenant}")));
    for _ in 0..2 {
        for tenant in 0..TENANTS {
            stored(&send(tenant), 1, 0);
        }
    }
    send(TENANTS).expect(503, &["tenants_per_minute"]);
}

/// One request cannot take more memory than its account has, nor hold up others.
#[test]
fn hostile_records_are_answered() {
    let server =
        Server::start(Options::default().config("stream_freshness = \"100ms\"\nmemory = \"256MiB\""));
    let post = |body: Vec<u8>| server.send(&post("s", "application/json", body));
    let deep = [b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
    post(deep).expect(400, &["nested"]);
    let keys: Vec<_> = (0..20_000).map(|n| format!("\"k{n}\":1")).collect();
    post(format!("{{{}}}", keys.join(",")).into_bytes()).expect(400, &["attributes"]);
    post(vec![b'['; 2 << 20]).expect(413, &["bytes"]);
    let flips: Vec<_> = ["1", "\"x\"", "true", "1.5", "[1]", "{\"b\":1}", "null", "18446744073709551616"]
        .iter()
        .cycle()
        .take(800)
        .map(|value| json!({"flips": "v", "time": now_s()}).to_string().replace("\"v\"", value))
        .collect();
    let reply =
        server.send(&json_lines("flips", &flips.iter().map(|l| l.parse().unwrap()).collect::<Vec<_>>()));
    stored(&reply, 800, 0);
    let odd = json!({"a\"b`c.\u{0}": "\u{0}", "": 1, "Stream": "x", "TIME": "y", "date": "z", "é": "ö"});
    stored(&server.send(&json_lines("odd", &[odd])), 1, 0);
    let days: Vec<_> = (0..101).map(|day| json!({"time": now_s() - 86_400 * day})).collect();
    server.send(&json_lines("days", &days)).expect(400, &["100 days"]);
    stored(&server.send(&json_lines("days", &days[1..])), 100, 0);
    // names of columns that stay in the rest of each row
    let names: Vec<_> = (0..1_000).map(|n| format!("{}{n}", "n".repeat(300))).collect();
    let table = format!("{}\n{}", names.join(","), format!("{}1\n", "1,".repeat(999)).repeat(300));
    let reply = server.send(&self::post("names", "text/csv", table));
    assert!([200, 413].contains(&reply.status), "{reply:?}");
    let bomb = zstd::bulk::compress(&vec![b' '; 60 << 20], 19).unwrap();
    let request = self::post("s", "application/json", bomb).header("Content-Encoding", "zstd");
    server.send(&request).expect(413, &[]);
    wait_until_loaded(&server);
    check(&server, "days", "SELECT count(*), count(DISTINCT date) FROM t", &json!([[100, 100]]));
    check(&server, "flips", "SELECT count(*) FROM t", &json!([[800]]));
    check(&server, "odd", "SELECT stream, attributes IS NOT NULL FROM t", &json!([["odd", true]]));
    assert!(server.peak_bytes() < 300 << 20, "{} bytes", server.peak_bytes());
}

/// The journal has several times as many records as fit into memory. They are replayed nevertheless, and none becomes a row
/// again.
#[test]
fn a_restart_needs_no_more_memory_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let options = |freshness: &str| {
        let config = format!("stream_freshness = \"{freshness}\"\nmemory = \"64MiB\"");
        Options::default().config(&config).data_dir(dir.path())
    };
    let mut server = Server::start(options("1h"));
    let mut rng = Rng::announced();
    for batch in 0..100 {
        let mut text = || (0..1500).map(|_| format!("{:016x}", rng.next_u64())).collect::<String>();
        let lines: Vec<_> = (0..6).map(|n| json!({"n": 6 * batch + n, "text": text()})).collect();
        // until streams were loaded, there may be no room
        wait_for("room for records", || {
            let reply = server.send(&json_lines("s", &lines));
            assert!([200, 503].contains(&reply.status), "{reply:?}");
            (reply.status == 200).then_some(())
        });
    }
    for _ in 0..2 {
        server.kill9();
        server.restart();
        wait_until_replayed(&server);
    }
    // what is left would wait for an hour
    assert!(server.metric("floodmark_records_waiting_bytes") > 0.0);
    server.kill9();
    let server = Server::start(options("100ms"));
    wait_until_loaded(&server);
    check(&server, "s", "SELECT count(*), count(DISTINCT n) FROM t", &json!([[600, 600]]));
    assert!(server.peak_bytes() < 72 << 20, "{} bytes", server.peak_bytes());
}
