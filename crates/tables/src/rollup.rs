//! The same series in less detail: for each bucket of 5 minutes or an hour what its samples came to.
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

use crate::block::{Date, Stretch};
use crate::cache::Cache;
use crate::delta::{Files, LiveFile, StagedBlock, StagedFile, Table};
use crate::error::TableError;
use crate::read::{Matcher, Select};
use crate::scan::{Scan, ScanLimits};
use crate::store::Upload;
use crate::write::{FileWriter, WriteLimits};
use model::sample::is_stale;
use model::{Labels, LabelsBuilder, LabelsRef, Samples, TimeRange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label that says which statistic a series of a rollup table is. It sorts before all names that Prometheus
/// allowed before it allowed any text, so series keep their order with it.
pub const LABEL: &str = "$rollup";

/// Width of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resolution {
    /// 5 minutes.
    FiveMinutes,
    /// An hour.
    Hour,
}

impl Resolution {
    /// All of them, the finest first.
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

/// What is kept of a bucket. Staleness markers are not samples here; NaNs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// How many samples.
    Count,
    /// The first.
    First,
    /// By how much a counter grew from the bucket's first to its last sample, across resets: their difference, and the value
    /// before each reset. What lies between two buckets is told by the last value of one and the first of the next.
    Increase,
    /// The last.
    Last,
    /// The first of the greatest that are not NaN; else the last NaN.
    Max,
    /// The first of the least that are not NaN; else the last NaN.
    Min,
    /// Their sum, added up in order of time.
    Sum,
}

impl Statistic {
    /// All of them, by name.
    pub const ALL: [Self; 7] =
        [Self::Count, Self::First, Self::Increase, Self::Last, Self::Max, Self::Min, Self::Sum];

    /// Its name: the value of [`LABEL`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::First => "first",
            Self::Increase => "increase",
            Self::Last => "last",
            Self::Max => "max",
            Self::Min => "min",
            Self::Sum => "sum",
        }
    }

    /// The matcher that selects it, for [`Select::matchers`] of a scan of a rollup table.
    pub fn matcher(self) -> Matcher {
        Matcher::new(LABEL, move |value| value == self.name())
    }
}

/// A bucket's statistics, by [`Statistic::ALL`], and the times of its first and its last sample.
fn statistics(samples: impl Iterator<Item = (i64, f64)>) -> Option<([f64; 7], i64, i64)> {
    let mut samples = samples.filter(|(_, value)| !is_stale(*value));
    let (first_ms, first) = samples.next()?;
    let (mut count, mut last, mut max, mut min, mut sum) = (1.0, first, first, first, first);
    let (mut last_ms, mut fallen) = (first_ms, Vec::new());
    for (time_ms, value) in samples {
        count += 1.0;
        // the counter began again at 0
        if value < last {
            fallen.push(last);
        }
        (last_ms, last) = (time_ms, value);
        // of equal ones the first, as PromQL has it
        if value > max || max.is_nan() {
            max = value;
        }
        if value < min || min.is_nan() {
            min = value;
        }
        sum += value;
    }
    // in PromQL's order too: without a reset it is the very difference
    let increase = fallen.iter().fold(last - first, |increase, before| increase + before);
    Some(([count, first, increase, last, max, min, sum], first_ms, last_ms))
}

/// Adds samples' buckets to the columns of statistics.
fn bucket(samples: &Samples, resolution: Resolution, columns: &mut [Samples; 7]) {
    // of a bucket that ends with the day's last millisecond or after it, the next day has the rest
    let part = |t: i64| (Date::of(t), resolution.bucket_end(t));
    let mut at = 0;
    while let Some(first) = samples.timestamps.get(at) {
        let (date, end_ms) = part(*first);
        let end = at + samples.timestamps[at..].partition_point(|t| part(*t) == (date, end_ms));
        let own = samples.timestamps[at..end].iter().copied().zip(samples.values[at..end].iter().copied());
        if let Some((found, first_ms, last_ms)) = statistics(own) {
            for ((column, value), statistic) in columns.iter_mut().zip(found).zip(Statistic::ALL) {
                let time_ms = match statistic {
                    Statistic::First => first_ms,
                    Statistic::Last => last_ms,
                    _ => end_ms.min(date.end_ms()),
                };
                column.push(time_ms, value);
            }
        }
        at = end;
    }
}

/// A series' labels with that of a statistic; `None` where it has as many labels as it may have: then it is in no rollup.
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
        let is_due = match floodmark(rollup, date)? {
            None => true,
            Some(upto) => upto < sequence(day) && date.start_ms() >= whole_from_ms,
        };
        if is_due {
            due.push(date);
        }
    }
    Ok(due)
}

/// Days whose rollup says all that `files` of the metrics table hold. A day of which the metrics table has nothing any more
/// is whole too: its rollup may be kept for longer. Samples that are in no file yet, late ones of such a day, are not in it.
pub fn complete_days(files: &Files, rollup: &Table) -> Result<Vec<Date>, TableError> {
    let days = files.all().chunk_by(|a, b| a.date == b.date);
    let sequences: BTreeMap<Date, u64> = days.map(|day| (day[0].date, sequence(day))).collect();
    let mut complete = Vec::new();
    for date in rollup.dates()? {
        if floodmark(rollup, date)? >= sequences.get(&date).copied() {
            complete.push(date);
        }
    }
    Ok(complete)
}

fn source(date: Date) -> String {
    format!("rollup/{date}")
}

fn floodmark(rollup: &Table, date: Date) -> Result<Option<u64>, TableError> {
    let source = source(date);
    Ok(rollup.floodmarks([source.as_str()])?.get(&source).copied())
}

fn sequence(day: &[LiveFile]) -> u64 {
    u64::try_from(day.iter().map(|f| f.sequence).max().unwrap_or(0)).unwrap_or(0)
}

/// Samples between two looks at whether to go on.
const STEP_SAMPLES: u64 = 200_000;

/// What a rollup of a day came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rolled {
    /// Series of the metrics table.
    pub series: u64,
    /// Samples read.
    pub samples: u64,
    /// False where nothing was to be done, another program was faster, or the caller wanted no more of it.
    pub committed: bool,
    /// Series that were left out, since they have as many labels as a series may have.
    pub left_out: u64,
}

/// What making a rollup may use.
#[derive(Debug, Clone, Copy)]
pub struct RollupLimits {
    /// Bytes that the windows of the day's files may take together. Each takes at least 64 KiB.
    pub window_bytes: usize,
    /// Of the files that it makes. All open ones together hold `open_bytes`, and each at most three times its
    /// `row_group_bytes`, beside a part of an upload.
    pub write: WriteLimits,
}

/// Makes the rollup of a day. `name` begins the names of new files and must be new each time. It holds the day's
/// samples of one series, a scan, and an open file for each statistic. `go_on` is asked now and then, and where it says
/// `false` nothing is committed.
///
/// A damaged file fails it: a rollup that knows less than the day is never made.
#[expect(clippy::too_many_arguments, reason = "each says one thing, and there is one caller")]
pub fn run(
    metrics: &Table,
    rollup: &Table,
    date: Date,
    resolution: Resolution,
    name: &str,
    limits: &RollupLimits,
    now_ms: i64,
    mut go_on: impl FnMut(&Rolled) -> bool,
) -> Result<Rolled, TableError> {
    let files = metrics.files()?;
    let day: Vec<LiveFile> = files.all().iter().filter(|f| f.date == date).cloned().collect();
    let (after, upto) = (floodmark(rollup, date)?, sequence(&day));
    if day.is_empty() || after >= Some(upto) {
        return Ok(Rolled::default());
    }
    let select = Select { range: TimeRange::new(date.start_ms(), date.end_ms()), ..Select::ALL };
    let scanned = ScanLimits { window_bytes: limits.window_bytes, ..ScanLimits::default() };
    let mut scan = Scan::open_files(metrics, files, &Arc::new(Cache::new(0)), &select, &scanned)?;
    let mut writer = Writer::new(rollup, date, name, limits.write);
    let mut rolled = Rolled::default();
    let (mut samples, mut builder) = (Samples::default(), LabelsBuilder::new());
    let mut looked = 0;
    while scan.next_series()? {
        samples.clear();
        scan.read(&mut samples)?;
        rolled.series += 1;
        rolled.samples += samples.len() as u64;
        if rolled.samples - looked >= STEP_SAMPLES {
            looked = rolled.samples;
            if !go_on(&rolled) {
                return Ok(rolled);
            }
        }
        let mut columns: [Samples; 7] = Default::default();
        bucket(&samples, resolution, &mut columns);
        if columns[0].is_empty() {
            continue;
        }
        for (column, statistic) in columns.iter().zip(Statistic::ALL) {
            match labels_with(scan.labels(), statistic, &mut builder) {
                Some(labels) => writer.push(statistic, &labels, &scan, column)?,
                None => rolled.left_out += u64::from(statistic == Statistic::Count),
            }
        }
    }
    if let Some(reason) = scan.warnings().next() {
        return Err(TableError::Damaged { file: format!("(rollup of {date})"), reason });
    }
    let files = writer.finish()?;
    let old: Vec<LiveFile> = rollup.files()?.all().iter().filter(|f| f.date == date).cloned().collect();
    let block = StagedBlock { source: source(date), after, upto, files };
    rolled.committed = rollup.renew(&old, &block, now_ms)?;
    Ok(rolled)
}

/// An open file for each statistic, since a file's rows are in order and the statistic comes before other labels.
struct Writer<'a> {
    rollup: &'a Table,
    date: Date,
    name: &'a str,
    limits: WriteLimits,
    open: [Option<FileWriter<Upload>>; 7],
    /// The last labels of each, to see where their order breaks.
    last: [Option<Labels>; 7],
    staged: Vec<StagedFile>,
    files: usize,
}

impl<'a> Writer<'a> {
    fn new(rollup: &'a Table, date: Date, name: &'a str, limits: WriteLimits) -> Self {
        let (open, last) = Default::default();
        Self { rollup, date, name, limits, open, last, staged: Vec::new(), files: 0 }
    }

    fn push(
        &mut self,
        of: Statistic,
        labels: &Labels,
        scan: &Scan,
        samples: &Samples,
    ) -> Result<(), TableError> {
        let at = of as usize;
        // Some label's name sorts before ours: such a series begins a file.
        if self.last[at].as_ref().is_some_and(|last| last.as_ref().cmp_in_tables(labels.as_ref()).is_ge()) {
            self.end(at)?;
        }
        let writer = match &mut self.open[at] {
            Some(writer) => writer,
            none => {
                self.files += 1;
                let upload = self.rollup.upload(self.date, &format!("{}-{}", self.name, self.files))?;
                none.insert(FileWriter::new(self.date, upload, self.limits.row_group_bytes)?)
            }
        };
        writer.push(&Stretch {
            labels: labels.as_ref(),
            key: scan.key(),
            timestamps: &samples.timestamps,
            values: &samples.values,
        })?;
        self.last[at] = Some(labels.clone());
        if writer.written_bytes() >= self.limits.file_bytes {
            self.end(at)?;
        }
        self.bound_open()
    }

    /// Where the open files together grow too large, the fullest ends early.
    fn bound_open(&mut self) -> Result<(), TableError> {
        let held = |open: &Option<FileWriter<Upload>>| open.as_ref().map_or(0, FileWriter::held_bytes);
        while self.open.iter().map(held).sum::<usize>() > self.limits.open_bytes {
            let fullest = (0..self.open.len()).max_by_key(|at| held(&self.open[*at]));
            self.end(fullest.expect("BUG: there are seven"))?;
        }
        Ok(())
    }

    fn end(&mut self, at: usize) -> Result<(), TableError> {
        if let Some(writer) = self.open[at].take() {
            let (summary, upload) = writer.finish()?;
            self.staged.push(self.rollup.staged(summary, upload)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<StagedFile>, TableError> {
        (0..self.open.len()).try_for_each(|at| self.end(at))?;
        Ok(self.staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::DAY_MS;

    #[test]
    fn buckets() {
        let check = |samples: &[(i64, f64)], expected: &[(i64, [f64; 7])]| {
            let (timestamps, values) = samples.iter().copied().unzip();
            let mut columns: [Samples; 7] = Default::default();
            bucket(&Samples { timestamps, values }, Resolution::FiveMinutes, &mut columns);
            let found: Vec<_> = (0..columns[0].len())
                .map(|i| (columns[0].timestamps[i], std::array::from_fn(|c| columns[c].values[i])))
                .collect();
            assert_eq!(found, expected);
        };
        let stale = f64::from_bits(model::STALE_NAN_BITS);
        check(&[], &[]);
        check(&[(1, stale)], &[]);
        // count, first, increase, last, max, min, sum
        check(&[(299_999, 3.0)], &[(300_000, [1.0, 3.0, 0.0, 3.0, 3.0, 3.0, 3.0])]);
        check(
            &[
                (300_000, 5.0),
                (300_001, 9.0),
                (300_002, 2.0),
                (300_003, stale),
                (300_004, 4.0),
                (600_000, 1.0),
            ],
            &[
                (300_000, [1.0, 5.0, 0.0, 5.0, 5.0, 5.0, 5.0]),
                (600_000, [4.0, 9.0, 5.0, 1.0, 9.0, 1.0, 16.0]),
            ],
        );
        // of the bucket in which a day ends, each day has its own part
        check(
            &[(DAY_MS - 2, 1.0), (DAY_MS - 1, 2.0), (DAY_MS, 3.0)],
            &[
                (DAY_MS - 1, [2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 3.0]),
                (DAY_MS, [1.0, 3.0, 0.0, 3.0, 3.0, 3.0, 3.0]),
            ],
        );
        let mut columns: [Samples; 7] = Default::default();
        let samples = Samples { timestamps: vec![10, 20, 30], values: vec![f64::NAN, 2.0, f64::NAN] };
        bucket(&samples, Resolution::Hour, &mut columns);
        let times = |of: Statistic| columns[of as usize].timestamps[0];
        assert_eq!(
            (times(Statistic::First), times(Statistic::Last), times(Statistic::Max)),
            (10, 30, 3_600_000)
        );
        assert_eq!(
            [columns[Statistic::Max as usize].values[0], columns[Statistic::Min as usize].values[0]],
            [2.0; 2]
        );
    }

    #[test]
    fn statistics_are_in_order() {
        assert!(Statistic::ALL.is_sorted_by_key(|s| s.name()));
        assert!(Statistic::ALL.iter().enumerate().all(|(i, s)| *s as usize == i));
        let labels = Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
        let with = labels_with(labels.as_ref(), Statistic::Sum, &mut LabelsBuilder::new()).unwrap();
        assert_eq!(with.get(LABEL), Some("sum"));
        assert_eq!(labels_without(with.as_ref()), labels);
    }
}
