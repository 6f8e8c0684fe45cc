//! OpenTelemetry's metrics: the paths, forms and answers of OTLP, real senders, and a real Prometheus as reference.

mod deltas;
mod differential;
mod exponential_deltas;
mod grpc;
mod senders;

pub(crate) use grpc::call;
pub(crate) use senders::{check_bounds, check_buckets, halves, run};

use crate::harness::read::matrix;
use crate::harness::{Options, Reply, Request, Server, now_ms};
use serde_json::{Value, json};

const PATHS: [&str; 5] = [
    "/v1/metrics",
    "/otlp/v1/metrics",
    "/api/v1/otlp/v1/metrics",
    "/opentelemetry/v1/metrics",
    "/opentelemetry/api/v1/push",
];

fn post(body: &Value) -> Request {
    Request::post("/v1/metrics", body.to_string().into_bytes()).header("Content-Type", "application/json")
}

fn protobuf(body: Vec<u8>) -> Request {
    Request::post("/v1/metrics", body).header("Content-Type", "application/x-protobuf")
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// A request with these metrics of the service `shop`.
fn request(metrics: Value) -> Value {
    json!({"resourceMetrics": [{
        "resource": {"attributes": [attribute("service.name", "shop"), attribute("host.name", "h1")]},
        "scopeMetrics": [{"scope": {"name": "lib"}, "metrics": metrics}],
    }]})
}

fn nanos(ms: i64) -> String {
    format!("{ms}000000")
}

fn gauge(name: &str, points: &[(i64, f64)]) -> Value {
    let point = |(ms, value): &(i64, f64)| json!({"timeUnixNano": nanos(*ms), "asDouble": value});
    json!({"name": name, "gauge": {"dataPoints": points.iter().map(point).collect::<Vec<_>>()}})
}

fn sum(name: &str, temporality: u32, ms: i64, value: f64) -> Value {
    let points = json!([{"timeUnixNano": nanos(ms), "asDouble": value}]);
    json!({"name": name, "sum": {"aggregationTemporality": temporality, "isMonotonic": true, "dataPoints": points}})
}

/// The same gauge in protobuf: `up{job="shop"} 1`.
fn gauge_in_protobuf(ms: i64) -> Vec<u8> {
    use crate::harness::wire::put_bytes;
    let nest = |field, content: &[u8]| {
        let mut out = Vec::new();
        put_bytes(&mut out, field, content);
        out
    };
    let number = |tag: u8, bits: u64| [&[tag][..], &bits.to_le_bytes()].concat();
    let point = [number(0x19, ms as u64 * 1_000_000), number(0x21, 1_f64.to_bits())].concat();
    let metric = [nest(1, b"up"), nest(5, &nest(1, &point))].concat();
    let attribute = [nest(1, b"service.name"), nest(2, &nest(1, b"shop"))].concat();
    nest(1, &[nest(1, &nest(1, &attribute)), nest(2, &nest(2, &metric))].concat())
}

#[test]
fn points_can_be_read_at_once_and_after_a_crash() {
    let mut server = Server::new();
    let now = now_ms();
    for (number, path) in PATHS.into_iter().enumerate() {
        let ms = now - 1000 + number as i64;
        let reply = server.send(&post(&request(json!([gauge("load", &[(ms, number as f64)])]))).path(path));
        reply.expect(200, &["{}"]);
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    let reply = server.send(&protobuf(gauge_in_protobuf(now)));
    reply.expect(200, &[]);
    assert_eq!((reply.header("content-type"), &*reply.body), (Some("application/x-protobuf"), &b""[..]));
    server.kill9();
    server.restart();
    let expected: Vec<_> = (0..5).map(|number| (now - 1000 + number, number as f64)).collect();
    assert_eq!(server.samples_of_one(r#"load{job="shop"}[1m]"#, now), expected);
    assert_eq!(server.value(r#"up{job="shop"}"#, now), Some(1.0));
    let info = matrix(&server.query("target_info[1m]", now));
    assert_eq!(
        info.into_keys().collect::<Vec<_>>(),
        [r#"{"__name__":"target_info","host_name":"h1","job":"shop"}"#]
    );
}

#[test]
fn encodings_are_negotiated() {
    let server = Server::new();
    let now = now_ms();
    let body = request(json!([gauge("load", &[(now, 1.0)])])).to_string();
    let send = |encoding: &str, bytes: Vec<u8>| {
        let request = Request::post("/v1/metrics", bytes).header("Content-Type", "application/json");
        server.send(&request.header("Content-Encoding", encoding))
    };
    send("zstd", zstd::bulk::compress(body.as_bytes(), 3).unwrap()).expect(200, &["{}"]);
    send("identity", body.clone().into_bytes()).expect(200, &["{}"]);
    send("gzip", body.clone().into_bytes()).expect(400, &[r#"{"code":3,"message":"invalid gzip body"#]);
    send("snappy", body.into_bytes()).expect(415, &[r#"{"code":3,"#, "snappy", "identity or gzip or zstd"]);
    let typed = |content_type: &str| {
        server.send(&Request::post("/v1/metrics", Vec::new()).header("Content-Type", content_type))
    };
    typed("text/plain").expect(415, &["text/plain", "application/json"]);
    typed("application/x-protobuf").expect(200, &[]);
    typed("application/json").expect(400, &["expected an object"]);
    assert_eq!(server.value("count(load)", now), Some(1.0));
}

fn partial(reply: &Reply) -> (String, String) {
    reply.expect(200, &[]);
    let partial = reply.json()["partialSuccess"].clone();
    let text = |key: &str| partial[key].as_str().unwrap_or_default().to_owned();
    (text("rejectedDataPoints"), text("errorMessage"))
}

fn bound_of(metric: &Value) -> f64 {
    let bound = metric["le"].as_str().expect("a bound");
    if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") }
}

fn number(value: &Value) -> f64 {
    value.as_str().expect("a value").parse().expect("a number")
}

/// The buckets of a histogram that a query finds, each with its bound, in ascending order.
pub(crate) fn buckets(server: &Server, tenant: Option<&str>, selector: &str, at_ms: i64) -> Vec<(f64, f64)> {
    let found = server.query_as(tenant, selector, at_ms);
    let of = |series: &Value| (bound_of(&series["metric"]), number(&series["value"][1]));
    let mut buckets: Vec<_> = found["result"].as_array().expect("series").iter().map(of).collect();
    buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    buckets
}

#[test]
fn what_is_left_out_is_named() {
    let server = Server::start(Options::default().config("otlp_delta = \"refuse\"\n"));
    let now = now_ms();
    let metrics = json!([
        gauge("kept", &[(now, 1.0), (now + 3_600_000, 2.0)]),
        sum("delta", 1, now, 3.0),
        sum("cumulative", 2, now, 4.0),
        {"name": "empty", "gauge": {"dataPoints": [{"timeUnixNano": nanos(now)}]}},
    ]);
    let (rejected, message) = partial(&server.send(&post(&request(metrics))));
    // `target_info` has the newest time of all points, so it is refused too
    assert_eq!(rejected, "4");
    for part in ["deltas", "otlp_delta", "delta_total", "the point has no value", "out of bounds"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(server.value("kept", now), Some(1.0));
    assert_eq!(server.value("cumulative_total", now), Some(4.0));
    assert_eq!(server.metric(r#"floodmark_refusals_total{reason="partial_write"}"#), 1.0);
    let refusals =
        server.send(&Request::get("/api/v1/refusals")).expect(200, &["partial_write", "otlp_delta"]).json();
    assert_eq!(refusals["data"][0]["status"], 200, "{refusals}");
}

#[test]
fn exponential_histograms_are_converted_and_the_answer_says_so() {
    let server = Server::new();
    let now = now_ms();
    let point = json!({
        "timeUnixNano": nanos(now), "count": "6", "sum": 30, "scale": 0, "zeroCount": 1,
        "positive": {"offset": 1, "bucketCounts": [2, 0, 3]},
    });
    let histogram = json!({"aggregationTemporality": 2, "dataPoints": [point]});
    let metrics = json!([{"name": "took", "unit": "s", "exponentialHistogram": histogram}]);
    let (rejected, message) = partial(&server.send(&post(&request(metrics))));
    assert_eq!(rejected, "0");
    assert!(message.contains("1 points of exponential histograms"), "{message}");
    assert_eq!(server.metric("floodmark_otlp_converted_points_total"), 1.0);
    for (le, expected) in [("0", 1.0), ("2", 1.0), ("4", 3.0), ("8", 3.0), ("16", 6.0), ("+Inf", 6.0)] {
        assert_eq!(
            server.value(&format!(r#"took_seconds_bucket{{le="{le}"}}"#), now),
            Some(expected),
            "{le}"
        );
    }
    assert_eq!(server.value("took_seconds_sum", now), Some(30.0));
}

#[test]
fn errors_have_the_form_of_the_request() {
    let options = Options::default().config("[tenant.small]\nrequests_per_second = 1\nrate_burst = \"1s\"\n");
    let server = Server::start(options);
    let json = |request: Request| {
        let reply = server.send(&request);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        (reply.status, reply.json()["code"].as_u64(), reply.header("retry-after").is_some())
    };
    let body = request(json!([gauge("load", &[(now_ms(), 1.0)])]));
    assert_eq!(json(post(&body).tenant("..")), (400, Some(3), false));
    let limited = (0..3).map(|_| json(post(&body).tenant("small"))).find(|(status, ..)| *status != 200);
    assert_eq!(limited, Some((429, Some(8), true)));
    let damaged = server.send(&protobuf(vec![0xff]));
    damaged.expect(400, &["invalid protobuf at byte 0"]);
    assert_eq!(damaged.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(damaged.body[..2], [0x08, 3]);
    let large = post(&body).header("Content-Length", "99999999");
    assert_eq!(server.send(&large).expect(413, &[]).json()["code"], 8);
}

#[test]
fn settings_differ_between_tenants() {
    let config = r#"
        [tenant.utf8]
        otlp_translation = "NoTranslation"
        otlp_promote = ["host.name"]
        otlp_scope_labels = true
        otlp_target_info = false
        otlp_delta = "keep"
    "#;
    let server = Server::start(Options::default().config(config));
    let now = now_ms();
    let body = request(json!([sum("http.requests", 1, now, 2.0)]));
    partial(&server.send(&post(&body)));
    server.send(&post(&body).tenant("utf8")).expect(200, &["{}"]);
    let stored = matrix(&server.query_as(Some("utf8"), r#"{__name__!=""}[1m]"#, now));
    let expected = r#"{"__name__":"http.requests","host.name":"h1","job":"shop","otel_scope_name":"lib"}"#;
    assert_eq!(stored.into_keys().collect::<Vec<_>>(), [expected]);
}

#[test]
fn points_that_are_sent_again_are_stored_once() {
    let server = Server::new();
    let now = now_ms();
    let body = request(json!([gauge("load", &[(now - 10, 1.0), (now, 2.0)]), sum("c", 2, now, 5.0)]));
    for _ in 0..3 {
        server.send(&post(&body)).expect(200, &["{}"]);
    }
    assert_eq!(server.samples_of_one("load[1m]", now), [(now - 10, 1.0), (now, 2.0)]);
    assert_eq!(server.samples_of_one("c_total[1m]", now), [(now, 5.0)]);
}
