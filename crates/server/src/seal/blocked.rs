//! The tenants that cannot be sealed at present. Admission and metrics use this list.

use admission::watermarks;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct BlockedTenants {
    since_ms: Mutex<BTreeMap<TenantId, i64>>,
    /// Number of blocked tenants, which can be read without the lock.
    count: AtomicUsize,
    /// True if the latest round that had tenants to seal could seal at least one of them.
    others_are_sealed: AtomicBool,
}

impl BlockedTenants {
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

    pub(super) fn set_others_are_sealed(&self, are_sealed: bool) {
        self.others_are_sealed.store(are_sealed, Ordering::Relaxed);
    }

    /// If the tenant is blocked, returns the fill level of the head, in percent, at which its writes are refused.
    pub(crate) fn head_percent(&self, tenant: &TenantId) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.since_ms.lock().contains_key(tenant) {
            return None;
        }
        Some(watermarks::refuse_blocked_from(self.others_are_sealed.load(Ordering::Relaxed)))
    }

    pub(crate) fn all(&self) -> Vec<(TenantId, i64)> {
        self.since_ms.lock().iter().map(|(tenant, since_ms)| (tenant.clone(), *since_ms)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
