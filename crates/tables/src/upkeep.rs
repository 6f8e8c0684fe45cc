//! Periodic maintenance of a table: old days expire, files are merged, the log is shortened, dead files are swept.
//!
//! [`Upkeep::plan`] returns the steps that are due, and only reads the log. [`Upkeep::run`] runs one step.
//! The shell decides when, on which thread and with how much memory. A step may be interrupted at any point,
//! and is then due again. A later sweep deletes the files that the interrupted step wrote.

use crate::compact::{self, CompactLimits, Job, Progress};
use crate::date::Date;
use crate::delta::{Cleaned, Files, Sweeper, Swept, Table};
use crate::error::TableError;
use crate::fault;
use crate::live_file::LiveFile;
use crate::store::FileStem;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Maximum number of damaged files that are remembered. Beyond this number, the first of them are retried.
const DAMAGED_MAX: usize = 1000;

/// Current time by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch. The wall clock determines which days are over, and may jump.
    pub wall_ms: i64,
    /// Milliseconds of a monotonic clock. They measure periods: a file must not be deleted because the wall
    /// clock was set.
    pub steady_ms: i64,
}

/// Maximum number of versions that are remembered for the log's grace period. With more versions in one period, the log is
/// cleaned later.
const SEEN_MAX: usize = 1000;

/// Intervals and ages at which each step is due.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Samples older than this expire, by whole files: a file is kept until all its samples are older. `None` keeps everything.
    pub expire_before_ms: Option<i64>,
    /// Limits of compaction; `None` if this process neither compacts nor rewrites files with deleted samples.
    pub compact: Option<CompactLimits>,
    /// Sequence up to which tombstones may be removed; later ones are still needed elsewhere, for example by rollups.
    pub deletes_upto: i64,
    /// Grace period for files and log entries that are no longer needed. It must be longer than any query, and longer than the
    /// time between staging and committing.
    pub grace_ms: i64,
    /// Time between two sweeps.
    pub sweep_every_ms: i64,
    /// Versions between two checkpoints.
    pub checkpoint_every: u64,
    /// Retention of log entries before a checkpoint, by the store's clock; never shorter than the grace period.
    pub log_keep_ms: i64,
}

impl Default for Policy {
    fn default() -> Self {
        const HOUR: i64 = 3_600_000;
        Self {
            expire_before_ms: None,
            compact: Some(CompactLimits::default()),
            deletes_upto: i64::MAX,
            grace_ms: HOUR,
            sweep_every_ms: HOUR / 4,
            checkpoint_every: 50,
            log_keep_ms: 24 * HOUR,
        }
    }
}

/// A step of maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Removes files whose samples are all too old.
    Expire {
        /// The first millisecond that is kept.
        before_ms: i64,
    },
    /// Removes files of which deletes hide every row.
    DropDeleted,
    /// Merges files.
    Compact(Job),
    /// Rewrites a file without deleted rows, if it has any.
    Purge(Job),
    /// Removes tombstones that have been applied to every file.
    EndDeletes,
    /// Writes a checkpoint of the log.
    Checkpoint,
    /// Deletes log entries before a checkpoint.
    CleanLog,
    /// Deletes dead files.
    Sweep,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// Number of files expired.
    Expired(usize),
    /// Number of files removed because deletes hide every row.
    Dropped(usize),
    /// The files are merged.
    Compacted(Progress),
    /// The file has no deleted rows.
    Clean,
    /// Number of deletes that are now complete.
    Deleted(usize),
    /// Another program was faster, or the caller stopped the job.
    Abandoned,
    /// This file of the job is damaged, and is skipped from now on; see [`Upkeep::damaged`].
    Damaged(String),
    Checkpointed,
    /// Old log files were deleted.
    Cleaned(Cleaned),
    /// Dead files were deleted.
    Swept(Swept),
}

/// The upkeep of one table. Its state only saves work, and is rebuilt after a restart.
#[derive(Debug, Default)]
pub struct Upkeep {
    sweeper: Sweeper,
    swept_ms: Option<i64>,
    /// Versions that were seen, with their monotonic times: the last one older than the grace period, and all since.
    seen: VecDeque<(u64, i64)>,
    /// Damaged files, and the damage of each.
    damaged: BTreeMap<String, String>,
    /// Live files without deleted rows: path, and sequence of the last tombstone that the file was compared with.
    clean: HashMap<String, i64>,
}

impl Upkeep {
    /// Creates an upkeep without any state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Steps that are due now, in order.
    pub fn plan(&mut self, table: &Table, now: Now, policy: &Policy) -> Result<Vec<Step>, TableError> {
        table.refresh()?;
        let files = table.files()?;
        self.forget_gone(&files);
        let mut steps = Vec::new();
        if let Some(before_ms) = policy.expire_before_ms
            && files.all().iter().any(|f| f.is_before(before_ms))
        {
            steps.push(Step::Expire { before_ms });
        }
        if let Some(limits) = &policy.compact {
            if files.covered(policy.deletes_upto).next().is_some() {
                steps.push(Step::DropDeleted);
            }
            // they are dropped without being read, now or once the deletes are not needed elsewhere
            let covered: HashSet<&str> = files.covered(i64::MAX).map(|file| file.path.as_str()).collect();
            let is_left =
                |f: &LiveFile| self.damaged.contains_key(&f.path) || covered.contains(f.path.as_str());
            let jobs = compact::plan(table.kind(), files.all(), Date::of(now.wall_ms), limits, is_left);
            let is_clean = |f: &LiveFile, sequence| is_left(f) || self.is_clean(f, sequence);
            let purges = compact::purges(&files, &jobs, is_clean);
            steps.extend(jobs.into_iter().map(Step::Compact));
            steps.extend(purges.into_iter().map(Step::Purge));
            if self.ends_any(&files, policy.deletes_upto) {
                steps.push(Step::EndDeletes);
            }
        }
        if files.version() >= table.checkpointed().saturating_add(policy.checkpoint_every) {
            steps.push(Step::Checkpoint);
        }
        let last = self.swept_ms.map(|at| now.steady_ms.saturating_sub(at));
        if last.is_none_or(|since_ms| since_ms >= policy.sweep_every_ms) {
            steps.extend([Step::CleanLog, Step::Sweep]);
        }
        Ok(steps)
    }

    /// Runs a step. `stem` must be new each time. A compaction calls `go_on` with its progress at intervals, and stops if
    /// `go_on` returns `false`.
    pub fn run(
        &mut self,
        table: &Arc<Table>,
        step: &Step,
        stem: &FileStem,
        now: Now,
        policy: &Policy,
        mut go_on: impl FnMut(&Progress) -> bool,
    ) -> Result<Done, TableError> {
        match step {
            Step::Expire { before_ms } => {
                let mut expired = 0;
                loop {
                    match table.expire(*before_ms)? {
                        0 => return Ok(Done::Expired(expired)),
                        n => {
                            fault::point("expired")?;
                            expired += n;
                        }
                    }
                    if !go_on(&Progress::default()) {
                        return Ok(Done::Expired(expired));
                    }
                }
            }
            Step::DropDeleted => {
                let mut dropped = 0;
                loop {
                    match table.remove_fully_deleted(policy.deletes_upto)?.len() {
                        0 => return Ok(Done::Dropped(dropped)),
                        n => dropped += n,
                    }
                    if !go_on(&Progress::default()) {
                        return Ok(Done::Dropped(dropped));
                    }
                }
            }
            Step::Compact(job) => {
                let done = compact::run(table, job, stem, policy.compact.unwrap_or_default(), go_on);
                self.or_damaged(table, done.map(|done| done.map_or(Done::Abandoned, Done::Compacted)))
            }
            Step::Purge(job) => {
                let done = self.purge(table, job, stem, policy.compact.unwrap_or_default(), go_on);
                self.or_damaged(table, done)
            }
            Step::EndDeletes => {
                let is_clean = |file: &LiveFile, sequence| self.is_clean(file, sequence);
                let ended = table.end_deletes(policy.deletes_upto, is_clean)?;
                fault::point("deletes_ended")?;
                Ok(Done::Deleted(ended))
            }
            Step::Checkpoint => {
                table.checkpoint()?;
                fault::point("checkpointed")?;
                Ok(Done::Checkpointed)
            }
            Step::CleanLog => {
                let before_ms = now.wall_ms.saturating_sub(policy.log_keep_ms);
                let upto = self.settled(table.version(), now.steady_ms, policy.grace_ms);
                let cleaned = upto.map_or(Ok(Cleaned::default()), |upto| table.clean_log(before_ms, upto));
                cleaned.map(Done::Cleaned)
            }
            Step::Sweep => {
                let swept = self.sweeper.sweep(table, now.steady_ms, policy.grace_ms)?;
                self.swept_ms = Some(now.steady_ms);
                Ok(Done::Swept(swept))
            }
        }
    }

    /// Latest version that is at least one grace period old. Reads of earlier versions have ended.
    fn settled(&mut self, version: u64, steady_ms: i64, grace_ms: i64) -> Option<u64> {
        if self.seen.back().is_none_or(|(last, _)| *last < version) {
            self.seen.push_back((version, steady_ms));
        }
        let is_old = |(_, at): &(u64, i64)| steady_ms.saturating_sub(*at) >= grace_ms;
        while self.seen.len() > SEEN_MAX || self.seen.get(1).is_some_and(is_old) {
            self.seen.pop_front();
        }
        self.seen.front().filter(|first| is_old(first)).map(|(version, _)| *version)
    }

    /// Rewrites the file of a job, unless no row of it was deleted.
    fn purge(
        &mut self,
        table: &Arc<Table>,
        job: &Job,
        stem: &FileStem,
        limits: CompactLimits,
        mut go_on: impl FnMut(&Progress) -> bool,
    ) -> Result<Done, TableError> {
        let files = table.files()?;
        let Some(last) = files.tombstones().list.last() else { return Ok(Done::Abandoned) };
        let file = &job.files[0];
        match compact::has_deleted_rows(table, &files, file, &limits, || go_on(&Progress::default()))? {
            None => Ok(Done::Abandoned),
            Some(false) => {
                self.clean.insert(file.path.clone(), last.sequence);
                Ok(Done::Clean)
            }
            Some(true) => {
                let done = compact::run(table, job, stem, limits, go_on)?;
                Ok(done.map_or(Done::Abandoned, Done::Compacted))
            }
        }
    }

    /// True if no row of the file is deleted by a tombstone up to `sequence`.
    fn is_clean(&self, file: &LiveFile, sequence: i64) -> bool {
        self.clean.get(&file.path).is_some_and(|upto| *upto >= sequence)
    }

    /// True if a delete up to `upto` has been applied to all files.
    fn ends_any(&self, files: &Files, upto: i64) -> bool {
        files
            .tombstones()
            .list
            .iter()
            .take_while(|t| t.sequence <= upto)
            .any(|t| !files.all().iter().any(|file| t.concerns(file) && !self.is_clean(file, t.sequence)))
    }

    /// Forgets clean files that are no longer live, so that no more files are remembered than are live.
    fn forget_gone(&mut self, files: &Files) {
        if files.tombstones().list.is_empty() {
            self.clean = HashMap::new();
        } else if !self.clean.is_empty() {
            let live: HashSet<&str> = files.all().iter().map(|file| file.path.as_str()).collect();
            self.clean.retain(|path, _| live.contains(path.as_str()));
        }
    }

    /// Records a file that a step found damaged. A step whose file was deleted meanwhile is given up.
    fn or_damaged(&mut self, table: &Table, done: Result<Done, TableError>) -> Result<Done, TableError> {
        let (file, reason) = match done {
            Err(TableError::Missing { file }) => {
                table.refresh()?;
                if !table.files()?.all().iter().any(|live| live.path == file) {
                    return Ok(Done::Abandoned);
                }
                (file, "the table's log names it, but the object store does not have it".into())
            }
            Err(TableError::Damaged { file, reason }) => (file, reason),
            done => return done,
        };
        self.leave(file.clone(), reason);
        Ok(Done::Damaged(file))
    }

    fn leave(&mut self, file: String, reason: String) {
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged.pop_first();
        }
        self.damaged.insert(file, reason);
    }

    /// Damage of a file.
    pub fn reason(&self, file: &str) -> &str {
        self.damaged.get(file).map_or("", String::as_str)
    }

    /// Damaged files that a compaction found, and the damage of each. Queries omit these files with a warning. The files stay
    /// in place for the operator until they expire.
    pub fn damaged(&self) -> impl Iterator<Item = (&str, &str)> {
        self.damaged.iter().map(|(file, reason)| (file.as_str(), reason.as_str()))
    }
}

#[cfg(test)]
mod tests;
