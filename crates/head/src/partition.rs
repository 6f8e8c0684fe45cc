//! What one owner owns: the heads of all tenants in one partition.

use crate::freeze::TURN_SERIES;
use crate::tenant::TenantHead;
use hashbrown::HashMap;
use model::TenantId;

/// The head of one partition.
#[derive(Debug)]
pub struct Partition {
    tenants: HashMap<TenantId, TenantHead>,
    seed: u64,
}

impl Partition {
    /// An empty partition; `seed` is the node's secret for hashing.
    pub fn new(seed: u64) -> Self {
        Self { tenants: HashMap::new(), seed }
    }

    /// A tenant's head, where it has one.
    pub fn tenant(&self, tenant: &TenantId) -> Option<&TenantHead> {
        self.tenants.get(tenant)
    }

    /// A tenant's head, made on first sight.
    pub fn tenant_mut(&mut self, tenant: &TenantId) -> &mut TenantHead {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantHead::new(self.seed));
        }
        self.tenants.get_mut(tenant).expect("BUG: the tenant was just added")
    }

    /// All tenants.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &TenantHead)> {
        self.tenants.iter()
    }

    /// All tenants, to change.
    pub fn tenants_mut(&mut self) -> impl Iterator<Item = (&TenantId, &mut TenantHead)> {
        self.tenants.iter_mut()
    }

    /// How many tenants there are.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// Freezes all tenants' samples, in constant time for each (see [`TenantHead::freeze`]); says how many.
    pub fn freeze(&mut self) -> u64 {
        self.tenants.values_mut().map(TenantHead::freeze).sum()
    }

    /// True where a tenant has frozen samples.
    pub fn is_frozen(&self) -> bool {
        self.tenants.values().any(TenantHead::is_frozen)
    }

    /// Lets go of what is frozen, a few thousand series at a time; true where it was the last turn.
    pub fn release_turn(&mut self) -> bool {
        let mut steps = TURN_SERIES;
        self.tenants.values_mut().all(|head| head.release_some(&mut steps))
    }

    /// Bytes of memory of one tenant.
    pub fn memory_bytes_of(&self, tenant: &TenantId) -> usize {
        self.tenant(tenant).map_or(0, TenantHead::memory_bytes)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.tenants.values().map(TenantHead::memory_bytes).sum()
    }
}
