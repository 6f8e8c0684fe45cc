//! Parses signed tokens (RFC 7515). Their content must not be trusted before the signature is verified.

use super::key::Algorithm;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Form,
    /// The token is not signed, or its algorithm is none of HS256, RS256 and ES256.
    Algorithm,
    NoExpiry,
    Expired,
    NotYet,
    /// No table in `auth_file` is for such tokens.
    Foreign,
    /// A table in `auth_file` is for tokens of this issuer, but for other audiences.
    Audience,
    /// The issuer has no key of the token's algorithm, or none of the name in the token.
    UnknownKey,
    /// No known key matches the signature. If the token names a key, keys with other names are not tried.
    Signature,
}

impl Fault {
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Form => "the token is malformed",
            Self::Algorithm => "the token must be signed with HS256, RS256 or ES256",
            Self::NoExpiry => "the token has no claim exp: every token must expire",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Foreign => {
                "no table [jwt.NAME] in auth_file has the token's issuer and audience (claims iss and aud)"
            }
            Self::Audience => {
                "the table [jwt.NAME] of the token's issuer in auth_file does not allow the token's audience (claim aud)"
            }
            Self::UnknownKey | Self::Signature => "the token is not signed by a known key",
        }
    }

    /// Like [`Self::message`], with what only operators should know: `table` is the issuer's table in `auth_file`.
    pub(super) fn cause(self, table: &str) -> String {
        match self {
            Self::Audience => format!("{table} does not allow the token's audience (claim aud)"),
            Self::UnknownKey => {
                format!("{table} has no key with the token's algorithm and name (alg and kid in its header)")
            }
            Self::Signature => format!("the token's signature is wrong: no key of {table} made it"),
            _ => format!("{} ({table})", self.message()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a receiver must understand (RFC 7515, section 4.1.11). None are supported, so such tokens are
    /// refused.
    crit: Option<IgnoredAny>,
}

/// The registered claims (RFC 7519, section 4.1) that are checked. All other claims are parsed after the signature was
/// verified.
#[derive(Debug, Deserialize)]
struct Registered {
    iss: Option<String>,
    aud: Option<OneOrMore>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug)]
pub(super) struct Token<'a> {
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    payload: Vec<u8>,
    registered: Registered,
}

/// Returns true for text with exactly two dots, as tokens have. Other secrets rarely do.
pub(in crate::auth) fn is_token(text: &[u8]) -> bool {
    text.iter().filter(|byte| **byte == b'.').count() == 2
}

impl<'a> Token<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Form);
        };
        let signed = &text[..header.len() + 1 + payload.len()];
        let decode = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Form);
        // nested values are no danger: the parser limits their depth
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| Fault::Form)?;
        if header.crit.is_some() {
            return Err(Fault::Form);
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or(Fault::Algorithm)?;
        let payload = decode(payload)?;
        let registered = serde_json::from_slice(&payload).map_err(|_| Fault::Form)?;
        let signature = decode(signature)?;
        Ok(Self { signed, signature, algorithm, key_id: header.kid, payload, registered })
    }

    pub(super) fn is_from(&self, issuer: &str) -> bool {
        self.registered.iss.as_deref() == Some(issuer)
    }

    pub(super) fn is_for(&self, audience: &str) -> bool {
        match &self.registered.aud {
            Some(OneOrMore::One(one)) => one == audience,
            Some(OneOrMore::More(more)) => more.iter().any(|one| one == audience),
            None => false,
        }
    }

    pub(super) fn times(&self) -> Result<Times, Fault> {
        // a huge number becomes the largest `i64`, because `as` saturates; JSON has no NaN
        let ms = |seconds: f64| (seconds * 1000.0) as i64;
        let expires_ms = ms(self.registered.exp.ok_or(Fault::NoExpiry)?);
        Ok(Times { from_ms: self.registered.nbf.map_or(i64::MIN, ms), expires_ms })
    }

    /// Parses all claims. Call this only after the signature was verified.
    pub(super) fn claims(&self) -> Result<Map<String, Value>, Fault> {
        serde_json::from_slice(&self.payload).map_err(|_| Fault::Form)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    from_ms: i64,
    expires_ms: i64,
}

impl Times {
    /// Checks that the token is valid at `now_ms`, by a clock that differs from the issuer's by at most `leeway_ms`.
    pub(super) const fn check(self, now_ms: i64, leeway_ms: i64) -> Result<(), Fault> {
        if now_ms >= self.expires_ms.saturating_add(leeway_ms) {
            return Err(Fault::Expired);
        }
        if now_ms < self.from_ms.saturating_sub(leeway_ms) {
            return Err(Fault::NotYet);
        }
        Ok(())
    }
}
