//! JSON Web Tokens, which other services issue.
//!
//! ```text
//!   token ─▶ verified recently? ─▶ grant
//!              │ no
//!              ▼
//!            parse ─▶ issuers that it may be from ─▶ their keys of its algorithm ─▶ permit for a check ─▶ signature ─▶ claims
//! ```
//!
//! The cheap checks come first: expired tokens and tokens of unknown issuers cost no signature check.

pub(super) mod claim_name;
mod claims;
mod der;
pub(super) mod issuer;
pub(super) mod key;
mod key_url;
mod key_urls;
#[cfg(test)]
mod tests;
mod token;

pub(super) use key_urls::KeyUrls;
pub(super) use token::is_token;

use super::checks::{Bounds, Check, Checks};
use super::credentials::Credentials;
use super::digest::{Digest, sha256};
use super::grant::Grant;
use super::memory::Memory;
use super::recent::Recent;
use super::unauthenticated;
use crate::refusal::Refusal;
use admission::RETRY_AFTER;
use admission::rate::Rate;
use admission::retry::{Wait, until_attempt};
use issuer::Keys;
use key::{Key, KeySet};
use key_url::{KeyUrl, Waited};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};
use token::{Fault, Times, Token};

/// Memory of a grant in addition to its name and patterns.
const GRANT_BYTES: usize = 256;

/// Verifying a signature takes up to 0.1 ms (RSA, 4096 bits), so tokens from unknown networks use at most a tenth of a
/// core.
const BOUNDS: Bounds = Bounds {
    at_once: 1,
    waiting: 256,
    bytes: u64::MAX, // the memory of a waiting token is that of its connection
    per_network: Rate { per_s: 500, burst: Duration::from_secs(1) },
    from_unknown: Rate { per_s: 1000, burst: Duration::from_secs(1) },
};

/// A token whose signature was verified. It is verified again after `auth_file` or the key that signed it was replaced.
#[derive(Debug, Clone)]
struct Verified {
    credentials: Weak<Credentials>,
    key: Weak<Key>,
    times: Times,
    leeway_ms: i64,
    grant: Arc<Grant>,
}

#[derive(Debug)]
pub(super) struct Jwt {
    clock: Arc<dyn Clock>,
    verified: Recent<Digest, Verified>,
    /// Digests of tokens whose signature was wrong. If such a token is sent again, its signature is not checked again.
    wrongly_signed: Recent<Digest, Weak<Key>>,
    checks: Checks,
    pub(super) urls: Arc<KeyUrls>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Metrics {
    cached: Counter,
    accepted: Counter,
    refused: Counter,
    busy: Counter,
}

#[derive(Debug)]
pub(super) enum Proof {
    Of(Arc<Grant>),
    /// No table `[jwt.NAME]` is for such tokens.
    Foreign,
}

impl Jwt {
    pub(super) fn new(clock: Arc<dyn Clock>, memory: &Memory, r: &Registry) -> Self {
        let counter = |result| {
            let help = "JSON Web Tokens by result; cached tokens were verified before.";
            r.counter_with("floodmark_auth_tokens_total", help, &[("result", result)])
        };
        Self {
            verified: Recent::within(memory.verified_bytes),
            wrongly_signed: Recent::within(memory.wrong_bytes),
            checks: Checks::new(Arc::clone(&clock), BOUNDS, memory.networks_bytes),
            urls: Arc::new(KeyUrls::new(memory.keys.clone(), r)),
            metrics: Metrics {
                cached: counter("cached"),
                accepted: counter("accepted"),
                refused: counter("refused"),
                busy: counter("busy"),
            },
            clock,
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.verified.held_bytes() + self.wrongly_signed.held_bytes() + self.checks.held_bytes()
    }

    pub(super) async fn prove(
        &self,
        credentials: &Arc<Credentials>,
        text: &[u8],
        address: IpAddr,
    ) -> Result<Proof, Refusal> {
        let digest = sha256(text);
        let now_ms = self.clock.now_ms();
        let is_of_file = |verified: &Verified| {
            std::ptr::eq(verified.credentials.as_ptr(), Arc::as_ptr(credentials))
                && verified.key.strong_count() > 0
        };
        let verified = self.verified.get(&digest, is_of_file);
        if let Some(verified) = &verified
            && verified.times.check(now_ms, verified.leeway_ms).is_ok()
        {
            self.metrics.cached.inc();
            return Ok(Proof::Of(Arc::clone(&verified.grant)));
        }
        let proof = match Token::parse(text) {
            Ok(token) => self.verify(credentials, &token, digest, address).await,
            Err(fault) => Err(refused(fault)),
        };
        // the subject of a token that has expired is known only if its signature was checked before
        let proof = proof.map_err(|refusal| match &verified {
            Some(verified) => {
                let cause = format!("{}; it is a token of {}", refusal.cause(), verified.grant.name);
                refusal.with_cause(Some(cause))
            }
            None => refusal,
        });
        match &proof {
            Ok(Proof::Of(_)) => self.metrics.accepted.inc(),
            Err(refusal) if refusal.kind == model::ErrorKind::Unavailable => self.metrics.busy.inc(),
            _ => self.metrics.refused.inc(),
        }
        proof
    }

    async fn verify(
        &self,
        credentials: &Arc<Credentials>,
        token: &Token<'_>,
        digest: Digest,
        address: IpAddr,
    ) -> Result<Proof, Refusal> {
        let times = token.times().map_err(refused)?;
        let mut rejected = None;
        for issuer in &credentials.issuers {
            if let Err(why) = issuer.check(token) {
                rejected = rejected.or((why != Fault::Foreign).then_some((why, issuer)));
                continue;
            }
            if let Err(early_or_late) = times.check(self.clock.now_ms(), issuer.leeway_ms) {
                rejected = Some((early_or_late, issuer));
                continue;
            }
            let key = match self.signer(&issuer.keys, token, digest, address).await? {
                Ok(key) => key,
                Err(why) => {
                    rejected = rejected.or(Some((why, issuer)));
                    continue;
                }
            };
            let claims = token.claims().map_err(refused)?;
            let grant = Arc::new(claims::grant(issuer, &claims));
            let (credentials, key) = (Arc::downgrade(credentials), Arc::downgrade(&key));
            let leeway_ms = issuer.leeway_ms;
            let bytes = grant.name.len() + grant.tenants.bytes() + GRANT_BYTES;
            let verified = Verified { credentials, key, times, leeway_ms, grant: Arc::clone(&grant) };
            self.verified.put(digest, verified, bytes);
            return Ok(Proof::Of(grant));
        }
        match rejected {
            Some((fault, issuer)) => Err(refused(fault).with_cause(Some(fault.cause(&issuer.table())))),
            None => Ok(Proof::Foreign),
        }
    }

    /// Returns the key that signed the token, or why there is none.
    async fn signer(
        &self,
        keys: &Keys,
        token: &Token<'_>,
        digest: Digest,
        address: IpAddr,
    ) -> Result<Result<Arc<Key>, Fault>, Refusal> {
        let url = match keys {
            Keys::File(keys) => return self.signer_among(keys, token, digest, address).await,
            Keys::Url(url, _) => self.urls.get(url),
        };
        let Some(url) = url else { return Err(unavailable("are not known yet")) };
        if has_candidates(&url.keys(), token) {
            return self.signer_among(&url.keys(), token, digest, address).await;
        }
        match url.wait_for_current().await {
            Waited::Current => self.signer_among(&url.keys(), token, digest, address).await,
            Waited::Unknown => Err(unavailable("could not be fetched").until(until_fetched(&url))),
            Waited::TooMany => {
                let why = "are being fetched, and too many requests wait for them";
                Err(unavailable(why).until(until_fetched(&url)))
            }
        }
    }

    async fn signer_among(
        &self,
        keys: &KeySet,
        token: &Token<'_>,
        digest: Digest,
        address: IpAddr,
    ) -> Result<Result<Arc<Key>, Fault>, Refusal> {
        let mut why = Fault::UnknownKey;
        for key in keys.candidates(token.algorithm, token.key_id.as_deref()) {
            why = Fault::Signature;
            let is_same = |wrong: &Weak<Key>| std::ptr::eq(wrong.as_ptr(), Arc::as_ptr(key));
            if self.wrongly_signed.get(&digest, is_same).is_some() {
                continue;
            }
            let check = self.checks.begin(address).await?;
            if has_signed(key, token, check) {
                return Ok(Ok(Arc::clone(key)));
            }
            self.wrongly_signed.put(digest, Arc::downgrade(key), 0);
        }
        Ok(Err(why))
    }
}

fn has_signed(key: &Key, token: &Token<'_>, check: Check<'_>) -> bool {
    let has_signed = key.has_signed(token.signed, &token.signature);
    if has_signed {
        check.accept();
    }
    has_signed
}

fn has_candidates(keys: &KeySet, token: &Token<'_>) -> bool {
    keys.candidates(token.algorithm, token.key_id.as_deref()).next().is_some()
}

pub(super) fn foreign() -> Refusal {
    refused(Fault::Foreign)
}

fn refused(fault: Fault) -> Refusal {
    unauthenticated(fault.message())
}

/// A token with an unknown key causes a fetch, but not soon after the last one. The rest of this time, 3 to 30 s; 3 s while keys are
/// being fetched.
fn until_fetched(url: &KeyUrl) -> Wait {
    Wait::For(url.until_next_fetch().map_or(RETRY_AFTER, until_attempt))
}

fn unavailable(why: &str) -> Refusal {
    Refusal::busy("auth_unavailable", format!("the token was not verified: the keys of its issuer {why}"))
}
