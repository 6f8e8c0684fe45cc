//! Measures how long decoding OpenTelemetry's metrics takes per sample.
//!
//! ```text
//!   cargo bench -p protocol --bench otlp                     everything, a table
//!   cargo bench -p protocol --bench otlp -- grouped 50       one part, 50 passes
//! ```
//!
//! A request has 2,000 points, with the same labels as in the benchmark `decode`: 10 labels with 218 bytes of text.
//!
//! | part | |
//! | --- | --- |
//! | `single` | a resource for each of 20 targets, and a metric for each point: as programs send |
//! | `grouped` | a metric for each of 100 names, with a point for each target: as a collector sends that removed resources |
//! | `promoted` | like `single`, but all labels are attributes of the resource, which are promoted |
//! | `histogram` | points with 15 buckets and 3 attributes. A sample is a series of a point |
//! | `json` | like `single`, in JSON |

#[path = "decode/fleet.rs"]
mod fleet;

use fleet::Fleet;
use model::Batch;
use model::labels::METRIC_NAME;
use protocol::encode::OtlpEncoder;
use protocol::otlp::{Decoder, Format, Media, Promoted, Translation};
use protocol::{Body, Decoder as _, Encoding, Request};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Account;

const PARTS: [&str; 5] = ["single", "grouped", "promoted", "histogram", "json"];

const REQUESTS: usize = 10;
const REQUEST_POINTS: usize = 2000;
const METRICS: usize = 100;
const TIME_NS: u64 = 1_795_276_800_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.get(1).map_or(200, |n| n.parse().expect("PASSES must be a number"));
    println!("{:<12} {:>10} {:>10} {:>10} {:>12}", "ns/sample", "best", "median", "MB/s", "bytes");
    let fleet = Fleet::new(REQUESTS);
    assert_eq!(fleet.samples(), REQUESTS * REQUEST_POINTS, "BUG: the fleet has other requests");
    for part in PARTS.iter().filter(|part| args.first().is_none_or(|wanted| wanted == *part)) {
        measure(part, &bodies(part, &fleet), passes);
    }
}

fn measure(part: &str, bodies: &[Vec<u8>], passes: usize) {
    let media = if part == "json" { Media::Json } else { Media::Protobuf };
    let promoted = match part {
        "promoted" => Promoted::All,
        _ => Promoted::These(Vec::new()),
    };
    let translation = Arc::new(Translation { promoted, has_target_info: false, ..Translation::default() });
    let mut memory = Account::new("bench", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes");
    let (mut decoder, mut batch, mut samples) = (Decoder::new(1), Batch::default(), 0);
    let mut pass = || {
        samples = 0;
        let start = Instant::now();
        for bytes in bodies {
            let format = Format::new(media, Arc::clone(&translation));
            let body = Body { encoding: Encoding::Identity, bytes };
            let decoded = decoder.decode(Request { format, body }, &mut batch, &mut memory);
            decoded.expect("BUG: generated input is invalid");
            samples += black_box(&batch.floats.values).len();
        }
        start.elapsed().as_nanos() as f64
    };
    pass();
    let mut ns: Vec<f64> = (0..passes).map(|_| pass()).collect();
    ns.sort_by(f64::total_cmp);
    let (best, median) = (ns[0], ns[ns.len() / 2]);
    let bytes = bodies.iter().map(Vec::len).sum::<usize>();
    println!(
        "{part:<12} {:>10.1} {:>10.1} {:>10.0} {bytes:>12}",
        best / samples as f64,
        median / samples as f64,
        bytes as f64 / best * 1e3,
    );
}

fn bodies(part: &str, fleet: &Fleet) -> Vec<Vec<u8>> {
    let requests = fleet.labels.chunks(REQUEST_POINTS);
    let labels_of = |labels: &model::Labels| -> Vec<(String, String)> {
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let encode = |series: &[model::Labels]| {
        let series: Vec<_> = series.iter().map(labels_of).collect();
        match part {
            "json" => json(&series),
            "histogram" => histograms(&series),
            _ => protobuf(part, &series),
        }
    };
    requests.map(encode).collect()
}

type Series = Vec<(String, String)>;

fn get<'a>(series: &'a Series, name: &str) -> &'a str {
    &series.iter().find(|(other, _)| other == name).expect("BUG: a label is missing").1
}

const RESOURCE: [(&str, &str); 2] = [("service.name", "job"), ("service.instance.id", "instance")];

fn others<'a>(series: &'a Series, without: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let all = series.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| *name != METRIC_NAME && !without.contains(name))
}

fn protobuf(part: &str, series: &[Series]) -> Vec<u8> {
    let mut encoder = OtlpEncoder::new();
    match part {
        "grouped" => {
            encoder.resource([]);
            for metric in 0..METRICS {
                encoder.gauge(get(&series[metric], METRIC_NAME));
                for point in series.iter().skip(metric).step_by(METRICS) {
                    encoder.point(others(point, &[]), TIME_NS, 1.5);
                }
            }
        }
        "promoted" => {
            for target in series.chunks(METRICS) {
                encoder.resource(others(&target[0], &[]));
                for point in target {
                    encoder.gauge(get(point, METRIC_NAME));
                    encoder.point([], TIME_NS, 1.5);
                }
            }
        }
        _ => {
            for target in series.chunks(METRICS) {
                encoder.resource(RESOURCE.map(|(key, label)| (key, get(&target[0], label))));
                for point in target {
                    encoder.gauge(get(point, METRIC_NAME));
                    encoder.point(others(point, &["job", "instance"]), TIME_NS, 1.5);
                }
            }
        }
    }
    encoder.finish()
}

/// A histogram for every second of the series, with attributes of three of its labels.
fn histograms(series: &[Series]) -> Vec<u8> {
    let field = |out: &mut Vec<u8>, tag: u8, content: &[u8]| {
        out.push(tag);
        stdx::varint::put(out, content.len() as u64);
        out.extend_from_slice(content);
    };
    let nest = |tag: u8, content: &[u8]| {
        let mut out = Vec::new();
        field(&mut out, tag, content);
        out
    };
    let bounds: Vec<u8> = (0..14).flat_map(|n| (0.005 * 2_f64.powi(n)).to_le_bytes()).collect();
    let counts: Vec<u8> = (0..15_u64).flat_map(|n| (n * 7).to_le_bytes()).collect();
    let mut request = Vec::new();
    for target in series.chunks(METRICS) {
        let attribute = |key: &str, value: &str| {
            [nest(0x0a, key.as_bytes()), nest(0x12, &nest(0x0a, value.as_bytes()))].concat()
        };
        let resource: Vec<u8> = RESOURCE
            .iter()
            .flat_map(|(key, label)| nest(0x0a, &attribute(key, get(&target[0], label))))
            .collect();
        let mut metrics = Vec::new();
        for point in target.iter().step_by(2) {
            let mut message = Vec::new();
            message.push(0x19);
            message.extend_from_slice(&TIME_NS.to_le_bytes());
            message.push(0x21);
            message.extend_from_slice(&700_u64.to_le_bytes());
            message.push(0x29);
            message.extend_from_slice(&12.5_f64.to_le_bytes());
            field(&mut message, 0x32, &counts);
            field(&mut message, 0x3a, &bounds);
            for label in ["endpoint", "namespace", "region"] {
                field(&mut message, 0x4a, &attribute(label, get(point, label)));
            }
            let histogram = [nest(0x0a, &message), vec![0x10, 2]].concat();
            let name = nest(0x0a, get(point, METRIC_NAME).as_bytes());
            field(&mut metrics, 0x12, &[name, nest(0x4a, &histogram)].concat());
        }
        field(&mut request, 0x0a, &[nest(0x0a, &resource), nest(0x12, &metrics)].concat());
    }
    request
}

fn json(series: &[Series]) -> Vec<u8> {
    let mut out = String::from("{\"resourceMetrics\":[");
    let attributes = |out: &mut String, pairs: &mut dyn Iterator<Item = (&str, &str)>| {
        for (number, (key, value)) in pairs.enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(out, r#"{comma}{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
                .expect("BUG: writing to memory failed");
        }
    };
    for (number, target) in series.chunks(METRICS).enumerate() {
        out.push_str(if number == 0 { "" } else { "," });
        out.push_str(r#"{"resource":{"attributes":["#);
        attributes(&mut out, &mut RESOURCE.map(|(key, label)| (key, get(&target[0], label))).into_iter());
        out.push_str(r#"]},"scopeMetrics":[{"metrics":["#);
        for (number, point) in target.iter().enumerate() {
            let (comma, name) = (if number == 0 { "" } else { "," }, get(point, METRIC_NAME));
            write!(out, r#"{comma}{{"name":"{name}","gauge":{{"dataPoints":[{{"attributes":["#)
                .expect("BUG: writing to memory failed");
            attributes(&mut out, &mut others(point, &["job", "instance"]));
            write!(out, r#"],"timeUnixNano":"{TIME_NS}","asDouble":1.5}}]}}}}"#)
                .expect("BUG: writing to memory failed");
        }
        out.push_str("]}]}");
    }
    out.push_str("]}");
    out.into_bytes()
}
