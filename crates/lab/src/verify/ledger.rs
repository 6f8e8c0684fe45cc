//! Compact record of which samples were sent and which were acknowledged.
//!
//! Samples are sent in slots, which are fixed groups of series. For each slot, the ledger stores the rounds in which
//! it was sent and those in which it was acknowledged, as ranges. The samples themselves can be computed from the
//! plan.

use crate::generate::plan::Plan;
use crate::scenario::ReadApi;
use crate::verify::Flushed;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rounds {
    /// Ranges with inclusive ends, in ascending order. Between two ranges, at least one round is missing.
    ranges: Vec<(u32, u32)>,
}

impl Rounds {
    /// Adds `round`, which must not be lower than the last round.
    pub fn push(&mut self, round: u32) {
        match self.ranges.last_mut() {
            Some((_, last)) if *last == round => {}
            Some((_, last)) if *last + 1 == round => *last = round,
            Some((_, last)) => {
                assert!(*last < round, "BUG: round {round} was noted after round {last}");
                self.ranges.push((round, round));
            }
            None => self.ranges.push((round, round)),
        }
    }

    /// Adds all rounds of `later`, none of which may be lower than the last round.
    pub(crate) fn extend(&mut self, later: &Self) {
        for &(first, last) in &later.ranges {
            match self.ranges.last_mut() {
                Some((_, end)) if *end + 1 == first => *end = last,
                Some((_, end)) => {
                    assert!(*end < first, "BUG: round {first} was noted after round {end}");
                    self.ranges.push((first, last));
                }
                None => self.ranges.push((first, last)),
            }
        }
    }

    pub fn contains(&self, round: u32) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < round);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= round)
    }

    /// Refuses ranges that are not in ascending order or not below `rounds_max`.
    fn check(&self, rounds_max: u32) -> Result<()> {
        let mut end = 0;
        for (first, last) in &self.ranges {
            let fits = *first >= end && first <= last && *last < rounds_max;
            ensure!(
                fits,
                "rounds {first} to {last} are not valid after round {end} in a plan of {rounds_max} rounds"
            );
            end = last + 1;
        }
        Ok(())
    }

    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|(_, last)| *last)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotLedger {
    /// Rounds in which the slot's request may have reached the target.
    pub sent: Rounds,
    /// Rounds in which the slot's request was answered with success, or is owed although the protocol has no answers.
    pub acknowledged: Rounds,
    /// Rounds in which the slot's request was taken by a connection that is still open, and whose end decides whether
    /// they are owed.
    #[serde(skip)]
    pub(crate) taken: Rounds,
}

/// Version of the ledger's file format. Readers refuse a higher version. Version 2 has paths, timestamps in seconds,
/// and the API to read by. Version 3 has a seed of values, and says whether samples were sent as datagrams. Version 4 has
/// what a target of statsd has stored.
pub const FORMAT: u32 = 4;

/// Format of all ledgers that were written before ledgers contained a format number.
const fn first_format() -> u32 {
    1
}

/// Says which samples of a plan were sent and which were acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    #[serde(default = "first_format")]
    pub format: u32,
    pub plan: Plan,
    /// Ledgers of the slots, in the order of their numbers.
    pub slots: Vec<SlotLedger>,
    /// See [`crate::verify::VerifyOptions::read_url`].
    #[serde(default)]
    pub read_url: Option<String>,
    #[serde(default)]
    pub read_api: ReadApi,
    /// See [`crate::verify::VerifyOptions::step_ms`].
    #[serde(default = "one")]
    pub step_ms: u64,
    /// True if all samples were sent as Graphite's datagrams, none of which is owed. Over statsd, false.
    #[serde(default)]
    pub datagrams: bool,
    /// For statsd: what queries have returned during the load. Only this is owed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed: Option<Flushed>,
}

const fn one() -> u64 {
    1
}

impl Ledger {
    pub fn new(plan: Plan) -> Self {
        let slots = vec![SlotLedger::default(); plan.slots_count()];
        Self {
            format: FORMAT,
            plan,
            slots,
            read_url: None,
            read_api: ReadApi::Promql,
            step_ms: 1,
            datagrams: false,
            flushed: None,
        }
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_vec(self)?;
        crate::result::files::replace(path, json).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn load(path: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let json = std::fs::read(path).with_context(context)?;
        let ledger: Self = serde_json::from_slice(&json).with_context(context)?;
        let format = ledger.format;
        ensure!(
            format <= FORMAT,
            "{}: ledger format {format} is newer than this program, which reads up to {FORMAT}",
            path.display()
        );
        ledger.plan.check().with_context(context)?;
        let (slots, expected) = (ledger.slots.len(), ledger.plan.slots_count());
        ensure!(
            slots == expected,
            "{}: the ledger has {slots} slots, its plan has {expected}",
            path.display()
        );
        if let Some(flushed) = &ledger.flushed {
            flushed.check(&ledger.plan).with_context(context)?;
        }
        for rounds in ledger.slots.iter().flat_map(|slot| [&slot.sent, &slot.acknowledged]) {
            rounds.check(ledger.plan.rounds_max).with_context(context)?;
        }
        Ok(ledger)
    }

    /// Number of samples that are owed.
    pub fn acknowledged_samples(&self) -> u64 {
        if let Some(flushed) = &self.flushed {
            return flushed.owed();
        }
        let slots = self.slots.iter().enumerate();
        slots.map(|(i, slot)| slot.acknowledged.len() * self.plan.slot(i).len as u64).sum()
    }

    /// Number of rounds from the first to the last that was sent.
    pub fn rounds(&self) -> u32 {
        self.slots.iter().filter_map(|slot| slot.sent.last()).max().map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_ranges() {
        let mut rounds = Rounds::default();
        assert!(rounds.is_empty() && !rounds.contains(0));
        for round in [0, 1, 1, 2, 5, 6, 9] {
            rounds.push(round);
        }
        assert_eq!(rounds.ranges, [(0, 2), (5, 6), (9, 9)]);
        assert_eq!((rounds.len(), rounds.last()), (6, Some(9)));
        let inside: Vec<u32> = (0..12).filter(|r| rounds.contains(*r)).collect();
        assert_eq!(inside, [0, 1, 2, 5, 6, 9]);
    }

    #[test]
    #[should_panic(expected = "BUG: round 3 was noted after round 5")]
    fn goes_forwards_only() {
        let mut rounds = Rounds::default();
        rounds.push(5);
        rounds.push(3);
    }
}
