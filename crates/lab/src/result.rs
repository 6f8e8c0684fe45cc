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
    /// [`FORMAT`] of the writing program.
    pub format: u32,
    pub name: String,
    /// Without secrets.
    pub scenario: String,
    /// As `key = value`.
    pub overrides: Vec<String>,
    pub seed: u64,
    /// Without credentials.
    pub target: String,
    /// Of the lab and, if known, of the target.
    pub versions: BTreeMap<String, String>,
    pub machine: Machine,
    /// Part of the fleet, and number of parts.
    pub part: (u32, u32),
    pub begun_ms: i64,
    pub wall_s: f64,
    /// The run ended early, so the verdict is not about the whole scenario.
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
    /// Figures of the observation that are not in the timeline.
    pub observed: BTreeMap<String, f64>,
    /// Reasons to mistrust the figures.
    pub warnings: Vec<String>,
    /// What the run does not show.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    pub name: String,
    /// From the start of the load to the start of the phase.
    pub from_s: f64,
    /// From the start of the load to the end of the phase.
    pub to_s: f64,
    /// Multiple of the scenario's base load.
    pub factor: f64,
    pub offered_samples_per_s: f64,
    pub samples_per_s: f64,
    pub latency: Quantiles,
    /// Attempts without success.
    pub refused: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Samples that were due during the run.
    pub samples_offered: u64,
    pub samples_acknowledged: u64,
    pub samples_per_s: f64,
    /// Retries are not counted.
    pub requests: u64,
    /// Including retries.
    pub attempts: u64,
    pub succeeded: u64,
    pub bytes: u64,
    /// By outcome: a status such as `204`, or `connect`, `broken`, `timeout`.
    pub by_reason: BTreeMap<String, u64>,
    pub said: BTreeMap<String, String>,
    /// Retryable refusals without `Retry-After`.
    pub without_retry_after: u64,
    pub rejected: u64,
    pub given_up: u64,
    /// Scheduled requests that were never sent.
    pub unsent: u64,
    /// Requests answered with success for which the target reported fewer samples written than were sent.
    pub short: u64,
    /// Maximum number of series at the same time.
    pub series_active: u64,
    pub series_distinct: u64,
    pub latency: Quantiles,
    /// Requests with at least one new series.
    pub latency_new: Quantiles,
    /// Requests with known series only.
    pub latency_known: Quantiles,
    /// Single attempts with success.
    pub service: Quantiles,
    pub refusal: Quantiles,
    /// Time from the acknowledgement of a sample until queries return it.
    pub freshness: Quantiles,
    /// Probed samples that were not visible in time.
    pub invisible: u64,
    /// Generator lag: time from when a request could be sent until it was sent.
    pub lag: Quantiles,
    pub generator_cpu_s: Option<f64>,
    pub restarts: u64,
    /// Longest time without any success.
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

/// A rule and the measured value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Judgement {
    /// Name in the scenario, such as `p99`.
    pub rule: String,
    /// Permitted value with its unit: `≤ 1 s`.
    pub limit: String,
    /// Measured value with its unit, or the reason why there is none.
    pub measured: String,
    /// True if there is no measured value. The rule is then neither kept nor broken.
    pub unmeasured: bool,
    /// False also for an unmeasured rule.
    pub pass: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountFigure {
    pub what: String,
    pub value: f64,
    pub unit: String,
    /// Name of the measured figure: see [`RunResult::figure`].
    pub ours: Option<String>,
    pub note: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saturation {
    /// Such as `target CPU` or `disk vda`.
    pub resource: String,
    /// Time of the first saturation, in seconds since the start.
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

    /// Of all mixes together. `None` without queries.
    pub fn queries_per_s(&self) -> Option<f64> {
        self.reads.iter().map(|reads| reads.queries_per_s).reduce(|a, b| a + b)
    }

    /// Successful share of the queries of all mixes. `None` without queries.
    pub fn read_pass_rate(&self) -> Option<f64> {
        let (queries, succeeded) =
            self.reads.iter().fold((0, 0), |(q, s), reads| (q + reads.queries, s + reads.succeeded));
        (queries > 0).then(|| succeeded as f64 / queries as f64)
    }

    /// p99 of the slowest mix, because percentiles cannot be added.
    pub fn read_p99_s(&self) -> Option<f64> {
        let measured = self.reads.iter().filter(|reads| reads.latency.count > 0);
        measured.map(|reads| reads.latency.p99_s).reduce(f64::max)
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Reads the output of [`Self::to_json`].
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

    /// Replaces `path` as a whole, so a full disk never leaves half a result.
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
    /// Successful share of the attempts. `None` without attempts.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.succeeded as f64 / self.attempts as f64)
    }

    /// Acknowledged share of the scheduled samples. `None` without a schedule.
    pub fn achieved(&self) -> Option<f64> {
        (self.samples_offered > 0).then(|| self.samples_acknowledged as f64 / self.samples_offered as f64)
    }
}

impl ReadTotals {
    /// Successful share of the queries. `None` without queries.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.queries > 0).then(|| self.succeeded as f64 / self.queries as f64)
    }
}

#[cfg(test)]
mod tests;
