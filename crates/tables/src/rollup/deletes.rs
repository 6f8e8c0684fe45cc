//! Applies deletes of samples to rollups.
//!
//! ```text
//!   delete in the metrics table, at sequence S
//!     └▶ one commit of each rollup:  a tombstone for the buckets that it touches
//!                                    rollup/<date> := stale, for each day: it is rolled up again, and a run in progress is not committed
//!                                    rollup/deleted := S
//! ```
//!
//! The metrics table keeps its tombstone until every rollup has applied it, also across restarts.

use super::{Resolution, floodmark, source};
use crate::date::{DAY_MS, Date};
use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::tombstone::{Delete, Tombstone};
use model::TimeRange;
use std::collections::{BTreeMap, BTreeSet};

/// Name under which the log stores the sequence of the last delete that was applied to the rollup, as if it were a
/// source's floodmark.
const APPLIED_SOURCE: &str = "rollup/deleted";

/// Sequence of the last delete that was applied to the rollup, or 0.
pub fn applied_deletes(rollup: &Table) -> Result<i64, TableError> {
    let applied = rollup.floodmarks([APPLIED_SOURCE])?.remove(APPLIED_SOURCE);
    Ok(applied.map_or(0, |sequence| i64::try_from(sequence).unwrap_or(i64::MAX)))
}

/// Applies deletes of the metrics table to a rollup, each in one commit. May be interrupted and repeated.
pub fn apply_deletes(
    files: &Files,
    rollup: &Table,
    resolution: Resolution,
    now_ms: i64,
) -> Result<(), TableError> {
    let Some(last) = files.tombstones().list.last() else { return Ok(()) };
    if applied_deletes(rollup)? >= last.sequence {
        return Ok(());
    }
    rollup.refresh()?;
    let applied = applied_deletes(rollup)?;
    for Tombstone { sequence, delete } in files.tombstones().list.iter().filter(|t| t.sequence > applied) {
        let range = touched(delete.range, resolution);
        let sequence = u64::try_from(*sequence).unwrap_or(0);
        let mut days: BTreeSet<Date> = rollup.dates()?.into_iter().collect();
        days.extend(files.all().iter().map(|file| file.date));
        days.retain(|date| range.overlaps(&TimeRange::new(date.start_ms(), date.end_ms())));
        let mut moved = BTreeMap::from([(APPLIED_SOURCE.to_string(), sequence)]);
        for date in days {
            moved.insert(source(date), floodmark(rollup, date)?.deleted(sequence));
        }
        let delete = Delete { selectors: delete.selectors.clone(), range };
        rollup.delete(&delete, &moved, true, now_ms)?;
    }
    Ok(())
}

/// Times that the statistics of a bucket may have, for all buckets that `range` touches.
fn touched(range: TimeRange, resolution: Resolution) -> TimeRange {
    // no sample is that far from the epoch
    let within = |ms: i64| ms.clamp(-DAY_MS, i64::MAX / 2);
    let start_ms = resolution.bucket_end(within(range.start_ms)) - resolution.ms() + 1;
    TimeRange::new(start_ms, resolution.bucket_end(within(range.end_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_whole_buckets() {
        let check = |start, end, expected: (i64, i64)| {
            let TimeRange { start_ms, end_ms } = touched(TimeRange::new(start, end), Resolution::Hour);
            assert_eq!((start_ms, end_ms), expected, "{start} {end}");
        };
        check(3_600_000, 3_600_000, (1, 3_600_000));
        check(3_600_001, 3_600_001, (3_600_001, 7_200_000));
        check(1, 7_200_000, (1, 7_200_000));
        let TimeRange { start_ms, end_ms } = touched(TimeRange::ALL, Resolution::FiveMinutes);
        assert!(start_ms < 0 && end_ms > 1 << 60);
    }
}
