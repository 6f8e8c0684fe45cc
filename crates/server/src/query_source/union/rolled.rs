//! Answers queries from daily rollups if their windows consist of whole buckets.
//!
//! A rollup is used for the days that it covers completely, provided that the heads have no samples of these days. A
//! rollup has a separate series for each statistic of a series. These are read side by side, as in a merge join.

use super::{Source, canceled, stop, tables_select, unreadable};
use crate::query_source::detail::Detail;
use crate::query_source::label_queries::in_range;
use crate::query_source::{Canceled, Turns};
use model::{ErrorKind, Labels, LabelsBuilder, LabelsRef, Samples, Statistic, TimeRange};
use query::{Bucket, BucketSet, Rolled, RolledSelect, SourceError};
use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use tables::DAY_MS;
use tables::rollup::{self, Resolution};
use tables::{Date, Scan, ScanLimits};

/// Selects series from the coarsest rollup that can answer the query. Returns `None` if samples are needed.
pub(super) fn select<'a>(
    source: &'a Source<'a>,
    ask: &RolledSelect<'_>,
) -> Result<Option<Rolled<'a>>, SourceError> {
    let allowed = Resolution::ALL.into_iter().rev().filter(|resolution| match source.detail {
        Detail::Samples => false,
        Detail::Auto => true,
        Detail::Rollup(wanted) => *resolution == wanted,
    });
    for resolution in allowed.filter(|resolution| ask.windows.are_multiples_of(resolution.ms())) {
        if let Some(rolled) = select_from(source, ask, resolution)? {
            return Ok(Some(rolled));
        }
    }
    Ok(None)
}

fn select_from<'a>(
    source: &'a Source<'a>,
    ask: &RolledSelect<'_>,
    resolution: Resolution,
) -> Result<Option<Rolled<'a>>, SourceError> {
    let (lake, tenant) = (&source.context.lake, &source.tenant);
    let Some(table) = lake.rollup(tenant, resolution).map_err(unreadable)? else { return Ok(None) };
    if !source.canceled.may_wait() {
        return Err(canceled());
    }
    // heads are selected before files, so samples that are sealed in between are found in both
    let heads = source.select_heads(ask.matchers)?;
    let metrics = lake.existing(tenant).map_err(unreadable)?;
    let files = metrics.map(|metrics| metrics.files()).transpose().map_err(unreadable)?.unwrap_or_default();
    let last = files.tombstones().list.last().map_or(0, |tombstone| tombstone.sequence);
    if rollup::applied_deletes(&table).map_err(unreadable)? < last {
        return Ok(None); // the rollup still contains samples that were deleted
    }
    // the complete days and the list of files must be from the same version of the table, so this is repeated if
    // another commit comes in between
    let (rolled, days) = loop {
        let version = table.version();
        let days = rollup::days(&files, &table).map_err(unreadable)?;
        let rolled = table.files().map_err(unreadable)?;
        if rolled.version() == version && table.version() == version {
            break (rolled, days);
        }
        if source.canceled.is_set() {
            return Err(canceled());
        }
    };
    let covers = ask.windows.covers();
    let filled = files.all().iter().map(|file| file.date).chain(days.others).collect();
    let Some(complete) = longest_run(&filled, days.complete, covers) else { return Ok(None) };
    let range = TimeRange::new(complete.start_ms.max(covers.start_ms), complete.end_ms.min(covers.end_ms));
    for (partition, selected) in source.context.partitions.iter().zip(heads) {
        let turns = Turns::new(partition, tenant, &*source.canceled);
        let fresh = in_range(&turns, Some(selected), range).map_err(|Canceled| canceled())?;
        if fresh.is_none_or(|fresh| !fresh.is_empty()) {
            return Ok(None);
        }
    }
    if source.pin.is_expired() {
        return Err(super::expired());
    }
    let open = |select: &tables::Select, bytes: usize| {
        Scan::open_files(&table, &rolled, &lake.cache, select, &ScanLimits::of(bytes)).map_err(unreadable)
    };
    if leaves_out(source, ask, range, &open)? {
        return Ok(None);
    }
    let mut columns = Vec::with_capacity(ask.statistics.len());
    for statistic in ask.statistics.iter().copied() {
        let mut select = tables_select(ask.matchers, range, true, &source.canceled);
        select.matchers.push(rollup::matcher(statistic));
        let bytes = source.samples_max as usize * 8 / ask.statistics.len();
        let scan = open(&select, bytes)?;
        if scan.warnings().next().is_some() {
            return Ok(None);
        }
        columns.push(Column {
            statistic,
            scan,
            state: State::Before,
            samples: Samples::default(),
            builder: LabelsBuilder::new(),
        });
    }
    let set = RolledSet { source, resolution, columns, labels: Labels::empty() };
    Ok(Some(Rolled { set: Box::new(set), complete, resolution: name(resolution) }))
}

/// True if a rollup in `range` may lack some series of a selected metric.
fn leaves_out(
    source: &Source<'_>,
    ask: &RolledSelect<'_>,
    range: TimeRange,
    open: &impl Fn(&tables::Select, usize) -> Result<Scan, SourceError>,
) -> Result<bool, SourceError> {
    let names = tables_select(ask.matchers, range, true, &source.canceled).names;
    // a marker for missing series has the timestamp at which its day starts
    let range =
        TimeRange::new(range.start_ms.saturating_sub(range.start_ms.rem_euclid(DAY_MS)), range.end_ms);
    let matchers = vec![rollup::left_out_matcher()];
    let stop = stop(&source.canceled);
    let select = tables::Select { names, matchers, range, samples: false, stop, ..tables::Select::ALL };
    let mut scan = open(&select, source.samples_max as usize * 8)?;
    let is_there = scan.next_series().map_err(unreadable)?;
    Ok(is_there || scan.warnings().next().is_some())
}

const fn name(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::FiveMinutes => "5m",
        Resolution::Hour => "1h",
    }
}

/// Of the runs of `complete` days, returns the one that overlaps `covers` most. A day without samples, which is not
/// in `filled`, does not interrupt a run.
fn longest_run(filled: &BTreeSet<Date>, mut complete: Vec<Date>, covers: TimeRange) -> Option<TimeRange> {
    complete.sort_unstable();
    let mut runs: Vec<TimeRange> = Vec::new();
    let mut last: Option<Date> = None;
    for date in complete {
        let nothing_since = match last {
            Some(last) => filled.range(last..date).all(|between| *between == last),
            None => filled.range(..date).next().is_none(),
        };
        match runs.last_mut() {
            Some(run) if nothing_since => run.end_ms = date.end_ms(),
            None if nothing_since => runs.push(TimeRange::new(i64::MIN, date.end_ms())),
            _ => runs.push(TimeRange::new(date.start_ms(), date.end_ms())),
        }
        last = Some(date);
    }
    let common =
        |run: &TimeRange| run.end_ms.min(covers.end_ms).saturating_sub(run.start_ms.max(covers.start_ms));
    runs.into_iter().filter(|run| run.overlaps(&covers)).max_by_key(common)
}

struct RolledSet<'a> {
    source: &'a Source<'a>,
    resolution: Resolution,
    columns: Vec<Column>,
    labels: Labels,
}

struct Column {
    statistic: Statistic,
    scan: Scan,
    state: State,
    samples: Samples,
    builder: LabelsBuilder,
}

#[derive(PartialEq)]
enum State {
    /// The scan has not begun, or the series that it is at was already read.
    Before,
    /// The scan is at a series that was not read yet.
    OnNext,
    End,
}

impl Column {
    fn read(&mut self, series: &Labels) -> Result<(), SourceError> {
        self.samples.clear();
        let Some(wanted) = rollup::labels_with(series.as_ref(), self.statistic, &mut self.builder) else {
            return Ok(());
        };
        loop {
            if self.state == State::Before {
                let more = self.scan.next_series().map_err(unreadable)?;
                self.state = if more { State::OnNext } else { State::End };
            }
            if self.state == State::End {
                return Ok(());
            }
            match self.scan.labels().cmp_in_tables(wanted.as_ref()) {
                Order::Less => self.state = State::Before,
                Order::Equal => {
                    self.state = State::Before;
                    return self.scan.read(&mut self.samples).map_err(unreadable);
                }
                Order::Greater => return Ok(()),
            }
        }
    }
}

impl BucketSet for RolledSet<'_> {
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError> {
        if self.source.canceled.is_set() {
            return Err(canceled());
        }
        buckets.clear();
        let first = &mut self.columns[0];
        if !first.scan.next_series().map_err(unreadable)? {
            return Ok(false);
        }
        self.labels = rollup::labels_without(first.scan.labels());
        first.samples.clear();
        first.scan.read(&mut first.samples).map_err(unreadable)?;
        for column in &mut self.columns[1..] {
            column.read(&self.labels)?;
        }
        self.join(buckets)?;
        Ok(true)
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.labels.as_ref()
    }
}

impl Drop for RolledSet<'_> {
    fn drop(&mut self) {
        self.columns.iter().for_each(|column| self.source.left_out.note(&column.scan, self.source.context));
    }
}

impl RolledSet<'_> {
    /// Combines the statistics of the current series into buckets. Fails if a bucket lacks a statistic.
    fn join(&mut self, buckets: &mut Vec<Bucket>) -> Result<(), SourceError> {
        let times = &self.columns[0].samples.timestamps;
        let ends = times.iter().map(|time| self.resolution.bucket_end(*time));
        buckets.extend(ends.map(|end_ms| Bucket { end_ms, ..Bucket::default() }));
        for Column { statistic, samples, .. } in &self.columns {
            let same = samples.len() == buckets.len()
                && samples
                    .timestamps
                    .iter()
                    .zip(&*buckets)
                    .all(|(t, b)| self.resolution.bucket_end(*t) == b.end_ms);
            if !same {
                let message = format!(
                    "the rollup of {} is incomplete: query with resolution=raw",
                    name(self.resolution)
                );
                return Err(SourceError { kind: ErrorKind::Data, message });
            }
            let rows = samples.timestamps.iter().zip(&samples.values).zip(&mut *buckets);
            for ((time_ms, value), bucket) in rows {
                match statistic {
                    Statistic::Count => bucket.count = *value,
                    Statistic::First => (bucket.first_ms, bucket.first) = (*time_ms, *value),
                    Statistic::Increase => bucket.increase = *value,
                    Statistic::Last => (bucket.last_ms, bucket.last) = (*time_ms, *value),
                    Statistic::Max => bucket.max = *value,
                    Statistic::Min => bucket.min = *value,
                    Statistic::Sum => bucket.sum = *value,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
