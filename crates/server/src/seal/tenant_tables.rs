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
use model::{StreamName, TenantId};
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

const FILE_THREADS_MAX: usize = 16;

/// A node that starts waits this long for the store to answer.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// The cache remembers at most this many tables as absent, because clients can name any number of tenants.
const ABSENT_MAX: usize = 10_000;

/// The absence of a table of samples is remembered for this long. Then the store is asked again, because another
/// process may have created the table.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// Folder of a tenant that has a folder for the table of each stream.
const STREAMS: &str = "streams";

/// A table is closed after it was not used for this long.
const IDLE: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TenantTable {
    Samples,
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
    /// Runtime for requests to the object store. It is `None` only while it shuts down.
    runtime: Option<Runtime>,
    open: Mutex<OpenTables>,
    /// Tables that a thread is opening or creating at the moment. Other threads wait for it.
    opening: Mutex<BTreeSet<Key>>,
    opened: Condvar,
    /// Tables that do not exist, with the time when they were looked up. A table of samples is looked up again after
    /// [`ABSENT_FOR`], and a rollup when upkeep lists the tenants.
    absent: Mutex<HashMap<Key, Instant>>,
    known: Mutex<Known>,
    usages: Mutex<Usages>,
}

impl TenantTables {
    /// Sets up the tables at the URL in the settings, without any request to the store. `repairs` counts repairs of
    /// table logs.
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

    /// Fails if the store would let commits overwrite each other.
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

    /// Opens a table. Looks in the store even if the table is remembered as absent.
    pub(crate) fn existing_now(
        &self,
        tenant: &TenantId,
        kind: TenantTable,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.absent.lock().remove(&(tenant.clone(), kind));
        self.existing(tenant, kind)
    }

    /// Opens a table for maintenance. This does not count as use, so the table may be closed as idle.
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

    pub(crate) fn opened(&self, tenant: &TenantId, kind: TenantTable) -> Option<Arc<Table>> {
        self.is_open(&(tenant.clone(), kind), false)
    }

    /// Waits for the exclusive right to open or create a table.
    fn claim(&self, key: &Key) -> Claim<'_> {
        let mut opening = self.opening.lock();
        while !opening.insert(key.clone()) {
            self.opened.wait(&mut opening);
        }
        Claim { tables: self, key: key.clone() }
    }

    /// Opens a table. The caller must have claimed it.
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

    /// Shows readers the commits that were made through `table`, by replacing the older version that readers have
    /// open, if any.
    pub(crate) fn publish_commits(&self, tenant: &TenantId, kind: TenantTable, table: &Arc<Table>) {
        self.measure(tenant, kind, table);
        let key = (tenant.clone(), kind);
        // if another thread is opening the table, perhaps at a version before the commit, this waits until it is open
        let _claim = self.claim(&key);
        if self.is_open(&key, false).is_some_and(|open| open.version() < table.version()) {
            self.open.lock().put(key, Arc::clone(table), self.clock.instant());
        }
    }

    pub(crate) fn measure(&self, tenant: &TenantId, kind: TenantTable, table: &Table) {
        let bytes = table.data_bytes();
        self.usages.lock().note(&(tenant.clone(), kind), Some(bytes));
    }

    /// Size and number of a tenant's tables, as far as they were measured since the start.
    pub(crate) fn usage(&self, tenant: &TenantId) -> Usage {
        self.usages.lock().of(tenant)
    }

    /// Closes tables that were not used for a while, and further tables if they take too much memory together.
    pub(crate) fn close_idle(&self) {
        // measured without holding the shared lock, because a table may have to wait for its store
        for (key, table) in self.all_open() {
            let bytes = table.memory_bytes();
            self.open.lock().weigh(&key, bytes);
        }
        let now = self.clock.instant();
        self.open.lock().close(|used| now.saturating_duration_since(used) >= IDLE);
    }

    pub(crate) fn open_stats(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.bytes())
    }

    pub(crate) fn discover(&self) -> Result<(), TableError> {
        self.absent.lock().clear();
        let (after, max) = self.known.lock().next_page();
        let names = self.root.folders(after.as_deref(), max)?;
        self.known.lock().turn_page(&names);
        Ok(())
    }

    /// True if the tenant has tables, according to the last listing.
    pub(crate) fn is_known(&self, tenant: &TenantId) -> bool {
        self.known.lock().contains(tenant) || self.open.lock().has_any_of(tenant)
    }

    /// Tenants with open tables or, if `all` is true, all tenants that are known to have tables.
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

    /// Names of a tenant's streams that have tables, in ascending order: at most `most` of those behind `after`.
    pub(crate) fn streams(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TableError> {
        self.root.folder(&[tenant.as_str(), STREAMS])?.folders(after, most)
    }

    /// Where the table of a stream is.
    pub(crate) fn stream(&self, (tenant, stream): &(TenantId, StreamName)) -> Result<Location, TableError> {
        self.root.folder(&[tenant.as_str(), STREAMS, stream.as_str()])
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
