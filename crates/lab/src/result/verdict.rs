//! Judges whether a run has kept the rules of its scenario.
//!
//! A rule whose figure was not measured counts as not passed, but a search does not treat it as a failure either.

use crate::result::recovery::Recovery;
use crate::result::{Judgement, RunResult, Totals};
use crate::scenario::{Rules, Scenario, Size, Span};
use crate::verify::{STORED_MIN, VerifyReport};
use std::fmt::Write;

/// Name of an observed figure: the maximum memory of the target's process, in bytes.
pub const TARGET_MEMORY_MAX: &str = "rss_peak_bytes";

/// Name of an observed figure: the maximum memory of the target's control group, in bytes. It is used for targets with
/// several processes.
const CGROUP_MEMORY_MAX: &str = "cgroup_memory_peak_bytes";

pub fn judge(scenario: &Scenario, result: &RunResult) -> Vec<Judgement> {
    let rules = &scenario.verdict;
    let totals = &result.totals;
    let time = |q: &crate::result::Quantiles, at: f64| {
        if q.count > 0 { Ok(at) } else { Err("no request of this kind was accepted") }
    };
    let mut judge = Judge::default();
    judge.at_least_some(totals.samples_acknowledged);
    judge.share_at_least("pass_rate", rules.pass_rate, totals.pass_rate().ok_or("nothing was sent"));
    let share = totals.achieved().ok_or("the load had no schedule");
    judge.share_at_most("error_budget", rules.error_budget, share.map(|share| 1.0 - share));
    judge.share_at_least("achieved", rules.achieved, share);
    let stored = result.verify.as_ref().filter(|_| is_flushed(scenario));
    let owed = match stored {
        Some(verify) => verify.stored_at_least(rules.owed.unwrap_or(STORED_MIN)),
        None => totals.owed().ok_or("it is not known what is owed"),
    };
    judge.share_at_least("owed", rules.owed.or(stored.map(|_| STORED_MIN)), owed);
    judge.time("p50", rules.p50, time(&totals.latency, totals.latency.p50_s));
    judge.time("p99", rules.p99, time(&totals.latency, totals.latency.p99_s));
    judge.time("p99_known", rules.p99_known, time(&totals.latency_known, totals.latency_known.p99_s));
    // this passes if there were no refusals
    judge.time("refusal_p99", rules.refusal_p99, Ok(totals.refusal.p99_s));
    let freshness = match totals.freshness.count {
        0 if totals.invisible > 0 => Ok(scenario.verify.invisible_after.s()),
        0 => Err("no probe found an acknowledged sample"),
        _ => Ok(totals.freshness.p99_s),
    };
    judge.time("freshness_p99", rules.freshness_p99, freshness);
    if scenario.verify.after {
        let why_not = result.unverified.as_deref().unwrap_or("nothing was read back");
        let verify = result.verify.as_ref().ok_or(why_not);
        let datagrams = scenario.target.is_datagrams();
        let nothing;
        let verify = match verify {
            // the rule says how much must be owed, which is nothing at all for datagrams
            Ok(verify) if rules.owed.is_none() && !datagrams && owes_nothing(totals, verify) => {
                nothing = why_nothing(scenario, verify);
                Err(nothing.as_str())
            }
            verify => verify,
        };
        match verify {
            Ok(verify) if datagrams => judge.not_owed("lost", rules.lost, verify.lost),
            verify => judge.count("lost", rules.lost, verify.map(|v| v.lost)),
        }
        // say only once why nothing was read back
        let verify = verify.map_err(|_| "as above");
        judge.count("doubled", rules.doubled, verify.map(|v| v.doubled));
        judge.count("wrong", rules.wrong, verify.map(|v| v.wrong));
        judge.count("unexpected", rules.unexpected, verify.map(|v| v.unexpected));
    }
    if let Some(restarts) = rules.restarts {
        judge.count("restarts", restarts, Ok(totals.restarts));
    }
    if let Some(memory) = rules.memory {
        let kept = |name| result.observed.get(name).copied();
        let most = kept(TARGET_MEMORY_MAX).or_else(|| kept(CGROUP_MEMORY_MAX));
        judge.memory(
            memory,
            most.ok_or("the target's process is not known: set target.pid, target.start or target.cgroup"),
        );
    }
    let busiest = result.disk_util_max();
    judge.share_at_most(
        "disk_util",
        rules.disk_util,
        busiest.ok_or("the target's disk is not known: set target.data_dir"),
    );
    judge.time("silence", rules.silence, Ok(totals.silence_s));
    judge.recovery(
        rules.recovery,
        Recovery::of(result).ok_or("there was no disturbance, or it lasted until the end of the load"),
    );
    judge.share_at_least(
        "read_pass_rate",
        rules.read_pass_rate,
        result.read_pass_rate().ok_or("no queries were sent"),
    );
    judge.time("read_p99", rules.read_p99, result.read_p99_s().ok_or("no query was answered"));
    judge.judgements
}

/// True if the target stored values at times of its own, and the lab watched it.
fn is_flushed(scenario: &Scenario) -> bool {
    scenario.protocol().is_flushed() && scenario.replay.is_none()
}

/// Why reading back proves nothing.
fn why_nothing(scenario: &Scenario, verify: &VerifyReport) -> String {
    if !is_flushed(scenario) {
        return "the target owes none of the samples, because all connections broke".to_owned();
    }
    let why = "the target owes nothing, because no query has returned a value that it has stored";
    match &verify.look_error {
        Some(error) => {
            format!("{why}; {} of {} looks failed, the last one: {error}", verify.looks_failed, verify.looks)
        }
        None => why.to_owned(),
    }
}

/// True if the target took samples, but owes none of them, so that reading them back proves nothing.
fn owes_nothing(totals: &Totals, verify: &VerifyReport) -> bool {
    totals.samples_acknowledged > 0 && totals.samples_owed.unwrap_or(verify.acknowledged) == 0
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SoFar {
    pub(crate) restarts: u64,
    pub(crate) silence_s: f64,
    pub(crate) memory: Option<f64>,
}

/// Returns the first rule that is already broken during the run and cannot be kept any more.
pub(crate) fn broken_for_good(rules: &Rules, so_far: SoFar) -> Option<String> {
    let SoFar { restarts, silence_s, memory } = so_far;
    let mut judge = Judge::default();
    if let Some(limit) = rules.restarts {
        judge.count("restarts", limit, Ok(restarts));
    }
    judge.time("silence", rules.silence, Ok(silence_s));
    if let Some((limit, memory)) = rules.memory.zip(memory) {
        judge.memory(limit, Ok(memory));
    }
    let broken = judge.judgements.into_iter().find(|judged| !judged.pass)?;
    Some(format!("verdict.{} is broken: measured {}, limit {}", broken.rule, broken.measured, broken.limit))
}

type Measured<'a, T> = Result<T, &'a str>;

#[derive(Default)]
struct Judge {
    judgements: Vec<Judgement>,
}

impl Judge {
    fn add(&mut self, rule: &str, limit: String, measured: Measured<'_, (String, bool)>) {
        let unmeasured = measured.is_err();
        let (measured, pass) = measured.unwrap_or_else(|why| (format!("not measured: {why}"), false));
        self.judgements.push(Judgement { rule: rule.to_owned(), limit, measured, unmeasured, pass });
    }

    /// Requires that the target acknowledged at least one sample.
    fn at_least_some(&mut self, acknowledged: u64) {
        self.add("acknowledged", "> 0".into(), Ok((acknowledged.to_string(), acknowledged > 0)));
    }

    fn share_at_least(&mut self, rule: &str, limit: Option<f64>, measured: Measured<'_, f64>) {
        if let Some(limit) = limit {
            let measured = measured.map(|share| (percent(share), share >= limit));
            self.add(rule, format!("≥ {}", percent(limit)), measured);
        }
    }

    fn share_at_most(&mut self, rule: &str, limit: Option<f64>, measured: Measured<'_, f64>) {
        if let Some(limit) = limit {
            let measured = measured.map(|share| (percent(share), share <= limit));
            self.add(rule, format!("≤ {}", percent(limit)), measured);
        }
    }

    fn time(&mut self, rule: &str, limit: Option<Span>, measured_s: Measured<'_, f64>) {
        if let Some(limit) = limit {
            let measured = measured_s.map(|s| (seconds(s), s <= limit.s()));
            self.add(rule, format!("≤ {}", seconds(limit.s())), measured);
        }
    }

    fn recovery(&mut self, limit: Option<Span>, measured: Measured<'_, Recovery>) {
        if let Some(limit) = limit {
            let measured = measured.map(|recovery| match recovery {
                Recovery::After(s) => (seconds(s), s <= limit.s()),
                Recovery::NotWithin(s) => (format!("not within {}", seconds(s)), false),
            });
            self.add("recovery", format!("≤ {}", seconds(limit.s())), measured);
        }
    }

    fn memory(&mut self, limit: Size, measured: Measured<'_, f64>) {
        let mib = |bytes: f64| format!("{:.0} MiB", bytes / f64::from(1 << 20));
        let measured = measured.map(|bytes| (mib(bytes), bytes <= limit.0 as f64));
        self.add("memory", format!("≤ {}", mib(limit.0 as f64)), measured);
    }

    fn count(&mut self, rule: &str, limit: u64, measured: Measured<'_, u64>) {
        self.add(rule, format!("≤ {limit}"), measured.map(|n| (n.to_string(), n <= limit)));
    }

    /// Like [`Self::count`], for samples that were sent as datagrams.
    fn not_owed(&mut self, rule: &str, limit: u64, count: u64) {
        let measured = format!("{count}: datagrams are not owed");
        self.add(rule, format!("≤ {limit}"), Ok((measured, count <= limit)));
    }
}

/// Formats a share as a percentage, with up to four decimals so that small differences from the limit are visible.
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

pub fn to_text(result: &RunResult) -> String {
    let mut out = String::new();
    let width =
        |of: fn(&Judgement) -> &str| result.verdict.iter().map(|j| of(j).chars().count()).max().unwrap_or(0);
    let (rules, limits, found) = (width(|j| &j.rule), width(|j| &j.limit), width(|j| &j.measured));
    for Judgement { rule, limit, measured, unmeasured, pass } in &result.verdict {
        let word = match (*pass, *unmeasured) {
            (true, _) => "pass",
            (false, true) => "????",
            (false, false) => "FAIL",
        };
        writeln!(out, "{rule:rules$}  {limit:limits$}  {measured:found$}  {word}")
            .expect("BUG: writing to a String failed");
    }
    let word = match (result.partial, result.passed()) {
        (true, _) => "STOPPED EARLY: no verdict about the whole run",
        (false, true) => "PASS",
        (false, false) => "FAIL",
    };
    writeln!(out, "{}: {word}", result.name).expect("BUG: writing to a String failed");
    out
}

#[cfg(test)]
mod tests;
