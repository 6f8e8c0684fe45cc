//! Appending samples to chunks and reading them back.

use super::shapes::{self, Shape};
use super::{Case, Prepared, Size, fleet};
use head::{Chunk, OpenChunk, SAMPLES_MAX};
use model::{Samples, TimeRange};

pub(super) const CASES: &[Case] = &[
    Case { name: "append/one chunk/counter", unit: "sample", prepare: |s| append_hot(s, Shape::Counter) },
    Case { name: "append/one chunk/gauge", unit: "sample", prepare: |s| append_hot(s, Shape::Gauge) },
    Case { name: "append/one chunk/constant", unit: "sample", prepare: |s| append_hot(s, Shape::Constant) },
    Case { name: "append/one chunk/walk", unit: "sample", prepare: |s| append_hot(s, Shape::Walk) },
    Case {
        name: "append/scrape/200k/counter",
        unit: "sample",
        prepare: |s| append_scrape(s, Shape::Counter),
    },
    Case { name: "append/scrape/200k/gauge", unit: "sample", prepare: |s| append_scrape(s, Shape::Gauge) },
    Case {
        name: "append/scrape/200k/constant",
        unit: "sample",
        prepare: |s| append_scrape(s, Shape::Constant),
    },
    Case { name: "append/scrape/200k/walk", unit: "sample", prepare: |s| append_scrape(s, Shape::Walk) },
    Case { name: "append/scrape/200k/mix", unit: "sample", prepare: |s| append_scrape(s, Shape::Mix) },
    Case { name: "scan/counter", unit: "sample", prepare: |s| scan(s, Shape::Counter) },
    Case { name: "scan/gauge", unit: "sample", prepare: |s| scan(s, Shape::Gauge) },
    Case { name: "scan/constant", unit: "sample", prepare: |s| scan(s, Shape::Constant) },
    Case { name: "scan/walk", unit: "sample", prepare: |s| scan(s, Shape::Walk) },
    Case { name: "scan/mix", unit: "sample", prepare: |s| scan(s, Shape::Mix) },
    Case { name: "scan/mix/last 5 minutes", unit: "series", prepare: scan_newest },
    Case { name: "read/series/200k/mix", unit: "series", prepare: read_series },
];

const CHUNKS: usize = 1000;
const SAMPLES: usize = SAMPLES_MAX as usize;

pub(super) fn pack(samples: &Samples) -> Vec<Chunk> {
    let (mut open, mut sealed) = (OpenChunk::default(), Vec::new());
    for (timestamp_ms, value) in samples.timestamps.iter().zip(&samples.values) {
        if open.append(*timestamp_ms, *value).is_err() {
            sealed.extend(open.seal());
            open.append(*timestamp_ms, *value).expect("BUG: an empty chunk has no room");
        }
    }
    sealed.extend(open.seal());
    sealed
}

/// Packs one series after the other, so that the open chunk stays in the CPU's caches.
fn append_hot(size: Size, shape: Shape) -> Prepared {
    let chunks = size.of(CHUNKS);
    let samples: Vec<_> = (0..chunks as u64).map(|i| shapes::samples(shape, i, SAMPLES, 0)).collect();
    let bytes = samples.iter().flat_map(pack).map(|c| c.data_bytes()).sum();
    let units = chunks * SAMPLES;
    Prepared::new(units, move || samples.iter().flat_map(pack).map(|c| u64::from(c.count())).sum())
        .with_bytes(bytes)
}

/// Each run appends one scrape, a sample of every series, in requests of 2,000 samples.
fn append_scrape(size: Size, shape: Shape) -> Prepared {
    let series = size.of(200_000);
    let (mut head, refs) = fleet::head(series);
    let mut values: Vec<_> = (0..series as u64).map(|i| shapes::Values::new(shape, i)).collect();
    // after this number of scrapes, the chunks have grown and lie scattered in memory
    let prepared = 32;
    // each run appends the values of one of these eight scrapes, in turn
    let mut columns = Vec::new();
    for scrape in 0..prepared + 8 {
        let column: Vec<f64> = values.iter_mut().map(shapes::Values::next).collect();
        if scrape < prepared {
            head.append(&refs, &vec![shapes::scrape_ms(scrape); series], &column, 1);
        } else {
            columns.push(column);
        }
    }
    let mut scrape = prepared;
    let mut times = vec![0i64; series.min(2000)];
    Prepared::new(series, move || {
        times.fill(shapes::scrape_ms(scrape));
        let column = &columns[scrape % columns.len()];
        scrape += 1;
        let requests = refs.chunks(2000).zip(column.chunks(2000));
        requests.map(|(r, v)| head.append(r, &times[..r.len()], v, 1).in_order).sum()
    })
}

fn scan(size: Size, shape: Shape) -> Prepared {
    let chunks: Vec<_> =
        (0..size.of(CHUNKS) as u64).flat_map(|i| pack(&shapes::samples(shape, i, SAMPLES, 0))).collect();
    let units = chunks.iter().map(|c| c.count() as usize).sum();
    let mut out = Samples::<f64>::default();
    Prepared::new(units, move || {
        let mut sum = 0;
        for chunk in &chunks {
            out.clear();
            chunk.read(TimeRange::ALL, &mut out);
            sum ^= out.values[out.len() / 2].to_bits();
        }
        sum
    })
}

/// Reads the newest five minutes of each chunk, like an instant query.
fn scan_newest(size: Size) -> Prepared {
    let chunks: Vec<_> =
        (0..size.of(CHUNKS) as u64).flat_map(|i| pack(&shapes::samples(Shape::Mix, i, SAMPLES, 0))).collect();
    let mut out = Samples::<f64>::default();
    Prepared::new(chunks.len(), move || {
        let mut sum = 0;
        for chunk in &chunks {
            out.clear();
            chunk.read(TimeRange::new(chunk.range().end_ms - 300_000, chunk.range().end_ms), &mut out);
            sum ^= out.values[out.len() / 2].to_bits() ^ out.len() as u64;
        }
        sum
    })
}

/// Reads twenty samples of each of many series, like an instant query.
fn read_series(size: Size) -> Prepared {
    let series = size.of(200_000);
    let (mut head, refs) = fleet::head(series);
    for (i, s) in refs.iter().enumerate() {
        let samples = shapes::samples(Shape::Mix, i as u64, 20, 0);
        head.append(&[*s; 20], &samples.timestamps, &samples.values, 1);
    }
    let mut out = Samples::<f64>::default();
    Prepared::new(series, move || {
        let mut sum = 0;
        for s in &refs {
            out.clear();
            head.read(*s, TimeRange::ALL, &mut out);
            sum += out.len() as u64;
        }
        sum
    })
}
