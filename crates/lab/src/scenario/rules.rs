//! Rules of a verdict, fixed before the run.

use super::units::{Size, Span};
use serde::Deserialize;

/// Rules of a verdict. A rule that is not set is not judged. By default, no acknowledged sample may be lost,
/// doubled or wrong, and no sample may be unexpected.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Minimum share of all attempts that are answered with success.
    pub pass_rate: Option<f64>,
    /// Maximum share of the scheduled samples that are not acknowledged before the end.
    pub error_budget: Option<f64>,
    /// Minimum share of the scheduled samples that are acknowledged.
    pub achieved: Option<f64>,
    /// Maximum p50 of the latency from the scheduled start.
    pub p50: Option<Span>,
    /// Maximum p99 of the latency from the scheduled start.
    pub p99: Option<Span>,
    /// Maximum p99 of the latency of requests that carry known series only.
    pub p99_known: Option<Span>,
    /// Maximum p99 of the latency of refused attempts.
    pub refusal_p99: Option<Span>,
    /// Maximum p99 of the time until an acknowledged sample is visible.
    pub freshness_p99: Option<Span>,
    /// Maximum number of acknowledged samples that are missing.
    pub lost: u64,
    /// Maximum number of samples that were found more than once.
    pub doubled: u64,
    /// Maximum number of samples with a wrong value.
    pub wrong: u64,
    /// Maximum number of samples that were never sent.
    pub unexpected: u64,
    /// Maximum number of unplanned restarts of the target.
    pub restarts: Option<u64>,
    /// Maximum memory of the target.
    pub memory: Option<Size>,
    /// Maximum time without a successful request.
    pub silence: Option<Span>,
    /// Maximum time from the end of the last disturbance until rate and latency are as before the first
    /// disturbance.
    pub recovery: Option<Span>,
    /// Minimum share of queries that are answered with success.
    pub read_pass_rate: Option<f64>,
    /// Maximum p99 of the latency of queries.
    pub read_p99: Option<Span>,
    /// True to end the run as soon as `restarts`, `memory` or `silence` is broken, because the verdict can
    /// then no longer change.
    pub abort: bool,
}
