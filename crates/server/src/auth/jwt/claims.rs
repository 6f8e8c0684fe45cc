use super::issuer::Issuer;
use crate::auth::grant::{Grant, Roles, Tenants};
use model::TenantPatterns;
use serde_json::{Map, Value};
use std::sync::Arc;

const SUBJECT_BYTES_MAX: usize = 100;

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
    Grant { name: caller(issuer, claims).into(), tenants, roles }
}

/// Name of the caller for logs. A subject that is long or has unusual characters is left out.
fn caller(issuer: &Issuer, claims: &Map<String, Value>) -> String {
    let subject = claims.get("sub").and_then(Value::as_str);
    let is_plain =
        |text: &&str| text.len() <= SUBJECT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    match subject.filter(is_plain) {
        Some(subject) => format!("{}: {subject}", issuer.name),
        None => issuer.name.clone(),
    }
}
