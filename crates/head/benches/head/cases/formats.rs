//! Compares the head's chunk format with bit-packed XOR chunks, for ADR 0004.

use super::chunks::pack;
use super::gorilla::XorChunk;
use super::measured;
use super::shapes::{self, Shape};
use head::SAMPLES_MAX;
use model::{Samples, TimeRange};
use std::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct FormatRow {
    pub(crate) data: &'static str,
    /// `floodmark` or `xor`.
    pub(crate) format: &'static str,
    /// Encoded size of the chunks, including their headers, divided by the number of samples.
    pub(crate) bytes_per_sample: f64,
    /// Nanoseconds per sample to append all samples, in the fastest of several rounds.
    pub(crate) append_ns: f64,
    /// Nanoseconds per sample to read all samples, in the fastest of several rounds.
    pub(crate) scan_ns: f64,
}

const DATA: [(&str, Shape, u64); 7] = [
    ("counter", Shape::Counter, 0),
    ("counter, ±8 ms", Shape::Counter, 8),
    ("gauge, 2 decimals", Shape::Gauge, 0),
    ("constant", Shape::Constant, 0),
    ("random walk, doubles", Shape::Walk, 0),
    ("mix", Shape::Mix, 0),
    ("mix, ±8 ms", Shape::Mix, 8),
];

/// Packs and reads `series` series of `count` samples in both formats.
pub(crate) fn compare_formats(series: usize, count: usize, rounds: usize) -> Vec<FormatRow> {
    let mut rows = Vec::new();
    for (data, shape, jitter_ms) in DATA {
        let all: Vec<_> = (0..series as u64).map(|i| shapes::samples(shape, i, count, jitter_ms)).collect();
        let units = (series * count) as f64;
        let row = |format, bytes: usize, append_ns, scan_ns| FormatRow {
            data,
            format,
            bytes_per_sample: bytes as f64 / units,
            append_ns,
            scan_ns,
        };
        let ours = || all.iter().flat_map(pack).collect::<Vec<_>>();
        let theirs = || all.iter().flat_map(pack_xor).collect::<Vec<_>>();
        let bytes = ours().iter().map(|c| c.data_bytes()).sum();
        let (append, scan) = time(rounds, units, ours, |c, out| c.read(TimeRange::ALL, out));
        rows.push(row("floodmark", bytes, append, scan));
        let bytes = theirs().iter().map(XorChunk::bytes).sum();
        let (append, scan) = time(rounds, units, theirs, |c, out| c.read(out));
        rows.push(row("xor", bytes, append, scan));
    }
    rows
}

/// Packs and reads in several rounds. Returns the nanoseconds per sample of the fastest packing and the
/// fastest reading.
fn time<C>(
    rounds: usize,
    units: f64,
    pack: impl Fn() -> Vec<C>,
    read: impl Fn(&C, &mut Samples),
) -> (f64, f64) {
    let (mut append_ns, mut scan_ns) = (f64::MAX, f64::MAX);
    let mut out = Samples::default();
    for _ in 0..rounds {
        let mut chunks = Vec::new();
        append_ns = append_ns.min(ns(&mut || {
            chunks = pack();
            chunks.len() as u64
        }));
        scan_ns = scan_ns.min(ns(&mut || {
            let mut sum = 0;
            for chunk in &chunks {
                out.clear();
                read(chunk, &mut out);
                sum ^= out.values[out.len() - 1].to_bits();
            }
            sum
        }));
    }
    (append_ns / units, scan_ns / units)
}

fn ns(run: &mut dyn FnMut() -> u64) -> f64 {
    let began = Instant::now();
    std::hint::black_box(measured(run));
    began.elapsed().as_nanos() as f64
}

fn pack_xor(samples: &Samples) -> Vec<XorChunk> {
    let all = samples.timestamps.chunks(SAMPLES_MAX.into()).zip(samples.values.chunks(SAMPLES_MAX.into()));
    let pack = |(times, values): (&[i64], &[f64])| {
        let mut chunk = XorChunk::default();
        times.iter().zip(values).for_each(|(t, v)| chunk.append(*t, *v));
        chunk
    };
    all.map(pack).collect()
}
