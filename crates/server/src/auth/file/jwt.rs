//! Section `[jwt.NAME]` of `auth_file`: a service whose tokens are accepted.

use super::{Fault, Kind, fault, patterns_of, roles_of, table_of, tenants_for, words};
use crate::auth::jwt::claim_name::ClaimName;
use crate::auth::jwt::issuer::{AUDIENCES_MAX, ISSUERS_MAX, Issuer, Keys, LEEWAY_MS, LEEWAY_MS_MAX};
use crate::auth::jwt::key::KEY_SET_BYTES_MAX;
use crate::outgoing;
use crate::watched;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stdx::units::duration_ms;
use toml::Spanned;
use toml::de::DeValue;

/// Contents of the key files named in `auth_file`, or why they cannot be read.
#[derive(PartialEq, Default)]
pub(super) struct KeyFiles(BTreeMap<String, Result<String, String>>);

impl KeyFiles {
    /// Reads the key files that `text`, the content of `auth_file`, names. Relative names start at the folder of
    /// `path`.
    pub(super) fn of(text: &str, path: &Path) -> Self {
        let Ok(root) = table_of(text) else { return Self::default() };
        let Some(DeValue::Table(issuers)) = root.get_ref().get("jwt").map(Spanned::get_ref) else {
            return Self::default();
        };
        let names = issuers
            .values()
            .filter_map(|issuer| issuer.get_ref().as_table()?.get("keys_file")?.get_ref().as_str());
        let folder = path.parent().unwrap_or(Path::new(""));
        let read = |name: &str| {
            let path: PathBuf = folder.join(name);
            watched::read(&path, KEY_SET_BYTES_MAX as u64)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Self(names.take(ISSUERS_MAX).map(|name| (name.to_owned(), read(name))).collect())
    }

    fn keys(&self, name: &str) -> Result<Keys, String> {
        let text = self.0.get(name).ok_or("there are too many key files")?;
        Keys::of_file(text.as_ref().map_err(Clone::clone)?).map_err(|reason| format!("{name}: {reason}"))
    }
}

pub(super) fn add(
    issuers: &mut Vec<Issuer>,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    key_files: &KeyFiles,
) -> Result<(), Fault> {
    if issuers.len() == ISSUERS_MAX {
        return fault(at, format!("there are more than {ISSUERS_MAX} tables [jwt.NAME]"));
    }
    issuers.push(issuer(name, at, value, key_files)?);
    Ok(())
}

fn issuer(
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    key_files: &KeyFiles,
) -> Result<Issuer, Fault> {
    let DeValue::Table(table) = value.get_ref() else {
        return fault(at, "an entry must be a table [jwt.NAME]");
    };
    let (mut keys, mut tenants, mut roles) = (None, None, None);
    let (mut issuer, mut audiences, mut leeway_ms) = (None, Vec::new(), LEEWAY_MS);
    let (mut tenants_claim, mut roles_claim) = (None, None);
    for (key, value) in table {
        let key_at = key.span().start;
        match &**key.get_ref() {
            "keys_file" | "keys_url" if keys.is_some() => {
                return fault(key_at, "keys_file and keys_url exclude each other");
            }
            "keys_file" => {
                let found = key_files.keys(text_of(value)?);
                keys = Some(found.or_else(|reason| fault(value.span().start, reason))?);
            }
            "keys_url" => keys = Some(url_of(value)?),
            "issuer" => issuer = Some(text_of(value)?.to_owned()),
            "audience" => audiences = audiences_of(value)?,
            "leeway" => leeway_ms = leeway_of(value)?,
            "tenants" => tenants = Some(patterns_of(value)?),
            "roles" => roles = Some(roles_of(value)?),
            "tenants_claim" => tenants_claim = Some(claim_of(value)?),
            "roles_claim" => roles_claim = Some(claim_of(value)?),
            _ => {
                let known = "unknown key: valid keys are keys_file, keys_url, issuer, audience, leeway, tenants, roles, \
                    tenants_claim and roles_claim";
                return fault(key_at, known);
            }
        }
    }
    let (Some(keys), Some(roles)) = (keys, roles) else {
        return fault(at, "[jwt.NAME] must have roles, and keys_file or keys_url");
    };
    let tenants = tenants_for(roles, tenants, at)?;
    let name = format!("{} {name}", Kind::Jwt.word());
    Ok(Issuer { name, keys, issuer, audiences, leeway_ms, tenants, roles, tenants_claim, roles_claim })
}

pub(super) fn text_of<'a>(value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, Fault> {
    match value.get_ref().as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        _ => fault(value.span().start, "the value must be a string that is not empty"),
    }
}

fn url_of(value: &Spanned<DeValue<'_>>) -> Result<Keys, Fault> {
    let text = text_of(value)?;
    match outgoing::parse(text) {
        // whoever can change the answer on its way could sign tokens that are accepted
        Ok(uri) if !outgoing::is_protected(&uri) => fault(
            value.span().start,
            "keys_url must begin with https://; http:// is allowed only for this machine (localhost, 127.0.0.1 or [::1])",
        ),
        Ok(uri) => Ok(Keys::Url(text.into(), uri)),
        Err(reason) => fault(value.span().start, reason),
    }
}

fn audiences_of(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Fault> {
    if let Some(one) = value.get_ref().as_str().filter(|one| !one.is_empty()) {
        return Ok(vec![one.to_owned()]);
    }
    let words = words(value, "audience must be a string or an array of strings")?;
    let audiences: Vec<_> =
        words.map(|word| word.map(|(text, _)| text.to_owned())).collect::<Result<_, _>>()?;
    match audiences.len() {
        1..=AUDIENCES_MAX => Ok(audiences),
        // an empty array would accept every audience
        _ => fault(value.span().start, format!("audience must have 1 to {AUDIENCES_MAX} strings")),
    }
}

fn leeway_of(value: &Spanned<DeValue<'_>>) -> Result<i64, Fault> {
    let ms = value.get_ref().as_str().and_then(duration_ms).filter(|ms| (0..=LEEWAY_MS_MAX).contains(ms));
    ms.map_or_else(|| fault(value.span().start, "leeway must be a duration from 0s to 5m, such as 30s"), Ok)
}

fn claim_of(value: &Spanned<DeValue<'_>>) -> Result<ClaimName, Fault> {
    let claim = value.get_ref().as_str().and_then(ClaimName::parse);
    let must = "tenants_claim and roles_claim must be the name of a claim, or a path such as /resource_access/floodmark/roles";
    claim.map_or_else(|| fault(value.span().start, must), Ok)
}
