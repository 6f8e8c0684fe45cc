//! Judges a run by the rules that were fixed before it.
//!
//! What could not be measured has not passed: a rule about memory without a process to look at fails, and
//! says so.

use crate::result::{Judgement, RunResult};
use crate::scenario::{Rules, Scenario, Span};
use std::fmt::Write;

/// The name under which observation keeps the most memory of the target, in bytes.
pub const TARGET_MEMORY_MAX: &str = "rss_peak_bytes";

/// The same of a control group, for targets of several processes.
const CGROUP_MEMORY_MAX: &str = "cgroup_memory_peak_bytes";

/// One judgement for each rule that is given, in the order of the rules.
pub fn judge(scenario: &Scenario, result: &RunResult) -> Vec<Judgement> {
    let Rules { pass_rate, error_budget, achieved, p50, p99, p99_known, refusal_p99, freshness_p99, .. } =
        scenario.verdict;
    let Rules {
        lost, doubled, wrong, unexpected, restarts, memory, silence, read_pass_rate, read_p99, ..
    } = scenario.verdict;
    let totals = &result.totals;
    let time = |q: &crate::report::Quantiles, at: f64| (q.count > 0).then_some(at);
    let mut judge = Judge::default();
    judge.at_least_some(totals.samples_acknowledged);
    judge.share_at_least("pass_rate", pass_rate, totals.pass_rate());
    let missed = totals.achieved().map(|achieved| 1.0 - achieved);
    judge.share_at_most("error_budget", error_budget, missed);
    judge.share_at_least("achieved", achieved, totals.achieved());
    judge.time("p50", p50, time(&totals.latency, totals.latency.p50_s));
    judge.time("p99", p99, time(&totals.latency, totals.latency.p99_s));
    judge.time("p99_known", p99_known, time(&totals.latency_known, totals.latency_known.p99_s));
    // without a refusal none was slow
    judge.time("refusal_p99", refusal_p99, Some(totals.refusal.p99_s));
    judge.time("freshness_p99", freshness_p99, time(&totals.freshness, totals.freshness.p99_s));
    if scenario.verify.after {
        let verify = result.verify.as_ref();
        judge.count("lost", lost, verify.map(|v| v.lost));
        judge.count("doubled", doubled, verify.map(|v| v.doubled));
        judge.count("wrong", wrong, verify.map(|v| v.wrong));
        judge.count("unexpected", unexpected, verify.map(|v| v.unexpected));
    }
    if let Some(restarts) = restarts {
        judge.count("restarts", restarts, Some(totals.restarts));
    }
    if let Some(memory) = memory {
        let kept = |name| result.observed.get(name).copied();
        let most = kept(TARGET_MEMORY_MAX).or_else(|| kept(CGROUP_MEMORY_MAX));
        let mib = |bytes: f64| format!("{:.0} MiB", bytes / f64::from(1 << 20));
        judge.add(
            "memory",
            format!("≤ {}", mib(memory.0 as f64)),
            most.map(|m| (mib(m), m <= memory.0 as f64)),
        );
    }
    judge.time("silence", silence, Some(totals.silence_s));
    judge.share_at_least("read_pass_rate", read_pass_rate, result.read_pass_rate());
    judge.time("read_p99", read_p99, result.read_p99_s());
    judge.judgements
}

/// Collects judgements.
#[derive(Default)]
struct Judge {
    judgements: Vec<Judgement>,
}

impl Judge {
    fn add(&mut self, rule: &str, limit: String, measured: Option<(String, bool)>) {
        let (measured, pass) = measured.unwrap_or_else(|| ("not measured".to_owned(), false));
        self.judgements.push(Judgement { rule: rule.to_owned(), limit, measured, pass });
    }

    /// A run in which nothing was taken shows nothing, whatever else was kept.
    fn at_least_some(&mut self, acknowledged: u64) {
        self.add("acknowledged", "> 0".into(), Some((acknowledged.to_string(), acknowledged > 0)));
    }

    fn share_at_least(&mut self, rule: &str, limit: Option<f64>, measured: Option<f64>) {
        if let Some(limit) = limit {
            let measured = measured.map(|share| (percent(share), share >= limit));
            self.add(rule, format!("≥ {}", percent(limit)), measured);
        }
    }

    fn share_at_most(&mut self, rule: &str, limit: Option<f64>, measured: Option<f64>) {
        if let Some(limit) = limit {
            let measured = measured.map(|share| (percent(share), share <= limit));
            self.add(rule, format!("≤ {}", percent(limit)), measured);
        }
    }

    fn time(&mut self, rule: &str, limit: Option<Span>, measured_s: Option<f64>) {
        if let Some(limit) = limit {
            let measured = measured_s.map(|s| (seconds(s), s <= limit.s()));
            self.add(rule, format!("≤ {}", seconds(limit.s())), measured);
        }
    }

    fn count(&mut self, rule: &str, limit: u64, measured: Option<u64>) {
        self.add(rule, format!("≤ {limit}"), measured.map(|n| (n.to_string(), n <= limit)));
    }
}

/// Enough digits that a share below its limit never looks as if it had kept it.
fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn seconds(s: f64) -> String {
    match s {
        1.0.. => format!("{s:.2} s"),
        0.001.. => format!("{:.1} ms", s * 1e3),
        _ => format!("{:.3} ms", s * 1e3),
    }
}

/// The verdict as plain lines, for terminals and logs.
pub fn to_text(result: &RunResult) -> String {
    let mut out = String::new();
    let width =
        |of: fn(&Judgement) -> &str| result.verdict.iter().map(|j| of(j).chars().count()).max().unwrap_or(0);
    let (rules, limits, found) = (width(|j| &j.rule), width(|j| &j.limit), width(|j| &j.measured));
    for Judgement { rule, limit, measured, pass } in &result.verdict {
        let word = if *pass { "pass" } else { "FAIL" };
        writeln!(out, "{rule:rules$}  {limit:limits$}  {measured:found$}  {word}")
            .expect("BUG: a String takes all");
    }
    let word = match (result.partial, result.passed()) {
        (true, _) => "STOPPED: no verdict about the whole",
        (false, true) => "PASS",
        (false, false) => "FAIL",
    };
    writeln!(out, "{}: {word}", result.name).expect("BUG: a String takes all");
    out
}

#[cfg(test)]
mod tests;
