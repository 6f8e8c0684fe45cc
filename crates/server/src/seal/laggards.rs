//! Tenants that cannot be sealed: what everybody may know of them.

use crate::limits::head_watermarks;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Tenants that were set aside, and since when.
#[derive(Debug, Default)]
pub(crate) struct Laggards {
    /// Tenants and since when, in milliseconds since the Unix epoch.
    since_ms: Mutex<BTreeMap<TenantId, i64>>,
    /// How many there are: mostly none, and nobody has to look any closer.
    count: AtomicUsize,
    /// In the last round in which anybody was to be sealed, somebody was: it is not the store that is away.
    others_get_on: AtomicBool,
}

impl Laggards {
    pub(super) fn add(&self, tenant: &TenantId, since_ms: i64) {
        let mut all = self.since_ms.lock();
        all.insert(tenant.clone(), since_ms);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, tenant: &TenantId) {
        let mut all = self.since_ms.lock();
        all.remove(tenant);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// A round was committed in which somebody was sealed, or nobody of those who were to be.
    pub(super) fn others_are_sealed(&self, are: bool) {
        self.others_get_on.store(are, Ordering::Relaxed);
    }

    /// Whether somebody is sealed.
    pub(super) fn do_others_get_on(&self) -> bool {
        self.others_get_on.load(Ordering::Relaxed)
    }

    /// How full the head may be, in percent, for writes of this tenant; `None` where it gets on.
    pub(crate) fn head_percent(&self, tenant: &TenantId) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.since_ms.lock().contains_key(tenant) {
            return None;
        }
        Some(if self.do_others_get_on() {
            head_watermarks::REFUSE_LAGGARDS
        } else {
            head_watermarks::REFUSE_LAST
        })
    }

    /// All of them, and since when.
    pub(crate) fn all(&self) -> Vec<(TenantId, i64)> {
        self.since_ms.lock().iter().map(|(tenant, since_ms)| (tenant.clone(), *since_ms)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
