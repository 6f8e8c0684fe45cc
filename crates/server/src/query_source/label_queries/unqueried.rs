//! Finds metrics that have series in memory but that no query has selected recently. This does not look at each series.

use super::cardinality::{Counts, SPARE, largest_of, resolve, sum};
use super::{ENTRY_BYTES, LabelsAcross};
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

impl LabelsAcross<'_> {
    /// Finds metrics that no query has selected since `since_s`. Of these, lists the `limit` metrics with the most
    /// series. If there are several tenants, the series of a metric are those of the tenants whose queries have not selected it.
    pub(crate) fn unqueried(&self, limit: usize, since_s: u32) -> Result<Unqueried, Refusal> {
        let mut tenants = Vec::new();
        for queries in &self.0 {
            let queried = queries.context.queried.view(queries.tenant);
            tenants.push((queried, queries.turns().collect::<Vec<_>>()));
        }
        let (mut names, mut series_of_all, mut room) = (BTreeSet::new(), 0, self.first().room());
        let count = 2 * limit + SPARE;
        room.reserve(count * size_of::<Reverse<(usize, u32)>>())?;
        for (queried, all) in &tenants {
            for turns in all {
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
                let numbers = top.into_iter().map(|Reverse((_, number))| number as usize);
                resolve(turns, numbers, |head, number| {
                    let Some(pair) = head.pair(number).filter(|pair| pair.name == METRIC_NAME) else {
                        return Ok(());
                    };
                    room.reserve(pair.value.len() + ENTRY_BYTES)?;
                    names.insert(pair.value.to_owned());
                    Ok(())
                })?;
            }
        }
        let count = |name: String| {
            let mut series = 0;
            for (_, all) in tenants.iter().filter(|(queried, _)| !queried.is_queried_since(&name, since_s)) {
                series += sum(all, |head| head.series_with(METRIC_NAME, &name))?;
            }
            Ok((name, series))
        };
        let counts = names.into_iter().map(count).collect::<Result<_, Refusal>>()?;
        Ok(Unqueried {
            series: series_of_all,
            series_by_metric: largest_of(counts, limit),
            is_complete: tenants.iter().all(|(queried, _)| queried.forgotten_s() < since_s),
        })
    }
}
