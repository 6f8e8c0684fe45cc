//! Rules that decide whether a run has passed.

use super::units::{Size, Span};
use serde::Deserialize;

/// Limits that a run must keep to pass. A limit that is not set is not checked. By default, no sample may be lost,
/// doubled, wrong or unexpected.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Minimum share of all attempts that must succeed.
    pub pass_rate: Option<f64>,
    /// Maximum share of the scheduled samples that may remain unacknowledged.
    pub error_budget: Option<f64>,
    /// Minimum share of the scheduled samples that must be acknowledged.
    pub achieved: Option<f64>,
    pub p50: Option<Span>,
    /// Maximum p99 latency, counted from the scheduled start of each request.
    pub p99: Option<Span>,
    /// Maximum p99 latency of requests that contain no new series.
    pub p99_known: Option<Span>,
    /// Maximum p99 latency of attempts that the target refuses.
    pub refusal_p99: Option<Span>,
    /// Maximum p99 of the time until queries return an acknowledged sample.
    pub freshness_p99: Option<Span>,
    /// Minimum share of the acknowledged samples that are owed. Over Graphite's protocols, these are samples that a socket
    /// has taken.
    pub owed: Option<f64>,
    /// Maximum number of acknowledged samples that queries do not return.
    pub lost: u64,
    /// Maximum number of samples that queries return more than once.
    pub doubled: u64,
    pub wrong: u64,
    /// Maximum number of samples that queries return although they were never sent.
    pub unexpected: u64,
    pub restarts: Option<u64>,
    pub memory: Option<Size>,
    /// Maximum share of time for which the target's disk is busy, on average over a step, with its rise and
    /// without.
    pub disk_util: Option<f64>,
    pub silence: Option<Span>,
    /// Maximum time from the end of the last fault, spike or outage until rate and latency are normal again.
    pub recovery: Option<Span>,
    pub read_pass_rate: Option<f64>,
    pub read_p99: Option<Span>,
    /// True to end the run as soon as `restarts`, `memory` or `silence` is exceeded.
    pub abort: bool,
}
