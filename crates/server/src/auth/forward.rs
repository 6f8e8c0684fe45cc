//! Forward authentication: an external service decides about callers, like nginx's `auth_request`.
//!
//! ```text
//!   credentials, tenant, method, path ─▶ question ─▶ cached answer? ─▶ grant, or refusal
//!                                                    │ no
//!                                                    ▼
//!                                         same question pending? ─▶ wait for its answer
//!                                                    │ no
//!                                                    ▼
//!                                         rate of the network ─▶ place ─▶ permit for a check ─▶ request to the service
//! ```
//!
//! A cached answer is valid for the same question under the same version of `auth_file`. Without an answer, the request
//! is refused.

pub(super) mod service;
#[cfg(test)]
mod tests;

use super::checks::{Bounds, Checks, Place};
use super::credentials::Credentials;
use super::digest::{Digest, sha256};
use super::grant::Grant;
use super::memory::Memory;
use super::recent::Recent;
use super::{UNKNOWN, unauthenticated};
use crate::outgoing::{HEAD_BYTES_MAX, Outgoing};
use crate::refusal::Refusal;
use admission::rate::Rate;
use hyper::HeaderMap;
use parking_lot::Mutex;
use service::{Answer, unavailable};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};
use tokio::sync::watch;

/// The body of an answer is read and discarded. If it is longer than this, the request to the service fails.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Limit on the questions being asked at once. Known and unknown networks each have this limit.
const AT_ONCE_MAX: usize = 16;

/// Memory used while the service is asked: the connection's buffers and 16 KiB of headers in each direction.
const ASKED_BYTES: usize = 2 * HEAD_BYTES_MAX + (8 << 10);

/// Memory of a question until it is answered, in addition to its headers.
const QUESTION_BYTES: u64 = 2 << 10;

fn bounds(memory: &Memory) -> Bounds {
    Bounds {
        at_once: (memory.asked_bytes / 2 / ASKED_BYTES).clamp(1, AT_ONCE_MAX),
        waiting: 256,
        bytes: memory.questions_bytes as u64 / 2,
        per_network: Rate { per_s: 500, burst: Duration::from_secs(1) },
        from_unknown: Rate { per_s: 1000, burst: Duration::from_secs(1) },
    }
}

/// Identifies a question: what the service sees, and the version of `auth_file`.
///
/// The version is identified by its address in memory. No other version gets this address while an [`Arc`] or [`Weak`]
/// refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Question {
    shown: Digest,
    version_address: usize,
}

impl Question {
    fn new(headers: &HeaderMap, credentials: &Arc<Credentials>) -> Self {
        Self { shown: digest_of(headers), version_address: Arc::as_ptr(credentials).addr() }
    }
}

#[derive(Debug, Clone)]
struct CachedAnswer {
    /// While this reference exists, no later version of `auth_file` can get the same address.
    _version: Weak<Credentials>,
    until: Instant,
    answer: Answer,
}

type Pending = watch::Receiver<Option<Answer>>;

#[derive(Debug)]
pub(super) struct Forward {
    clock: Arc<dyn Clock>,
    client: OnceLock<Outgoing>,
    answers: Recent<Question, CachedAnswer>,
    pending: Mutex<HashMap<Question, Pending>>,
    checks: Checks,
    asked_now: AtomicUsize,
    metrics: Metrics,
}

#[derive(Debug)]
struct Metrics {
    cached: Counter,
    accepted: Counter,
    refused: Counter,
    failed: Counter,
}

impl Forward {
    pub(super) fn new(clock: Arc<dyn Clock>, memory: &Memory, r: &Registry) -> Self {
        let counter = |result| {
            let help = "Requests that the service of forward authentication decides, by result; cached results were decided earlier.";
            r.counter_with("floodmark_auth_forwards_total", help, &[("result", result)])
        };
        Self {
            client: OnceLock::new(),
            answers: Recent::within(memory.answers_bytes),
            pending: Mutex::default(),
            checks: Checks::new(Arc::clone(&clock), bounds(memory), memory.networks_bytes),
            asked_now: AtomicUsize::new(0),
            metrics: Metrics {
                cached: counter("cached"),
                accepted: counter("accepted"),
                refused: counter("refused"),
                failed: counter("failed"),
            },
            clock,
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let asked_bytes = self.asked_now.load(Ordering::Relaxed) * ASKED_BYTES;
        self.answers.held_bytes() + self.checks.held_bytes() + asked_bytes as u64
    }

    /// Returns the rights that the service grants. `auth_file` may change meanwhile, so the caller must check that
    /// `credentials` are still in effect.
    pub(super) async fn ask(
        self: &Arc<Self>,
        credentials: &Arc<Credentials>,
        headers: HeaderMap,
        address: IpAddr,
    ) -> Result<Arc<Grant>, Refusal> {
        let question = Question::new(&headers, credentials);
        let now = self.clock.instant();
        if let Some(cached) = self.answers.get(&question, |cached| now < cached.until) {
            self.metrics.cached.inc();
            return granted(cached.answer);
        }
        let mut pending = self.pending(credentials, question, headers, address)?;
        let answer = match pending.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None, // the question's task panicked
        };
        granted(answer.unwrap_or_else(|| Answer::None(unavailable("the request failed"))))
    }

    /// Returns a receiver for the answer to `question`. Several requests with the same question share one request to
    /// the service.
    fn pending(
        self: &Arc<Self>,
        credentials: &Arc<Credentials>,
        question: Question,
        headers: HeaderMap,
        address: IpAddr,
    ) -> Result<Pending, Refusal> {
        let mut all = self.pending.lock();
        if let Some(same) = all.get(&question).filter(|same| same.has_changed().is_ok()) {
            return Ok(same.clone());
        }
        let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        let place = self.checks.enter(address, bytes as u64 + QUESTION_BYTES);
        let place = place.inspect_err(|_| self.metrics.failed.inc())?;
        let (answer, pending) = watch::channel(None);
        all.insert(question, pending.clone());
        let (this, credentials) = (Arc::clone(self), Arc::clone(credentials));
        // a task, because other requests may wait for the answer after this client disconnects
        tokio::spawn(async move {
            let found = this.asked(&credentials, headers, place).await;
            this.note(&credentials, question, &found);
            this.pending.lock().remove(&question);
            answer.send_replace(Some(found));
        });
        Ok(pending)
    }

    async fn asked(&self, credentials: &Credentials, headers: HeaderMap, place: Place) -> Answer {
        let service = credentials.service.as_ref().expect("BUG: auth_file has no [forward]");
        let check = self.checks.turn(place).await;
        let client = self.client.get_or_init(Outgoing::new);
        self.asked_now.fetch_add(1, Ordering::Relaxed);
        let answer = client.get_head(&service.uri, headers, BODY_BYTES_MAX, service.timeout).await;
        self.asked_now.fetch_sub(1, Ordering::Relaxed);
        let answer = match answer {
            Ok(response) => service.read(&response),
            Err(error) => {
                tracing::warn!(%error, "the service of forward authentication did not answer");
                Answer::None(unavailable("it did not answer"))
            }
        };
        if matches!(answer, Answer::Accepted(_)) {
            check.accept();
        }
        answer
    }

    fn note(&self, credentials: &Arc<Credentials>, question: Question, answer: &Answer) {
        let service = credentials.service.as_ref().expect("BUG: auth_file has no [forward]");
        let (counter, remember) = match answer {
            Answer::Accepted(_) => (&self.metrics.accepted, service.remember),
            Answer::Unknown | Answer::Forbidden => (&self.metrics.refused, service.remember_refusals),
            Answer::None(_) => return self.metrics.failed.inc(),
        };
        counter.inc();
        let until = self.clock.instant() + remember;
        let cached = CachedAnswer { _version: Arc::downgrade(credentials), until, answer: answer.clone() };
        let bytes = match answer {
            Answer::Accepted(grant) => grant.tenants.bytes() + grant.name.len(),
            _ => 0,
        };
        self.answers.put(question, cached, bytes);
    }
}

fn digest_of(headers: &HeaderMap) -> Digest {
    let mut all = Vec::new();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            all.extend_from_slice(&(part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
    }
    sha256(&all)
}

fn granted(answer: Answer) -> Result<Arc<Grant>, Refusal> {
    match answer {
        Answer::Accepted(grant) => Ok(grant),
        Answer::Unknown => Err(unauthenticated(UNKNOWN)),
        Answer::Forbidden => {
            Err(Refusal::forbidden("the service of [forward] refuses the request (auth_file)"))
        }
        Answer::None(refusal) => Err(refusal),
    }
}
