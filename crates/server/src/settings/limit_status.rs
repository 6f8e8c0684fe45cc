/// HTTP status of the answer to writes that exceed a limit configured for their tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitStatus {
    /// 429. Prometheus then drops the samples, unless its setting `retry_on_http_429` is on.
    TooManyRequests,
    /// 503. All senders retry.
    Unavailable,
}
