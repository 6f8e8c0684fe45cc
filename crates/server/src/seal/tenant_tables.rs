//! Tenants' tables: their locations, and a cache of open tables.
//!
//! If the lists of files of open tables exceed [`Budget::tables_bytes`](crate::Budget::tables_bytes), the least
//! recently used tables are closed ([`open`]). Tables unused for [`IDLE`] are closed too. Users of a closed table keep
//! their handle.

mod known;
mod open;
mod usage;

use crate::settings::LakeSettings;
use crate::world::World;
use known::Known;
pub(crate) use known::names_at_most;
use model::TenantId;
use open::OpenTables;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use stdx::telemetry::Counter;
use tables::rollup::Resolution;
use tables::{Location, Table, TableError};
use tokio::runtime::{Builder, Runtime};
pub(crate) use usage::Usage;
use usage::Usages;

const STORE_THREADS: usize = 2;

/// Limit on threads for local files.
const FILE_THREADS_MAX: usize = 16;

/// Limit on the wait for the store when a node starts.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Limit on absent tables in the cache. Clients can name any number of tenants.
const ABSENT_MAX: usize = 10_000;

/// Time for which the absence of a table of samples is cached. Another process may create the table.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// Time without use after which a table is closed.
const IDLE: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TenantTable {
    Samples,
    /// Aggregates per time bucket.
    Rollup(Resolution),
}

impl TenantTable {
    /// Samples come first, because rollups are computed from them.
    pub(crate) const ALL: [Self; 3] =
        [Self::Samples, Self::Rollup(Resolution::FiveMinutes), Self::Rollup(Resolution::Hour)];

    const fn format(self) -> &'static tables::Kind {
        match self {
            Self::Samples => &tables::METRICS,
            Self::Rollup(_) => &tables::ROLLUP,
        }
    }

    const fn position(self) -> usize {
        match self {
            Self::Samples => 0,
            Self::Rollup(Resolution::FiveMinutes) => 1,
            Self::Rollup(Resolution::Hour) => 2,
        }
    }

    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Samples => "metrics",
            Self::Rollup(resolution) => resolution.folder(),
        }
    }
}

type Key = (TenantId, TenantTable);

#[derive(Debug)]
pub(crate) struct TenantTables {
    root: Location,
    clock: Arc<dyn Clock>,
    /// Runtime for the object store; taken on drop.
    runtime: Option<Runtime>,
    open: Mutex<OpenTables>,
    /// Tables being opened or created, each by one thread.
    opening: Mutex<BTreeSet<Key>>,
    opened: Condvar,
    /// Absent tables, with the time of the last lookup. Tables of samples are looked up again after [`ABSENT_FOR`],
    /// rollups when upkeep lists the tenants.
    absent: Mutex<HashMap<Key, Instant>>,
    /// Tenants with a folder in the store.
    known: Mutex<Known>,
    usages: Mutex<Usages>,
}

impl TenantTables {
    /// Tables under the URL of the settings. Makes no request to the store. `repairs` counts repaired logs.
    pub(super) fn at(
        settings: &LakeSettings,
        world: &World,
        open_bytes_max: usize,
        repairs: Counter,
    ) -> Result<Self, super::LakeError> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(STORE_THREADS).max_blocking_threads(FILE_THREADS_MAX).thread_name("tables");
        let runtime = runtime.enable_all().build()?;
        let root = match Location::open(&settings.url.0, settings.options.0.clone(), runtime.handle().clone())
        {
            Ok(root) => root.with_repairs(repairs),
            Err(error) => {
                runtime.shutdown_background(); // the caller may be a task, which must not wait
                return Err(error.into());
            }
        };
        let root = match &world.store {
            Some(store) => root.with_store(|_| Arc::clone(store)),
            None => root,
        };
        Ok(Self {
            root,
            clock: Arc::clone(&world.clock),
            runtime: Some(runtime),
            open: Mutex::new(OpenTables::within(open_bytes_max)),
            opening: Mutex::default(),
            opened: Condvar::new(),
            absent: Mutex::default(),
            known: Mutex::new(Known::within(open_bytes_max)),
            usages: Mutex::new(Usages::of_at_most(names_at_most(open_bytes_max).0)),
        })
    }

    /// Fails if the store would overwrite commits.
    pub(super) fn check_store(&self) -> Result<(), TableError> {
        let check = || self.root.check_exclusive_within(STORE_WAIT);
        // on another thread, because the caller may be a task, in which waiting for the store would panic
        std::thread::scope(|threads| threads.spawn(check).join().unwrap_or(Ok(())))
    }

    pub(crate) fn open_or_create(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Arc<Table>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(open) = self.is_open(&key, true) {
            return Ok(open);
        }
        let _claim = self.claim(&key);
        match self.is_open(&key, true) {
            Some(open) => Ok(open),
            None => {
                let table = Table::open_or_create(kind.format(), self.location(tenant, kind)?)?;
                Ok(self.remember(key, table))
            }
        }
    }

    pub(crate) fn existing(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Option<Arc<Table>>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(open) = self.is_open(&key, true) {
            return Ok(Some(open));
        }
        if self.is_absent(&key) {
            return Ok(None);
        }
        let _claim = self.claim(&key);
        // another thread may have opened the table meanwhile
        if let Some(open) = self.is_open(&key, true) {
            return Ok(Some(open));
        }
        if self.is_absent(&key) {
            return Ok(None);
        }
        let table = self.open(&key)?;
        Ok(table.map(|table| self.remember(key, table)))
    }

    /// Opens a table without the cache of absent tables.
    pub(crate) fn existing_now(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.absent.lock().remove(&(tenant.clone(), kind));
        self.existing(tenant, kind)
    }

    /// Opens a table for maintenance, which does not count as use.
    pub(crate) fn visit(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Option<Arc<Table>>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(open) = self.is_open(&key, false) {
            return Ok(Some(open));
        }
        if self.is_absent(&key) {
            return Ok(None);
        }
        let _claim = self.claim(&key);
        Ok(self.open(&key)?.map(Arc::new))
    }

    /// Claims the exclusive right to open or create a table.
    fn claim(&self, key: &Key) -> Claim<'_> {
        let mut opening = self.opening.lock();
        while !opening.insert(key.clone()) {
            self.opened.wait(&mut opening);
        }
        Claim { tables: self, key: key.clone() }
    }

    /// Opens a table, which the caller has claimed.
    fn open(&self, key: &Key) -> Result<Option<Table>, TableError> {
        let asked = self.clock.instant();
        let table = Table::open(key.1.format(), self.location(&key.0, key.1)?)?;
        if table.is_none() {
            self.note_absent(key.clone(), asked);
        }
        Ok(table)
    }

    fn note_absent(&self, key: Key, since: Instant) {
        let mut absent = self.absent.lock();
        if absent.len() >= ABSENT_MAX {
            absent.clear();
        }
        self.usages.lock().note(&key, None);
        absent.insert(key, since);
    }

    fn is_absent(&self, key: &Key) -> bool {
        let since = self.absent.lock().get(key).copied();
        let age = since.map(|since| self.clock.instant().saturating_duration_since(since));
        age.is_some_and(|age| key.1 != TenantTable::Samples || age < ABSENT_FOR)
    }

    fn is_open(&self, key: &Key, uses: bool) -> Option<Arc<Table>> {
        let mut open = self.open.lock();
        if uses { open.get_and_touch(key, self.clock.instant()) } else { open.get(key) }
    }

    fn remember(&self, key: Key, table: Table) -> Arc<Table> {
        let table = Arc::new(table);
        self.measure(&key.0, key.1, &table);
        self.absent.lock().remove(&key);
        self.known.lock().add(&key.0);
        self.open.lock().put(key, Arc::clone(&table), self.clock.instant());
        table
    }

    /// Shows commits made through `table` to readers. `table` replaces an older version that a reader has opened.
    pub(crate) fn publish_commits(&self, tenant: &TenantId, kind: TenantTable, table: &Arc<Table>) {
        self.measure(tenant, kind, table);
        let key = (tenant.clone(), kind);
        // waits for an opening that began before the commit
        let _claim = self.claim(&key);
        if self.is_open(&key, false).is_some_and(|open| open.version() < table.version()) {
            self.open.lock().put(key, Arc::clone(table), self.clock.instant());
        }
    }

    pub(crate) fn measure(&self, tenant: &TenantId, kind: TenantTable, table: &Table) {
        let bytes = table.data_bytes();
        self.usages.lock().note(&(tenant.clone(), kind), Some(bytes));
    }

    /// Size and number of a tenant's tables, as noted since the start.
    pub(crate) fn usage(&self, tenant: &TenantId) -> Usage {
        self.usages.lock().of(tenant)
    }

    /// Closes tables that are idle or exceed the memory limit.
    pub(crate) fn close_idle(&self) {
        // measured without the shared lock, because a table may wait for its store
        for (key, table) in self.all_open() {
            let bytes = table.memory_bytes();
            self.open.lock().weigh(&key, bytes);
        }
        let now = self.clock.instant();
        self.open.lock().close(|used| now.saturating_duration_since(used) >= IDLE);
    }

    /// Number of open tables, and their memory.
    pub(crate) fn open_stats(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.bytes())
    }

    /// Lists the next tenants in the store.
    pub(crate) fn discover(&self) -> Result<(), TableError> {
        self.absent.lock().clear();
        let (after, max) = self.known.lock().next_page();
        let names = self.root.folders(after.as_deref(), max)?;
        self.known.lock().turn_page(&names);
        Ok(())
    }

    /// True if the tenant had tables at the last listing.
    pub(crate) fn is_known(&self, tenant: &TenantId) -> bool {
        self.known.lock().contains(tenant) || self.open.lock().has_any_of(tenant)
    }

    /// Tenants with open tables; with `all`, all known tenants.
    pub(crate) fn tenants(&self, all: bool) -> BTreeSet<TenantId> {
        let mut tenants: BTreeSet<_> =
            self.open.lock().iter().map(|((tenant, _), _)| tenant.clone()).collect();
        if all {
            tenants.extend(self.known.lock().iter().cloned());
        }
        tenants
    }

    pub(crate) fn all_open(&self) -> Vec<(Key, Arc<Table>)> {
        self.open.lock().iter().map(|(key, table)| (key.clone(), Arc::clone(table))).collect()
    }

    fn location(&self, tenant: &TenantId, kind: TenantTable) -> Result<Location, TableError> {
        self.root.folder(&[tenant.as_str(), kind.folder()])
    }
}

#[derive(Debug)]
struct Claim<'t> {
    tables: &'t TenantTables,
    key: Key,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.tables.opening.lock().remove(&self.key);
        self.tables.opened.notify_all();
    }
}

impl Drop for TenantTables {
    /// Shuts down in the background, because the caller may be a task, which must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
