//! The answer to a tenant that exceeds its limits.

/// The status with which a write is answered that exceeds a limit configured for its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitStatus {
    /// 429. Prometheus then drops the samples, unless its setting `retry_on_http_429` is on.
    TooManyRequests,
    /// 503. All senders retry.
    Unavailable,
}
