//! Rules of a verdict.

use super::units::{Size, Span};
use serde::Deserialize;

/// Rules of a verdict. Without a value, a rule is not judged. By default, no sample may be lost, doubled, wrong or
/// unexpected.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Minimum successful share of all attempts.
    pub pass_rate: Option<f64>,
    /// Maximum share of scheduled samples that are not acknowledged.
    pub error_budget: Option<f64>,
    /// Minimum acknowledged share of the scheduled samples.
    pub achieved: Option<f64>,
    pub p50: Option<Span>,
    /// Maximum p99 of the latency from the scheduled start.
    pub p99: Option<Span>,
    /// Maximum p99 latency of requests without new series.
    pub p99_known: Option<Span>,
    /// Maximum p99 latency of refused attempts.
    pub refusal_p99: Option<Span>,
    /// Maximum p99 of the time until an acknowledged sample is visible.
    pub freshness_p99: Option<Span>,
    /// Maximum number of missing acknowledged samples.
    pub lost: u64,
    /// Maximum number of samples found more than once.
    pub doubled: u64,
    pub wrong: u64,
    /// Maximum number of found samples that were never sent.
    pub unexpected: u64,
    pub restarts: Option<u64>,
    pub memory: Option<Size>,
    pub silence: Option<Span>,
    /// Maximum time from the end of the last disturbance to normal rate and latency.
    pub recovery: Option<Span>,
    pub read_pass_rate: Option<f64>,
    pub read_p99: Option<Span>,
    /// True to end the run when `restarts`, `memory` or `silence` is broken.
    pub abort: bool,
}
