//! The answer to a tenant that exceeds its limits.

/// HTTP status of writes that exceed a configured limit of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitStatus {
    /// 429: Prometheus drops the samples, unless its `retry_on_http_429` is set.
    TooManyRequests,
    /// 503: every sender retries.
    Unavailable,
}
