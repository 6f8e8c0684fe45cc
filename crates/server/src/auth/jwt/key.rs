//! Public keys and secrets for verifying tokens.
//!
//! The type of a key determines its algorithm. A token cannot choose how it is verified.

use super::der;
use crate::auth::digest::{Digest, sha256};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rsa::PublicKeyComponents;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde::Deserialize;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

pub(in crate::auth) const KEY_SET_BYTES_MAX: usize = 256 << 10;

pub(super) const KEYS_MAX: usize = 64;

/// Limit on the keys that are tried for a token without `kid`.
const TRIES_MAX: usize = 4;

/// Minimum size of a secret for HMAC-SHA-256: RFC 7518, section 3.2.
const SECRET_BYTES_MIN: usize = 32;

/// Accepted sizes of an RSA modulus, in bytes. With the largest, a check takes 0.1 ms.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
}

impl Algorithm {
    pub(super) fn parse(word: &str) -> Option<Self> {
        match word {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

enum Material {
    Hs256(hmac::Key),
    Rs256(PublicKeyComponents<Vec<u8>>),
    Es256([u8; 65]),
}

pub(super) struct Key {
    /// `kid` of the key. A key without one may have signed any token.
    id: Option<String>,
    material: Material,
    digest: Digest,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Key {
    fn bytes(&self) -> usize {
        let of_material = match &self.material {
            Material::Rs256(PublicKeyComponents { n, e }) => n.capacity() + e.capacity(),
            Material::Hs256(_) | Material::Es256(_) => 0,
        };
        size_of::<Arc<Self>>()
            + size_of::<Self>()
            + self.id.as_ref().map_or(0, String::capacity)
            + of_material
    }

    fn hs256(id: Option<String>, secret: &[u8]) -> Result<Self, String> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(format!(
                "a secret must have at least {SECRET_BYTES_MIN} bytes, this one has {}",
                secret.len()
            ));
        }
        let digest = digest_of(id.as_deref(), b"HS256", &[secret]);
        Ok(Self { id, material: Material::Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret)), digest })
    }

    fn rs256(id: Option<String>, n: &[u8], e: &[u8]) -> Result<Self, String> {
        let [n, e] = [n, e].map(|number| {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            number[zeros..].to_vec()
        });
        if !RSA_BYTES.contains(&n.len()) {
            let (least, most) = (RSA_BYTES.start() * 8, RSA_BYTES.end() * 8);
            return Err(format!("an RSA key must have {least} to {most} bits, this one has {}", n.len() * 8));
        }
        let digest = digest_of(id.as_deref(), b"RS256", &[&n, &e]);
        Ok(Self { id, material: Material::Rs256(PublicKeyComponents { n, e }), digest })
    }

    fn es256(id: Option<String>, point: [u8; 65]) -> Self {
        let digest = digest_of(id.as_deref(), b"ES256", &[&point]);
        Self { id, material: Material::Es256(point), digest }
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Hs256(_) => Algorithm::Hs256,
            Material::Rs256(_) => Algorithm::Rs256,
            Material::Es256(_) => Algorithm::Es256,
        }
    }

    pub(super) fn has_signed(&self, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Hs256(key) => hmac::verify(key, signed, signature),
            Material::Rs256(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
            Material::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
        };
        verified.is_ok()
    }
}

fn digest_of(id: Option<&str>, kind: &[u8], parts: &[&[u8]]) -> Digest {
    let mut all = Vec::new();
    for part in [id.map_or(&b"-"[..], str::as_bytes), kind].iter().chain(parts) {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    all.push(u8::from(id.is_some()));
    sha256(&all)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A file of the operator. An invalid key makes the file invalid.
    File,
    /// A URL of another service. Invalid keys are ignored, and so are HMAC secrets, because a published secret is not
    /// secret.
    Url,
}

#[derive(Debug, Default)]
pub(in crate::auth) struct KeySet(Vec<Arc<Key>>);

impl KeySet {
    /// Reads a JSON Web Key Set (RFC 7517), or public keys in PEM form. A set of JSON in a file may be empty: so the
    /// operator can remove the last key. Errors do not quote the text.
    pub(super) fn parse(text: &str, origin: Origin) -> Result<Self, String> {
        let (keys, may_be_empty) = match text.trim_start().starts_with('{') {
            true => json_keys(text, origin)?,
            false => (pem_keys(text)?, false),
        };
        match keys.len() {
            0 if !may_be_empty || origin == Origin::Url => Err("no key for HS256, RS256 or ES256".into()),
            0..=KEYS_MAX => Ok(Self(keys.into_iter().map(Arc::new).collect())),
            more => Err(format!("{more} keys, the limit is {KEYS_MAX}")),
        }
    }

    /// Replaces each key that `before` also contains by the object in `before`, so that tokens verified with
    /// it need not be verified again.
    pub(super) fn replacing(mut self, before: &Self) -> Self {
        for key in &mut self.0 {
            if let Some(same) = before.0.iter().find(|other| other.digest == key.digest) {
                *key = Arc::clone(same);
            }
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|key| key.bytes()).sum()
    }

    pub(super) fn candidates(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Key>> {
        let fits = move |key: &&Arc<Key>| {
            key.algorithm() == algorithm && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
        };
        self.0.iter().filter(fits).take(TRIES_MAX)
    }
}

#[derive(Deserialize)]
struct JsonKeys {
    keys: Vec<JsonKey>,
}

/// A key in the format of RFC 7517 and 7518. Unknown members are ignored.
#[derive(Deserialize)]
struct JsonKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    k: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The keys that can be used, and whether the set has no keys at all.
fn json_keys(text: &str, origin: Origin) -> Result<(Vec<Key>, bool), String> {
    // the parser's own message is not used: it may quote a secret
    let JsonKeys { keys } = serde_json::from_str(text).map_err(|error| {
        format!("not a JSON Web Key Set: line {}, column {}", error.line(), error.column())
    })?;
    let (mut found, is_empty) = (Vec::new(), keys.is_empty());
    for (number, key) in keys.into_iter().enumerate() {
        match key.read(origin) {
            Ok(key) => found.extend(key),
            Err(_) if origin == Origin::Url => {}
            Err(reason) => return Err(format!("key {}: {reason}", number + 1)),
        }
    }
    Ok((found, is_empty))
}

impl JsonKey {
    /// Returns `None` if the key is not for signatures, or is for an algorithm that is not supported.
    fn read(self, origin: Origin) -> Result<Option<Key>, String> {
        let is_for = |word: &str| self.alg.as_deref().is_none_or(|alg| alg == word);
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Ok(None);
        }
        match (&*self.kty, self.crv.as_deref()) {
            ("oct", _) if is_for("HS256") && origin == Origin::File => {
                Key::hs256(self.kid, &bytes_of("k", self.k.as_deref())?).map(Some)
            }
            ("RSA", _) if is_for("RS256") => {
                let (n, e) = (bytes_of("n", self.n.as_deref())?, bytes_of("e", self.e.as_deref())?);
                Key::rs256(self.kid, &n, &e).map(Some)
            }
            ("EC", Some("P-256")) if is_for("ES256") => {
                let (x, y) = (bytes_of("x", self.x.as_deref())?, bytes_of("y", self.y.as_deref())?);
                let point = [&[4], &*x, &*y].concat();
                let point = point.try_into().map_err(|_| "x and y must have 32 bytes each")?;
                Ok(Some(Key::es256(self.kid, point)))
            }
            _ => Ok(None),
        }
    }
}

fn bytes_of(name: &str, text: Option<&str>) -> Result<Vec<u8>, String> {
    let text = text.ok_or_else(|| format!("{name} is missing"))?;
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("{name} is not base64url"))
}

fn pem_keys(text: &str) -> Result<Vec<Key>, String> {
    let mut found = Vec::new();
    for section in SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes()).take(KEYS_MAX + 1) {
        let section = section.map_err(|_| "not in PEM form")?;
        found.push(match der::public_key(&section) {
            Some(der::PublicKey::Rsa { n, e }) => Key::rs256(None, n, e)?,
            Some(der::PublicKey::P256(point)) => Key::es256(None, point),
            None => return Err("a PUBLIC KEY is neither of RSA nor of the curve P-256".into()),
        });
    }
    match found.is_empty() {
        true => Err("neither a JSON Web Key Set nor a PUBLIC KEY in PEM form".into()),
        false => Ok(found),
    }
}
