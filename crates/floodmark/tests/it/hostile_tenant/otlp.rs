//! Harmful requests for OTLP's doors: metrics, logs and traces.

use super::{Attack, BAD, Row, gzip_of_zeros, zstd_of_zeros};
use crate::harness::Request;
use crate::harness::wire::put_bytes;

/// Statuses that may answer a request whose points are all or partly wrong. OTLP names what was left out in a 200.
const PARTLY: &[u16] = &[200, 400, 413, 503];

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    super::attacks([json_bodies(now_ms), protobuf_bodies(now_ms), compressed()].concat())
}

fn json(body: Vec<u8>) -> Request {
    Request::post("/v1/metrics", body).header("Content-Type", "application/json")
}

fn protobuf(body: Vec<u8>) -> Request {
    Request::post("/v1/metrics", body).header("Content-Type", "application/x-protobuf")
}

fn json_bodies(now_ms: i64) -> Vec<Row> {
    let point = |attributes: &str, value: &str, nanos: &str| {
        let points =
            format!(r#"[{{"attributes":[{attributes}],"timeUnixNano":"{nanos}","asDouble":{value}}}]"#);
        let metric = format!(r#"{{"name":"own","gauge":{{"dataPoints":{points}}}}}"#);
        format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#).into_bytes()
    };
    let now = format!("{now_ms}000000");
    let attribute = |value: &str| format!(r#"{{"key":"k","value":{value}}}"#);
    let deep = format!("{}1{}", r#"{"arrayValue":{"values":["#.repeat(20_000), "]}}".repeat(20_000));
    let many: Vec<_> =
        (0..200_000).map(|i| format!(r#"{{"key":"k{i}","value":{{"stringValue":"v"}}}}"#)).collect();
    let resources = vec![r#"{"resource":{}}"#; 500_000].join(",");
    vec![
        ("OTLP: nested JSON", json(br#"{"resourceMetrics":["#.repeat(500_000)), BAD),
        ("OTLP: nested values", json(point(&attribute(&deep), "1", &now)), BAD),
        ("OTLP: 200,000 attributes", json(point(&many.join(","), "1", &now)), PARTLY),
        ("OTLP: a million keys", json(format!("{{{}}}", "\"k\":1,".repeat(1_000_000)).into_bytes()), BAD),
        (
            "OTLP: half a million resources",
            json(format!(r#"{{"resourceMetrics":[{resources}]}}"#).into_bytes()),
            PARTLY,
        ),
        ("OTLP: NUL", json(point(&attribute(r#"{"stringValue":"\u0000"}"#), "1", &now)), PARTLY),
        ("OTLP: half a character", json(point(&attribute(r#"{"stringValue":"\ud800"}"#), "1", &now)), PARTLY),
        ("OTLP: no UTF-8", json(b"{\"resourceMetrics\":\"\xff\xfe\"}".to_vec()), BAD),
        ("OTLP: a huge number", json(point("", "1e999", &now)), PARTLY),
        ("OTLP: a huge time", json(point("", "1", "99999999999999999999")), PARTLY),
        ("OTLP: a number of 4 MiB", json(point("", &"9".repeat(4 << 20), &now)), PARTLY),
        (
            "OTLP: a text of 8 MiB",
            json(point(&attribute(&format!(r#"{{"stringValue":"{}"}}"#, "x".repeat(8 << 20))), "1", &now)),
            PARTLY,
        ),
    ]
}

/// A message with one field of bytes.
fn nest(field: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, field, content);
    out
}

fn protobuf_bodies(now_ms: i64) -> Vec<Row> {
    let number = |tag: u8, bits: u64| [&[tag][..], &bits.to_le_bytes()].concat();
    let time = number(0x19, now_ms as u64 * 1_000_000);
    let of_point = |point: &[u8]| {
        let metric = [nest(1, b"own"), nest(5, &nest(1, point))].concat();
        nest(1, &nest(2, &nest(2, &metric)))
    };
    let attribute = |key: &str, value: &[u8]| nest(7, &[nest(1, key.as_bytes()), nest(2, value)].concat());
    // AnyValue.array_value is field 5, ArrayValue.values is field 1
    let deep = (0..5_000).fold(nest(1, b"x"), |inner, _| nest(5, &nest(1, &inner)));
    let many: Vec<u8> = (0..200_000).flat_map(|i| attribute(&format!("k{i}"), &nest(1, b"v"))).collect();
    let with = |attributes: &[u8]| of_point(&[attributes, &time, &number(0x21, 0)].concat());
    let buckets = nest(6, &[0; 8].repeat(500_000));
    let histogram = nest(1, &[time.clone(), number(0x21, 1), buckets].concat());
    let histogram = nest(1, &nest(2, &nest(2, &[nest(1, b"own"), nest(9, &histogram)].concat())));
    vec![
        ("OTLP: nested values in protobuf", protobuf(with(&attribute("k", &deep))), PARTLY),
        ("OTLP: 200,000 attributes in protobuf", protobuf(with(&many)), PARTLY),
        ("OTLP: no UTF-8 in protobuf", protobuf(with(&attribute("k", &nest(1, b"\xff\0")))), PARTLY),
        ("OTLP: a histogram of half a million buckets", protobuf(histogram), PARTLY),
        ("OTLP: a million resources of nothing", protobuf([0x0a, 0].repeat(1_000_000)), PARTLY),
        (
            "OTLP: a million metrics of nothing",
            protobuf(nest(1, &nest(2, &[0x12, 0].repeat(1_000_000)))),
            PARTLY,
        ),
        ("OTLP: a varint without an end", protobuf(vec![0xff; 100]), BAD),
        ("OTLP: a field without an end", protobuf([&[0x0a][..], &[0xff; 9], &[1]].concat()), BAD),
        (
            "OTLP: deep logs",
            Request::post("/v1/logs", of_log(&deep)).header("Content-Type", "application/x-protobuf"),
            PARTLY,
        ),
        (
            "OTLP: a million spans of nothing",
            Request::post("/v1/traces", nest(1, &nest(2, &[0x12, 0].repeat(1_000_000))))
                .header("Content-Type", "application/x-protobuf"),
            PARTLY,
        ),
    ]
}

/// A log record with this body.
fn of_log(body: &[u8]) -> Vec<u8> {
    nest(1, &nest(2, &nest(2, &nest(5, body))))
}

fn compressed() -> Vec<Row> {
    let gzip = |request: Request| request.header("Content-Encoding", "gzip");
    let zstd = |request: Request| request.header("Content-Encoding", "zstd");
    vec![
        ("OTLP: gzip of 300 MiB of JSON", gzip(json(gzip_of_zeros(300 << 20))), BAD),
        ("OTLP: gzip of 300 MiB of protobuf", gzip(protobuf(gzip_of_zeros(300 << 20))), BAD),
        ("OTLP: zstd of 300 MiB of JSON", zstd(json(zstd_of_zeros(300 << 20))), BAD),
        ("OTLP: zstd of 300 MiB of protobuf", zstd(protobuf(zstd_of_zeros(300 << 20))), BAD),
    ]
}
