//! Moves samples out of a head: they are frozen, read, and released once a table holds them.
//!
//! ```text
//!   append ──▶ fresh ──freeze()──▶ frozen ──release_turn() …──▶ gone
//!                                    └─ FrozenOrder, read_frozen(): any number of times
//! ```
//!
//! A freeze flips the head's epoch and touches no series. If a series is in the other epoch, its samples are frozen.
//! The first later append to the series separates its frozen chunks. A release visits all series in turns and
//! brings them into the head's epoch. Then the next freeze can begin. Before the release,
//! [`TenantHead::freeze_rest_some`] adds newer samples to the present freeze.

use crate::late::{Late, enclosing_range};
use crate::series::EPOCH;
use crate::tenant::TenantHead;
use crate::value::Value;
use hashbrown::HashMap;
use model::{Samples, SeriesRef, TimeRange};

pub(crate) mod state;
#[cfg(test)]
mod tests;

/// Number of series that one turn visits, which takes about fifty microseconds.
pub(crate) const TURN_SERIES: usize = 400;

/// Merging this many late samples takes about as long as visiting a series, so it counts as one step.
const LATE_PER_STEP: usize = 8;

impl TenantHead {
    /// Makes all samples immutable, in constant time. Returns their number (a sample sent twice may count
    /// twice). Only one freeze can be outstanding.
    pub(crate) fn freeze(&mut self) -> u64 {
        assert!(!self.is_frozen(), "BUG: earlier frozen samples are not released yet");
        let samples = std::mem::take(&mut self.samples_fresh);
        if samples > 0 {
            self.frozen.epoch ^= EPOCH;
            self.frozen.samples = samples;
            self.frozen_late = std::mem::take(&mut self.late);
        }
        samples
    }

    /// Adds samples that arrived since the freeze to the frozen ones. Returns true after the last turn. No
    /// writes may happen between turns, and the release must not have begun.
    pub(crate) fn freeze_rest_some(&mut self, steps: &mut usize) -> bool {
        assert!(self.is_frozen() && self.frozen.released == 0, "BUG: no freeze, or its release has begun");
        self.frozen.samples += std::mem::take(&mut self.samples_fresh);
        // eviction may have shortened the list of series
        let mut next = self.frozen.visited.min(self.series.len());
        while next < self.series.len() && *steps > 0 {
            let taken = 1 + self.freeze_rest(SeriesRef(next as u32)) / LATE_PER_STEP;
            *steps = steps.saturating_sub(taken);
            next += 1;
        }
        let last = next == self.series.len();
        assert!(!last || self.late.is_empty(), "BUG: some late samples belong to no series");
        self.frozen.visited = if last { 0 } else { next };
        last
    }

    /// Freezes all samples of a series. Returns the number of late samples merged.
    fn freeze_rest(&mut self, series_ref: SeriesRef) -> usize {
        let epoch = self.frozen.epoch;
        let Some(series) = self.series.find_mut(series_ref.index()) else { return 0 };
        if series.state & EPOCH != epoch {
            return 0;
        }
        let (has_late, had_late) = (series.has_late(), series.has_frozen_late());
        series.set_late(has_late || had_late);
        series.set_frozen_late(false);
        series.state ^= EPOCH;
        if !has_late {
            return 0;
        }
        let late = self.late.remove(&series_ref).expect("BUG: late samples are missing");
        if !had_late {
            self.frozen_late.insert(series_ref, late);
            return 0;
        }
        let frozen = self.frozen_late.get_mut(&series_ref).expect("BUG: frozen late samples are missing");
        self.late_bytes -= late.heap_bytes() + frozen.heap_bytes();
        let merged = frozen.absorb(&late, series_ref);
        self.late_bytes += frozen.heap_bytes();
        merged
    }

    /// Appends the frozen samples of a series to `out`, in ascending order of time. If several samples were
    /// written for one time, only the last of them counts. `V` must be the type of the series' values.
    pub fn read_frozen<V: Value>(&self, series_ref: SeriesRef, out: &mut Samples<V>) {
        let from = out.len();
        let series = self.series.get(series_ref.index());
        assert!(series.kind() == V::KIND, "BUG: samples are read as the wrong kind");
        series.read_frozen(self.frozen.is_whole(series), out);
        if let Some(late) = self.frozen_late_of(series, series_ref) {
            V::late(late).merge_into(TimeRange::ALL, out, from);
        }
    }

    /// Time range of a series' frozen samples, found without decoding.
    pub fn frozen_range(&self, series_ref: SeriesRef) -> Option<TimeRange> {
        let series = self.series.get(series_ref.index());
        let in_order = series.frozen_range(self.frozen.is_whole(series));
        let late = self.frozen_late_of(series, series_ref).and_then(Late::range);
        [in_order, late].into_iter().flatten().reduce(enclosing_range)
    }

    /// Releases the frozen samples of as many series as there are `steps`. Returns true after the last turn.
    /// A series remembers the time of its newest sample.
    pub(crate) fn release_some(&mut self, steps: &mut usize) -> bool {
        if !self.is_frozen() {
            return true;
        }
        // eviction may have shortened the list of series
        let from = self.frozen.released.min(self.series.len());
        let to = self.series.len().min(from + *steps);
        (from..to).for_each(|i| self.release(SeriesRef(i as u32)));
        self.frozen.released = to;
        *steps -= to - from;
        let last = to == self.series.len();
        if last {
            assert!(self.frozen_late.is_empty(), "BUG: some late samples belong to no series");
            self.frozen_late = HashMap::new();
            (self.frozen.samples, self.frozen.released) = (0, 0);
        }
        last
    }

    fn release(&mut self, series_ref: SeriesRef) {
        let Some(series) = self.series.find_mut(series_ref.index()) else { return };
        let whole = series.state & EPOCH != self.frozen.epoch;
        let has_late = if whole { series.has_late() } else { series.has_frozen_late() };
        let changed = series.release(whole);
        self.chunk_bytes = self.chunk_bytes.wrapping_add_signed(changed);
        series.state = series.state & !EPOCH | self.frozen.epoch;
        if has_late && let Some(late) = self.frozen_late.remove(&series_ref) {
            self.late_bytes -= late.heap_bytes();
        }
    }

    pub(crate) fn has_frozen(&self, series_ref: SeriesRef) -> bool {
        let series = self.series.get(series_ref.index());
        match self.frozen.is_whole(series) {
            true => series.has_late() || !series.is_empty(),
            false => series.has_frozen_late() || series.has_frozen_chunks(),
        }
    }
}
