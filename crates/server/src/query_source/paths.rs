//! Indexes of the names of untagged metrics, one for each tenant whose metrics are searched or rendered by globs.
//!
//! ```text
//!   first search ─▶ wanted ──keeper──▶ building ─▶ ready ◀─ each search adds the names that are new in the heads
//!                     ▲                               │
//!                     └── names may be missing, such as those of an import, or the index is old
//! ```
//!
//! Until an index is ready, and if there is no memory for it, searches read all names instead ([`names`]). An index has
//! every name that a search must find, and perhaps names whose samples were deleted since it was built. One that lacks names is kept
//! until there is another, for those who would rather have most of them than none ([`silent`]).
//!
//! - [`globs`]: series whose names a glob matches
//! - [`keeper`]: the thread that builds indexes, merges their runs, and drops those that are not used
//! - [`ready`]: an index, and what it knows
//! - [`silent`]: metrics without samples in the range of a query

mod globs;
mod keeper;
pub(super) mod names;
mod ready;
mod silent;
#[cfg(test)]
mod tests;

pub(crate) use globs::GlobSource;
pub(crate) use keeper::Keeper;

use crate::query_source::{Canceled, Context};
use ::paths::Runs;
use model::TenantId;
use parking_lot::{Mutex, MutexGuard};
use query::Interrupt;
use ready::{Fresh, Ready, table_of};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use stdx::budget::{Account, Reservation};
use stdx::telemetry::{Counter, Registry};
use tokio::sync::Semaphore;

/// Memory of a tenant's entry, without the names.
const TENANT_BYTES: usize = 1024;

/// A search that waits for another search to update the index, or for the index, checks at this interval whether it was canceled.
const LOCK_WAIT: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct PathIndexes {
    account: Account,
    tenants: Mutex<HashMap<TenantId, Arc<TenantPaths>>>,
    keeper: OnceLock<Thread>,
    /// Places for queries that wait for an index. They keep threads of queries from other work.
    waiting: Semaphore,
    /// Searches that read all names, because there was no index.
    scans: Counter,
    builds: Counter,
}

#[derive(Debug)]
struct TenantPaths {
    state: Mutex<State>,
    /// The names of an index that lacks some, until there is another one.
    stale: Mutex<Option<Runs>>,
    /// When metrics were last searched, in seconds of the steady clock.
    used_s: AtomicU32,
    _memory: Reservation,
}

#[derive(Debug)]
enum State {
    /// An index should be built, but not before this time.
    Wanted {
        from_s: u32,
    },
    Building,
    Ready(Box<Ready>),
}

/// The names of a tenant, and warnings about data that could not be read.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) runs: Runs,
    /// False if names may be missing besides those that could not be read.
    is_fresh: bool,
    pub(crate) left_out: Vec<String>,
}

impl Snapshot {
    /// For a tenant without metrics.
    fn empty() -> Self {
        Self { runs: Runs::default(), is_fresh: true, left_out: Vec::new() }
    }
}

impl PathIndexes {
    /// Half of `query_threads` may wait for indexes.
    pub(crate) fn new(account: Account, query_threads: usize, registry: &Registry) -> Self {
        Self {
            account,
            waiting: Semaphore::new((query_threads / 2).max(1)),
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

    /// Drops the index of a tenant, because samples were deleted.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        self.tenants.lock().remove(tenant);
    }

    /// The names of all metrics that were acknowledged before the call, for a search that otherwise reads all names. `None` if there is
    /// no index; it is then built if there is memory for it.
    pub(crate) fn snapshot(
        &self,
        context: &Context,
        tenant: &TenantId,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Snapshot>, Canceled> {
        self.enter(tenant);
        let snapshot = self.of_known(context, tenant, interrupt)?.filter(|snapshot| snapshot.is_fresh);
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
        self.enter(tenant);
        let mut place = None;
        loop {
            let snapshot = self.of_known(context, tenant, interrupt)?;
            if snapshot.is_some() || !self.is_coming(context, tenant) || wait.is_over(context) {
                return Ok(snapshot);
            }
            if interrupt.is_set() || !interrupt.may_wait() {
                return Err(Canceled);
            }
            if place.is_none() {
                place = self.waiting.try_acquire().ok();
            }
            if place.is_none() {
                return Ok(None); // the other threads are left to queries that need not wait
            }
            std::thread::sleep(LOCK_WAIT);
        }
    }

    /// True if an index is being built, or will be as soon as the keeper is free.
    fn is_coming(&self, context: &Context, tenant: &TenantId) -> bool {
        let paths = self.tenants.lock().get(tenant).map(Arc::clone);
        self.keeper.get().is_some()
            && paths.is_some_and(|paths| match &*paths.state.lock() {
                State::Wanted { from_s } => *from_s <= context.steady_s(),
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
        paths.used_s.store(now_s, Ordering::Relaxed);
        let is_ready = match &*lock(&paths.state, interrupt)? {
            State::Ready(_) => true,
            State::Wanted { from_s } if *from_s <= now_s => {
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
                Ok(Some(ready.snapshot()))
            }
            Fresh::Missing => {
                paths.keep_stale(ready);
                *state = State::Wanted { from_s: ready.again_from_s() };
                Ok(paths.stale())
            }
            Fresh::Full => {
                *state = State::Wanted { from_s: now_s + FULL_PAUSE_S }; // others need the memory
                Ok(None)
            }
        }
    }

    /// Makes an entry for the tenant, if there is memory for it.
    fn enter(&self, tenant: &TenantId) {
        let mut tenants = self.tenants.lock();
        if !tenants.contains_key(tenant)
            && let Ok(memory) = self.account.reserve((TENANT_BYTES + 2 * tenant.as_str().len()) as u64)
        {
            let state = Mutex::new(State::Wanted { from_s: 0 });
            let (stale, used_s) = (Mutex::default(), AtomicU32::new(0));
            let paths = TenantPaths { state, stale, used_s, _memory: memory };
            tenants.insert(tenant.clone(), Arc::new(paths));
        }
    }

    fn wake(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

impl TenantPaths {
    fn keep_stale(&self, ready: &Ready) {
        *self.stale.lock() = Some(ready.runs().clone());
    }

    fn stale(&self) -> Option<Snapshot> {
        let runs = self.stale.lock().clone();
        runs.map(|runs| Snapshot { runs, is_fresh: false, left_out: Vec::new() })
    }
}

/// A request waits for indexes for at most this time, however many targets it has.
const BUILD_WAIT: Duration = Duration::from_secs(5);

/// How long a request may still wait for an index.
#[derive(Debug, Default)]
pub(crate) struct BuildWait(OnceLock<Instant>);

impl BuildWait {
    fn is_over(&self, context: &Context) -> bool {
        let now = context.clock.instant();
        now.saturating_duration_since(*self.0.get_or_init(|| now)) >= BUILD_WAIT
    }
}

/// An index in which names may be missing is built again, but only after this time, and after [`REBUILD_PART`] times the time that
/// building took.
const REBUILD_PAUSE_S: u32 = 60;
const REBUILD_PART: u32 = 10;

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
