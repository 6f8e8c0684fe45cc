//! Search for the series whose labels pass one filter.

use super::filter::{Filter, FilterKind};
use crate::pair::PairId;
use crate::pairs::Pairs;
use roaring::RoaringBitmap;

const BATCH_BYTES: usize = 16 << 10;

const BATCH_VALUES: usize = 1_000;

/// Comparing or copying a value takes this many steps, and one more for each [`STEP_BYTES`].
pub(super) const TEST_STEPS: usize = 4;

/// Comparing or copying this many bytes of a value takes one more step.
pub(super) const STEP_BYTES: usize = 64;

pub(super) const STEP_REFERENCES: usize = 64;

/// Finds the label pairs whose value passes a filter, and their series. If `passing` is false, it finds the
/// pairs whose value does not pass.
#[derive(Debug)]
pub(super) struct Search<'f> {
    filter: &'f Filter<'f>,
    passing: bool,
    /// Matching pairs whose series are not in `union` yet.
    found: Vec<PairId>,
    /// Total number of series of the pairs that were looked up. The filter with the lowest total is applied
    /// first.
    pub(super) references: usize,
    /// Position of the next listed value, or number of the label's next pair.
    next: usize,
    /// The walk ends before the pair with this number. Later pairs are newer than the first turn.
    end: Option<usize>,
    /// Values for a pattern to test without the lock.
    batch: Batch,
    union: RoaringBitmap,
}

#[derive(Debug, Default)]
struct Batch {
    text: String,
    /// Pairs, each with the end of its value in `text`.
    ends: Vec<(PairId, usize)>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.text.len() >= BATCH_BYTES || self.ends.len() >= BATCH_VALUES
    }

    fn push(&mut self, id: PairId, value: &str) {
        self.text.push_str(value);
        self.ends.push((id, self.text.len()));
    }
}

impl<'f> Search<'f> {
    pub(super) fn new(filter: &'f Filter<'f>, passing: bool) -> Self {
        Self {
            filter,
            passing,
            found: Vec::new(),
            references: 0,
            next: 0,
            end: None,
            batch: Batch::default(),
            union: RoaringBitmap::new(),
        }
    }

    /// True if the filter lists its values.
    pub(super) const fn is_lookup(&self) -> bool {
        self.passing && matches!(self.filter.kind, FilterKind::Equal(_) | FilterKind::OneOf(_))
    }

    /// Looks up listed values. Returns true once done.
    pub(super) fn look_up(&mut self, pairs: &Pairs, steps: &mut usize) -> bool {
        let Filter { name, kind } = self.filter;
        match kind {
            FilterKind::Equal(value) if self.passing => {
                if self.next == 0 {
                    self.next = 1;
                    self.found.extend(pairs.find(name, value));
                }
            }
            FilterKind::OneOf(values) if self.passing => {
                while let Some(value) = values.get(self.next) {
                    if *steps == 0 {
                        return false;
                    }
                    *steps = steps.saturating_sub(cost(value));
                    self.next += 1;
                    self.found.extend(pairs.find(name, value));
                }
            }
            _ => return true,
        }
        self.found.retain(|id| !pairs.postings(*id).is_empty());
        self.references = self.found.iter().map(|id| pairs.postings(*id).len()).sum();
        true
    }

    /// Returns the series that were found; `None` if the turn ends first.
    pub(super) fn series(&mut self, pairs: &Pairs, steps: &mut usize) -> Option<RoaringBitmap> {
        if let ([one], true) = (self.found.as_slice(), self.is_lookup() && self.union.is_empty()) {
            return Some(pairs.postings(*one).to_bitmap());
        }
        loop {
            self.unite(pairs, steps)?;
            if self.is_lookup() || self.walk(pairs, steps)? {
                return Some(std::mem::take(&mut self.union));
            }
        }
    }

    fn unite(&mut self, pairs: &Pairs, steps: &mut usize) -> Option<()> {
        while let Some(id) = self.found.last() {
            if *steps == 0 {
                return None;
            }
            let postings = pairs.postings(*id);
            postings.add_to(&mut self.union);
            *steps = steps.saturating_sub(1 + postings.len() / STEP_REFERENCES);
            self.found.pop();
        }
        Some(())
    }

    /// Continues the walk over the label's values. Returns true at the end, and false if found pairs must be
    /// united first. `None` if the turn ends or a pattern must run.
    fn walk(&mut self, pairs: &Pairs, steps: &mut usize) -> Option<bool> {
        let Filter { name, kind } = self.filter;
        if !self.batch.ends.is_empty() {
            return None;
        }
        let end = *self.end.get_or_insert(pairs.ends().1);
        for id in pairs.of_name(name, self.next as u32).take_while(|id| (id.0 as usize) < end) {
            self.next = id.0 as usize;
            if *steps == 0 || self.batch.is_full() {
                return None;
            }
            if self.found.len() >= BATCH_VALUES {
                return Some(false);
            }
            self.next += 1;
            // a pair without series may be dropped between turns
            if pairs.postings(id).is_empty() {
                *steps = steps.saturating_sub(1);
                continue;
            }
            let value = pairs.text(id).1;
            // a search is for values that pass while the empty value does not, or the other way round
            if let FilterKind::Pattern { prefix, .. } = kind
                && !value.starts_with(prefix)
            {
                *steps = steps.saturating_sub(1);
                continue;
            }
            *steps = steps.saturating_sub(cost(value));
            match kind {
                FilterKind::Pattern { .. } => self.batch.push(id, value),
                kind if kind.matches(value) == self.passing => self.found.push(id),
                _ => {}
            }
        }
        self.next = end;
        match (self.batch.ends.is_empty(), self.found.is_empty()) {
            (true, is_done) => Some(is_done),
            (false, _) => None,
        }
    }

    pub(super) fn test(&mut self, mut go_on: impl FnMut() -> bool) {
        let mut start = 0;
        for (id, end) in self.batch.ends.drain(..) {
            if !go_on() {
                break;
            }
            if self.filter.kind.matches(&self.batch.text[start..end]) == self.passing {
                self.found.push(id);
            }
            start = end;
        }
        self.batch.text.clear();
    }
}

const fn cost(value: &str) -> usize {
    TEST_STEPS + value.len() / STEP_BYTES
}
