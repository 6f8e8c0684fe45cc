//! Measures how long decoding takes per sample of Prometheus' text and of JSON lines.
//!
//! ```text
//!   cargo bench -p protocol --bench text                 a table
//!   cargo bench -p protocol --bench text -- 1000         1,000 passes
//! ```
//!
//! A body has a sample each of 5,000 series with ten labels.

use model::Batch;
use protocol::exposition::{self, Dialect, TextLabels};
use protocol::{Body, Decoder, Encoding, Request, SharedLabels, jsonl};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Account;

const SERIES: usize = 5000;

const TIME_MS: u64 = 1_795_284_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.first().map_or(300, |n| n.parse().expect("PASSES must be a number"));
    println!("{:<10} {:>10} {:>10} {:>12}", "ns/sample", "best", "median", "bytes/sample");
    let labels = Arc::new(TextLabels(SharedLabels::default()));
    let text = exposition::Format { dialect: Dialect::Prometheus, labels, arrival_ms: 0, first_line: 1 };
    run::<exposition::Decoder>(
        "text",
        &lines(("", "=", ""), |s, labels, value| {
            write!(s, "http_requests_total{{{labels}}} {value} {TIME_MS}")
        }),
        &text,
        passes,
    );
    let json = jsonl::Format { labels: Arc::new(SharedLabels::default()), first_line: 1 };
    run::<jsonl::Decoder>(
        "json",
        &lines(("\"", ":", "\""), |s, labels, value| {
            write!(
                s,
                "{{\"metric\":{{\"__name__\":\"http_requests_total\",{labels}}},\"values\":[{value}],\"timestamps\":[{TIME_MS}]}}"
            )
        }),
        &json,
        passes,
    );
}

fn run<D: Decoder>(name: &str, bytes: &[u8], format: &D::Format, passes: usize) {
    let mut memory = Account::new("bench", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes");
    let (mut decoder, mut batch) = (D::new(1), Batch::default());
    let body = Body { encoding: Encoding::Identity, bytes };
    let mut ns: Vec<f64> = (0..passes)
        .map(|_| {
            let start = Instant::now();
            let request = Request { format: format.clone(), body };
            decoder.decode(request, &mut batch, &mut memory).expect("BUG: the input is invalid");
            black_box(&batch.floats.series);
            start.elapsed().as_nanos() as f64 / SERIES as f64
        })
        .collect();
    assert_eq!((batch.floats.values.len(), batch.refused_series), (SERIES, 0), "BUG: the input is invalid");
    ns.sort_by(f64::total_cmp);
    let bytes_per_sample = bytes.len() as f64 / SERIES as f64;
    println!("{name:<10} {:>10.1} {:>10.1} {bytes_per_sample:>12.1}", ns[0], ns[ns.len() / 2]);
}

/// Lines with a sample each. `form` has what comes before and after the name of a label, and after the sign between name
/// and value.
fn lines(
    (before, sign, after): (&str, &str, &str),
    write_line: impl Fn(&mut String, &str, f64) -> std::fmt::Result,
) -> Vec<u8> {
    const NAMES: [&str; 9] =
        ["code", "container", "endpoint", "instance", "job", "method", "namespace", "pod", "service"];
    let mut text = String::new();
    for series in 0..SERIES {
        let labels: Vec<String> = NAMES
            .iter()
            .enumerate()
            .map(|(i, name)| format!("{before}{name}{after}{sign}\"{name}-{:012}\"", series * 7919 + i))
            .collect();
        let value = (series * 7919 % 1_000_000) as f64 / 100.0;
        write_line(&mut text, &labels.join(","), value).expect("BUG: a text cannot be written");
        text.push('\n');
    }
    text.into_bytes()
}
