//! What a run found, for people and for programs.

mod result;
mod text;

use crate::drive::meter;
use crate::drive::options::Pace;
use crate::drive::send::sender::Run;
use crate::drive::write::{Costs, Outcome};
use crate::generate::plan::Plan;
use crate::generate::template::Version;
use crate::result::Totals;
use crate::result::warnings;
use crate::verify::VerifyReport;
use crate::verify::ledger::Ledger;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A closed loop's connections that spend more than this making requests do not press as they could.
const MAKING_PART_MAX: f64 = 0.3;

/// The result of [`crate::write()`].
#[derive(Debug, Clone, Serialize)]
pub struct WriteReport {
    /// Of the program that measured.
    pub version: &'static str,
    /// Where to.
    pub url: String,
    /// Remote write 1.0 or 2.0.
    pub protocol: Version,
    /// All that makes the same samples again.
    pub plan: Plan,
    /// Connections in all.
    pub connections: u32,
    /// Series at a time.
    pub series: u64,
    /// Bytes of label text in a series.
    pub label_text_bytes: usize,
    /// Scheduled samples a second; `None` for a closed loop.
    pub offered_samples_per_s: Option<f64>,
    /// Begin of the load, in ms since 1970.
    pub begun_ms: i64,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// The series' own time from the first sample on, in ms since 1970: what to ask the target for.
    pub first_ms: i64,
    /// Until when, not included.
    pub end_ms: i64,
    /// Samples whose request was answered with success.
    pub samples_acknowledged: u64,
    /// Those, a second.
    pub samples_per_s: f64,
    /// Different series that were sent.
    pub series_distinct: u64,
    /// Series beyond the first set, a second: what churn adds.
    pub series_new_per_s: f64,
    /// It was ended before its time.
    pub partial: bool,
    /// What became of the requests.
    pub requests: Requests,
    /// Of requests that were taken, from the intended start to success, with all repetitions.
    pub latency: Quantiles,
    /// Of single attempts that were taken: the target's own time.
    pub service: Quantiles,
    /// Of single attempts that were refused.
    pub refusal: Quantiles,
    /// Of the generator: from when a request could be sent to when it was.
    pub lag: Quantiles,
    /// CPU time of this process in seconds, and the machine's cores.
    pub generator_cpu_s: Option<f64>,
    /// Processors of this machine.
    pub cores: usize,
    /// What the target cost, where its process was named.
    pub target: Option<TargetCost>,
    /// The first error of each kind: what kind, what was said.
    pub errors: Vec<(String, String)>,
    /// Reasons to mistrust the figures.
    pub warnings: Vec<String>,
    /// What was read back.
    pub verify: Option<VerifyReport>,
    /// Why it could not be read back.
    pub verify_error: Option<String>,
    /// The counts in the form of a result.
    #[serde(skip)]
    pub(crate) totals: Totals,
    /// To read it back later.
    #[serde(skip)]
    pub ledger: Ledger,
}

/// What became of the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Different requests.
    pub sent: u64,
    /// With repetitions.
    pub attempts: u64,
    /// Answers, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Repetitions.
    pub retries: u64,
    /// No connection came about.
    pub failures_connect: u64,
    /// The connection broke before the answer.
    pub failures_broken: u64,
    /// No answer in time.
    pub failures_timeout: u64,
    /// Refused for good.
    pub rejected: u64,
    /// Given up after repetitions.
    pub given_up: u64,
    /// Answered with success, though by the target's own count not all samples were written.
    pub short: u64,
    /// On the schedule but never begun: the run was over.
    pub unsent: u64,
    /// Compressed bodies, with repetitions.
    pub bytes: u64,
}

/// Points of a distribution of times, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantiles {
    /// How many times.
    pub count: u64,
    /// Half were shorter.
    pub p50_s: f64,
    /// Nine in ten were shorter.
    pub p90_s: f64,
    /// 99 in 100 were shorter.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
    /// The mean.
    pub mean_s: f64,
}

impl Quantiles {
    /// From a histogram of microseconds.
    pub fn of_micros(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e6;
        Self {
            count: histogram.len(),
            p50_s: at(0.5),
            p90_s: at(0.9),
            p99_s: at(0.99),
            max_s: histogram.max() as f64 / 1e6,
            mean_s: histogram.mean() / 1e6,
        }
    }
}

/// What the target cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TargetCost {
    /// CPU time during the run, in seconds; `None` where the process is gone.
    pub cpu_s: Option<f64>,
    /// Acknowledged samples for each of them.
    pub samples_per_cpu_s: Option<f64>,
    /// Resident memory at the end.
    pub rss_bytes: Option<u64>,
    /// The most it ever had.
    pub rss_peak_bytes: Option<u64>,
}

impl WriteReport {
    /// True where the run was whole and nothing that was acknowledged was found damaged: the exit status of the command.
    pub fn is_good(&self) -> bool {
        !self.partial
            && self.samples_acknowledged > 0
            && self.verify_error.is_none()
            && self.verify.as_ref().is_none_or(VerifyReport::is_good)
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// For people: a table on a terminal (`table`), plain lines in a pipe.
    pub fn to_text(&self, table: bool) -> String {
        text::write_report(self, table)
    }
}

/// A verification alone, as text.
pub(crate) fn verify_text(report: &VerifyReport, table: bool) -> String {
    text::verify_report(report, table)
}

/// Names and values: a table on a terminal (`table`), plain lines in a pipe.
pub(crate) fn rows(rows: &[(&'static str, String)], table: bool) -> String {
    text::render(rows, table)
}

/// Puts a report together.
pub(crate) fn build(outcome: Outcome<'_>) -> WriteReport {
    let Outcome { options, run, begun_ms, wall, costs, ledger } = outcome;
    let plan = &run.plan;
    let wall_s = wall.as_secs_f64();
    let totals = totals(run, &costs, wall_s);
    let counts = run.tally.lock();
    let requests = Requests {
        sent: counts.requests,
        attempts: counts.attempts,
        statuses: counts.statuses.clone(),
        retries: counts.retries,
        failures_connect: counts.failures_connect,
        failures_broken: counts.failures_broken,
        failures_timeout: counts.failures_timeout,
        rejected: counts.rejected,
        given_up: counts.given_up,
        short: counts.short,
        unsent: counts.unsent,
        bytes: counts.bytes,
    };
    let mut report = WriteReport {
        version: env!("CARGO_PKG_VERSION"),
        url: options.url.clone(),
        protocol: options.version,
        plan: plan.clone(),
        connections: options.writers * options.connections,
        series: plan.series(),
        label_text_bytes: plan.fleet.label_text_bytes(),
        offered_samples_per_s: match run.pace {
            Pace::Open { samples_per_s } => Some(samples_per_s),
            Pace::Closed => None,
        },
        begun_ms,
        wall_s,
        first_ms: plan.round_ms(0),
        end_ms: plan.round_ms(ledger.rounds()),
        samples_acknowledged: counts.samples_acknowledged,
        samples_per_s: counts.samples_acknowledged as f64 / wall_s,
        series_distinct: counts.series_new,
        series_new_per_s: counts.series_new.saturating_sub(plan.series()) as f64 / wall_s,
        partial: options.stop.is_set(),
        requests,
        latency: totals.latency,
        service: totals.service,
        refusal: totals.refusal,
        lag: totals.lag,
        generator_cpu_s: costs.own_cpu_s,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        target: options.pid.map(|_| target_cost(&costs, counts.samples_acknowledged)),
        errors: counts.errors.clone(),
        warnings: Vec::new(),
        verify: None,
        verify_error: None,
        totals,
        ledger,
    };
    drop(counts);
    report.warnings = doubts(&report, run.caught_up.load(Ordering::Relaxed));
    report
}

fn totals(run: &Run, costs: &Costs, wall_s: f64) -> Totals {
    let mut totals = meter::totals(std::iter::once(&run.tally));
    totals.samples_per_s = totals.samples_acknowledged as f64 / wall_s;
    totals.series_active = run.plan.series();
    totals.generator_cpu_s = costs.own_cpu_s;
    if run.pace == Pace::Closed {
        totals.samples_offered = 0;
    }
    totals
}

fn target_cost(costs: &Costs, samples: u64) -> TargetCost {
    let cpu_s = costs.target_cpu_s;
    TargetCost {
        cpu_s,
        samples_per_cpu_s: cpu_s.filter(|s| *s > 0.0).map(|s| samples as f64 / s),
        rss_bytes: costs.target_rss_bytes,
        rss_peak_bytes: costs.target_rss_peak_bytes,
    }
}

/// Looks for reasons to mistrust the figures, above all for a generator that was itself the bottleneck.
fn doubts(report: &WriteReport, caught_up: bool) -> Vec<String> {
    let mut all = Vec::new();
    let WriteReport { lag, service, latency, requests, wall_s, .. } = report;
    let open = report.offered_samples_per_s.is_some();
    if open {
        all.extend(warnings::late(lag));
    }
    let making = lag.mean_s / (lag.mean_s + service.mean_s);
    if !open && service.count > 0 && making > MAKING_PART_MAX {
        all.push(format!(
            "the generator took {:.0} % of each connection's time to make requests: it may be what limits",
            making * 100.0
        ));
    }
    let threads = report.cores.min(report.connections as usize) as f64;
    all.extend(warnings::busy(report.generator_cpu_s, *wall_s, threads));
    if let Some(cpu_s) = report.generator_cpu_s {
        let both = cpu_s + report.target.and_then(|t| t.cpu_s).unwrap_or(0.0);
        if report.target.is_some() && both / wall_s > 0.95 * report.cores as f64 && cpu_s > 0.25 * both {
            all.push(format!(
                "target and generator together used all {} cores, the generator {:.0} % of them: on a \
                 machine of its \
                 own the target can do more",
                report.cores,
                cpu_s / both * 100.0
            ));
        }
    }
    if let Some(offered) = report.offered_samples_per_s
        && requests.unsent > 0
    {
        all.push(format!(
            "of {:.0} samples/s offered {:.0} were taken; {} requests were never begun, because their \
             connections were \
             busy: the target is over its limit, or there are too few connections ({})",
            offered, report.samples_per_s, requests.unsent, report.connections
        ));
    }
    if caught_up {
        all.push(
            "the series' own time caught up with the clock and the run ended early: take a shorter \
             interval or more series"
                .to_owned(),
        );
    }
    all.extend(warnings::short(requests.short));
    if report.series_distinct > report.series {
        all.push(format!(
            "series were replaced: {} different ones were sent, {} at a time; the load is that of new \
             series as much \
             as of samples",
            report.series_distinct, report.series
        ));
    }
    all.extend(warnings::few(latency));
    all
}
