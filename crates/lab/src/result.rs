//! All results of a run in one value, which can be written and read as JSON.
//!
//! ```text
//!   fleet, ledger, verify ─┐
//!   observe ───────────────┼─▶ RunResult ─▶ JSON file ─▶ report (HTML, terminal), compare, merge of parts
//!   verdict ───────────────┘
//! ```
//!
//! A result contains everything that is needed to repeat the run. Every field has a default, so results of older
//! programs can be read. `docs/reference/result.md` describes the fields.

mod events;
pub mod figures;
pub(crate) mod files;
mod machine;
pub mod merge;
mod quantiles;
pub mod recovery;
mod steps;
mod timeline;
pub mod verdict;
pub(crate) mod warnings;

pub use events::{Event, EventKind};
pub use machine::Machine;
pub use quantiles::Quantiles;
pub use timeline::{POINTS_MAX, SERIES_MAX, SeriesKind, Timeline, TimelineSeries, names};

use crate::verify::VerifyReport;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the format. Readers refuse a higher version.
pub const FORMAT: u32 = 1;

const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunResult {
    pub format: u32,
    pub name: String,
    /// Text of the scenario, without secrets.
    pub scenario: String,
    /// Changes to the scenario by `--set`, as `key = value`.
    pub overrides: Vec<String>,
    pub seed: u64,
    /// Seed of the values. `None` for a replay, and after a merge of parts, each of which had another one.
    pub value_seed: Option<u64>,
    /// URL of the target, without credentials.
    pub target: String,
    /// Versions of the lab and, if known, of the target.
    pub versions: BTreeMap<String, String>,
    pub machine: Machine,
    /// Number of the part of the load that this machine generated, and the number of parts.
    pub part: (u32, u32),
    pub begun_ms: i64,
    pub wall_s: f64,
    /// True if the run ended early, so that the verdict does not apply to the whole scenario.
    pub partial: bool,
    pub events: Vec<Event>,
    pub timeline: Timeline,
    pub steps: Vec<Step>,
    pub totals: Totals,
    pub reads: Vec<ReadTotals>,
    pub verify: Option<VerifyReport>,
    pub unverified: Option<String>,
    pub verdict: Vec<Judgement>,
    pub account: Vec<AccountFigure>,
    pub saturated: Option<Saturation>,
    /// Other observed figures, which are not in the timeline.
    pub observed: BTreeMap<String, f64>,
    /// Reasons why the figures may say less about the target than they seem to.
    pub warnings: Vec<String>,
    /// Explains what this run cannot show about the target.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    pub name: String,
    /// Start of the phase in seconds from the start of the load.
    pub from_s: f64,
    pub to_s: f64,
    /// Load during the phase as a multiple of the scenario's base load.
    pub factor: f64,
    pub offered_samples_per_s: f64,
    pub samples_per_s: f64,
    pub latency: Quantiles,
    /// Attempts that did not succeed.
    pub refused: u64,
    /// Mean time that a request to the target's disk took, as iostat's column await.
    pub disk_await_s: Option<f64>,
    /// Mean share of time for which the target's disk was busy, as iostat's column %util.
    pub disk_util: Option<f64>,
    pub cpu_cores: Option<f64>,
    /// Maximum memory of the target.
    pub memory_bytes: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Samples that should have been sent during the run.
    pub samples_offered: u64,
    pub samples_acknowledged: u64,
    /// Acknowledged samples that the target owes. Over Graphite's protocols, these may be fewer than the sockets have
    /// taken. `None` if the run kept no record of it, as in a replay.
    pub samples_owed: Option<u64>,
    pub samples_per_s: f64,
    /// Number of requests. Each counts once, even if it was retried.
    pub requests: u64,
    /// Number of attempts to send a request, including retries.
    pub attempts: u64,
    pub succeeded: u64,
    pub bytes: u64,
    /// Number of attempts with each outcome: a status such as `204`, or `connect`, `broken`, `timeout`.
    pub by_reason: BTreeMap<String, u64>,
    pub said: BTreeMap<String, String>,
    /// Refusals that permit a retry, but have no header `Retry-After` that says when.
    pub without_retry_after: u64,
    pub rejected: u64,
    pub given_up: u64,
    /// Scheduled requests that the generator never sent.
    pub unsent: u64,
    /// Successful requests for which the target reported that it had written fewer samples than were sent.
    pub short: u64,
    /// Maximum number of series that were active at the same time.
    pub series_active: u64,
    pub series_distinct: u64,
    pub latency: Quantiles,
    /// Latency of requests with at least one new series.
    pub latency_new: Quantiles,
    /// Latency of requests without new series.
    pub latency_known: Quantiles,
    /// Duration of successful attempts, without waiting and retries.
    pub service: Quantiles,
    pub refusal: Quantiles,
    /// Time from the acknowledgement of a sample until queries return it.
    pub freshness: Quantiles,
    /// Probed samples that queries did not return in time.
    pub invisible: u64,
    /// Generator lag: how long requests could have been sent earlier.
    pub lag: Quantiles,
    pub generator_cpu_s: Option<f64>,
    pub restarts: u64,
    /// Longest time in which no request succeeded.
    pub silence_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadTotals {
    pub name: String,
    pub queries: u64,
    pub succeeded: u64,
    pub empty: u64,
    pub queries_per_s: f64,
    pub by_reason: BTreeMap<String, u64>,
    pub said: BTreeMap<String, String>,
    pub latency: Quantiles,
    pub bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Judgement {
    pub rule: String,
    /// Permitted value with its unit: `≤ 1 s`.
    pub limit: String,
    /// Measured value with its unit, or why there is none.
    pub measured: String,
    /// True if nothing was measured, so that it is unknown whether the rule was kept.
    pub unmeasured: bool,
    /// True if the rule was kept. False if it is unknown.
    pub pass: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountFigure {
    pub what: String,
    pub value: f64,
    /// Least value, if a range was published. `value` is then the greatest.
    pub low: Option<f64>,
    pub unit: String,
    /// Name of the figure that this run measured, which [`RunResult::figure`] or [`Step::figure`] can look up.
    pub ours: Option<String>,
    /// Number of the step that the figure is about, from 1. Without it, the figure is about the whole run.
    pub step: Option<u32>,
    pub note: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saturation {
    /// Name of the resource, such as `target CPU` or `disk vda`.
    pub resource: String,
    /// When the resource was used up, in seconds since the start.
    pub at_s: f64,
    pub why: String,
}

impl RunResult {
    /// True if the run was complete and kept every rule.
    pub fn passed(&self) -> bool {
        !self.partial && self.verdict.iter().all(|judgement| judgement.pass)
    }

    pub fn verdict_word(&self) -> &'static str {
        match () {
            () if self.partial => "PARTIAL",
            () if self.verdict.is_empty() => "NO RULES",
            () if self.passed() => "PASS",
            () => "FAIL",
        }
    }

    /// Queries per second of all query mixes together. `None` if there were no queries.
    pub fn queries_per_s(&self) -> Option<f64> {
        self.reads.iter().map(|reads| reads.queries_per_s).reduce(|a, b| a + b)
    }

    /// Share of all mixes' queries that succeeded. `None` if there were no queries.
    pub fn read_pass_rate(&self) -> Option<f64> {
        let (queries, succeeded) =
            self.reads.iter().fold((0, 0), |(q, s), reads| (q + reads.queries, s + reads.succeeded));
        (queries > 0).then(|| succeeded as f64 / queries as f64)
    }

    /// Highest p99 of all query mixes. The percentiles of several mixes cannot be combined into one.
    pub fn read_p99_s(&self) -> Option<f64> {
        let measured = self.reads.iter().filter(|reads| reads.latency.count > 0);
        measured.map(|reads| reads.latency.p99_s).reduce(f64::max)
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    pub fn from_json(text: &str) -> Result<Self> {
        let result: Self = serde_json::from_str(text).context("the file is not a result of a run")?;
        ensure!(
            result.format <= FORMAT,
            "result format {} is newer than this program, which reads up to {FORMAT}",
            result.format
        );
        result.timeline.check()?;
        Ok(result)
    }

    /// Writes the result to `path`. If that fails, for example because the disk is full, an older result is still
    /// there.
    pub fn save(&self, path: &Path) -> Result<()> {
        files::replace(path, self.to_json()?).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn load(path: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let bytes = std::fs::metadata(path).with_context(context)?.len();
        ensure!(bytes <= FILE_BYTES_MAX, "{}: {bytes} bytes, the limit is {FILE_BYTES_MAX}", path.display());
        Self::from_json(&std::fs::read_to_string(path).with_context(context)?).with_context(context)
    }
}

impl Judgement {
    pub fn outcome(&self) -> &'static str {
        match (self.pass, self.unmeasured) {
            (true, _) => "kept",
            (false, true) => "unknown",
            (false, false) => "broken",
        }
    }
}

impl Totals {
    /// Share of the attempts that succeeded. `None` without attempts.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.succeeded as f64 / self.attempts as f64)
    }

    /// Share of the scheduled samples that were acknowledged. `None` if nothing was scheduled.
    pub fn achieved(&self) -> Option<f64> {
        (self.samples_offered > 0).then(|| self.samples_acknowledged as f64 / self.samples_offered as f64)
    }

    /// Share of the acknowledged samples that are owed. `None` without samples, or if it is not known.
    pub fn owed(&self) -> Option<f64> {
        let owed = self.samples_owed.filter(|_| self.samples_acknowledged > 0)?;
        Some(owed as f64 / self.samples_acknowledged as f64)
    }
}

impl ReadTotals {
    /// Share of the queries that succeeded. `None` without queries.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.queries > 0).then(|| self.succeeded as f64 / self.queries as f64)
    }
}

#[cfg(test)]
mod tests;
