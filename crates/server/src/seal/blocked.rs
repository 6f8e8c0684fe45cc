//! The tenants that cannot be sealed at present. Admission and metrics use this list.

use admission::watermarks;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct BlockedTenants {
    tenants: Mutex<BTreeMap<TenantId, BlockedTenant>>,
    /// Number of blocked tenants, which can be read without the lock.
    count: AtomicUsize,
    /// True if the latest round that had tenants to seal could seal at least one of them.
    others_are_sealed: AtomicBool,
}

#[derive(Debug)]
struct BlockedTenant {
    since_ms: i64,
    /// When sealing is tried again. `None` if this is not known.
    retry_at: Option<Instant>,
}

impl BlockedTenants {
    pub(super) fn add(&self, tenant: &TenantId, since_ms: i64) {
        let mut all = self.tenants.lock();
        all.insert(tenant.clone(), BlockedTenant { since_ms, retry_at: None });
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Notes when sealing the tenant is tried again.
    pub(super) fn retries_at(&self, tenant: &TenantId, at: Instant) {
        if let Some(blocked) = self.tenants.lock().get_mut(tenant) {
            blocked.retry_at = Some(at);
        }
    }

    /// Time until sealing the tenant is tried again. `None` if this is not known.
    pub(super) fn until_retry(&self, tenant: &TenantId, now: Instant) -> Option<Duration> {
        let retry_at = self.tenants.lock().get(tenant)?.retry_at?;
        Some(retry_at.saturating_duration_since(now))
    }

    pub(super) fn remove(&self, tenant: &TenantId) {
        let mut all = self.tenants.lock();
        all.remove(tenant);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    pub(super) fn set_others_are_sealed(&self, are_sealed: bool) {
        self.others_are_sealed.store(are_sealed, Ordering::Relaxed);
    }

    /// If the tenant is blocked, returns the fill level of the head, in percent, at which its writes are refused.
    pub(crate) fn head_percent(&self, tenant: &TenantId) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.tenants.lock().contains_key(tenant) {
            return None;
        }
        Some(watermarks::refuse_blocked_from(self.others_are_sealed.load(Ordering::Relaxed)))
    }

    pub(crate) fn all(&self) -> Vec<(TenantId, i64)> {
        self.tenants.lock().iter().map(|(tenant, blocked)| (tenant.clone(), blocked.since_ms)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
