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
//! - [`sealer`]: when to seal, and one round of it
//! - [`stage`]: from frozen series to files
//! - [`upkeep`]: retention, compaction, checkpoints, vacuum
//! - [`fault`]: named places where a test lets a round be cut short

pub(crate) mod fault;
mod manifest;
pub(crate) mod pins;
pub(crate) mod sealer;
mod stage;
pub(crate) mod telemetry;
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;

pub(crate) use manifest::Mark;

use crate::datadir::{DataDir, Source};
use crate::settings::LakeSettings;
use fault::Faults;
use manifest::Manifest;
use model::TenantId;
use parking_lot::Mutex;
use pins::Pins;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use stdx::budget::Account;
use stdx::rng::Rng;
use stdx::telemetry::Registry;
use tables::{Cache, Location, Table, TableError};
use telemetry::LakeMetrics;
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Threads on which requests to the object store run, beside the one that waits for them.
const STORE_THREADS: usize = 2;

/// Threads on which local files are read and written.
const FILE_THREADS_MAX: usize = 16;

/// The folder of a tenant's samples.
const METRICS: &str = "metrics";

/// All tenants' tables, and how far the journals are in them.
#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) settings: LakeSettings,
    root: Url,
    /// Taken only when the node goes.
    runtime: Option<Runtime>,
    tables: Mutex<HashMap<TenantId, Arc<Table>>>,
    /// Held while a table is opened or made: half of a new one is no table.
    opening: Mutex<()>,
    sources: Vec<Source>,
    manifest: Mutex<Manifest>,
    /// Memory for files that are being made.
    pub(crate) flush: Account,
    /// Footers and ranges of files that queries read again and again.
    pub(crate) cache: Arc<Cache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) metrics: LakeMetrics,
    pub(crate) faults: Faults,
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
        settings: LakeSettings,
        data_dir: &DataDir,
        flush: Account,
        cache_bytes: usize,
        registry: &Registry,
    ) -> Result<Self, LakeError> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(STORE_THREADS).max_blocking_threads(FILE_THREADS_MAX).thread_name("tables");
        let runtime = runtime.enable_all().build()?;
        let root = Location::open(&settings.url, settings.options.clone(), runtime.handle().clone())?;
        let mut rng = Rng::new(Rng::fresh_seed());
        let sources: Vec<_> =
            (0..data_dir.identity.partitions).map(|n| Source::of(&data_dir.path, n)).collect();
        let names = sources.iter().map(|s| s.name(rng.next_u64())).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            root: root.url().clone(),
            runtime: Some(runtime),
            tables: Mutex::default(),
            opening: Mutex::default(),
            manifest: Mutex::new(Manifest::load(&data_dir.path, &names)),
            sources,
            flush,
            cache: Arc::new(Cache::new(cache_bytes)),
            pins: Arc::default(),
            metrics: LakeMetrics::new(registry),
            faults: Faults::default(),
            settings,
        })
    }

    /// How far a partition is.
    pub(crate) fn mark(&self, partition: usize) -> Mark {
        self.manifest.lock().marks()[partition].clone()
    }

    /// Changes the marks of all partitions, on the disk first.
    fn change_marks(&self, change: impl FnMut((usize, &mut Mark))) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut marks = manifest.marks().to_vec();
        marks.iter_mut().enumerate().for_each(change);
        manifest.store(marks)
    }

    /// Lets a partition's journal go on under another name, because tables know offsets of the old one that it does not
    /// have (any more).
    pub(crate) fn rename_source(&self, partition: usize) {
        let renamed = self.sources[partition].rename(Rng::fresh_seed()).and_then(|source| {
            let rename = |(number, mark): (usize, &mut Mark)| {
                if number == partition {
                    *mark = Mark { source: source.clone(), attempt: None, ..mark.clone() };
                }
            };
            self.change_marks(rename)
        });
        if let Err(error) = renamed {
            tracing::error!(partition, %error, "cannot rename the journal's source");
        }
    }

    fn partition_of(&self, source: &str) -> Option<usize> {
        self.manifest.lock().marks().iter().position(|mark| mark.source == source)
    }

    /// A tenant's table, made where there is none.
    pub(crate) fn table(&self, tenant: &TenantId) -> Result<Arc<Table>, TableError> {
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let _alone = self.opening.lock();
        match self.known(tenant) {
            Some(known) => Ok(known),
            None => Ok(self.remember(tenant, Table::open_or_create(self.location(tenant)?)?)),
        }
    }

    /// A tenant's table, where it has one.
    pub(crate) fn existing(&self, tenant: &TenantId) -> Result<Option<Arc<Table>>, TableError> {
        if let Some(known) = self.known(tenant) {
            return Ok(Some(known));
        }
        let _alone = self.opening.lock();
        match self.known(tenant) {
            Some(known) => Ok(Some(known)),
            None => Ok(Table::open(self.location(tenant)?)?.map(|table| self.remember(tenant, table))),
        }
    }

    fn known(&self, tenant: &TenantId) -> Option<Arc<Table>> {
        self.tables.lock().get(tenant).cloned()
    }

    /// Opens the tables of tenants of whom nothing was heard since the start, where they lie in a directory: retention is
    /// for them too. Tenants in an object store are kept once they write or are asked for.
    fn discover(&self) -> Result<(), TableError> {
        let Some(entries) = self.root.to_file_path().ok().and_then(|root| std::fs::read_dir(root).ok())
        else {
            return Ok(());
        };
        for entry in entries.flatten() {
            if let Some(tenant) = entry.file_name().to_str().and_then(|name| TenantId::parse(name).ok()) {
                self.existing(&tenant)?;
            }
        }
        Ok(())
    }

    /// The tables that this process has used.
    fn open_tables(&self) -> Vec<(TenantId, Arc<Table>)> {
        self.tables.lock().iter().map(|(tenant, table)| (tenant.clone(), Arc::clone(table))).collect()
    }

    fn remember(&self, tenant: &TenantId, table: Table) -> Arc<Table> {
        let table = Arc::new(table);
        self.tables.lock().insert(tenant.clone(), Arc::clone(&table));
        table
    }

    fn location(&self, tenant: &TenantId) -> Result<Location, TableError> {
        let mut url = self.root.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(tenant.as_str()).push(METRICS);
        }
        let runtime = self.runtime.as_ref().expect("BUG: the runtime goes last");
        Location::open(url.as_str(), self.settings.options.clone(), runtime.handle().clone())
    }

    /// The floodmark of a journal in a tenant's table.
    pub(crate) fn floodmark(&self, tenant: &TenantId, source: &str) -> Result<Option<u64>, TableError> {
        let Some(table) = self.existing(tenant)? else { return Ok(None) };
        Ok(table.floodmarks([source])?.remove(source))
    }
}

impl Drop for Lake {
    /// A node may be dropped by a task, which must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
