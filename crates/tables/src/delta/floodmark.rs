//! Floodmark: the progress of a source's data into a table.
//!
//! Usually a floodmark is one offset: the table has all samples of earlier records. A block too large for one commit is
//! committed in passes, from its first day to its last. Each commit but the last moves a *step*: the table has the
//! samples of records below the step's offset, on days up to the step's day.
//!
//! ```text
//!    day ▲
//!        │ ██████████                    a source at offset 10: its block up to 30 was interrupted
//!      D │ ██████████▒▒▒▒▒▒▒▒▒▒          after day D, and its next block, up to 40, after day C
//!      C │ ██████████▒▒▒▒▒▒▒▒▒▒░░░░░
//!        └─────────┴──────────┴────┴──▶ offset
//!                 10         30   40
//! ```
//!
//! Several steps exist only if a restart interrupted a block. The next block begins again with the first day.
//!
//! Steps are stored as `txn` actions, which other programs preserve. Step `n` is `<source>/pass/<n>/upto` with the
//! offset, and `<source>/pass/<n>/through` with the day since 1970-01-01. A step at or below the floodmark is void.

use super::Table;
use crate::date::Date;
use crate::error::TableError;
use delta_kernel::snapshot::SnapshotRef;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floodmark {
    pub upto: u64,
    /// Steps whose offsets are greater than `upto`. Their offsets descend while their days ascend.
    steps: Vec<Step>,
}

/// The table has the samples of records below the offset `upto`, on days up to `through`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    upto: u64,
    through: Date,
}

impl Floodmark {
    pub const fn at(upto: u64) -> Self {
        Self { upto, steps: Vec::new() }
    }

    /// True if the table has all samples of this day from the record at `offset`.
    pub fn covers(&self, offset: u64, day: Date) -> bool {
        offset < self.upto || self.steps.iter().any(|step| offset < step.upto && day <= step.through)
    }

    /// Offset from which on the table has no samples. Of records between `upto` and this offset, the table has the
    /// samples of some days only.
    pub fn end(&self) -> u64 {
        self.steps.first().map_or(self.upto, |step| step.upto)
    }

    /// If a block with the record at `offset` was interrupted between two passes: its end, and the last day that the table has
    /// of it. If several were, the one that ends first, of which the table has the most days.
    pub fn interrupted(&self, offset: u64) -> Option<(u64, Date)> {
        let step = self.steps.iter().rev().find(|step| step.upto > offset)?;
        Some((step.upto, step.through))
    }

    /// The progress after one more pass of a block.
    #[must_use]
    pub fn after_pass(&self, upto: u64, through: Date) -> Self {
        let mut after = self.clone();
        after.step(upto, through);
        after
    }

    /// True if the table has the block's samples on days up to `through`.
    fn has(&self, upto: u64, through: Date) -> bool {
        upto <= self.upto || self.steps.iter().any(|step| upto <= step.upto && through <= step.through)
    }

    /// Notes that the table now has the block's samples on days up to `through`. The last pass of a block is not a
    /// step: it moves the floodmark itself.
    fn step(&mut self, upto: u64, through: Date) {
        self.steps.retain(|step| step.upto > upto || step.through > through);
        let at = self.steps.partition_point(|step| step.upto > upto);
        self.steps.insert(at, Step { upto, through });
    }

    fn read(table: &Table, snapshot: &SnapshotRef, source: &str) -> Result<Read, TableError> {
        let upto = table.floodmark(snapshot, source)?;
        let (mut floodmark, mut noted) = (Self::at(upto.unwrap_or(0)), 0);
        loop {
            let [upto_id, through_id] = ids(source, noted);
            let Some(step_upto) = table.floodmark(snapshot, &upto_id)? else {
                return Ok(Read { upto, floodmark, noted });
            };
            // a commit writes the offset and the day of a step together
            let through = table.floodmark(snapshot, &through_id)?.unwrap_or(0);
            if step_upto > floodmark.upto {
                floodmark.step(step_upto, Date(i32::try_from(through).unwrap_or(i32::MAX)));
            }
            noted += 1;
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Read {
    upto: Option<u64>,
    pub(super) floodmark: Floodmark,
    /// Number of steps in the log. It includes void steps, which the floodmark has passed.
    noted: usize,
}

impl Read {
    pub(super) fn has(&self, upto: u64, through: Date) -> bool {
        self.floodmark.has(upto, through)
    }

    pub(super) const fn floodmark(&self) -> &Floodmark {
        &self.floodmark
    }

    /// Notes that all passes of a block are committed.
    pub(super) fn complete(&mut self, upto: u64) {
        self.upto = Some(upto);
        self.floodmark.upto = upto;
        self.floodmark.steps.retain(|step| step.upto > upto);
    }

    /// Notes a committed step, and adds the log actions that store it to `entries`.
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
            let day = |date: Date| u64::try_from(date.0).expect("BUG: a day is before 1970");
            let step = steps.get(n).map_or([0, 0], |step| [step.upto, day(step.through)]);
            entries.extend(ids(source, n).into_iter().zip(step));
        }
        self.noted = self.noted.max(steps.len());
    }
}

fn ids(source: &str, n: usize) -> [String; 2] {
    ["upto", "through"].map(|what| format!("{source}/pass/{n}/{what}"))
}

impl Table {
    /// Progress of a source in the latest version seen; `None` if the table has no data of the source.
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
    fn a_floodmark_covers_the_days_of_its_passes() {
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
                for offset in floodmark.upto..17 {
                    let last = (0..17).rev().find(|day| floodmark.covers(offset, Date(*day)));
                    let interrupted = floodmark.interrupted(offset);
                    assert_eq!(
                        interrupted.map(|(_, through)| through),
                        last.map(Date),
                        "{offset}: {floodmark:?}"
                    );
                    assert!(interrupted.is_none_or(|(upto, _)| upto > offset));
                }
                assert_eq!(floodmark.end(), taken.iter().map(|(offset, _)| offset + 1).max().unwrap_or(0));
                assert!(floodmark.steps.is_sorted_by(|a, b| a.upto > b.upto && a.through < b.through));
            }
        }
    }
}
