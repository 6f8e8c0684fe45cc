//! SQL over streams: each record is there as soon as it is acknowledged, and once, wherever it is.

use crate::harness::{Connection, Options, Reply, Request, Server, SetOnDrop, wait_for};
use crate::streams::{check, json_lines, stored, wait_until_loaded, wait_until_replayed};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn with(config: &str) -> Options {
    Options::default().config(&format!("sql = true\n{config}"))
}

/// Records stay in memory.
fn unloaded() -> Server {
    Server::start(with("stream_freshness = \"1h\""))
}

fn ask(query: &str) -> Request {
    Request::form("/api/v1/sql", &[("query", query)])
}

#[track_caller]
fn answer(reply: &Reply) -> Value {
    reply.expect(200, &[]);
    let mut json = reply.json();
    assert_eq!((&json["status"], &json["warnings"]), (&json!("success"), &Value::Null), "{json}");
    json["data"]["rows"].take()
}

#[track_caller]
fn rows(server: &Server, query: &str) -> Value {
    answer(&server.send(&ask(query)))
}

fn lines() -> [Value; 4] {
    [
        json!({"time": "2026-11-27T10:00:00.25Z", "level": "info", "http": {"status": 200}, "took": 0.5}),
        json!({"time": "2026-11-27T11:00:00Z", "level": "warn", "http": {"status": 500}, "ok": true}),
        json!({"time": "2026-11-28T10:00:00Z", "level": "info", "tags": ["a", "b"]}),
        json!({"time": "2026-11-28T10:00:01Z", "level": "info", "http": {"status": "none"}}),
    ]
}

#[test]
fn records_are_visible_at_once_and_stay_the_same_in_tables() {
    let mut server = unloaded();
    stored(&server.send(&json_lines("app", &lines())), 4, 0);
    let check_all = |server: &Server| {
        let check = |query: &str, expected: Value| assert_eq!(rows(server, query), expected, "{query}");
        check("SELECT count(*) FROM app", json!([[4]]));
        check(
            "SELECT level, count(*) FROM app GROUP BY level ORDER BY level",
            json!([["info", 3], ["warn", 1]]),
        );
        check(
            r#"SELECT date, time, "http.status", took, ok FROM app WHERE date = '2026-11-27' ORDER BY time"#,
            json!([
                ["2026-11-27", "2026-11-27T10:00:00.250Z", 200, 0.5, null],
                ["2026-11-27", "2026-11-27T11:00:00Z", 500, null, true],
            ]),
        );
        check(
            r#"SELECT count(*) FROM app WHERE "http.status_text" = 'none' AND stream = 'app' AND id IS NULL"#,
            json!([[1]]),
        );
        check("SELECT tags FROM app WHERE tags IS NOT NULL", json!([[r#"["a","b"]"#]]));
        check("SELECT count(*) FROM app a JOIN app b ON a.time = b.time", json!([[4]]));
        check(
            "SELECT count(*) FROM app WHERE time >= '2026-11-28' AND time < '2026-11-28T10:00:01Z'",
            json!([[1]]),
        );
        check(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
            json!([["app"]]),
        );
    };
    check_all(&server);
    server.kill9();
    server.restart();
    wait_until_replayed(&server);
    check_all(&server);
    server.kill9();
    let server = Server::start(with("stream_freshness = \"100ms\"").data_dir(&server.data_dir()));
    wait_until_loaded(&server);
    check_all(&server);
    check(&server, "app", "SELECT count(*), count(DISTINCT time) FROM t", &json!([[4, 4]]));
    // one part in files, another in memory, with an attribute for which the table has no column
    stored(&server.send(&json_lines("app", &[json!({"level": "new", "user": "ada"})])), 1, 0);
    assert_eq!(
        rows(&server, "SELECT attributes, took FROM app WHERE level = 'new'"),
        json!([[r#"{"user":"ada"}"#, null]])
    );
    assert_eq!(rows(&server, "SELECT count(*) FROM app"), json!([[5]]));
}

/// Without the records that are only in the journal, an answer would look complete.
#[test]
fn without_the_journal_there_is_no_answer() {
    let options = with("stream_freshness = \"1h\"");
    let mut server = Server::start(options.allow("records cannot be stored"));
    stored(&server.send(&json_lines("app", &lines())), 4, 0);
    server.kill9();
    // the names of its batches are lost
    std::fs::remove_file(server.data_dir().join("streams/mark")).unwrap();
    server.restart();
    let reply = server.send(&ask("SELECT count(*) FROM app"));
    assert!(reply.status >= 500, "{}: {}", reply.status, reply.text());
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let server = unloaded();
    stored(&server.send(&json_lines("app", &lines()[..1])), 1, 0);
    let query = "SELECT level, took FROM app";
    let csv = server.send(&Request::form("/api/v1/sql", &[("query", query), ("format", "csv")]));
    csv.expect(200, &[]);
    assert_eq!(
        (csv.text().as_str(), csv.header("content-type")),
        ("level,took\ninfo,0.5\n", Some("text/csv; charset=utf-8; header=present"))
    );
    let accepted = server.send(&ask(query).header("Accept", "text/html, text/csv;q=0.9"));
    assert_eq!(accepted.body, csv.body);
    let arrow = server.send(&ask(query).header("Accept", "application/vnd.apache.arrow.stream"));
    arrow.expect(200, &[]);
    assert_eq!(arrow.header("content-type"), Some("application/vnd.apache.arrow.stream"));
    assert!(arrow.body.starts_with(&[0xff; 4]), "no message of IPC: {:?}", &arrow.body[..8]);
    let json = server.send(&Request::ask("/api/v1/sql", &[("query", query)])).json();
    assert_eq!(
        json["data"]["columns"],
        json!([{"name": "level", "type": "Utf8"}, {"name": "took", "type": "Float64"}])
    );
    server
        .send(&Request::form("/api/v1/sql", &[("query", query), ("format", "xml")]))
        .expect(400, &["format", "xml"]);
}

#[test]
fn tenants_see_only_their_own_streams() {
    let server = unloaded();
    for (tenant, n) in [("a", 1), ("b", 2)] {
        stored(&server.send(&json_lines("s", &[json!({"n": n})]).tenant(tenant)), 1, 0);
    }
    stored(&server.send(&json_lines("secret", &[json!({"n": 3})]).tenant("b")), 1, 0);
    let of_a = |query: &str| server.send(&ask(query).tenant("a"));
    assert_eq!(answer(&of_a("SELECT n FROM s")), json!([[1]]));
    assert_eq!(
        answer(&of_a("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")),
        json!([["s"]])
    );
    assert_eq!(
        answer(&of_a(
            "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'"
        )),
        json!([["s"]])
    );
    for query in [
        "SELECT * FROM secret",
        "SELECT * FROM b.secret",
        r#"SELECT * FROM "b/streams/secret""#,
        r#"SELECT * FROM "../b/streams/s""#,
    ] {
        of_a(query).expect(400, &["not found"]);
    }
    server.send(&ask("SELECT * FROM s").tenant("a|b")).expect(400, &[]);
}

#[test]
fn statements_that_write_or_name_files_are_refused() {
    let server = unloaded();
    stored(&server.send(&json_lines("s", &[json!({"n": 1})])), 1, 0);
    for query in [
        "INSERT INTO s VALUES (1)",
        "DROP TABLE s",
        "DELETE FROM s",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "COPY s TO '/tmp/x.csv'",
        "SET datafusion.execution.batch_size = 1",
    ] {
        server.send(&ask(query)).expect(400, &["read-only"]);
    }
    server.send(&ask("SELECT * FROM '/etc/passwd'")).expect(400, &["not found"]);
    server.send(&ask("SELECT\n  n,\n  m FROM s")).expect(400, &["Line: 3, Column: 3"]);
    server.send(&ask("SELECT FROM WHERE")).expect(400, &["Line: 1"]);
    server.send(&Request::form("/api/v1/sql", &[])).expect(400, &["no statement"]);
    assert_eq!(rows(&server, "SELECT n FROM s"), json!([[1]]));
}

/// It is an experiment, so nobody has it who has not asked for it.
#[test]
fn it_is_off_by_default() {
    let server = Server::start(Options::default());
    for path in ["/api/v1/sql", "/prometheus/api/v1/sql"] {
        server.send(&Request::form(path, &[("query", "SELECT 1")])).expect(404, &["start with --sql"]);
        server.send(&Request::ask(path, &[("query", "SELECT 1")])).expect(404, &["start with --sql"]);
    }
}

/// `information_schema.columns` opens every stream.
#[test]
fn a_list_of_columns_is_only_of_so_many_streams() {
    let server = unloaded();
    let streams: Vec<_> = (0..101).map(|n| format!("s{n}")).collect();
    for stream in &streams {
        stored(&server.send(&json_lines(stream, &[json!({"n": 1})])), 1, 0);
    }
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    assert_eq!(rows(&server, tables), json!([[101]]));
    for query in
        ["SELECT count(*) FROM information_schema.columns", "SELECT count(*) FROM information_schema.views"]
    {
        server.send(&ask(query)).expect(400, &["at most 100 streams", "DESCRIBE"]);
    }
    let described = rows(&server, "DESCRIBE s1");
    assert!(described.as_array().unwrap().iter().any(|column| column[0] == "n"), "{described}");
}

/// A query has some megabytes, and a batch is nearly as large. It becomes rows in parts.
#[test]
fn a_large_batch_is_read_with_little_memory() {
    let server = Server::start(with("memory = \"256MiB\"\nstream_freshness = \"1h\""));
    let records: Vec<Value> = (0..100).map(|n| json!({"n": n, "text": "x".repeat(10_000)})).collect();
    stored(&server.send(&json_lines("s", &records)), 100, 0);
    assert_eq!(rows(&server, "SELECT count(*) FROM s"), json!([[100]]));
    assert_eq!(rows(&server, "SELECT sum(length(text)), sum(n) FROM s"), json!([[1_000_000, 4950]]));
    assert_eq!(
        rows(&server, "SELECT n FROM s WHERE length(text) = 10000 ORDER BY n DESC LIMIT 2"),
        json!([[99], [98]])
    );
}

/// Neither a long text nor a deep one takes much time, memory or stack.
#[test]
fn hostile_statements_are_answered() {
    let config = "memory = \"1GiB\"\nquery_concurrency = 1\nstream_freshness = \"1h\"";
    let mut server = Server::start(with(config));
    let texts: Vec<Value> = (0..25).map(|n| json!({"n": n, "k": 1, "text": "x".repeat(10_000)})).collect();
    for _ in 0..16 {
        stored(&server.send(&json_lines("s", &texts)), 25, 0);
    }
    let deep = |open: &str, inner: &str, close: &str, n: usize| {
        format!("SELECT {}{inner}{}", open.repeat(n), close.repeat(n))
    };
    for query in [
        deep("(", "1", ")", 10_000),
        deep("1+", "1", "", 10_000),
        deep("NOT ", "true", "", 10_000),
        deep("true or ", "true", "", 10_000),
        deep("(select ", "1", ")", 10_000),
        deep("1,", "1", "", 150_000),
    ] {
        server.send(&ask(&query)).expect(400, &["too long"]);
    }
    // there is enough memory to read and join, so that what follows is refused for what it makes
    for (query, expected) in [
        ("SELECT count(*), max(length(a.text)) FROM s a JOIN s b USING (k)", json!([[160_000, 10_000]])),
        ("SELECT length(max(upper(text))), count(DISTINCT text) FROM s", json!([[10_000, 1]])),
        ("SELECT length(a.text || b.text) FROM s a JOIN s b USING (k) LIMIT 1", json!([[20_000]])),
        ("SELECT count(*) FROM (SELECT text, n FROM s GROUP BY text, n)", json!([[25]])),
    ] {
        assert_eq!(rows(&server, query), expected, "{query}");
    }
    for query in [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT max(length(repeat(text, 100000))) FROM s",
        "SELECT a.text || b.text AS t FROM s a JOIN s b USING (k) JOIN s c USING (k) ORDER BY t",
        "SELECT max(upper(a.text)), count(DISTINCT a.text || b.text) FROM s a JOIN s b USING (k)",
        "SELECT a.text, b.n, count(*) FROM s a JOIN s b USING (k) JOIN s c USING (k) GROUP BY a.text, a.n, b.n, c.n",
        "SELECT upper(a.text) AS t, reverse(b.text) FROM s a JOIN s b USING (k) JOIN s c USING (k) ORDER BY t, c.n",
        "SELECT min(lower(t)) FROM (SELECT a.text || b.text AS t FROM s a JOIN s b USING (k)) ORDER BY 1",
        "SELECT a.n, a.text || b.text FROM s a JOIN s b USING (k)",
        "SELECT max(a.text) FROM s a JOIN generate_series(1, 1000000) g(value) ON a.k = g.value % 3 GROUP BY g.value % 999983",
    ] {
        server.send(&ask(query)).expect(422, &[]);
    }
    assert_eq!(rows(&server, "SELECT count(*) FROM s"), json!([[400]]));
    assert!(server.is_running());
    server.assert_peak_within(512 << 20);
}

#[test]
fn a_query_ends_when_its_client_leaves_or_its_time_is_over() {
    let server = Server::start(with("query_concurrency = 1"));
    let endless = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)";
    let reply = server.send(&Request::form("/api/v1/sql", &[("query", endless), ("timeout", "100ms")]));
    reply.expect(503, &["timed out"]);
    server.wait_until_zero("floodmark_queries_running");
    let mut connection = Connection::open(server.address).unwrap();
    connection.send_bytes(&ask(endless).bytes()).unwrap();
    wait_for("a running query", || (server.metric("floodmark_queries_running") == 1.0).then_some(()));
    let listed = server.send(&Request::get("/api/v1/status/active_queries")).json();
    assert_eq!(
        (&listed["data"][0]["path"], &listed["data"][0]["query"]),
        (&json!("/api/v1/sql"), &json!(endless))
    );
    drop(connection);
    server.wait_until_zero("floodmark_queries_running");
    // the only slot is free
    assert_eq!(rows(&server, "SELECT 1"), json!([[1]]));
}

/// While records are loaded, merged and read, each acknowledged record is counted once.
#[test]
fn counts_are_exact_while_tables_change() {
    const BATCHES: u64 = 150;
    let server = Server::start(with("stream_freshness = \"20ms\""));
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (server, acknowledged, done) = (&server, &acknowledged, &done);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let stop = SetOnDrop(done);
            for batch in 0..BATCHES {
                let days = |n: u64| format!("2026-11-{:02}T00:00:00Z", 1 + n % 20);
                let lines: Vec<_> =
                    (0..10).map(|n| json!({"time": days(n + batch), "n": 10 * batch + n})).collect();
                stored(&server.send(&json_lines("s", &lines)), 10, 0);
                acknowledged.fetch_add(10, Ordering::Release);
            }
            drop(stop);
        });
        for _ in 0..2 {
            threads.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let least = acknowledged.load(Ordering::Acquire);
                    if least == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let found = rows(server, "SELECT count(*), count(DISTINCT n), max(n) + 1 FROM s");
                    let [count, distinct, last] = [0, 1, 2].map(|at| found[0][at].as_u64().unwrap());
                    assert!(
                        count == distinct && count == last && count >= least,
                        "{found}, at least {least}"
                    );
                }
            });
        }
    });
    wait_until_loaded(server);
    let all = 10 * BATCHES;
    assert_eq!(rows(server, "SELECT count(*), count(DISTINCT n) FROM s"), json!([[all, all]]));
    check(server, "s", "SELECT count(*), count(DISTINCT n) FROM t", &json!([[all, all]]));
}
