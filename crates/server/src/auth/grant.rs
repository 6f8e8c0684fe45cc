//! What a caller may do after its credential was accepted: the tenants and roles.

use super::{Access, Caller};
use crate::refusal::Refusal;
use model::{Principal, Rights, TenantId, TenantPatterns, TenantSet};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Roles {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) metrics: bool,
    pub(super) admin: bool,
}

impl Roles {
    pub(super) const fn grant(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
            Access::Metrics => self.metrics || self.admin,
            Access::Admin | Access::TenantAdmin => self.admin,
        }
    }

    pub(super) fn role_mut(&mut self, word: &str) -> Option<&mut bool> {
        match word {
            "read" => Some(&mut self.read),
            "write" => Some(&mut self.write),
            "metrics" => Some(&mut self.metrics),
            "admin" => Some(&mut self.admin),
            _ => None,
        }
    }

    pub(super) fn among<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut roles = Self::default();
        for word in words {
            if let Some(role) = roles.role_mut(word) {
                *role = true;
            }
        }
        roles
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            read: self.read && other.read,
            write: self.write && other.write,
            metrics: self.metrics && other.metrics,
            admin: self.admin && other.admin,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tenants {
    patterns: Arc<TenantPatterns>,
    /// The tenants that `auth_file` allows for this service. A token or an answer cannot extend them.
    within: Option<Arc<TenantPatterns>>,
}

impl Tenants {
    pub(super) const fn of(patterns: Arc<TenantPatterns>) -> Self {
        Self { patterns, within: None }
    }

    pub(super) fn within(patterns: TenantPatterns, within: &Arc<TenantPatterns>) -> Self {
        Self { patterns: Arc::new(patterns), within: Some(Arc::clone(within)) }
    }

    /// Memory of the patterns, without those of `auth_file`, which are shared by all tokens of an issuer.
    pub(super) fn bytes(&self) -> usize {
        if self.within.is_some() { self.patterns.bytes() } else { 0 }
    }

    /// True if `auth_file` names no tenants at all, as for an operator of the whole node. A claim or header that names none
    /// grants nothing.
    fn are_not_given(&self) -> bool {
        self.within.is_none() && self.patterns.is_empty()
    }

    fn matches(&self, tenant: &TenantId) -> bool {
        self.patterns.matches(tenant) && self.within.as_ref().is_none_or(|within| within.matches(tenant))
    }
}

/// The tenants that operations of administration may show and change: those of the credential, or all if `auth_file` names
/// none for it.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    name: Arc<str>,
    /// `None`: all tenants.
    tenants: Option<Tenants>,
}

impl Reach {
    pub(crate) fn everything(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), tenants: None }
    }

    pub(crate) const fn is_everything(&self) -> bool {
        self.tenants.is_none()
    }

    pub(crate) fn includes(&self, tenant: &TenantId) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.matches(tenant))
    }

    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), Refusal> {
        if self.includes(tenant) { Ok(()) } else { Err(no_access(&self.name, tenant)) }
    }
}

fn no_access(name: &str, tenant: &TenantId) -> Refusal {
    Refusal::forbidden(format!("{name} has no access to tenant {tenant} (auth_file)")).by(name)
}

const USER_BYTES_MAX: usize = 100;

#[derive(Debug, Clone)]
pub(super) struct Grant {
    /// Name for logs and errors, such as `token grafana`, `user alice`, `jwt keycloak: alice` or `forward: alice`.
    pub(super) name: Arc<str>,
    pub(super) tenants: Tenants,
    pub(super) roles: Roles,
}

/// Name of a caller for whom a service vouches. A user that is long or has unusual characters is left out, because the service
/// may have it from the caller.
pub(super) fn caller_name(service: &str, user: Option<&str>) -> Arc<str> {
    let is_plain =
        |text: &&str| text.len() <= USER_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    match user.filter(is_plain) {
        Some(user) => format!("{service}: {user}").into(),
        None => service.into(),
    }
}

impl Grant {
    pub(super) fn caller(&self, access: Access, tenants: Option<TenantSet>) -> Result<Caller, Refusal> {
        if !self.roles.grant(access) {
            let message = format!("{} does not have the role {} (auth_file)", self.name, access.role());
            return Err(Refusal::forbidden(message).by(&self.name));
        }
        let tenants = match access {
            Access::Read | Access::Write | Access::TenantAdmin => Some(self.opened(tenants)?),
            Access::Metrics | Access::Admin => None,
        };
        let rights = Rights { read: self.roles.read, write: self.roles.write };
        let principal = tenants.as_ref().map(|tenants| Principal { tenant: tenants.first().clone(), rights });
        let own = Some(&self.tenants).filter(|tenants| !tenants.are_not_given());
        let reach = Reach { name: Arc::clone(&self.name), tenants: own.cloned() };
        Ok(Caller { name: Arc::clone(&self.name), principal, tenants, reach })
    }

    /// Returns the tenants that the request names if the credential allows all of them. A request without a tenant gets
    /// the only tenant of the credential.
    fn opened(&self, tenants: Option<TenantSet>) -> Result<TenantSet, Refusal> {
        let only = || self.tenants.patterns.only().map(TenantSet::from);
        let Some(tenants) = tenants.or_else(only) else {
            if self.tenants.patterns.is_empty() {
                let message = format!("{} has no access to any tenant (auth_file)", self.name);
                return Err(Refusal::forbidden(message).by(&self.name));
            }
            let message =
                format!("{} has access to several tenants: name one in the header X-Scope-OrgID", self.name);
            return Err(Refusal::invalid("tenant", message).by(&self.name));
        };
        if let Some(tenant) = tenants.iter().find(|tenant| !self.tenants.matches(tenant)) {
            return Err(no_access(&self.name, tenant));
        }
        Ok(tenants)
    }
}
