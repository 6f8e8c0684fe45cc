//! Forward authentication: delegates decisions about callers to an external service, like nginx's `auth_request`.
//!
//! ```text
//!   credentials, tenant, method, path ─▶ question ─▶ cached answer? ─▶ grant, or refusal
//!                                                    │ no
//!                                                    ▼
//!                                         same question pending? ─▶ wait for its answer
//!                                                    │ no
//!                                                    ▼
//!                                         permit for a check ─▶ request to the service
//! ```
//!
//! The key of a cached answer covers all that the service is shown, and the version of `auth_file`. So the service would give
//! the same answer again. Without an answer, the request is refused.

use super::checks::{Bounds, Checks};
use super::credentials::{Credentials, Digest, sha256};
use super::grant::{Grant, Roles, Tenants};
use super::memory::Memory;
use super::recent::Recent;
use super::unauthenticated;
use crate::outgoing::{HEAD_BYTES_MAX, Outgoing};
use crate::refusal::Refusal;
use admission::rate::Rate;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::response;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use model::{TenantPatterns, TenantSet};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Limit on the headers that are passed on.
pub(super) const HEADERS_MAX: usize = 16;

/// Limit on the bytes of these headers in one request.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Limit on the body of an answer, which is read and discarded.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Limit on the tenants in an answer: each request is matched with all of them.
const TENANTS_MAX: usize = 100;

/// Limit on questions being asked at once, for known networks and separately for others.
const AT_ONCE_MAX: usize = 16;

/// Memory of a question being asked: buffers of a connection, for a head of 16 KiB in each direction.
const ASKED_BYTES: usize = 2 * HEAD_BYTES_MAX + (8 << 10);

/// Memory of a waiting question in addition to its headers: its task, and its entries in maps.
const QUESTION_BYTES: u64 = 2 << 10;

/// Bounds on questions with `asked_bytes` of memory for those being asked.
fn bounds(asked_bytes: usize) -> Bounds {
    Bounds {
        at_once: (asked_bytes / 2 / ASKED_BYTES).clamp(1, AT_ONCE_MAX),
        waiting: 256,
        per_network: Rate { per_s: 500, burst: Duration::from_secs(1) },
        from_strangers: Rate { per_s: 1000, burst: Duration::from_secs(1) },
    }
}

/// A service that decides about callers: `[forward]` in the file of credentials.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) uri: Uri,
    /// Headers that are passed on, because they may contain credentials.
    pub(super) headers: Vec<HeaderName>,
    /// Header of an answer that names tenants.
    pub(super) tenant_header: HeaderName,
    /// Header of an answer that names roles; `None`: an answer allows all of `roles`.
    pub(super) roles_header: Option<HeaderName>,
    /// The most that an answer can allow.
    pub(super) tenants: Arc<TenantPatterns>,
    pub(super) roles: Roles,
    pub(super) timeout: Duration,
    /// Times for which answers that accept a caller are cached, and answers that refuse one.
    pub(super) remember: Duration,
    pub(super) remember_refusals: Duration,
}

/// Parts of a request that the service is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Original<'a> {
    pub(crate) method: &'a Method,
    /// Without the query string, which may contain data.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

/// Answer of the service.
#[derive(Debug, Clone)]
enum Answer {
    In(Arc<Grant>),
    Unknown,
    Forbidden,
    /// The service was not asked, or did not answer.
    None(Refusal),
}

/// Identifies a question: what the service is shown, and the version of the file under which it is asked.
///
/// A version is identified by its address in memory, which is valid only while something refers to the version. A pending
/// question holds an [`Arc`] to its version, a cached answer a [`Weak`].
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

/// A cached answer.
#[derive(Debug, Clone)]
struct Remembered {
    /// Keeps the address of the version from being reused for another version.
    _version: Weak<Credentials>,
    until: Instant,
    answer: Answer,
}

type Pending = watch::Receiver<Option<Answer>>;

/// Client of the service, with its cache.
#[derive(Debug)]
pub(super) struct Forward {
    clock: Arc<dyn Clock>,
    client: OnceLock<Outgoing>,
    answers: Recent<Question, Remembered>,
    /// Questions without an answer so far, whether admitted by [`Checks`] or about to be refused.
    pending: Mutex<HashMap<Question, Pending>>,
    checks: Checks,
    /// Memory of pending questions.
    memory: Account,
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
            let help = "Questions to the service of forward authentication by result; cached answers need no request.";
            r.counter_with("floodmark_auth_forwards_total", help, &[("result", result)])
        };
        Self {
            client: OnceLock::new(),
            answers: Recent::within(memory.answers_bytes),
            pending: Mutex::default(),
            checks: Checks::new(Arc::clone(&clock), bounds(memory.asked_bytes), memory.networks_bytes),
            memory: memory.questions.clone(),
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

    /// Memory in use.
    pub(super) fn held_bytes(&self) -> u64 {
        let asked_bytes = self.asked_now.load(Ordering::Relaxed) * ASKED_BYTES;
        self.answers.held_bytes() + self.checks.held_bytes() + self.memory.used_bytes() + asked_bytes as u64
    }

    /// Returns what the service allows the sender of a request with these `headers`. The answer is valid only for
    /// `credentials`: the caller must check that these are still in effect.
    pub(super) async fn ask(
        self: &Arc<Self>,
        credentials: &Arc<Credentials>,
        headers: HeaderMap,
        address: IpAddr,
    ) -> Result<Arc<Grant>, Refusal> {
        let question = Question::new(&headers, credentials);
        let now = self.clock.instant();
        if let Some(remembered) = self.answers.get(&question, |remembered| now < remembered.until) {
            self.metrics.cached.inc();
            return granted(remembered.answer);
        }
        let mut pending = self.pending(credentials, question, headers, address)?;
        let answer = match pending.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None, // the question's task panicked
        };
        granted(answer.unwrap_or_else(|| Answer::None(unavailable("the request failed"))))
    }

    /// Returns the future answer to `question`. Sends it to the service unless it is pending already.
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
        let memory = self.memory.reserve(bytes as u64 + QUESTION_BYTES).map_err(|error| {
            Refusal::busy("auth_busy", format!("the credentials were not checked: {error}"))
        })?;
        let (answer, pending) = watch::channel(None);
        all.insert(question, pending.clone());
        let (this, credentials) = (Arc::clone(self), Arc::clone(credentials));
        // a task, because other requests may wait for the answer after this client has disconnected
        tokio::spawn(async move {
            let found = this.asked(&credentials, headers, address).await;
            this.note(&credentials, question, &found);
            this.pending.lock().remove(&question);
            answer.send_replace(Some(found));
            drop(memory);
        });
        Ok(pending)
    }

    async fn asked(&self, credentials: &Credentials, headers: HeaderMap, address: IpAddr) -> Answer {
        let service = credentials.service.as_ref().expect("BUG: auth_file has no [forward]");
        let check = match self.checks.begin(address).await {
            Ok(check) => check,
            Err(refusal) => return Answer::None(refusal),
        };
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
        if matches!(answer, Answer::In(_)) {
            check.accept();
        }
        answer
    }

    /// Counts an answer and adds it to the cache.
    fn note(&self, credentials: &Arc<Credentials>, question: Question, answer: &Answer) {
        let service = credentials.service.as_ref().expect("BUG: auth_file has no [forward]");
        let (counter, remember) = match answer {
            Answer::In(_) => (&self.metrics.accepted, service.remember),
            Answer::Unknown | Answer::Forbidden => (&self.metrics.refused, service.remember_refusals),
            Answer::None(_) => return self.metrics.failed.inc(),
        };
        counter.inc();
        let until = self.clock.instant() + remember;
        let remembered = Remembered { _version: Arc::downgrade(credentials), until, answer: answer.clone() };
        let bytes = match answer {
            Answer::In(grant) => grant.tenants.bytes(),
            _ => 0,
        };
        self.answers.put(question, remembered, bytes);
    }
}

impl Service {
    /// Headers for the service; `None` if the request has no credentials.
    pub(super) fn question(
        &self,
        original: Original<'_>,
        tenants: Option<&TenantSet>,
    ) -> Result<Option<HeaderMap>, Refusal> {
        let mut question = HeaderMap::new();
        let mut bytes = 0;
        for name in &self.headers {
            for value in original.headers.get_all(name) {
                bytes += name.as_str().len() + value.len();
                if bytes > HEADER_BYTES_MAX {
                    let message = format!("the credentials have more than {HEADER_BYTES_MAX} bytes");
                    return Err(unauthenticated(message));
                }
                question.append(name.clone(), value.clone());
            }
        }
        if question.is_empty() {
            return Ok(None);
        }
        let own = [
            ("x-original-method", Some(original.method.as_str().to_owned())),
            ("x-original-uri", Some(original.path.to_owned())),
            ("x-scope-orgid", tenants.map(ToString::to_string)),
        ];
        for (name, value) in own {
            // a client must not set the server's own headers
            question.remove(name);
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                question.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(Some(question))
    }

    fn read(&self, response: &response::Parts) -> Answer {
        match response.status {
            status if status.is_success() => Answer::In(Arc::new(self.grant(&response.headers))),
            StatusCode::UNAUTHORIZED => Answer::Unknown,
            StatusCode::FORBIDDEN => Answer::Forbidden,
            status => {
                tracing::warn!(%status, "the service of forward authentication answered with an unexpected status");
                Answer::None(unavailable("it answered with an unexpected status"))
            }
        }
    }

    /// What an answer allows. A header that is missing or repeated allows nothing.
    fn grant(&self, headers: &HeaderMap) -> Grant {
        let text = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            let first = values.next().and_then(|value| value.to_str().ok());
            first.filter(|_| values.next().is_none()).unwrap_or_default()
        };
        let words = |text: &str, separators: &[char]| -> Vec<String> {
            let words = text.split(|c: char| separators.contains(&c)).map(str::trim);
            words.filter(|word| !word.is_empty()).take(TENANTS_MAX).map(str::to_owned).collect()
        };
        let tenants = TenantPatterns::new(words(text(&self.tenant_header), &['|', ',']));
        let roles = match &self.roles_header {
            Some(name) => {
                let roles = words(text(name), &[',', ' ']);
                self.roles.and(Roles::among(roles.iter().map(String::as_str)))
            }
            None => self.roles,
        };
        Grant { name: "forward".into(), tenants: Tenants::within(tenants, &self.tenants), roles }
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
        Answer::In(grant) => Ok(grant),
        Answer::Unknown => Err(unauthenticated("the credentials are unknown")),
        Answer::Forbidden => {
            Err(Refusal::forbidden("the service of [forward] refuses the request (auth_file)"))
        }
        Answer::None(refusal) => Err(refusal),
    }
}

fn unavailable(why: &str) -> Refusal {
    Refusal::busy(
        "auth_unavailable",
        format!("the service that decides about credentials is not available: {why}"),
    )
}
