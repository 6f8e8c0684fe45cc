//! Rules of a verdict, fixed before the run.

use super::units::{Size, Span};
use serde::Deserialize;

/// The rules of a verdict. A rule that is not given is not judged, except that nothing acknowledged may be
/// lost, doubled, wrong or made up.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// At least this share of all attempts is answered with success.
    pub pass_rate: Option<f64>,
    /// At most this share of the schedule's samples is not taken in the end.
    pub error_budget: Option<f64>,
    /// At least this share of the schedule's samples is acknowledged.
    pub achieved: Option<f64>,
    /// Half of the requests take at most so long, from their intended start.
    pub p50: Option<Span>,
    /// 99 in 100 requests take at most so long.
    pub p99: Option<Span>,
    /// As `p99`, for requests of known series only.
    pub p99_known: Option<Span>,
    /// No attempt takes longer to be refused (99 in 100).
    pub refusal_p99: Option<Span>,
    /// Acknowledged samples are visible within this time (99 in 100).
    pub freshness_p99: Option<Span>,
    /// Acknowledged samples that are not there.
    pub lost: u64,
    /// Samples that are there more than once.
    pub doubled: u64,
    /// Samples with another value.
    pub wrong: u64,
    /// Samples that nobody sent.
    pub unexpected: u64,
    /// Times the target was started anew without having been told to.
    pub restarts: Option<u64>,
    /// The most memory of the target.
    pub memory: Option<Size>,
    /// The longest stretch without any success.
    pub silence: Option<Span>,
    /// Time from the end of the last disturbance until rate and latency are as before it.
    pub recovery: Option<Span>,
    /// At least this share of queries is answered with success.
    pub read_pass_rate: Option<f64>,
    /// 99 in 100 queries take at most so long.
    pub read_p99: Option<Span>,
    /// The run ends as soon as `restarts`, `memory` or `silence` is broken: nothing that follows could mend them.
    pub abort: bool,
}
