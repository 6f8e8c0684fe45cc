//! Counts over the whole run, reasons to mistrust them, and what they do not show.

use super::Target;
use super::probe::Probing;
use super::readers::Reading;
use super::seconds::Seconds;
use crate::report::Quantiles;
use crate::result::{ReadTotals, RunResult, Totals};
use crate::scenario::{Model, Scenario};
use crate::write::sender::Run;
use crate::write::tally::LATENCY_US_MAX;
use hdrhistogram::Histogram;
use std::sync::Arc;

/// Above this the generator's own lateness shows in the figures.
const LAG_P99_S_MAX: f64 = 0.005;

/// A sending machine busier than this may be what limits.
const OWN_CPU_PART_MAX: f64 = 0.85;

/// Fewer acknowledged requests make no honest p99.
const REQUESTS_MIN: u64 = 300;

/// The last third of an endurance run is slower than the first by more than this factor: a trend.
const TREND_FACTOR: f64 = 1.5;

/// Fills in what is known when the load has ended.
pub(super) fn fill(
    result: &mut RunResult,
    scenario: &Scenario,
    runs: &[Arc<Run>],
    reading: &[Arc<Reading>],
    probing: &Probing,
    seconds: &Seconds,
    target: &Target,
) {
    result.totals = writes(runs);
    let totals = &mut result.totals;
    totals.samples_per_s = totals.samples_acknowledged as f64 / result.wall_s.max(1e-3);
    totals.series_active = seconds.series_active_max as u64;
    totals.generator_cpu_s = seconds.own_cpu_s();
    totals.silence_s = seconds.silence_s();
    totals.restarts = target.deaths();
    if scenario.load.model == Model::Closed {
        totals.samples_offered = 0;
    }
    let seen = probing.lock();
    totals.freshness = Quantiles::of_micros(&seen.freshness);
    totals.invisible = seen.invisible;
    let wrong = seen.wrong;
    drop(seen);
    result.reads = reading.iter().map(|reading| reads(reading, result.wall_s)).collect();
    result.observed.insert("machine_cores".into(), result.machine.cores as f64);
    result.warnings.extend(warnings(result, scenario));
    if !seconds.still.is_zero() {
        result.warnings.push(format!(
            "the generator itself stood still for {:.0} s, as on a machine that is suspended: what was late or never \
             sent for that is not the target's doing",
            seconds.still.as_secs_f64()
        ));
    }
    if wrong > 0 {
        result.warnings.push(format!("{wrong} samples were seen with another value while the load went on"));
    }
}

fn writes(runs: &[Arc<Run>]) -> Totals {
    let histogram = || Histogram::<u64>::new_with_bounds(1, LATENCY_US_MAX, 3).expect("BUG: constant bounds");
    let [mut latency, mut new, mut service, mut refusal, mut lag] = [0; 5].map(|_: u8| histogram());
    let mut totals = Totals::default();
    for run in runs {
        let counts = run.tally.lock();
        for (sum, part) in [
            (&mut latency, &counts.latency),
            (&mut new, &counts.latency_new),
            (&mut service, &counts.service),
            (&mut refusal, &counts.refusal),
            (&mut lag, &counts.lag),
        ] {
            sum.add(part).expect("BUG: equal bounds");
        }
        totals.samples_offered += counts.samples_offered;
        totals.samples_acknowledged += counts.samples_acknowledged;
        totals.requests += counts.requests;
        totals.attempts += counts.attempts;
        totals.bytes += counts.bytes;
        totals.without_retry_after += counts.without_retry_after;
        totals.rejected += counts.rejected;
        totals.given_up += counts.given_up;
        totals.unsent += counts.unsent;
        totals.short += counts.short;
        totals.series_distinct += counts.series_new;
        for (reason, count) in counts.by_reason() {
            *totals.by_reason.entry(reason).or_default() += count;
        }
        for (reason, said) in &counts.errors {
            totals.said.entry(reason.clone()).or_insert_with(|| said.clone());
        }
    }
    totals.succeeded = latency.len();
    let mut known = latency.clone();
    known.subtract(&new).expect("BUG: those with new series are among all");
    totals.latency = Quantiles::of_micros(&latency);
    totals.latency_new = Quantiles::of_micros(&new);
    totals.latency_known = Quantiles::of_micros(&known);
    totals.service = Quantiles::of_micros(&service);
    totals.refusal = Quantiles::of_micros(&refusal);
    totals.lag = Quantiles::of_micros(&lag);
    totals
}

fn reads(reading: &Reading, wall_s: f64) -> ReadTotals {
    let counts = reading.lock();
    ReadTotals {
        name: reading.name.clone(),
        queries: counts.queries,
        succeeded: counts.succeeded,
        empty: counts.empty,
        queries_per_s: counts.succeeded as f64 / wall_s.max(1e-3),
        by_reason: counts.by_reason.clone(),
        said: counts.said.clone(),
        latency: Quantiles::of_micros(&counts.latency),
        bytes: counts.bytes,
    }
}

/// Looks for reasons to mistrust the figures, above all for a generator that was itself the bottleneck.
fn warnings(result: &RunResult, scenario: &Scenario) -> Vec<String> {
    let mut warnings = Vec::new();
    let totals = &result.totals;
    if scenario.load.model == Model::Open && totals.lag.p99_s > LAG_P99_S_MAX {
        warnings.push(format!(
            "the generator itself was late by up to {:.1} ms (p99): latencies of the target are shorter than shown",
            totals.lag.p99_s * 1e3
        ));
    }
    let cores = result.machine.cores as f64;
    if let Some(cpu_s) = totals.generator_cpu_s
        && cpu_s / result.wall_s > OWN_CPU_PART_MAX * cores
    {
        warnings.push(format!(
            "the generator used {:.1} of {cores} cores: it may be what limits",
            cpu_s / result.wall_s
        ));
    }
    if totals.unsent > 0 {
        warnings.push(format!(
            "{} requests of the schedule were never begun, because their connections were busy: the target is \
             over its limit, or there are too few connections",
            totals.unsent
        ));
    }
    if totals.short > 0 {
        warnings.push(format!(
            "{} requests were answered with success though by the target's own count not all of their samples \
             were written",
            totals.short
        ));
    }
    if totals.invisible > 0 {
        warnings.push(format!(
            "{} acknowledged samples were not visible for {:?}",
            totals.invisible, scenario.verify.invisible_after.0
        ));
    }
    if (1..REQUESTS_MIN).contains(&totals.latency.count) {
        warnings.push(format!("only {} requests: the p99 is one of the few slowest", totals.latency.count));
    }
    for reads in &result.reads {
        if reads.empty * 2 > reads.succeeded && reads.succeeded > 0 {
            warnings.push(format!(
                "{}: {} of {} answers were empty: the queries may not fit the data",
                reads.name, reads.empty, reads.succeeded
            ));
        }
    }
    if scenario.course().is_endurance()
        && let [first, .., last] = result.steps.as_slice()
        && last.latency.p99_s > first.latency.p99_s * TREND_FACTOR
    {
        warnings.push(format!(
            "a trend: p99 was {:.1} ms in the first third and {:.1} ms in the last",
            first.latency.p99_s * 1e3,
            last.latency.p99_s * 1e3
        ));
    }
    warnings
}

/// What a run does not show, by what it is.
pub(super) fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = scenario.notes.clone();
    let mut note = |yes: bool, text: &str| {
        if yes {
            notes.push(text.to_owned());
        }
    };
    let loopback = scenario.target.write.all().iter().all(|url| {
        let host = url.split("//").nth(1).unwrap_or_default();
        host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
    });
    note(
        loopback,
        "Generator and target share a machine: its cores, its memory and its caches. There is no network.",
    );
    note(
        scenario.reads.is_empty(),
        "Nothing was asked while the load was written, except to see fresh samples.",
    );
    note(
        scenario.scale != 1.0,
        &format!(
            "The scenario was scaled by {}: what grows faster than the load does not show.",
            scenario.scale
        ),
    );
    note(
        scenario.compress != 1.0,
        &format!(
            "The times of the shape were divided by {}: what takes long to go wrong does not show.",
            scenario.compress
        ),
    );
    note(!scenario.verify.after, "What was acknowledged was not read back.");
    note(
        true,
        "Senders are the lab's own: their requests have one sample for each series, and their labels are made up.",
    );
    notes
}
