//! The entry of a tenant: the state of its index, and when it is built again.

use super::ready::Ready;
use super::{REBUILD_PART, Snapshot};
use ::paths::Runs;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use stdx::budget::Reservation;

#[derive(Debug)]
pub(super) struct TenantPaths {
    pub(super) state: Mutex<State>,
    /// The names of an index that lacks some, until there is another one.
    pub(super) stale: Mutex<Option<Runs>>,
    /// When metrics were last searched, in seconds of the steady clock.
    used_s: AtomicU32,
    /// Whether metrics were searched since the entry was made.
    is_searched: AtomicBool,
    /// True if an index was dropped because of a delete.
    is_emptied: bool,
    kept: Arc<Kept>,
}

/// What is known of a tenant even after a delete.
#[derive(Debug)]
struct Kept {
    /// After a delete, an index is not built before this time, in seconds of the steady clock. Building takes a small part of the time, even
    /// if a client deletes again and again.
    rebuild_from_s: AtomicU32,
    /// Each snapshot has a copy.
    searches: Arc<()>,
    _memory: Reservation,
}

#[derive(Debug)]
pub(super) enum State {
    /// An index should be built, but not before this time.
    Wanted {
        from_s: u32,
    },
    Building,
    Ready(Box<Ready>),
}

impl TenantPaths {
    /// `memory` is that of the entry.
    pub(super) fn new(memory: Reservation) -> Self {
        let (rebuild_from_s, searches) = (AtomicU32::new(0), Arc::default());
        Self {
            state: Mutex::new(State::Wanted { from_s: 0 }),
            stale: Mutex::default(),
            used_s: AtomicU32::new(0),
            is_searched: AtomicBool::new(false),
            is_emptied: false,
            kept: Arc::new(Kept { rebuild_from_s, searches, _memory: memory }),
        }
    }

    /// The entry after a delete.
    pub(super) fn emptied(&self) -> Self {
        Self {
            state: Mutex::new(State::Wanted { from_s: 0 }),
            stale: Mutex::default(),
            used_s: AtomicU32::new(self.used_s()),
            is_searched: AtomicBool::new(false),
            is_emptied: true,
            kept: Arc::clone(&self.kept),
        }
    }

    pub(super) fn note_search(&self, now_s: u32) {
        self.used_s.store(now_s, Ordering::Relaxed);
        self.is_searched.store(true, Ordering::Relaxed);
    }

    pub(super) fn used_s(&self) -> u32 {
        self.used_s.load(Ordering::Relaxed)
    }

    /// When an index that is wanted from `from_s` on may be built.
    pub(super) fn build_from_s(&self, from_s: u32) -> u32 {
        match self.is_emptied {
            true => from_s.max(self.kept.rebuild_from_s.load(Ordering::Relaxed)),
            false => from_s,
        }
    }

    /// Whether an index should be built now.
    pub(super) fn is_due(&self, now_s: u32) -> bool {
        match &*self.state.lock() {
            State::Wanted { from_s } => {
                self.is_searched.load(Ordering::Relaxed) && self.build_from_s(*from_s) <= now_s
            }
            State::Building => true,
            State::Ready(ready) => ready.is_old(now_s),
        }
    }

    /// Notes how long a build took. The first index after a delete is built at once, and later ones after a pause.
    pub(super) fn note_build(&self, now_s: u32, took: Duration) {
        if self.is_emptied {
            let pause_s = took.saturating_mul(REBUILD_PART).as_secs().min(u32::MAX.into()) as u32;
            self.kept.rebuild_from_s.store(now_s.saturating_add(pause_s), Ordering::Relaxed);
        }
    }

    /// Keeps the names of a ready index in which some are missing, until there is another.
    pub(super) fn lose(&self, state: &mut State) {
        if let State::Ready(ready) = state {
            *self.stale.lock() = Some(ready.runs().clone());
            *state = State::Wanted { from_s: ready.again_from_s() };
        }
    }

    /// An index that is only old stays. The next build is tried at `from_s`.
    pub(super) fn postpone(&self, from_s: u32) {
        match &mut *self.state.lock() {
            State::Ready(ready) => ready.postpone(from_s),
            state => *state = State::Wanted { from_s },
        }
    }

    pub(super) fn has_old(&self) -> bool {
        matches!(&*self.state.lock(), State::Ready(_))
    }

    pub(super) fn stale(&self) -> Option<Snapshot> {
        let runs = self.stale.lock().clone()?;
        Some(Snapshot { runs, is_fresh: false, left_out: Vec::new(), _search: self.search() })
    }

    pub(super) fn snapshot_of(&self, ready: &Ready) -> Snapshot {
        let (runs, left_out) = (ready.runs().clone(), ready.left_out().to_vec());
        Snapshot { runs, is_fresh: true, left_out, _search: self.search() }
    }

    fn search(&self) -> Arc<()> {
        Arc::clone(&self.kept.searches)
    }

    /// True if there are snapshots of the tenant's indexes. Memory of indexes that were dropped may still be in use.
    pub(super) fn has_searches(&self) -> bool {
        Arc::strong_count(&self.kept.searches) > 1
    }
}
