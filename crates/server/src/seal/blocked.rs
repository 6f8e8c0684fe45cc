//! List of blocked tenants, for admission and metrics. The state machine of sealing decides which tenants are blocked.

use admission::watermarks;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Tenants that cannot be sealed together with other tenants.
#[derive(Debug, Default)]
pub(crate) struct BlockedTenants {
    /// Start of each tenant's blockage, in milliseconds since the Unix epoch.
    since_ms: Mutex<BTreeMap<TenantId, i64>>,
    /// Number of blocked tenants: usually 0, which is read without the lock.
    count: AtomicUsize,
    /// True if the last round that had tenants to seal has sealed any, which shows that the store is available.
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

    /// Fill level of the head, in percent, from which writes of this tenant are refused; `None` unless the tenant is
    /// blocked.
    pub(crate) fn head_percent(&self, tenant: &TenantId) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.since_ms.lock().contains_key(tenant) {
            return None;
        }
        Some(watermarks::refuse_blocked_from(self.others_are_sealed.load(Ordering::Relaxed)))
    }

    /// All blocked tenants, with the start of the blockage.
    pub(crate) fn all(&self) -> Vec<(TenantId, i64)> {
        self.since_ms.lock().iter().map(|(tenant, since_ms)| (tenant.clone(), *since_ms)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
