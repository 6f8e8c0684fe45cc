//! How filters find series through the label pairs, a little at a time.
//!
//! A regular expression over a million values takes a tenth of a second. Nobody should hold the owner's lock
//! for so long, so the work is done in turns of bounded length: whoever drives a [`Selection`] or a walk lets go
//! of the head between two turns. What comes and goes meanwhile does no harm to who holds a [`crate::Pin`] from
//! before the first turn: no series and no pair that was there then gives its number to another before the pin is
//! gone. A selection sees the series that were there at its first turn.

use crate::pairs::{PairId, Pairs};
use crate::tenant::TenantHead;
use model::{SeriesRef, TimeRange};
use roaring::RoaringBitmap;

#[cfg(test)]
mod tests;

/// Steps of a turn: about a millisecond. Looking at a value is one step, or as many as its test is slow.
const TURN_STEPS: usize = 8_000;

/// Testing a value with a function (a regular expression, mostly) counts as so many steps.
const TEST_STEPS: usize = 4;

/// Looking whether a series has samples in a range counts as so many steps.
const SAMPLES_STEPS: usize = 8;

/// References that one step can add to a set.
const STEP_REFERENCES: usize = 64;

/// What a series' label must be like. The query's matchers become filters at the border of this crate.
#[derive(Debug)]
pub struct Filter<'a> {
    /// The label's name.
    pub name: &'a str,
    /// Which values pass; a missing label counts as the empty value.
    pub kind: FilterKind<'a>,
}

/// Which values pass a [`Filter`].
#[derive(Clone, Copy)]
pub enum FilterKind<'a> {
    /// This one.
    Equal(&'a str),
    /// Any of these.
    OneOf(&'a [String]),
    /// All for which the function is true.
    Predicate(&'a dyn Fn(&str) -> bool),
}

impl std::fmt::Debug for FilterKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => write!(f, "Equal({value:?})"),
            Self::OneOf(values) => write!(f, "OneOf({values:?})"),
            Self::Predicate(_) => f.write_str("Predicate"),
        }
    }
}

impl FilterKind<'_> {
    pub(crate) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equal(v) => *v == value,
            Self::OneOf(values) => values.iter().any(|v| v == value),
            Self::Predicate(f) => f(value),
        }
    }
}

/// The series that pass all filters, being found.
#[derive(Debug)]
pub struct Selection<'f> {
    /// Filters that a missing label fails: they only need the postings of what matches.
    strict: Vec<Search<'f>>,
    /// The others; what does not match is taken away in the end.
    lenient: Vec<Search<'f>>,
    /// The series that there were at the first turn.
    all: Option<Present>,
    selected: Option<RoaringBitmap>,
}

/// Which series there are.
#[derive(Debug)]
pub(crate) struct Present {
    /// All below this one,
    pub(crate) end: u32,
    /// but not these.
    pub(crate) absent: RoaringBitmap,
}

impl<'f> Selection<'f> {
    /// Nothing is looked at yet.
    pub fn new(filters: &'f [Filter<'f>]) -> Self {
        let (lenient, strict): (Vec<_>, Vec<_>) = filters.iter().partition(|f| f.kind.matches(""));
        Self {
            strict: strict.into_iter().map(|f| Search::new(f, true)).collect(),
            lenient: lenient.into_iter().map(|f| Search::new(f, false)).collect(),
            all: None,
            selected: None,
        }
    }

    /// One turn; true where it was the last one. It must always be the same head.
    pub fn advance(&mut self, head: &TenantHead) -> bool {
        let mut steps = TURN_STEPS;
        let all = self.all.get_or_insert_with(|| head.present());
        let pairs = head.pairs();
        if !self.strict.iter_mut().all(|search| search.find(pairs, &mut steps)) {
            return false;
        }
        self.strict.sort_by_key(|search| search.references);
        for search in self.strict.iter_mut().filter(|search| !search.applied) {
            let Some(these) = search.unite(pairs, &mut steps) else { return false };
            search.applied = true;
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
        for search in self.lenient.iter_mut().filter(|search| !search.applied) {
            if !search.find(pairs, &mut steps) {
                return false;
            }
            let Some(these) = search.unite(pairs, &mut steps) else { return false };
            *selected -= these;
            search.applied = true;
        }
        // numbers that were given to others since are not meant
        selected.remove_range(all.end..);
        *selected -= &all.absent;
        true
    }

    /// What was selected, ascending; to be asked after the last turn.
    pub fn into_series(self) -> RoaringBitmap {
        self.selected.unwrap_or_default()
    }
}

/// The pairs whose value passes a filter, or those whose value does not.
#[derive(Debug)]
struct Search<'f> {
    filter: &'f Filter<'f>,
    passing: bool,
    /// The end of what is to be looked at, as it was at the first look: what came later has no series that is
    /// asked for.
    end: Option<usize>,
    /// The next to be looked at.
    next: usize,
    found: Vec<PairId>,
    /// Of all that was found together.
    references: usize,
    /// How many of `found` are in `union`.
    united: usize,
    union: RoaringBitmap,
    /// The union was handed out.
    applied: bool,
}

impl<'f> Search<'f> {
    fn new(filter: &'f Filter<'f>, passing: bool) -> Self {
        Self {
            filter,
            passing,
            end: None,
            next: 0,
            found: Vec::new(),
            references: 0,
            united: 0,
            union: RoaringBitmap::new(),
            applied: false,
        }
    }

    /// Looks for pairs; true where all are found.
    fn find(&mut self, pairs: &Pairs, steps: &mut usize) -> bool {
        let Filter { name, kind } = self.filter;
        match kind {
            FilterKind::Equal(value) if self.passing => {
                self.find_named(1, steps, |_| pairs.find(name, value), pairs)
            }
            FilterKind::OneOf(values) if self.passing => {
                self.find_named(values.len(), steps, |i| pairs.find(name, &values[i]), pairs)
            }
            _ => self.find_passing(pairs, steps),
        }
    }

    fn find_named(
        &mut self,
        count: usize,
        steps: &mut usize,
        find: impl Fn(usize) -> Option<PairId>,
        pairs: &Pairs,
    ) -> bool {
        while self.next < count {
            if *steps == 0 {
                return false;
            }
            *steps = steps.saturating_sub(TEST_STEPS);
            if let Some(id) = find(self.next) {
                self.take(id, pairs);
            }
            self.next += 1;
        }
        true
    }

    /// Tests all values of the label.
    fn find_passing(&mut self, pairs: &Pairs, steps: &mut usize) -> bool {
        let Filter { name, kind } = self.filter;
        let end = *self.end.get_or_insert(pairs.ends().1);
        for id in pairs.of_name(name, self.next as u32).take_while(|id| (id.0 as usize) < end) {
            if *steps == 0 {
                self.next = id.0 as usize;
                return false;
            }
            *steps = steps.saturating_sub(TEST_STEPS);
            if kind.matches(pairs.text(id).1) == self.passing {
                self.take(id, pairs);
            }
        }
        self.next = end;
        true
    }

    /// A pair that no series has may be gone before its postings are asked for.
    fn take(&mut self, id: PairId, pairs: &Pairs) {
        let references = pairs.postings(id).len();
        if references > 0 {
            self.found.push(id);
            self.references += references;
        }
    }

    /// Brings the series of what was found together, and hands them out when it is done.
    fn unite(&mut self, pairs: &Pairs, steps: &mut usize) -> Option<RoaringBitmap> {
        if let ([one], 0) = (self.found.as_slice(), self.united) {
            return Some(pairs.postings(*one).to_bitmap());
        }
        while let Some(id) = self.found.get(self.united) {
            if *steps == 0 {
                return None;
            }
            let postings = pairs.postings(*id);
            postings.add_to(&mut self.union);
            *steps = steps.saturating_sub(1 + postings.len() / STEP_REFERENCES);
            self.united += 1;
        }
        Some(std::mem::take(&mut self.union))
    }
}

/// Which series count in a walk.
#[derive(Debug, Clone, Copy)]
pub enum Among<'a> {
    /// All.
    All,
    /// These.
    Series(&'a RoaringBitmap),
    /// Those that have a sample in the range. A pair is left with the first that has: where most have, this looks at far
    /// fewer series than there are.
    Range(TimeRange),
}

/// Where a walk over label names or values is: at numbers, which those keep that are there all the time.
#[derive(Debug, Default)]
pub struct Walk {
    name: usize,
    pair: u32,
    /// Of that pair, the first series that was not looked at.
    series: u32,
}

impl Walk {
    /// From the beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// One turn over the values of a label: hands each to `take` that one of the series `among` all has. True where it
    /// was the last turn.
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

    /// The same over the names of labels.
    pub fn names(&mut self, head: &TenantHead, among: Among<'_>, mut take: impl FnMut(&str)) -> bool {
        let (pairs, mut steps) = (head.pairs(), TURN_STEPS);
        while self.name < pairs.ends().0 {
            // nobody has the number, or not any more
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

    /// True where one of the series that count has the pair; `None` where the turn is over before that is known.
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
