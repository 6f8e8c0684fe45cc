//! Tenants' tables: their locations, and a cache of open tables.
//!
//! An open table holds the list of its live files. If all lists together would exceed
//! [`Budget::tables_bytes`](crate::Budget::tables_bytes), the least recently used tables are closed ([`open`]). Tables
//! that were not used for [`IDLE`] are closed in any case. Reopening a table costs some reads of its log. Users of a
//! closed table keep their handle.

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

/// Threads for requests to the object store. The calling threads wait.
const STORE_THREADS: usize = 2;

/// Limit on threads that read and write local files.
const FILE_THREADS_MAX: usize = 16;

/// Limit on the time that the start of a node waits for the store. A node starts even if the store does not answer.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Limit on tables cached as absent. Requests name the tenant, so there may be any number of them.
const ABSENT_MAX: usize = 10_000;

/// Time for which the absence of a table of samples is cached: another process, such as an import, may create the
/// table.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// Time without use after which a table is closed.
const IDLE: Duration = Duration::from_secs(900);

/// Contents of a tenant's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TenantTable {
    /// Raw samples.
    Samples,
    /// Aggregates per time bucket.
    Rollup(Resolution),
}

impl TenantTable {
    /// All kinds. Samples come first, as rollups are computed from them.
    pub(crate) const ALL: [Self; 3] =
        [Self::Samples, Self::Rollup(Resolution::FiveMinutes), Self::Rollup(Resolution::Hour)];

    const fn format(self) -> &'static tables::Kind {
        match self {
            Self::Samples => &tables::METRICS,
            Self::Rollup(_) => &tables::ROLLUP,
        }
    }

    /// Position among [`Self::ALL`].
    const fn position(self) -> usize {
        match self {
            Self::Samples => 0,
            Self::Rollup(Resolution::FiveMinutes) => 1,
            Self::Rollup(Resolution::Hour) => 2,
        }
    }

    /// Name of the table's folder in the tenant's folder.
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
    /// Runtime for the object store; taken only on drop.
    runtime: Option<Runtime>,
    /// Open tables. The names in `known` may take as much memory as the open tables.
    open: Mutex<OpenTables>,
    /// Tables being opened or created, each by one thread: a half-created table must not be opened.
    opening: Mutex<BTreeSet<Key>>,
    /// Signals the end of an opening.
    opened: Condvar,
    /// Negative cache, because queries ask for absent tables repeatedly: absent tables, each with the time when the
    /// table was found absent. Tables of samples are looked up again after [`ABSENT_FOR`], rollups when upkeep lists
    /// the tenants.
    absent: Mutex<HashMap<Key, Instant>>,
    /// Tenants that have a folder in the store.
    known: Mutex<Known>,
    /// Size and number of tables, by tenant.
    usages: Mutex<Usages>,
}

impl TenantTables {
    /// Tables under the URL of the settings. Makes no request to the store, so that a node can start without it. `repairs`
    /// counts repaired logs.
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
                runtime.shutdown_background(); // the caller may be a task, which must not wait for it
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

    /// Fails if the store's answer shows that it would overwrite commits.
    pub(super) fn check_store(&self) -> Result<(), TableError> {
        let check = || self.root.check_exclusive_within(STORE_WAIT);
        // the caller may be a task, which must not wait for requests
        std::thread::scope(|threads| threads.spawn(check).join().unwrap_or(Ok(())))
    }

    /// Opens a table; creates it if absent.
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

    /// Opens a table; `None` if absent.
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

    /// As [`Self::existing`], without the cache of absent tables.
    pub(crate) fn existing_now(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.absent.lock().remove(&(tenant.clone(), kind));
        self.existing(tenant, kind)
    }

    /// Opens a table for maintenance; `None` if absent. Maintenance does not count as use: the table does not enter the
    /// cache, and a cached table keeps its age.
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

    /// Claims the exclusive right to open or create a table. Other tables do not wait for the requests of this table.
    fn claim(&self, key: &Key) -> Claim<'_> {
        let mut opening = self.opening.lock();
        while !opening.insert(key.clone()) {
            self.opened.wait(&mut opening);
        }
        Claim { tables: self, key: key.clone() }
    }

    /// Opens a table. The caller's claim keeps other threads from creating the table before its absence is cached.
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

    /// Ensures that readers see commits made through `table`. The table may have been closed, and reopened before the
    /// commit was in the log. Then `table` replaces the other handle.
    pub(crate) fn publish_commits(&self, tenant: &TenantId, kind: TenantTable, table: &Arc<Table>) {
        self.measure(tenant, kind, table);
        let key = (tenant.clone(), kind);
        // waits until an opening that began before the commit has ended
        let _claim = self.claim(&key);
        if self.is_open(&key, false).is_some_and(|open| open.version() < table.version()) {
            self.open.lock().put(key, Arc::clone(table), self.clock.instant());
        }
    }

    /// Notes the size of a table whose list of files may have changed.
    pub(crate) fn measure(&self, tenant: &TenantId, kind: TenantTable, table: &Table) {
        let bytes = table.data_bytes();
        self.usages.lock().note(&(tenant.clone(), kind), Some(bytes));
    }

    /// Size and number of a tenant's tables, as far as they were noted since the start.
    pub(crate) fn usage(&self, tenant: &TenantId) -> Usage {
        self.usages.lock().of(tenant)
    }

    /// Measures the memory of open tables again, and closes tables that are idle or beyond the memory limit.
    pub(crate) fn close_idle(&self) {
        // a table may wait for its store, so it is measured without the shared lock
        for (key, table) in self.all_open() {
            let bytes = table.memory_bytes();
            self.open.lock().weigh(&key, bytes);
        }
        let now = self.clock.instant();
        self.open.lock().close(|used| now.saturating_duration_since(used) >= IDLE);
    }

    /// Number of open tables, and their memory at the last measurement.
    pub(crate) fn open_stats(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.bytes())
    }

    /// Lists the tenants in the store, so that upkeep includes tenants that were not active since the start.
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

    /// Tenants with open tables; with `all`, all known tenants too.
    pub(crate) fn tenants(&self, all: bool) -> BTreeSet<TenantId> {
        let mut tenants: BTreeSet<_> =
            self.open.lock().iter().map(|((tenant, _), _)| tenant.clone()).collect();
        if all {
            tenants.extend(self.known.lock().iter().cloned());
        }
        tenants
    }

    /// The open tables, in order.
    pub(crate) fn all_open(&self) -> Vec<(Key, Arc<Table>)> {
        self.open.lock().iter().map(|(key, table)| (key.clone(), Arc::clone(table))).collect()
    }

    fn location(&self, tenant: &TenantId, kind: TenantTable) -> Result<Location, TableError> {
        self.root.folder(&[tenant.as_str(), kind.folder()])
    }
}

/// Exclusive right of one thread to open or create a table.
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
    /// Shuts down in the background: the node may be dropped by a task, which must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
