//! Up to where a source's data is in a table.
//!
//! Mostly that is one offset: the table has every sample of the records below it. A block whose files do not fit into one
//! commit goes in passes, from its first day to its last, and each commit but the last moves a *step*: the table has the
//! samples of records below the step's offset as far as they lie on days up to the step's day.
//!
//! ```text
//!    day ▲
//!        │ ██████████                    a source at offset 10, whose block up to 30 was interrupted
//!      D │ ██████████▒▒▒▒▒▒▒▒▒▒          after day D, and whose next one, up to 40, after day C
//!      C │ ██████████▒▒▒▒▒▒▒▒▒▒░░░░░
//!        └─────────┴──────────┴────┴──▶ offset
//!                 10         30   40
//! ```
//!
//! There is more than one step only where a block was interrupted by a restart. The next block is a larger one, of
//! all that is not in the table, and begins again with its first day.
//!
//! Each is a `txn` action of its own, since a foreign program that rewrites the log keeps those. Of step `n`, counted from 0, the
//! offset stands under `<source>/pass/<n>/upto` and the day, since 1970-01-01, under `<source>/pass/<n>/through`. A step whose
//! offset is not beyond the floodmark says nothing.

use super::Table;
use crate::date::Date;
use crate::error::TableError;
use delta_kernel::snapshot::SnapshotRef;
use std::collections::BTreeMap;

/// Up to where a source's data is in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floodmark {
    /// All samples of records below this offset are in the table.
    pub upto: u64,
    /// Offsets fall and days rise from step to step. All offsets are beyond `upto`.
    steps: Vec<Step>,
}

/// Samples of records below an offset, on days up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    upto: u64,
    through: Date,
}

impl Floodmark {
    /// One without passes.
    pub const fn at(upto: u64) -> Self {
        Self { upto, steps: Vec::new() }
    }

    /// True if the table has the samples of the record at `offset` that lie on `day`.
    pub fn covers(&self, offset: u64, day: Date) -> bool {
        offset < self.upto || self.steps.iter().any(|step| offset < step.upto && day <= step.through)
    }

    /// The table has nothing of records at or beyond this offset. Below it and beyond `upto`, the day decides.
    pub fn end(&self) -> u64 {
        self.steps.first().map_or(self.upto, |step| step.upto)
    }

    /// True if the table has all that a block up to `upto` has on days up to `through`.
    fn has(&self, upto: u64, through: Date) -> bool {
        upto <= self.upto || self.steps.iter().any(|step| upto <= step.upto && through <= step.through)
    }

    /// Moves it by a pass that is not the last.
    fn step(&mut self, upto: u64, through: Date) {
        self.steps.retain(|step| step.upto > upto || step.through > through);
        let at = self.steps.partition_point(|step| step.upto > upto);
        self.steps.insert(at, Step { upto, through });
    }

    /// Reads it from the log.
    fn read(table: &Table, snapshot: &SnapshotRef, source: &str) -> Result<Read, TableError> {
        let upto = table.floodmark(snapshot, source)?;
        let (mut floodmark, mut noted) = (Self::at(upto.unwrap_or(0)), 0);
        loop {
            let [upto_id, through_id] = ids(source, noted);
            let Some(step_upto) = table.floodmark(snapshot, &upto_id)? else {
                return Ok(Read { upto, floodmark, noted });
            };
            // the two are written together
            let through = table.floodmark(snapshot, &through_id)?.unwrap_or(0);
            if step_upto > floodmark.upto {
                floodmark.step(step_upto, Date(i32::try_from(through).unwrap_or(i32::MAX)));
            }
            noted += 1;
        }
    }
}

/// Floodmark of a source as the log has it.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// The floodmark itself, where there is one.
    upto: Option<u64>,
    floodmark: Floodmark,
    /// Steps that the log has, those among them that say nothing any more.
    noted: usize,
}

impl Read {
    /// True if a pass is in the table.
    pub(super) fn has(&self, upto: u64, through: Date) -> bool {
        self.floodmark.has(upto, through)
    }

    /// Moves it by a pass that is not the last; what is to be written for that is added to `entries`.
    pub(super) fn step(
        &mut self,
        source: &str,
        upto: u64,
        through: Date,
        entries: &mut BTreeMap<String, u64>,
    ) {
        self.floodmark.step(upto, through);
        let steps = &self.floodmark.steps;
        for n in 0..self.noted.max(steps.len()) {
            let day = |date: Date| u64::try_from(date.0).expect("BUG: samples are not before 1970");
            let step = steps.get(n).map_or([0, 0], |step| [step.upto, day(step.through)]);
            entries.extend(ids(source, n).into_iter().zip(step));
        }
        self.noted = self.noted.max(steps.len());
    }
}

/// Under which names the log has a step.
fn ids(source: &str, n: usize) -> [String; 2] {
    ["upto", "through"].map(|what| format!("{source}/pass/{n}/{what}"))
}

impl Table {
    /// Up to where a source is in the table, with passes, as of the version seen last; `None` if nothing of it is.
    pub fn progress(&self, source: &str) -> Result<Option<Floodmark>, TableError> {
        let Read { upto, floodmark, .. } = Floodmark::read(self, &self.snapshot(), source)?;
        Ok((upto.is_some() || !floodmark.steps.is_empty()).then_some(floodmark))
    }

    pub(super) fn read_progress(&self, snapshot: &SnapshotRef, source: &str) -> Result<Read, TableError> {
        Floodmark::read(self, snapshot, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stdx::rng::Rng;

    #[test]
    fn a_floodmark_covers_what_its_passes_took() {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for _ in 0..200 {
            let (mut floodmark, mut taken) = (Floodmark::default(), BTreeSet::new());
            for _ in 0..20 {
                let (upto, day) = (rng.below(16), rng.below(16) as i32);
                if !floodmark.has(upto, Date(day)) {
                    floodmark.step(upto, Date(day));
                    taken.extend((0..upto).flat_map(|offset| (0..=day).map(move |day| (offset, day))));
                }
                for (offset, day) in (0..17).flat_map(|offset| (0..17).map(move |day| (offset, day))) {
                    let is_taken = taken.contains(&(offset, day));
                    assert_eq!(
                        floodmark.covers(offset, Date(day)),
                        is_taken,
                        "{offset} {day}: {floodmark:?}"
                    );
                }
                assert_eq!(floodmark.end(), taken.iter().map(|(offset, _)| offset + 1).max().unwrap_or(0));
                assert!(floodmark.steps.is_sorted_by(|a, b| a.upto > b.upto && a.through < b.through));
            }
        }
    }
}
