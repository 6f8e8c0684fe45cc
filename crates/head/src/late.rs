//! Samples that came out of order, or again with another value: kept apart, merged when read.
//!
//! Whatever is here was written after what the series' chunks hold at the same time, so it wins.
//!
//! ```text
//!   recent  sorted, a few, uncompressed
//!      └─ when there are enough ─▶ pieces  sorted, disjoint, compressed: the leaves of a B+ tree
//! ```
//!
//! A piece takes what comes between its first sample and the next piece's, and splits when it is full. So a
//! sample costs the same however many there are, and nothing is ever merged as a whole.

use crate::chunk::{Chunk, OpenChunk, SAMPLES_MAX};
use model::sample::overlay;
use model::{Samples, TimeRange};
use std::collections::BTreeMap;

/// Samples that wait uncompressed, sorted by time.
const RECENT_MAX: usize = 64;

/// What a piece takes in the tree, beside itself.
const ENTRY_BYTES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Late {
    recent: Vec<(i64, f64)>,
    /// By the time of their first sample.
    pieces: BTreeMap<i64, Chunk>,
    pieces_bytes: usize,
}

impl Late {
    /// Adds a sample; one at the same time is replaced.
    pub(crate) fn insert(&mut self, timestamp_ms: i64, value: f64) {
        match self.recent.binary_search_by_key(&timestamp_ms, |(t, _)| *t) {
            Ok(i) => self.recent[i].1 = value,
            Err(i) => self.recent.insert(i, (timestamp_ms, value)),
        }
        if self.recent.len() >= RECENT_MAX {
            self.compress_recent();
        }
    }

    /// Lays `out` (sorted, unique, from position `from` on) and the late samples in `range` together.
    pub(crate) fn merge_into(&self, range: TimeRange, out: &mut Samples, from: usize) {
        let mut late = Samples::default();
        self.pieces(range).for_each(|piece| piece.read(range, &mut late));
        let recent = self.recent.iter().copied().filter(|(t, _)| range.contains(*t));
        let mut late = overlay(late.iter_from(0), recent).peekable();
        if late.peek().is_none() {
            return;
        }
        let all: Vec<_> = overlay(out.iter_from(from), late).collect();
        out.timestamps.truncate(from);
        out.values.truncate(from);
        out.extend(all);
    }

    /// At least as many samples as [`Self::merge_into`] adds, and hardly more; told without reading.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        self.recent.len() + self.pieces(range).map(|piece| usize::from(piece.count())).sum::<usize>()
    }

    /// True where there is a sample inside `range`.
    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        if self.recent.iter().any(|(t, _)| range.contains(*t)) {
            return true;
        }
        // a piece that starts inside tells at once; only the first can start before
        let mut samples = Samples::default();
        self.pieces(range).take(2).for_each(|piece| piece.read(range, &mut samples));
        !samples.is_empty()
    }

    /// The pieces that can have samples inside `range`.
    fn pieces(&self, range: TimeRange) -> impl Iterator<Item = &Chunk> {
        let first = self.pieces.range(..=range.start_ms).next_back().map_or(range.start_ms, |(t, _)| *t);
        self.pieces.range(first..=range.end_ms.max(first)).map(|(_, piece)| piece)
    }

    /// Bytes on the heap, in constant time: somebody asks with every sample.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<(i64, f64)>() + self.pieces_bytes
    }

    /// Moves what waits into the pieces.
    fn compress_recent(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let mut rest = recent.as_slice();
        while let Some((timestamp_ms, _)) = rest.first() {
            let home = self.pieces.range(..=timestamp_ms).next_back().or_else(|| self.pieces.iter().next());
            let home = home.map(|(start_ms, _)| *start_ms);
            let after_home = home.and_then(|home| {
                let later = self.pieces.range(home.saturating_add(1)..).next();
                later.map(|(start_ms, _)| *start_ms)
            });
            let end = after_home.map_or(rest.len(), |next_ms| rest.partition_point(|(t, _)| *t < next_ms));
            self.put(home, &rest[..end]);
            rest = &rest[end..];
        }
    }

    /// Puts sorted samples into the piece at `home`; into a new one where there is none.
    fn put(&mut self, home: Option<i64>, samples: &[(i64, f64)]) {
        let mut old = Samples::default();
        let mut grows_at_the_end = true;
        if let Some(piece) = home.and_then(|home| self.pieces.remove(&home)) {
            self.pieces_bytes -= piece.memory_bytes() + ENTRY_BYTES;
            grows_at_the_end = samples.first().is_some_and(|(t, _)| *t > piece.range().end_ms);
            piece.read(TimeRange::ALL, &mut old);
        }
        let all: Vec<_> = overlay(old.iter_from(0), samples.iter().copied()).collect();
        // halves leave room for what comes between; a stretch that is filled forwards needs none
        let most = usize::from(SAMPLES_MAX);
        let part = if grows_at_the_end { most } else { all.len().div_ceil(all.len().div_ceil(most)) };
        for part in all.chunks(part) {
            self.add_pieces(part);
        }
    }

    fn add_pieces(&mut self, samples: &[(i64, f64)]) {
        let mut open = OpenChunk::default();
        for &(timestamp_ms, value) in samples {
            if open.append(timestamp_ms, value).is_err() {
                self.add_piece(open.seal());
                open.append(timestamp_ms, value).expect("BUG: an empty chunk takes any sample");
            }
        }
        self.add_piece(open.seal());
    }

    fn add_piece(&mut self, piece: Option<Chunk>) {
        if let Some(piece) = piece {
            self.pieces_bytes += piece.memory_bytes() + ENTRY_BYTES;
            self.pieces.insert(piece.range().start_ms, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn check_bytes(late: &Late) {
        let pieces = late.pieces.values().map(|p| p.memory_bytes() + ENTRY_BYTES).sum::<usize>();
        assert_eq!(late.pieces_bytes, pieces);
        let ranges: Vec<_> = late.pieces.values().map(|p| p.range()).collect();
        assert!(ranges.windows(2).all(|w| w[0].end_ms < w[1].start_ms), "pieces overlap: {ranges:?}");
    }

    #[test]
    fn the_last_write_wins_and_memory_stays_bounded() {
        let mut rng = Rng::announced();
        let (mut late, mut model) = (Late::default(), BTreeMap::new());
        for i in 0..40_000 {
            let (t, v) = (rng.below(1000) as i64, i as f64);
            late.insert(t, v);
            model.insert(t, v);
        }
        check_bytes(&late);
        let mut out = Samples::default();
        for t in 990..1010 {
            out.push(t, -1.0);
            model.entry(t).or_insert(-1.0);
        }
        late.merge_into(TimeRange::ALL, &mut out, 0);
        assert_eq!(out.iter_from(0).collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        assert!(late.heap_bytes() < 24 << 10, "{} bytes for 1000 times", late.heap_bytes());
    }

    #[test]
    fn any_range_of_any_order_comes_back() {
        let mut rng = Rng::announced();
        for round in 0..60 {
            let (mut late, mut model) = (Late::default(), BTreeMap::new());
            let (count, width) = (rng.below(4000), 1 + rng.below(100_000));
            for i in 0..count {
                let t = match round % 3 {
                    0 => i as i64,
                    1 => (count - i) as i64,
                    _ => rng.below(width) as i64,
                };
                let v = if rng.chance(0.1) { rng.below(1 << 60) as f64 / 7.0 } else { (t % 10) as f64 };
                late.insert(t, v);
                model.insert(t, v);
            }
            check_bytes(&late);
            let from = rng.below(width) as i64 - 10;
            let range = TimeRange::new(from, from + rng.below(width) as i64);
            let mut out = Samples::default();
            out.push(-1_000_000, 0.5);
            late.merge_into(range, &mut out, 1);
            let expected: Vec<_> =
                model.range(range.start_ms..=range.end_ms).map(|(t, v)| (*t, *v)).collect();
            assert_eq!(out.iter_from(1).collect::<Vec<_>>(), expected, "round {round}");
        }
    }

    #[test]
    fn what_fills_a_gap_forwards_is_packed_densely() {
        let mut late = Late::default();
        (0..24_000).for_each(|i| late.insert(i * 1000, 1.0));
        check_bytes(&late);
        assert!(late.pieces.len() <= 101, "{} pieces for 100 chunks", late.pieces.len());
    }
}
