//! Why a request was not served, before any protocol's words for it.

use model::ErrorKind;
use protocol::DecodeError;
use stdx::budget::{Exhausted, Reservation};

/// What is counted under none of [`REASONS`].
pub(crate) const OTHER: &str = "other";

/// Late samples hold their share of the head.
pub(crate) const LATE_REASON: &str = "late_samples";

/// Every [`Refusal::reason`], and every reason of an answer that begins in [`crate::http`]: the values of a label.
pub(crate) const REASONS: &[&str] = &[
    "answer_size",
    "bad_data",
    "body",
    "body_size",
    "body_timeout",
    "bug",
    "canceled",
    "clock",
    "compacting",
    "creating_requests",
    "decode",
    "disk_full",
    "execution",
    "flushing",
    "head_full",
    "host",
    "inflight_requests",
    "internal",
    "journal",
    LATE_REASON,
    "memory",
    "method",
    "no_room_for_series",
    "not_found",
    "origin",
    OTHER,
    "partial_write",
    crate::limits::headroom::REASON,
    "queue_full",
    "replaying",
    "rights",
    "stopping",
    "table_unreadable",
    "table_unwritable",
    "tables",
    "tenant",
    "tenant_rate",
    "tenants",
    "timeout",
    "unavailable",
];

/// A request that was turned away. [`crate::http`] gives it a status.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What the caller should do.
    pub kind: ErrorKind,
    /// A stable word for logs and metrics.
    pub reason: &'static str,
    /// What, how much, which setting.
    pub message: String,
}

impl Refusal {
    /// The request is wrong.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Invalid, reason, message: message.into() }
    }

    /// Not now: the sender should come back.
    pub fn busy(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, reason, message: message.into() }
    }

    /// More than is ever allowed at once.
    pub fn too_large(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::TooLarge, reason, message: message.into() }
    }

    /// The principal has no right to it.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Forbidden, reason: "rights", message: message.into() }
    }

    pub(crate) fn stopping() -> Self {
        Self::busy("stopping", "the server is shutting down")
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Memory(full) => full.into(),
            _ => Self { kind: error.kind(), reason: "decode", message: error.to_string() },
        }
    }
}

impl From<Exhausted> for Refusal {
    fn from(full: Exhausted) -> Self {
        let message = format!("{full}; it grows with --memory");
        // what could never fit is not worth a retry: a sender that repeats in order would never get past it
        match full.is_for_good() {
            true => Self::too_large("memory", message),
            false => Self::busy("memory", message),
        }
    }
}

/// Lets a reservation hold `bytes` from now on.
pub(crate) fn grow(memory: &mut Reservation, bytes: u64) -> Result<(), Refusal> {
    Ok(memory.resize(bytes)?)
}

impl From<&journal::JournalError> for Refusal {
    fn from(error: &journal::JournalError) -> Self {
        let reason = match error {
            journal::JournalError::Full { .. } => "disk_full",
            _ => "journal",
        };
        Self { kind: error.kind(), reason, message: format!("not durable, so not accepted: {error}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    /// Each is the label of a metric.
    #[test]
    fn reasons_are_named_once() {
        assert!(REASONS.is_sorted_by(|a, b| a < b), "{REASONS:?}");
    }

    #[test]
    fn what_can_never_fit_is_refused_for_good() {
        let account = Account::new("inflight", 100);
        let mut memory = account.reserve(40).unwrap();
        let _other = account.reserve(30).unwrap();
        let mut kind = |bytes| Refusal::from(memory.resize(bytes).unwrap_err()).kind;
        assert_eq!((kind(90), kind(101)), (ErrorKind::Unavailable, ErrorKind::TooLarge));
    }
}
