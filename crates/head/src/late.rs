//! Late samples are out of order, or have another value at a known time. A read merges them with the samples
//! in the series' chunks. At equal times, the late sample wins.
//!
//! ```text
//!   recent   sorted, a few, uncompressed; most series have no pieces
//!      └─ when there are enough ─▶ pieces: the leaves of a B+ tree, each
//!                                    chunk    sorted, compressed
//!                                    pending  sorted, a few, uncompressed, newer than the chunk
//! ```
//!
//! A piece takes the samples from its bound to the next piece's bound. Its chunk is rewritten when enough
//! samples are pending, and a full chunk splits the piece. So a sample costs a lookup and about 1/32 of a
//! rewrite, whatever the order of the samples.
//!
//! The series of a sender often get their late samples together, one each. They would all rewrite a chunk at the
//! same time, and everyone would wait for it. So how many samples are enough depends on the series.

use crate::chunk::{Chunk, ChunkValue, OpenChunk, SAMPLES_MAX};
use model::sample::overlay;
use model::{Histogram, Samples, SeriesRef, TimeRange};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

#[cfg(test)]
mod tests;

/// Once a series has this many late samples, they are compressed into pieces. See [`spread`] for the range.
const RECENT_MAX: RangeInclusive<usize> = 48..=79;

/// Once a piece has this many pending samples, its chunk is rewritten with them. See [`spread`] for the range.
const PENDING_MAX: RangeInclusive<usize> = 24..=39;

const ENTRY_BYTES: usize = 56;

/// A number of the range that differs between neighbouring series.
fn spread(range: &RangeInclusive<usize>, series: SeriesRef) -> usize {
    range.start() + series.index() % (range.end() - range.start() + 1)
}

pub(crate) fn enclosing_range(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange::new(a.start_ms.min(b.start_ms), a.end_ms.max(b.end_ms))
}

#[derive(Debug)]
pub enum Late {
    Floats(LateOf<f64>),
    /// Boxed, to save memory for floats.
    Histograms(Box<LateOf<Histogram>>),
}

const _: () = assert!(size_of::<Late>() == size_of::<LateOf<f64>>());

/// Evaluates an expression for late samples that may be floats or histograms.
macro_rules! each {
    ($late:expr, $of:ident => $body:expr) => {
        match $late {
            Late::Floats($of) => $body,
            Late::Histograms($of) => $body,
        }
    };
}

impl Late {
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        each!(self, late => late.samples_at_most(range))
    }

    pub(crate) fn range(&self) -> Option<TimeRange> {
        each!(self, late => late.range())
    }

    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        each!(self, late => late.has_samples(range))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Floats(late) => late.heap_bytes(),
            Self::Histograms(late) => size_of::<LateOf<Histogram>>() + late.heap_bytes(),
        }
    }

    /// Adds the samples of `later`, which has the same kind. They replace samples at the same times. Returns
    /// the number of samples of `later`.
    pub(crate) fn absorb(&mut self, later: &Self, series: SeriesRef) -> usize {
        match (self, later) {
            (Self::Floats(late), Self::Floats(later)) => late.absorb(later, series),
            (Self::Histograms(late), Self::Histograms(later)) => late.absorb(later, series),
            _ => panic!("{OTHER_KIND}"),
        }
    }
}

pub trait LateValue: ChunkValue {
    fn no_late() -> Late;

    /// Returns the late samples as values of this type. Panics if their values are of the other type.
    fn late(late: &Late) -> &LateOf<Self>;

    fn late_mut(late: &mut Late) -> &mut LateOf<Self>;
}

const OTHER_KIND: &str = "BUG: the late samples of a series have two kinds of values";

impl LateValue for f64 {
    fn no_late() -> Late {
        Late::Floats(LateOf::default())
    }

    fn late(late: &Late) -> &LateOf<Self> {
        let Late::Floats(late) = late else { panic!("{OTHER_KIND}") };
        late
    }

    fn late_mut(late: &mut Late) -> &mut LateOf<Self> {
        let Late::Floats(late) = late else { panic!("{OTHER_KIND}") };
        late
    }
}

impl LateValue for Histogram {
    fn no_late() -> Late {
        Late::Histograms(Box::default())
    }

    fn late(late: &Late) -> &LateOf<Self> {
        let Late::Histograms(late) = late else { panic!("{OTHER_KIND}") };
        late
    }

    fn late_mut(late: &mut Late) -> &mut LateOf<Self> {
        let Late::Histograms(late) = late else { panic!("{OTHER_KIND}") };
        late
    }
}

#[derive(Debug)]
pub struct LateOf<V> {
    recent: Vec<(i64, V)>,
    /// Pieces by their bound, the lowest time that belongs to a piece. The first bound is `i64::MIN`.
    pieces: BTreeMap<i64, Piece<V>>,
    /// Memory of the pieces, and heap memory of the values in `recent`.
    held_bytes: usize,
}

impl<V> Default for LateOf<V> {
    fn default() -> Self {
        Self { recent: Vec::new(), pieces: BTreeMap::new(), held_bytes: 0 }
    }
}

#[derive(Debug)]
struct Piece<V> {
    chunk: Chunk,
    pending: Vec<(i64, V)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Little,
    /// The insertion rewrote a chunk, which takes a few microseconds.
    Rewrite,
}

impl<V: ChunkValue> LateOf<V> {
    /// Adds a sample of `series`, or replaces the sample at the same time.
    pub(crate) fn insert(&mut self, timestamp_ms: i64, value: V, series: SeriesRef) -> Effort {
        let Some((&bound_ms, piece)) = self.pieces.range_mut(..=timestamp_ms).next_back() else {
            self.held_bytes += value.heap_bytes();
            let replaced = insert_sorted(&mut self.recent, timestamp_ms, value);
            self.held_bytes -= replaced.map_or(0, |old| old.heap_bytes());
            if self.recent.len() < spread(&RECENT_MAX, series) {
                return Effort::Little;
            }
            let recent = std::mem::take(&mut self.recent);
            self.held_bytes -= values_bytes(&recent);
            self.add_pieces(i64::MIN, &recent);
            return Effort::Rewrite;
        };
        let before = piece.pending.capacity();
        self.held_bytes += value.heap_bytes();
        let replaced = insert_sorted(&mut piece.pending, timestamp_ms, value);
        self.held_bytes -= replaced.map_or(0, |old| old.heap_bytes());
        self.held_bytes += (piece.pending.capacity() - before) * size_of::<(i64, V)>();
        if piece.pending.len() < spread(&PENDING_MAX, series) {
            return Effort::Little;
        }
        self.rewrite(bound_ms);
        Effort::Rewrite
    }

    /// Merges the late samples in `range` into `out`. From the position `from` on, the times in `out` must be
    /// ascending, without duplicates.
    pub(crate) fn merge_into(&self, range: TimeRange, out: &mut Samples<V>, from: usize) {
        let mut late = Samples::default();
        for piece in self.pieces(range) {
            piece.read(range, &mut late);
        }
        let recent = self.recent.iter().filter(|(t, _)| range.contains(*t)).cloned();
        let mut late = late.iter_from(0).chain(recent).peekable();
        if late.peek().is_none() {
            return;
        }
        let all: Vec<_> = overlay(out.iter_from(from), late).collect();
        out.truncate(from);
        out.extend(all);
    }

    fn absorb(&mut self, later: &Self, series: SeriesRef) -> usize {
        let mut samples = Samples::default();
        later.merge_into(TimeRange::ALL, &mut samples, 0);
        for (timestamp_ms, value) in samples.iter_from(0) {
            self.insert(timestamp_ms, value, series);
        }
        samples.len()
    }

    /// A close upper bound on the number of samples that [`Self::merge_into`] adds. It is found without
    /// decoding.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        let in_piece = |piece: &Piece<V>| usize::from(piece.chunk.count()) + piece.pending.len();
        self.recent.len() + self.pieces(range).map(in_piece).sum::<usize>()
    }

    pub(crate) fn range(&self) -> Option<TimeRange> {
        let recent = self.recent.first().zip(self.recent.last());
        let recent = recent.map(|((first, _), (last, _))| TimeRange::new(*first, *last));
        let pieces = self.pieces.values().next().zip(self.pieces.values().next_back());
        let pieces = pieces.map(|(first, last)| TimeRange::new(first.range().start_ms, last.range().end_ms));
        [recent, pieces].into_iter().flatten().reduce(enclosing_range)
    }

    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        self.recent.iter().any(|(t, _)| range.contains(*t))
            || self.pieces(range).any(|piece| piece.has_samples(range))
    }

    fn pieces(&self, range: TimeRange) -> impl Iterator<Item = &Piece<V>> {
        let first = self.pieces.range(..=range.start_ms).next_back().map_or(range.start_ms, |(t, _)| *t);
        self.pieces.range(first..=range.end_ms.max(first)).map(|(_, piece)| piece)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<(i64, V)>() + self.held_bytes
    }

    /// Compresses the pending samples of a piece, and splits the piece if necessary.
    fn rewrite(&mut self, bound_ms: i64) {
        let piece = self.pieces.remove(&bound_ms).expect("BUG: the piece to be rewritten is missing");
        self.held_bytes -= piece.memory_bytes();
        let mut all = Samples::default();
        piece.read(TimeRange::ALL, &mut all);
        let all: Vec<_> = all.iter_from(0).collect();
        // equal parts leave room for later samples in between; a piece that grows at its end needs no room
        let most = usize::from(SAMPLES_MAX);
        let grows_at_the_end = piece.pending.first().is_some_and(|(t, _)| *t > piece.chunk.range().end_ms);
        let part = if grows_at_the_end { most } else { all.len().div_ceil(all.len().div_ceil(most)) };
        let mut bound_ms = bound_ms;
        for (i, part) in all.chunks(part).enumerate() {
            bound_ms = if i == 0 { bound_ms } else { part[0].0 };
            self.add_pieces(bound_ms, part);
        }
    }

    /// Adds samples as the piece at `bound_ms`, and as more pieces if necessary.
    fn add_pieces(&mut self, mut bound_ms: i64, samples: &[(i64, V)]) {
        let mut open = OpenChunk::default();
        for (timestamp_ms, value) in samples {
            if value.append(&mut open, *timestamp_ms).is_err() {
                self.add_piece(bound_ms, open.seal());
                bound_ms = *timestamp_ms;
                value.append(&mut open, *timestamp_ms).expect("BUG: an empty chunk has no room");
            }
        }
        self.add_piece(bound_ms, open.seal());
    }

    fn add_piece(&mut self, bound_ms: i64, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            let piece = Piece { chunk, pending: Vec::new() };
            self.held_bytes += piece.memory_bytes();
            self.pieces.insert(bound_ms, piece);
        }
    }
}

impl<V: ChunkValue> Piece<V> {
    fn range(&self) -> TimeRange {
        let chunk = self.chunk.range();
        let pending = self.pending.first().zip(self.pending.last());
        pending.map_or(chunk, |((first, _), (last, _))| enclosing_range(chunk, TimeRange::new(*first, *last)))
    }

    fn read(&self, range: TimeRange, out: &mut Samples<V>) {
        if self.pending.is_empty() {
            return self.chunk.read(range, out);
        }
        let mut old = Samples::default();
        self.chunk.read(range, &mut old);
        let pending = self.pending.iter().filter(|(t, _)| range.contains(*t)).cloned();
        out.extend(overlay(old.iter_from(0), pending));
    }

    /// True if there is a sample inside `range`. Decodes the chunk only if it spans the range.
    fn has_samples(&self, range: TimeRange) -> bool {
        let chunk = self.chunk.range();
        if range.contains(chunk.start_ms) || range.contains(chunk.end_ms) {
            return true;
        }
        if self.pending.iter().any(|(t, _)| range.contains(*t)) {
            return true;
        }
        let mut samples = Samples::<V>::default();
        self.chunk.read(range, &mut samples);
        !samples.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        let pending = self.pending.capacity() * size_of::<(i64, V)>() + values_bytes(&self.pending);
        self.chunk.memory_bytes() + pending + ENTRY_BYTES
    }
}

fn values_bytes<V: ChunkValue>(samples: &[(i64, V)]) -> usize {
    samples.iter().map(|(_, value)| value.heap_bytes()).sum()
}

fn insert_sorted<V>(samples: &mut Vec<(i64, V)>, timestamp_ms: i64, value: V) -> Option<V> {
    match samples.binary_search_by_key(&timestamp_ms, |(t, _)| *t) {
        Ok(i) => Some(std::mem::replace(&mut samples[i].1, value)),
        Err(i) => {
            samples.insert(i, (timestamp_ms, value));
            None
        }
    }
}
