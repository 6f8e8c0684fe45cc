use super::*;
use crate::result::Quantiles;
use crate::result::{ReadTotals, Totals};
use crate::verify::VerifyReport;

fn scenario(rules: &str) -> Scenario {
    Scenario::parse(&format!("[[reads]]\nqueries = ['up']\n[verdict]\n{rules}\n")).unwrap()
}

fn good() -> RunResult {
    let at = |p99_s| Quantiles { count: 1_000, p50_s: p99_s / 2.0, p99_s, ..Quantiles::default() };
    RunResult {
        totals: Totals {
            samples_offered: 1_000,
            samples_acknowledged: 1_000,
            samples_owed: Some(999),
            attempts: 10_000,
            succeeded: 9_999,
            latency: at(0.9),
            latency_known: at(0.1),
            freshness: at(0.01),
            ..Totals::default()
        },
        reads: vec![ReadTotals { queries: 100, succeeded: 99, latency: at(2.0), ..ReadTotals::default() }],
        verify: Some(VerifyReport { acknowledged: 1_000, read_back: 1_000, ..VerifyReport::default() }),
        observed: [(TARGET_MEMORY_MAX.to_owned(), 1e9)].into(),
        ..RunResult::default()
    }
}

fn failed(rules: &str, result: &RunResult) -> Vec<String> {
    judge(&scenario(rules), result).into_iter().filter(|j| !j.pass).map(|j| j.rule).collect()
}

#[test]
fn each_rule_passes_at_its_limit_and_fails_beyond() {
    let check = |keeps: &str, breaks: &str, rule: &str| {
        assert_eq!(failed(keeps, &good()), [""; 0], "{keeps}");
        assert_eq!(failed(breaks, &good()), [rule], "{breaks}");
    };
    check("pass_rate = 0.9999", "pass_rate = 0.99991", "pass_rate");
    assert_eq!(failed("achieved = 1.0\nerror_budget = 0.0", &good()), [""; 0]);
    check("owed = 0.999", "owed = 0.9991", "owed");
    check("p99 = '900ms'", "p99 = '899ms'", "p99");
    check("p50 = '450ms'", "p50 = '449ms'", "p50");
    check("p99_known = '100ms'", "p99_known = '99ms'", "p99_known");
    check("freshness_p99 = '10ms'", "freshness_p99 = '9ms'", "freshness_p99");
    check("memory = '1GB'", "memory = '900MB'", "memory");
    check("read_pass_rate = 0.99", "read_pass_rate = 0.991", "read_pass_rate");
    check("read_p99 = '2s'", "read_p99 = '1.9s'", "read_p99");
}

#[test]
fn lost_doubled_wrong_and_unexpected_fail_without_being_asked_for() {
    let with = |change: fn(&mut VerifyReport)| {
        let mut result = good();
        change(result.verify.as_mut().unwrap());
        failed("", &result)
    };
    assert_eq!(with(|v| v.lost = 1), ["lost"]);
    assert_eq!(with(|v| v.doubled = 1), ["doubled"]);
    assert_eq!(with(|v| v.wrong = 1), ["wrong"]);
    assert_eq!(with(|v| v.unexpected = 1), ["unexpected"]);
    let mut result = good();
    result.verify.as_mut().unwrap().lost = 3;
    assert_eq!(failed("lost = 3", &result), [""; 0]);
}

#[test]
fn unmeasured_rules_fail() {
    let mut result = good();
    (result.verify, result.observed) = (None, Default::default());
    result.totals.freshness = Quantiles::default();
    let rules = "memory = '1GB'\nfreshness_p99 = '1s'";
    assert_eq!(failed(rules, &result), ["freshness_p99", "lost", "doubled", "wrong", "unexpected", "memory"]);
    result.unverified = Some("tenant-0: POST /api/v1/query query=x: 503 full".into());
    let judgements = judge(&scenario(rules), &result);
    let unmeasured: Vec<_> =
        judgements.iter().filter(|j| j.unmeasured).map(|j| j.measured.as_str()).collect();
    assert_eq!(unmeasured[1], "not measured: tenant-0: POST /api/v1/query query=x: 503 full");
    assert_eq!((unmeasured.len(), unmeasured[5].contains("target.pid")), (6, true));
    // if a probed sample was not visible in time, freshness has been measured, and is bad
    result.totals.invisible = 3;
    let slow = judge(&scenario(rules), &result).into_iter().find(|j| j.rule == "freshness_p99").unwrap();
    assert_eq!((slow.unmeasured, slow.pass, slow.measured.as_str()), (false, false, "30.00 s"));
    assert_eq!(failed("", &RunResult { verify: good().verify, ..RunResult::default() }), ["acknowledged"]);
}

#[test]
fn nothing_is_proved_if_nothing_is_owed() {
    let mut result = good();
    result.totals.samples_owed = Some(0);
    result.verify = Some(VerifyReport::default());
    let judgements = judge(&scenario(""), &result);
    let unmeasured: Vec<_> = judgements.iter().filter(|j| j.unmeasured).map(|j| j.rule.as_str()).collect();
    assert_eq!(unmeasured, ["lost", "doubled", "wrong", "unexpected"]);
    // with the rule, only the rule itself says how much must be owed
    assert_eq!(failed("owed = 0.0", &result), [""; 0]);
    assert_eq!(failed("owed = 0.001", &result), ["owed"]);
    // results of earlier programs do not say what is owed
    result.totals.samples_owed = None;
    assert_eq!(failed("", &result).len(), 4);
    assert_eq!(failed("owed = 0.5", &result), ["owed"]);
}

/// Over statsd, only what a query has returned is owed, so that what is absent has a rule.
#[test]
fn a_target_of_statsd_must_have_stored_most_values() {
    let judged = |rules: &str, change: fn(&mut VerifyReport)| {
        let text = format!(
            "[target]\nprotocol = 'statsd'\nwrite = 'udp://127.0.0.1:1'\n[load]\nmodel = 'open'\n[verdict]\n{rules}"
        );
        let mut result = good();
        result.totals.samples_owed = None;
        let verify = result.verify.as_mut().unwrap();
        (verify.acknowledged, verify.read_back, verify.expected, verify.looks) = (900, 900, 900, 9);
        change(verify);
        let all = judge(&Scenario::parse(&text).unwrap(), &result);
        all.into_iter().filter(|j| !j.pass).map(|j| format!("{}: {}", j.rule, j.measured)).collect::<Vec<_>>()
    };
    assert_eq!(judged("", |_| {}), [""; 0]);
    assert_eq!(judged("", |v| v.absent = 100), [""; 0]);
    assert_eq!(judged("", |v| v.absent = 101), ["owed: 89.9101 %"]);
    assert_eq!(judged("", |v| v.unknown = 300), ["owed: 75 %"]);
    assert_eq!(judged("", |v| v.unnoted = 300), ["owed: 75 %"]);
    assert_eq!(judged("", |v| v.stale = 90), [""; 0]);
    // the target stores the same values again and again
    assert_eq!(judged("", |v| v.stale = 810), ["owed: 10 %"]);
    let unknown = judged("", |v| v.expected = 0);
    assert!(
        unknown.len() == 1 && unknown[0].starts_with("owed: not measured: it is not known"),
        "{unknown:?}"
    );
    assert_eq!(judged("owed = 0", |v| v.expected = 0), [""; 0]);
    assert_eq!(judged("owed = 0.75", |v| v.absent = 300), [""; 0]);
    let nothing = judged("", |v| {
        let look_error = Some("401 Unauthorized".into());
        *v = VerifyReport { looks: 9, looks_failed: 8, look_error, ..VerifyReport::default() };
    });
    let rules: Vec<_> = nothing.iter().filter_map(|judged| judged.split(':').next()).collect();
    assert_eq!(rules, ["owed", "lost", "doubled", "wrong", "unexpected"]);
    assert!(nothing[1].ends_with("8 of 9 looks failed, the last one: 401 Unauthorized"), "{nothing:?}");
}

#[test]
fn text_has_every_rule_and_the_verdict() {
    let mut result = good();
    result.name = "x".into();
    result.verdict = judge(&scenario("p99 = '1s'\npass_rate = 0.99"), &result);
    let text = to_text(&result);
    assert!(text.contains("pass_rate") && text.contains("99.99 %") && text.ends_with("x: PASS\n"), "{text}");
    result.verdict = judge(&scenario("p99 = '1ms'"), &result);
    assert!(to_text(&result).contains("900.0 ms  FAIL") && to_text(&result).ends_with("x: FAIL\n"));
    result.partial = true;
    assert!(to_text(&result).contains("STOPPED"));
}
