//! All results of a run in one value, which can be written and read as JSON.
//!
//! ```text
//!   fleet, ledger, verify ─┐
//!   observe ───────────────┼─▶ RunResult ─▶ JSON file ─▶ report (HTML, terminal), compare, merge of parts
//!   verdict ───────────────┘
//! ```
//!
//! A result is complete in itself: it contains the scenario's text, the seed, the versions and the machine.
//! The file is enough to repeat the run. Results of older programs can be read, because every field has a
//! default.

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

/// Version of the result's format. Readers refuse a higher version.
pub const FORMAT: u32 = 1;

/// Maximum size of a result file that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The result of one run of one scenario against one target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunResult {
    /// [`FORMAT`] of the program that wrote the result.
    pub format: u32,
    /// The scenario's name.
    pub name: String,
    /// Text of the scenario as it was read, without secrets.
    pub scenario: String,
    /// Settings changed on the command line, as `key = value`.
    pub overrides: Vec<String>,
    /// Seed. The same seed generates the same series and values.
    pub seed: u64,
    /// Name or address of the target, without credentials.
    pub target: String,
    /// Versions by name: of the lab, and of the target if it states one.
    pub versions: BTreeMap<String, String>,
    /// Machine of the generator.
    pub machine: Machine,
    /// Part of the fleet that this result covers, and the number of parts. 1 of 1 is the whole fleet.
    pub part: (u32, u32),
    /// Begin of the load, in ms since 1970.
    pub begun_ms: i64,
    /// Duration of the load, in seconds.
    pub wall_s: f64,
    /// True if the run ended early. Then the verdict says nothing about the whole scenario.
    pub partial: bool,
    /// Events by time.
    pub events: Vec<Event>,
    /// Figures second by second.
    pub timeline: Timeline,
    /// Phases of constant target load: the steps of a ladder, or the time before, in and after a spike.
    pub steps: Vec<Step>,
    /// Totals of the whole run.
    pub totals: Totals,
    /// Outcomes of queries, by mix. Empty if the scenario has no queries.
    pub reads: Vec<ReadTotals>,
    /// Result of the read-back, all tenants together.
    pub verify: Option<VerifyReport>,
    /// Reason why the read-back failed: the query that failed, and its answer.
    pub unverified: Option<String>,
    /// Rules that were fixed before the run, and their outcomes.
    pub verdict: Vec<Judgement>,
    /// Published figures that the scenario reproduces. Reports show them beside the measured figures.
    pub account: Vec<AccountFigure>,
    /// Resource that was exhausted first, if any. Set by [`crate::observe`].
    pub saturated: Option<Saturation>,
    /// Figures of the observation that are not in the timeline: totals and peaks.
    pub observed: BTreeMap<String, f64>,
    /// Reasons to mistrust the figures, above all that the generator was the bottleneck.
    pub warnings: Vec<String>,
    /// Notes on what the run does not show.
    pub notes: Vec<String>,
}

/// A phase of the run with constant target load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Name of the phase, such as `step 3 of 5` or `spike`.
    pub name: String,
    /// Start, in seconds since the start of the load.
    pub from_s: f64,
    /// End, exclusive.
    pub to_s: f64,
    /// Load as a multiple of the scenario's base load.
    pub factor: f64,
    /// Scheduled samples per second.
    pub offered_samples_per_s: f64,
    /// Samples a second that were acknowledged.
    pub samples_per_s: f64,
    /// Latency from the scheduled start to success.
    pub latency: Quantiles,
    /// Attempts that were not answered with success.
    pub refused: u64,
}

/// Counts over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Offered load: samples that were due during the run.
    pub samples_offered: u64,
    /// Samples whose request was answered with success.
    pub samples_acknowledged: u64,
    /// Acknowledged samples per second.
    pub samples_per_s: f64,
    /// Number of requests, not counting retries.
    pub requests: u64,
    /// Number of attempts, including retries.
    pub attempts: u64,
    /// Attempts that were answered with success.
    pub succeeded: u64,
    /// Bytes of compressed bodies, including retries.
    pub bytes: u64,
    /// Number of attempts by outcome: a status such as `204` or `503`, or `connect`, `broken`, `timeout`.
    pub by_reason: BTreeMap<String, u64>,
    /// First message of each failure reason.
    pub said: BTreeMap<String, String>,
    /// Retryable refusals without `Retry-After`.
    pub without_retry_after: u64,
    /// Requests refused permanently.
    pub rejected: u64,
    /// Requests that were given up after retries.
    pub given_up: u64,
    /// Requests on the schedule that were never sent.
    pub unsent: u64,
    /// Requests that were answered with success, although the target reported fewer samples as written.
    pub short: u64,
    /// Maximum number of series that were active at the same time.
    pub series_active: u64,
    /// Number of different series that were sent.
    pub series_distinct: u64,
    /// Latency from the scheduled start to success.
    pub latency: Quantiles,
    /// Latency of requests that carried at least one series for the first time.
    pub latency_new: Quantiles,
    /// Latency of requests that carried known series only.
    pub latency_known: Quantiles,
    /// Latency of single successful attempts: the time that the target itself takes.
    pub service: Quantiles,
    /// Latency of single refused attempts.
    pub refusal: Quantiles,
    /// Time from the acknowledgement of a sample until it is visible in a query.
    pub freshness: Quantiles,
    /// Probed samples that did not become visible in time.
    pub invisible: u64,
    /// Generator lag: the time between the moment at which a request could be sent and the moment at which it
    /// was sent.
    pub lag: Quantiles,
    /// CPU time of the generator, in seconds.
    pub generator_cpu_s: Option<f64>,
    /// Number of restarts of the target that were observed.
    pub restarts: u64,
    /// Longest time without any success, in seconds.
    pub silence_s: f64,
}

/// Outcome of one mix of queries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadTotals {
    /// The mix's name.
    pub name: String,
    /// Queries that were sent.
    pub queries: u64,
    /// Queries that were answered with success.
    pub succeeded: u64,
    /// Successful answers without a result.
    pub empty: u64,
    /// Successful queries per second.
    pub queries_per_s: f64,
    /// Queries by outcome.
    pub by_reason: BTreeMap<String, u64>,
    /// First message of each failure reason.
    pub said: BTreeMap<String, String>,
    /// Latency of successful queries, from the scheduled start to the end of the answer.
    pub latency: Quantiles,
    /// Bytes of answers.
    pub bytes: u64,
}

/// A rule of the verdict, and the measured value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Judgement {
    /// The rule's name in the scenario, such as `p99`.
    pub rule: String,
    /// Permitted value, as text with its unit: `≤ 1 s`.
    pub limit: String,
    /// Measured value, as text with its unit; the reason if it was not measured.
    pub measured: String,
    /// True if the value could not be measured, so that the rule is neither kept nor broken.
    pub unmeasured: bool,
    /// True if the rule was kept. False if the value could not be measured.
    pub pass: bool,
}

/// A published figure that a scenario reproduces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountFigure {
    /// Name of the figure, such as `samples a second`.
    pub what: String,
    /// The published value.
    pub value: f64,
    /// Unit, such as `1/s` or `GiB`.
    pub unit: String,
    /// Name of the measured figure to compare with: see [`RunResult::figure`].
    pub ours: Option<String>,
    /// Status of the figure, and the conditions of its measurement.
    pub note: String,
}

/// A resource that was exhausted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saturation {
    /// The saturated resource, such as `target CPU` or `disk vda`.
    pub resource: String,
    /// Time of the first saturation, in seconds since the start.
    pub at_s: f64,
    pub why: String,
}

impl RunResult {
    /// True if every rule was kept and the run was complete.
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

    /// Queries answered per second, of all mixes together; `None` if there were no queries.
    pub fn queries_per_s(&self) -> Option<f64> {
        self.reads.iter().map(|reads| reads.queries_per_s).reduce(|a, b| a + b)
    }

    /// Share of the queries of all mixes that were answered with success; `None` if there were no queries.
    pub fn read_pass_rate(&self) -> Option<f64> {
        let (queries, succeeded) =
            self.reads.iter().fold((0, 0), |(q, s), reads| (q + reads.queries, s + reads.succeeded));
        (queries > 0).then(|| succeeded as f64 / queries as f64)
    }

    /// p99 of the slowest mix of queries, in seconds (percentiles cannot be added).
    pub fn read_p99_s(&self) -> Option<f64> {
        let measured = self.reads.iter().filter(|reads| reads.latency.count > 0);
        measured.map(|reads| reads.latency.p99_s).reduce(f64::max)
    }

    /// Formats the result as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Reads what [`Self::to_json`] wrote.
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

    /// Writes the result to a temporary file, which then replaces `path`. So a full disk never leaves half a
    /// result.
    pub fn save(&self, path: &Path) -> Result<()> {
        files::replace(path, self.to_json()?).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a file that [`Self::save`] wrote.
    pub fn load(path: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let bytes = std::fs::metadata(path).with_context(context)?.len();
        ensure!(bytes <= FILE_BYTES_MAX, "{}: {bytes} bytes, the limit is {FILE_BYTES_MAX}", path.display());
        Self::from_json(&std::fs::read_to_string(path).with_context(context)?).with_context(context)
    }
}

impl Judgement {
    /// Outcome of the rule as one word.
    pub fn outcome(&self) -> &'static str {
        match (self.pass, self.unmeasured) {
            (true, _) => "kept",
            (false, true) => "unknown",
            (false, false) => "broken",
        }
    }
}

impl Totals {
    /// Share of attempts that were answered with success; `None` if there were no attempts.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.succeeded as f64 / self.attempts as f64)
    }

    /// Share of the scheduled samples that were acknowledged; `None` without a schedule.
    pub fn achieved(&self) -> Option<f64> {
        (self.samples_offered > 0).then(|| self.samples_acknowledged as f64 / self.samples_offered as f64)
    }
}

impl ReadTotals {
    /// Share of queries that were answered with success; `None` if there were no queries.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.queries > 0).then(|| self.succeeded as f64 / self.queries as f64)
    }
}

#[cfg(test)]
mod tests;
