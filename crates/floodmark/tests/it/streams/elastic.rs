//! Bulk requests of Elasticsearch: requests of all forms, the client for Python, and rsyslog.

use super::{ask, check, kill_and_restart, now_s, stored_records, wait_until_loaded};
use crate::authentication::sha256;
use crate::harness::pages::{Page, run, with};
use crate::harness::programs::{cache, free_port};
use crate::harness::{Connection, Options, Reply, Request, Server};
use crate::tls;
use serde_json::{Value, json};
use std::process::Command;

const CLIENT: &str = include_str!("elastic.py");

/// Records reach their tables quickly.
fn server(config: &str) -> Server {
    let config = format!("stream_freshness = \"100ms\"\n{config}");
    Server::start(Options::default().port(free_port()).config(&config))
}

fn bulk(path: &str, lines: &[&str]) -> Request {
    let body = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    Request::post(path, body.into_bytes())
        .header("Content-Type", "application/x-ndjson")
        .header("User-Agent", "test")
}

#[track_caller]
fn answered(reply: &Reply, errors: bool, statuses: &[u64]) -> Value {
    reply.expect(200, &[]);
    assert_eq!(reply.header("x-elastic-product"), Some("Elasticsearch"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let answer = reply.json();
    assert_eq!(answer["errors"], errors, "{answer}");
    let status =
        |item: &Value| item.as_object().unwrap().values().next().unwrap()["status"].as_u64().unwrap();
    assert_eq!(
        answer["items"].as_array().unwrap().iter().map(status).collect::<Vec<_>>(),
        statuses,
        "{answer}"
    );
    answer
}

#[test]
fn documents_are_durable() {
    let mut server = server("");
    let index = r#"{"index":{"_index":"app","_id":"1"}}"#;
    let document = r#"{"@timestamp":"2026-11-21T18:00:00.25Z","level":"info","http":{"status":200}}"#;
    for path in ["/_bulk", "/elasticsearch/_bulk", "/other/_bulk", "/elasticsearch/other/_bulk?refresh=true"]
    {
        let answer = answered(
            &server.send(&bulk(path, &[index, document, r#"{"create":{"_index":"b"}}"#, "{}"])),
            false,
            &[201, 201],
        );
        assert_eq!(answer["items"][0]["index"]["_id"], "1");
        assert!(answer["took"].is_u64());
    }
    answered(&server.send(&bulk("/in-path/_bulk", &[r#"{"index":{}}"#, document])), false, &[201]);
    let named = bulk("/_bulk", &[index, document]).header("X-Floodmark-Stream", "named");
    answered(&server.send(&named), false, &[201]);
    let brief =
        server.send(&bulk("/_bulk?filter_path=errors,items.*.status", &[index, document]).tenant("t"));
    assert_eq!(answered(&brief, false, &[201])["items"][0], json!({"index": {"status": 201}}));
    answered(&server.send(&bulk("/_bulk", &[])), false, &[]);
    let packed = zstd::bulk::compress(format!("{index}\n{document}\n").as_bytes(), 3).unwrap();
    let zstd = Request::post("/_bulk", packed).header("Content-Encoding", "zstd").tenant("t");
    answered(&server.send(&zstd), false, &[201]);
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    let query = r#"SELECT epoch_us("time"), _id, level, "http.status", count(*) FROM t GROUP BY ALL"#;
    check(&server, "app", query, &json!([[1_795_284_000_250_000_i64, "1", "info", 200, 4]]));
    check(&server, "b", "SELECT count(*) FROM t", &json!([[4]]));
    check(&server, "in-path", "SELECT level FROM t", &json!([["info"]]));
    check(&server, "named", "SELECT level FROM t", &json!([["info"]]));
}

#[test]
fn refused_actions_are_items_of_the_answer() {
    let server = server("");
    let lines = [
        r#"{"index":{"_index":"app"}}"#,
        r#"{"a":1}"#,
        r#"{"delete":{"_index":"app","_id":"1"}}"#,
        r#"{"update":{"_index":"app","_id":"1"}}"#,
        r#"{"doc":{}}"#,
        r#"{"index":{"_index":"a/b"}}"#,
        "{}",
        r#"{"index":{"_index":"app"}}"#,
        "[1]",
    ];
    let answer = answered(&server.send(&bulk("/_bulk", &lines)), true, &[201, 400, 400, 400, 400]);
    assert_eq!(answer["items"][1]["delete"]["error"]["type"], "illegal_argument_exception");
    assert_eq!(answer["items"][3]["index"]["error"]["type"], "invalid_index_name_exception");
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="partial_write"}"#), 1.0);
    assert_eq!(server.metric("floodmark_records_refused_total"), 4.0);
    // nothing is stored
    answered(&server.send(&bulk("/_bulk", &lines[2..5])), true, &[400, 400]);
}

/// The days of a stream that is left out would make room for the records of a stream that was not admitted.
#[test]
fn a_stream_that_has_no_records_at_first_stays_without() {
    let server = server("[tenant.few]\nstreams = 3\n");
    let now_s = now_s();
    let mut lines = Vec::new();
    for stream in 0..4 {
        for day in 0..100 {
            lines.push(format!(r#"{{"index":{{"_index":"s{stream}"}}}}"#));
            lines.push(format!(r#"{{"time":{}}}"#, now_s - 86_400 * day));
        }
    }
    lines.extend([r#"{"index":{"_index":"late"}}"#.to_owned(), "{}".to_owned()]);
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let statuses = [vec![201; 300], vec![429; 100], vec![400]].concat();
    answered(&server.send(&bulk("/_bulk", &lines).tenant("few")), true, &statuses);
    let late = bulk("/_bulk", &[r#"{"index":{"_index":"late"}}"#, "{}"]).tenant("few");
    server.send(&late).expect(429, &["3 streams"]);
}

#[test]
fn errors_have_the_form_of_elasticsearch() {
    let server = server("[tenant.few]\nstreams = 1\n");
    let check = |request: Request, status: u16, kind: &str, reason: &str| {
        let reply = server.send(&request);
        let answer = reply.expect(status, &[reason]).json();
        assert_eq!((&answer["status"], &answer["error"]["type"]), (&json!(status), &json!(kind)), "{answer}");
        assert_eq!(answer["error"]["root_cause"][0]["type"], kind);
        assert_eq!(reply.header("x-elastic-product"), Some("Elasticsearch"));
        assert_eq!(reply.header("retry-after").is_some(), [429, 503].contains(&status));
    };
    let index = [r#"{"index":{"_index":"app"}}"#, "{}"];
    check(bulk("/_bulk", &["x"]), 400, "illegal_argument_exception", "malformed action in line 1");
    check(bulk("/_bulk", &index[..1]), 400, "illegal_argument_exception", "a line with a document");
    check(
        bulk("/_bulk", &index).header("Content-Encoding", "br"),
        415,
        "illegal_argument_exception",
        "gzip or zstd",
    );
    check(bulk("/_bulk", &index).tenant(".."), 400, "illegal_argument_exception", "tenant");
    check(
        bulk("/_bulk", &index).header("Content-Length", "99999999"),
        413,
        "content_too_long_exception",
        "limit",
    );
    server.send(&bulk("/_bulk", &index).tenant("few")).expect(200, &[]);
    let other = bulk("/_bulk", &[r#"{"index":{"_index":"more"}}"#, "{}"]).tenant("few");
    check(other.clone(), 429, "es_rejected_execution_exception", "setting streams");
    // also if another one is refused for good
    let all =
        bulk("/_bulk", &[r#"{"index":{"_index":"App"}}"#, "{}", r#"{"index":{"_index":"more"}}"#, "{}"]);
    check(all.tenant("few"), 429, "es_rejected_execution_exception", "setting streams");
    // documents of other indexes are stored
    let both =
        [&index[..], &[r#"{"index":{"_index":"more"}}"#, "{}"], &[r#"{"index":{"_index":"App"}}"#, "{}"]]
            .concat();
    let answer = answered(&server.send(&bulk("/_bulk", &both).tenant("few")), true, &[201, 429, 400]);
    assert_eq!(answer["items"][1]["index"]["error"]["type"], "es_rejected_execution_exception");
    // a client that does not look at the status finds no whole answer
    let cut = Connection::open(server.address).unwrap().send(&other.without("User-Agent"));
    assert!(cut.is_err(), "{cut:?}");
    let deep = [b"{\"index\":{\"_index\":\"app\"}}\n".to_vec(), b"[".repeat(100_000)].concat();
    let reply = server.send(&Request::post("/_bulk", deep));
    assert!(reply.expect(200, &[]).json()["errors"].as_bool().unwrap());
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
    let lines = [r#"{"index":{"_index":"app"}}"#, "{}"];
    for request in [bulk("/_bulk", &lines), Request::get("/_license")] {
        let with =
            |token: &str| server.send(&request.clone().header("Authorization", &format!("Bearer {token}")));
        let reply = server.send(&request);
        reply.expect(401, &["security_exception"]);
        assert!(reply.header("www-authenticate").is_some());
        with("read").expect(403, &["security_exception"]);
        with("write").expect(200, &[]);
    }
}

#[test]
fn clients_get_what_they_ask_at_their_start() {
    let server = server("");
    for prefix in ["", "/elasticsearch"] {
        for (path, part) in [
            ("/_license", r#""status":"active""#),
            ("/_xpack", r#""type":"basic""#),
            ("/_cluster/health", r#""status":"green""#),
            ("/_cat/health", "green"),
            ("/_ilm/policy/filebeat", "{}"),
            ("/_index_template/filebeat", "{}"),
        ] {
            let reply = server.send(&Request::get(format!("{prefix}{path}")));
            reply.expect(200, &[part]);
            assert_eq!(reply.header("x-elastic-product"), Some("Elasticsearch"), "{path}");
        }
    }
    server.send(&Request::get("/elasticsearch/")).expect(200, &[r#""number":"8."#]);
    let json = Request::get("/").header("Accept", "application/vnd.elasticsearch+json; compatible-with=9");
    server.send(&json).expect(200, &[r#""number":"8."#]);
    server.send(&Request::get("/").header("Accept", "text/html")).expect(200, &["<html"]);
}

/// Returns false, and reports that the test is skipped, if the client is missing.
fn has_client() -> bool {
    let imported = Command::new(cache().join("py/bin/python")).args(["-c", "import elasticsearch"]).output();
    let has_client = imported.is_ok_and(|ended| ended.status.success());
    if !has_client {
        stdx::skipped::for_want_of("the client of Elasticsearch for Python (scripts/test-servers.sh)");
    }
    has_client
}

#[test]
fn the_program_of_the_page_sends() {
    if !has_client() {
        return;
    }
    let (server, dir) = (server(""), tempfile::tempdir().unwrap());
    let page = Page::read("docs/senders/elasticsearch.md");
    let program = with(page.block("Python", "python"), &[("127.0.0.1:9009", server.address.to_string())]);
    std::fs::write(dir.path().join("program.py"), program).unwrap();
    assert_eq!(run("python program.py\n", dir.path()), "1000 documents are stored\n");
    wait_until_loaded(&server);
    let query = r#"SELECT count(DISTINCT "order"), count(*) FROM t WHERE level = 'info'"#;
    let found = ask("deltalake", &server, "team-a", "app", query);
    assert!(found.as_ref().is_none_or(|found| *found == json!([[1000, 1000]])), "{found:?}");
}

#[test]
fn documents_of_the_python_client_are_read_back() {
    const DOCUMENTS: i64 = 3_000;
    let python = cache().join("py/bin/python");
    if !has_client() {
        return;
    }
    let mut server = server("");
    for (number, prefix) in ["", "/elasticsearch"].into_iter().enumerate() {
        let address = format!("{}{prefix}", server.address);
        let ended =
            Command::new(&python).args(["-c", CLIENT, &address, &DOCUMENTS.to_string()]).output().unwrap();
        let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{errors}");
        let bad =
            "(False, (400, 'invalid_index_name_exception')) (False, (400, 'illegal_argument_exception'))";
        let once = format!("True 8.19.0\n{DOCUMENTS} []\n{bad}\n");
        assert_eq!(said, once.repeat(2), "{errors}");
        assert_eq!(stored_records(&server), 2 * DOCUMENTS * (number as i64 + 1));
    }
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    for remainder in 0..3 {
        // every document, value by value; each was sent four times
        let query = r#"SELECT n, epoch_us("time"), half, message, tags, "http.status", "http.ok", _id, count(*)
            FROM t GROUP BY ALL ORDER BY n"#;
        for engine in ["duckdb", "deltalake"] {
            let Some(found) = ask(engine, &server, "anonymous", &format!("app-{remainder}"), query) else {
                return;
            };
            let of = |n: i64| {
                let time_us = 1_795_284_000_000_000 + 1000 * n;
                json!([
                    n,
                    time_us,
                    n as f64 / 2.0,
                    format!("größe\n{n}"),
                    format!(r#"["a",{n}]"#),
                    200 + n % 2,
                    n % 2 == 0,
                    format!("id {n}"),
                    4
                ])
            };
            let expected: Value = (0..DOCUMENTS).filter(|n| n % 3 == remainder).map(of).collect();
            assert_eq!(found, expected, "{engine}");
        }
    }
}
