//! The thread that keeps indexes: builds those that are wanted, merges runs, and drops what is not used.

use super::ready::{Fresh, REBUILD_S, Ready, Unbuilt, open_table_of};
use super::tenant::{State, TenantPaths};
use super::{FULL_PAUSE_S, PathIndexes, REBUILD_PART, SEARCHES_PAUSE_S};
use crate::limits::pacer::Traffic;
use crate::partition::PartitionShared;
use crate::query_source::{Canceled, Context};
use ::paths::Runs;
use model::TenantId;
use query::Interrupt;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// All indexes are visited at this interval. It is much shorter than the time after which idle series are evicted, so that
/// no series is born and removed between two updates.
const EVERY: Duration = Duration::from_secs(20);

/// An index without searches for this long is dropped.
const UNUSED_S: u32 = 6 * 3600;

/// If names cannot be read, the index is tried again after this time, or after [`REBUILD_PART`] times the time that building took.
const UNREADABLE_PAUSE_S: u32 = 30;

/// After a build that took at least this long, the keeper looks again for what is due: smaller indexes may have become due meanwhile.
const LONG_BUILD: Duration = Duration::from_secs(1);

/// In comparisons of tenants by size, a series in memory counts as this many bytes of data files.
const SERIES_BYTES: u64 = 256;

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
        while !self.is_stopping() {
            self.visit_all();
            thread::park_timeout(EVERY);
        }
    }

    fn indexes(&self) -> &PathIndexes {
        &self.context.paths
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Does all work that is due.
    pub(crate) fn visit_all(&self) {
        for (tenant, paths) in self.indexes().all() {
            if self.is_stopping() {
                return;
            }
            let now_s = self.context.steady_s();
            match now_s.saturating_sub(paths.used_s()) > UNUSED_S {
                true => self.indexes().remove(&tenant),
                false => self.update(&tenant, &paths, now_s),
            }
        }
        let mut visited = HashSet::new();
        while self.build_due(&mut visited) {}
    }

    /// Updates an index, so that searches have little to add.
    fn update(&self, tenant: &TenantId, paths: &TenantPaths, now_s: u32) {
        let table = open_table_of(&self.context, tenant);
        let mut state = paths.state.lock();
        let State::Ready(ready) = &mut *state else { return };
        if ready.is_old(now_s) {
            return;
        }
        let (interrupt, account) = (&*self.interrupt, &self.indexes().account);
        match ready.refresh(&self.context, tenant, table, interrupt, account) {
            Ok(Fresh::Yes) => {
                drop(state);
                self.merge(paths);
            }
            Ok(Fresh::Missing) => paths.lose(&mut state),
            // the next search decides what to do if there is no memory then
            Ok(Fresh::Full) | Err(Canceled) => {}
        }
    }

    /// Builds indexes that are due, the smallest first, so that no tenant waits for a much larger one. Adds their tenants to `visited`.
    /// Returns false if no index was due, apart from those of `visited`, or if the server stops.
    fn build_due(&self, visited: &mut HashSet<TenantId>) -> bool {
        let now_s = self.context.steady_s();
        let mut due = self.indexes().all();
        due.retain(|(tenant, paths)| paths.is_due(now_s) && !visited.contains(tenant));
        due.sort_by_cached_key(|(tenant, _)| self.size_of(tenant));
        let is_done = due.is_empty();
        for (tenant, paths) in due {
            if self.is_stopping() {
                return false;
            }
            if !self.indexes().is_current(&tenant, &paths) {
                continue; // replaced after a delete
            }
            let took = self.build(&tenant, &paths);
            visited.insert(tenant);
            if took >= LONG_BUILD {
                break; // smaller ones may be due by now
            }
        }
        !is_done
    }

    /// Estimates how many bytes have to be read to build the tenant's index.
    fn size_of(&self, tenant: &TenantId) -> u64 {
        let count = |partition: &PartitionShared| {
            partition.head.read().tenant(tenant).map_or(0, head::TenantHead::series_count) as u64
        };
        let in_heads: u64 = self.context.partitions.iter().map(|partition| count(partition)).sum();
        let table = self.context.lake.existing(tenant).ok().flatten();
        (in_heads * SERIES_BYTES).saturating_add(table.map_or(0, |table| table.data_bytes()))
    }

    /// Builds an index. Returns how long it took.
    fn build(&self, tenant: &TenantId, paths: &TenantPaths) -> Duration {
        if !self.make_room(paths) {
            return Duration::ZERO;
        }
        let (indexes, clock) = (self.indexes(), &self.context.clock);
        let began = clock.instant();
        let build = || Ready::build(&self.context, tenant, &self.interrupt, &indexes.account);
        let mut built = build();
        if matches!(built, Err(Unbuilt::Full(_))) && self.give_up_stale(paths) {
            built = build();
        }
        let took = clock.instant().saturating_duration_since(began);
        paths.note_build(self.context.steady_s(), took);
        match built {
            Ok(ready) => {
                indexes.builds.inc();
                let (names, bytes) = (ready.runs().len(), ready.runs().memory_bytes());
                tracing::debug!(%tenant, names, bytes, "built the index of names");
                let mut state = paths.state.lock();
                *paths.stale.lock() = None;
                *state = State::Ready(Box::new(ready));
                drop(state);
                self.merge(paths);
            }
            Err(unbuilt) => self.put_off(tenant, paths, unbuilt, took),
        }
        took
    }

    /// Decides when an index is tried again.
    fn put_off(&self, tenant: &TenantId, paths: &TenantPaths, unbuilt: Unbuilt, took: Duration) {
        let pause_s = match unbuilt {
            Unbuilt::Canceled => 0,
            Unbuilt::Unreadable(error) => {
                tracing::warn!(%tenant, %error, "cannot read the tenant's names to build an index of them");
                Self::pause_s(took, UNREADABLE_PAUSE_S)
            }
            Unbuilt::Full(_) if paths.has_old() => REBUILD_S,
            // these searches hold memory, but not for long
            Unbuilt::Full(_) if paths.has_searches() => Self::pause_s(took, SEARCHES_PAUSE_S),
            Unbuilt::Full(why) => {
                tracing::warn!(
                    %tenant, why,
                    "no memory for the index of names; Graphite's searches read all names, which takes longer (setting memory)"
                );
                Self::pause_s(took, FULL_PAUSE_S)
            }
        };
        paths.postpone(self.context.steady_s().saturating_add(pause_s));
    }

    /// Pause after a build in vain, so that such builds take a small part of the keeper's time.
    fn pause_s(took: Duration, least_s: u32) -> u32 {
        took.saturating_mul(REBUILD_PART).as_secs().clamp(least_s.into(), REBUILD_S.into()) as u32
    }

    /// Makes room for an index, as far as an older one takes it. False if the older one is kept instead.
    fn make_room(&self, paths: &TenantPaths) -> bool {
        let account = &self.indexes().account;
        let free_bytes = account.limit_bytes().saturating_sub(account.used_bytes());
        match &mut *paths.state.lock() {
            // an index that is only old is used until the new one is ready
            State::Ready(old) => {
                let has_room = old.runs().memory_bytes() <= free_bytes;
                if !has_room {
                    old.postpone(self.context.steady_s().saturating_add(REBUILD_S));
                }
                return has_room;
            }
            state => *state = State::Building,
        }
        let stale_bytes = paths.stale.lock().as_ref().map_or(0, Runs::memory_bytes);
        let has_room = stale_bytes <= free_bytes || self.give_up_stale(paths);
        if !has_room {
            paths.postpone(self.context.steady_s().saturating_add(SEARCHES_PAUSE_S));
        }
        has_room
    }

    /// Drops an index in which names are missing, because there is no memory for two. False if there is none, or if searches hold its
    /// memory until they end.
    fn give_up_stale(&self, paths: &TenantPaths) -> bool {
        paths.stale.lock().take().is_some() && !paths.has_searches()
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
