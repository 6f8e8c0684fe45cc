//! Identity of a caller: tenant and rights.

use crate::TenantId;

/// The origin of a request, established once at the edge and carried through the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant that the request is for.
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
    /// A principal with all rights on a tenant. Without authentication, every caller is one.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, rights: Rights { read: true, write: true } }
    }
}
