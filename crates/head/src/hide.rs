//! Hides series whose samples were deleted, so that no list names them.
//!
//! ```text
//!   listed ──hide──▶ hidden ──▶ the next eviction removes it
//!     ▲                │
//!     └── append, put_exemplars
//! ```
//!
//! A hidden series is in no postings. Its key, its labels and its number stay, so readers and writers may hold references to
//! it, and nobody has to wait for them. The next eviction takes hidden series like idle ones ([`crate::evict`]).

use crate::evict::{SERIES_STEPS, TURN_STEPS};
use crate::late::Late;
use crate::partition::Partition;
use crate::series::{ACTIVE, GONE, HIDDEN, UNLINKED};
use crate::tenant::TenantHead;
use model::{SeriesRef, TenantId, TimeRange};
use roaring::RoaringBitmap;

#[cfg(test)]
mod tests;

/// Series that a delete selects, for [`Partition::hide_turn`].
#[derive(Debug)]
pub struct Hiding {
    series: RoaringBitmap,
    /// First of the series left to visit.
    next: u32,
    /// Range of the delete.
    deleted: TimeRange,
    with_exemplars: RoaringBitmap,
    /// Number of exemplars that the head had got when `with_exemplars` was up to date.
    exemplars_got: u64,
}

impl Hiding {
    pub fn new(series: RoaringBitmap, deleted: TimeRange) -> Self {
        Self { series, next: 0, deleted, with_exemplars: RoaringBitmap::new(), exemplars_got: 0 }
    }

    /// Notes which series have exemplars. The first turn does this too, but it takes longer than a turn, and needs no lock for
    /// writing.
    pub fn note_exemplars(&mut self, head: &TenantHead) {
        let newer = head.exemplars.newer_than(self.exemplars_got);
        self.with_exemplars.extend(newer.map(|(series, _)| series.0));
        self.exemplars_got = head.exemplars.got();
    }
}

impl Partition {
    /// Hides those of the series that have neither samples nor exemplars in the head, and whose newest sample was in the
    /// range of the delete. Takes about fifty microseconds, and returns true after the last turn. The caller holds a
    /// [`crate::Pin`] from before it looked the series up.
    pub fn hide_turn(&mut self, tenant: &TenantId, hiding: &mut Hiding) -> bool {
        let Some(head) = self.tenants.get_mut(tenant) else { return true };
        let before = head.memory_bytes();
        let is_done = head.hide_some(hiding, &mut { TURN_STEPS });
        self.change_bytes += head.memory_bytes() as isize - before as isize;
        is_done
    }
}

impl TenantHead {
    fn hide_some(&mut self, hiding: &mut Hiding, steps: &mut usize) -> bool {
        // exemplars may arrive between turns
        hiding.note_exemplars(self);
        for series in hiding.series.range(hiding.next..) {
            if *steps == 0 {
                hiding.next = series;
                return false;
            }
            let is_hidden =
                self.hide(SeriesRef(series), hiding.deleted, hiding.with_exemplars.contains(series));
            *steps = steps.saturating_sub(if is_hidden { SERIES_STEPS } else { 1 });
        }
        true
    }

    fn hide(&mut self, series_ref: SeriesRef, deleted: TimeRange, has_exemplars: bool) -> bool {
        let Some(series) = self.series.find(series_ref.index()) else { return false };
        // samples in chunks were written during the delete
        if series.state & (GONE | HIDDEN) != 0 || !series.is_empty() {
            return false;
        }
        let newest_ms = series.open.last_ms();
        // `i64::MIN`: replay restored the series, which was not written since, or an earlier delete had the newest sample
        if newest_ms != i64::MIN && !deleted.contains(newest_ms) {
            return false;
        }
        let late = self.all_late_of(series, series_ref).filter_map(Late::range);
        let newest_late_ms = late.map(|range| range.end_ms).max();
        let series = self.series.get_mut(series_ref.index());
        if has_exemplars || newest_late_ms.is_some() {
            // a later delete of what is left must hide the series, although its range may not have the newest sample
            series.open.set_newest_ms(newest_late_ms.unwrap_or(i64::MIN));
            return false;
        }
        assert!(!series.holds_samples(), "BUG: late samples are missing");
        series.open.set_newest_ms(i64::MIN);
        self.active -= usize::from(series.state & ACTIVE != 0);
        series.state = series.state & !ACTIVE | HIDDEN;
        self.labels.unlist(series_ref, &mut self.pairs);
        self.hidden.insert(series_ref.0);
        true
    }

    /// Lists a hidden series again.
    #[cold]
    pub(crate) fn show(&mut self, series: SeriesRef) {
        self.series.get_mut(series.index()).state &= !HIDDEN;
        self.hidden.remove(series.0);
        self.labels.list(series, &mut self.pairs);
        // indexes of names must learn of the series
        self.births.note(series);
    }

    /// Marks a series as seen at `now_s`. If it is hidden or about to be evicted, it stays, and is listed again. Returns the
    /// steps that this takes.
    pub(crate) fn keep(&mut self, series_ref: SeriesRef, now_s: u32) -> usize {
        let series = self.series.get_mut(series_ref.index());
        series.seen_s = now_s;
        series.state &= !UNLINKED;
        if series.state & HIDDEN == 0 {
            return 1;
        }
        self.show(series_ref);
        SERIES_STEPS
    }

    pub fn is_hidden(&self, series: SeriesRef) -> bool {
        self.series.get(series.index()).state & HIDDEN != 0
    }

    /// True unless the series was evicted.
    pub fn has_series(&self, series: SeriesRef) -> bool {
        self.series.find(series.index()).is_some_and(|series| series.state & GONE == 0)
    }

    /// Number of series that lists name, or might name for a moment.
    pub fn listed_count(&self) -> usize {
        self.series_count() - self.hidden.len() as usize
    }

    /// True while evicted series are being taken out of postings. This needs no [`crate::Pin`] to be dropped.
    pub const fn is_unlisting(&self) -> bool {
        self.evicting.is_unlisting
    }
}
