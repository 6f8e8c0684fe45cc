//! Imports over HTTP: JSON lines, Prometheus' and OpenMetrics' text, the Pushgateway's paths, and tables of
//! comma-separated values.

use crate::harness::{Connection, Options, Reply, Request, Server, now_ms, wait_for};
use std::fmt::Write as _;

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

/// Returns how many bytes and lines are durable, according to an answer.
fn durable(reply: &Reply) -> (u64, u64) {
    let number =
        |name| reply.header(name).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{reply:?}"));
    (number("x-floodmark-durable-bytes"), number("x-floodmark-durable-lines"))
}

/// What one server exports, another imports, and both have the same samples.
#[test]
fn json_lines_that_were_exported_are_imported() {
    let mut server = Server::new();
    let at_ms = now_ms() - 60_000;
    let line = |job: &str, value: &str| {
        format!(
            r#"{{"metric":{{"__name__":"m","job":"{job}"}},"values":[1.5,{value}],"timestamps":[{at_ms},{}]}}"#,
            at_ms + 7
        )
    };
    let text = [line("a", "2"), line("b\\n", "null"), line("c", "\"-Infinity\"")].join("\n");
    let reply = server.send(&Request::post("/api/v1/import", text.clone().into_bytes()).tenant("old"));
    assert_eq!(durable(reply.expect(204, &[])), (text.len() as u64, 3));
    let export = |server: &Server, tenant: &str| {
        let path = Request::ask("/api/v1/export", &[("match[]", "m"), ("start", "0")]);
        let mut lines: Vec<_> = server.send(&path.tenant(tenant)).text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let exported = export(&server, "old");
    assert_eq!(exported.len(), 3);
    let body = exported.join("\n").into_bytes();
    let request =
        Request::post("/api/v1/import", gzip(&body)).header("Content-Encoding", "gzip").tenant("new");
    assert_eq!(durable(server.send(&request).expect(204, &[])), (body.len() as u64, 3));
    let zstd = zstd::bulk::compress(&body, 1).unwrap();
    let request = Request::post("/api/v1/import?extra_label=job=x", zstd).header("Content-Encoding", "zstd");
    // three series become one, so that two of three values for the same time are replaced
    server.send(&request.tenant("labelled")).expect(204, &[]);
    server.kill9();
    server.restart();
    assert_eq!(export(&server, "new"), exported);
    assert_eq!(export(&server, "labelled").len(), 1);
}

#[test]
fn text_is_imported_with_its_times() {
    let server = Server::new();
    let (before_ms, at_s) = (now_ms(), now_ms() / 1000 - 100);
    let text = format!(
        "# HELP up Up.\n# TYPE up gauge\nup{{job=\"a\"}} 1 {at_s}000\nup{{job=\"b\"}} 2\nup{{job=\"a\",job=\"b\"}} 1\nno value\n"
    );
    let mentions = ["2 samples stored; 2 samples of 2 series refused", "line 6", "\"job\" is not unique"];
    let reply = server.send(&Request::post("/api/v1/import/prometheus", text.clone().into_bytes()));
    assert_eq!(durable(reply.expect(400, &mentions)), (text.len() as u64, 6));
    assert_eq!(server.samples_of_one(r#"up{job="a"}[5m]"#, now_ms()), [(at_s * 1000, 1.0)]);
    let now = server.samples_of_one(r#"up{job="b"}[5m]"#, now_ms());
    assert!((before_ms..=now_ms()).contains(&now[0].0), "{now:?}");
    let request =
        Request::post(format!("/api/v1/import/prometheus?timestamp={at_s}500"), b"given 3\n".to_vec());
    server.send(&request).expect(204, &[]);
    assert_eq!(server.samples_of_one("given[5m]", now_ms()), [(at_s * 1000 + 500, 3.0)]);
    let text = format!("open_total{{a=\"b\"}} 4 {at_s}.25 # {{trace_id=\"x\"}} 1\n# EOF\n");
    let request = Request::post("/api/v1/import/prometheus", text.into_bytes());
    server
        .send(&request.header("Content-Type", "application/openmetrics-text; version=1.0.0"))
        .expect(204, &[]);
    assert_eq!(server.samples_of_one("open_total[5m]", now_ms()), [(at_s * 1000 + 250, 4.0)]);
}

#[test]
fn text_is_pushed_with_labels_in_the_path() {
    let server = Server::new();
    let push = |method: &'static str, path: &str| {
        server.send(&Request::post(path, b"pushed{job=\"other\",x=\"y\"} 7\n".to_vec()).method(method))
    };
    push("POST", "/metrics/job/backup/instance/web%201").expect(200, &[]);
    push("PUT", "/metrics/job@base64/L3Zhcg/instance/b").expect(200, &[]);
    push("POST", "/api/v1/import/prometheus/metrics/job/vm").expect(200, &[]);
    for labels in [r#"job="backup",instance="web 1",x="y""#, r#"job="/var",instance="b""#, r#"job="vm""#] {
        assert_eq!(server.value(&format!("pushed{{{labels}}}"), now_ms()), Some(7.0), "{labels}");
    }
    assert_eq!(server.value("count(pushed)", now_ms()), Some(3.0));
    push("POST", "/metrics/job/a/b").expect(400, &["invalid path"]);
    push("POST", "/metrics/job/").expect(404, &[]);
    let protobuf = Request::post("/metrics/job/a", vec![0]);
    server
        .send(&protobuf.header("Content-Type", "application/vnd.google.protobuf; encoding=delimited"))
        .expect(415, &["text"]);
}

#[test]
fn tables_are_imported_by_a_map_of_columns() {
    let server = Server::new();
    let at_s = now_ms() / 1000 - 100;
    let table = format!("ticker,ask,bid,time\nGOOG,1.5,2.5,{at_s}\n\"A, B\",,3,{at_s}\nX,high,1,{at_s}\n");
    let path = "/api/v1/import/csv?header=true&format=2:metric:ask,3:metric:bid,1:label:ticker,4:time:unix_s";
    let reply = server.send(&Request::post(path, table.clone().into_bytes()));
    let mentions = ["3 samples stored; 1 samples of 1 series refused", "line 4", "high"];
    assert_eq!(durable(reply.expect(400, &mentions)), (table.len() as u64, 4));
    assert_eq!(server.samples_of_one(r#"ask{ticker="GOOG"}[5m]"#, now_ms()), [(at_s * 1000, 1.5)]);
    assert_eq!(server.samples_of_one(r#"bid{ticker="A, B"}[5m]"#, now_ms()), [(at_s * 1000, 3.0)]);
    for map in ["", "?format=1:label:a", "?format=1:metric:a,1:metric:b", "?format=x"] {
        server
            .send(&Request::post(format!("/api/v1/import/csv{map}"), b"1\n".to_vec()))
            .expect(400, &["format"]);
    }
}

/// Lines of `series` series, each with `samples` samples, at different times.
fn lines(series: usize, samples: usize, start_ms: i64) -> String {
    let mut text = String::new();
    for i in 0..samples {
        for s in 0..series {
            writeln!(text, "imported{{number=\"{s}\",filler=\"{0:040}\"}} {i} {1}", s, start_ms + i as i64)
                .unwrap();
        }
    }
    text
}

/// A body that is larger than the memory for requests is stored in slices.
#[test]
fn a_body_of_any_size_fits_into_the_memory() {
    let server = Server::start(Options::default().arg("--memory=64MiB"));
    let (start_ms, series, samples) = (now_ms() - 60_000, 500_usize, 1000_usize);
    let text = lines(series, samples, start_ms);
    assert!(text.len() > 40 << 20, "{}", text.len());
    let body = gzip(text.as_bytes());
    let request = Request::post("/api/v1/import/prometheus", body).header("Content-Encoding", "gzip");
    assert_eq!(
        durable(server.send(&request).expect(204, &[])),
        (text.len() as u64, (series * samples) as u64)
    );
    let count = server.value("sum(count_over_time(imported[2m]))", now_ms());
    assert_eq!(count, Some((series * samples) as f64));
    // the first slice has many lines of each series
    let parsed = server.metric("floodmark_write_parsed_lines_total");
    assert!((500.0..10_000.0).contains(&parsed), "labels are parsed once: {parsed}");
    assert!(server.metric("floodmark_write_inflight_peak_bytes") < 10e6);
    server.wait_until_zero("floodmark_write_inflight_bytes");
}

/// The answer tells where to go on. What is sent twice is stored once.
#[test]
fn an_import_is_resumed_where_it_ended() {
    let server = Server::new();
    let start_ms = now_ms() - 60_000;
    let (first, second) = (lines(100, 100, start_ms), lines(100, 100, start_ms + 100));
    let broken = format!("{first}{}\n{second}", "x".repeat(17 << 20));
    let request = |path: &str, body: String| Request::post(path, body.into_bytes());
    let reply = server.send(&request("/api/v1/import/prometheus", broken));
    reply.expect(413, &["line 10001", "16777216"]);
    assert_eq!(durable(&reply), (first.len() as u64, 10_000));
    let path = format!("/api/v1/import/prometheus?skip_bytes={}", durable(&reply).0);
    let whole = format!("{first}{second}");
    let reply = server.send(&request(&path, whole.clone()));
    assert_eq!(durable(reply.expect(204, &[])), (whole.len() as u64, 20_000));
    assert_eq!(server.metric("floodmark_write_samples_total"), 20_000.0, "the first part was skipped");
    let reply = server.send(&request("/api/v1/import/prometheus", whole.clone()));
    assert_eq!(durable(reply.expect(204, &[])), (whole.len() as u64, 20_000));
    assert_eq!(server.value("sum(count_over_time(imported[2m]))", now_ms()), Some(20_000.0));
    let path = format!("/api/v1/import/prometheus?skip_bytes={}", whole.len() + 5);
    assert_eq!(
        durable(server.send(&request(&path, whole.clone())).expect(204, &[])),
        (whole.len() as u64, 20_000)
    );
}

/// If the server is killed, the sender gets no answer, and repeats the import.
#[test]
fn an_import_is_repeated_after_a_kill() {
    let mut server = Server::new();
    let start_ms = now_ms() - 60_000;
    let text = lines(200, 200, start_ms);
    let head = format!(
        "POST /api/v1/import/prometheus HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let mut connection = Connection::open(server.address).unwrap();
    connection.send_bytes(head.as_bytes()).unwrap();
    connection.send_bytes(&text.as_bytes()[..text.len() / 2]).unwrap();
    wait_for("a slice", || (server.metric("floodmark_write_samples_total") > 1000.0).then_some(()));
    server.kill9();
    server.restart();
    let count = |server: &Server| server.value("sum(count_over_time(imported[2m]))", now_ms()).unwrap_or(0.0);
    let before = count(&server);
    assert!((1000.0..40_000.0).contains(&before), "{before}");
    server.send(&Request::post("/api/v1/import/prometheus", text.into_bytes())).expect(204, &[]);
    assert_eq!(count(&server), 40_000.0);
    assert_eq!(server.value("sum(sum_over_time(imported[2m]))", now_ms()), Some(200.0 * 199.0 * 200.0 / 2.0));
}

/// An import that is faster than its tenant's limit waits, instead of being refused again and again.
#[test]
fn an_import_waits_for_the_limits_of_its_tenant() {
    let limits = "[tenant.slow]\nsamples_per_second = 10000\nrate_burst = '1s'";
    let server = Server::start(Options::default().config(limits));
    let text = lines(1000, 30, now_ms() - 60_000);
    let reply = server.send(&Request::post("/api/v1/import/prometheus", text.into_bytes()).tenant("slow"));
    assert_eq!(durable(reply.expect(204, &[])).1, 30_000);
    let count = server.query_as(Some("slow"), "sum(count_over_time(imported[2m]))", now_ms());
    assert_eq!(count["result"][0]["value"][1], "30000");
}

#[test]
fn bodies_of_imports_are_checked() {
    let server = Server::new();
    let import = |encoding, body: Vec<u8>| {
        server.send(&Request::post("/api/v1/import", body).header("Content-Encoding", encoding))
    };
    import("snappy", vec![0]).expect(415, &["identity or gzip or zstd"]);
    import("gzip", b"up 1\n".to_vec()).expect(400, &["gzip"]);
    let mut cut = gzip(&b"x".repeat(100_000));
    cut.truncate(cut.len() / 2);
    import("gzip", cut).expect(400, &["gzip"]);
    let frame = zstd::bulk::compress(b"\n", 1).unwrap();
    import("zstd", frame.repeat(2)).expect(400, &["more than one frame"]);
    import("zstd", frame[..frame.len() - 1].to_vec()).expect(400, &["truncated"]);
    import("zstd", zstd::bulk::compress(&vec![b'\n'; 100 << 20], 1).unwrap()).expect(204, &[]);
    // a line without an end
    import("zstd", zstd::bulk::compress(&vec![b'x'; 100 << 20], 1).unwrap())
        .expect(413, &["line 1 has more than"]);
    import("identity", Vec::new()).expect(204, &[]);
    for parameter in
        ["skip_bytes=-1", "skip_bytes=x", "extra_label=x", "extra_label==x", "timestamp=now", "header=yes"]
    {
        let request = Request::post(format!("/api/v1/import?{parameter}"), Vec::new());
        server.send(&request).expect(400, &["invalid parameter"]);
    }
    let long = "x".repeat(5000);
    for path in ["/api/v1/import?extra_label=a=", "/api/v1/import/prometheus/metrics/job/", "/write?db="] {
        server.send(&Request::post(format!("{path}{long}"), Vec::new())).expect(400, &["the limit is 4096"]);
    }
    server.send(&Request::get("/api/v1/import")).expect(405, &[]);
    server.wait_until_zero("floodmark_write_inflight_bytes");
}
