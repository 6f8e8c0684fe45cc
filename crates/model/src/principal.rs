//! Identity of a caller: its tenant and rights.

use crate::TenantId;

/// Originator of a request, determined once at the edge and carried through the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Tenant whose data the request reads or writes.
    pub tenant: TenantId,
    /// Rights on the tenant's data.
    pub rights: Rights,
}

/// Permitted operations on a tenant's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Query and export.
    pub read: bool,
    /// Send samples.
    pub write: bool,
}

impl Principal {
    /// A principal with all rights on a tenant. Without authentication, every caller has all rights.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, rights: Rights { read: true, write: true } }
    }
}
