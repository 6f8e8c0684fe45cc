use crate::TenantId;

/// Sender of a request, determined once at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Tenant that the request reads or writes.
    pub tenant: TenantId,
    pub rights: Rights,
}

/// Permitted operations on a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Query and export.
    pub read: bool,
    /// Send samples.
    pub write: bool,
}

impl Principal {
    /// A principal with all rights on a tenant, as without authentication.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, rights: Rights { read: true, write: true } }
    }
}
