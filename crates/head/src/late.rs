//! Samples that came out of order, or again with another value: kept apart, merged when read.
//!
//! Whatever is here was written after what the series' chunks hold at the same time, so it wins.

use crate::chunk::{Chunk, OpenChunk};
use model::{Samples, TimeRange};

/// Samples that wait uncompressed, sorted by time.
const RECENT_MAX: usize = 64;
/// Compressed pieces (which may overlap) before they are merged into one sorted run.
const PIECES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Late {
    recent: Vec<(i64, f64)>,
    /// Later ones win.
    pieces: Vec<Chunk>,
    /// How many pieces came out of the last merge: they do not overlap and are not merged again at once.
    merged: usize,
}

impl Late {
    /// Adds a sample; one at the same time is replaced.
    pub(crate) fn insert(&mut self, timestamp_ms: i64, value: f64) {
        match self.recent.binary_search_by_key(&timestamp_ms, |(t, _)| *t) {
            Ok(i) => self.recent[i].1 = value,
            Err(i) => self.recent.insert(i, (timestamp_ms, value)),
        }
        if self.recent.len() >= RECENT_MAX {
            let recent = std::mem::take(&mut self.recent);
            compress(recent.into_iter(), &mut self.pieces);
            if self.pieces.len() >= self.merged * 2 + PIECES_MAX {
                self.merge();
            }
        }
    }

    /// Lays `out` (sorted, unique, from position `from` on) and the late samples in `range` together.
    pub(crate) fn merge_into(&self, range: TimeRange, out: &mut Samples, from: usize) {
        let mut all: Vec<(i64, f64)> = pairs(out, from).collect();
        out.timestamps.truncate(from);
        out.values.truncate(from);
        let mut piece = Samples::default();
        for chunk in &self.pieces {
            piece.clear();
            chunk.read(range, &mut piece);
            all.extend(pairs(&piece, 0));
        }
        all.extend(self.recent.iter().filter(|(t, _)| range.contains(*t)));
        // stable: among equal times, the one written last stays last
        all.sort_by_key(|(t, _)| *t);
        for (i, (timestamp_ms, value)) in all.iter().enumerate() {
            if all.get(i + 1).is_none_or(|next| next.0 != *timestamp_ms) {
                out.push(*timestamp_ms, *value);
            }
        }
    }

    fn merge(&mut self) {
        let mut all = Samples::default();
        self.merge_into(TimeRange::ALL, &mut all, 0);
        self.pieces.clear();
        compress(pairs(&all, 0), &mut self.pieces);
        self.recent.clear();
        self.merged = self.pieces.len();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.recent.capacity() * size_of::<(i64, f64)>()
            + self.pieces.iter().map(Chunk::memory_bytes).sum::<usize>()
    }
}

fn pairs(samples: &Samples, from: usize) -> impl Iterator<Item = (i64, f64)> + '_ {
    samples.timestamps[from..].iter().copied().zip(samples.values[from..].iter().copied())
}

fn compress(samples: impl Iterator<Item = (i64, f64)>, out: &mut Vec<Chunk>) {
    let mut open = OpenChunk::default();
    for (timestamp_ms, value) in samples {
        if open.append(timestamp_ms, value).is_err() {
            out.extend(open.seal());
            open.append(timestamp_ms, value).expect("BUG: an empty chunk takes any sample");
        }
    }
    out.extend(open.seal());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::rng::Rng;

    #[test]
    fn the_last_write_wins_and_memory_stays_bounded() {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let (mut late, mut model) = (Late::default(), BTreeMap::new());
        for i in 0..40_000 {
            let (t, v) = (rng.below(1000) as i64, i as f64);
            late.insert(t, v);
            model.insert(t, v);
        }
        let mut out = Samples::default();
        for t in 990..1010 {
            out.push(t, -1.0);
            model.entry(t).or_insert(-1.0);
        }
        late.merge_into(TimeRange::ALL, &mut out, 0);
        assert_eq!(pairs(&out, 0).collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        assert!(late.memory_bytes() < 64 << 10, "{} bytes for 1000 times", late.memory_bytes());
    }
}
