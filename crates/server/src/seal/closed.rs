//! Closed tenants: replay could not read from their tables which samples of the journal they have already.
//!
//! Without that a sample could be sealed twice or not at all. So the journal keeps the tenant's samples, and its writes and
//! queries are refused until the table has been read and the samples are in the head.

use crate::refusal::Refusal;
use admission::Refused;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Closed tenants and the reasons.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    tenants: Mutex<BTreeMap<TenantId, Shut>>,
    /// Their number: usually 0, which is read without the lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Shut {
    /// Partitions whose samples are not in the head yet.
    partitions: BTreeSet<usize>,
    why: String,
}

impl Closed {
    /// Closes a tenant: samples of one partition are missing.
    pub(super) fn add(&self, tenant: &TenantId, partition: usize, why: String) {
        let mut tenants = self.tenants.lock();
        let new = || Shut { partitions: BTreeSet::new(), why };
        tenants.entry(tenant.clone()).or_insert_with(new).partitions.insert(partition);
        self.count.store(tenants.len(), Ordering::Release);
    }

    /// One partition has all of the tenant's samples again. True if it was the last.
    pub(super) fn remove(&self, tenant: &TenantId, partition: usize) -> bool {
        let mut tenants = self.tenants.lock();
        let Some(shut) = tenants.get_mut(tenant) else { return false };
        shut.partitions.remove(&partition);
        let is_open = shut.partitions.is_empty();
        if is_open {
            tenants.remove(tenant);
        }
        self.count.store(tenants.len(), Ordering::Release);
        is_open
    }

    /// Changes the reason that refusals name.
    pub(super) fn explain(&self, tenant: &TenantId, why: String) {
        if let Some(shut) = self.tenants.lock().get_mut(tenant) {
            shut.why = why;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// All closed tenants.
    pub(super) fn tenants(&self) -> BTreeSet<TenantId> {
        self.tenants.lock().keys().cloned().collect()
    }

    /// Tenants whose samples of a partition are not in the head.
    pub(super) fn of(&self, partition: usize) -> BTreeSet<TenantId> {
        let tenants = self.tenants.lock();
        let of = tenants.iter().filter(|(_, shut)| shut.partitions.contains(&partition));
        of.map(|(tenant, _)| tenant.clone()).collect()
    }

    pub(crate) fn contains(&self, tenant: &TenantId) -> bool {
        !self.is_empty() && self.tenants.lock().contains_key(tenant)
    }

    /// Refuses a closed tenant.
    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), Refusal> {
        let refused = |why| Refused::Closed { tenant: tenant.clone(), why }.into();
        self.why(tenant).map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Reason that a tenant is closed, if it is.
    pub(crate) fn why(&self, tenant: &TenantId) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        self.tenants.lock().get(tenant).map(|shut| shut.why.clone())
    }
}

#[cfg(test)]
mod tests;
