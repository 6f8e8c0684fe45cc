//! Merges the results of several machines that shared one scenario.

use crate::result::Quantiles;
use crate::result::{ReadTotals, RunResult, Step, Totals};
use crate::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

const EXAMPLES_MAX: usize = 3;

/// Merges the results of all parts into the result of the whole load. The parts may be in any order, but none may be
/// missing, and all must be of the same scenario.
///
/// Counts are added. Percentiles cannot be added, so the highest of all parts is taken.
pub fn merge(parts: &[RunResult]) -> Result<RunResult> {
    let first = parts.first().context("cannot merge: there is no result")?;
    let count = first.part.1;
    ensure!(
        parts.len() == count as usize,
        "cannot merge: the number of results is {}, but the run has {count} parts",
        parts.len()
    );
    let mut numbers: Vec<u32> = parts.iter().map(|part| part.part.0).collect();
    numbers.sort_unstable();
    ensure!(
        numbers.iter().copied().eq(1..=count),
        "the results are of the parts {numbers:?}, but the parts 1 to {count} are needed"
    );
    for part in parts {
        let same =
            part.scenario == first.scenario && part.seed == first.seed && part.overrides == first.overrides;
        ensure!(
            same,
            "the scenario of part {} differs from the scenario of part {}",
            part.part.0,
            first.part.0
        );
    }
    ensure!(!first.scenario.is_empty(), "cannot judge the results: they do not contain their scenario");
    let mut whole = first.clone();
    whole.part = (1, 1);
    for part in parts.iter().skip(1) {
        add(&mut whole, part);
    }
    crate::observe::compare_with_load(&mut whole);
    whole.notes.push(format!(
        "Each percentile is the highest of {count} generators, not the percentile of all requests."
    ));
    let scenario = Scenario::parse_with(&whole.scenario, &whole.overrides)
        .context("cannot read the scenario in the results")?;
    whole.verdict = crate::result::verdict::judge(&scenario, &whole);
    Ok(whole)
}

fn add(whole: &mut RunResult, part: &RunResult) {
    whole.wall_s = whole.wall_s.max(part.wall_s);
    whole.value_seed = whole.value_seed.filter(|seed| part.value_seed == Some(*seed));
    whole.partial |= part.partial;
    whole.timeline.merge(&part.timeline);
    whole.events.extend(part.events.iter().cloned());
    whole.events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    for (ours, theirs) in whole.steps.iter_mut().zip(&part.steps) {
        add_step(ours, theirs);
    }
    add_totals(&mut whole.totals, &part.totals);
    whole.totals.samples_per_s = whole.totals.samples_acknowledged as f64 / whole.wall_s.max(1e-3);
    for (ours, theirs) in whole.reads.iter_mut().zip(&part.reads) {
        add_reads(ours, theirs);
    }
    match (&mut whole.verify, &part.verify) {
        (Some(ours), Some(theirs)) => ours.join(theirs, EXAMPLES_MAX),
        // if the samples of one part were not read back, nothing can be said about the whole
        (ours, _) => *ours = None,
    }
    whole.unverified = whole.unverified.take().or_else(|| part.unverified.clone());
    let firsts = [whole.saturated.take(), part.saturated.clone()];
    whole.saturated = firsts.into_iter().flatten().min_by(|a, b| a.at_s.total_cmp(&b.at_s));
    for (who, version) in &part.versions {
        whole.versions.entry(who.clone()).or_insert_with(|| version.clone());
    }
    for (name, value) in &part.observed {
        let ours = whole.observed.entry(name.clone()).or_insert(*value);
        *ours = ours.max(*value);
    }
    for warning in &part.warnings {
        if !whole.warnings.contains(warning) {
            whole.warnings.push(format!("part {}: {warning}", part.part.0));
        }
    }
}

fn add_step(ours: &mut Step, theirs: &Step) {
    ours.offered_samples_per_s += theirs.offered_samples_per_s;
    ours.samples_per_s += theirs.samples_per_s;
    ours.refused += theirs.refused;
    ours.latency = worse(ours.latency, theirs.latency);
    for (ours, theirs) in [
        (&mut ours.disk_await_s, theirs.disk_await_s),
        (&mut ours.disk_util, theirs.disk_util),
        (&mut ours.cpu_cores, theirs.cpu_cores),
        (&mut ours.memory_bytes, theirs.memory_bytes),
    ] {
        // all generators observe the same target, or only one of them does
        *ours = [*ours, theirs].into_iter().flatten().reduce(f64::max);
    }
}

impl Totals {
    pub(crate) fn add_counts(&mut self, other: &Self) {
        for (ours, theirs) in [
            (&mut self.samples_offered, other.samples_offered),
            (&mut self.samples_acknowledged, other.samples_acknowledged),
            (&mut self.requests, other.requests),
            (&mut self.attempts, other.attempts),
            (&mut self.succeeded, other.succeeded),
            (&mut self.bytes, other.bytes),
            (&mut self.without_retry_after, other.without_retry_after),
            (&mut self.rejected, other.rejected),
            (&mut self.given_up, other.given_up),
            (&mut self.unsent, other.unsent),
            (&mut self.short, other.short),
            (&mut self.series_active, other.series_active),
            (&mut self.series_distinct, other.series_distinct),
            (&mut self.invisible, other.invisible),
        ] {
            *ours += theirs;
        }
        self.samples_owed = self.samples_owed.zip(other.samples_owed).map(|(ours, theirs)| ours + theirs);
        add_by_reason(&mut self.by_reason, &other.by_reason);
        add_said(&mut self.said, &other.said);
    }
}

fn add_totals(ours: &mut Totals, theirs: &Totals) {
    ours.add_counts(theirs);
    for (ours, theirs) in [
        (&mut ours.latency, theirs.latency),
        (&mut ours.latency_new, theirs.latency_new),
        (&mut ours.latency_known, theirs.latency_known),
        (&mut ours.service, theirs.service),
        (&mut ours.refusal, theirs.refusal),
        (&mut ours.freshness, theirs.freshness),
        (&mut ours.lag, theirs.lag),
    ] {
        *ours = worse(*ours, theirs);
    }
    // the parts share one target, so they have seen the same restarts
    ours.restarts = ours.restarts.max(theirs.restarts);
    ours.silence_s = ours.silence_s.min(theirs.silence_s);
    ours.generator_cpu_s = ours.generator_cpu_s.zip(theirs.generator_cpu_s).map(|(a, b)| a + b);
}

fn add_reads(ours: &mut ReadTotals, theirs: &ReadTotals) {
    ours.queries += theirs.queries;
    ours.succeeded += theirs.succeeded;
    ours.empty += theirs.empty;
    ours.queries_per_s += theirs.queries_per_s;
    ours.bytes += theirs.bytes;
    ours.latency = worse(ours.latency, theirs.latency);
    add_by_reason(&mut ours.by_reason, &theirs.by_reason);
    add_said(&mut ours.said, &theirs.said);
}

pub(crate) fn add_by_reason(ours: &mut BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>) {
    for (reason, count) in theirs {
        *ours.entry(reason.clone()).or_default() += count;
    }
}

fn add_said(ours: &mut BTreeMap<String, String>, theirs: &BTreeMap<String, String>) {
    for (reason, said) in theirs {
        ours.entry(reason.clone()).or_insert_with(|| said.clone());
    }
}

fn worse(a: Quantiles, b: Quantiles) -> Quantiles {
    let count = a.count + b.count;
    let mean_s = (a.mean_s * a.count as f64 + b.mean_s * b.count as f64) / count.max(1) as f64;
    Quantiles {
        count,
        p50_s: a.p50_s.max(b.p50_s),
        p90_s: a.p90_s.max(b.p90_s),
        p99_s: a.p99_s.max(b.p99_s),
        max_s: a.max_s.max(b.max_s),
        mean_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Saturation;

    #[test]
    fn only_whole_sets_of_one_scenario_are_merged() {
        let part = |n, of| RunResult { part: (n, of), scenario: "name = 'x'".into(), ..RunResult::default() };
        assert!(merge(&[]).is_err());
        assert!(merge(&[part(1, 2)]).is_err());
        assert!(merge(&[part(1, 2), part(1, 2)]).is_err());
        let other = RunResult { seed: 9, ..part(2, 2) };
        assert!(merge(&[part(1, 2), other]).is_err());
        let unknown = |n| RunResult { scenario: String::new(), ..part(n, 2) };
        assert!(merge(&[unknown(1), unknown(2)]).is_err(), "results without a scenario were merged");
        assert!(merge(&[part(2, 2), part(1, 2)]).is_ok());
    }

    #[test]
    fn what_the_target_used_is_set_against_the_whole_load() {
        let part = |n, observed: &[(&str, f64)], at_s: Option<f64>| {
            let mut part = RunResult {
                part: (n, 2),
                scenario: "name = 'x'".into(),
                wall_s: 10.0,
                ..RunResult::default()
            };
            (part.totals.samples_acknowledged, part.totals.series_active) = (1_000, 50);
            part.totals.series_distinct = 60;
            part.totals.samples_per_s = 100.0;
            part.totals.by_reason = [("503".to_owned(), 2), (format!("40{n}"), 1)].into();
            part.totals.said = [("503".to_owned(), format!("first of part {n}"))].into();
            part.observed = observed.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            part.saturated = at_s.map(|at_s| Saturation { at_s, ..Saturation::default() });
            part.versions.extend(at_s.map(|at_s| ("target".to_owned(), format!("{at_s}"))));
            crate::observe::compare_with_load(&mut part);
            part
        };
        let observed = [
            ("cpu_cores_mean", 2.0),
            ("rss_peak_bytes", 1000.0),
            ("data_bytes", 6000.0),
            ("data_files", 12.0),
        ];
        let watching = part(2, &observed, Some(7.0));
        assert_eq!(watching.figure("samples_per_s_per_core"), Some(50.0));
        for one in [part(1, &[], None), part(1, &[("cpu_cores_mean", 2.0)], Some(9.0))] {
            let whole = merge(&[one, watching.clone()]).unwrap();
            assert_eq!(whole.totals.samples_per_s, 200.0);
            let reasons = [("401", 1), ("402", 1), ("503", 4)].map(|(reason, n)| (reason.to_owned(), n));
            assert_eq!(whole.totals.by_reason, reasons.into());
            assert_eq!(whole.totals.said["503"], "first of part 1");
            assert_eq!(whole.figure("samples_per_s_per_core"), Some(100.0));
            assert_eq!(whole.figure("bytes_per_series"), Some(10.0));
            assert_eq!(whole.figure("disk_bytes_per_sample"), Some(3.0));
            assert_eq!(whole.figure("disk_bytes_per_series"), Some(50.0));
            assert_eq!(whole.figure("files_per_series"), Some(0.1));
            assert_eq!(whole.saturated.unwrap().at_s, 7.0, "not the earliest saturation of all parts");
            assert!(whole.versions.contains_key("target"));
        }
    }
}
