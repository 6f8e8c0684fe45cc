//! The thread that maintains tables: it applies retention, merges files, computes rollups, writes checkpoints, and
//! removes unused files.
//!
//! [`tables::upkeep`] finds out what a table needs, and does it. This module decides when each table has its turn,
//! and updates metrics and the log. Merges use at most half of the account `flush`, because sealing uses the other
//! half.
//!
//! - [`turns`]: order of tenants; [`slow_jobs`]: jobs that were interrupted
//! - [`policy`]: limits and intervals from the settings
//! - [`step_control`]: periodic checks of a long step
//! - [`rollups`]: schedule of rollups, by tenant and day

mod context;
mod policy;
mod rollups;
mod slow_jobs;
mod step_control;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use context::Context;

use crate::deletes;
use crate::refusal::Refusal;
use crate::retention::Retentions;
use crate::seal::Lake;
use crate::seal::tenant_tables::TenantTable;
use crate::telemetry::tables::TableMetrics;
use admission::Turns;
use model::TenantId;
use rollups::RolledDays;
use slow_jobs::SlowJobs;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError};
use std::time::{Duration, Instant};
use stdx::budget::Exhausted;
use step_control::StepControl;
use tables::compact::Progress;
use tables::upkeep::{Done, Policy, Step};
use tables::{FileStem, Table, TableError};
use tokio::sync::oneshot;
use turns::Turn;

/// Each table is checked at this interval.
const EVERY: Duration = Duration::from_secs(20);

/// A table is swept for files that it does not use at this interval. It is long because each sweep lists all files of
/// the table.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// One check of a table makes at most this many plans. The next plan is made once the steps of the previous plan are
/// done.
const PASSES_MAX: usize = 64;

const OPENED_AT_START_MAX: usize = 64;

const LOG_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum Message {
    /// Merge files and compute rollups until nothing is left to do.
    Compact(oneshot::Sender<Compacted>),
    Stop,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) merges: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) rollups: u64,
    /// Number of tables for which some work failed. It is retried later.
    pub(crate) failures: u64,
    /// Number of damaged files. They are not merged.
    pub(crate) damaged: u64,
}

#[derive(Debug, thiserror::Error)]
enum UpkeepError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("the server is shutting down")]
    Stopping,
}

/// The first error in the upkeep of a table. It does not end the upkeep, which continues with other steps.
#[derive(Debug, Default)]
struct FirstError(Option<TableError>);

impl FirstError {
    /// Keeps the error if it concerns only this table. Returns any other error, because it ends all work.
    fn note<T>(&mut self, done: Result<T, UpkeepError>) -> Result<Option<T>, UpkeepError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(UpkeepError::Table(error)) => {
                self.0.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn or<T>(self, done: T) -> Result<T, UpkeepError> {
        self.0.map_or(Ok(done), |error| Err(error.into()))
    }
}

#[derive(Debug)]
pub(crate) struct Upkeep {
    messages: Receiver<Message>,
    control: StepControl,
    states: HashMap<Key, TableState>,
    turns: Turns,
    /// Tables that have further jobs to do when it is their tenant's turn.
    waiting: BTreeSet<Key>,
    turn_bytes: u64,
    retentions: Retentions<2>,
    /// When the tables of all tenants were last visited, including tables that are not open.
    visited: Option<Instant>,
}

type Key = (TenantId, TenantTable);

#[derive(Debug, Default)]
struct TableState {
    upkeep: tables::upkeep::Upkeep,
    /// When upkeep of this table began to fail; `None` if the latest attempt succeeded.
    failing: Option<Instant>,
    rolled: RolledDays,
    /// Merges that were interrupted.
    slow: SlowJobs,
    /// Number of deletes that are not yet applied to all files.
    tombstones: usize,
    /// True if this table is needed but cannot be created, because the tenant has as many tables as it may have.
    lacks_room: bool,
}

impl Upkeep {
    pub(crate) fn new(context: Arc<Context>, messages: Receiver<Message>, stopping: Arc<AtomicBool>) -> Self {
        Self {
            messages,
            control: StepControl::new(context, stopping),
            states: HashMap::new(),
            turns: Turns::default(),
            waiting: BTreeSet::new(),
            turn_bytes: turns::TURN_BYTES,
            retentions: Retentions::default(),
            visited: None,
        }
    }

    pub(crate) fn run(mut self) {
        // the lowest priority of all threads
        let _ = rustix::process::nice(10);
        self.open_tables();
        loop {
            let is_behind = !self.waiting.is_empty() && !self.control.is_stopping();
            let pause = if is_behind { Duration::ZERO } else { EVERY };
            match self.messages.recv_timeout(pause) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Compact(answer)) => {
                    let compacted = self.compact_all();
                    let _ = answer.send(compacted); // the requester may be gone
                }
                Err(RecvTimeoutError::Timeout) => self.check_all(),
            }
        }
    }

    fn lake(&self) -> &Lake {
        &self.control.context.lake
    }

    /// Opens tables of samples before requests need them, and measures the sizes of samples and rollups.
    pub(super) fn open_tables(&mut self) {
        self.discover();
        for tenant in self.lake().tables.tenants(true).into_iter().take(OPENED_AT_START_MAX) {
            if !self.control.go_on() {
                return;
            }
            let table = self.lake().existing(&tenant);
            if let Ok(Some(table)) = &table {
                self.date(table);
            }
            if let Err(error) = table.and_then(|table| table.map(|t| t.files()).transpose()) {
                // queries will report the error, and the next check of the table will count it
                tracing::debug!(%tenant, %error, "cannot open a table");
            }
            for kind in TenantTable::ALL.into_iter().filter(|kind| *kind != TenantTable::Samples) {
                if let Ok(Some(table)) = self.lake().tables.visit(&tenant, kind) {
                    self.lake().tables.measure(&tenant, kind, &table);
                }
            }
        }
    }

    /// Tells the wall clock when the table's last commit was made, as evidence of the true time.
    fn date(&self, table: &Table) {
        if let Some(written_ms) = table.written_ms() {
            self.control.context.wall.found(written_ms, &*self.control.context.clock);
        }
    }

    /// Lists the tenants that have tables. Returns false if this failed.
    fn discover(&self) -> bool {
        let listed = self.lake().tables.discover();
        if let Err(error) = &listed {
            tracing::warn!(%error, "cannot list the tenants that have tables");
        }
        listed.is_ok()
    }

    pub(crate) fn check_all(&mut self) {
        self.maintain_all(false);
    }

    /// Merges files and computes rollups until nothing is left to do. Settings that delay or disable this do not
    /// apply.
    pub(crate) fn compact_all(&mut self) -> Compacted {
        self.maintain_all(true)
    }

    fn maintain_all(&mut self, all: bool) -> Compacted {
        let mut compacted = Compacted::default();
        if all {
            self.control.refresh_all();
        } else {
            self.control.refreshed = self.control.instant(); // tables are refreshed one by one below
        }
        let visits = all || self.visited.is_none_or(|at| self.control.since(at) >= SWEEP_EVERY);
        if visits && self.discover() {
            self.visited = Some(self.control.instant());
        }
        self.note_retentions();
        if visits {
            self.expire_events();
        }
        let mut tenants = self.lake().tables.tenants(visits);
        tenants.extend(self.waiting.iter().map(|(tenant, _)| tenant.clone()));
        if visits {
            self.states.retain(|(tenant, _), _| tenants.contains(tenant));
            self.turns.retain(|tenant| tenants.contains(tenant));
            let with_events: BTreeSet<_> = self.control.context.events.tenants().into_iter().collect();
            self.retentions.retain(|tenant| tenants.contains(tenant) || with_events.contains(tenant));
        }
        let began = self.control.instant();
        self.visit(&tenants, all, &mut compacted);
        let visiting = self.control.since(began);
        self.take_turns(visiting, all, &mut compacted);
        self.lake().tables.close_idle();
        self.control.context.wall.note(&*self.control.context.clock);
        self.publish();
        compacted
    }

    /// Does what is due for a table. Jobs are done only while it is the tenant's turn. Returns false if the table
    /// does not exist.
    fn maintain(
        &mut self,
        key: &Key,
        state: &mut TableState,
        turn: &mut Turn<'_>,
    ) -> Result<bool, UpkeepError> {
        let (tenant, kind) = key;
        let mut failed = FirstError::default();
        if let TenantTable::Rollup(resolution) = kind {
            failed.note(self.roll_up(tenant, *resolution, state, turn))?;
        }
        let Some(table) = self.lake().tables.visit(tenant, *kind)? else { return failed.or(false) };
        self.date(&table);
        let mut policy = self.policy(tenant, *kind, turn.all, &mut failed)?;
        if *kind == TenantTable::Samples {
            table.refresh()?;
            let passed = deletes::apply_to_rollups(self.lake(), tenant, &table, self.control.now().wall_ms)?;
            policy.deletes_upto = passed.upto;
            failed.note(passed.failed.map_or(Ok(()), |error| Err(error.into())))?;
        }
        for _ in 0..PASSES_MAX {
            let mut steps = state.upkeep.plan(&table, self.control.now(), &policy)?;
            let is_merge = |step: &Step| job_of(step).is_some();
            let is_planned = |slow: &str| steps.iter().any(|s| job_of(s).is_some_and(|(job, _)| job == slow));
            state.slow.retain(is_planned);
            let now = self.control.instant();
            steps.retain(|step| !job_of(step).is_some_and(|(job, _)| state.slow.rests(job, now)));
            steps.sort_by_key(|step| job_of(step).map_or(0, |(job, _)| state.slow.interruptions(job)));
            let mut merges = steps.iter().filter(|step| is_merge(step)).count();
            let mut is_last = merges == 0;
            for step in &steps {
                if is_merge(step) && turn.is_over() {
                    continue; // only merges take long, so other steps are done outside of turns too
                }
                self.lake().metrics.merge_jobs_waiting.set(merges as f64);
                let done = self.step(key, state, &table, step, &policy, turn);
                if let Err(UpkeepError::Table(TableError::Store(_))) = done {
                    return done.map(|()| true); // the store is unavailable, so each of the other steps would also fail after a timeout
                }
                // the failed step would be part of the next plan too
                is_last |= failed.note(done)?.is_none();
                merges -= usize::from(is_merge(step));
            }
            self.lake().metrics.merge_jobs_waiting.set(0.0);
            if is_last || turn.has_more {
                break;
            }
        }
        state.tombstones = table.files()?.tombstones().list.len();
        self.lake().tables.measure(tenant, *kind, &table);
        failed.or(true)
    }

    fn step(
        &mut self,
        key: &Key,
        state: &mut TableState,
        table: &Arc<Table>,
        step: &Step,
        policy: &Policy,
        turn: &mut Turn<'_>,
    ) -> Result<(), UpkeepError> {
        if self.control.is_stopping() {
            return Err(UpkeepError::Stopping);
        }
        let context = Arc::clone(&self.control.context);
        let (metrics, (tenant, kind)) = (&context.lake.metrics, key);
        let _memory = match (step, &policy.compact) {
            (Step::Compact(_) | Step::Purge(_), Some(limits)) => {
                let most = limits.memory_bytes() as u64;
                Some(context.lake.flush.reserve(most.min(context.lake.flush.limit_bytes() / 2))?)
            }
            _ => None,
        };
        let (now, began) = (self.control.now(), self.control.instant());
        let (mut logged_at, mut samples) = (began, 0);
        let ends = job_of(step).and_then(|(job, bytes)| turn.end_of(&state.slow, job, bytes, began));
        state.upkeep.stop_when(self.control.stop_at(ends));
        let go_on = |progress: &Progress| {
            metrics.merged_samples.add(progress.samples - samples);
            samples = progress.samples;
            if self.control.since(logged_at) >= LOG_EVERY {
                logged_at = self.control.instant();
                let read_bytes = progress.bytes;
                tracing::info!(%tenant, table = kind.folder(), read_bytes, samples, "compaction is in progress");
            }
            self.control.go_on() && !self.control.is_past(ends)
        };
        let stem = FileStem::rewritten(context.lake.random.fresh());
        let done = state.upkeep.run(table, step, &stem, now, policy, go_on);
        if let Some((job, bytes)) = job_of(step) {
            let is_success = !matches!(done, Err(_) | Ok(Done::Abandoned));
            turn.count(bytes, self.control.since(began), is_success);
            if matches!(done, Ok(Done::Abandoned)) && self.control.is_past(ends) {
                self.interrupted(key, &mut state.slow, job, bytes, turn);
            } else {
                state.slow.ended(job);
            }
        }
        let done = done?;
        context.lake.tables.measure(tenant, *kind, table);
        if let (Step::Compact(job) | Step::Purge(job), Done::Compacted(progress)) = (step, &done) {
            metrics.merged_samples.add(progress.samples - samples);
            let (files, bytes) = (job.files.len() as u64, job.bytes());
            turn.compacted.merges += 1;
            turn.compacted.files += files;
            turn.compacted.bytes += bytes;
            metrics.merges.inc();
            metrics.merged_files.add(files);
            metrics.merged_bytes.add(bytes);
            let (samples, seconds) = (progress.samples, self.control.since(began).as_secs_f64());
            let what = if matches!(step, Step::Purge(_)) {
                "rewritten without deleted samples"
            } else {
                "compacted"
            };
            tracing::info!(%tenant, table = kind.folder(), date = %job.date, files, bytes, samples, seconds, what);
        }
        if let Done::Damaged(file) = &done {
            let reason = state.upkeep.reason(file);
            tracing::error!(%tenant, table = kind.folder(), file, reason, "a file is damaged: it is not compacted, and answers to queries lack its samples");
        }
        count(metrics, key, &done);
        Ok(())
    }

    /// Notes that a job took too long, so that it gets more time later. If it has got all the time it can get, it rests.
    fn interrupted(
        &self,
        (tenant, kind): &Key,
        slow: &mut SlowJobs,
        job: &str,
        bytes: u64,
        turn: &mut Turn<'_>,
    ) {
        let (table, seconds) = (kind.folder(), slow.allowed(job, bytes).as_secs());
        self.lake().metrics.interrupted_jobs.inc();
        if slow.interrupted(job, self.control.instant()) {
            turn.compacted.failures += 1;
            tracing::warn!(%tenant, table, job, bytes, seconds, "a merge or rollup takes too long, and is tried again in an hour: perhaps patterns of deletes are slow");
        } else {
            turn.has_more = true;
            tracing::debug!(%tenant, table, job, bytes, seconds, "a merge or rollup was interrupted because other tenants wait");
        }
    }

    /// Records whether upkeep of a table has succeeded. The log gets a message only when this changes.
    fn note(&self, (tenant, kind): &Key, state: &mut TableState, done: Result<bool, UpkeepError>) {
        let table = kind.folder();
        match done {
            Ok(_) => {
                if let Some(since) = state.failing.take() {
                    let seconds = self.control.since(since).as_secs();
                    tracing::info!(%tenant, table, seconds, "upkeep of a table succeeds again");
                }
            }
            Err(UpkeepError::Stopping | UpkeepError::Memory(_)) => {}
            Err(error) => {
                self.lake().metrics.upkeep_failures.inc();
                if state.failing.is_none() {
                    state.failing = Some(self.control.instant());
                    tracing::warn!(%tenant, table, %error, "upkeep of a table failed and will be retried");
                }
            }
        }
    }

    fn publish(&self) {
        let metrics = &self.lake().metrics;
        metrics
            .failing_tables
            .set(self.states.values().filter(|state| state.failing.is_some()).count() as f64);
        let damaged: usize = self.states.values().map(|state| state.upkeep.damaged().count()).sum();
        metrics.damaged_files.set(damaged as f64);
        let tombstones: usize = self.states.values().map(|state| state.tombstones).sum();
        metrics.tombstones.set(tombstones as f64);
        let (tables, bytes) = self.lake().tables.open_stats();
        metrics.open_tables.set(tables as f64);
        metrics.open_tables_bytes.set(bytes as f64);
    }
}

/// Name and size of a merge. Other steps are no jobs.
fn job_of(step: &Step) -> Option<(&str, u64)> {
    let (Step::Compact(job) | Step::Purge(job)) = step else { return None };
    Some((job.files.first()?.path.as_str(), job.bytes()))
}

fn count(metrics: &TableMetrics, (tenant, kind): &Key, done: &Done) {
    let table = kind.folder();
    match done {
        Done::Expired(files) => {
            metrics.expired_files.add(*files as u64);
            tracing::info!(%tenant, table, files, "dropped files older than retention");
        }
        Done::Dropped(files) => {
            tracing::info!(%tenant, table, files, "dropped files whose samples were all deleted by requests");
        }
        Done::Swept(swept) => {
            metrics.vacuumed_files.add(swept.files);
            metrics.vacuumed_bytes.add(swept.bytes);
            if swept.files > 0 {
                let (files, bytes) = (swept.files, swept.bytes);
                tracing::info!(%tenant, table, files, bytes, "deleted files that no table needs");
            }
        }
        Done::Checkpointed => metrics.checkpoints.inc(),
        Done::Deleted(deletes) => {
            tracing::info!(%tenant, table, deletes, "all deleted samples are removed from the files of the table");
        }
        Done::Cleaned(_) | Done::Compacted(_) | Done::Clean | Done::Abandoned | Done::Damaged(_) => {}
    }
}

pub(crate) async fn compact(node: &crate::Node) -> Result<Compacted, Refusal> {
    let (answer, compacted) = oneshot::channel();
    node.upkeep().try_send(Message::Compact(answer)).map_err(|error| match error {
        TrySendError::Full(_) => {
            Refusal::busy("compacting", "other compaction requests are waiting; retry later")
        }
        TrySendError::Disconnected(_) => Refusal::stopping(),
    })?;
    compacted.await.map_err(|_| Refusal::stopping())
}
