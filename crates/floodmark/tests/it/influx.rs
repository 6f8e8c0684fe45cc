//! Sends Influx' line protocol over HTTP, and queries it with PromQL. The module has real programs that send it.

mod senders;

use crate::harness::{Options, Request, Server, now_ms};

const V1: [&str; 3] = ["/write", "/influx/write", "/api/v1/push/influx/write"];

const V2: [&str; 2] = ["/api/v2/write", "/influx/api/v2/write"];

pub(crate) fn lines(path: &str, text: &str) -> Request {
    Request::post(path, text.into())
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn influx_lines_are_series_and_survive_a_kill() {
    let mut server = Server::new();
    let now_ms = now_ms();
    let text = format!(
        "cpu,host=web1,cpu=cpu0 usage_user=1.5,usage_idle=98i,online=t {now_ms}123456\n\
         # a comment\n\
         mem,host=web\\ 1 used=1u {}000000\n",
        now_ms - 60_000
    );
    server.send(&lines("/write?db=telegraf", &text)).expect(204, &[]);
    // the same series again, now known; with their tags in another order; and in a compressed body
    let text = format!("cpu,host=web1,cpu=cpu0 usage_user=2.5,usage_idle=97i {}\n", now_ms + 1000);
    server.send(&lines("/write?db=telegraf&precision=ms", &text)).expect(204, &[]);
    let text = format!("cpu,cpu=cpu0,host=web1 usage_idle=96i {}\n", now_ms / 1000 + 2);
    let zipped = Request::post("/api/v2/write?org=o&bucket=b&db=telegraf&precision=s", gzip(&text));
    server.send(&zipped.header("Content-Encoding", "gzip")).expect(204, &[]);
    let check = |server: &Server| {
        let at_ms = now_ms + 5000;
        let samples = |name: &str| server.samples_of_one(&format!(r#"{name}[2m]"#), at_ms);
        assert_eq!(
            samples(r#"cpu_usage_user{cpu="cpu0",db="telegraf",host="web1"}"#),
            [(now_ms, 1.5), (now_ms + 1000, 2.5)]
        );
        assert_eq!(
            samples("cpu_usage_idle"),
            [(now_ms, 98.0), (now_ms + 1000, 97.0), ((now_ms / 1000 + 2) * 1000, 96.0)]
        );
        assert_eq!(samples("cpu_online"), [(now_ms, 1.0)]);
        assert_eq!(samples(r#"mem_used{host="web 1"}"#), [(now_ms - 60_000, 1.0)]);
        assert_eq!(server.value(r#"count({__name__=~".+"})"#, at_ms), Some(4.0));
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// Only the labels of the first request are parsed.
#[test]
fn influx_lines_of_known_series_are_recognized_by_their_bytes() {
    let server = Server::new();
    let now_ms = now_ms();
    let text = |at_ms: i64| -> String {
        (0..100).map(|i| format!("cpu,host=web{i},rack=r{} a=1,b=2,c={i} {at_ms}\n", i % 7)).collect()
    };
    for (i, path) in V1.iter().chain(&V2).enumerate() {
        let path = format!("{path}?precision=ms&db=d");
        server.send(&lines(&path, &text(now_ms - i as i64))).expect(204, &[]);
    }
    assert_eq!(server.metric("floodmark_write_parsed_lines_total"), 300.0);
    assert_eq!(server.value(r#"count({db="d"})"#, now_ms), Some(300.0));
    assert_eq!(server.value("sum(count_over_time(cpu_a[1m]))", now_ms), Some(500.0));
    // another tenant has the same lines and its own series
    server.send(&lines("/write?precision=ms&db=d", &text(now_ms)).tenant("other")).expect(204, &[]);
    assert_eq!(server.metric("floodmark_write_parsed_lines_total"), 300.0);
    let count = server.query_as(Some("other"), r#"count({db="d"})"#, now_ms);
    assert_eq!(count["result"][0]["value"][1], "300");
}

/// The time of arrival replaces a missing time, as the protocol wants it.
#[test]
fn influx_lines_without_a_time_have_the_time_of_arrival() {
    let server = Server::new();
    let before_ms = now_ms();
    server.send(&lines("/write", "a b=1")).expect(204, &[]);
    let after_ms = now_ms();
    let samples = server.samples_of_one("a_b[1m]", after_ms);
    assert!((before_ms..=after_ms).contains(&samples[0].0), "{samples:?}");
}

#[test]
fn influx_lines_that_are_wrong_are_named_and_the_others_stored() {
    let server = Server::new();
    let now_ms = now_ms();
    let text = format!(
        "good,host=a x=1,state=\"on\" {now_ms}\nbad x=one {now_ms}\ntwice,a=1,a=2 x=1 {now_ms}\nold x=1 -7\n\
         also,host=b x=2 {now_ms}"
    );
    let mentions = [
        "partial write: 2 samples stored; 4 samples of 4 series refused",
        r#"line 1: field \"state\" of \"good\" is a string"#,
        r#"line 2: value \"one\" of field \"x\""#,
        r#"\"a\" is not unique"#,
        "before 1970: old_x",
    ];
    for (path, key) in [("/write?precision=ms", "error"), ("/api/v2/write?precision=ms", "message")] {
        let reply = server.send(&lines(path, &text));
        reply.expect(400, &mentions);
        let json = reply.json();
        assert!(json[key].as_str().is_some_and(|text| text.starts_with("partial write")), "{json}");
        assert_eq!(json["code"].as_str(), (key == "message").then_some("invalid"), "{json}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    assert_eq!(server.value(r#"sum({__name__=~".+_x"})"#, now_ms), Some(3.0));
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="partial_write"}"#), 2.0);
    assert_eq!(server.metric(r#"floodmark_http_write_answers_total{status="4xx"}"#), 2.0);
}

#[test]
fn influx_names_follow_the_settings_of_the_tenant() {
    let config = "[tenant.labels]\ninflux_names = 'field_label'\ninflux_db_label = 'database'\n\
                  [tenant.plain]\ninflux_db_label = 'none'";
    let server = Server::start(Options::default().config(config));
    let now_ms = now_ms();
    for tenant in ["labels", "plain", "usual"] {
        let request = lines("/write?db=d&precision=ms", &format!("cpu,host=a user=1 {now_ms}"));
        server.send(&request.tenant(tenant)).expect(204, &[]);
    }
    let labels = |tenant: &str| {
        let found = server.query_as(Some(tenant), r#"{__name__=~".+"}"#, now_ms);
        found["result"][0]["metric"].to_string()
    };
    assert_eq!(labels("labels"), r#"{"__name__":"cpu","database":"d","field":"user","host":"a"}"#);
    assert_eq!(labels("plain"), r#"{"__name__":"cpu_user","host":"a"}"#);
    assert_eq!(labels("usual"), r#"{"__name__":"cpu_user","db":"d","host":"a"}"#);
}

#[test]
fn influx_bodies_are_negotiated_and_bounded() {
    let server = Server::new();
    let encoded = |encoding, body: Vec<u8>| {
        server.send(&Request::post("/write", body).header("Content-Encoding", encoding))
    };
    encoded("snappy", b"a b=1".to_vec()).expect(415, &[r#"{"error":"#, "identity or gzip or zstd"]);
    encoded("gzip", b"a b=1".to_vec()).expect(400, &[r#"{"error":"#, "gzip"]);
    encoded("zstd", zstd::bulk::compress(&vec![b'\n'; 65 << 20], 1).unwrap()).expect(413, &["decompresses"]);
    server.send(&lines("/write", &"a b=1\n".repeat(250_001))).expect(413, &["250000 fields"]);
    server.send(&lines("/write?precision=fortnight", "a b=1")).expect(400, &["fortnight", "ns, us, ms"]);
    server.send(&lines("/api/v2/write?precision=d", "a b=1")).expect(400, &[r#""code":"invalid""#]);
    server.send(&Request::get("/write")).expect(405, &[]);
    // a body without a length, as Telegraf sends it
    let chunked = Request::post("/api/v2/write", b"5\r\na b=1\r\n0\r\n\r\n".to_vec());
    server.send(&chunked.header("Transfer-Encoding", "chunked")).expect(204, &[]);
    assert_eq!(server.value("a_b", now_ms()), Some(1.0));
    server.wait_until_zero("floodmark_write_inflight_bytes");
}

/// From the status, a sender can tell whether to try again; the error has the form that it expects.
#[test]
fn influx_senders_learn_when_a_limit_is_theirs() {
    let limits = "[tenant.fast]\nsamples_per_second = 10\nrate_burst = '1s'";
    let server = Server::start(Options::default().config(limits));
    server.send(&lines("/write", &"a b=1\n".repeat(600)).tenant("fast")).expect(204, &[]);
    let refused = server.send(&lines("/write", "a b=1").tenant("fast"));
    refused.expect(429, &[r#"{"error":"#, "samples_per_second"]);
    assert!(refused.header("retry-after").is_some());
    let refused = server.send(&lines("/api/v2/write", "a b=1").tenant("fast"));
    refused.expect(429, &[r#"{"code":"too many requests","message":"#, "samples_per_second"]);
    server.send(&lines("/write", "a b=1").tenant("slow")).expect(204, &[]);
    server.send(&lines("/write", "a b=1").tenant("a|b")).expect(400, &[r#"{"error":"#]);
}

#[test]
fn influx_clients_get_the_answers_that_they_expect_at_their_start() {
    let server = Server::new();
    for prefix in ["", "/influx"] {
        let reply = server.send(&Request::get(format!("{prefix}/ping")));
        reply.expect(204, &[]);
        assert_eq!(reply.header("x-influxdb-version"), Some("1.8.10"));
        server.send(&Request::get(format!("{prefix}/ping")).method("HEAD")).expect(204, &[]);
        server
            .send(&Request::get(format!("{prefix}/ping?verbose=true")))
            .expect(200, &[r#""version":"1.8.10""#]);
        let query = |statement: &str| {
            let path = format!("{prefix}/query");
            let both = [Request::ask(&path, &[("q", statement)]), Request::form(&path, &[("q", statement)])];
            let [first, second] = both.map(|request| server.send(&request));
            assert_eq!(first.text(), second.text());
            first
        };
        query(r#"CREATE DATABASE "telegraf""#).expect(200, &[r#"{"results":[{"statement_id":0}]}"#]);
        query("show databases;").expect(200, &[r#""columns":["name"],"values":[]"#]);
        query("SHOW RETENTION POLICIES ON \"x\"").expect(200, &["autogen"]);
        query("SELECT * FROM cpu").expect(400, &[r#"{"error":"error parsing query"#]);
        query("").expect(400, &["error parsing query"]);
    }
    server.send(&Request::get("/influx/health")).expect(200, &[r#""status":"pass""#]);
    server
        .send(&Request::get("/health").header("Accept", "application/json"))
        .expect(200, &[r#""status":"pass""#]);
    server.send(&Request::get("/health").header("Accept", "*/*")).expect(200, &["Floodmark is healthy"]);
}
