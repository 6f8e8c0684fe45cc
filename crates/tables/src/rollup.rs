//! Rollups: statistics of the samples of each series in buckets of 5 minutes or an hour.
//!
//! A rollup is a metrics table of its own, made from days that are over. Each series is there once for each
//! [`Statistic`], told apart by the label [`LABEL`]. So the same files, merges, scans and SQL serve both.
//!
//! ```text
//!   bucket   (00:00, 00:05]    (00:05, 00:10]   …   (23:55, 24:00)    and 24:00 itself with the next day
//!   time      00:05             00:10                23:59:59.999         00:00
//! ```
//!
//! A bucket is open on the left, as PromQL's windows are: the value at 00:05 is what `sum_over_time(x[5m])` and its like
//! give there. First and last have the times of their samples instead, for rates depend on them.
//!
//! A day is made exactly once: the commit that puts it there moves the floodmark of the source
//! `rollup/<date>` to the greatest sequence that the day's files had. Late samples raise that sequence; the day is
//! then made anew, and takes the place of the old one in one commit.
//!
//! ```text
//!   floodmark   | 0 | format, 15 bits | sequence, 48 bits |
//! ```
//!
//! The floodmark says too in which format the day was made. One of another format, older or newer, is not read: it is made
//! anew where there are samples of it. Format 2 differs from 3 only in what it does not say of series that were left out; it is
//! read where no samples are left to make the day anew.
//!
//! Deletes of samples hide the buckets that they touch at once, and have the days made anew from what is left ([`take_in`]). A day of which no
//! samples are left stays without these buckets.
//!
//! A series is left out that cannot have one more label: it has as many as it may, or one called [`LABEL`]. Then a series of
//! the metric's name alone with the value [`LEFT_OUT`] says how many there are, and queries of that metric have to
//! read samples.

mod bucket;
mod deletes;
mod left_out;
mod run;
mod writer;

use crate::date::Date;
use crate::delta::{Files, LiveFile, Table};
use crate::error::TableError;
use crate::read::Matcher;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, Statistic};
use std::collections::BTreeMap;

pub use deletes::{take_in, taken};
pub use run::{Rolled, RollupLimits, run};

/// The label that says which statistic a series of a rollup table is. It sorts before all names that Prometheus
/// allowed before it allowed any text, so series keep their order with it.
pub const LABEL: &str = "$rollup";

/// The value of [`LABEL`] of the series that says that others of its name were left out, and how many.
pub const LEFT_OUT: &str = "left_out";

/// Version of what a rollup says: its buckets, its statistics, their times, and what it leaves out. Rollups of before there
/// were versions count as 0.
const FORMAT: u64 = 3;

/// The version before: it does not say what it leaves out.
const FORMAT_SILENT: u64 = 2;

/// In place of a version: samples of the day were deleted since it was made. The sequence is that of the delete.
const FORMAT_STALE: u64 = FORMAT_UNMADE - 1;

/// As [`FORMAT_STALE`], of a day that had not been made.
const FORMAT_UNMADE: u64 = (1 << 15) - 1;

/// Bits of a floodmark that hold a sequence: milliseconds until the year 10889.
const SEQUENCE_BITS: u32 = 48;

/// The greatest sequence.
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// Width of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resolution {
    /// 5 minutes.
    FiveMinutes,
    Hour,
}

impl Resolution {
    /// All resolutions, the finest first.
    pub const ALL: [Self; 2] = [Self::FiveMinutes, Self::Hour];

    /// The end of the bucket that a time lies in: buckets have their end and not their start, like the windows of PromQL,
    /// and both are multiples of the width.
    pub const fn bucket_end(self, time_ms: i64) -> i64 {
        let over = time_ms.rem_euclid(self.ms());
        if over == 0 { time_ms } else { time_ms - over + self.ms() }
    }

    /// The width in milliseconds. A day is a multiple of it.
    pub const fn ms(self) -> i64 {
        match self {
            Self::FiveMinutes => 300_000,
            Self::Hour => 3_600_000,
        }
    }

    /// The table's folder, beside `metrics`.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::FiveMinutes => "rollup_5m",
            Self::Hour => "rollup_1h",
        }
    }
}

/// Matcher of a statistic, for [`Select::matchers`](crate::Select::matchers) of a scan of a rollup table.
pub fn matcher(statistic: Statistic) -> Matcher {
    Matcher::new(LABEL, move |value| value == statistic.name())
}

/// Matcher of the series that count left-out ones.
pub fn left_out_matcher() -> Matcher {
    Matcher::new(LABEL, |value| value == LEFT_OUT)
}

/// A series' labels with that of a statistic; `None` if it has as many labels as it may have, or that one already: then
/// it is in no rollup.
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

/// The labels of the series that says how many of a name were left out.
fn labels_left_out(name: &str, builder: &mut LabelsBuilder) -> Labels {
    builder.clear();
    builder.push(METRIC_NAME, name);
    builder.push(LABEL, LEFT_OUT);
    builder.build().expect("BUG: two labels are not too many")
}

/// The series that a series of a rollup table is a statistic of.
pub fn labels_without(labels: LabelsRef<'_>) -> Labels {
    let mut builder = LabelsBuilder::new();
    labels.iter().filter(|(name, _)| *name != LABEL).for_each(|(name, value)| builder.push(name, value));
    builder.build().expect("BUG: fewer labels than valid ones are valid")
}

/// Days before `today` whose rollup is missing, or older than their samples.
///
/// Days that begin before `whole_from_ms` may have lost samples to retention: what was made of one stays as it is, for
/// anew it would say less.
pub fn due(
    metrics: &Table,
    rollup: &Table,
    today: Date,
    whole_from_ms: i64,
) -> Result<Vec<Date>, TableError> {
    let files = metrics.files()?;
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

/// Days of a rollup, by whether they may be used.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Days {
    /// Days whose rollup accounts for all that `files` of the metrics table hold, except for series that it says
    /// were left out.
    pub complete: Vec<Date>,
    /// Theirs says less, or something else.
    pub others: Vec<Date>,
}

/// Sorts the days of a rollup. A day without samples in the metrics table is complete: its rollup may be kept for
/// longer. Late samples of such a day that are in no file yet are not in it.
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

/// Floodmark of a day in a rollup table's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floodmark(Option<u64>);

impl Floodmark {
    /// Floodmark of a day that is rolled up now, from files up to `sequence`.
    const fn made(sequence: u64) -> u64 {
        FORMAT << SEQUENCE_BITS | sequence
    }

    /// That of a day of which samples were deleted at `sequence`.
    fn deleted(self, sequence: u64) -> u64 {
        let was_made =
            [FORMAT, FORMAT_SILENT, FORMAT_STALE].iter().any(|format| self.sequence_in(*format).is_some());
        let format = if was_made { FORMAT_STALE } else { FORMAT_UNMADE };
        format << SEQUENCE_BITS | sequence.min(SEQUENCE_MAX)
    }

    /// Sequence up to which the day was rolled up; `None` if it was not, or in another format.
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
