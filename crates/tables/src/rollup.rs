//! Rollups: statistics of the samples of each series in buckets of 5 minutes or an hour.
//!
//! A rollup is a separate metrics table, made from past days. It has each series once for each [`Statistic`], with the
//! label [`LABEL`]. So rollups use the same files, merges, scans and SQL as samples.
//!
//! ```text
//!   bucket   (00:00, 00:05]    (00:05, 00:10]   …   (23:55, 24:00)    and 24:00 itself with the next day
//!   time      00:05             00:10                23:59:59.999         00:00
//! ```
//!
//! A bucket excludes its start and includes its end, like PromQL's windows: the value at 00:05 is that of
//! `sum_over_time(x[5m])`. Only `first` and `last` have the times of their samples.
//!
//! A commit that adds a day moves the floodmark of the source `rollup/<date>` to the greatest sequence of the day's
//! files. Late samples raise that sequence: the day is rolled up again, and one commit replaces the old files. The
//! floodmark also holds the format:
//!
//! ```text
//!   floodmark   | 0 | format, 15 bits | sequence, 48 bits |
//! ```
//!
//! A day in another format is rolled up again if its samples exist. If they do not, the rollup is read only if it has
//! format 2, which differs only in that it does not record omitted series.
//!
//! Deletes hide the affected buckets at once; the days are then rolled up again ([`apply_deletes`]).
//!
//! A series is omitted if it has the maximum number of labels, or a label [`LABEL`]. A series with the metric name and
//! the value [`OMITTED`] counts omitted series; queries of that metric read samples instead.

mod bucket;
mod deletes;
pub mod label;
mod omitted;
mod run;
mod writer;

use self::label::{LABEL, OMITTED};
use crate::date::Date;
use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::read::Matcher;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, Statistic};
use std::collections::BTreeMap;

pub use deletes::{applied_deletes, apply_deletes};
pub use run::{Rolled, RollupLimits, run};

/// Version of the format of rollups. Rollups that do not state a version have version 0.
const FORMAT: u64 = 3;

/// The previous version, which does not record omitted series.
const FORMAT_SILENT: u64 = 2;

/// Stands in place of a format version for a day whose samples were deleted after it was rolled up. The sequence in
/// its floodmark is that of the delete.
const FORMAT_STALE: u64 = FORMAT_UNMADE - 1;

/// Like [`FORMAT_STALE`], for a day that had not been rolled up.
const FORMAT_UNMADE: u64 = (1 << 15) - 1;

/// Bits of a floodmark's sequence, enough for milliseconds until the year 10889.
const SEQUENCE_BITS: u32 = 48;

const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// Width of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resolution {
    FiveMinutes,
    Hour,
}

impl Resolution {
    pub const ALL: [Self; 2] = [Self::FiveMinutes, Self::Hour];

    /// End of the bucket that contains `time_ms`. Like PromQL's windows, a bucket includes its end but not its start.
    pub const fn bucket_end(self, time_ms: i64) -> i64 {
        let over = time_ms.rem_euclid(self.ms());
        if over == 0 { time_ms } else { time_ms - over + self.ms() }
    }

    /// Width in milliseconds. A day is a multiple of the width.
    pub const fn ms(self) -> i64 {
        match self {
            Self::FiveMinutes => 300_000,
            Self::Hour => 3_600_000,
        }
    }

    pub const fn folder(self) -> &'static str {
        match self {
            Self::FiveMinutes => "rollup_5m",
            Self::Hour => "rollup_1h",
        }
    }
}

/// Selects the series of one statistic in a scan of a rollup table.
pub fn matcher(statistic: Statistic) -> Matcher {
    Matcher::new(LABEL, move |value| value == statistic.name())
}

pub fn left_out_matcher() -> Matcher {
    Matcher::new(LABEL, |value| value == OMITTED)
}

/// Adds a statistic's label. Returns `None` for a series that already has the maximum number of labels, or a label of
/// that name. Such a series is in no rollup.
pub fn labels_with(
    labels: LabelsRef<'_>,
    statistic: Statistic,
    builder: &mut LabelsBuilder,
) -> Option<Labels> {
    builder.clear();
    labels.iter().for_each(|(name, value)| builder.push(name, value));
    builder.push(LABEL, statistic.name());
    builder.build().ok()
}

fn labels_omitted(name: &str, builder: &mut LabelsBuilder) -> Labels {
    builder.clear();
    builder.push(METRIC_NAME, name);
    builder.push(LABEL, OMITTED);
    builder.build().expect("BUG: a series of two labels exceeds a limit")
}

/// Removes the label that [`labels_with`] adds.
pub fn labels_without(labels: LabelsRef<'_>) -> Labels {
    let mut builder = LabelsBuilder::new();
    labels.iter().filter(|(name, _)| *name != LABEL).for_each(|(name, value)| builder.push(name, value));
    builder.build().expect("BUG: labels became invalid when one of them was removed")
}

/// Days before `today` whose rollup is missing or older than their samples.
///
/// Days before `whole_from_ms`, or before the time of [`Table::expired_before_ms`], may have lost samples to retention:
/// their rollups are kept as they are. The table's own time matters if retention was raised.
pub fn due(
    metrics: &Table,
    rollup: &Table,
    today: Date,
    whole_from_ms: i64,
) -> Result<Vec<Date>, TableError> {
    let files = metrics.files()?;
    let whole_from_ms = metrics.expired_before_ms()?.map_or(whole_from_ms, |ms| ms.max(whole_from_ms));
    let mut due = Vec::new();
    for day in files.all().chunk_by(|a, b| a.date == b.date).filter(|day| day[0].date < today) {
        let date = day[0].date;
        let made = floodmark(rollup, date)?;
        let is_whole = date.start_ms() >= whole_from_ms;
        let is_due = match made.sequence_in(FORMAT) {
            None if made.sequence_in(FORMAT_STALE).is_some() => is_whole,
            None => is_whole || made.sequence_in(FORMAT_SILENT).is_none(),
            Some(upto) => upto < sequence(day) && is_whole,
        };
        if is_due {
            due.push(date);
        }
    }
    Ok(due)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Days {
    /// Days whose rollup has all samples, apart from those of series that it records as omitted.
    pub complete: Vec<Date>,
    /// Days whose rollup is incomplete, outdated, or in another format.
    pub others: Vec<Date>,
}

/// Classifies the days of a rollup. A day without samples is complete, because rollups may be kept longer.
pub fn days(files: &Files, rollup: &Table) -> Result<Days, TableError> {
    let by_date = files.all().chunk_by(|a, b| a.date == b.date);
    let sequences: BTreeMap<Date, u64> = by_date.map(|day| (day[0].date, sequence(day))).collect();
    let mut days = Days::default();
    for date in rollup.dates()? {
        let made = floodmark(rollup, date)?;
        let is_complete = match sequences.get(&date) {
            Some(wanted) => made.sequence_in(FORMAT).is_some_and(|made| made >= *wanted),
            None => {
                [FORMAT, FORMAT_SILENT, FORMAT_STALE].iter().any(|format| made.sequence_in(*format).is_some())
            }
        };
        if is_complete { &mut days.complete } else { &mut days.others }.push(date);
    }
    Ok(days)
}

fn source(date: Date) -> String {
    format!("rollup/{date}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floodmark(Option<u64>);

impl Floodmark {
    /// Floodmark of a day that was rolled up when its files had sequences up to `sequence`.
    const fn made(sequence: u64) -> u64 {
        FORMAT << SEQUENCE_BITS | sequence
    }

    /// Floodmark of a day after a delete with this sequence, before the day is rolled up again.
    fn deleted(self, sequence: u64) -> u64 {
        let was_made =
            [FORMAT, FORMAT_SILENT, FORMAT_STALE].iter().any(|format| self.sequence_in(*format).is_some());
        let format = if was_made { FORMAT_STALE } else { FORMAT_UNMADE };
        format << SEQUENCE_BITS | sequence.min(SEQUENCE_MAX)
    }

    /// If the day was rolled up in this format, the sequence up to which its files were included.
    fn sequence_in(self, format: u64) -> Option<u64> {
        let made = self.0.filter(|made| made >> SEQUENCE_BITS == format)?;
        Some(made & SEQUENCE_MAX)
    }
}

fn floodmark(rollup: &Table, date: Date) -> Result<Floodmark, TableError> {
    let source = source(date);
    Ok(Floodmark(rollup.floodmarks([source.as_str()])?.get(&source).copied()))
}

fn sequence(day: &[LiveFile]) -> u64 {
    let last = day.iter().map(|f| f.sequence).max().unwrap_or(0);
    u64::try_from(last).unwrap_or(0).min(SEQUENCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_and_without() {
        let labels = Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
        let with = labels_with(labels.as_ref(), Statistic::Sum, &mut LabelsBuilder::new()).unwrap();
        assert_eq!(with.get(LABEL), Some("sum"));
        assert_eq!(labels_without(with.as_ref()), labels);
    }
}
