//! Keys that another service publishes. A task fetches them in the background. A failed fetch changes nothing.
//!
//! ```text
//!   fetch ─▶ cooldown (no fetch, even for an unknown key) ─▶ wait for the interval's end, or a token with an unknown key
//!     ▲                                                                      │
//!     └──────────────────────────────────────────────────────────────────────┘
//! ```

use super::key::{KEY_SET_BYTES_MAX, KeySet, Origin};
use crate::outgoing::Outgoing;
use hyper::{HeaderMap, Uri};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Reservation};
use stdx::telemetry::{Counter, Registry};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

/// Minimum pause between fetches, so that forged key names cannot flood the issuer.
pub(super) const COOLDOWN: Duration = Duration::from_secs(10);

/// Interval between fetches while all keys are known.
const REFRESH_EVERY: Duration = Duration::from_secs(300);

const RETRY_EVERY: Duration = Duration::from_secs(30);

const TIMEOUT: Duration = Duration::from_secs(10);

/// Limit on the time that a request waits until new keys have been fetched.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Limit on the requests that wait until new keys have been fetched.
const WAITING_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fetching,
    /// The last fetch succeeded less than [`COOLDOWN`] ago.
    Fresh,
    Failed,
    Waiting,
}

#[derive(Debug)]
pub(super) struct KeyUrl {
    uri: Uri,
    keys: RwLock<Arc<KeySet>>,
    held: Mutex<Option<Reservation>>,
    state: watch::Sender<State>,
    wanted: Notify,
    waiting: Semaphore,
    /// When a token may cause the next fetch. `None` while keys are fetched.
    next_fetch: Mutex<Option<Instant>>,
    shared: Shared,
}

#[derive(Debug, Clone)]
pub(crate) struct FetchMetrics {
    ok: Counter,
    failed: Counter,
}

impl FetchMetrics {
    pub(crate) fn new(r: &Registry) -> Self {
        let counter = |result| {
            let help = "Fetches of token keys from the URLs in auth_file, by result.";
            r.counter_with("floodmark_auth_key_fetches_total", help, &[("result", result)])
        };
        Self { ok: counter("ok"), failed: counter("failed") }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) memory: Account,
    pub(super) fetching: Arc<Semaphore>,
    pub(super) metrics: FetchMetrics,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Current,
    Unknown,
    TooMany,
}

impl KeyUrl {
    pub(super) fn new(uri: Uri, shared: Shared) -> Self {
        Self {
            uri,
            keys: RwLock::default(),
            held: Mutex::default(),
            state: watch::Sender::new(State::Fetching),
            wanted: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            next_fetch: Mutex::default(),
            shared,
        }
    }

    pub(super) fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.read())
    }

    /// Waits until the keys have been fetched again. Called if no known key has signed a token, because the
    /// issuer may have a new key.
    pub(super) async fn wait_for_current(&self) -> Waited {
        let Ok(_waiting) = self.waiting.try_acquire() else { return Waited::TooMany };
        let mut state = self.state.subscribe();
        if *state.borrow_and_update() == State::Waiting {
            self.wanted.notify_one();
        }
        let done = state.wait_for(|state| matches!(state, State::Fresh | State::Failed));
        match tokio::time::timeout(WAIT_MAX, done).await {
            Ok(Ok(state)) if *state == State::Fresh => Waited::Current,
            _ => Waited::Unknown,
        }
    }

    /// Time until a token may cause a fetch. `None` while keys are fetched.
    pub(super) fn until_next_fetch(&self) -> Option<Duration> {
        let next = *self.next_fetch.lock();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    pub(super) async fn run(&self, client: Outgoing) {
        loop {
            *self.next_fetch.lock() = None;
            self.state.send_replace(State::Fetching);
            let fetched = self.fetch(&client).await;
            let pause = match self.note(fetched) {
                true => REFRESH_EVERY,
                false => RETRY_EVERY,
            };
            *self.next_fetch.lock() = Some(Instant::now() + COOLDOWN);
            tokio::time::sleep(COOLDOWN).await;
            self.state.send_replace(State::Waiting);
            let _ = tokio::time::timeout(pause.saturating_sub(COOLDOWN), self.wanted.notified()).await;
        }
    }

    async fn fetch(&self, client: &Outgoing) -> Result<KeySet, String> {
        let _turn = self.shared.fetching.acquire().await.map_err(|error| error.to_string())?;
        let answer = client.get(&self.uri, HeaderMap::new(), KEY_SET_BYTES_MAX, TIMEOUT).await?;
        if answer.status() != hyper::StatusCode::OK {
            return Err(format!("the URL answered {}", answer.status()));
        }
        let text = std::str::from_utf8(answer.body()).map_err(|_| "the answer is not UTF-8")?;
        KeySet::parse(text, Origin::Url)
    }

    /// Stores the fetched keys. Returns false if the fetch failed, or the keys need too much memory.
    pub(super) fn note(&self, fetched: Result<KeySet, String>) -> bool {
        let fetched = fetched.and_then(|keys| {
            let memory = self.shared.memory.reserve(keys.bytes() as u64);
            memory.map(|memory| (keys, memory)).map_err(|error| error.to_string())
        });
        let is_ok = fetched.is_ok();
        let before = self.keys();
        match fetched {
            Ok((keys, memory)) => {
                let count = keys.len();
                *self.keys.write() = Arc::new(keys.replacing(&before));
                *self.held.lock() = Some(memory);
                self.shared.metrics.ok.inc();
                tracing::debug!(url = shown(&self.uri), count, "fetched the keys of tokens");
            }
            Err(error) => {
                self.shared.metrics.failed.inc();
                let kept = before.len();
                tracing::warn!(url = shown(&self.uri), %error, kept, "cannot fetch the keys of tokens; the earlier keys stay in effect");
            }
        }
        self.state.send_replace(if is_ok { State::Fresh } else { State::Failed });
        is_ok
    }
}

fn shown(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}
