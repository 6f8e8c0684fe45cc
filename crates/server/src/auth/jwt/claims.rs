use super::issuer::Issuer;
use crate::auth::grant::{Grant, Roles, Tenants, caller_name};
use model::TenantPatterns;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Reads the rights from the claims of a verified token. If a claim named in `auth_file` is missing, it allows nothing.
pub(super) fn grant(issuer: &Issuer, claims: &Map<String, Value>) -> Grant {
    let tenants = match &issuer.tenants_claim {
        Some(name) => {
            let words = name.words(claims).into_iter().map(str::to_owned).collect();
            Tenants::within(TenantPatterns::new(words), &issuer.tenants)
        }
        None => Tenants::of(Arc::clone(&issuer.tenants)),
    };
    let roles = match &issuer.roles_claim {
        Some(name) => issuer.roles.and(Roles::among(name.words(claims))),
        None => issuer.roles,
    };
    let subject = claims.get("sub").and_then(Value::as_str);
    Grant { name: caller_name(&issuer.name, subject), tenants, roles }
}
