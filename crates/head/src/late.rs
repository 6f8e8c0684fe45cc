//! Late samples: out of order, or at a known time with another value. They are kept apart and merged when
//! read.
//!
//! A late sample was written after the sample that the series' chunks hold at the same time, so it wins.
//!
//! ```text
//!   recent   sorted, a few, uncompressed: all there is for most series
//!      └─ when there are enough ─▶ pieces: the leaves of a B+ tree, each
//!                                    chunk    sorted, compressed
//!                                    pending  sorted, a few, uncompressed, newer than the chunk
//! ```
//!
//! A piece takes samples between its bound and the next piece's. Its chunk is rewritten when enough samples
//! are pending, and split when it is full. So a sample costs a lookup and a thirty-second of a rewrite,
//! whatever the order and number of samples, and the pieces are never merged as a whole.

use crate::chunk::{Chunk, OpenChunk, SAMPLES_MAX};
use model::sample::overlay;
use model::{Samples, TimeRange};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Samples that wait uncompressed, sorted by time, before there are pieces.
const RECENT_MAX: usize = 64;

/// Samples that wait uncompressed in a piece, 16 bytes each. More of them would make rewrites rarer.
const PENDING_MAX: usize = 32;

/// Fixed size of a tree entry, without its chunk and pending samples: key, vector and unused slots.
const ENTRY_BYTES: usize = 56;

/// Smallest range that contains both.
pub(crate) fn hull(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange::new(a.start_ms.min(b.start_ms), a.end_ms.max(b.end_ms))
}

#[derive(Debug, Default)]
pub(crate) struct Late {
    recent: Vec<(i64, f64)>,
    /// Pieces by their bound, the least time that they take. The first piece takes every time before the
    /// second's bound.
    pieces: BTreeMap<i64, Piece>,
    pieces_bytes: usize,
}

#[derive(Debug)]
struct Piece {
    chunk: Chunk,
    pending: Vec<(i64, f64)>,
}

/// Cost of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A lookup.
    Little,
    /// A chunk was rewritten: a few microseconds.
    Rewrite,
}

impl Late {
    /// Adds a sample, replacing one at the same time.
    pub(crate) fn insert(&mut self, timestamp_ms: i64, value: f64) -> Effort {
        let Some((&bound_ms, piece)) = self.pieces.range_mut(..=timestamp_ms).next_back() else {
            insert_sorted(&mut self.recent, timestamp_ms, value);
            if self.recent.len() < RECENT_MAX {
                return Effort::Little;
            }
            let recent = std::mem::take(&mut self.recent);
            self.add_pieces(i64::MIN, &recent);
            return Effort::Rewrite;
        };
        let before = piece.pending_bytes();
        insert_sorted(&mut piece.pending, timestamp_ms, value);
        self.pieces_bytes += piece.pending_bytes() - before;
        if piece.pending.len() < PENDING_MAX {
            return Effort::Little;
        }
        self.rewrite(bound_ms);
        Effort::Rewrite
    }

    /// Merges the late samples in `range` into `out`, which is sorted and unique from position `from` on.
    pub(crate) fn merge_into(&self, range: TimeRange, out: &mut Samples, from: usize) {
        let mut late = Samples::default();
        for piece in self.pieces(range) {
            piece.read(range, &mut late);
        }
        let recent = self.recent.iter().copied().filter(|(t, _)| range.contains(*t));
        let mut late = late.iter_from(0).chain(recent).peekable();
        if late.peek().is_none() {
            return;
        }
        let all: Vec<_> = overlay(out.iter_from(from), late).collect();
        out.timestamps.truncate(from);
        out.values.truncate(from);
        out.extend(all);
    }

    /// Close upper bound of the samples that [`Self::merge_into`] adds, without decoding them.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        let in_piece = |piece: &Piece| usize::from(piece.chunk.count()) + piece.pending.len();
        self.recent.len() + self.pieces(range).map(in_piece).sum::<usize>()
    }

    /// Time range of the samples.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let recent = self.recent.first().zip(self.recent.last());
        let recent = recent.map(|((first, _), (last, _))| TimeRange::new(*first, *last));
        let pieces = self.pieces.values().next().zip(self.pieces.values().next_back());
        let pieces = pieces.map(|(first, last)| TimeRange::new(first.range().start_ms, last.range().end_ms));
        [recent, pieces].into_iter().flatten().reduce(hull)
    }

    /// True where there is a sample inside `range`.
    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        self.recent.iter().any(|(t, _)| range.contains(*t))
            || self.pieces(range).any(|piece| piece.has_samples(range))
    }

    /// The pieces that can have samples inside `range`.
    fn pieces(&self, range: TimeRange) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.range(..=range.start_ms).next_back().map_or(range.start_ms, |(t, _)| *t);
        self.pieces.range(first..=range.end_ms.max(first)).map(|(_, piece)| piece)
    }

    /// Bytes on the heap, in constant time because it is read with every sample.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<(i64, f64)>() + self.pieces_bytes
    }

    /// Compresses the pending samples of a piece, and splits the piece if they do not fit.
    fn rewrite(&mut self, bound_ms: i64) {
        let piece = self.pieces.remove(&bound_ms).expect("BUG: the piece was just there");
        self.pieces_bytes -= piece.memory_bytes();
        let mut all = Samples::default();
        piece.read(TimeRange::ALL, &mut all);
        let all: Vec<_> = all.iter_from(0).collect();
        // halves leave room for samples in between; a piece that grows at its end needs none
        let most = usize::from(SAMPLES_MAX);
        let grows_at_the_end = piece.pending.first().is_some_and(|(t, _)| *t > piece.chunk.range().end_ms);
        let part = if grows_at_the_end { most } else { all.len().div_ceil(all.len().div_ceil(most)) };
        let mut bound_ms = bound_ms;
        for (i, part) in all.chunks(part).enumerate() {
            bound_ms = if i == 0 { bound_ms } else { part[0].0 };
            self.add_pieces(bound_ms, part);
        }
    }

    /// Adds samples as the piece at `bound_ms`, and as further pieces if they do not fit into one chunk.
    fn add_pieces(&mut self, mut bound_ms: i64, samples: &[(i64, f64)]) {
        let mut open = OpenChunk::default();
        for &(timestamp_ms, value) in samples {
            if open.append(timestamp_ms, value).is_err() {
                self.add_piece(bound_ms, open.seal());
                bound_ms = timestamp_ms;
                open.append(timestamp_ms, value).expect("BUG: an empty chunk takes any sample");
            }
        }
        self.add_piece(bound_ms, open.seal());
    }

    fn add_piece(&mut self, bound_ms: i64, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            let piece = Piece { chunk, pending: Vec::new() };
            self.pieces_bytes += piece.memory_bytes();
            self.pieces.insert(bound_ms, piece);
        }
    }
}

impl Piece {
    /// Time range of the samples.
    fn range(&self) -> TimeRange {
        let chunk = self.chunk.range();
        let pending = self.pending.first().zip(self.pending.last());
        pending.map_or(chunk, |((first, _), (last, _))| hull(chunk, TimeRange::new(*first, *last)))
    }

    /// Appends the samples inside `range` to `out`.
    fn read(&self, range: TimeRange, out: &mut Samples) {
        if self.pending.is_empty() {
            return self.chunk.read(range, out);
        }
        let mut old = Samples::default();
        self.chunk.read(range, &mut old);
        let pending = self.pending.iter().copied().filter(|(t, _)| range.contains(*t));
        out.extend(overlay(old.iter_from(0), pending));
    }

    /// True if there is a sample inside `range`. Decodes the chunk only if it spans the whole range.
    fn has_samples(&self, range: TimeRange) -> bool {
        let chunk = self.chunk.range();
        if range.contains(chunk.start_ms) || range.contains(chunk.end_ms) {
            return true;
        }
        if self.pending.iter().any(|(t, _)| range.contains(*t)) {
            return true;
        }
        let mut samples = Samples::default();
        self.chunk.read(range, &mut samples);
        !samples.is_empty()
    }

    const fn pending_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(i64, f64)>()
    }

    /// Bytes of memory, with the entry in the tree.
    const fn memory_bytes(&self) -> usize {
        self.chunk.memory_bytes() + self.pending_bytes() + ENTRY_BYTES
    }
}

fn insert_sorted(samples: &mut Vec<(i64, f64)>, timestamp_ms: i64, value: f64) {
    match samples.binary_search_by_key(&timestamp_ms, |(t, _)| *t) {
        Ok(i) => samples[i].1 = value,
        Err(i) => samples.insert(i, (timestamp_ms, value)),
    }
}
