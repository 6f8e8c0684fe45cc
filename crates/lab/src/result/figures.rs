//! Figures that reports and comparisons show, with their labels.

use crate::result::Quantiles;
use crate::result::RunResult;
use crate::result::recovery::Recovery;
use Better::{Higher, Lower, Neither};
use stdx::units::short;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    /// The figure describes the load, so neither a higher nor a lower value is better.
    Neither,
}

#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub name: &'static str,
    pub label: &'static str,
    /// The unit, such as `1/s`, `s`, `bytes` or `part`. Empty for counts.
    pub unit: &'static str,
    pub better: Better,
    /// Computes the figure from the lab's own measurements. `None` if the figure was observed, and is in
    /// [`RunResult::observed`].
    own: Option<fn(&RunResult) -> Option<f64>>,
}

impl Figure {
    /// Value of the figure in a result. `None` if it was not measured.
    pub fn of(&self, result: &RunResult) -> Option<f64> {
        let value = match self.own {
            Some(own) => own(result),
            None => result.observed.get(self.name).copied(),
        };
        value.filter(|value| value.is_finite())
    }
}

impl RunResult {
    /// Looks up a figure by its name in [`FIGURES`] or, if it is not there, in [`Self::observed`].
    pub fn figure(&self, name: &str) -> Option<f64> {
        match FIGURES.iter().find(|figure| figure.name == name) {
            Some(figure) => figure.of(self),
            None => self.observed.get(name).copied(),
        }
    }
}

const fn own(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
    value: fn(&RunResult) -> Option<f64>,
) -> Figure {
    Figure { name, label, unit, better, own: Some(value) }
}

const fn observed(name: &'static str, label: &'static str, unit: &'static str, better: Better) -> Figure {
    Figure { name, label, unit, better, own: None }
}

fn measured(quantiles: &Quantiles) -> Option<&Quantiles> {
    (quantiles.count > 0).then_some(quantiles)
}

fn p99_s(quantiles: &Quantiles) -> Option<f64> {
    measured(quantiles).map(|q| q.p99_s)
}

pub const FIGURES: [Figure; 45] = [
    own("samples_per_s", "samples acknowledged a second", "1/s", Higher, |r| Some(r.totals.samples_per_s)),
    own("samples_acknowledged", "samples acknowledged", "", Higher, |r| {
        Some(r.totals.samples_acknowledged as f64)
    }),
    own("series_active", "series at a time", "", Neither, |r| Some(r.totals.series_active as f64)),
    own("series_distinct", "different series", "", Neither, |r| Some(r.totals.series_distinct as f64)),
    own("pass_rate", "requests accepted", "part", Higher, |r| r.totals.pass_rate()),
    own("p50_s", "latency p50", "s", Lower, |r| measured(&r.totals.latency).map(|q| q.p50_s)),
    own("p90_s", "latency p90", "s", Lower, |r| measured(&r.totals.latency).map(|q| q.p90_s)),
    own("p99_s", "latency p99", "s", Lower, |r| p99_s(&r.totals.latency)),
    own("max_s", "longest latency", "s", Lower, |r| measured(&r.totals.latency).map(|q| q.max_s)),
    own("p99_known_s", "latency p99, known series", "s", Lower, |r| p99_s(&r.totals.latency_known)),
    own("p99_new_s", "latency p99, new series", "s", Lower, |r| p99_s(&r.totals.latency_new)),
    own("service_p99_s", "one attempt p99", "s", Lower, |r| p99_s(&r.totals.service)),
    own("refusal_p99_s", "one refusal p99", "s", Lower, |r| p99_s(&r.totals.refusal)),
    own("freshness_p99_s", "time until visible, p99", "s", Lower, |r| p99_s(&r.totals.freshness)),
    own("lost", "samples lost", "", Lower, |r| r.verify.as_ref().map(|verify| verify.lost as f64)),
    own("restarts", "restarts of the target", "", Lower, |r| Some(r.totals.restarts as f64)),
    own("silence_s", "longest time without success", "s", Lower, |r| Some(r.totals.silence_s)),
    own("recovery_s", "recovery time", "s", Lower, |r| Recovery::of(r)?.seconds()),
    own("queries_per_s", "queries a second", "1/s", Higher, RunResult::queries_per_s),
    own("read_pass_rate", "queries answered", "part", Higher, RunResult::read_pass_rate),
    own("read_p99_s", "query latency p99", "s", Lower, RunResult::read_p99_s),
    observed("cpu_cores_mean", "target CPU, mean", "cores", Lower),
    observed("target_cpu_peak", "target CPU, in the busiest second", "cores", Lower),
    own("cpu_headroom", "CPU left, mean", "part", Higher, |r| {
        let machine = *r.observed.get("machine_cores")?;
        let limit = r.observed.get("cgroup_cpu_limit_cores").map_or(machine, |limit| limit.min(machine));
        Some(1.0 - r.observed.get("cpu_cores_mean")? / limit)
    }),
    own("memory_headroom", "memory left at the peak", "part", Higher, |r| {
        Some(
            1.0 - r.observed.get("cgroup_memory_peak_bytes")?
                / r.observed.get("cgroup_memory_limit_bytes")?,
        )
    }),
    observed("cpu_s", "target CPU time", "s", Lower),
    observed("rss_peak_bytes", "target memory, maximum", "bytes", Lower),
    observed("rss_end_bytes", "target memory at the end", "bytes", Lower),
    observed("cgroup_memory_peak_bytes", "memory of the target's control group, maximum", "bytes", Lower),
    observed("samples_per_s_per_core", "samples a second for each core used", "1/s", Higher),
    observed("samples_per_s_per_gib", "samples a second for each GiB used", "1/s", Higher),
    observed("bytes_per_series", "memory a series", "bytes", Lower),
    observed("series_per_gib", "series for each GiB used", "", Higher),
    observed("written_bytes", "written to storage by the target", "bytes", Lower),
    observed("disk_util_peak", "disk busy, in the busiest second", "part", Lower),
    observed("disk_await_peak", "disk wait, mean in the slowest second", "s", Lower),
    observed("disk_bytes_per_sample", "disk space per sample", "bytes", Lower),
    observed("disk_bytes_per_series", "disk space per series", "bytes", Lower),
    observed("files_per_series", "files per series", "", Lower),
    observed("own_series_peak", "series as the target counts them, maximum", "", Neither),
    observed("oom_kills", "kills for lack of memory", "", Lower),
    own("samples_offered", "samples on the schedule", "", Neither, |r| Some(r.totals.samples_offered as f64)),
    own("bytes_per_sample", "sent for each acknowledged sample", "bytes", Lower, |r| {
        let samples = r.totals.samples_acknowledged;
        (samples > 0).then(|| r.totals.bytes as f64 / samples as f64)
    }),
    own("lag_p99_s", "generator lag p99", "s", Lower, |r| p99_s(&r.totals.lag)),
    own("wall_s", "duration of the run", "s", Neither, |r| Some(r.wall_s)),
];

pub fn show(value: f64, unit: &str) -> String {
    match unit {
        "s" => seconds(value),
        // near 100 %, two decimals could not tell a good value from a perfect one
        "part" => format!("{} %", trim(value * 100.0, if (0.999..1.0).contains(&value) { 4 } else { 2 })),
        "bytes" => bytes(value),
        "bytes/s" => bytes(value) + "/s",
        "1/s" => short(value) + "/s",
        "" => count(value),
        unit => format!("{} {unit}", trim(value, 2)),
    }
}

pub(crate) fn ratio(r: f64) -> String {
    match r.abs() {
        a if !(0.001..1e6).contains(&a) && a != 0.0 => format!("{r:.1e}"),
        100.0.. => format!("{r:.0}"),
        10.0.. => format!("{r:.1}"),
        _ => format!("{r:.2}"),
    }
}

fn seconds(s: f64) -> String {
    match s.abs() {
        0.0 => "0 s".to_owned(),
        a if a < 1e-3 => format!("{} µs", trim(s * 1e6, 0)),
        a if a < 1.0 => format!("{} ms", trim(s * 1e3, if a < 0.1 { 2 } else { 0 })),
        a if a < 600.0 => format!("{} s", trim(s, 2)),
        a if a < 7200.0 => format!("{} min", trim(s / 60.0, 1)),
        _ => format!("{} h", trim(s / 3600.0, 1)),
    }
}

fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{} {}", trim(value, if value.abs() < 10.0 { 2 } else { 1 }), UNITS[unit])
}

/// Whole numbers below a billion are written in full, in groups of three digits. Others are shortened.
fn count(value: f64) -> String {
    if value.fract() != 0.0 || value.abs() >= 1e9 {
        return match value.abs() {
            1e4.. => short(value),
            a if a < 0.01 => format!("{value:.1e}"),
            _ => trim(value, 2),
        };
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}'); // narrow no-break space
        }
        out.push(digit);
    }
    out
}

/// Formats `value` with at most `decimals` decimals, and without trailing zeros.
fn trim(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_units() {
        let check = |value, unit, text: &str| assert_eq!(show(value, unit), text);
        check(0.0, "s", "0 s");
        check(0.000_012, "s", "12 µs");
        check(0.0123, "s", "12.3 ms");
        check(90.0, "s", "90 s");
        check(3600.0, "s", "60 min");
        check(0.9999, "part", "99.99 %");
        check(1_572_864.0, "bytes", "1.5 MiB");
        check(110_000.0, "1/s", "110k/s");
        check(1_234_567.0, "", "1\u{202f}234\u{202f}567");
        check(-12.0, "", "-12");
        check(0.0, "", "0");
        check(1.25, "cores", "1.25 cores");
        check(3e12, "", "3000G");
        check(0.125, "", "0.12");
        check(0.000_21, "", "2.1e-4");
    }

    #[test]
    fn headroom_is_that_of_the_cpu_quota_where_there_is_one() {
        let headroom = FIGURES.iter().find(|figure| figure.name == "cpu_headroom").unwrap();
        let check = |observed: &[(&str, f64)], expected| {
            let observed = observed.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let result = RunResult { observed, ..RunResult::default() };
            assert_eq!(headroom.of(&result), expected);
        };
        let used = ("cpu_cores_mean", 1.0);
        check(&[used, ("machine_cores", 4.0)], Some(0.75));
        check(&[used, ("machine_cores", 4.0), ("cgroup_cpu_limit_cores", 2.0)], Some(0.5));
        check(&[used, ("machine_cores", 4.0), ("cgroup_cpu_limit_cores", 8.0)], Some(0.75));
        check(&[("machine_cores", 4.0)], None);
    }

    #[test]
    fn names_of_figures_are_unique() {
        let mut names: Vec<_> = FIGURES.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
        assert_eq!(FIGURES[0].of(&RunResult::default()), Some(0.0));
        assert_eq!(FIGURES[5].of(&RunResult::default()), None, "an empty result has a p99");
    }
}
