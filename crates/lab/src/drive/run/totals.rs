//! Figures of the whole run, with notes and with reasons to mistrust the figures.

use super::Target;
use super::seconds::Seconds;
use super::traffic::Traffic;
use crate::drive::meter;
use crate::drive::probe::Probing;
use crate::drive::readers::Reading;
use crate::result::Quantiles;
use crate::result::warnings;
use crate::result::{ReadTotals, RunResult, Totals};
use crate::scenario::{Model, Scenario};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A result of an endurance run has a warning if the p99 latency of the last third exceeds that of the first third by
/// more than this factor.
const TREND_FACTOR: f64 = 1.5;

pub(crate) fn fill(
    result: &mut RunResult,
    scenario: &Scenario,
    traffic: &Traffic,
    reading: &[Arc<Reading>],
    probing: &Probing,
    seconds: &Seconds,
    target: &Target,
) {
    result.totals = meter::totals(traffic.lanes.iter().map(|lane| &lane.tally));
    let totals = &mut result.totals;
    totals.samples_per_s = totals.samples_acknowledged as f64 / result.wall_s.max(1e-3);
    totals.series_active = seconds.series_active_max as u64;
    totals.generator_cpu_s = seconds.meter.own_cpu_s();
    totals.silence_s = seconds.meter.silence_s();
    totals.restarts = target.crashes();
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
    if !seconds.still.is_zero() {
        result.warnings.push(format!(
            "the generator was suspended for {:.0} s, perhaps because its machine was asleep: requests that were late \
             or not sent during this time do not count against the target",
            seconds.still.as_secs_f64()
        ));
    }
    if wrong > 0 {
        result.warnings.push(format!("samples returned with a wrong value during the load: {wrong}"));
    }
}

fn reads(reading: &Reading, wall_s: f64) -> ReadTotals {
    let counts = reading.lock();
    ReadTotals {
        queries_per_s: counts.totals.succeeded as f64 / wall_s.max(1e-3),
        latency: Quantiles::of_micros(&counts.latency),
        ..counts.totals.clone()
    }
}

/// Lists reasons why the figures may say less about the target than they seem to.
pub(crate) fn doubts(result: &RunResult, scenario: &Scenario, traffic: &Traffic) -> Vec<String> {
    let mut all = Vec::new();
    let totals = &result.totals;
    match scenario.load.model {
        Model::Open => all.extend(warnings::late(&totals.lag)),
        Model::Closed => all.extend(warnings::making(&totals.lag, &totals.service)),
    }
    let threads = result.machine.cores.min(traffic.connections) as f64;
    all.extend(warnings::busy(totals.generator_cpu_s, result.wall_s, threads));
    all.extend(warnings::shared(result));
    all.extend(warnings::unrecovered(result));
    if traffic.runs.iter().any(|run| run.caught_up.load(Ordering::Relaxed)) {
        all.push(
            "the timestamps of the series caught up with the clock and the run ended early: use a shorter interval or \
             more series"
                .to_owned(),
        );
    }
    if totals.unsent > 0 {
        all.push(format!(
            "scheduled requests never sent, because all connections were busy: {}; the target is overloaded, or \
             the scenario has too few connections",
            totals.unsent
        ));
    }
    all.extend(warnings::short(totals.short));
    all.extend(scenario.burst_interval_s().and_then(|interval_s| {
        warnings::without_whole_interval(&result.steps, interval_s).filter(|_| !result.partial)
    }));
    if totals.invisible > 0 {
        all.push(format!(
            "{} samples were still not visible {:?} after they were acknowledged",
            totals.invisible, scenario.verify.invisible_after.0
        ));
    }
    all.extend(warnings::few(&totals.latency));
    for reads in &result.reads {
        if reads.empty * 2 > reads.succeeded && reads.succeeded > 0 {
            all.push(format!(
                "{}: {} of {} answers were empty: the queries may not fit the data",
                reads.name, reads.empty, reads.succeeded
            ));
        }
    }
    if scenario.course().is_endurance()
        && let [first, .., last] = result.steps.as_slice()
        && last.latency.p99_s > first.latency.p99_s * TREND_FACTOR
    {
        all.push(format!(
            "latency grew during the run: p99 was {:.1} ms in the first third and {:.1} ms in the last",
            first.latency.p99_s * 1e3,
            last.latency.p99_s * 1e3
        ));
    }
    all
}

/// Says how many points a target without answers has taken, but does not owe.
pub(crate) fn not_owed(totals: &Totals) -> Option<String> {
    let (owed, taken) = (totals.samples_owed?, totals.samples_acknowledged);
    (owed < taken).then(|| {
        format!(
            "{} of {taken} points that sockets have taken are not owed: their connections broke, or they were sent \
             as datagrams",
            taken - owed
        )
    })
}

/// Lists what a reader should not conclude from this run.
pub(crate) fn notes(scenario: &Scenario) -> Vec<String> {
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
    note(scenario.reads.is_empty(), "No queries ran during the load, except for probes of fresh samples.");
    note(
        scenario.scale != 1.0,
        &format!(
            "The scenario was scaled by {}: the load as written may behave differently.",
            scenario.scale
        ),
    );
    note(
        scenario.compress != 1.0,
        &format!(
            "The times of the shape were divided by {}: a longer run may show problems that this run does not.",
            scenario.compress
        ),
    );
    if scenario.replay.is_some() {
        return notes;
    }
    note(!scenario.verify.after, "Acknowledged samples were not read back.");
    note(
        true,
        "The lab generated all requests: each has one sample of each series, and the labels are invented.",
    );
    notes
}
