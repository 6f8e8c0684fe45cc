//! Selection of series by filters on label pairs, in turns.
//!
//! ```text
//!   with the lock     advance: look values up, or copy a batch of them ──▶ ... ──▶ take the series of those that match
//!   without it                                            test: run a pattern over the batch
//! ```
//!
//! The caller releases the head's lock between two turns. A pattern may run long, so it never runs under the
//! lock. The caller holds a [`crate::Pin`] from before the first turn, so that no number is reused. A
//! selection sees the series that existed at its first turn.

use crate::tenant::{ExistingSeries, TenantHead};
use roaring::RoaringBitmap;

pub(crate) mod filter;
mod search;
#[cfg(test)]
mod tests;
pub(crate) mod walk;

use filter::Filter;
use search::Search;

/// A turn takes this many steps, about a millisecond. A pair takes at least one step, and a test of its value
/// at least [`TEST_STEPS`].
const TURN_STEPS: usize = 8_000;

/// A search for the series that pass all filters. It holds bitmaps of series, and one batch of label values.
#[derive(Debug)]
pub struct Selection<'f> {
    /// Filters that a series without the label does not pass. Once sorted, filters with listed values come
    /// first.
    strict: Vec<Search<'f>>,
    /// Filters that a series without the label passes, such as `job!="api"`. At the end, they remove the
    /// series whose value does not pass.
    lenient: Vec<Search<'f>>,
    /// Number of filters that are already applied: those of `strict` first, then those of `lenient`.
    applied: usize,
    /// True once listed values are looked up and `strict` is sorted.
    ordered: bool,
    all: Option<ExistingSeries>,
    selected: Option<RoaringBitmap>,
}

impl<'f> Selection<'f> {
    pub fn new(filters: &'f [Filter<'f>]) -> Self {
        let (lenient, strict): (Vec<_>, Vec<_>) = filters.iter().partition(|f| f.kind.matches(""));
        Self {
            strict: strict.into_iter().map(|f| Search::new(f, true)).collect(),
            lenient: lenient.into_iter().map(|f| Search::new(f, false)).collect(),
            applied: 0,
            ordered: false,
            all: None,
            selected: None,
        }
    }

    /// Runs one turn. Returns true after the last turn. All turns must get the same head. Between two turns, the
    /// caller must call [`Self::test`] without the lock.
    pub fn advance(&mut self, head: &TenantHead) -> bool {
        let mut steps = TURN_STEPS;
        let all = self.all.get_or_insert_with(|| head.existing_series());
        let pairs = head.pairs();
        if !self.ordered {
            if !self.strict.iter_mut().all(|search| search.look_up(pairs, &mut steps)) {
                return false;
            }
            // filters with few series first, and those that walk over all values of a label last
            self.strict.sort_by_key(|search| (!search.is_lookup(), search.references));
            self.ordered = true;
        }
        while let Some(search) = self.strict.get_mut(self.applied) {
            let Some(these) = search.series(pairs, &mut steps) else { return false };
            self.applied += 1;
            match &mut self.selected {
                None => self.selected = Some(these),
                Some(selected) => *selected &= these,
            }
            if self.selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
                return true;
            }
        }
        let selected = self.selected.get_or_insert_with(|| {
            let mut everything = RoaringBitmap::new();
            everything.insert_range(0..all.end);
            everything
        });
        while let Some(search) = self.lenient.get_mut(self.applied - self.strict.len()) {
            let Some(these) = search.series(pairs, &mut steps) else { return false };
            self.applied += 1;
            *selected -= these;
        }
        // drop series that were created after the first turn
        selected.remove_range(all.end..);
        *selected -= &all.absent;
        true
    }

    /// Tests the values that the last turn copied. Call it without the lock. It stops early once `go_on`
    /// returns false.
    pub fn test(&mut self, go_on: impl FnMut() -> bool) {
        if self.ordered
            && let Some(search) = self.strict.iter_mut().chain(&mut self.lenient).nth(self.applied)
        {
            search.test(go_on);
        }
    }

    /// Selected series, ascending. Valid after the last turn.
    pub fn into_series(self) -> RoaringBitmap {
        self.selected.unwrap_or_default()
    }
}

impl TenantHead {
    /// The series that pass all filters, ascending. A [`Selection`] does this in turns.
    pub fn select(&self, filters: &[Filter<'_>]) -> RoaringBitmap {
        let mut selection = Selection::new(filters);
        while !selection.advance(self) {
            selection.test(|| true);
        }
        selection.into_series()
    }
}
