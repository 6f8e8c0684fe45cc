//! Section `[certificate.NAME]` of `auth_file`: a client that is identified by a name in its certificate.

use super::{Fault, Kind, fault, patterns_of, roles_of, tenants_for};
use crate::auth::credentials::Credentials;
use crate::auth::grant::{Grant, Tenants};
use crate::tls::NAME_BYTES_MAX;
use toml::Spanned;
use toml::de::DeValue;

pub(super) fn add(
    found: &mut Credentials,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), Fault> {
    let DeValue::Table(table) = value.get_ref() else {
        return fault(at, "an entry must be a table [certificate.NAME]");
    };
    let (mut known_by, mut tenants, mut roles) = (None, None, None);
    for (key, value) in table {
        match &**key.get_ref() {
            "name" => known_by = Some(name_of(value)?),
            "tenants" => tenants = Some(patterns_of(value)?),
            "roles" => roles = Some(roles_of(value)?),
            _ => return fault(key.span().start, "unknown key: valid keys are name, tenants and roles"),
        }
    }
    let (Some(known_by), Some(roles)) = (known_by, roles) else {
        return fault(at, "a certificate must have name and roles");
    };
    let tenants = Tenants::of(tenants_for(roles, tenants, at)?);
    let grant = Grant { name: format!("{} {name}", Kind::Certificate.word()).into(), tenants, roles };
    found
        .add_certificate(known_by, grant)
        .or_else(|other| fault(at, format!("the name is the same as that of {other}")))
}

fn name_of<'a>(value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, Fault> {
    match value.get_ref().as_str() {
        Some(name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => Ok(name),
        _ => {
            let must = "name must be a DNS name, a URI or a common name";
            fault(value.span().start, format!("{must} of at most {NAME_BYTES_MAX} bytes"))
        }
    }
}
