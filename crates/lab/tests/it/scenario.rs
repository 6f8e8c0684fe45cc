//! Runs scenarios against a target that may misbehave, and checks that ledger and verdict report it.

use crate::target::{Reaction, Target};
use lab::drive::options::RunOptions;
use lab::drive::run::run;
use lab::result::Totals;
use lab::{RunResult, Scenario, Silent};

/// 400 samples of 40 series in a second. They are sent in 8 slots and 10 rounds, but a busy machine may skip some.
const SMALL: &str = "
name = 'small'
duration = '1s'
[load]
tenants = 2
writers = 2
metrics = 5
series_per_metric = 2
batch = 5
interval = '100ms'
backoff_min = '1ms'
retry_after_max = '1ms'
give_up_after = '30s'
[verify]
patience = 0
invisible_after = '30s'
probes_per_s = 50
";

async fn run_text(target: &Target, text: &str) -> RunResult {
    run_within(target, text, "30s").await
}

async fn run_within(target: &Target, text: &str, timeout: &str) -> RunResult {
    let text = format!("{text}\n[target]\nwrite = '{}'\ntimeout = '{timeout}'\n", target.write_url());
    let scenario = Scenario::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let options = RunOptions { text, ..RunOptions::default() };
    let result = run(&scenario, &options, &Silent).await.unwrap();
    // only these are compared, because JSON may change the last bit of a number
    let read = RunResult::from_json(&result.to_json().unwrap()).unwrap();
    assert_eq!(
        (&read.verdict, &read.events, read.totals.attempts),
        (&result.verdict, &result.events, result.totals.attempts)
    );
    result
}

fn failed(result: &RunResult) -> Vec<&str> {
    result.verdict.iter().filter(|j| !j.pass).map(|j| j.rule.as_str()).collect()
}

/// Every scheduled sample must be accepted, refused for good, or never sent. Each request has 5 samples.
fn assert_accounted_for(result: &RunResult, scheduled: u64) {
    let totals = &result.totals;
    assert_eq!(totals.samples_offered, scheduled);
    let settled = totals.samples_acknowledged + 5 * (totals.rejected + totals.given_up + totals.unsent);
    assert_eq!(settled, scheduled, "{totals:?}");
    assert!(totals.samples_acknowledged > 0);
}

async fn faulty(script: impl Fn(u64) -> Reaction + Send + Sync + 'static, extra: &str) -> RunResult {
    run_text(&Target::start(script).await, &format!("{SMALL}{extra}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_target_passes_and_every_sample_is_known() {
    let target = Target::start(|_| Reaction::Keep).await;
    let rules = "[verdict]\npass_rate = 1.0\nfreshness_p99 = '30s'\nrestarts = 0";
    let result = run_text(&target, &format!("{SMALL}{rules}")).await;
    assert_eq!(failed(&result), [""; 0], "{:?}", result.verdict);
    assert!(result.passed() && !result.partial);
    let totals = &result.totals;
    assert_accounted_for(&result, 400);
    let taken = totals.samples_acknowledged;
    assert_eq!((totals.attempts * 5, totals.by_reason["204"] * 5), (taken, taken));
    assert_eq!((target.samples() as u64, target.out_of_order()), (taken, 0));
    assert_eq!(totals.series_distinct, target.series() as u64);
    let verify = result.verify.as_ref().unwrap();
    assert_eq!((verify.acknowledged, verify.read_back), (taken, taken));
    assert!(totals.freshness.count > 0 && totals.invisible == 0);
    // the first request of each of the 8 slots has only new series, and no other request has any
    assert_eq!(totals.latency_new.count * 5, totals.series_distinct);
    assert_eq!(totals.latency_new.count + totals.latency_known.count, totals.attempts);
    assert_eq!(target.header("x-scope-orgid").map(|h| h.starts_with("tenant-")), Some(true));
    assert!(result.timeline.points >= 1);
    assert!(result.timeline.max("rate/offered").is_none_or(|rate| rate == 400.0));
    assert_eq!((result.steps.len(), result.steps[0].offered_samples_per_s), (1, 400.0));
    assert!(result.notes.iter().any(|n| n.contains("share a machine")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_losses_doubles_and_changes_are_each_named() {
    let seven = |reaction| move |n| if n == 7 { reaction } else { Reaction::Keep };
    for (reaction, rule) in [
        (Reaction::Lose, "lost"),
        (Reaction::Double, "doubled"),
        (Reaction::Corrupt, "wrong"),
        (Reaction::Invent, "unexpected"),
    ] {
        let result = faulty(seven(reaction), "").await;
        assert_eq!(failed(&result), [rule]);
        let judgement = result.verdict.iter().find(|j| j.rule == rule).unwrap();
        assert_eq!((judgement.measured.as_str(), judgement.limit.as_str()), ("5", "≤ 0"));
        assert!(!result.verify.unwrap().examples.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_answers_little_at_a_time_is_asked_for_little_at_a_time() {
    let target = Target::start(|_| Reaction::Keep).await;
    // a tenant has 200 samples, and each metric name has 20 in five rounds, so only small queries have at most 30
    target.answer_at_most(30);
    let result = run_text(&target, &SMALL.replace("probes_per_s = 50", "probes_per_s = 0")).await;
    assert!(result.passed(), "{:?} {:?}", result.verdict, result.warnings);
    let verify = result.verify.as_ref().unwrap();
    // a slow machine skips a part of the schedule, so the number of samples varies
    assert_eq!((verify.read_back, verify.lost), (verify.acknowledged, 0));
    assert!(verify.read_back > 200, "{}", verify.read_back);
    assert!(verify.queries > 8 && verify.queries < 100, "{}", verify.queries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_stay_invisible_count_in_the_freshness() {
    for invisible_after in ["200ms", "30s"] {
        let target = Target::start(|n| if n % 2 == 0 { Reaction::Keep } else { Reaction::Lose }).await;
        let text = SMALL.replace("'30s'\nprobes", &format!("'{invisible_after}'\nprobes"));
        let result = run_text(&target, &format!("{text}[verdict]\nfreshness_p99 = '1us'")).await;
        let Totals { freshness, invisible, .. } = &result.totals;
        // with the longer time, the load ends before a sample counts as invisible
        assert_eq!(*invisible > 0, invisible_after == "200ms", "{freshness:?}");
        assert!(freshness.count > *invisible && freshness.max_s >= 0.2, "{invisible}: {freshness:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_visibility_is_measured() {
    // hidden samples appear when a query is repeated, which only the verification does
    let text = SMALL.replace("patience = 0", "patience = '30s'");
    let target = Target::start(|_| Reaction::Hide).await;
    let result = run_text(&target, &format!("{text}[verdict]\nfreshness_p99 = '1us'")).await;
    assert_eq!(failed(&result), ["freshness_p99"]);
    assert_eq!(result.verify.unwrap().lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unstored_samples_are_found_during_the_load() {
    let target = Target::start(|_| Reaction::Lose).await;
    let text = SMALL.replace("duration = '1s'", "duration = '3s'");
    let result =
        run_text(&target, &text.replace("invisible_after = '30s'", "invisible_after = '100ms'")).await;
    assert_eq!(failed(&result), ["lost"]);
    assert_accounted_for(&result, 1_200);
    assert_eq!(result.verify.as_ref().unwrap().lost, result.totals.samples_acknowledged);
    assert!(result.totals.invisible > 0 && result.warnings.iter().any(|w| w.contains("not visible")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_of_refusals_break_the_pass_rate_and_not_the_ledger() {
    let storm = |n: u64| if n.is_multiple_of(2) { Reaction::Refuse(503) } else { Reaction::Keep };
    let result = faulty(storm, "[verdict]\npass_rate = 0.9").await;
    assert_eq!(failed(&result), ["pass_rate"]);
    let totals = &result.totals;
    assert!(totals.by_reason["503"] > 0 && totals.said["503"] == "come back");
    assert_accounted_for(&result, 400);
    assert_eq!((totals.rejected, totals.without_retry_after), (0, 0));
    let rules = "[verdict]\npass_rate = 0.5\nerror_budget = 0.0";
    let result = faulty(|n| if n == 7 { Reaction::Refuse(400) } else { Reaction::Keep }, rules).await;
    assert_eq!(failed(&result), ["error_budget"]);
    assert_accounted_for(&result, 400);
    assert_eq!(result.totals.rejected, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_everything_fails() {
    let target = Target::start(|_| Reaction::Refuse(503)).await;
    let impatient = SMALL.replace("give_up_after = '30s'", "give_up_after = '500ms'");
    let result = run_text(&target, &format!("{impatient}[verdict]\nachieved = 0.5")).await;
    assert!(failed(&result).contains(&"acknowledged") && failed(&result).contains(&"achieved"));
    assert_eq!(result.totals.samples_acknowledged, 0);
    assert!(result.totals.unsent > 0 && result.totals.samples_offered > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_target_is_noticed() {
    let target = Target::start(|n| if n == 7 { Reaction::Stall } else { Reaction::Keep }).await;
    let result = run_within(&target, &format!("{SMALL}[verdict]\np99 = '200ms'"), "300ms").await;
    assert_eq!(failed(&result), ["p99"]);
    assert!(result.totals.by_reason["timeout"] >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn underreported_writes_give_a_warning() {
    let result = faulty(
        |n| if n == 7 { Reaction::UnderreportWritten } else { Reaction::Keep },
        "[verdict]\nerror_budget = 0.0",
    )
    .await;
    assert_eq!((failed(&result), result.totals.short), (vec!["error_budget"], 1));
    assert!(result.warnings.iter().any(|w| w.contains("not all of their samples")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_that_grow_send_what_the_shape_wants() {
    for (shape, samples) in [
        ("kind = 'ladder'\nfactors = [0.5, 1]", 300),
        ("kind = 'stress'\nfactor = 1.5\ngrow = 'tenants'", 600),
        ("kind = 'stress'\nfactor = 0.5\ngrow = 'tenants'", 200),
        ("kind = 'spike'\nat = ['500ms']\nfor = '200ms'", 480),
    ] {
        let target = Target::start(|_| Reaction::Keep).await;
        let result = run_text(&target, &format!("{SMALL}[shape]\n{shape}")).await;
        assert!(result.passed(), "{shape}: {:?}", result.verdict);
        // whether a slot at the edge of a step still sends depends on rounding
        let offered = result.totals.samples_offered;
        assert!(offered.abs_diff(samples) <= 20, "{shape}: {offered} instead of {samples}");
        assert_accounted_for(&result, offered);
        assert_eq!(result.totals.samples_acknowledged, target.samples() as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relabelled_series_are_new_and_all_are_read_back() {
    let target = Target::start(|_| Reaction::Keep).await;
    let result = run_text(&target, &format!("{SMALL}[shape]\nkind = 'relabel-all'")).await;
    assert!(result.passed(), "{:?}", result.verdict);
    assert_accounted_for(&result, 400);
    assert_eq!(target.series() as u64, result.totals.series_distinct);
    assert!((41..=80).contains(&target.series()), "{}", target.series());
    assert_eq!(result.steps.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_samples_arrive_after_an_outage() {
    let target = Target::start(|_| Reaction::Keep).await;
    let shape = "[shape]\nkind = 'outage'\nat = ['300ms']\nfor = '400ms'";
    let result = run_text(&target, &format!("{SMALL}{shape}")).await;
    assert!(result.passed(), "{:?}", result.verdict);
    // a sender that is late may leave out its last requests, which count as unsent
    assert_accounted_for(&result, 400);
    assert_eq!(target.out_of_order(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_cycles_and_rare_values_come_back() {
    let target = Target::start(|_| Reaction::Keep).await;
    let load = "series_interval = '300ms'\njitter = 1.0\nmetric_interval = '500ms'\nvalue_interval = '200ms'\n\
                cycles = { component = 3 }\nlabels = 12\n";
    let text = SMALL.replace("batch = 5", &format!("batch = 5\n{load}"));
    let result = run_text(&target, &text).await;
    assert!(result.passed(), "{:?}", result.verify);
    assert!(result.totals.series_distinct > 40);
    assert_eq!(result.totals.series_distinct as usize, target.series());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histograms_come_back_bucket_by_bucket() {
    let load = "histograms = 0.6\nhistogram_buckets = 3\nmetric_interval = '500ms'";
    let text = SMALL.replace("metrics = 5", &format!("metrics = 17\n{load}"));
    let target = Target::start(|_| Reaction::Keep).await;
    let result = run_text(&target, &text).await;
    assert!(result.passed(), "{:?}", result.verify);
    assert!(target.has_bucket("+Inf"));
    let verify = result.verify.unwrap();
    assert_eq!(verify.read_back, target.samples() as u64);
    let lying = Target::start(|n| if n == 7 { Reaction::Corrupt } else { Reaction::Keep }).await;
    assert_eq!(failed(&run_text(&lying, &text).await), ["wrong"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_share_a_scenario_without_overlap() {
    let target = Target::start(|_| Reaction::Keep).await;
    let text = format!("{SMALL}\n[target]\nwrite = '{}'\n", target.write_url());
    let scenario = Scenario::parse(&text).unwrap();
    let part = |n| RunOptions { part: (n, 2), text: text.clone(), ..RunOptions::default() };
    let (one, two) = (part(1), part(2));
    let (one, two) = tokio::join!(run(&scenario, &one, &Silent), run(&scenario, &two, &Silent));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.passed() && two.passed());
    assert_accounted_for(&one, 200);
    assert_accounted_for(&two, 200);
    let whole = lab::result::merge::merge(&[two, one]).unwrap();
    assert!(whole.passed() && whole.part == (1, 1));
    assert_accounted_for(&whole, 400);
    let taken = whole.totals.samples_acknowledged;
    assert_eq!((target.samples() as u64, whole.verify.unwrap().read_back), (taken, taken));
    assert_eq!(target.series() as u64, whole.totals.series_distinct, "the machines have series in common");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_and_ctrl_c_end_a_run_with_a_partial_result() {
    let target = Target::start(|_| Reaction::Keep).await;
    let text = SMALL.replace("duration = '1s'", "duration = '1h'") + "[limits]\nsamples = 100";
    let result = run_text(&target, &text).await;
    assert!(result.partial && !result.passed() && result.verify.is_some());
    assert!(result.events.iter().any(|e| e.text.contains("limits.samples")), "{:?}", result.events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_rule_aborts_the_run() {
    // the target refuses everything after the first requests
    let target = Target::start(|n| if n < 8 { Reaction::Keep } else { Reaction::Refuse(503) }).await;
    let text = SMALL.replace("duration = '1s'", "duration = '1h'")
        + "[verdict]\nsilence = '500ms'\nrestarts = 0\nabort = true";
    let result = run_text(&target, &text).await;
    assert!(result.partial && !result.passed() && result.verify.is_some());
    let stopped = |e: &lab::result::Event| e.text.starts_with("stopped: verdict.silence is broken: ");
    assert!(result.events.iter().any(stopped), "{:?}", result.events);
    assert!(result.verdict.iter().any(|judged| judged.rule == "silence" && !judged.pass));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_targets_and_exceeded_limits_are_errors_before_the_load() {
    let error = async |text: &str| {
        let scenario = Scenario::parse(text).unwrap();
        format!("{:#}", run(&scenario, &RunOptions::default(), &Silent).await.unwrap_err())
    };
    assert!(error("[target]\nwrite = 'http://127.0.0.1:1/'").await.contains("127.0.0.1:1"));
    assert!(error("[target]\nwrite = 'http://192.0.2.1/'").await.contains("not this machine"));
    assert!(error("[limits]\nmemory = '1MiB'").await.contains("limits.memory"));
    assert!(error("[target]\npid = 4294967295").await.contains("no process 4294967295"));
    let many = "[load]\nmetrics = '10M'\ninterval = '1ms'\n[limits]\nmemory = '1TiB'";
    assert!(error(many).await.contains("cores to send"));
    assert!(error("[[reads]]\ngrafana = 'nowhere.json'").await.contains("nowhere.json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_does_not_start_says_why() {
    let error = async |start: &str, rest: &str| {
        let text = format!("[target]\nstart = \"{start}\"\n{rest}");
        let scenario = Scenario::parse(&text).unwrap();
        format!("{:#}", run(&scenario, &RunOptions::default(), &Silent).await.unwrap_err())
    };
    let nobody = "write = 'http://127.0.0.1:{port}/'";
    let said = error("sh -c 'echo port {port}; echo no such disk >&2; exit 3'", nobody).await;
    assert!(said.contains("the target ended with exit status: 3; its last lines: port "), "{said}");
    assert!(said.contains(" | no such disk") && !said.contains("{port}"), "{said}");
    let said = error("false", "ready = 'http://127.0.0.1:1/'").await;
    assert!(said.contains("the target ended with exit status: 1, and printed nothing"), "{said}");
    let other = Target::start(|_| Reaction::Keep).await;
    let said = error("sleep 60", &format!("write = '{}'", other.write_url())).await;
    assert!(said.contains("another process already listens at") && said.contains("{port}"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_counted_and_judged() {
    let reads = "[[reads]]\nusers = 2\nthink = '20ms'\nqueries = ['metric_1[100ms]']\n\
                 [[reads]]\nname = 'paced'\nrate = 20\nqueries = ['metric_$n[1ms]']\nvariables.n = ['7', '8']\n\
                 [verdict]\nread_pass_rate = 1.0\nread_p99 = '10s'";
    let result = faulty(|_| Reaction::Keep, reads).await;
    assert!(result.passed(), "{:?}", result.verdict);
    assert_eq!(result.reads.len(), 2);
    assert!((1..=21).contains(&result.reads[1].queries), "{:?}", result.reads[1]);
    assert_eq!(result.reads[1].empty, result.reads[1].queries, "queries of an unknown metric have results");
    assert!(result.warnings.iter().any(|w| w.contains("may not fit the data")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_written_before_the_load_and_read_back() {
    let target = Target::start(|_| Reaction::Keep).await;
    let text = SMALL.replace("batch = 5", "batch = 5\nhistory = '10m'\nhistory_interval = '60s'");
    let result = run_text(&target, &text).await;
    assert!(result.passed(), "{:?}", result.verify);
    assert_accounted_for(&result, 400);
    assert_eq!(result.verify.unwrap().read_back, result.totals.samples_acknowledged + 10 * 40);
}
