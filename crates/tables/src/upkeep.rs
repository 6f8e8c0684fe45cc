//! Periodic maintenance of a table: expires old days, merges files, shortens the log, sweeps dead files.
//!
//! [`Upkeep::plan`] returns the due steps and only reads the log. [`Upkeep::run`] runs one step. An interrupted step is
//! due again.

use crate::compact::{self, CompactLimits, Job, Progress};
use crate::date::Date;
use crate::delta::{Cleaned, Files, Sweeper, Swept, Table};
use crate::error::TableError;
use crate::fault;
use crate::live_file::LiveFile;
use crate::read::Stop;
use crate::store::FileStem;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Maximum number of damaged files that are remembered. If there are more, some are forgotten, and tried again.
const DAMAGED_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, since the Unix epoch. It determines which days are over, and may jump.
    pub wall_ms: i64,
    /// Monotonic clock for periods: setting the wall clock must not delete files.
    pub steady_ms: i64,
}

/// Maximum number of table versions that are remembered. If there are more within the grace period, the log is cleaned
/// later.
const SEEN_MAX: usize = 1000;

/// Intervals and ages at which each step is due.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Samples before this time expire, by whole files. `None` keeps everything.
    pub expire_before_ms: Option<i64>,
    /// `None` if this process neither compacts nor rewrites files.
    pub compact: Option<CompactLimits>,
    /// Tombstones up to this sequence may be removed. Rollups may need later ones.
    pub deletes_upto: i64,
    /// Grace period for unneeded files and log entries. Must be longer than any query, and than the time from staging
    /// to commit.
    pub grace_ms: i64,
    pub sweep_every_ms: i64,
    pub checkpoint_every: u64,
    /// Time for which log entries before a checkpoint are kept; at least the grace period.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Removes files with only old samples.
    Expire {
        /// First millisecond that is kept.
        before_ms: i64,
    },
    /// Removes files whose samples are all deleted.
    DropDeleted,
    Compact(Job),
    /// If a file has deleted rows, rewrites the file without them.
    Purge(Job),
    /// Removes tombstones applied to every file.
    EndDeletes,
    Checkpoint,
    CleanLog,
    Sweep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Expired(usize),
    /// Number of removed files, whose samples were all deleted.
    Dropped(usize),
    Compacted(Progress),
    /// The file has no deleted rows.
    Clean,
    /// Number of completed deletes.
    Deleted(usize),
    /// Nothing was changed, because another program was faster or the caller stopped the job.
    Abandoned,
    /// The damaged file is skipped from now on; see [`Upkeep::damaged`].
    Damaged(String),
    Checkpointed,
    Cleaned(Cleaned),
    Swept(Swept),
}

/// Upkeep of one table. Its state only saves work, and is rebuilt after a restart.
#[derive(Debug, Default)]
pub struct Upkeep {
    sweeper: Sweeper,
    swept_ms: Option<i64>,
    /// Versions of the table, with the monotonic time at which each was first seen: the last version that is older
    /// than the grace period, and later ones.
    seen: VecDeque<(u64, i64)>,
    /// Damaged files with their damage.
    damaged: BTreeMap<String, String>,
    /// Live files without deleted rows, each with the sequence of the last tombstone that it was compared with.
    clean: HashMap<String, i64>,
    stop: Stop,
}

impl Upkeep {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes [`Self::run`] give up a compaction or purge once `stop` is set, even while it compares labels with the
    /// patterns of deletes. `go_on` is asked only now and then.
    pub fn stop_when(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// Returns the steps that are due, in the order in which to run them.
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
            // files whose samples are all deleted are removed without being read
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

    /// Runs a step. `stem` must be new each time. A compaction passes its progress to `go_on`, and stops if `go_on`
    /// returns `false`.
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
                let limits = policy.compact.unwrap_or_default();
                let done = compact::run(table, job, stem, limits, &self.stop, go_on);
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
                let go_on = || go_on(&Progress::default());
                let swept = self.sweeper.sweep_while(table, now.steady_ms, policy.grace_ms, go_on)?;
                self.swept_ms = Some(now.steady_ms);
                Ok(Done::Swept(swept))
            }
        }
    }

    /// Latest version that is older than the grace period, so that no read of an earlier version is still running.
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

    /// Rewrites a job's file if it has deleted rows.
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
        let go_on_checking = || go_on(&Progress::default());
        match compact::has_deleted_rows(table, &files, file, &limits, &self.stop, go_on_checking)? {
            None => Ok(Done::Abandoned),
            Some(false) => {
                self.clean.insert(file.path.clone(), last.sequence);
                Ok(Done::Clean)
            }
            Some(true) => {
                let done = compact::run(table, job, stem, limits, &self.stop, go_on)?;
                Ok(done.map_or(Done::Abandoned, Done::Compacted))
            }
        }
    }

    /// True if the file was found to have no rows that tombstones up to `sequence` delete.
    fn is_clean(&self, file: &LiveFile, sequence: i64) -> bool {
        self.clean.get(&file.path).is_some_and(|upto| *upto >= sequence)
    }

    /// True if at least one delete with a sequence of at most `upto` has been applied to all files.
    fn ends_any(&self, files: &Files, upto: i64) -> bool {
        files
            .tombstones()
            .list
            .iter()
            .take_while(|t| t.sequence <= upto)
            .any(|t| !files.all().iter().any(|file| t.concerns(file) && !self.is_clean(file, t.sequence)))
    }

    fn forget_gone(&mut self, files: &Files) {
        if files.tombstones().list.is_empty() {
            self.clean = HashMap::new();
        } else if !self.clean.is_empty() {
            let live: HashSet<&str> = files.all().iter().map(|file| file.path.as_str()).collect();
            self.clean.retain(|path, _| live.contains(path.as_str()));
        }
    }

    /// Turns an error about a damaged file into a result, and records the file. A step whose file was removed
    /// meanwhile is given up.
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

    pub fn reason(&self, file: &str) -> &str {
        self.damaged.get(file).map_or("", String::as_str)
    }

    /// Damaged files found by compactions, with their damage. Queries omit them with a warning, and they stay until
    /// they expire.
    pub fn damaged(&self) -> impl Iterator<Item = (&str, &str)> {
        self.damaged.iter().map(|(file, reason)| (file.as_str(), reason.as_str()))
    }
}

#[cfg(test)]
mod tests;
