//! Warns of figures that say less about the target than they seem to.

use crate::result::recovery::Recovery;
use crate::result::{Quantiles, RunResult, Step};

/// If the p99 of generator lag exceeds this number of seconds, latencies are distorted.
const LAG_P99_S_MAX: f64 = 0.005;

/// If the generator uses more than this share of the cores, it may be the bottleneck.
const OWN_CPU_PART_MAX: f64 = 0.85;

/// If a closed loop spends more than this share of its time on building requests, it does not load the target fully.
const MAKING_PART_MAX: f64 = 0.3;

/// With fewer requests, the p99 depends on a few slow ones.
const REQUESTS_MIN: u64 = 300;

pub(crate) fn late(lag: &Quantiles) -> Option<String> {
    (lag.p99_s > LAG_P99_S_MAX).then(|| {
        format!(
            "the generator itself was late by up to {:.1} ms (p99): the target's latencies are lower than shown",
            lag.p99_s * 1e3
        )
    })
}

pub(crate) fn making(lag: &Quantiles, service: &Quantiles) -> Option<String> {
    let making = lag.mean_s / (lag.mean_s + service.mean_s);
    (service.count > 0 && making > MAKING_PART_MAX).then(|| {
        format!(
            "building requests took {:.0} % of each connection's time: the generator may be the bottleneck",
            making * 100.0
        )
    })
}

pub(crate) fn unrecovered(result: &RunResult) -> Option<String> {
    match Recovery::of(result)? {
        Recovery::After(_) => None,
        Recovery::NotWithin(s) => Some(format!(
            "rate and latency had not recovered when the load ended, {s:.0} s after the last disturbance"
        )),
    }
}

pub(crate) fn shared(result: &RunResult) -> Option<String> {
    let (own_s, target_s) = (result.totals.generator_cpu_s?, result.figure("cpu_s")?);
    let (both_s, cores) = (own_s + target_s, result.machine.cores as f64);
    (both_s / result.wall_s > 0.95 * cores && own_s > 0.25 * both_s).then(|| {
        format!(
            "target and generator together used all {cores} cores, the generator {:.0} % of that: on its own machine, \
             the target could do more",
            own_s / both_s * 100.0
        )
    })
}

pub(crate) fn busy(cpu_s: Option<f64>, wall_s: f64, cores: f64) -> Option<String> {
    let used = cpu_s? / wall_s;
    (used > OWN_CPU_PART_MAX * cores)
        .then(|| format!("the generator used {used:.1} of its {cores} cores: it may be the bottleneck"))
}

pub(crate) fn few(latency: &Quantiles) -> Option<String> {
    (1..REQUESTS_MIN).contains(&latency.count).then(|| {
        format!(
            "the number of requests was only {}, so the p99 depends on a few slow requests",
            latency.count
        )
    })
}

pub(crate) fn short(requests: u64) -> Option<String> {
    (requests > 0).then(|| {
        format!(
            "{requests} requests were answered with success, but the target reported that not all of their samples \
             were written"
        )
    })
}

/// Says that the rates of some steps depend on where the bursts of an interval fall.
pub(crate) fn without_whole_interval(steps: &[Step], interval_s: f64) -> Option<String> {
    let count = steps.iter().filter(|step| step.to_s - step.from_s < interval_s - 1e-6).count();
    (count > 0).then(|| {
        format!(
            "steps shorter than the interval of {interval_s} s: {count}; their rates depend on where the bursts fall"
        )
    })
}
