//! Who asks, for which tenant, with which rights.

use crate::TenantId;

/// The origin of a request, established once at the edge and carried through the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant that the request is for.
    pub tenant: TenantId,
    /// What it may do there.
    pub rights: Rights,
}

/// What a principal may do with its tenant's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Query and export.
    pub read: bool,
    /// Send samples.
    pub write: bool,
}

impl Principal {
    /// A principal that may do anything with a tenant: without authentication, that is everybody.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, rights: Rights { read: true, write: true } }
    }
}
