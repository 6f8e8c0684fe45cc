//! Measures how long decoding takes per sample, with requests as a Prometheus sends them when it scrapes many
//! pods.
//!
//! ```text
//!   cargo bench -p protocol                            everything, a table
//!   cargo bench -p protocol -- v1 50                   one part, 50 passes
//!   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' <the binary> v1 2
//! ```
//!
//! A request has 2,000 series of one sample each. A series has 10 labels with 218 bytes of text.

#[path = "decode/fleet.rs"]
mod fleet;

use fleet::Fleet;
use model::{Batch, LabelsBuilder, SeriesHasher};
use protocol::labels::{find_labels, labels_of};
use protocol::remote_write::{Decoder, Version};
use protocol::{Body, Decoder as _, Request, decompress_snappy};
use std::hint::black_box;
use std::time::Instant;
use stdx::budget::{Account, Reservation};

pub(crate) const PARTS: [&str; 9] =
    ["snap", "snappy", "v1", "v1-replica", "snap-v2", "snappy-v2", "v2", "v2-metadata", "labels"];

#[allow(dead_code, reason = "the tests include this file for `run`")]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.get(1).map_or(200, |n| n.parse().expect("PASSES must be a number"));
    match args.first() {
        Some(part) => run(&[part], 10, passes),
        None => run(&PARTS, 10, passes),
    }
}

/// Times the benchmarks that `parts` names. In each of the `passes`, a benchmark handles `requests` requests.
/// The fastest pass is closest to the cost of the code itself, because nothing else slowed it down.
pub(crate) fn run(parts: &[&str], requests: usize, passes: usize) {
    let fleet = Fleet::new(requests);
    println!(
        "{:<12} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "ns/sample", "best", "median", "MB/s", "body bytes", "decompressed"
    );
    for part in parts {
        let mut work = Work::of(part, &fleet);
        let passed = (0..passes).map(|_| {
            let start = Instant::now();
            measured(&mut work);
            start.elapsed().as_nanos() as f64
        });
        let mut ns: Vec<f64> = passed.collect();
        ns.sort_by(f64::total_cmp);
        let (best, median) = (ns[0], ns[ns.len() / 2]);
        println!(
            "{part:<12} {:>10.1} {:>10.1} {:>10.0} {:>12} {:>12}",
            best / fleet.samples() as f64,
            median / fleet.samples() as f64,
            work.bytes_decoded() as f64 / best * 1e3,
            work.bytes_sent(),
            work.bytes_decoded()
        );
    }
}

struct Work<'a> {
    part: String,
    bodies: &'a [Vec<u8>],
    fleet: &'a Fleet,
    decoder: Decoder,
    batch: Batch,
    memory: Reservation,
    out: Vec<u8>,
    labels: LabelsBuilder,
}

impl<'a> Work<'a> {
    fn of(part: &str, fleet: &'a Fleet) -> Self {
        let bodies = match part {
            "snap" | "snappy" | "v1" | "v1-replica" | "labels" => &fleet.v1,
            "snap-v2" | "snappy-v2" | "v2" => &fleet.v2,
            "v2-metadata" => &fleet.v2_metadata,
            other => panic!("unknown part {other:?}; the parts are {PARTS:?}"),
        };
        let mut work = Self {
            part: part.into(),
            bodies,
            fleet,
            decoder: Decoder::new(1),
            batch: Batch::default(),
            memory: Account::new("bench", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes"),
            out: Vec::new(),
            labels: LabelsBuilder::new(),
        };
        measured(&mut work);
        work
    }

    fn bytes_sent(&self) -> usize {
        self.bodies.iter().map(Vec::len).sum()
    }

    fn bytes_decoded(&self) -> usize {
        self.bodies
            .iter()
            .map(|b| snap::raw::decompress_len(b).expect("BUG: generated input is invalid"))
            .sum()
    }
}

#[inline(never)]
fn measured(work: &mut Work<'_>) {
    match work.part.as_str() {
        "snappy" | "snappy-v2" => {
            for body in work.bodies {
                decompress_snappy(body, &mut work.out).expect("BUG: generated input is invalid");
                black_box(&work.out);
            }
        }
        "snap" | "snap-v2" => {
            for body in work.bodies {
                work.out.resize(snap::raw::decompress_len(body).expect("BUG: generated input is invalid"), 0);
                let done = snap::raw::Decoder::new().decompress(body, &mut work.out);
                black_box(done.expect("BUG: generated input is invalid"));
            }
        }
        "v1" => decode(work, Version::V1),
        "v1-replica" => decode_replica(work),
        "v2" | "v2-metadata" => decode(work, Version::V2),
        "labels" => {
            for labels in &work.fleet.labels {
                black_box(
                    labels_of(labels.as_bytes(), &mut work.labels).expect("BUG: generated input is invalid"),
                );
            }
        }
        _ => unreachable!("BUG: Work::of checks the name of the part"),
    }
}

/// Decodes bodies and removes one label from each series. The server does this for the replicas of a highly
/// available pair.
fn decode_replica(work: &mut Work<'_>) {
    let hasher = SeriesHasher::new(1);
    for body in work.bodies {
        let request = Request { format: Version::V1, body: Body::snappy(body) };
        work.decoder
            .decode(request, &mut work.batch, &mut work.memory)
            .expect("BUG: generated input is invalid");
        let Batch { bytes, floats, .. } = &mut work.batch;
        for series in &mut floats.series {
            let (start, end) = (series.labels.start as usize, series.labels.end as usize);
            let [_, off] = find_labels(&bytes[start..end], ["cluster", "container"])
                .expect("BUG: generated input is invalid");
            let (before, after) = (start..start + off.range.start, start + off.range.end..end);
            let at = bytes.len();
            bytes.extend_from_within(before);
            bytes.extend_from_within(after);
            series.key = hasher.key(&bytes[at..]);
            series.labels = at as u32..bytes.len() as u32;
        }
        black_box(&work.batch.floats.series);
    }
}

fn decode(work: &mut Work<'_>, version: Version) {
    for body in work.bodies {
        work.decoder
            .decode(Request { format: version, body: Body::snappy(body) }, &mut work.batch, &mut work.memory)
            .expect("BUG: generated input is invalid");
        black_box(&work.batch.floats.series);
    }
}
