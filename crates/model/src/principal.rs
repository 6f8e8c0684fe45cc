use crate::TenantId;

/// The tenant for which something is read or written, and the rights of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub rights: Rights,
}

/// What the caller may do with the tenant's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

impl Principal {
    /// All rights on a tenant, for a server without authentication.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, rights: Rights { read: true, write: true } }
    }
}
