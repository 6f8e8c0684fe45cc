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
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use stdx::budget::Account;
use stdx::telemetry::Registry;
use tables::delta::Floodmark;
use tables::rollup::Resolution;
use tables::{Cache, METRICS, Table, TableError};
use telemetry::SealMetrics;
use tenant_tables::{TenantTable, TenantTables};

/// Name of each tenant's table into which rounds seal samples.
const TABLE: &str = METRICS.name;

/// All tenants' tables, and the floodmarks of all partitions.
#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) tables: TenantTables,
    /// Identities of the partitions' journals.
    journals: Vec<Arc<dyn Identity>>,
    manifest: Mutex<Manifest>,
    /// For each partition whose marks were lost, the end of the offsets that tables may know; 0 for other partitions.
    trusted: Vec<AtomicU64>,
    /// Memory for files being written.
    pub(crate) flush: Account,
    /// Cached footers and ranges of files.
    pub(crate) cache: Arc<Cache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) metrics: TableMetrics,
    /// Metrics of sealing.
    pub(crate) sealing: SealMetrics,
    pub(crate) blocked: BlockedTenants,
    pub(crate) closed: Closed,
    /// Arrival of the oldest sample that is frozen and not committed, in milliseconds since the Unix epoch; `i64::MAX` if there
    /// is none.
    pub(crate) in_rounds_since_ms: AtomicI64,
    pub(crate) faults: Faults,
    pub(crate) random: RandomSource,
}

/// Error while the tables are set up.
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
    /// Sets up the tables of a data directory. Makes no request to the store, because a node can often start without
    /// the store.
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
            faults: Faults::default(),
            random,
        })
    }

    /// Fails if the store lacks put-if-absent, because commits could then be overwritten. A store that does not answer
    /// now is checked again before the first commit.
    pub(crate) fn check_store(&self) -> Result<(), LakeError> {
        Ok(self.tables.check_store()?)
    }

    pub(crate) fn mark(&self, partition: usize) -> Mark {
        self.manifest.lock().marks(TABLE)[partition].clone()
    }

    /// Changes the marks of all partitions, on disk first.
    pub(super) fn change_marks(&self, change: impl FnMut((usize, &mut Mark))) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks(TABLE).to_vec();
        marks.iter_mut().enumerate().for_each(change);
        if marks == manifest.marks(TABLE) { Ok(()) } else { manifest.store(TABLE, marks) }
    }

    /// Renames a partition's journal, because tables know offsets under the old name that this journal never assigned.
    /// `sealed` lists tenants whose tables have the journal up to an offset beyond their marks; `end` is past the last
    /// assigned offset.
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
        // greater offsets belong to the other journal
        mark.tenants.values_mut().for_each(|own| own.passes = own.passes.filter(|passes| *passes <= end));
        // if the process crashes before the journal has its new name, the old mark is still there under the old name
        manifest.announce(TABLE, mark.clone())?;
        journal.change(id.number)?;
        tracing::warn!(
            partition,
            source = name,
            "renamed the journal: tables have offsets of a different journal with the old name"
        );
        Ok(manifest.settle(TABLE, partition, marks.swap_remove(partition))?)
    }

    /// True if the marks account for a table's floodmark. Otherwise, the floodmark comes from another journal of the
    /// same name, which was lost or replaced by a copy.
    pub(crate) fn is_known(&self, partition: usize, own: &TenantMark, floodmark: &Floodmark) -> bool {
        let known = own.upto.max(own.passes.unwrap_or(0));
        floodmark.end() <= known.max(self.trusted[partition].load(Ordering::Relaxed))
            || own.attempt == Some(floodmark.end())
    }

    /// Notes the floodmarks that a replay up to `end` has read from tables. Only open passes remain in doubt.
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

    /// Closes a tenant because a partition's floodmark cannot be read from its table.
    pub(crate) fn close(&self, partition: usize, tenant: &TenantId, why: String, since_ms: i64) {
        self.closed.add(tenant, partition, why);
        self.blocked.add(tenant, since_ms);
    }

    /// Notes that commits of a partition's closed tenants are in doubt, up to their attempts or, without attempts, up
    /// to the journal's `end`. The journal is kept from the first unsealed sample of these tenants on.
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

    /// Reopens a closed tenant for a partition whose journal is replayed up to `end`. Returns true if the tenant is
    /// open in all partitions.
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
        // a floodmark beyond the end belongs to another journal of this name, which the next round detects
        let upto = own.upto.max(floodmark.upto.min(end));
        let passes = Some(floodmark.end()).filter(|passes| *passes > floodmark.upto && *passes <= end);
        mark.tenants.insert(tenant.as_str().into(), TenantMark { upto, attempt: None, passes, ..own });
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot save a table's floodmark; the next replay reads it again");
        }
        drop(manifest);
        self.closed.remove(tenant, partition)
    }

    /// A tenant's table of samples; creates it if absent.
    pub(crate) fn table(&self, tenant: &TenantId) -> Result<Arc<Table>, TableError> {
        self.tables.open_or_create(tenant, TenantTable::Samples)
    }

    /// Makes a commit visible to queries. Must be called before the committed samples leave the head.
    pub(crate) fn publish_commits(&self, tenant: &TenantId, table: &Arc<Table>) {
        self.tables.publish_commits(tenant, TenantTable::Samples, table);
    }

    /// A tenant's table of samples, if it has one.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, TenantTable::Samples)
    }

    /// A tenant's rollup, if it has one. [`tables::rollup::days`] lists its complete days.
    pub(crate) fn rollup(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, TenantTable::Rollup(resolution))
    }

    /// A journal's floodmark in a tenant's table. Fences the table, so that commits of earlier processes can no longer
    /// move the floodmark.
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
