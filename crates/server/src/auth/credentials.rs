//! The tokens, users and certificate names that `auth_file` lists.

use super::Credential;
use super::digest::{Digest, is_same, sha256};
use super::forward::service::Service;
use super::grant::Grant;
use super::jwt::issuer::Issuer;
use crate::tls::normal;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) digest: Digest,
    pub(super) grant: Grant,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.grant.name)
    }
}

/// Tokens are looked up by the first bytes of their digest. How long that takes reveals nothing about the token.
type Prefix = [u8; 8];

fn prefix(digest: &Digest) -> Prefix {
    *digest.first_chunk().expect("BUG: a digest has fewer than 8 bytes")
}

#[derive(Debug, Default)]
pub(crate) struct Credentials {
    tokens: BTreeMap<Prefix, Vec<Entry>>,
    users: BTreeMap<String, Entry>,
    certificates: BTreeMap<String, Grant>,
    pub(super) issuers: Vec<Issuer>,
    /// The service from `[forward]`, which decides about credentials that are not in the file.
    pub(super) service: Option<Service>,
}

impl Credentials {
    /// If another token has the same secret, fails with the name of that token.
    pub(super) fn add_token(&mut self, entry: Entry) -> Result<(), Arc<str>> {
        let same = self.tokens.entry(prefix(&entry.digest)).or_default();
        if let Some(other) = same.iter().find(|other| other.digest == entry.digest) {
            return Err(Arc::clone(&other.grant.name));
        }
        same.push(entry);
        Ok(())
    }

    pub(super) fn add_user(&mut self, user: String, entry: Entry) {
        self.users.insert(user, entry);
    }

    pub(super) fn add_certificate(&mut self, name: &str, grant: Grant) -> Result<(), Arc<str>> {
        match self.certificates.entry(normal(name).into_owned()) {
            MapEntry::Occupied(other) => Err(Arc::clone(&other.get().name)),
            MapEntry::Vacant(free) => {
                free.insert(grant);
                Ok(())
            }
        }
    }

    /// True if nobody can present a credential that is accepted.
    pub(super) fn is_empty(&self) -> bool {
        let Self { tokens, users, certificates, issuers, service } = self;
        tokens.is_empty()
            && users.is_empty()
            && certificates.is_empty()
            && issuers.is_empty()
            && service.is_none()
    }

    /// Name of a user for logs. The password is not checked.
    pub(super) fn name_of(&self, user: &str) -> Option<&str> {
        self.users.get(user).map(|entry| &*entry.grant.name)
    }

    /// Returns the grant of a credential. Digests are compared in constant time. An unknown user costs the same
    /// comparison as a known one.
    pub(super) fn find(&self, credential: Credential<'_>) -> Option<&Grant> {
        match credential {
            Credential::Token(token) => {
                let digest = sha256(token);
                let candidates = self.tokens.get(&prefix(&digest))?;
                candidates.iter().find(|entry| is_same(&entry.digest, &digest)).map(|entry| &entry.grant)
            }
            Credential::Password { user, password } => {
                let digest = sha256(password);
                let entry = self.users.get(user);
                let is_right = is_same(entry.map_or(&[0; 32], |entry| &entry.digest), &digest);
                entry.filter(|_| is_right).map(|entry| &entry.grant)
            }
            // a certificate may have several names; the first of them that `auth_file` lists counts
            Credential::Certificate(names) => names.iter().find_map(|name| self.certificates.get(name)),
        }
    }
}
