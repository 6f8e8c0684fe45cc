//! Tenants' tables: where each lies, and which of them are open.
//!
//! An open table holds the list of its live files. So those that were used longest ago are closed again ([`open`]) where all
//! together would hold more than [`Budget::tables_bytes`](crate::Budget::tables_bytes), and who was not heard of for [`IDLE`] is
//! closed anyway; opening one again costs some reads of its log. What somebody still works with he keeps.

mod known;
mod open;

use crate::settings::LakeSettings;
use crate::world::World;
use known::Known;
#[cfg(test)]
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

/// Threads on which requests to the object store run, beside the one that waits for them.
const STORE_THREADS: usize = 2;

/// Threads on which local files are read and written.
const FILE_THREADS_MAX: usize = 16;

/// How long a start waits for the store: a node starts without it.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Tables that are known not to be there. Who asks names the tenant, so there may be any number of them.
const ABSENT_MAX: usize = 10_000;

/// How long a table of samples is taken to be absent: another process, such as an import, may make it.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// A table that nobody used for so long is closed.
const IDLE: Duration = Duration::from_secs(900);

/// Contents of a tenant's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Samples as they came.
    Samples,
    /// Aggregates per time bucket.
    Rollup(Resolution),
}

impl Kind {
    /// All of them; what others are made of comes first.
    pub(crate) const ALL: [Self; 3] =
        [Self::Samples, Self::Rollup(Resolution::FiveMinutes), Self::Rollup(Resolution::Hour)];

    /// Format of the table.
    const fn format(self) -> &'static tables::Kind {
        match self {
            Self::Samples => &tables::METRICS,
            Self::Rollup(_) => &tables::ROLLUP,
        }
    }

    /// The table's folder in the tenant's.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Samples => "metrics",
            Self::Rollup(resolution) => resolution.folder(),
        }
    }
}

type Key = (TenantId, Kind);

/// All tenants' tables.
#[derive(Debug)]
pub(crate) struct TenantTables {
    root: Location,
    clock: Arc<dyn Clock>,
    /// Taken only when the node goes.
    runtime: Option<Runtime>,
    /// Names of tenants may hold as much beside them.
    open: Mutex<OpenTables>,
    /// Tables that are being opened or made, each by one thread: half of a new one is no table.
    opening: Mutex<BTreeSet<Key>>,
    /// One of them is done.
    opened: Condvar,
    /// Tables that are not there, and since when that is known: queries ask for them again and again. Samples are
    /// looked for again after [`ABSENT_FOR`], rollups when upkeep looks which tenants there are.
    absent: Mutex<HashMap<Key, Instant>>,
    /// Tenants that have a folder.
    known: Mutex<Known>,
}

impl TenantTables {
    /// Those under the URL of the settings. Nothing is looked for in the store yet: a node starts without it where it
    /// can. `repairs` counts logs that were put right.
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
        })
    }

    /// Fails where the store answers that it would overwrite commits.
    pub(super) fn check_store(&self) -> Result<(), TableError> {
        let check = || self.root.check_exclusive_within(STORE_WAIT);
        // the caller may be a task, which must not wait for requests
        std::thread::scope(|threads| threads.spawn(check).join().unwrap_or(Ok(())))
    }

    /// A table, made where there is none.
    pub(crate) fn open_or_create(&self, tenant: &TenantId, kind: Kind) -> Result<Arc<Table>, TableError> {
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

    /// A table, where there is one.
    pub(crate) fn existing(&self, tenant: &TenantId, kind: Kind) -> Result<Option<Arc<Table>>, TableError> {
        let key = (tenant.clone(), kind);
        if let Some(open) = self.is_open(&key, true) {
            return Ok(Some(open));
        }
        if self.is_absent(&key) {
            return Ok(None);
        }
        let _claim = self.claim(&key);
        // somebody else may have looked meanwhile
        if let Some(open) = self.is_open(&key, true) {
            return Ok(Some(open));
        }
        if self.is_absent(&key) {
            return Ok(None);
        }
        let table = self.open(&key)?;
        Ok(table.map(|table| self.remember(key, table)))
    }

    /// As [`Self::existing`], whatever was found before.
    pub(super) fn existing_now(
        &self,
        tenant: &TenantId,
        kind: Kind,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.absent.lock().remove(&(tenant.clone(), kind));
        self.existing(tenant, kind)
    }

    /// A table, where there is one, for a look at it that says nothing about its use: it stays closed, or gets nearer to
    /// that.
    pub(crate) fn visit(&self, tenant: &TenantId, kind: Kind) -> Result<Option<Arc<Table>>, TableError> {
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

    /// The right to open or make a table, which one thread has at a time. Other tables do not wait for its requests.
    fn claim(&self, key: &Key) -> Claim<'_> {
        let mut opening = self.opening.lock();
        while !opening.insert(key.clone()) {
            self.opened.wait(&mut opening);
        }
        Claim { tables: self, key: key.clone() }
    }

    /// Opens a table. The caller's claim keeps others from creating it before its absence is cached.
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
        absent.insert(key, since);
    }

    fn is_absent(&self, key: &Key) -> bool {
        let since = self.absent.lock().get(key).copied();
        let age = since.map(|since| self.clock.instant().saturating_duration_since(since));
        age.is_some_and(|age| key.1 != Kind::Samples || age < ABSENT_FOR)
    }

    fn is_open(&self, key: &Key, uses: bool) -> Option<Arc<Table>> {
        let mut open = self.open.lock();
        if uses { open.use_one(key, self.clock.instant()) } else { open.get(key) }
    }

    fn remember(&self, key: Key, table: Table) -> Arc<Table> {
        let table = Arc::new(table);
        self.absent.lock().remove(&key);
        self.known.lock().add(&key.0);
        self.open.lock().put(key, Arc::clone(&table), self.clock.instant());
        table
    }

    /// Makes sure that readers see what was committed through `table`. It may have been closed meanwhile, and opened again
    /// before the commit was in the log: then it takes the other one's place.
    pub(super) fn show(&self, tenant: &TenantId, kind: Kind, table: &Arc<Table>) {
        let key = (tenant.clone(), kind);
        // an opening that began before the commit comes to its end first
        let _claim = self.claim(&key);
        if self.is_open(&key, false).is_some_and(|open| open.version() < table.version()) {
            self.open.lock().put(key, Arc::clone(table), self.clock.instant());
        }
    }

    /// Closes what nobody has used for long, and what is too much by what tables hold now.
    pub(crate) fn close_idle(&self) {
        // a table may be busy with its store: it is weighed without the lock that everybody needs
        for (key, table) in self.all_open() {
            let bytes = table.memory_bytes();
            self.open.lock().weigh(&key, bytes);
        }
        let now = self.clock.instant();
        self.open.lock().close(|used| now.saturating_duration_since(used) >= IDLE);
    }

    /// How many tables are open, and the bytes that they held when they were weighed last.
    pub(crate) fn open_stats(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.bytes())
    }

    /// Looks which tenants there are: upkeep is also for those of whom nothing was heard since the start.
    pub(crate) fn discover(&self) -> Result<(), TableError> {
        self.absent.lock().clear();
        let (after, max) = self.known.lock().next_page();
        let names = self.root.folders(after.as_deref(), max)?;
        self.known.lock().turn_page(&names);
        Ok(())
    }

    /// True where the tenant had tables when somebody last looked.
    pub(crate) fn is_known(&self, tenant: &TenantId) -> bool {
        self.known.lock().contains(tenant) || self.open.lock().has_any_of(tenant)
    }

    /// Tenants with open tables; or all that are known.
    pub(crate) fn tenants(&self, all: bool) -> BTreeSet<TenantId> {
        let mut tenants: BTreeSet<_> =
            self.open.lock().iter().map(|((tenant, _), _)| tenant.clone()).collect();
        if all {
            tenants.extend(self.known.lock().iter().cloned());
        }
        tenants
    }

    /// The tables that are open, in order.
    pub(crate) fn all_open(&self) -> Vec<(Key, Arc<Table>)> {
        self.open.lock().iter().map(|(key, table)| (key.clone(), Arc::clone(table))).collect()
    }

    fn location(&self, tenant: &TenantId, kind: Kind) -> Result<Location, TableError> {
        self.root.folder(&[tenant.as_str(), kind.folder()])
    }
}

/// A table that one thread opens or makes.
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
    /// A node may be dropped by a task, which must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
