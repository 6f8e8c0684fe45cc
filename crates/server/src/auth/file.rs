//! The file of credentials.
//!
//! ```toml
//! [token.grafana]
//! sha256 = "…"               # of the token, in hexadecimal
//! tenants = ["team-*"]
//! roles = ["read"]
//!
//! [user.prometheus]
//! sha256 = "…"               # of the password
//! tenants = ["team-a"]
//! roles = ["write"]
//!
//! [certificate.team-b]
//! name = "team-b.example"    # in a client certificate
//! tenants = ["team-b"]
//! roles = ["write"]
//!
//! [jwt.keycloak]
//! keys_file = "…"            # or keys_url
//! tenants = ["team-*"]       # the most that a token can allow
//! roles = ["read"]
//!
//! [forward]
//! url = "…"
//! tenants = ["*"]            # the most that its answers can allow
//! roles = ["read", "write"]
//! ```
//!
//! Errors name a line but never quote it, because it may contain a secret.

mod certificate;
mod forward;
mod jwt;

use super::credentials::{Credentials, Entry};
use super::digest::{Digest, sha256};
use super::grant::{Grant, Roles, Tenants};
use crate::outgoing;
use crate::watched::{self, Source};
use jwt::KeyFiles;
use model::TenantPatterns;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const BYTES_MAX: u64 = 8 << 20;

const ENTRIES_MAX: usize = 10_000;

/// Limit on the tenant patterns of one credential. The tenant of each request is compared with all of them.
const PATTERNS_MAX: usize = 100;

#[derive(Debug, Clone)]
pub(crate) struct AuthFile {
    pub(crate) path: PathBuf,
}

impl AuthFile {
    /// Checks that the file is valid, and returns warnings about it.
    pub(crate) fn check(&self) -> Result<Vec<String>, String> {
        let raw = self.read()?;
        self.parse(&raw)?;
        Ok(self.warnings(&raw))
    }
}

impl Source for AuthFile {
    const NAME: &'static str = "auth";
    type Raw = Raw;
    type Content = Credentials;

    fn read(&self) -> Result<Raw, String> {
        let text = watched::read(&self.path, BYTES_MAX);
        let text = text.map_err(|error| format!("cannot read {}: {error}", self.path.display()))?;
        let key_files = KeyFiles::of(&text, &self.path);
        Ok(Raw { text, key_files })
    }

    fn parse(&self, Raw { text, key_files }: &Raw) -> Result<Credentials, String> {
        credentials(text, key_files).map_err(|Fault { at, reason }| {
            let line = 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count();
            format!("{}:{line}: {reason}", self.path.display())
        })
    }

    /// Warns about a file without credentials, because one that was cut off is often valid, and about a service that gets
    /// credentials unencrypted. Such a service may be on a network that is protected in other ways, so it is no error.
    fn warnings(&self, Raw { text, key_files }: &Raw) -> Vec<String> {
        let Ok(found) = credentials(text, key_files) else { return Vec::new() };
        let path = self.path.display();
        let empty = found.is_empty().then(|| {
            format!(
                "auth_file: {path} has no credentials, so requests get 401 unless they come through a trusted proxy; if it was cut \
                 off, write it again"
            )
        });
        let is_open = found.service.is_some_and(|service| !outgoing::is_protected(&service.uri));
        let open = is_open.then(|| {
            format!(
                "auth_file: the url of [forward] in {path} begins with http:// and is not on this machine, so passwords and \
                 tokens of requests reach it unencrypted; use https://"
            )
        });
        empty.into_iter().chain(open).collect()
    }
}

#[derive(PartialEq)]
pub(crate) struct Raw {
    text: String,
    key_files: KeyFiles,
}

/// An error in the file. `at` is its position in bytes, from which the line number is computed.
struct Fault {
    at: usize,
    reason: String,
}

fn fault<T>(at: usize, reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, reason: reason.into() })
}

fn table_of(text: &str) -> Result<Spanned<DeTable<'_>>, Fault> {
    // the parser's own message is not used: it may quote the line, and so a secret
    DeTable::parse(text).map_err(|error| Fault {
        at: error.span().map_or(0, |span| span.start),
        reason: "not valid TOML".into(),
    })
}

fn credentials(text: &str, key_files: &KeyFiles) -> Result<Credentials, Fault> {
    let root = table_of(text)?;
    let mut found = Credentials::default();
    let mut entries = 0;
    for (kind, value) in root.get_ref() {
        let at = kind.span().start;
        let kind = match &**kind.get_ref() {
            "token" => Kind::Token,
            "user" => Kind::User,
            "jwt" => Kind::Jwt,
            "certificate" => Kind::Certificate,
            "forward" => {
                found.service = Some(forward::service(at, value)?);
                continue;
            }
            _ => {
                let known = "unknown key: valid keys are [token.NAME], [user.NAME], [certificate.NAME], [jwt.NAME] and \
                    [forward]";
                return fault(at, known);
            }
        };
        let DeValue::Table(named) = value.get_ref() else {
            return fault(at, format!("the key must be a table [{}.NAME]", kind.word()));
        };
        for (name, value) in named {
            entries += 1;
            let at = name.span().start;
            if entries > ENTRIES_MAX {
                return fault(at, format!("there are more than {ENTRIES_MAX} credentials"));
            }
            match kind {
                Kind::Certificate => certificate::add(&mut found, name.get_ref(), at, value)?,
                Kind::Jwt => jwt::add(&mut found.issuers, name.get_ref(), at, value, key_files)?,
                kind => add(&mut found, kind, name.get_ref(), at, value)?,
            }
        }
    }
    Ok(found)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Token,
    User,
    Certificate,
    Jwt,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::User => "user",
            Self::Certificate => "certificate",
            Self::Jwt => "jwt",
        }
    }
}

fn add(
    found: &mut Credentials,
    kind: Kind,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), Fault> {
    let entry = entry(kind, name, at, value)?;
    match kind {
        Kind::User if name.contains(':') => fault(at, "the name of a user must not have a colon"),
        Kind::User => {
            found.add_user(name.to_owned(), entry);
            Ok(())
        }
        _ => found
            .add_token(entry)
            .or_else(|other| fault(at, format!("the token is the same as that of {other}"))),
    }
}

fn entry(kind: Kind, name: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Result<Entry, Fault> {
    let DeValue::Table(table) = value.get_ref() else {
        return fault(at, format!("an entry must be a table [{}.NAME]", kind.word()));
    };
    let (mut digest, mut tenants, mut roles) = (None, None, None);
    for (key, value) in table {
        match &**key.get_ref() {
            "sha256" => digest = Some(digest_of(value)?),
            "tenants" => tenants = Some(patterns_of(value)?),
            "roles" => roles = Some(roles_of(value)?),
            _ => return fault(key.span().start, "unknown key: valid keys are sha256, tenants and roles"),
        }
    }
    let (Some(digest), Some(roles)) = (digest, roles) else {
        return fault(at, "a token or user must have sha256 and roles");
    };
    let tenants = Tenants::of(tenants_for(roles, tenants, at)?);
    Ok(Entry { digest, grant: Grant { name: format!("{} {name}", kind.word()).into(), tenants, roles } })
}

/// Returns the tenants of a credential. Roles such as `read` apply to tenants, so `tenants` must then be given.
fn tenants_for(roles: Roles, given: Option<TenantPatterns>, at: usize) -> Result<Arc<TenantPatterns>, Fault> {
    match given {
        Some(tenants) => Ok(Arc::new(tenants)),
        None if roles.read || roles.write => {
            fault(at, "the roles read and write need tenants, such as tenants = [\"team-a\"]")
        }
        None => Ok(Arc::new(TenantPatterns::new(Vec::new()))),
    }
}

fn digest_of(value: &Spanned<DeValue<'_>>) -> Result<Digest, Fault> {
    let hex = value.get_ref().as_str().filter(|text| text.len() == 64 && text.is_ascii());
    let mut digest = [0; 32];
    for (i, byte) in digest.iter_mut().enumerate() {
        let pair = hex.map(|text| u8::from_str_radix(&text[2 * i..2 * i + 2], 16));
        // checked separately, because `from_str_radix` would accept "+f" as a number
        let is_hex = hex.is_some_and(|text| text[2 * i..].starts_with(|c: char| c.is_ascii_hexdigit()));
        match pair {
            Some(Ok(value)) if is_hex => *byte = value,
            _ => return fault(value.span().start, "sha256 must be 64 hexadecimal digits"),
        }
    }
    // such as that of a shell variable that was not set: a caller would then need no secret
    if digest == sha256(b"") {
        let reason = "sha256 is the digest of an empty secret: the token or password is missing";
        return fault(value.span().start, reason);
    }
    Ok(digest)
}

fn words<'a>(
    value: &'a Spanned<DeValue<'_>>,
    must: &'static str,
) -> Result<impl Iterator<Item = Result<(&'a str, usize), Fault>>, Fault> {
    let DeValue::Array(items) = value.get_ref() else { return fault(value.span().start, must) };
    Ok(items.iter().map(move |item| match item.get_ref().as_str() {
        Some(word) => Ok((word, item.span().start)),
        None => fault(item.span().start, must),
    }))
}

fn patterns_of(value: &Spanned<DeValue<'_>>) -> Result<TenantPatterns, Fault> {
    let words = words(value, "tenants must be an array of names, in which * stands for any text")?;
    let patterns: Vec<_> =
        words.map(|word| word.map(|(text, _)| text.to_owned())).collect::<Result<_, _>>()?;
    if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
        return fault(value.span().start, format!("tenants must have 1 to {PATTERNS_MAX} names"));
    }
    Ok(TenantPatterns::new(patterns))
}

fn roles_of(value: &Spanned<DeValue<'_>>) -> Result<Roles, Fault> {
    const MUST: &str = "roles must be an array of read, write, metrics and admin";
    let mut roles = Roles::default();
    for word in words(value, MUST)? {
        let (word, at) = word?;
        let Some(role) = roles.role_mut(word) else { return fault(at, MUST) };
        *role = true;
    }
    match roles == Roles::default() {
        true => fault(value.span().start, MUST),
        false => Ok(roles),
    }
}
