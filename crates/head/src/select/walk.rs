//! Walk over label names, or over the values of one label, in turns.

use super::search::{STEP_REFERENCES, TEST_STEPS};
use crate::pair::PairId;
use crate::tenant::TenantHead;
use model::{SeriesRef, TimeRange};
use roaring::RoaringBitmap;

/// A turn takes this many steps, about a millisecond. A label pair takes one step, or more.
const TURN_STEPS: usize = 8_000;

/// This many bytes of a text take one step, besides those of its label pair. So a turn takes texts of a quarter of a MiB,
/// and one more.
const STEP_BYTES: usize = 32;

pub(super) const SAMPLES_STEPS: usize = 8;

#[derive(Debug, Clone, Copy)]
pub enum Among<'a> {
    All,
    Series(&'a RoaringBitmap),
    /// Series with a sample in the range. At the first such series of a label pair, the walk moves on to the
    /// next pair.
    Range(TimeRange),
}

#[derive(Debug, Default)]
pub struct Walk {
    name: usize,
    pair: u32,
    /// First series of `pair` left to visit.
    series: u32,
}

impl Walk {
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one turn over the values of a label. Calls `take` with each value that a series in `among` has.
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
                Some(true) => {
                    let text = pairs.text(id).1;
                    steps = steps.saturating_sub(text.len() / STEP_BYTES);
                    take(text);
                }
                Some(false) => (),
                None => return false,
            }
        }
        true
    }

    /// Like [`Self::values`], but for the names of labels.
    pub fn names(&mut self, head: &TenantHead, among: Among<'_>, mut take: impl FnMut(&str)) -> bool {
        let (pairs, mut steps) = (head.pairs(), TURN_STEPS);
        while self.name < pairs.ends().0 {
            // every number takes a step, even if no name has this number at present
            if steps == 0 {
                return false;
            }
            steps -= 1;
            let (name, ids) = pairs.name(self.name, self.pair).unzip();
            for id in ids.into_iter().flatten() {
                match self.is_used(head, id, among, &mut steps) {
                    Some(true) => {
                        if let Some(name) = name {
                            steps = steps.saturating_sub(name.len() / STEP_BYTES);
                            take(name);
                        }
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

    /// True if a series in `among` has the pair; `None` if the turn ends first.
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
