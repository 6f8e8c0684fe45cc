//! Tenants' tables: where each lies, and which of them are open.

use crate::settings::LakeSettings;
use crate::world::World;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tables::rollup::Resolution;
use tables::store::DynObjectStore;
use tables::{Location, Table, TableError};
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Threads on which requests to the object store run, beside the one that waits for them.
const STORE_THREADS: usize = 2;

/// Threads on which local files are read and written.
const FILE_THREADS_MAX: usize = 16;

/// Tables that are known not to be there. Who asks names the tenant, so there may be any number of them.
const ABSENT_MAX: usize = 10_000;

/// What a table of a tenant holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Samples as they came.
    Samples,
    /// What they came to in each stretch of time.
    Rollup(Resolution),
}

impl Kind {
    /// The table's folder in the tenant's.
    const fn folder(self) -> &'static str {
        match self {
            Self::Samples => "metrics",
            Self::Rollup(resolution) => resolution.folder(),
        }
    }
}

type Key = (TenantId, Kind);

/// All tenants' tables.
#[derive(Debug)]
pub(super) struct TenantTables {
    root: Url,
    options: BTreeMap<String, String>,
    /// Where they lie, instead of where the URL says.
    store: Option<Arc<DynObjectStore>>,
    /// Taken only when the node goes.
    runtime: Option<Runtime>,
    open: Mutex<HashMap<Key, Arc<Table>>>,
    /// Held while a table is opened or made: half of a new one is no table.
    opening: Mutex<()>,
    /// Rollups that are not there: queries ask for them again and again. Forgotten now and then, for another process
    /// may make one.
    absent: Mutex<HashSet<Key>>,
}

impl TenantTables {
    /// Those under the URL of the settings. Nothing is looked for in the store yet: a node starts without it where it
    /// can.
    pub(super) fn at(settings: &LakeSettings, world: &World) -> Result<Self, super::LakeError> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(STORE_THREADS).max_blocking_threads(FILE_THREADS_MAX).thread_name("tables");
        let runtime = runtime.enable_all().build()?;
        let root = Location::open(&settings.url, settings.options.clone(), runtime.handle().clone())?;
        Ok(Self {
            root: root.url().clone(),
            options: settings.options.clone(),
            store: world.store.clone(),
            runtime: Some(runtime),
            open: Mutex::default(),
            opening: Mutex::default(),
            absent: Mutex::default(),
        })
    }

    /// A table, made where there is none.
    pub(super) fn open_or_create(&self, tenant: &TenantId, kind: Kind) -> Result<Arc<Table>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let _alone = self.opening.lock();
        match self.known(&key) {
            Some(known) => Ok(known),
            None => {
                let table = Table::open_or_create(self.location(tenant, kind)?)?;
                Ok(self.remember(key, table))
            }
        }
    }

    /// A table, where there is one.
    pub(super) fn existing(&self, tenant: &TenantId, kind: Kind) -> Result<Option<Arc<Table>>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(known) = self.known(&key) {
            return Ok(Some(known));
        }
        if self.absent.lock().contains(&key) {
            return Ok(None);
        }
        let _alone = self.opening.lock();
        if let Some(known) = self.known(&key) {
            return Ok(Some(known));
        }
        let table = Table::open(self.location(tenant, kind)?)?;
        if table.is_none() && kind != Kind::Samples {
            let mut absent = self.absent.lock();
            if absent.len() >= ABSENT_MAX {
                absent.clear();
            }
            absent.insert(key);
            return Ok(None);
        }
        Ok(table.map(|table| self.remember(key, table)))
    }

    fn known(&self, key: &Key) -> Option<Arc<Table>> {
        self.open.lock().get(key).cloned()
    }

    fn remember(&self, key: Key, table: Table) -> Arc<Table> {
        let table = Arc::new(table);
        self.absent.lock().remove(&key);
        self.open.lock().insert(key, Arc::clone(&table));
        table
    }

    /// Opens the tables of tenants of whom nothing was heard since the start, where they lie in a directory: retention is
    /// for them too. Tenants in an object store are kept once they write or are asked for.
    pub(super) fn discover(&self) -> Result<(), TableError> {
        self.absent.lock().clear();
        let Some(entries) = self.root.to_file_path().ok().and_then(|root| std::fs::read_dir(root).ok())
        else {
            return Ok(());
        };
        for entry in entries.flatten() {
            if let Some(tenant) = entry.file_name().to_str().and_then(|name| TenantId::parse(name).ok()) {
                self.existing(&tenant, Kind::Samples)?;
            }
        }
        Ok(())
    }

    /// The tables that are open, in order.
    pub(super) fn all_open(&self) -> Vec<(Key, Arc<Table>)> {
        let open = self.open.lock();
        let mut all: Vec<_> = open.iter().map(|(key, table)| (key.clone(), Arc::clone(table))).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    fn location(&self, tenant: &TenantId, kind: Kind) -> Result<Location, TableError> {
        let mut url = self.root.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(tenant.as_str()).push(kind.folder());
        }
        let runtime = self.runtime.as_ref().expect("BUG: the runtime goes last");
        let location = Location::open(url.as_str(), self.options.clone(), runtime.handle().clone())?;
        Ok(match &self.store {
            Some(store) => location.with_store(|_| Arc::clone(store)),
            None => location,
        })
    }
}

impl Drop for TenantTables {
    /// A node may be dropped by a task, which must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
