//! The thread that keeps indexes: builds those that are wanted, merges runs, and drops what is not used.

use super::ready::{Fresh, Unbuilt, open_table_of};
use super::{FULL_PAUSE_S, PathIndexes, Ready, State, TenantPaths};
use crate::limits::pacer::Traffic;
use crate::query_source::{Canceled, Context};
use ::paths::Runs;
use model::TenantId;
use query::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// All indexes are visited at this interval. It is much shorter than the time after which idle series are evicted, so that
/// no series is born and removed between two updates.
const EVERY: Duration = Duration::from_secs(20);

/// An index without searches for this long is dropped.
const UNUSED_S: u32 = 6 * 3600;

/// An index is built again after this time, so that it forgets names whose samples were deleted or have expired.
const REBUILD_S: u32 = 3600;

/// If names cannot be read, the index is tried again after this time.
const UNREADABLE_PAUSE_S: u32 = 30;

#[derive(Debug)]
pub(crate) struct Keeper {
    context: Arc<Context>,
    interrupt: Arc<dyn Interrupt>,
    stopping: Arc<AtomicBool>,
}

/// Ends work when the node stops, and yields to writers.
#[derive(Debug)]
struct Yielding {
    stopping: Arc<AtomicBool>,
    traffic: Arc<Traffic>,
}

impl Interrupt for Yielding {
    fn is_set(&self) -> bool {
        if !self.traffic.is_quiet() {
            thread::yield_now();
        }
        self.stopping.load(Ordering::Relaxed)
    }
}

impl Keeper {
    pub(crate) fn new(context: Arc<Context>, stopping: Arc<AtomicBool>) -> Self {
        let traffic = Arc::clone(&context.traffic);
        let interrupt = Arc::new(Yielding { stopping: Arc::clone(&stopping), traffic });
        Self { context, interrupt, stopping }
    }

    pub(crate) fn run(self) {
        // like upkeep, the lowest priority of all threads
        let _ = rustix::process::nice(10);
        let _ = self.indexes().keeper.set(thread::current());
        while !self.stopping.load(Ordering::Acquire) {
            self.visit_all();
            thread::park_timeout(EVERY);
        }
    }

    fn indexes(&self) -> &PathIndexes {
        &self.context.paths
    }

    /// Does all work that is due.
    pub(crate) fn visit_all(&self) {
        for (tenant, paths) in self.indexes().all() {
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            let now_s = self.context.steady_s();
            if now_s.saturating_sub(paths.used_s.load(Ordering::Relaxed)) > UNUSED_S {
                self.indexes().forget(&tenant);
                continue;
            }
            self.visit(&tenant, &paths, now_s);
        }
    }

    fn visit(&self, tenant: &TenantId, paths: &TenantPaths, now_s: u32) {
        let table = open_table_of(&self.context, tenant);
        {
            let mut state = paths.state.lock();
            match &mut *state {
                State::Ready(ready) if now_s.saturating_sub(ready.built_s()) < REBUILD_S => {
                    let (interrupt, account) = (&*self.interrupt, &self.indexes().account);
                    match ready.refresh(&self.context, tenant, table, interrupt, account) {
                        Ok(Fresh::Yes) => {
                            drop(state);
                            return self.merge(paths);
                        }
                        Ok(Fresh::Missing) => {
                            paths.keep_stale(ready);
                            if ready.again_from_s() > now_s {
                                *state = State::Wanted { from_s: ready.again_from_s() };
                                return;
                            }
                        }
                        Ok(Fresh::Full) | Err(Canceled) => {}
                    }
                }
                State::Wanted { from_s } if *from_s > now_s => return,
                _ => {}
            }
            // an index that is only old is used until the new one is ready
            if !matches!(&*state, State::Ready(ready) if now_s.saturating_sub(ready.built_s()) >= REBUILD_S) {
                *state = State::Building;
            }
        }
        self.build(tenant, paths, now_s);
    }

    fn build(&self, tenant: &TenantId, paths: &TenantPaths, now_s: u32) {
        let indexes = self.indexes();
        let build = || Ready::build(&self.context, tenant, &self.interrupt, &indexes.account);
        let stale_bytes = paths.stale.lock().as_ref().map_or(0, Runs::memory_bytes);
        if stale_bytes > indexes.account.limit_bytes().saturating_sub(indexes.account.used_bytes()) {
            *paths.stale.lock() = None; // there is no memory for both
        }
        let mut built = build();
        let is_old = |paths: &TenantPaths| {
            paths.stale.lock().is_some() || matches!(&*paths.state.lock(), State::Ready(_))
        };
        if matches!(built, Err(Unbuilt::Full(_))) && is_old(paths) {
            *paths.state.lock() = State::Building; // there is no memory for both
            *paths.stale.lock() = None;
            built = build();
        }
        let new = match built {
            Ok(ready) => {
                indexes.builds.inc();
                let (names, bytes) = (ready.runs().len(), ready.runs().memory_bytes());
                tracing::debug!(%tenant, names, bytes, "built the index of names");
                State::Ready(Box::new(ready))
            }
            Err(Unbuilt::Canceled) => State::Wanted { from_s: 0 },
            Err(Unbuilt::Full(why)) => {
                tracing::warn!(
                    %tenant, why,
                    "no memory for the index of names; Graphite's searches read all names, which takes longer (setting memory)"
                );
                State::Wanted { from_s: now_s + FULL_PAUSE_S }
            }
            Err(Unbuilt::Unreadable(error)) => {
                tracing::warn!(%tenant, %error, "cannot read the tenant's names to build an index of them");
                State::Wanted { from_s: now_s + UNREADABLE_PAUSE_S }
            }
        };
        {
            let mut state = paths.state.lock();
            if matches!(new, State::Ready(_)) {
                *paths.stale.lock() = None;
            }
            *state = new;
        }
        self.merge(paths);
    }

    /// Merges runs, without holding the lock while they are merged.
    fn merge(&self, paths: &TenantPaths) {
        let plan = || match &*paths.state.lock() {
            State::Ready(ready) => ready.plan(),
            _ => None,
        };
        while let Some(merge) = plan() {
            // if there is no memory to merge, searches go through more runs
            let Ok(Some(merged)) = merge.run(&self.indexes().account, || !self.interrupt.is_set()) else {
                return;
            };
            if let State::Ready(ready) = &mut *paths.state.lock() {
                ready.replace(&merge, merged);
            }
        }
    }
}
