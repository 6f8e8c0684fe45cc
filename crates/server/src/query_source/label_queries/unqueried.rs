//! Finds metrics that have series in memory but that no query has selected recently. This does not look at each series.

use super::cardinality::{Counts, SPARE, largest_of, resolve, sum};
use super::{ENTRY_BYTES, LabelQueries};
use crate::refusal::Refusal;
use model::labels::METRIC_NAME;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

const TURN_NAMES: usize = 1_000;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unqueried {
    pub(crate) series: u64,
    pub(crate) series_by_metric: Counts,
    /// False if some unqueried metrics may be missing, because the times of their last queries were forgotten to save
    /// memory.
    pub(crate) is_complete: bool,
}

impl LabelQueries<'_> {
    /// Finds metrics that no query has selected since `since_s`. Of these, lists the `limit` metrics with the most
    /// series.
    pub(crate) fn unqueried(&self, limit: usize, since_s: u32) -> Result<Unqueried, Refusal> {
        let queried = self.context.queried.view(self.tenant);
        let (all, mut room) = (self.turns().collect::<Vec<_>>(), self.room());
        let (mut names, mut series_of_all) = (BTreeSet::new(), 0);
        let count = 2 * limit + SPARE;
        room.reserve(count * size_of::<Reverse<(usize, u32)>>())?;
        for turns in &all {
            let (mut next, mut top) = (0, BinaryHeap::with_capacity(count));
            turns.until_done(|head| {
                let mut looked_at = 0;
                for (number, series) in head.values_from(METRIC_NAME, next).take(TURN_NAMES) {
                    (next, looked_at) = (number + 1, looked_at + 1);
                    let Some(pair) = head.pair(number as usize) else { continue };
                    if queried.is_queried_since(pair.value, since_s) {
                        continue;
                    }
                    series_of_all += series as u64;
                    top.push(Reverse((series, number)));
                    if top.len() > count {
                        top.pop();
                    }
                }
                looked_at < TURN_NAMES
            })?;
            resolve(turns, top.into_iter().map(|Reverse((_, number))| number as usize), |head, number| {
                let Some(pair) = head.pair(number).filter(|pair| pair.name == METRIC_NAME) else {
                    return Ok(());
                };
                room.reserve(pair.value.len() + ENTRY_BYTES)?;
                names.insert(pair.value.to_owned());
                Ok(())
            })?;
        }
        let count = |name: String| {
            let series = sum(&all, |head| head.series_with(METRIC_NAME, &name))?;
            Ok((name, series))
        };
        let counts = names.into_iter().map(count).collect::<Result<_, Refusal>>()?;
        Ok(Unqueried {
            series: series_of_all,
            series_by_metric: largest_of(counts, limit),
            is_complete: queried.forgotten_s() < since_s,
        })
    }
}
