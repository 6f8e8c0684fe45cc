//! The times of samples that series have already, in the journal and in the table, as far as coarse values of an import depend on
//! them.

use super::TreeFile;
use crate::import::target::Target;
use crate::output::note;
use anyhow::{Context, ensure};
use journal::files::inspect;
use model::labels::METRIC_NAME;
use model::{LabelsRef, Samples, SeriesRef, TimeRange, Values};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use tables::{Cache, Scan, ScanLimits, Select};

const CACHE_BYTES: usize = 16 << 20;

/// A table may have any number of files. More of them share the same memory, and are read in smaller pieces.
const SCAN_LIMITS: ScanLimits = ScanLimits { files: usize::MAX, bytes: 64 << 20 };

/// What files of a directory can ask for, one after another.
#[derive(Debug)]
pub(super) struct Stored {
    /// Times in the journal, for each file.
    journal: Vec<Vec<u32>>,
    table: Option<TableTimes>,
    /// The times of the series that was asked for last, and its first file.
    times: Vec<u32>,
    current: Option<usize>,
}

/// Reads the table along with the files, which are in the order of its series.
#[derive(Debug)]
struct TableTimes {
    scan: Scan,
    /// True if the scan is at a series that was not compared yet, or comes later.
    is_at_series: bool,
    samples: Samples,
}

impl Stored {
    /// `files` are in the order of their series. Samples that come later are not found.
    pub(super) fn open(target: &Target, files: &[TreeFile], now_s: i64) -> anyhow::Result<Self> {
        let mut journal = vec![Vec::new(); files.len()];
        // the journal comes first, so that what moves into the table meanwhile is found in one of them
        read_journal(target, files, &mut journal).context("cannot read the journal")?;
        let table = TableTimes::open(target, files, now_s).context("cannot read the table")?;
        Ok(Self { journal, table, times: Vec::new(), current: None })
    }

    /// Must be called after the last file, before anything is committed. Fails if samples of the table could not be read, unless
    /// `skip_damaged`: values that are finer may be among them.
    pub(super) fn finish(&self, skip_damaged: bool) -> anyhow::Result<()> {
        let Some(TableTimes { scan, .. }) = &self.table else { return Ok(()) };
        let Some(warning) = scan.warnings().next() else { return Ok(()) };
        let risk = "values that are finer than those of the import may be among what could not be read";
        ensure!(
            skip_damaged,
            "{warning}; {risk}: repeat the import if the file was rewritten meanwhile, otherwise use --skip-damaged"
        );
        note(format_args!("floodmark: {warning}; {risk}"));
        Ok(())
    }

    /// The times of samples of a file's series, in order, as [`add_time`] adds them. The files are asked for in their order.
    pub(super) fn times(&mut self, files: &[TreeFile], place: usize) -> anyhow::Result<&[u32]> {
        let file = &files[place];
        let Some(step_s) = file.coarse_step_s else { return Ok(&[]) };
        let first = find(files, file.labels.as_ref());
        if self.current != first {
            self.times = first.map(|first| std::mem::take(&mut self.journal[first])).unwrap_or_default();
            if let Some(table) = &mut self.table {
                table.add_times(file.labels.as_ref(), step_s, &mut self.times)?;
            }
            self.times.sort_unstable();
            self.times.dedup();
            self.current = first;
        }
        Ok(&self.times)
    }
}

impl TableTimes {
    /// Returns `None` if the table has no samples of such names.
    fn open(target: &Target, files: &[TreeFile], now_s: i64) -> anyhow::Result<Option<Self>> {
        let coarse = files.iter().filter(|file| file.coarse_step_s.is_some());
        let mut names: Vec<_> =
            coarse.filter_map(|file| file.labels.get(METRIC_NAME)).map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        let range = TimeRange::new(0, now_s.saturating_mul(1000).saturating_add(999));
        let select = Select { names: Some(names), range, ..Select::ALL };
        let table = target.table();
        table.refresh()?;
        let live = table.files()?;
        if tables::scan::matching(&live, &select).next().is_none() {
            return Ok(None);
        }
        let cache = Arc::new(Cache::new(CACHE_BYTES));
        let scan = Scan::open_files(table, &live, &cache, &select, &SCAN_LIMITS)?;
        Ok(Some(Self { scan, is_at_series: false, samples: Samples::default() }))
    }

    fn add_times(&mut self, labels: LabelsRef<'_>, step_s: u32, times: &mut Vec<u32>) -> anyhow::Result<()> {
        loop {
            if !self.is_at_series && !self.scan.next_series()? {
                return Ok(());
            }
            self.is_at_series = true;
            match self.scan.labels().cmp_in_tables(labels) {
                Ordering::Less => self.is_at_series = false,
                Ordering::Equal => break,
                Ordering::Greater => return Ok(()),
            }
        }
        self.is_at_series = false;
        loop {
            self.samples.clear();
            let is_more = self.scan.read_some(&mut self.samples)?;
            for (timestamp_ms, value) in self.samples.iter_from(0) {
                if !value.is_nan() {
                    add_time(times, timestamp_ms, step_s);
                }
            }
            if !is_more {
                return Ok(());
            }
        }
    }
}

fn read_journal(target: &Target, files: &[TreeFile], times: &mut [Vec<u32>]) -> anyhow::Result<()> {
    let dir = target.journal_dir();
    if files.iter().all(|file| file.coarse_step_s.is_none()) || !dir.is_dir() {
        return Ok(());
    }
    for partition in inspect::partitions(&dir)? {
        // what the table has is read there, because some of it may have been deleted
        let source = inspect::id(&dir, partition)?.map(|id| id.to_string());
        let in_table = target.table().floodmarks(source.as_deref())?.into_values().next().unwrap_or(0);
        // references are those of a dictionary
        let (mut places, mut dictionary): (HashMap<SeriesRef, usize>, _) = (HashMap::new(), None);
        inspect::records(&dir, partition, |offset, of, record| {
            if dictionary != Some(of) {
                dictionary = Some(of);
                places.clear();
            }
            if record.tenant != *target.tenant() {
                return;
            }
            for (series, labels) in record.definitions.iter() {
                if let Some(place) = find(files, labels) {
                    places.insert(series, place);
                }
            }
            let Values::Floats(values) = &record.values else { return };
            if offset.0 < in_table {
                return;
            }
            for ((series, timestamp_ms), value) in record.refs.iter().zip(&record.timestamps).zip(values) {
                let Some(place) = places.get(series).filter(|_| !value.is_nan()) else { continue };
                if let Some(step_s) = files[*place].coarse_step_s {
                    add_time(&mut times[*place], *timestamp_ms, step_s);
                }
            }
        })?;
    }
    Ok(())
}

/// The first file of a series. Several files may have one series, because its name may be a hash.
fn find(files: &[TreeFile], labels: LabelsRef<'_>) -> Option<usize> {
    let place = files.partition_point(|file| file.labels.as_ref().cmp_in_tables(labels).is_lt());
    files.get(place).filter(|file| file.labels.as_ref() == labels)?;
    Some(place)
}

/// Adds the time of a sample, in seconds, so that the times take little memory: the beginning of its slot of a coarse archive if the
/// sample stands exactly there, and otherwise the second after it. This is as good as the time itself to tell whether the
/// sample is behind the beginning of a slot of this archive, or of an archive whose step is a multiple.
fn add_time(times: &mut Vec<u32>, timestamp_ms: i64, step_s: u32) {
    let step_s = i64::from(step_s);
    let slot_s = timestamp_ms.div_euclid(1000 * step_s) * step_s;
    let is_behind = timestamp_ms > 1000 * slot_s;
    // Whisper's own times have 32 bits
    let Ok(time_s) = u32::try_from(slot_s + i64::from(is_behind)) else { return };
    if times.last() != Some(&time_s) {
        times.push(time_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_tell_what_is_behind_the_beginning_of_a_slot() {
        for timestamp_ms in
            [0, 1, 59_999, 60_000, 60_001, 119_999, 120_000, 299_999, 300_000, 300_500, 659_000]
        {
            let mut times = Vec::new();
            add_time(&mut times, timestamp_ms, 60);
            for step_s in [60, 300, 600] {
                let slot_s = timestamp_ms / (1000 * step_s) * step_s;
                for at_s in [slot_s, slot_s + step_s] {
                    let is_inside = |time_ms| 1000 * at_s < time_ms && time_ms < 1000 * (at_s + step_s);
                    assert_eq!(
                        is_inside(1000 * i64::from(times[0])),
                        is_inside(timestamp_ms),
                        "{timestamp_ms} ms in the {step_s} s after {at_s}"
                    );
                }
            }
        }
    }
}
