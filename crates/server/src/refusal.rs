//! Why a request is refused, independent of its protocol.

use crate::limits::memory_drains;
use admission::retry::Wait;
use admission::{RETRY_AFTER, WriteRefusal};
use model::ErrorKind;
use protocol::DecodeError;
use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stdx::budget::{Exhausted, Reservation};
use stdx::rng::mix;

/// Reason for errors that have none of the other [`REASONS`].
pub(crate) const OTHER: &str = "other";

/// All reasons of refusals and of errors in [`crate::http`]. Each is a label value of a metric.
pub(crate) const REASONS: &[&str] = &[
    "active_series",
    "answer_size",
    "auth_busy",
    "auth_unavailable",
    "bad_data",
    "body",
    "body_size",
    "body_timeout",
    "bug",
    "bytes_rate",
    "canceled",
    "clock",
    "compacting",
    "concurrent_writes",
    "creating_requests",
    "decode",
    "deletes",
    "disk_bytes",
    "disk_full",
    "events",
    "execution",
    "flushing",
    "ha_clusters",
    "ha_failover",
    "head_full",
    "host",
    "inflight_requests",
    "ingest_rules",
    "internal",
    "journal",
    "late_samples",
    "memory",
    "method",
    "new_series_rate",
    "new_tenants",
    "no_room_for_series",
    "not_found",
    "origin",
    OTHER,
    "partial_write",
    admission::process::REASON,
    "queue_full",
    "replaying",
    "requests_rate",
    "rights",
    "samples_rate",
    "series_per_metric",
    "stopping",
    "streams",
    "table_unreadable",
    "table_unwritable",
    "tables",
    "tenant",
    "tenant_share",
    "tenants",
    "timeout",
    "unauthenticated",
    "unavailable",
];

/// Reasons that seldom end within minutes. What is refused for one of them might be stored later, but nobody knows when, so
/// nothing in the server waits for it.
const LASTING: [&str; 5] = ["active_series", "clock", "ha_clusters", "series_per_metric", "stopping"];

/// Tells a client that its request was refused, and what to do. [`crate::http`] derives the status.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub kind: ErrorKind,
    /// Identifier in logs and metrics, one of [`REASONS`]. It does not change between versions.
    pub reason: &'static str,
    /// Tells the cause, the amounts, and the setting to change.
    pub message: String,
    /// What a retry must wait for, if one can succeed. [`crate::http`] makes a time of it and adds jitter.
    pub retry_after: Option<Wait>,
    pub series: Option<Box<str>>,
    /// True if the cause is what one tenant has, sends or may have. Others may be served meanwhile.
    pub(crate) is_of_tenant: bool,
    /// What the log says instead of `message`: why a part of the request was refused, if `message` speaks of several parts and
    /// of a retry; or whose credentials were refused, which the client must not learn.
    cause: Option<Box<str>>,
    /// Tells callers apart. 0 if the caller is not known. A hash, because refusals have to be small.
    pub(crate) caller: u32,
}

impl Refusal {
    pub fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let (retry_after, is_of_tenant) = (None, false);
        let mut refusal =
            Self { kind, reason, message, retry_after, series: None, is_of_tenant, cause: None, caller: 0 };
        refusal.retry_after = refusal.is_temporary().then_some(Wait::For(RETRY_AFTER));
        refusal
    }

    /// How long to wait before a retry if nothing is known about the backlog. For senders inside the node, such as listeners, which
    /// are not counted as refused.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.retry_after.map(Wait::by_default)
    }

    /// Whether the request may be stored later.
    pub(crate) const fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Limited)
    }

    /// Whether the reason seldom ends within minutes.
    pub(crate) fn is_lasting(&self) -> bool {
        LASTING.contains(&self.reason)
    }

    /// Adds `series` as an example of what was refused, unless there is one already.
    pub(crate) fn with_series(mut self, series: Option<&str>) -> Self {
        self.series = self.series.or_else(|| series.map(Into::into));
        self
    }

    /// Says what a retry waits for.
    pub(crate) fn until(self, wait: Wait) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    pub(crate) fn with_cause(mut self, cause: Option<String>) -> Self {
        self.cause = cause.map(Into::into);
        self
    }

    pub(crate) fn by(self, caller: &str) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        caller.hash(&mut hasher);
        Self { caller: (hasher.finish() as u32).max(1), ..self }
    }

    /// Records that the cause is what one tenant has, sends or may have.
    pub(crate) fn of_tenant(self) -> Self {
        Self { is_of_tenant: true, ..self }
    }

    /// Why something was refused, for the log and for operators: without advice to repeat the request, and perhaps with names that
    /// the answer to the client must not have.
    pub(crate) fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or(&self.message)
    }

    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, reason, message)
    }

    pub fn busy(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, reason, message)
    }

    pub fn too_large(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, reason, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, "rights", message).of_tenant()
    }

    pub(crate) fn stopping() -> Self {
        WriteRefusal::Stopping.into()
    }
}

impl From<WriteRefusal> for Refusal {
    fn from(refused: WriteRefusal) -> Self {
        let (kind, reason, retry_after) = (refused.kind(), refused.reason(), refused.retry_after());
        let (message, is_of_tenant) = (refused.to_string(), refused.is_of_tenant());
        Self { kind, reason, message, retry_after, series: None, is_of_tenant, cause: None, caller: 0 }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Memory(full) => full.into(),
            _ => Self::new(error.kind(), "decode", error.to_string()),
        }
    }
}

impl From<Exhausted> for Refusal {
    fn from(full: Exhausted) -> Self {
        let message = match full.share_bytes {
            Some(_) => format!("{full}; raise the share with share_weight, inflight_bytes or --memory"),
            None => format!("{full}; raise the limit with --memory"),
        };
        // a request that can never fit must not be retried: a sender that preserves the order of requests
        // would send nothing else
        let refusal = match full.is_for_good() {
            true => Self::too_large("memory", message),
            false => Self::busy("memory", message),
        };
        let retry_after = refusal.retry_after.map(|wait| match memory_drains::number_of(full.account) {
            Some(account) => {
                let asked_kib = u32::try_from(full.asked_bytes.div_ceil(1024)).unwrap_or(u32::MAX);
                Wait::Memory { account, asked_kib }
            }
            None => wait,
        });
        Self { is_of_tenant: full.share_bytes.is_some(), retry_after, ..refusal }
    }
}

pub(crate) fn grow(memory: &mut Reservation, bytes: u64) -> Result<(), Refusal> {
    Ok(memory.resize(bytes)?)
}

impl From<&journal::JournalError> for Refusal {
    fn from(error: &journal::JournalError) -> Self {
        let reason = match error {
            journal::JournalError::Full { .. } => "disk_full",
            _ => "journal",
        };
        Self::new(error.kind(), reason, format!("the journal failed: {error}"))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    /// Returns a delay in whole seconds: at least 1, and between `least` and 1.5 times `least`, so that
    /// clients do not all retry at once.
    pub(crate) fn spread(&self, least: Duration) -> u64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let least_ms = u64::try_from(least.as_millis()).unwrap_or(u64::MAX / 2);
        let ms = least_ms + mix(number) % (least_ms / 2 + 1);
        ms.div_ceil(1000).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stdx::budget::Account;

    /// Reasons that occur twice would share one metric.
    #[test]
    fn reasons_are_named_once() {
        assert!(REASONS.is_sorted_by(|a, b| a < b), "{REASONS:?}");
    }

    #[test]
    fn sizes_beyond_the_account_are_not_retryable() {
        let account = Account::new("inflight", 100);
        let mut memory = account.reserve(40).unwrap();
        let _other = account.reserve(30).unwrap();
        let mut kind = |bytes| Refusal::from(memory.resize(bytes).unwrap_err()).kind;
        assert_eq!((kind(90), kind(101)), (ErrorKind::Unavailable, ErrorKind::TooLarge));
    }

    #[test]
    fn retries_are_spread_and_never_early() {
        let jitter = Jitter::default();
        for (ms, expected) in [(0, 1..=1), (1, 1..=1), (3000, 3..=5), (20_000, 20..=30)] {
            let spread: BTreeSet<_> = (0..10_000).map(|_| jitter.spread(Duration::from_millis(ms))).collect();
            assert_eq!(spread, expected.collect(), "{ms} ms");
        }
        assert!(jitter.spread(Duration::MAX) > 0);
    }
}
