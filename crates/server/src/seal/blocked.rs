//! List of blocked tenants, for admission and metrics.

use admission::watermarks;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct BlockedTenants {
    /// Start of each blockage, in Unix milliseconds.
    since_ms: Mutex<BTreeMap<TenantId, i64>>,
    /// Number of blocked tenants, read without the lock.
    count: AtomicUsize,
    /// True if the last round with tenants to seal has sealed at least one tenant.
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

    /// Fill level of the head, in percent, from which a blocked tenant's writes are refused.
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
