//! Selection of series by filters on label pairs, in turns of bounded length.
//!
//! ```text
//!   with the lock     advance: look values up, or copy a batch of them ──▶ ... ──▶ take the series of those that match
//!   without it                                            test: run a pattern over the batch
//! ```
//!
//! The head's lock must not be held for long, so the work is done in turns of bounded length: the caller of a
//! [`Selection`] or a walk releases the lock between two turns. A client's regular expression may run arbitrarily long,
//! so it never runs under the lock.
//!
//! Changes between turns do no harm while the caller holds a [`crate::Pin`] from before the first turn: the number of a
//! series or pair that existed then is not reused before the pin is dropped. A selection sees the series that existed
//! at its first turn.

use crate::pairs::PairId;
use crate::tenant::TenantHead;
use model::{SeriesRef, TimeRange};
use roaring::RoaringBitmap;

mod search;
#[cfg(test)]
mod tests;

use search::Search;

/// Steps of a turn, which takes about a millisecond. A visit to a pair takes at least one step, and a test of
/// its value [`TEST_STEPS`] or more.
const TURN_STEPS: usize = 8_000;

/// Steps to compare a value, or to copy it for a pattern, in addition to one step for each [`STEP_BYTES`].
const TEST_STEPS: usize = 4;

/// Bytes of a value that take one more step.
const STEP_BYTES: usize = 64;

/// Steps to check whether a series has samples in a range.
const SAMPLES_STEPS: usize = 8;

/// References added to a set in one step.
const STEP_REFERENCES: usize = 64;

/// Predicate on one label of a series. The caller translates a query's matchers into filters.
#[derive(Debug)]
pub struct Filter<'a> {
    /// The label's name.
    pub name: &'a str,
    /// Predicate on the value; a missing label counts as the empty value.
    pub kind: FilterKind<'a>,
}

/// Values that pass a [`Filter`].
#[derive(Clone, Copy)]
pub enum FilterKind<'a> {
    /// Exactly this value.
    Equal(&'a str),
    /// Any of these values, which are sorted.
    OneOf(&'a [String]),
    /// All values for which the function is true. It is called with the head locked, so it may take no longer
    /// than a few comparisons of the value.
    Predicate(&'a dyn Fn(&str) -> bool),
    /// All values for which the function is true. It may take long, so it is never called with the head
    /// locked.
    Pattern(&'a dyn Fn(&str) -> bool),
}

impl std::fmt::Debug for FilterKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => write!(f, "Equal({value:?})"),
            Self::OneOf(values) => write!(f, "OneOf({values:?})"),
            Self::Predicate(_) => f.write_str("Predicate"),
            Self::Pattern(_) => f.write_str("Pattern"),
        }
    }
}

impl FilterKind<'_> {
    pub(crate) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equal(v) => *v == value,
            Self::OneOf(values) => values.binary_search_by(|v| v.as_str().cmp(value)).is_ok(),
            Self::Predicate(f) | Self::Pattern(f) => f(value),
        }
    }
}

/// Resumable search for the series that pass all filters.
///
/// A selection holds bitmaps of series (one bit for each existing series) and one batch of values.
#[derive(Debug)]
pub struct Selection<'f> {
    /// Filters that a missing label does not pass. They need only the postings of matching values. Filters
    /// whose values can be looked up come first.
    strict: Vec<Search<'f>>,
    /// Filters that a missing label passes. Series whose value does not match are removed at the end.
    lenient: Vec<Search<'f>>,
    /// Number of filters applied, first of `strict`, then of `lenient`.
    applied: usize,
    /// True once listed values are looked up and the strict searches are sorted.
    ordered: bool,
    /// Series that existed at the first turn.
    all: Option<Present>,
    selected: Option<RoaringBitmap>,
}

/// Bitmap of the existing series.
#[derive(Debug)]
pub(crate) struct Present {
    /// References below this one exist, except those in `absent`.
    pub(crate) end: u32,
    /// References below `end` without a series.
    pub(crate) absent: RoaringBitmap,
}

impl<'f> Selection<'f> {
    /// Starts a selection, without looking at any series yet.
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

    /// Runs one turn. Returns true after the last turn. All turns must get the same head. Between two turns,
    /// the caller must call [`Self::test`] without the lock.
    pub fn advance(&mut self, head: &TenantHead) -> bool {
        let mut steps = TURN_STEPS;
        let all = self.all.get_or_insert_with(|| head.present());
        let pairs = head.pairs();
        if !self.ordered {
            if !self.strict.iter_mut().all(|search| search.look_up(pairs, &mut steps)) {
                return false;
            }
            // few series first; walks over values come last, because the selection may be empty before them
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
        // drop references that did not exist at the first turn
        selected.remove_range(all.end..);
        *selected -= &all.absent;
        true
    }

    /// Tests the values that the last turn copied, if any. Call this without the lock. `go_on` is called
    /// before each value; the test ends when it returns false.
    pub fn test(&mut self, go_on: impl FnMut() -> bool) {
        if self.ordered
            && let Some(search) = self.strict.iter_mut().chain(&mut self.lenient).nth(self.applied)
        {
            search.test(go_on);
        }
    }

    /// Selected series, in ascending order. Valid after the last turn.
    pub fn into_series(self) -> RoaringBitmap {
        self.selected.unwrap_or_default()
    }
}

/// Series considered by a walk.
#[derive(Debug, Clone, Copy)]
pub enum Among<'a> {
    /// All series.
    All,
    /// These series.
    Series(&'a RoaringBitmap),
    /// Series that have a sample in the range. The walk leaves a pair at its first such series. If most
    /// series have a sample in the range, the walk visits far fewer series than exist.
    Range(TimeRange),
}

/// Position of a walk over label names or values. The position consists of numbers, which names and values
/// keep as long as they exist.
#[derive(Debug, Default)]
pub struct Walk {
    name: usize,
    pair: u32,
    /// First series of `pair` that was not visited yet.
    series: u32,
}

impl Walk {
    /// Starts at the beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one turn over the values of a label: calls `take` with each value that a series in `among` has.
    /// Returns true after the last turn.
    pub fn values(
        &mut self,
        head: &TenantHead,
        name: &str,
        among: Among<'_>,
        mut take: impl FnMut(&str),
    ) -> bool {
        let (pairs, mut steps) = (head.pairs(), TURN_STEPS);
        for id in pairs.of_name(name, self.pair) {
            match self.is_used(head, id, among, &mut steps) {
                Some(true) => take(pairs.text(id).1),
                Some(false) => (),
                None => return false,
            }
        }
        true
    }

    /// As [`Self::values`], over the names of labels.
    pub fn names(&mut self, head: &TenantHead, among: Among<'_>, mut take: impl FnMut(&str)) -> bool {
        let (pairs, mut steps) = (head.pairs(), TURN_STEPS);
        while self.name < pairs.ends().0 {
            // the number may be free: unused, or no longer used
            if steps == 0 {
                return false;
            }
            steps -= 1;
            let (name, ids) = pairs.name(self.name, self.pair).unzip();
            for id in ids.into_iter().flatten() {
                match self.is_used(head, id, among, &mut steps) {
                    Some(true) => {
                        name.into_iter().for_each(&mut take);
                        break;
                    }
                    Some(false) => (),
                    None => return false,
                }
            }
            (self.name, self.pair) = (self.name + 1, 0);
        }
        true
    }

    /// True if a series in `among` has the pair; `None` if the turn ends before that is known.
    fn is_used(
        &mut self,
        head: &TenantHead,
        id: PairId,
        among: Among<'_>,
        steps: &mut usize,
    ) -> Option<bool> {
        let first = if self.pair == id.0 { self.series } else { 0 };
        (self.pair, self.series) = (id.0, first);
        if *steps == 0 {
            return None;
        }
        let postings = head.pairs().postings(id);
        let used = match among {
            Among::All => !postings.is_empty(),
            Among::Series(set) => {
                *steps = steps.saturating_sub(postings.len() / STEP_REFERENCES);
                postings.intersects(set)
            }
            Among::Range(range) => {
                let mut used = false;
                for series in postings.iter_from(first) {
                    if *steps == 0 {
                        self.series = series;
                        return None;
                    }
                    *steps = steps.saturating_sub(SAMPLES_STEPS);
                    used = head.has_samples(SeriesRef(series), range);
                    if used {
                        break;
                    }
                }
                used
            }
        };
        *steps = steps.saturating_sub(TEST_STEPS);
        self.series = 0;
        Some(used)
    }
}
