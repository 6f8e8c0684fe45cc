//! Small files to large ones: which, decided without I/O, and the merge itself, in bounded memory.
//!
//! Sealing makes small files, since fresh data shall be safe soon. A merge of files of one day makes larger
//! ones: fewer to open, labels stored once instead of once a seal, longer rows that pack better. It changes
//! no data and no floodmark, so it may die at any point and begin again; what it leaves behind is swept.
//!
//! Where a series has two samples of one time, that of the later write counts. So only files that are
//! neighbours in the order of writes are merged, and the result takes the place of the last of them:
//!
//! ```text
//!   sequence   11  12  13  14  15  16  17         11  14        17
//!   size       L   s   s   s   L   s   s    ─▶    L   m    L    s s    (14 = 12 ∪ 13 ∪ 14)
//! ```

use crate::block::{Date, Stretch};
use crate::delta::{LiveFile, StagedFile, Table};
use crate::error::TableError;
use crate::merge::Merge;
use crate::read::{Cursor, Footer, NameRange, Select};
use crate::store::{StoredFile, Upload};
use crate::write::FileWriter;
use model::Samples;
use std::sync::Arc;

/// Samples in a merged row. Longer rows save labels, of which 4,096 samples leave some 0.02 bytes each;
/// shorter ones save decoding what a query's range leaves out.
pub const ROW_SAMPLES_MAX: usize = 4096;

/// Parts that a job can be split into.
pub const SHARDS_MAX: usize = 64;

/// What is merged, and how far.
#[derive(Debug, Clone, Copy)]
pub struct CompactLimits {
    /// Files of one merge. Each holds a window of [`CompactLimits::window_bytes`] and a decoded batch (about as
    /// much again), so this bounds memory.
    pub fan_in: usize,
    /// Bytes of one merge's files together: what is lost if it dies.
    pub job_bytes: u64,
    /// Files of like size that a day which is not over must have before they are merged.
    pub files_min: usize,
    /// Bytes of each file that are fetched at a time.
    pub window_bytes: usize,
    /// Encoded bytes of a row group of the result.
    pub row_group_bytes: usize,
    /// Bytes after which a file of the result is finished and the next begun. A file this large is not merged
    /// again, unless late samples came for it.
    pub file_bytes: u64,
}

impl Default for CompactLimits {
    fn default() -> Self {
        Self {
            fan_in: 16,
            job_bytes: 1 << 30,
            files_min: 4,
            window_bytes: 1 << 20,
            row_group_bytes: 4 << 20,
            file_bytes: 128 << 20,
        }
    }
}

impl CompactLimits {
    /// The most that one running merge holds, footers and the labels of decoded rows aside: what to buy before
    /// it begins.
    pub const fn memory_bytes(&self) -> usize {
        self.fan_in * (self.window_bytes + self.window_bytes / 2 + (1 << 20))
            + 3 * self.row_group_bytes
            + crate::store::PART_BYTES
    }
}

/// Files of one day, neighbours in the order of writes, that become one (or, if large, a few).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The day.
    pub date: Date,
    /// In the order of writes.
    pub files: Vec<LiveFile>,
}

impl Job {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Cuts the job by metric names into at most `count` parts of about the same size, which may be merged at
    /// the same time, by different threads. Their results are committed together.
    pub fn shards(&self, table: &Table, count: usize) -> Result<Vec<NameRange>, TableError> {
        let mut groups = Vec::new();
        for file in &self.files {
            groups.extend(Footer::read(&table.file(file)?)?.row_group_names());
        }
        Ok(cut_names(groups, count.clamp(1, SHARDS_MAX)))
    }
}

/// Cuts names where each part has about the same bytes.
fn cut_names(mut groups: Vec<(String, u64)>, count: usize) -> Vec<NameRange> {
    groups.sort();
    let total: u64 = groups.iter().map(|(_, bytes)| *bytes).sum();
    let first = groups.first().map(|(name, _)| name.clone());
    let (mut cuts, mut seen) = (Vec::new(), 0);
    for (name, bytes) in groups {
        let due = total / count as u64 * (cuts.len() as u64 + 1);
        if seen >= due
            && cuts.len() + 1 < count
            && Some(&name) != first.as_ref()
            && cuts.last() != Some(&name)
        {
            cuts.push(name);
        }
        seen += bytes;
    }
    let from = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
    let before = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
    from.zip(before).map(|(from, before)| NameRange { from, before }).collect()
}

/// Files that share a sequence: they are merged together or not at all.
struct Unit<'a> {
    files: &'a [LiveFile],
    bytes: u64,
}

/// Chooses what to merge, of the live files by day and sequence (as [`crate::delta::Files::all`] has them). Days
/// before `today` get no more files, but for late samples, so they are merged down to few; `today` only as files
/// pile up. No file is in two jobs: they can run side by side. Files that `leave` names are left alone, and what
/// lies on both sides of them is not brought together.
pub fn plan(
    files: &[LiveFile],
    today: Date,
    limits: &CompactLimits,
    leave: impl Fn(&LiveFile) -> bool,
) -> Vec<Job> {
    let mut jobs = Vec::new();
    for day in files.chunk_by(|a, b| a.date == b.date) {
        let units: Vec<Unit<'_>> = day
            .chunk_by(|a, b| a.sequence == b.sequence)
            .map(|files| Unit { files, bytes: files.iter().map(|f| f.bytes).sum() })
            .collect();
        let over = day[0].date < today;
        for run in units.split(|unit| unit.files.iter().any(&leave)) {
            if over { plan_over(run, limits, &mut jobs) } else { plan_open(run, limits, &mut jobs) }
        }
    }
    jobs
}

/// Where a merge of these units may end at the latest.
fn reach(units: &[Unit<'_>], limits: &CompactLimits) -> usize {
    let (mut files, mut bytes) = (0, 0);
    let fits = |unit: &&Unit<'_>| {
        files += unit.files.len();
        bytes += unit.bytes;
        files <= limits.fan_in && bytes <= limits.job_bytes
    };
    units.iter().take_while(fits).count()
}

fn job(units: &[Unit<'_>]) -> Job {
    let files: Vec<LiveFile> = units.iter().flat_map(|u| u.files).cloned().collect();
    Job { date: files[0].date, files }
}

/// A day that is over: everything that fits together, where it is worth the rewriting of the largest.
fn plan_over(mut units: &[Unit<'_>], limits: &CompactLimits, jobs: &mut Vec<Job>) {
    let large = |u: &Unit<'_>| u.bytes >= limits.file_bytes;
    if let [only] = units
        && only.files.len() > 1
        && !large(only)
    {
        // a rollup's files, which came together: they hold different series, so any of them may be merged
        let files = only.files[..only.files.len().min(limits.fan_in)].to_vec();
        return jobs.push(Job { date: files[0].date, files });
    }
    while units.len() > 1 {
        let len = reach(units, limits).max(1);
        let run = &units[..len];
        let bytes: u64 = run.iter().map(|u| u.bytes).sum();
        let largest = run.iter().map(|u| u.bytes).max().unwrap_or(0);
        let worth = bytes - largest >= largest / 4 || len > limits.fan_in / 2 || !run.iter().any(large);
        if len > 1 && worth && !run.iter().all(large) {
            jobs.push(job(run));
            units = &units[len..];
        } else {
            units = &units[1..];
        }
    }
}

/// A day that goes on: runs of units of like size, so that each sample is rewritten a few times only.
fn plan_open(mut units: &[Unit<'_>], limits: &CompactLimits, jobs: &mut Vec<Job>) {
    let level = |unit: &Unit<'_>| unit.bytes.max(1 << 16).ilog2() / 2;
    while !units.is_empty() {
        let top = level(&units[0]);
        let alike = units.iter().take_while(|u| level(u) <= top && u.bytes < limits.file_bytes).count();
        let len = alike.min(reach(units, limits));
        let run = &units[..len];
        let of_top = run.iter().filter(|u| level(u) == top).count();
        // small ones between larger ones go with them, but do not make a run of their own here
        if len >= limits.files_min.max(2) && of_top * 2 >= limits.files_min {
            jobs.push(job(run));
            units = &units[len..];
        } else {
            units = &units[1..];
        }
    }
}

/// A merge that runs in steps. Nothing is in the table before [`Table::replace`] of the job's files with what
/// all its shards' merges came to.
#[derive(Debug)]
pub struct Compaction {
    table: Arc<Table>,
    date: Date,
    name: String,
    limits: CompactLimits,
    merge: Merge<StoredFile>,
    writer: Option<FileWriter<Upload>>,
    samples: Samples,
    staged: Vec<StagedFile>,
    progress: Progress,
}

/// How far a merge is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes: u64,
    /// Series merged.
    pub series: u64,
    /// Samples written.
    pub samples: u64,
    /// True where nothing is left to do.
    pub done: bool,
}

impl Compaction {
    /// Opens a job's files, or the part of them with names in `within`. `name` begins the names of new files, and
    /// must be new for each attempt and shard. A damaged file fails it: [`TableError::Damaged`] names it.
    pub fn open(
        table: &Arc<Table>,
        job: &Job,
        within: NameRange,
        name: &str,
        limits: CompactLimits,
    ) -> Result<Self, TableError> {
        let select = Arc::new(Select { within, ..Select::ALL });
        let mut cursors = Vec::with_capacity(job.files.len());
        for file in &job.files {
            let stored = table.file(file)?;
            let footer = Arc::new(Footer::read(&stored)?);
            cursors.push(Cursor::new(stored, footer, Arc::clone(&select), limits.window_bytes));
        }
        Ok(Self {
            table: Arc::clone(table),
            date: job.date,
            name: name.into(),
            limits,
            merge: Merge::new(cursors, false)?,
            writer: None,
            samples: Samples::default(),
            staged: Vec::new(),
            progress: Progress::default(),
        })
    }

    /// Merges on, until about `samples` more are written or nothing is left.
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
        self.samples.clear();
        while self.merge.next_chunk(&mut self.samples)? {
            self.write_rows(ROW_SAMPLES_MAX)?;
        }
        self.write_rows(1)
    }

    /// Writes rows while there are `least` samples for one.
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
                    let name = format!("{}-{}", self.name, self.staged.len() + 1);
                    let upload = self.table.upload(self.date, &name)?;
                    none.insert(FileWriter::new(self.date, upload, self.limits.row_group_bytes)?)
                }
            };
            writer.push(&stretch)?;
            self.progress.samples += (end - at) as u64;
            at = end;
            if writer.written_bytes() as u64 >= self.limits.file_bytes {
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
        }
        Ok(())
    }

    /// Bytes of memory that it holds now, footers aside.
    pub fn held_bytes(&self) -> usize {
        let samples = 8 * (self.samples.timestamps.capacity() + self.samples.values.capacity());
        self.merge.held_bytes() + samples + self.writer.as_ref().map_or(0, FileWriter::held_bytes)
    }

    /// The files it made, once it is done.
    pub fn into_staged(self) -> Vec<StagedFile> {
        assert!(self.progress.done, "BUG: a merge is taken when it is done");
        self.staged
    }
}

/// Runs a whole job on this thread. `false` where another program was faster and one of the files is gone; what
/// was made then waits for a sweep.
pub fn run(table: &Arc<Table>, job: &Job, name: &str, limits: &CompactLimits) -> Result<bool, TableError> {
    let mut merge = Compaction::open(table, job, NameRange::ALL, name, *limits)?;
    merge.step(u64::MAX)?;
    table.replace(&job.files, &merge.into_staged())
}

#[cfg(test)]
mod tests;
