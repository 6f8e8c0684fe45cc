use super::claim_name::ClaimName;
use super::key::{KeySet, Origin};
use super::token::{Fault, Token};
use crate::auth::grant::Roles;
use hyper::Uri;
use model::TenantPatterns;
use std::sync::Arc;

/// Limit on issuers. A token may have to be compared with all of them.
pub(crate) const ISSUERS_MAX: usize = 16;

pub(crate) const AUDIENCES_MAX: usize = 16;

pub(crate) const LEEWAY_MS_MAX: i64 = 300_000;

/// Default of `leeway`, by which the clocks of issuer and server may differ. Synchronized clocks differ by less.
pub(crate) const LEEWAY_MS: i64 = 30_000;

#[derive(Debug)]
pub(crate) enum Keys {
    File(Arc<KeySet>),
    Url(Arc<str>, Uri),
}

impl Keys {
    pub(crate) fn of_file(text: &str) -> Result<Self, String> {
        KeySet::parse(text, Origin::File).map(|keys| Self::File(Arc::new(keys)))
    }
}

/// A service whose tokens are accepted: `[jwt.NAME]` in the file of credentials.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) name: String,
    pub(crate) keys: Keys,
    /// Value that the claim `iss` must have. `None`: tokens may have any issuer.
    pub(crate) issuer: Option<String>,
    /// Values of which the claim `aud` must contain one. Empty: tokens may be for any audience.
    pub(crate) audiences: Vec<String>,
    pub(crate) leeway_ms: i64,
    /// A token cannot allow more than these tenants and roles.
    pub(crate) tenants: Arc<TenantPatterns>,
    pub(crate) roles: Roles,
    pub(crate) tenants_claim: Option<ClaimName>,
    pub(crate) roles_claim: Option<ClaimName>,
}

impl Issuer {
    /// The issuer's table in `auth_file`, such as `[jwt.keycloak]`.
    pub(super) fn table(&self) -> String {
        format!("[{}]", self.name.replacen(' ', ".", 1))
    }

    /// Fails if the table is not for such tokens.
    pub(super) fn check(&self, token: &Token<'_>) -> Result<(), Fault> {
        let is_for_us =
            self.audiences.is_empty() || self.audiences.iter().any(|audience| token.is_for(audience));
        match &self.issuer {
            Some(issuer) if !token.is_from(issuer) => Err(Fault::Foreign),
            _ if is_for_us => Ok(()),
            Some(_) => Err(Fault::Audience),
            None => Err(Fault::Foreign),
        }
    }
}
