//! Eviction of idle series from a head.
//!
//! ```text
//!   known ──unlink──▶ unlinked ──unlist──▶ unlisted ──remove──▶ the number is free
//!     ▲                  │
//!     └── create, append, put_exemplars
//! ```
//!
//! Readers and writers keep references from one lock to the next. So a phase begins only when no
//! [`crate::Pin`] or [`crate::Lease`] from before the previous phase is left ([`crate::Partition::evict_turn`]).
//!
//! - *unlink*: lookups by key no longer find the series. A later append, exemplar or creation links the series again.
//! - *unlist*: the series leaves all postings and the index. Its labels stay.
//! - *remove*: its labels are dropped, and so are label pairs that no other series has. Its number is free.

use crate::index::Decision;
use crate::series::{ACTIVE, GONE, HIDDEN, Series, UNLINKED};
use crate::tenant::TenantHead;
use model::SeriesRef;
use roaring::RoaringBitmap;

pub(crate) mod state;
#[cfg(test)]
mod tests;

/// A turn takes this many steps, about fifty microseconds. A visit to one series is one step.
pub(crate) const TURN_STEPS: usize = 500;
/// Unlisting or removing a series with ten labels takes as long as this many steps.
pub(crate) const SERIES_STEPS: usize = 16;
/// Visiting a page of the index takes as long as this many steps, besides one step for each of its entries.
const PAGE_STEPS: usize = 8;

/// Series that got no sample for a while are retired, and later evicted. Both times are in seconds of the
/// clock that [`TenantHead::append`] gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// Series last seen before this time are no longer active. Their samples stay.
    pub retire_before_s: u32,
    /// Series last seen before this time are evicted, if they have no samples. Hidden ones are evicted whenever they
    /// were seen ([`crate::hide`]).
    pub evict_before_s: u32,
    /// The same for series that got newer samples in different seconds. Series of a flood usually did not.
    pub evict_lasting_before_s: u32,
}

impl Idle {
    pub const fn before(seconds: u32) -> Self {
        Self { retire_before_s: seconds, evict_before_s: seconds, evict_lasting_before_s: seconds }
    }

    /// Evicts series, but retires none.
    pub const fn evict_before(seconds: u32) -> Self {
        Self { retire_before_s: 0, ..Self::before(seconds) }
    }
}

impl TenantHead {
    /// Retires idle series, and unlinks idle series without samples. Adds the number of unlinked series
    /// to `unlinked`. Returns true after the last series.
    pub(crate) fn unlink_some(&mut self, idle: Idle, steps: &mut usize, unlinked: &mut u64) -> bool {
        while self.evicting.page < self.index.page_count() {
            if *steps == 0 {
                return false;
            }
            *steps = steps.saturating_sub(PAGE_STEPS);
            self.index.review(self.evicting.page, |found, linked| {
                *steps = steps.saturating_sub(1);
                let series = self.series.get_mut(found.index());
                if series.state & ACTIVE != 0 && series.seen_s < idle.retire_before_s {
                    series.state &= !ACTIVE;
                    self.active -= 1;
                }
                let before_s =
                    if series.is_lasting() { idle.evict_lasting_before_s } else { idle.evict_before_s };
                let is_idle = series.seen_s < before_s || series.state & HIDDEN != 0;
                if !is_idle || series.holds_samples() {
                    return if linked { Decision::Link } else { Decision::Unlink };
                }
                series.state |= UNLINKED;
                *unlinked += 1;
                Decision::Unlink
            });
            self.evicting.page += 1;
        }
        self.evicting.page = 0;
        true
    }

    /// Takes unlinked series out of the index and the postings. Returns true when none is left.
    pub(crate) fn unlist_some(&mut self, steps: &mut usize) -> bool {
        self.evicting.is_unlisting = true;
        while self.evicting.page < self.index.page_count() {
            if *steps == 0 {
                return false;
            }
            *steps = steps.saturating_sub(PAGE_STEPS);
            self.drop_keys(steps);
            self.evicting.page += 1;
        }
        // unlists the series in ascending order, because removing from the middle of a run is expensive
        for series in self.evicting.removing.range(self.evicting.unlisted..) {
            if *steps == 0 {
                self.evicting.unlisted = series;
                return false;
            }
            *steps = steps.saturating_sub(SERIES_STEPS);
            // hidden series are in no postings
            if !self.hidden.remove(series) {
                self.labels.unlist(SeriesRef(series), &mut self.pairs);
            }
        }
        (self.evicting.page, self.evicting.unlisted, self.evicting.is_unlisting) = (0, 0, false);
        if !self.evicting.removing.is_empty() {
            let series = &self.series;
            self.exemplars.retain(|of, _| series.get(of.index()).state & GONE == 0);
        }
        true
    }

    /// Merges sparse pages of the index. Returns true when none is left.
    fn merge_some(&mut self, steps: &mut usize) -> bool {
        while self.evicting.page < self.index.page_count() {
            if *steps == 0 {
                return false;
            }
            let moved = self.index.merge(self.evicting.page);
            *steps = steps.saturating_sub(1 + moved);
            self.evicting.page += 1;
            self.evicting.merged |= moved > 0;
        }
        self.evicting.page = 0;
        // starts again after a merge, because the merge moves another page, which this pass may have skipped
        if std::mem::take(&mut self.evicting.merged) {
            return self.merge_some(steps);
        }
        self.index.shrink();
        true
    }

    /// Removes the keys of unlinked series from a page. Links those series again that got samples or exemplars, or
    /// were created again.
    fn drop_keys(&mut self, steps: &mut usize) {
        let Self { index, series, evicting, active, .. } = self;
        index.review(evicting.page, |found, linked| {
            *steps = steps.saturating_sub(1);
            let series = series.get_mut(found.index());
            if linked || series.state & UNLINKED == 0 {
                series.state &= !UNLINKED;
                return Decision::Link;
            }
            assert!(!series.holds_samples(), "BUG: an unlinked series holds samples");
            *active -= usize::from(series.state & ACTIVE != 0);
            series.state = GONE;
            evicting.removing.insert(found.0);
            Decision::Remove
        });
    }

    /// Removes unlisted series, and reports their references to `freed`. Returns true when none is left.
    pub(crate) fn remove_some(&mut self, steps: &mut usize, freed: &mut dyn FnMut(SeriesRef)) -> bool {
        // from the end, so that whole pages become empty
        while let Some(series) = self.evicting.removing.max().map(SeriesRef) {
            if *steps == 0 {
                return false;
            }
            self.evicting.removing.remove(series.0);
            *steps = steps.saturating_sub(SERIES_STEPS);
            self.labels.remove(series, &mut self.pairs);
            let taken = self.series.take(series.index());
            self.births.note_removed(taken.seen_s);
            self.free.push(series.0, &mut self.series);
            self.evicted += 1;
            freed(series);
        }
        self.evicting.removing = RoaringBitmap::new();
        self.merge_some(steps)
    }

    /// True if any series holds samples. Visits all series.
    pub(crate) fn holds_samples(&self) -> bool {
        (0..self.series.len()).filter_map(|i| self.series.find(i)).any(Series::holds_samples)
    }

    /// True if the tenant may be removed: it has no series, and nobody needs its metadata. Metadata that a
    /// replay restored is needed until the tenant was idle for a while. Other metadata is needed until the
    /// first series of the tenant is evicted.
    pub(crate) fn is_forgettable(&self, idle: impl FnOnce() -> Idle) -> bool {
        let empty = self.series.len() == self.free.len() && !self.is_frozen();
        let is_idle = || self.restored_s.map_or(self.evicted > 0, |seen_s| seen_s < idle().evict_before_s);
        empty && (self.metadata().next().is_none() || is_idle())
    }
}

impl Series {
    pub(crate) fn holds_samples(&self) -> bool {
        self.has_late() || self.has_frozen_late() || !self.is_empty()
    }
}
