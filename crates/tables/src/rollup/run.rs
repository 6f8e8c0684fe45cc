//! Rolls up a day.

use super::bucket::bucket;
use super::omitted::OmittedSeries;
use super::writer::Writer;
use super::{FORMAT, Floodmark, Resolution, floodmark, labels_with, sequence, source};
use crate::date::Date;
use crate::delta::{StagedBlock, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::read::Cache;
use crate::read::{Select, Stop};
use crate::scan::{Scan, ScanLimits};
use crate::store::FileStem;
use crate::write::WriteLimits;
use model::{LabelsBuilder, Samples, Statistic, TimeRange};
use std::sync::Arc;

/// Each time it has read this many samples, [`run`] asks `go_on` whether to continue.
const STEP_SAMPLES: u64 = 4_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rolled {
    pub series: u64,
    pub samples: u64,
    /// False if there was nothing to do, another program was faster, or the caller canceled.
    pub committed: bool,
    /// Series omitted because no label can be added. The rollup records this number.
    pub omitted: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct RollupLimits {
    /// Maximum total size of the windows of the day's files. Each window takes at least 64 KiB.
    pub window_bytes: usize,
    /// Limits on the files being written. Together they hold `open_bytes`, and each holds at most three times
    /// `row_group_bytes` and one part of an upload.
    pub write: WriteLimits,
}

/// Makes the rollup of a day. `stem` must be new. In memory, it holds the day's samples of one series, a scan, and an
/// open file for each statistic. It stops without a commit once `go_on` returns `false` or `stop` is set, which is noticed
/// while deleted rows are skipped, too.
///
/// Fails on a damaged file, because a rollup must not have less data than its day.
#[expect(clippy::too_many_arguments, reason = "independent arguments, and only one caller")]
pub fn run(
    metrics: &Table,
    rollup: &Table,
    date: Date,
    resolution: Resolution,
    stem: &FileStem,
    limits: &RollupLimits,
    now_ms: i64,
    stop: &Stop,
    go_on: impl FnMut(&Rolled) -> bool,
) -> Result<Rolled, TableError> {
    match roll_up(metrics, rollup, date, resolution, stem, limits, now_ms, stop, go_on) {
        Err(TableError::Canceled) => Ok(Rolled::default()),
        done => done,
    }
}

#[expect(clippy::too_many_arguments, reason = "independent arguments, and only one caller")]
fn roll_up(
    metrics: &Table,
    rollup: &Table,
    date: Date,
    resolution: Resolution,
    stem: &FileStem,
    limits: &RollupLimits,
    now_ms: i64,
    stop: &Stop,
    mut go_on: impl FnMut(&Rolled) -> bool,
) -> Result<Rolled, TableError> {
    // The files are read after the floodmark: a delete from now on moves the floodmark, so that the commit fails.
    let before = floodmark(rollup, date)?;
    metrics.refresh()?;
    let files = metrics.files()?;
    let day: Vec<LiveFile> = files.all().iter().filter(|f| f.date == date).cloned().collect();
    let upto = sequence(&day);
    if day.is_empty() || before.sequence_in(FORMAT).is_some_and(|made| made >= upto) {
        return Ok(Rolled::default());
    }
    let range = TimeRange::new(date.start_ms(), date.end_ms());
    let select = Select { range, stop: stop.clone(), ..Select::ALL };
    let scanned = ScanLimits { bytes: limits.window_bytes, ..ScanLimits::default() };
    let mut scan = Scan::open_files(metrics, &files, &Arc::new(Cache::new(0)), &select, &scanned)?;
    let mut writer = Writer::new(rollup, date, stem, limits.write);
    let mut rolled = Rolled::default();
    let (mut samples, mut builder) = (Samples::default(), LabelsBuilder::new());
    let mut columns: [Samples; 7] = Default::default();
    let (mut looked, mut omitted) = (0, OmittedSeries::new(date));
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
        columns.iter_mut().for_each(Samples::clear);
        bucket(&samples, resolution, &mut columns);
        if columns[0].is_empty() {
            continue;
        }
        let mut is_left_out = false;
        for (column, statistic) in columns.iter().zip(Statistic::ALL) {
            match labels_with(scan.labels(), statistic, &mut builder) {
                Some(labels) => writer.push(statistic, labels, scan.key(), column)?,
                None => is_left_out = true,
            }
        }
        if is_left_out {
            rolled.omitted += 1;
            omitted.add(scan.labels(), scan.key(), &mut writer)?;
        }
    }
    omitted.end(&mut writer)?;
    if let Some(reason) = scan.warnings().next() {
        return Err(TableError::Damaged { file: format!("(rollup of {date})"), reason });
    }
    let files = writer.finish()?;
    let old: Vec<LiveFile> = rollup.files()?.all().iter().filter(|f| f.date == date).cloned().collect();
    let block = StagedBlock {
        source: source(date),
        after: before.0,
        upto: Floodmark::made(upto),
        through: None,
        files,
    };
    rolled.committed = rollup.renew(&old, &block, now_ms)?;
    Ok(rolled)
}
