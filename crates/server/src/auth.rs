//! Authentication: who asks, for which tenant, with which rights.
//!
//! ```text
//!   Authorization: Bearer, Basic ─▶ credentials (auth_file) ─┐
//!   Authorization: Bearer ─▶ JSON Web Tokens (jwt) ──────────┤
//!   or else a client certificate ─▶ credentials (auth_file) ─┤
//!   anything else ─▶ external service (forward) ─────────────┤
//!   X-Scope-OrgID from a trusted proxy ──────────────────────┼─▶ Caller: name, principal
//!   any request, no auth_file ─▶ anyone ─────────────────────┘
//! ```
//!
//! Credentials identify the caller. The roles and tenants of these credentials must allow the [`Access`] of the
//! route.

mod checks;
mod credentials;
mod digest;
mod file;
mod forward;
mod grant;
mod jwt;
mod memory;
mod networks;
mod recent;
#[cfg(test)]
mod tests;

pub(crate) use file::AuthFile;
pub(crate) use forward::service::Original;
pub(crate) use grant::Reach;
pub(crate) use networks::Networks;

use crate::refusal::Refusal;
use crate::tls::ClientNames;
use crate::watched::Watched;
use credentials::Credentials;
use forward::Forward;
use grant::Grant;
use jwt::{Jwt, Proof};
use memory::Memory;
use model::{ErrorKind, Principal, TenantId, TenantSet};
use std::net::IpAddr;
use std::sync::Arc;
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::telemetry::Registry;

/// Limit on the header `Authorization` in bytes. Tokens of services with many groups take some KiB.
pub(crate) const CREDENTIAL_BYTES_MAX: usize = 8 << 10;

/// `auth_file` may change while a request is being checked. The check is then repeated, at most this many times in
/// total.
const VERSIONS_MAX: usize = 4;

const ANYONE: &str = "anyone";

const PROXY: &str = "trusted proxy";

const UNKNOWN: &str = "the credentials are unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Metrics,
    Admin,
    TenantAdmin,
}

impl Access {
    const fn role(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Metrics => "metrics",
            Self::Admin | Self::TenantAdmin => "admin",
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Credential<'a> {
    Token(&'a [u8]),
    Password { user: &'a str, password: &'a [u8] },
    Certificate(&'a ClientNames),
}

/// What a request claims about its sender. None of it is verified yet.
pub(crate) struct Presented<'a> {
    pub(crate) original: Original<'a>,
    pub(crate) address: IpAddr,
    pub(crate) credential: Option<Credential<'a>>,
    /// Tenants that the request names. Only reads may name several.
    pub(crate) tenants: Option<TenantSet>,
}

#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    /// The first of `tenants`, with the caller's rights. `None` on routes without a tenant.
    pub(crate) principal: Option<Principal>,
    pub(crate) tenants: Option<TenantSet>,
    pub(crate) reach: Reach,
}

impl Caller {
    fn with_all_rights(name: &Arc<str>, tenants: TenantSet) -> Self {
        let principal = Principal::of(tenants.first().clone());
        let reach = Reach::everything(name);
        Self { name: Arc::clone(name), principal: Some(principal), tenants: Some(tenants), reach }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    /// File of credentials. `None`: callers are not authenticated.
    pub(crate) file: Option<AuthFile>,
    /// Proxies that authenticate callers and name their tenants.
    pub(crate) trusted_proxies: Networks,
    pub(crate) own_tenant: TenantId,
    /// Size of the account `auth`, which [`memory`] divides among caches and queues.
    pub(crate) memory_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Auth {
    credentials: Watched<AuthFile>,
    jwt: Jwt,
    forward: Arc<Forward>,
    keys: Account,
    trusted_proxies: Networks,
    own_tenant: TenantId,
    anyone: Arc<str>,
    proxy: Arc<str>,
}

impl Auth {
    pub(crate) fn new(options: Options, clock: Arc<dyn Clock>, r: &Registry) -> Self {
        let memory = Memory::shared_out(options.memory_bytes);
        let auth = Self {
            credentials: Watched::new(options.file, Credentials::default(), r),
            jwt: Jwt::new(Arc::clone(&clock), &memory, r),
            forward: Arc::new(Forward::new(clock, &memory, r)),
            keys: memory.keys,
            trusted_proxies: options.trusted_proxies,
            own_tenant: options.own_tenant,
            anyone: ANYONE.into(),
            proxy: PROXY.into(),
        };
        auth.reload();
        auth
    }

    /// True if there is an `auth_file`: callers need a credential, or must come through a trusted proxy.
    pub(crate) const fn is_required(&self) -> bool {
        self.credentials.has_source()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.jwt.held_bytes() + self.forward.held_bytes() + self.keys.used_bytes()
    }

    pub(crate) fn remind(&self) {
        self.credentials.remind();
    }

    pub(crate) fn reload(&self) {
        self.credentials.reload();
        self.jwt.urls.follow(&self.credentials.current().issuers);
    }

    pub(crate) async fn fetch_keys(&self) {
        self.jwt.urls.run().await;
    }

    pub(crate) async fn identify(&self, access: Access, presented: Presented<'_>) -> Result<Caller, Refusal> {
        let mut caller = self.find(access, presented).await?;
        if let Some(Principal { tenant, rights }) = &mut caller.principal
            && *tenant == self.own_tenant
        {
            rights.write = false;
            if access == Access::Write {
                let message = format!(
                    "tenant {tenant} has the server's own metrics: only the server may write to it (setting self_monitoring_tenant)"
                );
                return Err(Refusal::forbidden(message));
            }
        }
        Ok(caller)
    }

    async fn find(&self, access: Access, presented: Presented<'_>) -> Result<Caller, Refusal> {
        let Presented { original, address, credential, tenants } = presented;
        if let Some(tenants) = &tenants
            && access != Access::Read
            && tenants.only().is_none()
        {
            let count = tenants.iter().len();
            let message = format!("header X-Scope-OrgID names {count} tenants: only reads may name several");
            return Err(Refusal::invalid("tenant", message));
        }
        if !self.is_required() {
            let tenants = tenants.unwrap_or_else(|| TenantId::anonymous().into());
            return Ok(Caller::with_all_rights(&self.anyone, tenants));
        }
        let mut credentials = self.credentials.current();
        for _ in 0..VERSIONS_MAX {
            if let Some(grant) = credential.and_then(|credential| credentials.find(credential)) {
                return grant.caller(access, tenants);
            }
            let grant =
                self.granted_elsewhere(&credentials, original, credential, tenants.as_ref(), address).await;
            // if the file changed during the decision, decide again
            let current = self.credentials.current();
            if Arc::ptr_eq(&credentials, &current) {
                return match grant? {
                    Some(grant) => grant.caller(access, tenants),
                    None => self.without_grant(&credentials, access, credential, address, tenants),
                };
            }
            credentials = current;
        }
        Err(Refusal::busy(
            "auth_busy",
            "the credentials were not checked: auth_file changed during each attempt",
        ))
    }

    /// Verifies the credential as a JSON Web Token, or else asks the forward service. Returns `None` if neither
    /// applies.
    async fn granted_elsewhere(
        &self,
        credentials: &Arc<Credentials>,
        original: Original<'_>,
        credential: Option<Credential<'_>>,
        tenants: Option<&TenantSet>,
        address: IpAddr,
    ) -> Result<Option<Arc<Grant>>, Refusal> {
        let mut is_foreign = false;
        if let Some(Credential::Token(token)) = credential
            && !credentials.issuers.is_empty()
            && jwt::is_token(token)
        {
            match self.jwt.prove(credentials, token, address).await? {
                Proof::Of(grant) => return Ok(Some(grant)),
                Proof::Foreign => is_foreign = true,
            }
        }
        let service = credentials.service.as_ref();
        match service.map(|service| service.question(original, tenants)).transpose()?.flatten() {
            Some(question) => self.forward.ask(credentials, question, address).await.map(Some),
            None if is_foreign => Err(jwt::foreign()),
            None => Ok(None),
        }
    }

    /// Last step for a request whose credential is missing or unknown: only a trusted proxy may still vouch for the
    /// tenant.
    fn without_grant(
        &self,
        credentials: &Credentials,
        access: Access,
        credential: Option<Credential<'_>>,
        address: IpAddr,
        tenants: Option<TenantSet>,
    ) -> Result<Caller, Refusal> {
        match credential {
            // a proxy may have a certificate that is not in `auth_file`: the listener may require one from every client
            Some(Credential::Certificate(_)) => self.through_proxy(access, address, tenants).map_err(|_| {
                unauthenticated("the client certificate is unknown, and the request has no other credentials")
            }),
            Some(Credential::Token(_)) => Err(unauthenticated(UNKNOWN)),
            // only the log says whether there is such a user; a name that is not in the file may be a secret by mistake
            Some(Credential::Password { user, .. }) => {
                let cause = match credentials.name_of(user) {
                    Some(name) => format!("the password of {name} is wrong"),
                    None => format!("{UNKNOWN}: auth_file has no such user"),
                };
                Err(unauthenticated(UNKNOWN).with_cause(Some(cause)))
            }
            None => self.through_proxy(access, address, tenants),
        }
    }

    /// Accepts the tenant that a trusted proxy names. A proxy gets no administrative access.
    fn through_proxy(
        &self,
        access: Access,
        address: IpAddr,
        tenants: Option<TenantSet>,
    ) -> Result<Caller, Refusal> {
        match (access, tenants) {
            (Access::Read | Access::Write, Some(tenants)) if self.trusted_proxies.contains(address) => {
                Ok(Caller::with_all_rights(&self.proxy, tenants))
            }
            (Access::Read | Access::Write, None) if self.trusted_proxies.contains(address) => {
                Err(unauthenticated(
                    "credentials are required in the header Authorization; a trusted proxy, such as this address, may name the tenant in X-Scope-OrgID instead",
                ))
            }
            _ => Err(unauthenticated(
                "credentials are required: Authorization: Bearer TOKEN, or Basic with user and password",
            )),
        }
    }
}

pub(crate) fn unauthenticated(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorKind::Unauthenticated, "unauthenticated", message)
}
