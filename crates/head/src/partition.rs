//! What one owner owns: the heads of all tenants in one partition.

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

    /// Bytes of memory of one tenant.
    pub fn memory_bytes_of(&self, tenant: &TenantId) -> usize {
        self.tenant(tenant).map_or(0, TenantHead::memory_bytes)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.tenants.values().map(TenantHead::memory_bytes).sum()
    }
}
