//! Sealing: flushes heads into tables exactly once, then truncates the journal.
//!
//! ```text
//!   sealer ── freeze ─▶ owner        the head's content below offset O is fixed
//!      │  ◀─── O ──────────┘
//!      ├─ stage: frozen series, in the table's order ─▶ Parquet files, not visible yet
//!      ├─ note the attempt                              (manifest)
//!      ├─ commit: files + floodmark O, one log entry for each tenant's table
//!      ├─ note the floodmark                            (manifest)
//!      ├─ wait for the queries that began before        (pins)
//!      └─ sealed ─▶ owner            the frozen data leaves the head, its records leave the journal
//! ```
//!
//! - [`manifest`]: floodmarks of all partitions
//! - [`pins`]: queries that still need sealed samples in the head
//! - [`state_machine`]: decides what is sealed and when; [`sealer`]: the thread that does it
//! - [`flush`]: flushes on request; [`blocked`]: blocked tenants, for admission and metrics
//! - [`closed`]: tenants whose tables could not be read at the start
//! - [`stage`]: frozen series to files
//! - [`workers`]: thread pool for work on tables
//! - [`tenant_tables`]: locations of tenants' tables, and a cache of open ones
//! - [`fault`]: fault points for tests

pub(crate) mod blocked;
mod closed;
mod context;
mod error;
pub(crate) mod fault;
pub(crate) mod flush;
pub(crate) mod flushed;
mod manifest;
pub(crate) mod pins;
mod progress;
pub(crate) mod sealer;
mod stage;
mod state_machine;
pub(crate) mod telemetry;
pub(crate) mod tenant_tables;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod workers;

pub(crate) use context::Context;
pub(crate) use manifest::{Mark, TenantMark};

use crate::datadir::DataDir;
use crate::limits::budget::Budget;
use crate::settings::LakeSettings;
use crate::telemetry::tables::TableMetrics;
use crate::world::{RandomSource, World};
use blocked::BlockedTenants;
use closed::Closed;
use error::SealError;
use fault::Faults;
use journal::{Identity, JournalId};
use manifest::Manifest;
use model::TenantId;
use parking_lot::Mutex;
use pins::Pins;
use progress::Progress;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::telemetry::Registry;
use tables::delta::Floodmark;
use tables::rollup::Resolution;
use tables::{Cache, METRICS, Table, TableError};
use telemetry::SealMetrics;
use tenant_tables::{TenantTable, TenantTables};

const TABLE: &str = METRICS.name;

#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) tables: TenantTables,
    journals: Vec<Arc<dyn Identity>>,
    manifest: Mutex<Manifest>,
    /// For each partition, an offset, usually 0. It is set if the partition's marks were lost: floodmarks in tables
    /// up to this offset are then taken to be floodmarks of this journal.
    trusted: Vec<AtomicU64>,
    pub(crate) flush: Account,
    pub(crate) cache: Arc<Cache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) metrics: TableMetrics,
    pub(crate) sealing: SealMetrics,
    pub(crate) blocked: BlockedTenants,
    pub(crate) closed: Closed,
    /// Arrival time of the oldest sample that is frozen but not committed yet, in Unix milliseconds; `i64::MAX` if
    /// there is none.
    pub(crate) in_rounds_since_ms: AtomicI64,
    pub(crate) progress: Progress,
    pub(crate) faults: Faults,
    pub(crate) random: RandomSource,
}

#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The URL or an option is invalid, or the store would let a commit overwrite another.
    #[error("tables: {0}")]
    Location(#[from] TableError),
    /// The threads for requests to the store cannot be started.
    #[error("tables: cannot start threads for requests to the store: {0}")]
    Io(#[from] io::Error),
}

impl Lake {
    /// Sets up the tables of a data directory. This makes no request to the store, which may be unavailable now.
    pub(crate) fn open(
        settings: &LakeSettings,
        data_dir: &DataDir,
        journals: Vec<Arc<dyn Identity>>,
        world: &World,
        flush: Account,
        budget: &Budget,
        registry: &Registry,
    ) -> Result<Self, LakeError> {
        let random = world.random.clone();
        let names: Vec<_> = journals.iter().map(|journal| journal.id().to_string()).collect();
        let metrics = TableMetrics::new(registry);
        let (open_bytes_max, repairs) = (budget.tables_bytes() as usize, metrics.log_repairs.clone());
        Ok(Self {
            tables: TenantTables::at(settings, world, open_bytes_max, repairs)?,
            manifest: Mutex::new(Manifest::load(
                Arc::clone(&data_dir.disk),
                &data_dir.path,
                &[TABLE],
                &names,
            )),
            trusted: journals.iter().map(|_| AtomicU64::new(0)).collect(),
            journals,
            flush,
            cache: Arc::new(Cache::new(budget.cache_bytes() as usize)),
            pins: Arc::default(),
            metrics,
            sealing: SealMetrics::new(registry),
            blocked: BlockedTenants::default(),
            closed: Closed::default(),
            in_rounds_since_ms: AtomicI64::new(i64::MAX),
            progress: Progress::new(world.clock.instant()),
            faults: Faults::default(),
            random,
        })
    }

    /// Fails if the store does not support creating a file only if it does not exist yet, because commits could then
    /// overwrite each other. If the store does not answer, the check is repeated before the first commit.
    pub(crate) fn check_store(&self) -> Result<(), LakeError> {
        Ok(self.tables.check_store()?)
    }

    pub(crate) fn mark(&self, partition: usize) -> Mark {
        self.manifest.lock().marks(TABLE)[partition].clone()
    }

    /// Changes the marks of all partitions, first on disk and then in memory.
    pub(super) fn change_marks(&self, change: impl FnMut((usize, &mut Mark))) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks(TABLE).to_vec();
        marks.iter_mut().enumerate().for_each(change);
        if marks == manifest.marks(TABLE) { Ok(()) } else { manifest.store(TABLE, marks) }
    }

    /// Gives a partition's journal a new name, because tables have offsets that a different journal with the same
    /// name has written. `sealed` has tenants whose table already has records beyond the tenant's mark, each with the
    /// end of these records. `end` is the end of this journal.
    pub(crate) fn rename_source(
        &self,
        partition: usize,
        end: u64,
        sealed: impl IntoIterator<Item = (TenantId, u64)>,
    ) -> Result<(), SealError> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks(TABLE).to_vec();
        let mark = &mut marks[partition];
        let journal = &self.journals[partition];
        let id = JournalId { number: self.random.fresh(), ..journal.id() };
        let name = id.to_string();
        for (tenant, upto) in sealed {
            let own = TenantMark { source: name.clone(), upto, attempt: None, passes: None };
            mark.tenants.insert(tenant.as_str().into(), own);
        }
        mark.source.clone_from(&name);
        mark.attempt = None;
        mark.tenants.values_mut().for_each(|own| own.passes = own.passes.filter(|passes| *passes <= end));
        // if the process crashes before the rename, the journal still has its old name, whose mark is still in the
        // file
        manifest.announce(TABLE, mark.clone())?;
        journal.change(id.number)?;
        tracing::warn!(
            partition,
            source = name,
            "renamed the journal: tables have offsets of a different journal with the old name"
        );
        Ok(manifest.settle(TABLE, partition, marks.swap_remove(partition))?)
    }

    /// True if this journal may have written a table's floodmark, judging by the marks. Otherwise, it was written by
    /// a different journal that has the same name.
    pub(crate) fn is_known(&self, partition: usize, own: &TenantMark, floodmark: &Floodmark) -> bool {
        let known = own.upto.max(own.passes.unwrap_or(0));
        floodmark.end() <= known.max(self.trusted[partition].load(Ordering::Relaxed))
            || own.attempt == Some(floodmark.end())
    }

    pub(crate) fn settle<'a>(
        &self,
        partition: usize,
        end: u64,
        found: impl IntoIterator<Item = (&'a TenantId, &'a Floodmark)>,
    ) {
        let mut manifest = self.manifest.lock();
        let mut mark = manifest.marks(TABLE)[partition].clone();
        if mark.is_unknown() {
            self.trusted[partition].store(end, Ordering::Relaxed);
        }
        mark.attempt = None;
        let closed = self.closed.of(partition);
        for (tenant, own) in &mut mark.tenants {
            if !closed.iter().any(|closed| closed.as_str() == tenant) {
                own.attempt = None;
            }
        }
        for (tenant, floodmark) in found {
            let own = mark.of(tenant);
            let passes = (floodmark.end() > floodmark.upto).then_some(floodmark.end());
            let upto = own.upto.max(floodmark.upto);
            if (upto, passes) != (own.upto, own.passes) {
                mark.tenants.insert(tenant.as_str().into(), TenantMark { upto, passes, ..own });
            }
        }
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot save the floodmarks of tables; the next replay reads them again");
        }
    }

    pub(crate) fn close(&self, partition: usize, tenant: &TenantId, why: String, since_ms: i64) {
        self.closed.add(tenant, partition, why);
        self.blocked.add(tenant, since_ms);
    }

    /// Time until the tenant's table, which could not be read or written, is tried again. `None` if this is not known.
    pub(crate) fn until_retry(&self, tenant: &TenantId, now: Instant) -> Option<Duration> {
        match self.closed.contains(tenant) {
            true => self.progress.until_reopening(now),
            false => self.blocked.until_retry(tenant, now),
        }
    }

    /// Notes that the tables of closed tenants may have any record up to the tenant's attempt or, if that is unknown,
    /// up to the journal's `end`. The journal then keeps all records of these tenants that may be missing from
    /// tables.
    pub(crate) fn keep_in_doubt(&self, partition: usize, end: u64) {
        let closed = self.closed.of(partition);
        if closed.is_empty() {
            return;
        }
        let mut manifest = self.manifest.lock();
        let mut mark = manifest.marks(TABLE)[partition].clone();
        for tenant in closed {
            let own = mark.of(&tenant).in_doubt(end);
            mark.tenants.insert(tenant.as_str().into(), own);
        }
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot save which tenants are closed; the next replay determines it again");
        }
    }

    /// Opens a closed tenant again for one partition, whose journal was replayed up to `end` for this tenant. Returns
    /// true if the tenant is now open for all partitions.
    pub(crate) fn reopen(
        &self,
        partition: usize,
        end: u64,
        tenant: &TenantId,
        floodmark: &Floodmark,
    ) -> bool {
        let mut manifest = self.manifest.lock();
        let mut mark = manifest.marks(TABLE)[partition].clone();
        let own = mark.of(tenant);
        // a floodmark beyond the end was written by a different journal with the same name, which the next round
        // detects
        let upto = own.upto.max(floodmark.upto.min(end));
        let passes = Some(floodmark.end()).filter(|passes| *passes > floodmark.upto && *passes <= end);
        mark.tenants.insert(tenant.as_str().into(), TenantMark { upto, attempt: None, passes, ..own });
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot save a table's floodmark; the next replay reads it again");
        }
        drop(manifest);
        self.closed.remove(tenant, partition)
    }

    pub(crate) fn table(&self, tenant: &TenantId) -> Result<Arc<Table>, TableError> {
        self.tables.open_or_create(tenant, TenantTable::Samples)
    }

    /// Makes a commit visible to queries. This must happen before the samples leave the head, or queries would miss
    /// them.
    pub(crate) fn publish_commits(&self, tenant: &TenantId, table: &Arc<Table>) {
        self.tables.publish_commits(tenant, TenantTable::Samples, table);
    }

    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, TenantTable::Samples)
    }

    /// The table if it is open. This does not count as use.
    pub(crate) fn opened(&self, tenant: &TenantId) -> Option<Arc<Table>> {
        self.tables.opened(tenant, TenantTable::Samples)
    }

    pub(crate) fn rollup(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, TenantTable::Rollup(resolution))
    }

    /// Reads the floodmark of a journal in a tenant's table. First fences the table, so that a process started
    /// earlier can no longer change the floodmark.
    pub(crate) fn settled_floodmark(
        &self,
        tenant: &TenantId,
        source: &str,
    ) -> Result<Option<Floodmark>, TableError> {
        let Some(table) = self.tables.existing_now(tenant, TenantTable::Samples)? else { return Ok(None) };
        table.fence()?;
        table.progress(source)
    }
}
