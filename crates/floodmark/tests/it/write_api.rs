//! Valid remote-write requests, and the headers of requests and answers.

use crate::harness::read::seconds;
use crate::harness::wire::{self, Series};
use crate::harness::{Connection, Options, Request, Server, now_ms};
use model::{STALE_NAN_BITS, Values};

#[test]
fn written_samples_can_be_read_at_once() {
    let server = Server::new();
    let now = now_ms();
    let samples: Vec<_> = (0..100).map(|i| (now - 60_000 + i * 100, i as f64 / 3.0)).collect();
    for (path, tenant) in [("/api/v1/write", "a"), ("/api/v1/push", "b"), ("/api/prom/push", "c")] {
        let series = Series::named("m").label("path", path).samples(samples.clone());
        let request = Request::write(&wire::v1(&[series])).path(path).tenant(tenant);
        server.send(&request).expect(204, &[]);
        let data = server.query_as(Some(tenant), "m[5m]", now);
        let (name, stored) = crate::harness::read::matrix(&data).pop_first().unwrap();
        assert_eq!(name, format!(r#"{{"__name__":"m","path":"{path}"}}"#));
        let bits: Vec<_> = samples.iter().map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(stored, bits);
    }
}

#[test]
fn thanos_names_the_tenant_on_its_path() {
    let server = Server::new();
    let now = now_ms();
    let write =
        |path: &str, value| Request::write(&wire::v1(&[Series::named("m").sample(now, value)])).path(path);
    let stored = |tenant: Option<&str>| {
        let found = server.query_as(tenant, "m", now);
        found["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(|series| series["value"][1].clone())
            .collect::<Vec<_>>()
    };
    server.send(&write("/api/v1/receive", 1.0).header("THANOS-TENANT", "team-a")).expect(204, &[]);
    server.send(&write("/api/v1/receive", 2.0).tenant("team-b")).expect(204, &[]);
    server.send(&write("/api/v1/receive", 3.0)).expect(204, &[]);
    // elsewhere, the header means nothing
    server
        .send(&write("/api/v1/write", 4.0).header("THANOS-TENANT", "team-c").tenant("team-d"))
        .expect(204, &[]);
    for (tenant, expected) in [
        (Some("team-a"), Some("1")),
        (Some("team-b"), Some("2")),
        (None, Some("3")),
        (Some("team-c"), None),
        (Some("team-d"), Some("4")),
    ] {
        assert_eq!(stored(tenant), expected.as_slice(), "{tenant:?}");
    }
    // a proxy sets one of them, and its callers must not set the other, not even to the same tenant
    for other in ["team-b", "team-a"] {
        let both = write("/api/v1/receive", 5.0).tenant(other).header("THANOS-TENANT", "team-a");
        server.send(&both).expect(400, &["named more than once", "X-Scope-OrgID or THANOS-TENANT"]);
    }
    let twice =
        write("/api/v1/receive", 5.0).header("THANOS-TENANT", "team-a").and_header("THANOS-TENANT", "team-b");
    server.send(&twice).expect(400, &["named more than once"]);
    server.send(&write("/api/v1/receive", 5.0).header("THANOS-TENANT", "a/b")).expect(400, &[]);
    assert_eq!((stored(Some("team-a")), stored(Some("team-b"))), (vec!["1".into()], vec!["2".into()]));
}

#[test]
fn both_versions_write_the_same_series() {
    let server = Server::new();
    let now = now_ms();
    let series = |t, v| Series::named("m").label("a", "1").label("b", "2").sample(t, v);
    server.send(&Request::write(&wire::v1(&[series(now - 2000, 1.0)]))).expect(204, &[]);
    let reply = server.send(&Request::write_v2(&wire::v2(&[series(now - 1000, 2.0)])));
    reply.expect(204, &[]);
    assert_eq!(written(&reply), [Some("1"), Some("0"), Some("0")]);
    // the encoder of the crate `protocol` results in the same series as the encoder of these tests
    let mut encoder = protocol::encode::V2Encoder::new();
    let labels = model::Labels::from_pairs(&[("__name__", "m"), ("a", "1"), ("b", "2")]);
    encoder.series(labels.as_ref(), &[now], &[3.0]);
    server.send(&Request::write_v2(encoder.finish())).expect(204, &[]);
    let stored = server.samples_of_one("m[1m]", now);
    assert_eq!(stored, [(now - 2000, 1.0), (now - 1000, 2.0), (now, 3.0)]);
}

#[test]
fn content_types_are_negotiated() {
    let server = Server::new();
    let v1 = wire::v1(&[Series::named("m").sample(now_ms(), 1.0)]);
    let check = |request: Request, status: u16, mentions: &[&str]| {
        server.send(&request).expect(status, mentions);
    };
    let typed = |content_type: &str| Request::write(&v1).header("Content-Type", content_type);
    check(typed("application/x-protobuf;proto=prometheus.WriteRequest"), 204, &[]);
    check(typed("application/json"), 415, &["application/json", "application/x-protobuf"]);
    check(typed("text/plain"), 415, &["text/plain"]);
    check(typed("application/x-protobuf;proto=io.prometheus.write.v3.Request"), 415, &["v3.Request"]);
    check(Request::write(&v1).without("Content-Type"), 204, &[]);
    check(Request::write(&v1).header("Content-Encoding", "gzip"), 415, &["gzip", "snappy"]);
    check(Request::write(&v1).header("Content-Encoding", "zstd"), 400, &["zstd"]);
    let zstd =
        zstd::bulk::compress(&wire::v1_message(&[Series::named("m").sample(now_ms(), 1.0)]), 3).unwrap();
    check(Request::write(&zstd).header("Content-Encoding", "zstd"), 204, &[]);
    check(Request::write(&zstd), 400, &["snappy"]);
    // vmagent takes a 400 for a refusal of zstd
    let partly =
        wire::v1_message(&[Series::named("m").sample(-1, 1.0), Series::named("n").sample(now_ms(), 1.0)]);
    let vmagent = Request::write(&zstd::bulk::compress(&partly, 3).unwrap())
        .header("Content-Encoding", "zstd")
        .header("X-VictoriaMetrics-Remote-Write-Version", "1");
    check(vmagent, 409, &["partial write: 1 samples stored", "before 1970"]);
    check(Request::write(&v1).without("Content-Encoding"), 204, &[]);
    assert_eq!(server.value("count(m)", now_ms()), Some(1.0));
}

#[test]
fn only_post_writes() {
    let server = Server::new();
    for path in ["/api/v1/write", "/api/v1/push", "/api/prom/push"] {
        for method in ["GET", "PUT", "DELETE"] {
            let reply = server.send(&Request::get(path).method(method));
            reply.expect(405, &[]);
            assert!(reply.header("allow").is_some_and(|a| a.contains("POST")), "{:?}", reply.headers);
        }
    }
    server.send(&Request::post("/api/v1/wriet", Vec::new())).expect(404, &["/api/v1/wriet"]);
}

#[test]
fn a_chunked_body_is_taken() {
    let server = Server::new();
    let now = now_ms();
    let body = wire::v1(&[Series::named("m").sample(now, 7.0)]);
    let head = Request::write(&[]).header("Transfer-Encoding", "chunked").head();
    let mut connection = Connection::open(server.address).unwrap();
    connection.send_bytes(head.as_bytes()).unwrap();
    for byte in &body {
        connection.send_bytes(b"1\r\n").unwrap();
        connection.send_bytes(&[*byte, b'\r', b'\n']).unwrap();
    }
    connection.send_bytes(b"0\r\n\r\n").unwrap();
    connection.reply().unwrap().expect(204, &[]);
    assert_eq!(server.value("m", now), Some(7.0));
}

/// With `Expect: 100-continue`, a sender can ask whether to send a large body before it does.
#[test]
fn expect_100_continue_is_supported() {
    let server = Server::new();
    let now = now_ms();
    let body = wire::v1(&[Series::named("m").sample(now, 7.0)]);
    let ask = |length: usize| {
        let head = Request::write(&[])
            .header("Content-Length", &length.to_string())
            .header("Expect", "100-continue");
        let mut connection = Connection::open(server.address).unwrap();
        connection.send_bytes(head.head().as_bytes()).unwrap();
        let reply = connection.reply().unwrap();
        (connection, reply)
    };
    let (mut connection, reply) = ask(body.len());
    reply.expect(100, &[]);
    connection.send_bytes(&body).unwrap();
    connection.reply().unwrap().expect(204, &[]);
    assert_eq!(server.value("m", now), Some(7.0));
    // the body is refused before it is sent
    ask(1 << 30).1.expect(413, &[]);
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let server = Server::new();
    let now = now_ms();
    let mut connection = Connection::open(server.address).unwrap();
    let mut bytes = Vec::new();
    for i in 0..20 {
        let body = wire::v1(&[Series::named("m").sample(now + i, i as f64)]);
        bytes.extend_from_slice(
            Request::write(&body).header("Content-Length", &body.len().to_string()).head().as_bytes(),
        );
        bytes.extend(body);
    }
    bytes.extend_from_slice(
        Request::ask("/api/v1/query", &[("query", "m"), ("time", &seconds(now + 20))]).head().as_bytes(),
    );
    connection.send_bytes(&bytes).unwrap();
    for _ in 0..20 {
        connection.reply().unwrap().expect(204, &[]);
    }
    connection.reply().unwrap().expect(200, &["\"19\""]);
}

/// Many senders create the same series at the same time, with its labels in different orders.
#[test]
fn racing_creations_make_one_series() {
    let mut server = Server::new();
    let now = now_ms();
    let sender = |sender: usize| {
        let one = |i: usize| {
            let (number, other) = (i.to_string(), "x".repeat(i % 7));
            let mut labels = [("__name__", "raced"), ("i", number.as_str()), ("other", other.as_str())];
            labels.rotate_left(sender % 3);
            Series::new(&labels).sample(now - sender as i64, sender as f64)
        };
        (0..300).map(one).collect::<Vec<_>>()
    };
    std::thread::scope(|threads| {
        for number in 0..12 {
            let server = &server;
            threads.spawn(move || {
                let request = match number % 2 {
                    0 => Request::write(&wire::v1(&sender(number))),
                    _ => Request::write_v2(&wire::v2(&sender(number))),
                };
                server.send(&request).expect(204, &[]);
            });
        }
    });
    let check = |server: &Server| {
        assert_eq!(server.metric("floodmark_head_series"), 300.0);
        let all = server.samples("raced[1m]", now);
        assert_eq!(all.len(), 300);
        let expected: Vec<_> = (0..12).rev().map(|s| (now - s, (s as f64).to_bits())).collect();
        all.values().for_each(|samples| assert_eq!(*samples, expected));
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// The request is so large that it is split everywhere: when it is decoded, when its series are created, and
/// in the journal.
#[test]
fn a_large_request_is_stored_whole() {
    let mut server = Server::new();
    let now = now_ms();
    let one = |i: usize| {
        let series = Series::named("large").label("i", i.to_string()).label("group", (i % 10).to_string());
        series.samples((0..3).map(|s| (now - 2 + s, (i * 3) as f64 + s as f64)))
    };
    let body = wire::v1(&(0..60_000).map(one).collect::<Vec<_>>());
    server.send(&Request::write(&body)).expect(204, &[]);
    server.send(&Request::write(&body)).expect(204, &[]);
    let check = |server: &Server| {
        assert_eq!(server.value("count(large)", now), Some(60_000.0));
        assert_eq!(server.value("sum(count_over_time(large[1m]))", now), Some(180_000.0));
        let sum = (0..60_000u64).map(|i| (i * 3 + 2) as f64).sum();
        assert_eq!(server.value("sum(large)", now), Some(sum));
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

#[test]
fn empty_requests_are_accepted() {
    let server = Server::new();
    server.send(&Request::write(&wire::v1(&[]))).expect(204, &[]);
    let reply = server.send(&Request::write_v2(&wire::v2(&[])));
    reply.expect(204, &[]);
    assert_eq!(written(&reply), [Some("0"), Some("0"), Some("0")]);
    server.send(&Request::write(&[])).expect(400, &["snappy"]);
}

#[test]
fn duplicates_are_silent_and_the_last_write_wins() {
    let server = Server::new();
    let now = now_ms();
    let write = |samples: &[(i64, f64)]| {
        let series = Series::named("m").samples(samples.iter().copied());
        server.send(&Request::write(&wire::v1(&[series]))).expect(204, &[]);
    };
    write(&[(now - 3000, 1.0), (now - 1000, 3.0)]);
    write(&[(now - 3000, 1.0), (now - 1000, 3.0)]);
    write(&[(now - 2000, 2.0)]); // out of order
    write(&[(now - 1000, 3.5)]); // the same time with another value
    write(&[(now - 2000, 2.5)]);
    write(&[(now, 4.0), (now, 4.5)]); // twice in one request
    let expected = [(now - 3000, 1.0), (now - 2000, 2.5), (now - 1000, 3.5), (now, 4.5)];
    assert_eq!(server.samples_of_one("m[1m]", now), expected);
}

#[test]
fn samples_are_taken_however_late_they_are() {
    let mut server = Server::new();
    let now = now_ms();
    const DAY: i64 = 86_400_000;
    let write = |server: &Server, version: u8, series: &[Series]| match version {
        1 => server.send(&Request::write(&wire::v1(series))),
        _ => server.send(&Request::write_v2(&wire::v2(series))),
    };
    write(&server, 1, &[Series::named("m").sample(now, 1.0)]).expect(204, &[]);
    for version in [1, 2] {
        let late = now - 40 * DAY - i64::from(version);
        let mixed = Series::named("m").samples([(late, 9.0), (now - i64::from(version), 3.0)]);
        write(&server, version, &[mixed]).expect(204, &[]);
    }
    let late = now - 40 * DAY;
    let expected = [(late - 2, 9.0), (late - 1, 9.0), (now - 2, 3.0), (now - 1, 3.0), (now, 1.0)];
    assert_eq!(server.samples_of_one("m[41d]", now), expected);
    server.kill9();
    server.restart();
    assert_eq!(server.samples_of_one("m[41d]", now), expected);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    assert_eq!(server.samples_of_one("m[41d]", now), expected);
    let before_all = now - 11 * 366 * DAY;
    let reply = write(&server, 1, &[Series::named("m").samples([(before_all, 1.0), (now + 1, 5.0)])]);
    reply.expect(400, &["m", &before_all.to_string(), "past_limit"]);
}

#[test]
fn staleness_markers_and_nans_keep_their_bits() {
    let mut server = Server::new();
    let now = now_ms();
    let payload = f64::from_bits(0x7ff8_0000_dead_beef);
    let (stale, nan) = (f64::from_bits(STALE_NAN_BITS), f64::from_bits(0x7ff8_0000_0000_0001));
    let values = [1.0, stale, nan, payload, -0.0, f64::INFINITY, f64::MIN_POSITIVE / 2.0];
    let samples: Vec<_> = (0..).zip(values).map(|(i, v)| (now - 10_000 + i, v)).collect();
    let ends = Series::named("ends").samples([(now - 1000, 1.0), (now, stale)]);
    let body = wire::v1(&[Series::named("bits").samples(samples.clone()), ends.clone()]);
    server.send(&Request::write(&body)).expect(204, &[]);
    server.send(&Request::write_v2(&wire::v2(&[ends])).tenant("v2")).expect(204, &[]);

    for tenant in [None, Some("v2")] {
        let result = |at| server.query_as(tenant, "ends", at)["result"].as_array().unwrap().len();
        assert_eq!((result(now - 1), result(now)), (1, 0), "the series does not end at the marker");
    }
    // a range of samples leaves out staleness markers, but not other NaNs
    assert_eq!(server.value("count_over_time(bits[1m])", now), Some(6.0));
    assert!(server.terminate().success());
    assert_eq!(
        bits_in_journal(&server, "bits"),
        samples.iter().map(|(t, v)| (*t, v.to_bits())).collect::<Vec<_>>()
    );
}

/// Reads the samples of a metric from the journal. They belong to the tenant `anonymous`.
fn bits_in_journal(server: &Server, metric: &str) -> Vec<(i64, u64)> {
    use journal::{Files, Item, Journal, Options, Record};
    let dir = server.data_dir().join("journal");
    let mut all = Vec::new();
    for partition in 0..std::fs::read_dir(&dir).unwrap().count() {
        let journal = Files::open(&dir, partition as u32, Options::default()).unwrap();
        let mut reader = journal.read(journal.start()).unwrap();
        let (mut record, mut wanted) = (Record::new(), None);
        while let Some(item) = reader.next().unwrap() {
            let Item::Entry(entry) = item else { panic!("damage: {item:?}") };
            record.decode(entry.payload).unwrap();
            if record.tenant.as_str() != "anonymous" {
                continue;
            }
            wanted = record
                .definitions
                .iter()
                .find(|(_, l)| l.get("__name__") == Some(metric))
                .map(|(s, _)| s)
                .or(wanted);
            let Values::Floats(values) = &record.values else { panic!("a record of histograms") };
            let columns = record.refs.iter().zip(&record.timestamps).zip(values);
            all.extend(
                columns.filter(|((s, _), _)| Some(**s) == wanted).map(|((_, t), v)| (*t, v.to_bits())),
            );
        }
    }
    all
}

#[test]
fn metadata_can_be_read_back() {
    let mut server = Server::new();
    let now = now_ms();
    let mut message = wire::v1_metadata(1, "http_requests_total", "Requests.", "");
    message.extend(wire::v1_message(&[Series::named("x").sample(now, 1.0)]));
    message.extend(wire::v1_metadata(5, "took_seconds", "How \"long\"\nit took.", "seconds"));
    server.send(&Request::write(&wire::snappy(&message))).expect(204, &[]);
    let v2 = Series::named("room_celsius").sample(now, 21.5).metadata(2, "Warmth.", "celsius");
    server.send(&Request::write_v2(&wire::v2(&[v2]))).expect(204, &[]);
    let check = |server: &Server| {
        let reply = server.send(&Request::get("/api/v1/metadata"));
        let expected = serde_json::json!({
            "http_requests_total": [{"type": "counter", "help": "Requests.", "unit": ""}],
            "room_celsius": [{"type": "gauge", "help": "Warmth.", "unit": "celsius"}],
            "took_seconds": [{"type": "summary", "help": "How \"long\"\nit took.", "unit": "seconds"}],
        });
        assert_eq!(crate::harness::read::data(&reply), expected);
    };
    check(&server);
    let one = server.send(&Request::ask("/api/v1/metadata", &[("metric", "room_celsius")]));
    assert_eq!(crate::harness::read::data(&one).as_object().unwrap().len(), 1);
    let one = server.send(&Request::ask("/api/v1/metadata", &[("limit", "2")]));
    assert_eq!(crate::harness::read::data(&one).as_object().unwrap().len(), 2);
    let others = server.send(&Request::get("/api/v1/metadata").tenant("other"));
    assert_eq!(crate::harness::read::data(&others), serde_json::json!({}));
    server.kill9();
    server.restart();
    check(&server);
}

#[test]
fn exemplars_can_be_read_back() {
    let mut server = Server::new();
    let now = now_ms() / 1000 * 1000;
    let series = |name: &str| {
        Series::named(name).label("le", "1").sample(now, 5.0).exemplar(
            &[("trace_id", "abc")],
            now - 500,
            0.25,
        )
    };
    server.send(&Request::write(&wire::v1(&[series("one_bucket")]))).expect(204, &[]);
    let reply = server.send(&Request::write_v2(&wire::v2(&[series("two_bucket")])));
    reply.expect(204, &[]);
    assert_eq!(written(&reply), [Some("1"), Some("0"), Some("1")]);
    let ask = |server: &Server, query: &str| {
        let (start, end) = ((now / 1000 - 1).to_string(), (now / 1000).to_string());
        let params = [("query", query), ("start", &start), ("end", &end)];
        crate::harness::read::data(&server.send(&Request::form("/api/v1/query_exemplars", &params)))
    };
    for name in ["one_bucket", "two_bucket"] {
        let expected = serde_json::json!([{
            "seriesLabels": {"__name__": name, "le": "1"},
            "exemplars": [{"labels": {"trace_id": "abc"}, "value": "0.25", "timestamp": (now - 500) as f64 / 1000.0}],
        }]);
        assert_eq!(ask(&server, name), expected);
    }
    server.kill9();
    server.restart();
    assert_eq!(ask(&server, "one_bucket").as_array().unwrap().len(), 1);
}

#[test]
fn native_histograms_are_refused_and_not_counted() {
    let server = Server::new();
    let now = now_ms();
    let both = Series::named("mixed").sample(now, 1.0).histograms(2);
    let only = Series::named("only").histograms(3);
    let good = Series::named("good").sample(now, 1.0);
    let all = [both, only, good];
    server.send(&Request::write(&wire::v1(&all))).expect(400, &["native histograms"]);
    let reply = server.send(&Request::write_v2(&wire::v2(&all)).tenant("v2"));
    reply.expect(400, &["native histograms"]);
    assert_eq!(written(&reply), [Some("2"), Some("0"), Some("0")]);
    for tenant in [None, Some("v2")] {
        let names = server.query_as(tenant, "count by (__name__) ({__name__=~\".+\"})", now);
        let names: Vec<_> =
            names["result"].as_array().unwrap().iter().map(|s| &s["metric"]["__name__"]).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}

/// Returns the headers of a 2.0 answer that say how many samples, histograms and exemplars were written.
pub(crate) fn written(reply: &crate::harness::Reply) -> [Option<&str>; 3] {
    ["samples", "histograms", "exemplars"].map(|what| {
        let name = format!("x-prometheus-remote-write-{what}-written");
        reply.header(&name)
    })
}

/// In version 2.0, metadata comes with each series, but a histogram has several series with different names.
#[test]
fn metadata_of_a_histogram_is_found_by_its_name() {
    let server = Server::new();
    let part = |suffix: &str| {
        Series::named(&format!("took_seconds{suffix}")).sample(now_ms(), 1.0).metadata(3, "Took.", "")
    };
    let all = [part("_bucket").label("le", "+Inf"), part("_sum"), part("_count")];
    server.send(&Request::write_v2(&wire::v2(&all))).expect(204, &[]);
    let reply = server.send(&Request::ask("/api/v1/metadata", &[("metric", "took_seconds")]));
    reply.expect(200, &["Took."]);
}

#[test]
fn a_message_of_the_other_version_is_refused() {
    let server = Server::new();
    let series = [Series::named("m").sample(now_ms(), 1.0)];
    server.send(&Request::write(&wire::v2(&series))).expect(400, &[]);
    server.send(&Request::write_v2(&wire::v1(&series))).expect(400, &[]);
}

#[test]
fn exemplars_without_a_sample_are_stored() {
    let mut server = Server::new();
    let now = now_ms();
    server.send(&Request::write(&wire::v1(&[Series::named("known").sample(now, 1.0)]))).expect(204, &[]);
    let names = ["known", "new", "newer"];
    let exemplar = |i: i64, name: &str| Series::named(name).exemplar(&[("t", "x")], now + i, 1.0);
    for (i, name) in (0..).zip(names) {
        let reply = server.send(&Request::write_v2(&wire::v2(&[exemplar(i, name)])));
        reply.expect(204, &[]);
        assert_eq!(written(&reply), ["0", "0", "1"].map(Some), "{name}");
        server.send(&Request::write(&wire::v1(&[exemplar(i + 5, name)]))).expect(204, &[]);
    }
    assert_eq!(server.metric("floodmark_write_refused_exemplars_total"), 0.0);
    let check = |server: &Server| {
        for name in names {
            let (from, to) = (((now / 1000) - 60).to_string(), ((now / 1000) + 60).to_string());
            let params = [("query", name), ("start", &from), ("end", &to)];
            let found = server.send(&Request::form("/api/v1/query_exemplars", &params));
            let found = crate::harness::read::data(&found);
            assert_eq!(found[0]["exemplars"].as_array().map_or(0, Vec::len), 2, "{name}: {found}");
        }
        assert_eq!(server.value("new", now), None, "an exemplar created a sample");
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

#[test]
fn refusals_of_2_0_say_what_is_written() {
    let server = Server::new();
    let now = now_ms();
    let check = |request: Request, status, samples| {
        let reply = server.send(&request);
        reply.expect(status, &[]);
        assert_eq!(written(&reply), [samples, "0", "0"].map(Some), "{}", reply.text());
    };
    check(Request::write_v2(b"\xff\xff\xff"), 400, "0");
    let known = wire::v2(&[Series::named("m").sample(now, 1.0)]);
    check(Request::write_v2(&known).header("X-Scope-OrgID", "a/b"), 400, "0");
    let mixed = [Series::named("m").sample(now, 1.0), Series::named("m").sample(-1, 1.0)];
    check(Request::write_v2(&wire::v2(&mixed)), 400, "1");
    let reply = server.send(&Request::write(b"\xff\xff\xff"));
    assert_eq!(written(&reply), [None; 3], "a 1.0 answer has the headers of 2.0");
    let refused = |reason| server.metric(&format!("floodmark_refusals_total{{reason=\"{reason}\"}}"));
    assert_eq!(["decode", "tenant", "partial_write"].map(refused), [2.0, 1.0, 1.0]);
}

/// Web pages of other sites that are open in a browser on this machine must be able neither to read nor to
/// write.
#[test]
fn web_pages_elsewhere_neither_read_nor_write() {
    let options = Options::default().config("allow_host = [\"metrics.example\"]");
    let server = Server::start(options.allow("requests refused"));
    let write = || Request::write(&wire::v1(&[Series::named("csrf").sample(now_ms(), 1.0)]));
    let flush = || Request::post("/api/v1/admin/flush", Vec::new());
    let query = || Request::ask("/api/v1/query", &[("query", "1")]);
    for request in [write(), flush(), query(), Request::get("/metrics")] {
        let rebound = request.header("Host", "evil.example").header("Origin", "http://evil.example");
        server.send(&rebound).expect(421, &["evil.example", "allow_host"]);
    }
    for origin in ["http://evil.example", "null"] {
        server.send(&write().header("Origin", origin)).expect(403, &["allow_host"]);
        server.send(&flush().header("Origin", origin)).expect(403, &["allow_host"]);
    }
    assert_eq!(server.value("csrf", now_ms()), None);
    for (host, origin) in
        [("metrics.example", "https://metrics.example"), ("localhost:1", "http://localhost:1")]
    {
        server.send(&write().header("Host", host).header("Origin", origin)).expect(204, &[]);
        server.send(&query().header("Host", host)).expect(200, &[]);
    }
}

#[cfg(unix)]
#[test]
fn only_their_owner_reads_files_but_for_tables() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::new();
    server.send(&Request::write(&wire::v1(&[Series::named("m").sample(now_ms(), 1.0)]))).expect(204, &[]);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let shared = mode(&server.data_dir());
    let mut seen = 0;
    let mut left = vec![server.data_dir()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            seen += 1;
            if path.ends_with("tables") {
                assert_eq!(mode(&path), shared, "other engines read {}", path.display());
                continue;
            }
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "{}", path.display());
            left.extend(path.is_dir().then_some(path));
        }
    }
    assert!(seen >= 6, "identity, lock, floodmarks, tables, journals: {seen}");
}
