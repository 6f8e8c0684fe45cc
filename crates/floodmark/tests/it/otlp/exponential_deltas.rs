//! Exponential histograms with delta temporality are added up, and become classic ones.

use super::{bound_of, buckets, nanos, number, partial, post, protobuf, request};
use crate::harness::http::Connection;
use crate::harness::{Options, Request, Server, now_ms};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::rng::Rng;
use stdx::varint;

/// A point, with the values that it counts. None of them is a bound at a scale up to 6.
#[derive(Debug, Clone)]
struct Point {
    start_ms: i64,
    end_ms: i64,
    scale: i32,
    zero_threshold: f64,
    values: Vec<f64>,
}

impl Point {
    fn json(&self) -> Value {
        let side = |sign: f64| {
            let mut counts = BTreeMap::<i64, u64>::new();
            for value in
                self.values.iter().map(|value| value * sign).filter(|value| *value > self.zero_threshold)
            {
                let index = (value.log2() * f64::from(self.scale).exp2()).floor() as i64;
                *counts.entry(index).or_default() += 1;
            }
            let first = counts.keys().next().copied().unwrap_or(0);
            let last = counts.keys().last().copied().unwrap_or(first - 1);
            let dense = (first..=last).map(|index| counts.get(&index).copied().unwrap_or(0));
            json!({"offset": first, "bucketCounts": dense.map(|count| count.to_string()).collect::<Vec<_>>()})
        };
        let zeros = self.values.iter().filter(|value| value.abs() <= self.zero_threshold).count();
        json!({
            "startTimeUnixNano": nanos(self.start_ms), "timeUnixNano": nanos(self.end_ms), "scale": self.scale,
            "count": self.values.len().to_string(), "sum": self.values.iter().sum::<f64>(),
            "zeroCount": zeros.to_string(), "zeroThreshold": self.zero_threshold,
            "positive": side(1.0), "negative": side(-1.0),
        })
    }
}

fn body(name: &str, points: &[Point]) -> Request {
    let points: Vec<_> = points.iter().map(Point::json).collect();
    let histogram = json!({"aggregationTemporality": 1, "dataPoints": points});
    post(&request(json!([{"name": name, "exponentialHistogram": histogram}])))
}

/// Sends points. All must be accepted, and the answer must say that they are converted.
#[track_caller]
fn send(server: &Server, name: &str, points: &[Point]) {
    let (rejected, message) = partial(&server.send(&body(name, points)));
    assert_eq!(rejected, "0", "{message}");
    assert!(message.starts_with(&format!("{} points of exponential histograms", points.len())), "{message}");
}

/// Classic buckets by time and bound, without staleness markers.
type Buckets = BTreeMap<i64, Vec<(f64, f64)>>;

/// All samples of the buckets, in ascending order of their bounds.
fn samples(server: &Server, name: &str) -> Buckets {
    let found = server.query(&format!("{name}_bucket[2h]"), now_ms() + 60_000);
    let mut buckets = Buckets::new();
    for series in found["result"].as_array().expect("series") {
        for sample in series["values"].as_array().expect("samples") {
            let ms = (sample[0].as_f64().expect("a time") * 1000.0).round() as i64;
            buckets.entry(ms).or_default().push((bound_of(&series["metric"]), number(&sample[1])));
        }
    }
    buckets.values_mut().for_each(|of| of.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    buckets
}

fn buckets_at(server: &Server, name: &str, at_ms: i64) -> Vec<(f64, f64)> {
    buckets(server, None, &format!("{name}_bucket"), at_ms)
}

/// Compares the buckets at the time of each point with the values of all points up to it.
#[track_caller]
fn verify(server: &Server, name: &str, points: &[Point]) {
    let (stored, mut values) = (samples(server, name), Vec::new());
    let mut points: Vec<_> = points.iter().collect();
    points.sort_by_key(|point| point.end_ms);
    let times: BTreeSet<_> = points.iter().map(|point| point.end_ms).collect();
    assert_eq!(stored.keys().copied().collect::<BTreeSet<_>>(), times, "{name}");
    let (mut counts, mut sums) = (Vec::new(), Vec::new());
    for point in &points {
        values.extend(&point.values);
        counts.push((point.end_ms, values.len() as f64));
        sums.push((point.end_ms, values.iter().sum::<f64>()));
        let seen = buckets_at(server, name, point.end_ms);
        for (buckets, what) in [(&stored[&point.end_ms], "stored"), (&seen, "seen")] {
            for (bound, count) in buckets {
                let expected = values.iter().filter(|value| *value <= bound).count() as f64;
                assert_eq!(
                    *count, expected,
                    "{what} of {name}, up to {bound} at {}: {buckets:?}",
                    point.end_ms
                );
            }
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, values.len() as f64)), "{what} of {name}");
        }
        // a query sees all of them, and those that are gone are not seen any more
        assert_eq!(seen.len(), stored[&point.end_ms].len(), "{name}: {seen:?}");
    }
    assert_eq!(server.samples_of_one(&format!("{name}_count[2h]"), now_ms() + 60_000), counts, "{name}");
    let found = server.samples_of_one(&format!("{name}_sum[2h]"), now_ms() + 60_000);
    assert_eq!(found.len(), sums.len(), "{name}");
    for ((found_ms, found), (ms, expected)) in found.iter().zip(&sums) {
        let largest = values.iter().map(|value| value.abs()).sum::<f64>();
        assert!(found_ms == ms && (found - expected).abs() <= largest * 1e-12, "{name} at {ms}: {found}");
    }
}

#[test]
fn points_are_converted_and_added_up() {
    let mut server = Server::new();
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 1000;
    let point = |n: i64, scale, values: &[f64]| Point {
        start_ms: at(n - 1),
        end_ms: at(n),
        scale,
        zero_threshold: 0.0,
        values: values.to_vec(),
    };
    let mut points = vec![point(1, 3, &[1.3, 1.7, 3.0, 0.0])];
    send(&server, "took", &points);
    let expected =
        [(0.0, 1.0), (1.0, 1.0), (2.0_f64.sqrt(), 2.0), (2.0, 3.0), (8.0_f64.sqrt(), 3.0), (4.0, 4.0)];
    let expected = [&expected[..], &[(f64::INFINITY, 4.0)]].concat();
    assert_eq!(buckets_at(&server, "took", now), expected);
    // a repetition counts once, also after a crash
    for _ in 0..2 {
        send(&server, "took", &points);
        server.kill9();
        server.restart();
    }
    assert_eq!(buckets_at(&server, "took", now), expected);
    // a smaller range, a larger one, a late point, and one with a lower scale
    for next in
        [point(2, 20, &[1.7]), point(5, 0, &[100.0, -5.0]), point(3, 2, &[0.2, 30.0]), point(6, -1, &[7.0])]
    {
        send(&server, "took", std::slice::from_ref(&next));
        points.push(next);
        verify(&server, "took", &points);
    }
    assert_eq!(server.metric("floodmark_delta_series"), 1.0);
    let metadata = server.send(&Request::get("/api/v1/metadata?metric=took")).expect(200, &[]).json();
    assert_eq!(metadata["data"]["took"][0]["type"], "histogram", "{metadata}");
    let refused = |point: &Point| {
        let (rejected, message) = partial(&server.send(&body("took", std::slice::from_ref(point))));
        assert_eq!(rejected, "1", "{message}");
        message
    };
    let other = Point { values: vec![9.0], ..points[4].clone() };
    assert!(refused(&other).contains("the delta overlaps"), "the same interval with other values");
    // the first one is still known, because time before it is open
    send(&server, "took", &points[..1]);
    let ancient = Point { start_ms: 1000, end_ms: 2000, ..point(7, 0, &[1.0]) };
    assert!(refused(&ancient).contains("out of bounds"));
    verify(&server, "took", &points);
    // other kinds of histograms with the same name have sums of their own
    let classic = json!({"startTimeUnixNano": nanos(at(1)), "timeUnixNano": nanos(at(2)), "count": "1", "sum": 1,
        "explicitBounds": [1.5], "bucketCounts": ["1", "0"]});
    let classic = json!({"aggregationTemporality": 1, "dataPoints": [classic]});
    server.send(&post(&request(json!([{"name": "took", "histogram": classic}])))).expect(200, &["{}"]);
}

/// A request may have other metrics, too, and each histogram with other labels is one by itself.
#[test]
fn other_points_of_the_request_are_stored_once() {
    let server = Server::new();
    let now = now_ms();
    let histogram = |place: &str, values: &[f64]| {
        let mut point = Point {
            start_ms: now - 2000,
            end_ms: now - 1000,
            scale: 1,
            zero_threshold: 0.0,
            values: values.to_vec(),
        }
        .json();
        point["attributes"] = json!([{"key": "place", "value": {"stringValue": place}}]);
        point["exemplars"] = json!([{"timeUnixNano": nanos(now - 1500), "asDouble": values[0]}]);
        point
    };
    let points = [histogram("here", &[1.2, 5.0]), histogram("there", &[9.0])];
    let metrics = json!([
        {"name": "took", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": points}},
        {"name": "c", "sum": {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints":
            [{"startTimeUnixNano": nanos(now - 2000), "timeUnixNano": nanos(now - 1000), "asDouble": 3}]}},
        super::gauge("load", &[(now - 1000, 7.0)]),
        super::sum("refused", 1, now - 1000, -1.0),
    ]);
    for encoding in ["identity", "zstd"] {
        let body = request(metrics.clone()).to_string().into_bytes();
        let body = match encoding {
            "zstd" => zstd::bulk::compress(&body, 3).unwrap(),
            _ => body,
        };
        let sent = Request::post("/v1/metrics", body).header("Content-Type", "application/json");
        let (rejected, message) = partial(&server.send(&sent.header("Content-Encoding", encoding)));
        assert_eq!(rejected, "1", "{message}");
        assert!(message.contains("2 points of exponential") && message.contains("negative"), "{message}");
        for (query, expected) in [
            (r#"took_count{place="here"}"#, 2.0),
            (r#"took_bucket{place="here",le="4"}"#, 1.0),
            (r#"took_bucket{place="there",le="+Inf"}"#, 1.0),
            ("c_total", 3.0),
            ("load", 7.0),
        ] {
            assert_eq!(server.value(query, now), Some(expected), "{query}, {encoding}");
        }
    }
    let found = server.send(&Request::form(
        "/api/v1/query_exemplars",
        &[("query", "took_bucket"), ("start", "0"), ("end", "9999999999")],
    ));
    assert_eq!(found.json()["data"].as_array().map(Vec::len), Some(2), "{}", found.text());
}

/// The sender may repeat such a request until it gives up, and what it has not added up would be missing for good.
#[test]
fn a_series_that_cannot_be_created_keeps_no_histogram_from_being_added_up() {
    const SERIES_MAX: usize = 40;
    let server = Server::start(Options::default().config(&format!("active_series = {SERIES_MAX}")));
    let now = now_ms();
    let point = |start_ms, end_ms| {
        Point { start_ms, end_ms, scale: 1, zero_threshold: 0.0, values: vec![1.2, 5.0] }.json()
    };
    let took = |start_ms, end_ms| {
        let points = [point(start_ms, end_ms)];
        json!({"name": "took", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": points}})
    };
    let send = |metrics: Value| server.send(&post(&request(metrics)));
    send(json!([took(now - 4000, now - 3000)])).expect(200, &[]);
    let gauges: Vec<_> =
        (0..SERIES_MAX).map(|i| super::gauge(&format!("g{i}"), &[(now - 3000, 1.0)])).collect();
    send(json!(gauges)).expect(429, &["active_series"]);
    for _ in 0..2 {
        let metrics =
            json!([super::gauge("one_too_many", &[(now - 2000, 1.0)]), took(now - 3000, now - 2000)]);
        send(metrics).expect(429, &["active_series"]);
        assert_eq!(server.value("took_count", now), Some(4.0));
        assert_eq!(server.value(r#"took_bucket{le="+Inf"}"#, now), Some(4.0));
    }
}

/// What a request adds up to may have far more series than its points. It is then stored in parts.
#[test]
fn a_small_request_may_add_up_to_many_series() {
    const HISTOGRAMS: usize = 60;
    let server = Server::start(Options::default().config("otlp_buckets = 8\npartitions = 3\n"));
    let now = now_ms();
    let points = |n: i64, value: f64| -> Vec<Value> {
        let point = |place: usize| {
            let (start_ms, end_ms) = (now - 10_000 + n * 1000, now - 9000 + n * 1000);
            let point = Point { start_ms, end_ms, scale: 3, zero_threshold: 0.0, values: vec![value] };
            let mut point = point.json();
            point["attributes"] = json!([{"key": "place", "value": {"stringValue": place.to_string()}}]);
            point["exemplars"] = json!([{"timeUnixNano": nanos(end_ms), "asDouble": value}]);
            point
        };
        (0..HISTOGRAMS).map(point).collect()
    };
    let request = |points: Vec<Value>| {
        post(&request(json!([
            {"name": "took", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": points}},
            super::gauge("load", &[(now - 1000, 7.0)]),
        ])))
    };
    let (small, large) = (1.1 * (-40.0_f64).exp2(), 1.1 * 35.0_f64.exp2());
    for (n, value) in [small, large, 1.3].into_iter().enumerate() {
        for _ in 0..2 {
            let (rejected, message) = partial(&server.send(&request(points(n as i64, value))));
            assert_eq!(rejected, "0", "{message}");
            assert!(message.starts_with(&format!("{HISTOGRAMS} points of exponential")), "{message}");
            let values = n as f64 + 1.0;
            for (query, expected) in [
                (r#"count(took_bucket{le="+Inf"})"#, HISTOGRAMS as f64),
                ("sum(took_count)", values * HISTOGRAMS as f64),
                (r#"min(took_bucket{le="+Inf"})"#, values),
                (r#"max(took_bucket{le="+Inf"})"#, values),
                ("load", 7.0),
            ] {
                assert_eq!(server.value(query, now), Some(expected), "{query} after point {n}");
            }
        }
    }
    // each has 75 octaves of two buckets
    let of_each = server.value("max(count by (place) (took_bucket))", now).expect("buckets");
    assert!((150.0..160.0).contains(&of_each), "{of_each}");
    assert_eq!(server.value("min(count by (place) (took_bucket))", now), Some(of_each));
    assert_eq!(server.value(r#"sum(took_bucket{le="1"})"#, now), Some(HISTOGRAMS as f64));
    assert_eq!(server.value(r#"sum(took_bucket{le="2"})"#, now), Some(2.0 * HISTOGRAMS as f64));
    assert_eq!(server.metric("floodmark_otlp_converted_points_total"), 6.0 * HISTOGRAMS as f64);
    let found = server.send(&Request::form(
        "/api/v1/query_exemplars",
        &[("query", "took_bucket"), ("start", "0"), ("end", "9999999999")],
    ));
    assert_eq!(found.json()["data"].as_array().map(Vec::len), Some(3 * HISTOGRAMS), "{}", found.text());
}

/// A field of a protobuf message with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    varint::put(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out
}

fn fixed(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// A histogram of an SDK with usual limits: 160 buckets, of which 20 have values. At the scale of the bounds, they span 10 powers of two.
fn usual_point(place: usize, start_ms: i64, end_ms: i64) -> Vec<u8> {
    let attribute = |key: &str, value: &str| {
        field(1, &[field(1, key.as_bytes()), field(2, &field(1, value.as_bytes()))].concat())
    };
    let counts: Vec<_> = (0..160).map(|bucket| u8::from(bucket % 8 == 0 || bucket == 159)).collect();
    let (count, ns) = (counts.iter().map(|count| u64::from(*count)).sum(), |ms: i64| ms as u64 * 1_000_000);
    let point = [
        attribute("http.request.method", "GET"),
        attribute("http.route", &format!("/api/v2/customers/{{customer}}/orders/{place}")),
        attribute("http.response.status_code", "200"),
        attribute("server.address", "orders.shop.svc.cluster.local"),
        fixed(2, ns(start_ms)),
        fixed(3, ns(end_ms)),
        fixed(4, count),
        fixed(5, 100.0_f64.to_bits()),
        vec![6 << 3, 8],
        field(8, &[vec![1 << 3, 0x9f, 0x01], field(2, &counts)].concat()),
    ];
    field(1, &point.concat())
}

/// Sets a flag at the end, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What the collector sends at once by default must be accepted, and must not be refused for good.
#[test]
fn the_default_batch_of_the_collector_is_accepted() {
    const BATCH: usize = 8192;
    const COUNT: f64 = 21.0;
    // with little memory, there are fewer series; two points of a histogram are then far from each other in the request
    for (memory_mib, histograms) in [(512, BATCH), (256, BATCH / 2)] {
        let server = Server::start(Options::default().arg("--memory").arg(&format!("{memory_mib}MiB")));
        let now = now_ms();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // requests of another tenant that wait for each other do not keep it from being accepted
            for number in 0..6 {
                let (server, is_done) = (&server, &is_done);
                scope.spawn(move || {
                    let mut connection = Connection::open(server.address).unwrap();
                    for n in (0..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                        let end_ms = now - 1_000_000 + n * 6 + number;
                        let point = usual_point(0, end_ms - 1, end_ms);
                        let point = [&point[..], &[2 << 3, 1]].concat();
                        let metric = field(2, &[field(1, b"busy"), field(10, &point)].concat());
                        let sent = protobuf(field(1, &field(2, &metric))).tenant("other");
                        assert!([200, 503].contains(&connection.send(&sent).unwrap().status));
                    }
                });
            }
            let _stop = Stop(&is_done);
            for n in 0..2 {
                let points = (0..BATCH).flat_map(|number| {
                    let times = (BATCH / histograms) as i64;
                    let end_ms = now - 60_000 + (n * times + (number / histograms) as i64) * 10_000;
                    usual_point(number % histograms, end_ms - 10_000, end_ms)
                });
                let points: Vec<_> = points.chain([2 << 3, 1]).collect();
                let metric =
                    field(2, &[field(1, b"http.server.request.duration"), field(10, &points)].concat());
                let sent = protobuf(field(1, &field(2, &metric)));
                // repeated points count once
                for _ in 0..2 {
                    let reply = server.send(&sent);
                    let text = reply.text();
                    assert_eq!(reply.status, 200, "{memory_mib} MiB: {text}");
                    let message = format!("{BATCH} points of exponential");
                    assert!(text.contains(&message), "{memory_mib} MiB: {text}");
                }
                let stored = |query: &str| server.value(query, now);
                const NAME: &str = "http_server_request_duration";
                let values = (n as f64 + 1.0) * BATCH as f64 * COUNT;
                assert_eq!(stored(&format!("count({NAME}_count)")), Some(histograms as f64));
                assert_eq!(stored(&format!("sum({NAME}_count)")), Some(values));
                assert_eq!(stored(&format!("sum({NAME}_bucket{{le=\"32\"}})")), Some(values));
            }
        });
        server.assert_peak_within(memory_mib << 20);
        assert_eq!(server.metric("floodmark_delta_series"), histograms as f64 + 1.0);
    }
}

/// Sends a histogram whose scale, range and zero threshold change, with points in the wrong order and repetitions.
struct Sender {
    name: String,
    rng: Rng,
    /// Points that were acknowledged.
    stored: Vec<Point>,
    latest: Vec<Point>,
    /// A request without an answer, which has to be repeated.
    pending: Option<Vec<Point>>,
    /// A point that is sent behind later ones.
    late: Option<(Point, u64)>,
    next_ms: i64,
    octaves: f64,
}

impl Sender {
    fn point(&mut self) -> Point {
        let rng = &mut self.rng;
        self.next_ms += if rng.chance(0.2) { 1 + rng.below(5) as i64 } else { 0 };
        let start_ms = self.next_ms;
        self.next_ms += 1 + rng.below(50) as i64;
        let octaves = if rng.chance(0.05) { self.octaves * 3.0 } else { self.octaves };
        let value = |rng: &mut Rng| {
            let steps = ((rng.below(2001) as f64 / 1000.0 - 1.0) * octaves * 64.0).round();
            // between two bounds of the scale 6
            let value = ((steps + 0.5) / 64.0).exp2();
            match rng.below(15) {
                0 => 0.0,
                1 => -value,
                _ => value,
            }
        };
        let values = (0..rng.below(6)).map(|_| value(rng)).collect();
        let scale = if rng.chance(0.7) { 4 } else { rng.below(9) as i32 - 2 };
        let zero_threshold = match rng.below(20) {
            0 => (0.3 - rng.below(8) as f64).exp2(),
            1 => 0.001,
            _ => 0.0,
        };
        Point { start_ms, end_ms: self.next_ms, scale, zero_threshold, values }
    }

    fn next(&mut self) -> Vec<Point> {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        if self.rng.chance(0.15) && !self.latest.is_empty() {
            return self.latest.clone();
        }
        match self.late.take() {
            Some((point, 0)) => return vec![point],
            Some((point, requests)) => self.late = Some((point, requests - 1)),
            None if self.rng.chance(0.2) => self.late = Some((self.point(), self.rng.below(3))),
            None => {}
        }
        let mut points: Vec<_> = (0..1 + self.rng.below(2)).map(|_| self.point()).collect();
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
            let Ok(reply) = connection.send(&body(&self.name, &points)) else {
                self.pending = Some(points);
                return;
            };
            match reply.status {
                200 => {
                    assert_eq!(partial(&reply).0, "0", "{}: {points:?}", reply.text());
                    let known: BTreeSet<_> = self.stored.iter().map(|point| point.end_ms).collect();
                    self.stored.extend(points.iter().filter(|point| !known.contains(&point.end_ms)).cloned());
                    self.latest = points;
                }
                503 => self.pending = Some(points),
                other => panic!("status {other}: {}", reply.text()),
            }
        }
    }

    /// Sends what is left.
    fn finish(&mut self, server: &Server) {
        while self.pending.is_some() {
            self.run(server.address, 1);
        }
    }
}

#[test]
fn every_value_counts_once_whenever_the_server_is_killed() {
    let mut seeds = Rng::announced();
    let options =
        Options::default().arg("--seal-after").arg("1s").config("otlp_buckets = 8\npartitions = 3\n");
    let mut server = Server::start(options);
    let sender = |number: u64| Sender {
        name: format!("h{number}"),
        rng: Rng::new(seeds.next_u64()),
        stored: Vec::new(),
        latest: Vec::new(),
        pending: None,
        late: None,
        next_ms: now_ms() - 600_000,
        octaves: [2.0, 6.0, 20.0, 60.0][number as usize % 4],
    };
    let mut senders: Vec<_> = (0..4).map(sender).collect();
    for round in 0..4 {
        let address = server.address;
        std::thread::scope(|scope| {
            for sender in &mut senders {
                scope.spawn(move || sender.run(address, 60));
            }
            for _ in 0..seeds.below(3) {
                server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
            }
            std::thread::sleep(std::time::Duration::from_millis(20 + seeds.below(200)));
            server.kill9();
        });
        server.restart();
        for sender in &mut senders {
            sender.finish(&server);
            verify(&server, &sender.name, &sender.stored);
        }
        assert_eq!(server.metric("floodmark_delta_series"), senders.len() as f64, "round {round}");
    }
}

/// Late points make samples at later times again, so requests of one histogram must not overtake each other.
#[test]
fn the_same_requests_over_several_connections_count_once() {
    const REQUESTS: i64 = 40;
    let server = Server::start(Options::default().config("partitions = 3\n"));
    let now = now_ms();
    let at = |n: i64| now - 100_000 + n * 10;
    let point = |n: i64| Point {
        start_ms: at(n),
        end_ms: at(n + 1),
        scale: 3,
        zero_threshold: 0.0,
        values: vec![1.1 + (n % 7) as f64 * 3.3],
    };
    // each two in the wrong order
    let points: Vec<_> = (0..REQUESTS).map(|n| point(n ^ 1)).collect();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut connection = Connection::open(server.address).unwrap();
                for point in &points {
                    // one that another connection has sent before may be refused
                    let sent = connection.send(&body("took", std::slice::from_ref(point))).unwrap();
                    assert_eq!(sent.status, 200, "{}", sent.text());
                }
            });
        }
    });
    verify(&server, "took", &points);
}
