//! Where data goes when it is no longer fresh: from the heads into tables, once and only once, and out of the journal.
//!
//! ```text
//!   sealer ── freeze ─▶ owner        everything below offset O stands still in the head
//!      │  ◀─── O ──────────┘
//!      ├─ stage: frozen series, in the table's order ─▶ Parquet files, which nobody sees yet
//!      ├─ note the attempt                              (manifest)
//!      ├─ commit: files + floodmark O, one log entry for each tenant's table
//!      ├─ note the floodmark                            (manifest)
//!      ├─ wait for the queries that began before        (pins)
//!      └─ sealed ─▶ owner            the frozen data leaves the head, its records leave the journal
//! ```
//!
//! - [`manifest`]: up to where each journal is in the tables
//! - [`pins`]: who may still need what is to go
//! - [`machine`]: decides what is sealed and when; [`sealer`]: the thread that does it
//! - [`flush`]: flushes on request; [`laggards`]: blocked tenants, as admission knows them
//! - [`closed`]: tenants whose tables could not be asked at the start
//! - [`stage`]: from frozen series to files
//! - [`workers`]: threads on which tables are worked with side by side
//! - [`tenants`]: where tenants' tables lie, and which are open
//! - [`fault`]: named places where a test lets a round be cut short

mod closed;
mod error;
pub(crate) mod fault;
pub(crate) mod flush;
pub(crate) mod laggards;
mod machine;
mod manifest;
pub(crate) mod pins;
pub(crate) mod sealer;
mod stage;
pub(crate) mod telemetry;
pub(crate) mod tenants;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod workers;

pub(crate) use manifest::{Mark, Own};

use crate::datadir::{DataDir, Source};
use crate::limits::budget::Budget;
use crate::settings::LakeSettings;
use crate::world::{Chance, World};
use closed::Closed;
use fault::Faults;
use laggards::Laggards;
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
use telemetry::LakeMetrics;
use tenants::{Kind, TenantTables};

/// Table that rounds seal into, of each tenant.
const TABLE: &str = METRICS.name;

/// All tenants' tables, and how far the journals are in them.
#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) tables: TenantTables,
    sources: Vec<Source>,
    manifest: Mutex<Manifest>,
    /// For each partition whose marks were lost: offsets that tables may well know, though no mark tells of them.
    trusted: Vec<AtomicU64>,
    /// Memory for files that are being made.
    pub(crate) flush: Account,
    /// Footers and ranges of files that queries read again and again.
    pub(crate) cache: Arc<Cache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) metrics: LakeMetrics,
    pub(crate) laggards: Laggards,
    pub(crate) closed: Closed,
    /// When the oldest sample came that a round of sealing has taken and not yet committed, in milliseconds since the Unix
    /// epoch; `i64::MAX` where there is none.
    pub(crate) in_rounds_since_ms: AtomicI64,
    pub(crate) faults: Faults,
    pub(crate) chance: Chance,
}

/// The tables cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The URL or an option.
    #[error("tables: {0}")]
    Location(#[from] TableError),
    /// The data directory.
    #[error("tables: {0}")]
    Io(#[from] io::Error),
}

impl Lake {
    /// Sets up the tables of a data directory. Nothing is looked for in the store yet: a
    /// node starts without it where it can.
    pub(crate) fn open(
        settings: &LakeSettings,
        data_dir: &DataDir,
        world: &World,
        flush: Account,
        budget: &Budget,
        registry: &Registry,
    ) -> Result<Self, LakeError> {
        let chance = world.chance.clone();
        let sources: Vec<_> = (0..data_dir.identity.partitions).map(|n| Source::of(data_dir, n)).collect();
        let names = sources.iter().map(|s| s.name(chance.fresh())).collect::<Result<Vec<_>, _>>()?;
        let metrics = LakeMetrics::new(registry);
        let (open_bytes_max, repairs) = (budget.tables_bytes() as usize, metrics.log_repairs.clone());
        Ok(Self {
            tables: TenantTables::at(settings, world, open_bytes_max, repairs)?,
            manifest: Mutex::new(Manifest::load(
                Arc::clone(&data_dir.disk),
                &data_dir.path,
                &[TABLE],
                &names,
            )),
            trusted: sources.iter().map(|_| AtomicU64::new(0)).collect(),
            sources,
            flush,
            cache: Arc::new(Cache::new(budget.cache_bytes() as usize)),
            pins: Arc::default(),
            metrics,
            laggards: Laggards::default(),
            closed: Closed::default(),
            in_rounds_since_ms: AtomicI64::new(i64::MAX),
            faults: Faults::default(),
            chance,
        })
    }

    /// Fails if the store lacks put-if-absent, so that commits could be overwritten. A store that does not answer now is
    /// checked again before the first commit.
    pub(crate) fn check_store(&self) -> Result<(), LakeError> {
        Ok(self.tables.check_store()?)
    }

    /// How far a partition is.
    pub(crate) fn mark(&self, partition: usize) -> Mark {
        self.manifest.lock().marks(TABLE)[partition].clone()
    }

    /// Changes the marks of all partitions, on the disk first.
    pub(super) fn change_marks(&self, change: impl FnMut((usize, &mut Mark))) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks(TABLE).to_vec();
        marks.iter_mut().enumerate().for_each(change);
        if marks == manifest.marks(TABLE) { Ok(()) } else { manifest.store(TABLE, marks) }
    }

    /// Lets a partition's journal go on under another name, because tables know offsets of the old one that it never gave.
    /// `sealed` are tenants that have it up to an offset, beyond what is noted; `end` is beyond all that it gave.
    pub(crate) fn rename_source(
        &self,
        partition: usize,
        end: u64,
        sealed: impl IntoIterator<Item = (TenantId, u64)>,
    ) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks(TABLE).to_vec();
        let mark = &mut marks[partition];
        let name = self.sources[partition].named(self.chance.fresh());
        for (tenant, upto) in sealed {
            let own = Own { source: name.clone(), upto, attempt: None, passes: None };
            mark.tenants.insert(tenant.as_str().into(), own);
        }
        mark.source.clone_from(&name);
        mark.attempt = None;
        // those beyond the end are offsets of the other journal
        mark.tenants.values_mut().for_each(|own| own.passes = own.passes.filter(|passes| *passes <= end));
        // a crash before the journal has its new name finds the old mark under the old one
        manifest.announce(TABLE, mark.clone())?;
        self.sources[partition].set_name(&name)?;
        tracing::warn!(partition, source = name, "the journal goes on under another name");
        manifest.settle(TABLE, partition, marks.swap_remove(partition))
    }

    /// Whether a table may say that it has a partition's journal up to `floodmark`, from what is noted of its tenant. If not,
    /// it has that from another journal of the same name: one that was lost or put back.
    pub(crate) fn is_known(&self, partition: usize, own: &Own, floodmark: &Floodmark) -> bool {
        let known = own.upto.max(own.passes.unwrap_or(0));
        floodmark.end() <= known.max(self.trusted[partition].load(Ordering::Relaxed))
            || own.attempt == Some(floodmark.end())
    }

    /// What a replay up to `end` found out: up to where tenants' tables have a partition's journal. But for days that were
    /// sealed in passes, nothing is in doubt any more.
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
                mark.tenants.insert(tenant.as_str().into(), Own { upto, passes, ..own });
            }
        }
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot save what tables said; the next replay reads them again");
        }
    }

    /// Closes a tenant whose table says nothing about a partition's samples.
    pub(crate) fn close(&self, partition: usize, tenant: &TenantId, why: String, since_ms: i64) {
        self.closed.add(tenant, partition, why);
        self.laggards.add(tenant, since_ms);
    }

    /// Notes of a partition's closed tenants that they are in doubt, up to where they were, or else the journal's `end`. That
    /// also keeps the journal from their first sample on.
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
            tracing::warn!(partition, %error, "cannot note which tenants are closed; the next replay will find out");
        }
    }

    /// Reopens a closed tenant for a partition: its journal is replayed up to `end` except for what the table has. True
    /// if the tenant is open again in all partitions.
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
        // beyond the end it is the floodmark of another journal of this name: the next round finds out
        let upto = own.upto.max(floodmark.upto.min(end));
        let passes = Some(floodmark.end()).filter(|passes| *passes > floodmark.upto && *passes <= end);
        mark.tenants.insert(tenant.as_str().into(), Own { upto, attempt: None, passes, ..own });
        if let Err(error) = manifest.settle(TABLE, partition, mark) {
            tracing::warn!(partition, %error, "cannot note what a table said; the next replay will ask again");
        }
        drop(manifest);
        self.closed.remove(tenant, partition)
    }

    /// A tenant's samples, in a table that is made where there is none.
    pub(crate) fn table(&self, tenant: &TenantId) -> Result<Arc<Table>, TableError> {
        self.tables.open_or_create(tenant, Kind::Samples)
    }

    /// To be called between a commit and the release of what it holds: queries must find it in the table.
    pub(crate) fn show(&self, tenant: &TenantId, table: &Arc<Table>) {
        self.tables.show(tenant, Kind::Samples, table);
    }

    /// A tenant's samples, where it has a table.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, Kind::Samples)
    }

    /// A tenant's samples in less detail, where there is such a table. Which of its days are whole says
    /// [`tables::rollup::days`].
    pub(crate) fn rollup(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.tables.existing(tenant, Kind::Rollup(resolution))
    }

    /// A journal's floodmark in a tenant's table, fenced: no commit of an earlier process can move it any more.
    pub(crate) fn settled_floodmark(
        &self,
        tenant: &TenantId,
        source: &str,
    ) -> Result<Option<Floodmark>, TableError> {
        let Some(table) = self.tables.existing_now(tenant, Kind::Samples)? else { return Ok(None) };
        table.fence()?;
        table.progress(source)
    }
}
