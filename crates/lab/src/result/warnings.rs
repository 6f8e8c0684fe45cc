//! Reasons to mistrust figures that are the same for every way to send.

use crate::result::recovery::Recovery;
use crate::result::{Quantiles, RunResult};

/// Generator lag above which it shows in the figures.
const LAG_P99_S_MAX: f64 = 0.005;

/// A generator busier than this may be what limits.
const OWN_CPU_PART_MAX: f64 = 0.85;

/// A closed loop's connections that spend more than this making requests do not press as they could.
const MAKING_PART_MAX: f64 = 0.3;

/// Fewer acknowledged requests make no honest p99.
const REQUESTS_MIN: u64 = 300;

/// The generator sent late by its own fault.
pub(crate) fn late(lag: &Quantiles) -> Option<String> {
    (lag.p99_s > LAG_P99_S_MAX).then(|| {
        format!(
            "the generator itself was late by up to {:.1} ms (p99): latencies of the target are shorter than shown",
            lag.p99_s * 1e3
        )
    })
}

/// The connections of a closed loop did not press as they could.
pub(crate) fn making(lag: &Quantiles, service: &Quantiles) -> Option<String> {
    let making = lag.mean_s / (lag.mean_s + service.mean_s);
    (service.count > 0 && making > MAKING_PART_MAX).then(|| {
        format!(
            "the generator took {:.0} % of each connection's time to make requests: it may be what limits",
            making * 100.0
        )
    })
}

/// The target had not recovered from a disturbance when the load ended.
pub(crate) fn unrecovered(result: &RunResult) -> Option<String> {
    match Recovery::of(result)? {
        Recovery::After(_) => None,
        Recovery::NotWithin(s) => Some(format!(
            "{s:.0} s after the last disturbance, when the load ended, rate and latency were not yet as before it"
        )),
    }
}

/// Target and generator used up the machine together.
pub(crate) fn shared(result: &RunResult) -> Option<String> {
    let (own_s, target_s) = (result.totals.generator_cpu_s?, result.figure("cpu_s")?);
    let (both_s, cores) = (own_s + target_s, result.machine.cores as f64);
    (both_s / result.wall_s > 0.95 * cores && own_s > 0.25 * both_s).then(|| {
        format!(
            "target and generator together used all {cores} cores, the generator {:.0} % of them: on a machine of its own \
             the target can do more",
            own_s / both_s * 100.0
        )
    })
}

/// The generator used most of the `cores` that it can.
pub(crate) fn busy(cpu_s: Option<f64>, wall_s: f64, cores: f64) -> Option<String> {
    let used = cpu_s? / wall_s;
    (used > OWN_CPU_PART_MAX * cores)
        .then(|| format!("the generator used {used:.1} of the {cores} cores it can: it may be what limits"))
}

/// Warns that there are too few requests for a percentile.
pub(crate) fn few(latency: &Quantiles) -> Option<String> {
    (1..REQUESTS_MIN)
        .contains(&latency.count)
        .then(|| format!("only {} requests: the p99 is one of the few slowest", latency.count))
}

/// The target said that it wrote less than it was sent.
pub(crate) fn short(requests: u64) -> Option<String> {
    (requests > 0).then(|| {
        format!(
            "{requests} requests were answered with success though by the target's own count not all of their samples \
             were written"
        )
    })
}
