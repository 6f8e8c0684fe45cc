//! Points with delta temporality are added up, each of them once.

use super::{nanos, partial, post, request};
use crate::harness::http::Connection;
use crate::harness::{Options, Request, Server, now_ms};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use stdx::rng::Rng;

fn temporal(start_ms: i64, end_ms: i64, mut point: Value) -> Value {
    point["startTimeUnixNano"] = nanos(start_ms).into();
    point["timeUnixNano"] = nanos(end_ms).into();
    point
}

/// A sum. Each point has its start, its end and its value.
fn deltas(name: &str, points: &[(i64, i64, f64)]) -> Value {
    let point = |(start, end, value): &(i64, i64, f64)| temporal(*start, *end, json!({"asDouble": value}));
    let points: Vec<_> = points.iter().map(point).collect();
    json!({"name": name, "sum": {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": points}})
}

/// Sends points of the sum `c`. All of them must be accepted.
#[track_caller]
fn send(server: &Server, points: &[(i64, i64, f64)]) {
    server.send(&post(&request(json!([deltas("c", points)])))).expect(200, &["{}"]);
}

/// Sends points of the sum `c`, of which `rejected` are refused. Returns why.
#[track_caller]
fn refused(server: &Server, points: &[(i64, i64, f64)], rejected: usize) -> String {
    let (count, message) = partial(&server.send(&post(&request(json!([deltas("c", points)])))));
    assert_eq!(count, rejected.to_string(), "{message}");
    message
}

fn flush(server: &Server) {
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
}

fn results(server: &Server, result: &str) -> f64 {
    server.metric(&format!("floodmark_delta_samples_total{{result=\"{result}\"}}"))
}

#[test]
fn a_sum_goes_on_after_a_crash_and_repetitions_count_once() {
    let mut server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 10_000;
    let delta = |n: i64| (at(n - 1), at(n), n as f64);
    let mut expected = Vec::new();
    for n in 1..=8 {
        send(&server, &[delta(n)]);
        expected.push((at(n), (n * (n + 1) / 2) as f64));
        // in memory, in tables, in tables after a crash, in the journal after a crash
        if n % 4 == 1 || n % 4 == 2 {
            flush(&server);
        }
        if n % 4 >= 2 {
            server.kill9();
            server.restart();
        }
        assert_eq!(server.metric("floodmark_delta_series"), 1.0);
        let repeated = results(&server, "repeated");
        send(&server, &[delta(n)]);
        assert_eq!(results(&server, "repeated"), repeated + 1.0);
        assert_eq!(server.samples_of_one("c_total[5m]", now), expected, "after {n}");
        if n % 4 < 2 {
            server.kill9();
            server.restart();
        }
    }
    let metadata = server.send(&Request::get("/api/v1/metadata?metric=c_total")).expect(200, &[]).json();
    assert_eq!(metadata["data"]["c_total"][0]["type"], "counter", "{metadata}");
}

#[test]
fn late_points_change_later_values() {
    let mut server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    send(&server, &[(at(0), at(10), 1.0), (at(30), at(40), 4.0)]);
    flush(&server);
    send(&server, &[(at(40), at(50), 8.0)]);
    server.kill9();
    server.restart();
    // within a gap, of which one later value is in a table and one is in memory
    send(&server, &[(at(10), at(20), 2.0)]);
    let expected = [(at(10), 1.0), (at(20), 3.0), (at(40), 7.0), (at(50), 15.0)];
    assert_eq!(server.samples_of_one("c_total[5m]", now), expected);
    assert_eq!(results(&server, "late"), 1.0);
    flush(&server);
    server.kill9();
    server.restart();
    send(&server, &[(at(10), at(20), 2.0), (at(20), at(30), 16.0), (at(50), at(60), 32.0)]);
    let expected =
        [(at(10), 1.0), (at(20), 3.0), (at(30), 19.0), (at(40), 23.0), (at(50), 31.0), (at(60), 63.0)];
    assert_eq!(server.samples_of_one("c_total[5m]", now), expected);
    assert_eq!((results(&server, "late"), results(&server, "repeated")), (1.0, 1.0));
    flush(&server);
    assert_eq!(server.samples_of_one("c_total[5m]", now), expected);
}

#[test]
fn points_that_cannot_be_added_are_refused_by_name() {
    let server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    send(&server, &[(at(10), at(20), 1.0), (at(20), at(30), 1.0)]);
    // of another sender of the same series, in and out of order
    for (start, end, value) in [(15, 25, 1.0), (12, 18, 1.0), (25, 35, 1.0), (20, 30, 2.0)] {
        let message = refused(&server, &[(at(start), at(end), value)], 1);
        assert!(message.contains("overlaps") && message.contains("c_total"), "{message}");
    }
    assert_eq!(results(&server, "overlapping"), 4.0);
    let message = refused(&server, &[(at(30), at(40), -1.0)], 1);
    assert!(message.contains("negative"), "{message}");
    // without a start, the time that a late point is about is unknown
    let late = json!({"name": "c", "sum": {"aggregationTemporality": 1, "isMonotonic": true,
        "dataPoints": [{"timeUnixNano": nanos(at(5)), "asInt": "1"}]}});
    let (rejected, message) = partial(&server.send(&post(&request(json!([late])))));
    assert!(rejected == "1" && message.contains("too late"), "{message}");
    assert_eq!(server.samples_of_one("c_total[5m]", now), [(at(20), 1.0), (at(30), 2.0)]);
    server.send(&Request::get("/api/v1/refusals")).expect(200, &["partial_write"]);
}

fn histogram(start_ms: i64, end_ms: i64, bounds: &[f64], counts: &[u64]) -> Value {
    let text: Vec<_> = counts.iter().map(u64::to_string).collect();
    let count = counts.iter().sum::<u64>();
    let point = json!({"count": count.to_string(), "sum": count as f64 / 2.0, "explicitBounds": bounds, "bucketCounts": text});
    let points = [temporal(start_ms, end_ms, point)];
    json!({"name": "took", "histogram": {"aggregationTemporality": 1, "dataPoints": points}})
}

#[test]
fn buckets_of_histograms_stay_consistent() {
    let mut server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    let send = |server: &Server, histogram: Value| {
        server.send(&post(&request(json!([histogram])))).expect(200, &["{}"]);
    };
    let buckets = |server: &Server, les: &[&str]| -> Vec<f64> {
        let value = |le: &&str| server.value(&format!("took_bucket{{le=\"{le}\"}}"), now).unwrap();
        les.iter().map(value).collect()
    };
    let (first, second) = (
        histogram(at(0), at(10), &[1.0, 2.0], &[1, 2, 3]),
        histogram(at(20), at(30), &[1.0, 2.0], &[0, 0, 4]),
    );
    send(&server, first.clone());
    send(&server, second.clone());
    server.kill9();
    server.restart();
    send(&server, second);
    send(&server, first);
    send(&server, histogram(at(10), at(20), &[1.0, 2.0], &[5, 0, 0]));
    assert_eq!(buckets(&server, &["1", "2", "+Inf"]), [6.0, 8.0, 15.0]);
    assert_eq!(server.value("took_count", now), Some(15.0));
    assert_eq!(server.value("took_sum", now), Some(7.5));
    // with other bounds, all series begin with 0 again, so that they still fit together
    send(&server, histogram(at(30), at(40), &[1.0, 1.5, 2.0], &[1, 1, 1, 1]));
    send(&server, histogram(at(40), at(50), &[1.0, 1.5, 2.0], &[0, 1, 0, 1]));
    assert_eq!(buckets(&server, &["1", "1.5", "2", "+Inf"]), [1.0, 3.0, 4.0, 6.0]);
    assert_eq!(server.value("took_count", now), Some(6.0));
}

#[test]
fn a_bucket_that_other_bounds_do_not_have_begins_with_zero_like_the_others() {
    let mut server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    let send = |server: &Server, from: i64, bounds: &[f64], counts: &[u64]| {
        let histogram = histogram(at(from), at(from + 1), bounds, counts);
        server.send(&post(&request(json!([histogram])))).expect(200, &["{}"]);
    };
    let (all, few) = ([1.0, 1.5, 2.0, 3.0], [2.0]);
    let mut from = 0;
    for is_killed in [false, true] {
        for _ in 0..3 {
            send(&server, from, &all, &[10, 10, 10, 10, 10]);
            from += 1;
        }
        send(&server, from, &few, &[1, 1]);
        if is_killed {
            flush(&server);
            server.kill9();
            server.restart();
        }
        send(&server, from + 1, &all, &[1, 1, 1, 1, 1]);
        send(&server, from + 2, &all, &[1, 0, 0, 0, 1]);
        from += 3;
        for (le, expected) in [("1", 2.0), ("1.5", 3.0), ("2", 4.0), ("3", 5.0), ("+Inf", 7.0)] {
            let found = server.value(&format!("took_bucket{{le=\"{le}\"}}"), now);
            assert_eq!(found, Some(expected), "{le}, killed: {is_killed}");
        }
        assert_eq!(server.value("took_count", now), Some(7.0));
    }
}

#[test]
fn tenants_may_refuse_or_keep_them() {
    let config = "[tenant.refuses]\notlp_delta = \"refuse\"\n[tenant.keeps]\notlp_delta = \"keep\"\n";
    let server = Server::start(Options::default().config(config));
    let now = now_ms();
    let points = [(now - 3000, now - 2000, 1.0), (now - 2000, now - 1000, 2.0)];
    let body = post(&request(json!([deltas("c", &points)])));
    server.send(&body.clone().tenant("adds")).expect(200, &["{}"]);
    server.send(&body.clone().tenant("keeps")).expect(200, &["{}"]);
    server.send(&body.tenant("refuses")).expect(200, &["otlp_delta"]);
    for (tenant, expected) in [("adds", "3"), ("keeps", "2")] {
        let value = &server.query_as(Some(tenant), "c_total", now)["result"][0]["value"][1];
        assert_eq!(value, expected, "{tenant}");
    }
}

#[test]
fn the_same_requests_over_several_connections_count_once() {
    const REQUESTS: i64 = 60;
    let server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 10;
    let bodies: Vec<_> = (0..REQUESTS)
        .map(|n| {
            let points = [(at(n), at(n + 1), n as f64)];
            post(&request(json!([deltas("c", &points), histogram(at(n), at(n + 1), &[1.0], &[1, 2])])))
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut connection = Connection::open(server.address).unwrap();
                for body in &bodies {
                    // one that another connection has sent before may be refused
                    assert_eq!(connection.send(body).unwrap().status, 200);
                }
            });
        }
    });
    let sum = |n: i64| (at(n + 1), (n * (n + 1) / 2) as f64);
    assert_eq!(server.samples_of_one("c_total[5m]", now), (0..REQUESTS).map(sum).collect::<Vec<_>>());
    for (series, each) in [(r#"took_bucket{le="1"}"#, 1), (r#"took_bucket{le="+Inf"}"#, 3), ("took_count", 3)]
    {
        let expected: Vec<_> = (0..REQUESTS).map(|n| (at(n + 1), (each * (n + 1)) as f64)).collect();
        assert_eq!(server.samples_of_one(&format!("{series}[5m]"), now), expected, "{series}");
    }
    assert_eq!(results(&server, "in_order") + results(&server, "late"), (REQUESTS * 5) as f64);
}

/// Sends the deltas of one series. Two that follow each other are sometimes sent in the wrong order, and some are sent again
/// later.
struct Sender {
    name: String,
    rng: Rng,
    sent: Vec<(i64, i64, f64)>,
    /// A request without an answer, which has to be repeated.
    pending: Option<Vec<(i64, i64, f64)>>,
    next_ms: i64,
}

impl Sender {
    fn next(&mut self) -> Vec<(i64, i64, f64)> {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        if self.rng.chance(0.1) && self.sent.len() > 3 {
            let last = self.sent.len() - 1;
            return vec![self.sent[last]];
        }
        let count = 1 + self.rng.below(3) as usize;
        let mut points = Vec::new();
        for _ in 0..count {
            self.next_ms += if self.rng.chance(0.1) { 1 + self.rng.below(5) as i64 } else { 0 };
            let start_ms = self.next_ms;
            self.next_ms += 1 + self.rng.below(9) as i64;
            points.push((start_ms, self.next_ms, self.rng.below(10) as f64));
        }
        self.sent.extend(&points);
        if self.rng.chance(0.3) {
            points.reverse();
        }
        points
    }

    /// Sends until the server is killed, or until `most` requests are answered.
    fn run(&mut self, address: SocketAddr, most: usize) {
        let Ok(mut connection) = Connection::open(address) else { return };
        for _ in 0..most {
            let points = self.next();
            let body = post(&request(json!([deltas(&self.name, &points)])));
            let Ok(reply) = connection.send(&body) else {
                self.pending = Some(points);
                return;
            };
            match reply.status {
                200 => assert_eq!(partial(&reply).0, "", "{}: {points:?}", reply.text()),
                503 => self.pending = Some(points),
                other => panic!("status {other}: {}", reply.text()),
            }
        }
    }

    fn verify(&self, server: &Server) {
        let mut sum = 0.0;
        let mut expected: Vec<(i64, f64)> = Vec::new();
        for (_, end_ms, value) in &self.sent {
            sum += value;
            expected.push((*end_ms, sum));
        }
        let found = server.samples_of_one(&format!("{}_total[1h]", self.name), now_ms() + 60_000);
        assert_eq!(found, expected, "{}", self.name);
    }
}

#[test]
fn every_delta_counts_once_whenever_the_server_is_killed() {
    let mut seeds = Rng::announced();
    let mut server = Server::start(Options::default().arg("--seal-after").arg("1s"));
    let sender = |number| Sender {
        name: format!("c{number}"),
        rng: Rng::new(seeds.next_u64()),
        sent: Vec::new(),
        pending: None,
        next_ms: now_ms() - 600_000,
    };
    let mut senders: Vec<_> = (0..6).map(sender).collect();
    for round in 0..6 {
        let address = server.address;
        std::thread::scope(|scope| {
            for sender in &mut senders {
                scope.spawn(move || sender.run(address, 100_000));
            }
            for _ in 0..seeds.below(4) {
                flush(&server);
            }
            std::thread::sleep(std::time::Duration::from_millis(50 + seeds.below(400)));
            server.kill9();
        });
        server.restart();
        for sender in &mut senders {
            sender.run(server.address, 3);
            sender.verify(&server);
        }
        assert_eq!(server.metric("floodmark_delta_series"), senders.len() as f64, "round {round}");
    }
}

/// Increments refer to series by their index, and series of other replicas are removed from between them.
#[test]
fn deltas_of_the_elected_replica_are_added_up() {
    let options = Options::default()
        .config("[tenant.pair]\nha_dedup = true\nha_replica_label = \"replica\"\nha_failover = \"1h\"\n");
    let mut server = Server::start(options);
    let mut rng = Rng::announced();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    // points of both replicas, in any order; series without replicas are between them
    let mut expected = BTreeMap::<String, f64>::new();
    for n in 0..20 {
        let mut metrics = Vec::new();
        for series in 0..8 {
            for replica in ["one", "two", ""] {
                let value = rng.below(100) as f64;
                let mut point = temporal(at(n), at(n + 1), json!({"asDouble": value}));
                let mut attributes =
                    vec![json!({"key": "series", "value": {"stringValue": series.to_string()}})];
                if !replica.is_empty() {
                    for (key, text) in [("cluster", "c"), ("replica", replica)] {
                        attributes.push(json!({"key": key, "value": {"stringValue": text}}));
                    }
                }
                point["attributes"] = attributes.into();
                metrics.push((replica, series, value, point));
            }
        }
        // in the first request, the elected one must be the first
        for i in 1..metrics.len() {
            let from = 1 + rng.below(i as u64) as usize;
            metrics.swap(i, from);
        }
        for (replica, series, value, _) in &metrics {
            if *replica != "two" {
                let cluster = if replica.is_empty() { "" } else { "c" };
                let query = format!("c_total{{cluster=\"{cluster}\",series=\"{series}\"}}");
                *expected.entry(query).or_default() += value;
            }
        }
        let points: Vec<_> = metrics.into_iter().map(|(.., point)| point).collect();
        let sum = json!({"name": "c", "sum": {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": points}});
        for _ in 0..1 + rng.below(2) {
            server.send(&post(&request(json!([sum]))).tenant("pair")).expect(200, &["{}"]);
        }
        if n % 7 == 3 {
            server.kill9();
            server.restart();
        }
    }
    for (query, sum) in &expected {
        let found = server.query_as(Some("pair"), query, now);
        assert_eq!(found["result"][0]["value"][1], sum.to_string(), "{query}");
        assert_eq!(found["result"].as_array().unwrap().len(), 1, "{query}");
    }
}
