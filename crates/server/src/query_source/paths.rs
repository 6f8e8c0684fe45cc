//! Indexes of the names of untagged metrics, one for each tenant whose metrics are searched or rendered by globs.
//!
//! ```text
//!   first search ─▶ wanted ──keeper──▶ building ─▶ ready ◀─ each search adds the names that are new in the heads
//!                     ▲                               │
//!                     └── names may be missing, such as those of an import, or the index is old
//! ```
//!
//! Until an index is ready, and if there is no memory for it, searches read all names instead ([`names`]). An index has
//! every name that a search must find, and perhaps names whose samples were deleted since it was built. After an import, the old index is
//! kept until the new one is ready. Names may be missing in it, but silent metrics are found with it ([`silent`]).
//!
//! - [`globs`]: series whose names a glob matches
//! - [`keeper`]: the thread that builds indexes, merges their runs, and drops those that are not used
//! - [`ready`]: an index, and what it knows
//! - [`silent`]: metrics without samples in the range of a query
//! - [`tenant`]: the entry of a tenant
//! - [`waiting`]: how many queries may wait for an index, and for how long

mod globs;
mod keeper;
pub(super) mod names;
mod ready;
mod silent;
mod tenant;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use globs::GlobSource;
pub(crate) use keeper::Keeper;
pub(crate) use waiting::BuildWait;

use crate::query_source::{Canceled, Context};
use ::paths::Runs;
use model::TenantId;
use parking_lot::{Mutex, MutexGuard};
use query::Interrupt;
use ready::{Fresh, table_of};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;
use stdx::budget::Account;
use stdx::telemetry::{Counter, Registry};
use tenant::{State, TenantPaths};
use waiting::Places;

/// Memory of a tenant's entry, without the names.
const TENANT_BYTES: usize = 1024;

/// A search that waits for another search to update the index, or for the index, checks at this interval whether it was canceled.
const LOCK_WAIT: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct PathIndexes {
    account: Account,
    tenants: Mutex<HashMap<TenantId, Arc<TenantPaths>>>,
    keeper: OnceLock<Thread>,
    places: Places,
    /// Searches that read all names, because there was no index.
    scans: Counter,
    builds: Counter,
}

/// The names of a tenant, and warnings about data that could not be read.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) runs: Runs,
    /// False if names may be missing besides those that could not be read.
    is_fresh: bool,
    pub(crate) left_out: Vec<String>,
    /// Shared by all snapshots of a tenant: see [`TenantPaths::has_searches`].
    _search: Arc<()>,
}

impl Snapshot {
    /// For a tenant without metrics.
    fn empty() -> Self {
        Self { runs: Runs::default(), is_fresh: true, left_out: Vec::new(), _search: Arc::default() }
    }
}

/// Whether a tenant has an entry.
enum Entry {
    Made,
    /// The tenant has no data, so it needs no entry: anybody can invent its name.
    NoData,
    /// There is no memory for it, or it is not known whether the tenant has data.
    Missing,
}

impl PathIndexes {
    /// At most half of the query threads wait for indexes.
    pub(crate) fn new(account: Account, query_threads: usize, registry: &Registry) -> Self {
        Self {
            account,
            places: Places::new(query_threads),
            tenants: Mutex::default(),
            keeper: OnceLock::new(),
            scans: registry.counter(
                "floodmark_paths_scans_total",
                "Searches for metrics, and globs in targets, that read all names, because the index of names was not ready or had no memory.",
            ),
            builds: registry.counter("floodmark_paths_builds_total", "Indexes of names that were built."),
        }
    }

    /// Number of names in all indexes. Names in several runs count several times.
    pub(crate) fn len(&self) -> usize {
        let of = |paths: Arc<TenantPaths>| match &*paths.state.lock() {
            State::Ready(ready) => ready.runs().len(),
            _ => 0,
        };
        self.all().into_iter().map(|(_, paths)| of(paths)).sum()
    }

    fn all(&self) -> Vec<(TenantId, Arc<TenantPaths>)> {
        self.tenants.lock().iter().map(|(tenant, paths)| (tenant.clone(), Arc::clone(paths))).collect()
    }

    /// Drops the index of a tenant, because samples were deleted. The next search has it built again.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        if let Some(paths) = self.tenants.lock().get_mut(tenant) {
            // another entry, so that an index that is being built is dropped
            *paths = Arc::new(paths.emptied());
        }
    }

    /// Drops all that is known of a tenant.
    pub(crate) fn remove(&self, tenant: &TenantId) {
        self.tenants.lock().remove(tenant);
    }

    /// The names of all metrics that were acknowledged before the call, for a search that otherwise reads all names. `None` if there is no
    /// complete index. One is then built if there is memory for it.
    pub(crate) fn snapshot(
        &self,
        context: &Context,
        tenant: &TenantId,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Snapshot>, Canceled> {
        let snapshot = match self.enter(context, tenant) {
            Entry::Made => self.of_known(context, tenant, interrupt)?.filter(|snapshot| snapshot.is_fresh),
            Entry::NoData => Some(Snapshot::empty()),
            Entry::Missing => None,
        };
        if snapshot.is_none() {
            self.scans.inc();
        }
        Ok(snapshot)
    }

    /// Like [`Self::snapshot`], but waits for the first index while it is being built, and then returns what there is.
    fn awaited(
        &self,
        context: &Context,
        tenant: &TenantId,
        interrupt: &dyn Interrupt,
        wait: &BuildWait,
    ) -> Result<Option<Snapshot>, Canceled> {
        match self.enter(context, tenant) {
            Entry::Made => {}
            Entry::NoData => return Ok(Some(Snapshot::empty())),
            Entry::Missing => return Ok(None),
        }
        let mut place = None;
        loop {
            let snapshot = self.of_known(context, tenant, interrupt)?;
            if snapshot.is_some()
                || !self.is_coming(context, tenant)
                || wait.is_over(context, self.places.wait_max)
            {
                return Ok(snapshot);
            }
            if interrupt.is_set() || !interrupt.may_wait() {
                return Err(Canceled);
            }
            if place.is_none() {
                place = self.places.take(tenant);
            }
            if place.is_none() {
                return Ok(None); // the other threads are left to queries that need not wait
            }
            std::thread::sleep(LOCK_WAIT);
        }
    }

    /// True if waiting may help: the index is being built, or waits for the keeper, or will soon. The keeper may be busy with other tenants.
    fn is_coming(&self, context: &Context, tenant: &TenantId) -> bool {
        let soon_s = context.steady_s().saturating_add(self.places.wait_max.as_secs() as u32);
        let paths = self.tenants.lock().get(tenant).map(Arc::clone);
        self.keeper.get().is_some()
            && paths.is_some_and(|paths| match &*paths.state.lock() {
                State::Wanted { from_s } => paths.build_from_s(*from_s) <= soon_s,
                State::Building | State::Ready(_) => true,
            })
    }

    /// Like [`Self::snapshot`], but only if metrics of the tenant were searched before, and perhaps without the newest names.
    fn of_known(
        &self,
        context: &Context,
        tenant: &TenantId,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Snapshot>, Canceled> {
        let Some(paths) = self.tenants.lock().get(tenant).map(Arc::clone) else { return Ok(None) };
        let now_s = context.steady_s();
        paths.note_search(now_s);
        let is_ready = match &*lock(&paths.state, interrupt)? {
            State::Ready(_) => true,
            State::Wanted { from_s } if paths.build_from_s(*from_s) <= now_s => {
                self.wake();
                false
            }
            State::Wanted { .. } | State::Building => false,
        };
        // without the lock, because this may read the table's log
        let table = if is_ready { table_of(context, tenant) } else { None };
        let mut state = lock(&paths.state, interrupt)?;
        let ready = match &mut *state {
            State::Ready(ready) if is_ready => ready,
            _ => return Ok(paths.stale()),
        };
        match ready.refresh(context, tenant, table, interrupt, &self.account)? {
            Fresh::Yes => {
                if ready.has_merges() {
                    self.wake();
                }
                Ok(Some(paths.snapshot_of(ready)))
            }
            Fresh::Missing => {
                paths.lose(&mut state);
                Ok(paths.stale())
            }
            // searches hold the memory of the index, so dropping it would free nothing yet
            Fresh::Full if paths.has_searches() => {
                let from_s = ready.again_from_s().max(now_s + SEARCHES_PAUSE_S);
                paths.lose(&mut state);
                *state = State::Wanted { from_s };
                Ok(paths.stale())
            }
            Fresh::Full => {
                *state = State::Wanted { from_s: now_s + FULL_PAUSE_S }; // others need the memory
                Ok(None)
            }
        }
    }

    /// True if this is the tenant's entry, and no other has replaced it.
    fn is_current(&self, tenant: &TenantId, paths: &TenantPaths) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), paths))
    }

    /// Makes an entry for the tenant.
    fn enter(&self, context: &Context, tenant: &TenantId) -> Entry {
        if self.tenants.lock().contains_key(tenant) {
            return Entry::Made;
        }
        // the list is not locked, because this may look for the table
        if !context.has_data(tenant) {
            match context.lake.existing(tenant) {
                Ok(Some(_)) => {}
                Ok(None) => return Entry::NoData,
                Err(_) => return Entry::Missing,
            }
        }
        let Ok(memory) = self.account.reserve((TENANT_BYTES + 2 * tenant.as_str().len()) as u64) else {
            return Entry::Missing;
        };
        let paths = || Arc::new(TenantPaths::new(memory));
        self.tenants.lock().entry(tenant.clone()).or_insert_with(paths);
        Entry::Made
    }

    fn wake(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

/// An index in which names may be missing is built again, but only after this time, and after [`REBUILD_PART`] times the time that
/// building took.
const REBUILD_PAUSE_S: u32 = 60;
const REBUILD_PART: u32 = 10;

/// If there is no memory for an index while searches hold some, it is tried again after this time, or [`REBUILD_PART`] times the time that
/// building took.
const SEARCHES_PAUSE_S: u32 = 15;

/// If there is no memory for an index, it is tried again after this time.
const FULL_PAUSE_S: u32 = 300;

fn lock<'m>(state: &'m Mutex<State>, interrupt: &dyn Interrupt) -> Result<MutexGuard<'m, State>, Canceled> {
    loop {
        if let Some(locked) = state.try_lock_for(LOCK_WAIT) {
            return Ok(locked);
        }
        if interrupt.is_set() {
            return Err(Canceled);
        }
    }
}
