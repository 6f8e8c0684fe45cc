//! OpenTelemetry's logs and traces, over HTTP and gRPC: requests of all forms, and the SDK for Python.

use super::{ask, check, kill_and_restart, stored_records, wait_until_loaded};
use crate::authentication::sha256;
use crate::harness::programs::free_port;
use crate::harness::{Options, Reply, Request, Server, wait_for};
use crate::otlp::{call, run};
use crate::tls;
use serde_json::{Value, json};

const LOGS_SDK: &str = include_str!("otlp_logs.py");
const TRACES_SDK: &str = include_str!("otlp_traces.py");

const LOGS: [&str; 4] = ["/v1/logs", "/otlp/v1/logs", "/api/v1/otlp/v1/logs", "/opentelemetry/v1/logs"];
const TRACES: [&str; 4] =
    ["/v1/traces", "/otlp/v1/traces", "/api/v1/otlp/v1/traces", "/opentelemetry/v1/traces"];

const LOGS_METHOD: &str = "method=/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const TRACES_METHOD: &str = "method=/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A request with an empty log record.
const LOG: &[u8] = b"\x0a\x04\x12\x02\x12\x00";

const TIME_NS: i64 = 1_795_284_000_123_456_789;

/// Records reach their tables quickly.
fn server(config: &str) -> (Server, String) {
    let config = format!("stream_freshness = \"100ms\"\n{config}");
    let options = Options::default().port(free_port()).arg("--otlp-grpc=127.0.0.1:0").config(&config);
    let server = Server::start(options);
    let grpc = server.logged_address("grpc").to_string();
    (server, grpc)
}

fn text(text: &str) -> Value {
    json!({"stringValue": text})
}

/// Log records of services.
fn logs(services: &[(&str, Vec<Value>)]) -> Value {
    let of = |(service, records): &(&str, Vec<Value>)| {
        let attributes = json!([{"key": "service.name", "value": text(service)}]);
        json!({"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": records}]})
    };
    json!({"resourceLogs": services.iter().map(of).collect::<Vec<_>>()})
}

fn post(path: &str, body: &Value) -> Request {
    Request::post(path, body.to_string().into_bytes()).header("Content-Type", "application/json")
}

#[test]
fn requests_with_several_streams_are_durable() {
    let (mut server, _) = server("");
    for (n, path) in LOGS.into_iter().enumerate() {
        let record = json!({"timeUnixNano": TIME_NS.to_string(), "body": {"intValue": n}});
        let other = json!({"body": text("x"), "severityNumber": "SEVERITY_NUMBER_WARN"});
        let body = logs(&[("shop", vec![record.clone(), record]), ("web:1", vec![other])]);
        let reply = server.send(&post(path, &body));
        reply.expect(200, &["{}"]);
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    for path in TRACES {
        let span = json!({"traceId": "01".repeat(16), "name": "s", "startTimeUnixNano": TIME_NS.to_string()});
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
        server.send(&post(path, &body)).expect(200, &["{}"]);
    }
    let named = post("/v1/logs", &logs(&[("a", vec![json!({})]), ("b", vec![json!({}), json!({})])]));
    server.send(&named.header("X-Floodmark-Stream", "named")).expect(200, &["{}"]);
    server
        .send(&Request::post("/v1/logs", Vec::new()).header("Content-Type", "application/x-protobuf"))
        .expect(200, &[]);
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    let time_us = TIME_NS / 1000;
    check(
        &server,
        "shop",
        "SELECT body, epoch_us(\"time\"), time_unix_nano, count(*) FROM t GROUP BY ALL ORDER BY body",
        &(0..4).map(|n| json!([n, time_us, TIME_NS, 2])).collect(),
    );
    check(&server, "web_1", "SELECT DISTINCT body, severity_number FROM t", &json!([["x", 13]]));
    check(&server, "web_1", "SELECT count(*) FROM t WHERE \"time\" = arrival", &json!([[4]]));
    check(&server, "traces", "SELECT DISTINCT name, trace_id FROM t", &json!([["s", "01".repeat(16)]]));
    check(&server, "named", "SELECT count(*) FROM t", &json!([[3]]));
}

#[test]
fn what_is_left_out_is_named() {
    let (server, grpc) = server("");
    let deep = (0..13).fold(text("x"), |value, _| json!({"arrayValue": {"values": [value]}}));
    let long = json!({"key": "k".repeat(1020), "value": text("v")});
    let records = vec![json!({"body": text("a")}), json!({"attributes": [long]}), json!({"body": deep})];
    let reply = server.send(&post("/v1/logs", &logs(&[("s", records)])));
    reply.expect(200, &[]);
    let partial = &reply.json()["partialSuccess"];
    assert_eq!(partial["rejectedLogRecords"], "1", "{partial}");
    let message = partial["errorMessage"].as_str().unwrap();
    assert!(message.starts_with("1 records left out: record 2: the path of an attribute"), "{message}");
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="partial_write"}"#), 1.0);
    assert_eq!(server.metric("floodmark_records_refused_total"), 1.0);
    let span = json!({"attributes": [{"key": "k".repeat(1020), "value": text("v")}]});
    let reply =
        server.send(&post("/v1/traces", &json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})));
    reply.expect(200, &["rejectedSpans"]);
    // over gRPC: a log record whose trace ID is too long
    let record = [&[0x4a, 33][..], &[1; 33]].concat();
    let nest = |field: u8, content: &[u8]| [&[field << 3 | 2, content.len() as u8][..], content].concat();
    let message = nest(1, &nest(2, &nest(2, &record)));
    let Some((code, answer, _)) = call(&grpc, &message, &[LOGS_METHOD]) else { return };
    assert_eq!(code, "OK");
    assert!(answer.starts_with("0a") && answer.contains("0801"), "a partial success: {answer}");
}

#[test]
fn errors_have_the_form_of_the_request() {
    let (server, grpc) = server("[tenant.few]\nstreams = 1\n");
    let body = logs(&[("s", vec![json!({})])]);
    for path in ["/v1/logs", "/v1/traces"] {
        let typed = |content_type: &str, bytes: &[u8]| {
            server.send(&Request::post(path, bytes.to_vec()).header("Content-Type", content_type))
        };
        typed("text/plain", b"").expect(415, &["text/plain"]);
        let damaged = typed("application/x-protobuf", b"\xff");
        damaged.expect(400, &["invalid protobuf at byte 0"]);
        assert_eq!(damaged.header("content-type"), Some("application/x-protobuf"));
        typed("application/json", b"[]").expect(400, &[r#"{"code":3,"message":"unexpected JSON"#]);
        let deep = [b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
        typed("application/json", &deep).expect(400, &["nested too deeply"]);
        let named = post(path, &body).header("X-Floodmark-Stream", "a/b");
        server.send(&named).expect(400, &[r#"{"code":3,"#, "X-Floodmark-Stream", "'/'"]);
        let encoded = post(path, &body).header("Content-Encoding", "br");
        server.send(&encoded).expect(415, &["gzip or zstd"]);
    }
    for encoding in ["gzip", "zstd"] {
        let reply = server.send(&post("/v1/logs", &body).header("Content-Encoding", encoding));
        reply.expect(400, &[r#"{"code":3,"#, encoding]);
    }
    let packed = zstd::bulk::compress(body.to_string().as_bytes(), 3).unwrap();
    let zstd = Request::post("/v1/logs", packed).header("Content-Encoding", "zstd");
    server.send(&zstd.header("Content-Type", "application/json")).expect(200, &["{}"]);
    server.send(&post("/v1/logs", &body).tenant("few")).expect(200, &["{}"]);
    let more = post("/v1/logs", &body).header("X-Floodmark-Stream", "more").tenant("few");
    let limited = server.send(&more);
    limited.expect(429, &[r#"{"code":8,"#, "setting streams"]);
    assert!(limited.header("retry-after").is_some());
    let named = [LOGS_METHOD, "x-scope-orgid=few", "x-floodmark-stream=more"];
    let Some((code, text, retry)) = call(&grpc, LOG, &named) else { return };
    assert_eq!(code, "RESOURCE_EXHAUSTED", "{text}");
    assert!(retry.parse::<u64>().is_ok_and(|seconds| seconds > 0), "{text} {retry}");
    let (code, ..) = call(&grpc, b"\xff", &[TRACES_METHOD]).unwrap();
    assert_eq!(code, "INVALID_ARGUMENT");
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
    let options = Options::default().arg("--otlp-grpc=127.0.0.1:0").arg("--auth-file").arg(tls::text(&file));
    let server = Server::start(options.allow("requests refused"));
    let grpc = server.logged_address("grpc").to_string();
    for (path, method) in [("/v1/logs", LOGS_METHOD), ("/v1/traces", TRACES_METHOD)] {
        let request = Request::post(path, b"{}".to_vec()).header("Content-Type", "application/json");
        let with =
            |token: &str| server.send(&request.clone().header("Authorization", &format!("Bearer {token}")));
        server.send(&request).expect(401, &[r#"{"code":16,"#]);
        with("read").expect(403, &[r#"{"code":7,"#]);
        with("write").expect(200, &["{}"]);
        let Some((code, ..)) = call(&grpc, b"", &[method, "authorization=Bearer read"]) else { continue };
        assert_eq!(code, "PERMISSION_DENIED");
        assert_eq!(call(&grpc, b"", &[method, "authorization=Bearer write"]).unwrap().0, "OK");
    }
}

/// A new service must not hold up the logs of all services that a collector sends together.
#[test]
fn logs_of_one_service_too_many_are_of_the_stream_logs() {
    let (server, _) = server("[tenant.few]\nstreams = 3\n");
    let record = |n: u64| vec![json!({"body": {"intValue": n}})];
    for n in 0..2 {
        let body =
            logs(&[("a", record(n)), ("b", record(n)), ("c", record(n)), ("d", record(n)), ("B", record(n))]);
        server.send(&post("/v1/logs", &body).tenant("few")).expect(200, &["{}"]);
    }
    let named = post("/v1/logs", &logs(&[("a", record(1))])).header("X-Floodmark-Stream", "more");
    server.send(&named.tenant("few")).expect(429, &["3 streams", "setting streams"]);
    wait_until_loaded(&server);
    for (stream, records) in [("a", 2), ("b", 2), ("c", 2), ("logs", 4)] {
        let found = ask("deltalake", &server, "few", stream, "SELECT count(*) FROM t");
        assert!(found.is_none_or(|found| found == json!([[records]])), "{stream}");
    }
}

/// Names of streams must not differ only in case, but names of services may. Records for which no other stream is named can be
/// stored, whatever services are called.
#[test]
fn logs_whose_stream_exists_in_other_case_are_of_the_stream_logs() {
    let (server, _) = server("");
    server.send(&super::json_lines("App", &[json!({})])).expect(200, &[]);
    let services = ["Logs", "TRACES", "app", "Shop", "shop", ""];
    let body = logs(&services.map(|service| (service, vec![json!({})])));
    server.send(&post("/v1/logs", &body)).expect(200, &["{}"]);
    let named = post("/v1/logs", &body).header("X-Floodmark-Stream", "SHOP");
    server.send(&named).expect(400, &["differs only in case"]);
    server.send(&super::json_lines("Traces", &[json!({})])).expect(400, &["differs only in case"]);
    let span = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "s"}]}]}]});
    server.send(&post("/v1/traces", &span)).expect(200, &["{}"]);
    wait_until_loaded(&server);
    for (stream, records) in [("App", 1), ("logs", 5), ("Shop", 1), ("traces", 1)] {
        check(&server, stream, "SELECT count(*) FROM t", &json!([[records]]));
    }
}

/// A small request must take neither much memory nor many files.
#[test]
fn small_requests_with_much_behind_them_are_refused() {
    let (server, _) = server("");
    let attribute = |n: usize| json!({"key": format!("{n:01000}"), "value": {"intValue": 1}});
    let keys: Vec<_> = (0..1_990).map(attribute).collect();
    let resource = |records: usize| {
        let records = json!([{"logRecords": vec![json!({}); records]}]);
        json!({"resourceLogs": [{"resource": {"attributes": keys}, "scopeLogs": records}]})
    };
    server.send(&post("/v1/logs", &resource(1))).expect(200, &["{}"]);
    server.send(&post("/v1/logs", &resource(1_000))).expect(413, &["bytes of records"]);
    // the same through a table, whose header has the long names
    let header: Vec<_> = (0..1_990).map(|n| format!("{n:01000}")).collect();
    let table = |rows: usize| {
        let rows = vec!["1".to_owned() + &",1".repeat(1_989); rows];
        Request::post(
            "/api/v1/streams/t?format=csv",
            format!("{}\n{}", header.join(","), rows.join("\n")).into_bytes(),
        )
    };
    server.send(&table(1)).expect(200, &[]);
    server.send(&table(100)).expect(413, &["paths of their attributes"]);
    let days = |services: usize, days: i64| {
        let at = |day: i64| json!({"timeUnixNano": (TIME_NS - day * 86_400_000_000_000).to_string()});
        let names: Vec<_> = (0..services).map(|n| format!("s{n}")).collect();
        let of = |name| (name, (0..days).map(at).collect());
        logs(&names.iter().map(String::as_str).map(of).collect::<Vec<_>>())
    };
    server.send(&post("/v1/logs", &days(20, 20))).expect(200, &["{}"]);
    let count =
        |reply: &Reply| reply.expect(200, &["days"]).json()["partialSuccess"]["rejectedLogRecords"].clone();
    assert_eq!(count(&server.send(&post("/v1/logs", &days(20, 21)))), "20");
    assert_eq!(count(&server.send(&post("/v1/logs", &days(2, 101)))), "2");
}

/// With a key, a repetition of a request with several streams is stored once.
#[test]
fn repetitions_with_a_key_are_stored_once() {
    let (mut server, _) = server("");
    let body = logs(&[("a", vec![json!({})]), ("b", vec![json!({}), json!({})])]);
    let request = post("/v1/logs", &body).header("Idempotency-Key", "k");
    for _ in 0..2 {
        server.send(&request).expect(200, &["{}"]);
        kill_and_restart(&mut server);
        server.send(&request).expect(200, &["{}"]);
    }
    wait_until_loaded(&server);
    check(&server, "a", "SELECT count(*) FROM t", &json!([[1]]));
    check(&server, "b", "SELECT count(*) FROM t", &json!([[2]]));
}

/// The protocols, endpoints and compressions with which the SDK sends.
fn transports(server: &Server, grpc: &str, path: &str) -> [(&'static str, String, &'static str); 4] {
    let (http, grpc) = (format!("http://{}{path}", server.address), grpc.to_owned());
    [
        ("http", http.clone(), "none"),
        ("http", http, "gzip"),
        ("grpc", grpc.clone(), "none"),
        ("grpc", grpc, "gzip"),
    ]
}

#[test]
fn logs_of_the_python_sdk_are_read_back() {
    const RECORDS: i64 = 1_500;
    let (mut server, grpc) = server("");
    let mut spans = Vec::new();
    for (protocol, endpoint, compression) in transports(&server, &grpc, "/v1/logs") {
        let Some(said) = run(LOGS_SDK, &[protocol, &endpoint, compression, &RECORDS.to_string()]) else {
            return;
        };
        spans.push((format!("{protocol}_{compression}"), said.lines().next().unwrap_or_default().to_owned()));
    }
    assert_eq!(stored_records(&server), 4 * (RECORDS + 1));
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    for (stream, ids) in spans {
        // every record, value by value
        let query = r#"SELECT time_unix_nano, observed_time_unix_nano, epoch_us("time"), severity_number, severity_text,
            body, "attributes.n", "attributes.half", "attributes.even", "attributes.text", "attributes.tags",
            "resource.service.name", "resource.zone", scope_name, scope_version, "scope.lib"
            FROM t WHERE "attributes.n" IS NOT NULL ORDER BY "attributes.n""#;
        for engine in ["duckdb", "deltalake"] {
            let Some(found) = ask(engine, &server, "anonymous", &stream, query) else { return };
            let found = found.as_array().unwrap();
            assert_eq!(found.len() as i64, RECORDS);
            for (n, row) in (0..RECORDS).zip(found) {
                let ns = TIME_NS + n;
                let service = stream.replace('_', "/");
                let half = n as f64 / 2.0;
                let expected = json!([
                    ns,
                    ns + 1,
                    ns / 1000,
                    13,
                    "WARN",
                    format!("größe {n}"),
                    n,
                    half,
                    n % 2 == 0,
                    format!("t{}", n % 3),
                    r#"["a","b"]"#,
                    service,
                    "a",
                    "tests",
                    "1.0",
                    true
                ]);
                assert_eq!(*row, expected, "{engine}, {stream}");
            }
        }
        // rare attributes have no column, or a column only in some files
        let (trace, span) = ids.split_once(' ').expect("two IDs");
        let row = |part: &str| format!("CAST(t AS VARCHAR) LIKE '%{part}%'");
        let query = format!("SELECT body FROM t WHERE {} AND {}", row(trace), row(span));
        check(&server, &stream, &query, &json!([["within a span"]]));
    }
}

#[test]
fn spans_of_the_python_sdk_are_read_back() {
    const CHILDREN: i64 = 600;
    let (mut server, grpc) = server("");
    let mut traces = Vec::new();
    for (protocol, endpoint, compression) in transports(&server, &grpc, "/v1/traces") {
        let Some(said) = run(TRACES_SDK, &[protocol, &endpoint, compression, &CHILDREN.to_string()]) else {
            return;
        };
        let ids = said.lines().next().unwrap_or_default().to_owned();
        let (trace, root) = ids.split_once(' ').expect("two IDs");
        traces.push((format!("{protocol}/{compression}"), trace.to_owned(), root.to_owned()));
    }
    assert_eq!(stored_records(&server), 4 * (CHILDREN + 1));
    kill_and_restart(&mut server);
    wait_until_loaded(&server);
    for (service, trace, root) in traces {
        let query = format!(
            r#"SELECT name, kind, parent_span_id, epoch_us("time"), start_time_unix_nano, end_time_unix_nano, duration_nano,
                status_code, status_message, "attributes.n", "attributes.half", events, links
                FROM t WHERE "resource.service.name" = '{service}' AND trace_id = '{trace}' AND kind = 'client'
                ORDER BY "attributes.n""#
        );
        for engine in ["duckdb", "deltalake"] {
            let Some(found) = ask(engine, &server, "anonymous", "traces", &query) else { return };
            let found = found.as_array().unwrap();
            assert_eq!(found.len() as i64, CHILDREN, "{engine}, {service}");
            for (n, row) in (0..CHILDREN).zip(found) {
                let ns = TIME_NS + n;
                assert_eq!(
                    row.as_array().unwrap()[..11],
                    json!([
                        format!("child {n}"),
                        "client",
                        root,
                        ns / 1000,
                        ns,
                        ns + 1000,
                        1000,
                        "error",
                        format!("bad {n}"),
                        n,
                        n as f64 / 2.0
                    ])
                    .as_array()
                    .unwrap()[..],
                    "{engine}, {service}"
                );
                let list =
                    |at: usize| serde_json::from_str::<Value>(row[at].as_str().expect("a list")).unwrap();
                assert_eq!(
                    list(11),
                    json!([{"time_unix_nano": ns + 1, "name": "event", "attributes": {"n": n}}])
                );
                let link = &list(12)[0];
                assert_eq!((&link["trace_id"], &link["span_id"]), (&json!(trace), &json!(root)));
                assert_eq!(link["attributes"], json!({"why": "test"}));
            }
        }
        let query = format!("SELECT name, status_code FROM t WHERE trace_id = '{trace}' AND kind = 'server'");
        check(&server, "traces", &query, &json!([["root", "ok"]]));
    }
}

/// The SDK repeats what was not acknowledged, so after a kill, nothing is missing.
#[test]
fn nothing_of_the_python_sdk_is_lost_while_the_server_restarts() {
    const RECORDS: u64 = 20_000;
    let grpc = format!("127.0.0.1:{}", free_port());
    let options = Options::default().port(free_port()).arg(&format!("--otlp-grpc={grpc}"));
    let mut server = Server::start(options.config("stream_freshness = \"100ms\""));
    let sent = std::thread::scope(|threads| {
        let sender = threads.spawn(|| run(LOGS_SDK, &["grpc", &grpc, "none", &RECORDS.to_string()]));
        while !sender.is_finished() && server.metric("floodmark_records_total") < 2_000.0 {
            std::thread::yield_now();
        }
        if !sender.is_finished() {
            server.kill9();
            server.restart();
        }
        sender.join().unwrap()
    });
    if sent.is_none() {
        return;
    }
    wait_until_loaded(&server);
    wait_for("all records", || {
        let query = r#"SELECT count(DISTINCT "attributes.n") FROM t"#;
        ask("deltalake", &server, "anonymous", "grpc_none", query)
            .is_none_or(|found| found == json!([[RECORDS]]))
            .then_some(())
    });
}
