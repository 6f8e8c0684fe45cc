use crate::TenantId;

/// Who sent a request, as determined when the request arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant whose data the request reads or writes.
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
