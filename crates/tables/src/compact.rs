//! Compaction: merges a day's small files into large ones, which take less space and are faster to read. Choosing files
//! needs no I/O, and merging needs bounded memory.
//!
//! Compaction changes neither samples nor floodmarks, so an interruption does no harm. Of two samples with the same
//! timestamp, the later write wins. So only neighbours in the order of writes are merged, and the result takes the
//! position of the last one:
//!
//! ```text
//!   sequence   11  12  13  14  15  16  17         11  14        17
//!   size       L   s   s   s   L   s   s    ─▶    L   m    L    s s    (14 = 12 ∪ 13 ∪ 14)
//! ```
//!
//! Of Floodmark's own files, only the first may be merged with another engine's files, which come before all others
//! ([`crate::live_file::LiveFile::rank`]).
//!
//! A merge applies the tombstones, and the name of its result says so. No job is larger than
//! [`CompactLimits::job_bytes`]: larger days are merged by ranges of metric names. Each job is one commit.
//!
//! - [`plan`]: chooses files; [`ranges`]: name ranges of a day; [`purge`]: rewrites files with deleted rows
//! - [`records`]: merges files of records, whose rows are not series

mod plan;
mod purge;
mod ranges;
mod records;

use crate::date::Date;
use crate::delta::{Files, StagedFile, Table};
use crate::error::TableError;
use crate::fault;
use crate::kind::records::RECORDS;
use crate::merge::Merge;
use crate::read::{Cursor, DECODER_BYTES, Footer, Select, Stop};
use crate::store::FileStem;
use crate::store::{StoredFile, Upload};
use crate::write::FileWriter;
use crate::write::Stretch;
use model::Samples;
use model::labels::METRIC_NAME;
use std::sync::Arc;

pub use plan::{Job, plan};
pub(crate) use purge::{has_deleted_rows, purges};

/// Maximum number of samples in a merged row. Longer rows would save few bytes and cost more decoding.
pub const ROW_SAMPLES_MAX: usize = 4096;

/// Each time it has merged this many samples, [`run`] asks `go_on` whether to continue.
const STEP_SAMPLES: u64 = 4_000;

#[derive(Debug, Clone, Copy)]
pub struct CompactLimits {
    /// Maximum number of files that a job merges at once. For each of them, the job holds a decoder (1.4 MiB), a
    /// window of the file and a decoded batch in memory.
    pub fan_in: usize,
    /// Maximum total bytes of a job's files. Larger files are not merged again.
    pub job_bytes: u64,
    /// The current day's files are merged as soon as about this many files of similar size have accumulated.
    pub files_min: usize,
    /// Number of bytes of each file that are fetched at a time.
    pub window_bytes: usize,
    /// Encoded bytes at which a row group of a result file ends.
    pub row_group_bytes: usize,
    /// Size after which a result file ends at the next change of metric; a file of twice this size ends at once.
    pub file_bytes: u64,
}

impl Default for CompactLimits {
    fn default() -> Self {
        Self {
            fan_in: 16,
            job_bytes: 512 << 20,
            files_min: 4,
            window_bytes: 1 << 20,
            row_group_bytes: 4 << 20,
            file_bytes: 128 << 20,
        }
    }
}

impl CompactLimits {
    /// Limits for a table of records. In larger row groups, dictionaries take less space.
    pub fn for_records() -> Self {
        Self { row_group_bytes: 16 << 20, ..Self::default() }
    }

    /// Maximum memory of a job, without footers and labels. Reserve it before the job begins.
    pub const fn memory_bytes(&self) -> usize {
        self.fan_in * (self.window_bytes + self.window_bytes / 2 + DECODER_BYTES)
            + 3 * self.row_group_bytes
            + crate::store::PART_BYTES
    }
}

/// A running compaction job, which merges its files into new ones step by step. The table changes only when
/// [`Table::replace`] swaps the new files in.
#[derive(Debug)]
pub struct Compaction {
    table: Arc<Table>,
    /// Keeps the job's files from being erased.
    _files: Arc<Files>,
    date: Date,
    stem: FileStem,
    limits: CompactLimits,
    file_bytes: u64,
    merge: Merge<StoredFile>,
    deletes: bool,
    writer: Option<FileWriter<Upload>>,
    /// Metric names at which a new result file begins, in descending order, so that the next name is the last element.
    cuts: Vec<String>,
    metric: String,
    samples: Samples,
    staged: Vec<StagedFile>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub series: u64,
    pub samples: u64,
    pub done: bool,
}

impl Compaction {
    /// Opens a job's files. `stem` must be new for each attempt. Fails with [`TableError::Damaged`] on a damaged file.
    pub fn open(
        table: &Arc<Table>,
        job: &Job,
        stem: &FileStem,
        limits: CompactLimits,
    ) -> Result<Self, TableError> {
        Self::open_until(table, job, stem, limits, Stop::NEVER)
    }

    /// Like [`Self::open`]. This and all steps fail with [`TableError::Canceled`] once `stop` is set.
    fn open_until(
        table: &Arc<Table>,
        job: &Job,
        stem: &FileStem,
        limits: CompactLimits,
        stop: Stop,
    ) -> Result<Self, TableError> {
        let select = Arc::new(Select { stop, ..Select::ALL });
        let mut cursors = Vec::with_capacity(job.files.len());
        let (live, mut deletes) = (table.files()?, false);
        for file in &job.files {
            let stored = table.file(file)?;
            let footer = Arc::new(Footer::read(table.kind(), &stored)?);
            let mask = live.mask(file);
            deletes |= mask.is_some();
            cursors.push(Cursor::new(stored, footer, Arc::clone(&select), limits.window_bytes).masked(mask));
        }
        let is_early = job.files.iter().all(|file| file.is_early);
        let applied = live.tombstones().list.last().map(|last| stem.applied(last.sequence));
        let stem = applied.unwrap_or_else(|| stem.clone());
        Ok(Self {
            table: Arc::clone(table),
            date: job.date,
            stem: if is_early { stem.early() } else { stem },
            _files: live,
            limits,
            file_bytes: even_bytes(job, &limits),
            merge: Merge::new(cursors, false)?,
            deletes,
            writer: None,
            cuts: job.cuts.iter().rev().cloned().collect(),
            metric: String::new(),
            samples: Samples::default(),
            staged: Vec::new(),
            progress: Progress::default(),
        })
    }

    /// Merges about `samples` more samples, or all that are left.
    pub fn step(&mut self, samples: u64) -> Result<Progress, TableError> {
        let until = self.progress.samples.saturating_add(samples);
        while !self.progress.done && self.progress.samples < until {
            if self.merge.next_series()? {
                self.write_series()?;
            } else {
                self.end_file()?;
                self.progress.done = true;
            }
        }
        self.progress.bytes = self.merge.stats().bytes;
        Ok(self.progress)
    }

    fn write_series(&mut self) -> Result<(), TableError> {
        self.progress.series += 1;
        self.next_metric()?;
        self.samples.clear();
        while self.merge.next_chunk(&mut self.samples)? {
            self.write_rows(ROW_SAMPLES_MAX)?;
        }
        self.write_rows(1)
    }

    /// Ends the current file at a change of metric, if it is large enough.
    fn next_metric(&mut self) -> Result<(), TableError> {
        let metric = self.merge.labels().get(METRIC_NAME).unwrap_or("");
        if metric == self.metric {
            return Ok(());
        }
        self.metric.clear();
        self.metric.push_str(metric);
        let mut ends = self.writer.as_ref().is_some_and(|w| w.written_bytes() as u64 >= self.file_bytes);
        while self.cuts.pop_if(|cut| cut.as_str() <= self.metric.as_str()).is_some() {
            ends = true;
        }
        if ends { self.end_file() } else { Ok(()) }
    }

    /// Writes pending samples of the current series as rows, until fewer than `least` of them are pending.
    fn write_rows(&mut self, least: usize) -> Result<(), TableError> {
        let mut at = 0;
        while self.samples.timestamps.len() - at >= least {
            let end = (at + ROW_SAMPLES_MAX).min(self.samples.timestamps.len());
            let stretch = Stretch {
                labels: self.merge.labels(),
                key: self.merge.key(),
                timestamps: &self.samples.timestamps[at..end],
                values: &self.samples.values[at..end],
            };
            let writer = match &mut self.writer {
                Some(writer) => writer,
                none => {
                    let number = self.staged.len() as u32 + 1;
                    let upload = self.table.upload(self.date, &self.stem, number)?;
                    none.insert(FileWriter::new(
                        self.table.kind(),
                        self.date,
                        upload,
                        self.limits.row_group_bytes,
                    )?)
                }
            };
            writer.push(&stretch)?;
            self.progress.samples += (end - at) as u64;
            at = end;
            if writer.written_bytes() as u64 >= 2 * self.file_bytes {
                self.end_file()?;
            }
        }
        self.samples.timestamps.drain(..at);
        self.samples.values.drain(..at);
        Ok(())
    }

    fn end_file(&mut self) -> Result<(), TableError> {
        if let Some(writer) = self.writer.take() {
            let (summary, upload) = writer.finish()?;
            self.staged.push(self.table.staged(summary, upload)?);
            fault::point("compaction_file_staged")?;
        }
        Ok(())
    }

    /// Memory that the job uses at present, without footers.
    pub fn held_bytes(&self) -> usize {
        let samples = 8 * (self.samples.timestamps.capacity() + self.samples.values.capacity());
        self.merge.held_bytes() + samples + self.writer.as_ref().map_or(0, FileWriter::held_bytes)
    }

    pub fn into_staged(self) -> Vec<StagedFile> {
        assert!(self.progress.done, "BUG: the result of an unfinished job is taken");
        self.staged
    }
}

/// Target size for the result files, chosen so that all of them have about the same size.
fn even_bytes(job: &Job, limits: &CompactLimits) -> u64 {
    match job.bytes() / limits.file_bytes {
        0 => limits.file_bytes,
        files => job.bytes() / files,
    }
}

/// Runs a whole job on this thread and replaces its files with the result. Every [`STEP_SAMPLES`] samples, it asks
/// `go_on` whether to continue.
///
/// Returns `None` without a change once `stop` is set, which is noticed while deleted rows are skipped, too; if `go_on`
/// returns `false`; or if a file was removed meanwhile. A sweep deletes the new files then.
pub fn run(
    table: &Arc<Table>,
    job: &Job,
    stem: &FileStem,
    limits: CompactLimits,
    stop: &Stop,
    go_on: impl FnMut(&Progress) -> bool,
) -> Result<Option<Progress>, TableError> {
    let done = match table.kind().name == RECORDS.name {
        true => records::merge(table, job, stem, limits, stop, go_on),
        false => merge(table, job, stem, limits, stop, go_on),
    };
    match done {
        Err(TableError::Canceled) => Ok(None),
        done => done,
    }
}

fn merge(
    table: &Arc<Table>,
    job: &Job,
    stem: &FileStem,
    limits: CompactLimits,
    stop: &Stop,
    mut go_on: impl FnMut(&Progress) -> bool,
) -> Result<Option<Progress>, TableError> {
    let mut compaction = Compaction::open_until(table, job, stem, limits, stop.clone())?;
    fault::point("compaction_opened")?;
    loop {
        let progress = compaction.step(STEP_SAMPLES)?;
        fault::point("compacting")?;
        if progress.done {
            let deletes = compaction.deletes;
            let staged = compaction.into_staged();
            fault::point("compaction_staged")?;
            let replaced = table.rewrite(&job.files, &staged, deletes)?;
            fault::point("compaction_committed")?;
            return Ok(replaced.then_some(progress));
        }
        if !go_on(&progress) {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests;
