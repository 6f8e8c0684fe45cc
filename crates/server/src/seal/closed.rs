//! Closed tenants: replay could not read from their tables which samples are sealed.
//!
//! The journal keeps a closed tenant's samples. The tenant's writes and queries are refused until the samples are in
//! the head again. Otherwise, samples could be sealed twice or never.

use crate::refusal::Refusal;
use admission::WriteRefusal;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Closed {
    tenants: Mutex<BTreeMap<TenantId, ClosedTenant>>,
    /// Number of closed tenants, which can be read without the lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct ClosedTenant {
    /// Partitions whose journal must still be replayed for this tenant.
    partitions: BTreeSet<usize>,
    /// Partitions whose journal was replayed, so that the tenant's samples are in the head again.
    replayed: BTreeSet<usize>,
    why: String,
    /// How often a replay for this tenant was abandoned because the heads had no room.
    no_room_count: u64,
}

impl Closed {
    pub(super) fn add(&self, tenant: &TenantId, partition: usize, why: String) {
        let mut tenants = self.tenants.lock();
        let new =
            || ClosedTenant { partitions: BTreeSet::new(), replayed: BTreeSet::new(), why, no_room_count: 0 };
        tenants.entry(tenant.clone()).or_insert_with(new).partitions.insert(partition);
        self.count.store(tenants.len(), Ordering::Release);
    }

    /// Reopens a tenant for one partition. Returns true if no partition is closed any more.
    pub(super) fn remove(&self, tenant: &TenantId, partition: usize) -> bool {
        let mut tenants = self.tenants.lock();
        let Some(closed) = tenants.get_mut(tenant) else { return false };
        closed.partitions.remove(&partition);
        closed.replayed.insert(partition);
        let is_open = closed.partitions.is_empty();
        if is_open {
            tenants.remove(tenant);
        }
        self.count.store(tenants.len(), Ordering::Release);
        is_open
    }

    pub(super) fn explain(&self, tenant: &TenantId, why: String) {
        if let Some(closed) = self.tenants.lock().get_mut(tenant) {
            closed.why = why;
        }
    }

    /// Notes that the heads had no room for a tenant. Returns the partitions whose journal was already replayed for
    /// the tenant; the caller must remove the tenant's samples from their heads.
    pub(super) fn record_no_room(&self, tenant: &TenantId) -> BTreeSet<usize> {
        let mut tenants = self.tenants.lock();
        let Some(closed) = tenants.get_mut(tenant) else { return BTreeSet::new() };
        closed.why = "the heads have no room for its samples; raise --memory".into();
        closed.no_room_count += 1;
        let replayed = std::mem::take(&mut closed.replayed);
        closed.partitions.extend(&replayed);
        replayed
    }

    /// If the heads have lacked room for any of these tenants before, keeps only one of them: the one that lacked
    /// room least often.
    pub(super) fn keep_one_that_may_fit<T>(&self, wanted: &mut BTreeMap<TenantId, T>) {
        let tenants = self.tenants.lock();
        let no_room_count = |tenant: &TenantId| tenants.get(tenant).map_or(0, |closed| closed.no_room_count);
        if wanted.keys().any(|tenant| no_room_count(tenant) > 0)
            && let Some(next) = wanted.keys().min_by_key(|tenant| no_room_count(tenant)).cloned()
        {
            wanted.retain(|tenant, _| *tenant == next);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn tenants(&self) -> BTreeSet<TenantId> {
        self.tenants.lock().keys().cloned().collect()
    }

    /// Tenants for which this partition's journal must still be replayed.
    pub(super) fn of(&self, partition: usize) -> BTreeSet<TenantId> {
        let tenants = self.tenants.lock();
        let of = tenants.iter().filter(|(_, closed)| closed.partitions.contains(&partition));
        of.map(|(tenant, _)| tenant.clone()).collect()
    }

    pub(crate) fn contains(&self, tenant: &TenantId) -> bool {
        !self.is_empty() && self.tenants.lock().contains_key(tenant)
    }

    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), Refusal> {
        let refused = |why| WriteRefusal::Closed { tenant: tenant.clone(), why }.into();
        self.why(tenant).map_or(Ok(()), |why| Err(refused(why)))
    }

    pub(crate) fn why(&self, tenant: &TenantId) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        self.tenants.lock().get(tenant).map(|closed| closed.why.clone())
    }
}

#[cfg(test)]
mod tests;
