//! The thread that keeps tables in shape: retention, compaction, checkpoints, vacuum.
//!
//! Each job is small, can die at any point and begins again; between two of them the thread looks whether it is to stop.
//! Memory for a merge is bought from the account `flush`, of which sealing takes the other half.

use super::Lake;
use crate::node::Shared;
use crate::refusal::Refusal;
use model::TenantId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use stdx::budget::Exhausted;
use tables::compact::{CompactLimits, Compaction, Job, plan};
use tables::delta::Sweeper;
use tables::read::NameRange;
use tables::{Date, Table, TableError};
use tokio::sync::oneshot;

/// How often tables are looked at.
const EVERY: Duration = Duration::from_secs(20);

/// How often files that nobody needs are looked for: all of a table's files are listed for it.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Versions of a table after which its log gets a checkpoint.
const CHECKPOINT_VERSIONS: u64 = 20;

/// Samples between two looks whether to stop: some hundredths of a second.
const STEP_SAMPLES: u64 = 200_000;

/// Rounds of planning for one request to compact: each makes the number of files fall.
const PASSES_MAX: usize = 64;

/// What the thread can be told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Compact until nothing is left to do.
    Compact(oneshot::Sender<Compacted>),
    Stop,
}

/// What compaction came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) merges: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Jobs that failed, and are tried again later.
    pub(crate) failures: u64,
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

/// The upkeep thread's state.
#[derive(Debug)]
pub(crate) struct Upkeep {
    node: Arc<Shared>,
    orders: Receiver<Order>,
    stopping: Arc<AtomicBool>,
    tenants: HashMap<TenantId, State>,
    swept: Instant,
    refreshed: Instant,
    discovered: bool,
    is_failing: bool,
}

/// What is remembered of a table.
#[derive(Debug, Default)]
struct State {
    sweeper: Sweeper,
    checkpoint: u64,
    /// The version at which nothing was left to merge.
    settled: Option<u64>,
}

impl Upkeep {
    pub(crate) fn new(node: Arc<Shared>, orders: Receiver<Order>, stopping: Arc<AtomicBool>) -> Self {
        let now = node.clock.instant();
        Self {
            node,
            orders,
            stopping,
            tenants: HashMap::new(),
            swept: now,
            refreshed: now,
            discovered: false,
            is_failing: false,
        }
    }

    /// The thread's life.
    pub(crate) fn run(mut self) {
        // everything else comes first
        let _ = rustix::process::nice(10);
        loop {
            match self.orders.recv_timeout(EVERY) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Compact(answer)) => {
                    let compacted = self.compact_all();
                    let _ = answer.send(compacted); // who asked may be gone
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Looks for what others have committed (imports, other engines): queries see it from then on.
    fn refresh_all(&mut self) {
        for (tenant, table) in self.node.lake.open_tables() {
            if self.is_stopping() {
                return;
            }
            if let Err(error) = table.refresh() {
                // the next look at the table counts it
                tracing::debug!(%tenant, %error, "cannot look for newer versions of a table");
            }
        }
        self.refreshed = self.node.clock.instant();
    }

    /// One look at all tables.
    pub(crate) fn look(&mut self) {
        let now = self.node.clock.instant();
        let sweeps = now.duration_since(self.swept) >= SWEEP_EVERY;
        if sweeps {
            self.swept = now;
        }
        self.refreshed = now; // one by one, below
        if !self.discovered || sweeps {
            self.discovered = true;
            if let Err(error) = self.node.lake.tables.discover() {
                tracing::debug!(%error, "not all tables could be opened");
            }
        }
        for (tenant, table) in self.node.lake.open_tables() {
            if self.is_stopping() {
                return;
            }
            let done = self.keep(&tenant, &table, sweeps);
            self.note(&tenant, done);
        }
    }

    /// The log has one line for each change of state.
    fn note(&mut self, tenant: &TenantId, done: Result<(), UpkeepError>) {
        match done {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!(%tenant, "upkeep of tables gets on again");
            }
            Ok(()) | Err(UpkeepError::Stopping | UpkeepError::Memory(_)) => {}
            Err(error) => {
                self.node.lake.metrics.upkeep_failures.inc();
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%tenant, %error, "upkeep of a table does not get on; it is tried again");
                }
            }
        }
    }

    fn keep(&mut self, tenant: &TenantId, table: &Arc<Table>, sweeps: bool) -> Result<(), UpkeepError> {
        table.refresh()?;
        self.expire(tenant, table)?;
        if self.node.settings.lake.compaction {
            self.compact(tenant, table, &mut Compacted::default())?;
        }
        self.checkpoint(tenant, table)?;
        if sweeps {
            self.sweep(tenant, table)?;
        }
        Ok(())
    }

    /// Drops what is older than the tenant's retention, whole files at a time.
    fn expire(&self, tenant: &TenantId, table: &Table) -> Result<(), UpkeepError> {
        let settings = &self.node.settings.lake;
        let retention_ms = settings.tenant_retention_ms.get(tenant).copied().or(settings.retention_ms);
        let Some(retention_ms) = retention_ms else { return Ok(()) };
        let before_ms = self.node.clock.now_ms().saturating_sub(retention_ms);
        loop {
            let files = table.expire(before_ms)?;
            self.node.lake.metrics.expired_files.add(files as u64);
            if files == 0 || self.is_stopping() {
                return Ok(());
            }
            tracing::info!(%tenant, files, "dropped what is older than retention");
        }
    }

    pub(crate) fn compact_all(&mut self) -> Compacted {
        let mut compacted = Compacted::default();
        self.refresh_all();
        for (tenant, table) in self.node.lake.open_tables() {
            self.tenants.entry(tenant.clone()).or_default().settled = None;
            let done = self.compact(&tenant, &table, &mut compacted);
            compacted.failures += u64::from(done.is_err());
            self.note(&tenant, done);
        }
        compacted
    }

    /// Merges until nothing is left to merge.
    fn compact(
        &mut self,
        tenant: &TenantId,
        table: &Arc<Table>,
        compacted: &mut Compacted,
    ) -> Result<(), UpkeepError> {
        let limits = limits(&self.node.lake);
        for _ in 0..PASSES_MAX {
            let version = table.version();
            let state = self.tenants.entry(tenant.clone()).or_default();
            if state.settled == Some(version) {
                return Ok(());
            }
            let files = table.files()?;
            let jobs = plan(files.all(), Date::of(self.node.clock.now_ms()), &limits, |_| false);
            let node = Arc::clone(&self.node);
            let waiting = &node.lake.metrics.merge_jobs_waiting;
            if jobs.is_empty() {
                waiting.set(0.0);
                state.settled = Some(version);
                return Ok(());
            }
            for (done, job) in jobs.iter().enumerate() {
                waiting.set((jobs.len() - done) as f64);
                self.merge(tenant, table, job, limits, compacted)?;
            }
            waiting.set(0.0);
        }
        Ok(())
    }

    fn merge(
        &mut self,
        tenant: &TenantId,
        table: &Arc<Table>,
        job: &Job,
        limits: CompactLimits,
        compacted: &mut Compacted,
    ) -> Result<(), UpkeepError> {
        let node = Arc::clone(&self.node);
        let lake = &node.lake;
        let _memory = lake.flush.reserve(limits.memory_bytes() as u64)?;
        let began = Instant::now();
        let name = format!("{:016x}", lake.chance.fresh());
        let mut compaction = Compaction::open(table, job, NameRange::ALL, &name, limits)?;
        loop {
            if self.is_stopping() {
                return Err(UpkeepError::Stopping);
            }
            if compaction.step(STEP_SAMPLES)?.done {
                break;
            }
            if self.node.clock.instant().duration_since(self.refreshed) >= EVERY {
                self.refresh_all();
            }
        }
        let staged = compaction.into_staged();
        let (files, bytes) = (job.files.len() as u64, job.bytes());
        if table.replace(&job.files, &staged)? {
            compacted.merges += 1;
            compacted.files += files;
            compacted.bytes += bytes;
            lake.metrics.merges.inc();
            lake.metrics.merged_files.add(files);
            lake.metrics.merged_bytes.add(bytes);
            let seconds = began.elapsed().as_secs_f64();
            tracing::info!(%tenant, date = %job.date, files, bytes, into = staged.len(), seconds, "compacted");
        }
        Ok(())
    }

    fn checkpoint(&mut self, tenant: &TenantId, table: &Table) -> Result<(), UpkeepError> {
        let version = table.version();
        let state = self.tenants.entry(tenant.clone()).or_default();
        if version >= state.checkpoint + CHECKPOINT_VERSIONS {
            table.checkpoint()?;
            state.checkpoint = version;
            self.node.lake.metrics.checkpoints.inc();
        }
        Ok(())
    }

    /// Deletes files that left the table, and log entries that lie before a checkpoint, after their grace.
    fn sweep(&mut self, tenant: &TenantId, table: &Table) -> Result<(), UpkeepError> {
        let (now_ms, grace_ms) = (self.node.clock.now_ms(), self.node.settings.lake.vacuum_grace_ms);
        let state = self.tenants.entry(tenant.clone()).or_default();
        let swept = state.sweeper.sweep(table, now_ms, grace_ms)?;
        self.node.lake.metrics.vacuumed_files.add(swept.files);
        self.node.lake.metrics.vacuumed_bytes.add(swept.bytes);
        if swept.files > 0 {
            tracing::info!(%tenant, files = swept.files, bytes = swept.bytes, "deleted files that no table needs");
        }
        table.clean_log(now_ms.saturating_sub(grace_ms.max(LOG_KEPT_MS)))?;
        Ok(())
    }
}

/// Old versions can be read at least so long.
const LOG_KEPT_MS: i64 = 86_400_000;

/// Limits whose memory fits into half of the account.
fn limits(lake: &Lake) -> CompactLimits {
    let half = (lake.flush.limit_bytes() / 2) as usize;
    let mut limits = CompactLimits::default();
    while limits.memory_bytes() > half && limits.fan_in > 4 {
        limits.fan_in /= 2;
        limits.window_bytes = (limits.window_bytes / 2).max(128 << 10);
        limits.row_group_bytes = (limits.row_group_bytes / 2).max(512 << 10);
    }
    limits
}

/// Asks for compaction and waits until nothing is left to do.
pub(crate) async fn compact(node: &crate::Node) -> Result<Compacted, Refusal> {
    let (answer, compacted) = oneshot::channel();
    let busy = || Refusal::busy("compacting", "upkeep is busy, or the server is shutting down");
    node.upkeep().try_send(Order::Compact(answer)).map_err(|_| busy())?;
    compacted.await.map_err(|_| Refusal::stopping())
}
