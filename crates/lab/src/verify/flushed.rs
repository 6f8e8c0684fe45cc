//! The ledger of a target that stores values at times of its own, as those of statsd do.
//!
//! ```text
//!   gauges in datagrams ─▶ target ─▶ at the end of its interval: the last value of each gauge, with the time of the end
//!   during the load:   queries ─▶ each value is that of a round that was sent   ─▶ owed, once it is old enough
//!   later:             queries ─▶ each owed value is still there, bit by bit
//! ```
//!
//! A datagram has no answer. So a value is owed only once a query has returned it, and a promised time has passed since
//! the end of its interval. What no query has returned is absent, if the gauge had been sent in time.

mod read_back;
mod reader;

use crate::generate::plan::Plan;
use anyhow::Result;
use serde::{Deserialize, Serialize};

pub(super) use read_back::verify;
pub(crate) use reader::Reader;

/// What queries have returned of the values that a target stores at times of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// What was stored, for each slot, in ascending order of times.
    slots: Vec<Vec<Flush>>,
    /// Values that are of no round.
    pub wrong: u64,
    /// Values after which another one had been sent in time. A datagram was lost, or the target was behind.
    pub stale: u64,
    /// Values that were sent later than two seconds after their time.
    pub early: u64,
    /// Largest time by which a value was sent later than its timestamp.
    pub early_ms: i64,
    /// Values of which it is not known whether they are right: too many rounds had to be compared, or the round was sent
    /// before the times that are kept.
    pub unknown: u64,
    /// Values that the target should have stored, as far as this is known.
    pub expected: u64,
    /// Expected values that no query has returned.
    pub absent: u64,
    /// Values that are not owed, because the ledger had reached its limit.
    pub unnoted: u64,
    /// How often the lab has looked for new values.
    pub looks: u64,
    /// Queries for new values that have failed.
    pub looks_failed: u64,
    /// Error of the last such query.
    pub look_error: Option<String>,
}

/// Memory of a [`Flush`] besides its own: its list has room to grow, and the allocator needs some for the rounds.
const OVERHEAD_BYTES: usize = 36;

/// The values of a slot's series at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Flush {
    at_ms: i64,
    /// The rounds whose values the series have, one after the other: for how many series, and the round, or none if no
    /// right value was returned.
    rounds: Vec<(u32, Option<u32>)>,
}

impl Flush {
    fn of(at_ms: i64, rounds: &[Option<u32>]) -> Self {
        let mut runs: Vec<(u32, Option<u32>)> = Vec::new();
        for round in rounds {
            match runs.last_mut() {
                Some((count, last)) if last == round => *count += 1,
                _ => runs.push((1, *round)),
            }
        }
        runs.shrink_to_fit();
        Self { at_ms, rounds: runs }
    }

    fn round_of(&self, index: u32) -> Option<u32> {
        let mut before = 0;
        let run = self.rounds.iter().find(|(count, _)| {
            before += count;
            index < before
        });
        run.and_then(|(_, round)| *round)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.rounds.as_slice()) + OVERHEAD_BYTES
    }

    fn owed(&self) -> u64 {
        self.rounds.iter().filter(|(_, round)| round.is_some()).map(|(count, _)| u64::from(*count)).sum()
    }
}

/// A series as its place in the plan: the slot, and the index within the slot.
fn place(plan: &Plan, target: u64, metric: u32) -> Option<(usize, u32)> {
    let slot = plan.slot_of(target, metric)?;
    let range = plan.slot(slot);
    let within = (target - plan.first_target(range.writer)) * u64::from(plan.metrics) + u64::from(metric);
    Some((slot, (within - range.first) as u32))
}

/// A value that a query has returned: the slot of its series, the index within the slot, its time, and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    pub(crate) slot: usize,
    pub(crate) index: u32,
    pub(crate) at_ms: i64,
    pub(crate) value: f64,
}

impl Flushed {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { slots: vec![Vec::new(); plan.slots_count()], ..Self::default() }
    }

    /// Adds the rounds of a slot's values at a time that is later than all before. They are not owed if there are fewer than
    /// `bytes_left` for them.
    pub(crate) fn push(&mut self, slot: usize, at_ms: i64, rounds: &[Option<u32>], bytes_left: &mut usize) {
        let flush = Flush::of(at_ms, rounds);
        match bytes_left.checked_sub(flush.bytes()) {
            Some(left) => {
                *bytes_left = left;
                self.slots[slot].push(flush);
            }
            None => self.unnoted += flush.owed(),
        }
    }

    /// Number of values that are owed.
    pub fn owed(&self) -> u64 {
        self.slots.iter().flatten().map(Flush::owed).sum()
    }

    /// Fails if the slots are not those of the plan.
    pub(in crate::verify) fn check(&self, plan: &Plan) -> Result<()> {
        let fits = self.slots.len() == plan.slots_count()
            && self.slots.iter().enumerate().all(|(slot, flushes)| {
                let len = u64::from(plan.slot(slot).len);
                let in_order = flushes.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms);
                let counts =
                    |flush: &Flush| flush.rounds.iter().map(|(count, _)| u64::from(*count)).sum::<u64>();
                in_order && flushes.iter().all(|flush| counts(flush) == len)
            });
        anyhow::ensure!(fits, "the values that the target has stored are not those of the plan");
        Ok(())
    }

    fn round_of(&self, (slot, index): (usize, u32), at_ms: i64) -> Option<u32> {
        let flushes = &self.slots[slot];
        let at = flushes.binary_search_by_key(&at_ms, |flush| flush.at_ms).ok()?;
        flushes[at].round_of(index)
    }

    /// All times, in ascending order.
    fn times(&self) -> Vec<i64> {
        let mut times: Vec<i64> = self.slots.iter().flatten().map(|flush| flush.at_ms).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// Value of a series in a round. Series of such targets are never replaced.
pub(crate) fn value_of(plan: &Plan, slot: usize, index: u32, round: u32) -> f64 {
    let (target, metric) = plan.series_at(plan.slot(slot), index);
    plan.value(plan.target_key(target, 0), metric, round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;

    #[test]
    fn rounds_are_kept_by_series() {
        let plan = small();
        let (mut flushed, mut bytes_left) = (Flushed::new(&plan), usize::MAX);
        let mut push = |at_ms, rounds: [Option<u32>; 8]| flushed.push(1, at_ms, &rounds, &mut bytes_left);
        push(10, [Some(7), None, Some(7), Some(6), None, None, None, None]);
        push(20, [None, Some(7), None, None, None, None, None, None]);
        push(30, [Some(9); 8]);
        assert_eq!(flushed.owed(), 3 + 1 + 8);
        let found = |at_ms| (0..8).map(|index| flushed.round_of((1, index), at_ms)).collect::<Vec<_>>();
        assert_eq!(found(10), [Some(7), None, Some(7), Some(6), None, None, None, None]);
        assert_eq!(found(20), [None, Some(7), None, None, None, None, None, None]);
        assert_eq!(found(30).last(), Some(&Some(9)));
        assert_eq!((found(15), flushed.times()), (vec![None; 8], vec![10, 20, 30]));
        let json = serde_json::to_string(&flushed).unwrap();
        let read: Flushed = serde_json::from_str(&json).unwrap();
        assert_eq!(read, flushed);
        read.check(&plan).unwrap();
        assert!(read.check(&Plan { batch: 7, ..plan.clone() }).is_err());
        for slot in 0..plan.slots_count() {
            for index in 0..plan.slot(slot).len {
                let (target, metric) = plan.series_at(plan.slot(slot), index);
                assert_eq!(place(&plan, target, metric), Some((slot, index)));
            }
        }
    }
}
