//! Shapes of load, limits, and contents of a result.

use crate::faults::{scenario, write};
use crate::target::{Reaction, Target};
use lab::drive::options::RunOptions;
use lab::drive::run::carry_out;
use lab::scenario::{Count, Model, Span, Texts};
use lab::show::progress::{Observer, Phase, Progress};
use lab::show::summary;
use lab::{Protocol, Scenario, Silent, ValueModel, VerifyOptions};
use std::sync::Mutex;
use std::time::Duration;
use stdx::clock::{Clock, SystemClock};

fn seconds(n: f64) -> Option<Span> {
    Some(Span::seconds(n))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_comes_back_bit_by_bit() {
    let target = Target::start(|_| Reaction::Keep).await;
    let shapes: [fn(&mut Scenario); 9] = [
        |s| s.target.protocol = Protocol::V2,
        |s| s.load.values = ValueModel::Random,
        |s| (s.load.batch, s.load.connections) = (2, 3),
        |s| (s.load.batch, s.load.connections) = (100, 3),
        |s| (s.load.metrics, s.load.series_per_metric) = (Count(1.0), Count(40.0)),
        |s| (s.load.series_interval, s.load.interval) = (seconds(2.0), seconds(1.0)),
        |s| (s.load.series_interval, s.load.interval, s.load.jitter) = (seconds(3.0), seconds(1.0), 1.0),
        |s| (s.load.metric_interval, s.load.interval) = (seconds(4.0), seconds(1.0)),
        |s| (s.load.labels, s.load.label_value_bytes) = (30, Some(50)),
    ];
    for (seed, shape) in (100..).zip(shapes) {
        let mut scenario = scenario(&target);
        scenario.seed = seed;
        shape(&mut scenario);
        let before = target.series();
        let result = write(&scenario).await.result;
        let verify = result.verify.as_ref().unwrap();
        assert!(result.passed(), "seed {seed}: {verify:?}");
        assert_eq!(verify.read_back, result.totals.series_active * 6);
        assert_eq!((target.series() - before) as u64, result.totals.series_distinct, "seed {seed}");
        let churned = scenario.load.series_interval.or(scenario.load.metric_interval).is_some();
        assert_eq!(result.totals.series_distinct > result.totals.series_active, churned);
    }
    assert_eq!(target.out_of_order(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_run_goes_on_with_the_same_series() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    scenario.value_seed = Some(7);
    let first = write(&scenario).await.result;
    let again = write(&scenario).await.result;
    assert!(first.passed() && again.passed(), "samples that overlap in time differ");
    assert_eq!((target.series(), again.value_seed), (30, Some(7)));
}

/// The samples of the first run have the same series and times as those of the second, which the target loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_an_earlier_run_hide_no_loss() {
    let target = Target::start(|n| if n < 36 { Reaction::Keep } else { Reaction::Lose }).await;
    let mut scenario = scenario(&target);
    scenario.load.values = ValueModel::Random;
    scenario.load.start = Some((SystemClock.now_ms() - 3_600_000).to_string());
    let first = write(&scenario).await.result;
    let mut second = write(&scenario).await;
    let result = second.result;
    assert!(first.passed() && !result.passed());
    assert_eq!((target.samples(), result.verify.as_ref().unwrap().wrong), (180, 180));
    assert_ne!(first.value_seed, result.value_seed);
    assert!(summary::text(&result, false).contains("wrong samples may remain from an earlier run"));
    // the same later, with the ledger
    let options = VerifyOptions { patience: Duration::ZERO, ..VerifyOptions::new(target.read_url()) };
    let report = lab::verify(&options, &second.ledgers.remove(0), &Silent).await.unwrap();
    assert_eq!(report.wrong, 180);
}

/// A second run writes samples of the same series at other timestamps, so those of the first run are unexpected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_an_earlier_run_are_explained() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    scenario.load.interval = seconds(1.0);
    write(&scenario).await;
    scenario.load.interval = seconds(2.0);
    let mixed = write(&scenario).await.result;
    assert!(
        mixed.verify.as_ref().unwrap().unexpected > 0
            && summary::text(&mixed, false).contains("another --seed")
    );
    scenario.seed = 2;
    let apart = write(&scenario).await.result;
    assert!(apart.passed() && !summary::text(&apart, false).contains("another --seed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_sent_and_may_replace_our_own() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    let headers = [("X-Scope-OrgID", "blue"), ("User-Agent", "me")];
    scenario.target.headers.0 = headers.map(|(name, value)| (name.into(), value.into())).into();
    write(&scenario).await;
    assert_eq!(target.header("x-scope-orgid").as_deref(), Some("blue"));
    assert_eq!(target.header("user-agent").as_deref(), Some("me"));
    assert_eq!(target.header("content-encoding").as_deref(), Some("snappy"));
    assert_eq!(target.header("x-prometheus-remote-write-version").as_deref(), Some("0.1.0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_schedule_sends_what_was_asked_for_and_no_more() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    (scenario.load.model, scenario.load.rate) = (Model::Open, Some(Count(3_000.0)));
    let result = write(&scenario).await.result;
    assert!(result.passed());
    assert_eq!((result.totals.samples_acknowledged, result.totals.unsent), (180, 0));
    assert_eq!(result.steps[0].offered_samples_per_s, 3_000.0);
    assert_eq!(scenario.interval_ms(), 10, "30 series at 3,000 a second");
    assert!(result.wall_s >= 0.055, "the schedule takes 58 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduled_requests_that_were_not_sent_are_counted() {
    // a refused request is retried until the end, so no later request is sent
    let target = Target::start(|n| if n < 4 { Reaction::Keep } else { Reaction::Refuse(503) }).await;
    let mut scenario = scenario(&target);
    (scenario.load.model, scenario.load.rounds) = (Model::Open, None);
    (scenario.load.rate, scenario.duration) = (Some(Count(3_000.0)), Span::seconds(0.2));
    scenario.load.give_up_after = Span::seconds(0.2);
    let result = write(&scenario).await.result;
    let requests = &result.totals;
    assert_eq!(result.totals.samples_acknowledged, 20);
    assert_eq!(requests.requests + requests.unsent, 120, "3,000 samples a second for 200 ms, 5 a request");
    assert!(result.warnings.iter().any(|w| w.contains("never sent")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_everything_ends_the_run() {
    let target = Target::start(|_| Reaction::Refuse(404)).await;
    let mut scenario = scenario(&target);
    (scenario.load.rounds, scenario.verify.after) = (Some(1_000_000), false);
    let result = write(&scenario).await.result;
    assert!(result.totals.rejected < 1_000 && !result.passed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_target_is_named() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    scenario.target.write = Texts::One("http://127.0.0.1:1/api/v1/write".into());
    let said = format!("{:#}", carry_out(&scenario, &RunOptions::default(), &Silent).await.unwrap_err());
    assert!(said.contains("127.0.0.1:1") && said.contains("connect"), "{said}");
}

/// Stops the run when the first sample is acknowledged, and records which phases were reported.
struct Stopper {
    stop: lab::Stop,
    phases: Mutex<Vec<Phase>>,
}

impl Observer for Stopper {
    fn progress(&self, progress: &Progress) {
        let mut phases = self.phases.lock().unwrap();
        if phases.last() != Some(&progress.phase) {
            phases.push(progress.phase);
        }
        if progress.samples > 0 {
            self.stop.now();
        }
    }

    fn note(&self, _: &str) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_can_be_stopped_and_still_reports_and_verifies() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    (scenario.load.model, scenario.load.rate) = (Model::Open, Some(Count(100.0)));
    scenario.load.rounds = Some(1_000_000);
    let options = RunOptions::default();
    let stopper = Stopper { stop: options.stop.clone(), phases: Mutex::default() };
    let result = carry_out(&scenario, &options, &stopper).await.unwrap().result;
    assert!(result.partial && !result.passed() && result.totals.samples_acknowledged < 1_000);
    assert!(result.verify.as_ref().unwrap().is_good() && summary::text(&result, false).contains("PARTIAL"));
    assert_eq!(*stopper.phases.lock().unwrap(), [Phase::Preparing, Phase::Writing, Phase::Verifying]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_text_and_json() {
    let target = Target::start(|n| if n == 7 { Reaction::Lose } else { Reaction::Keep }).await;
    let mut scenario = scenario(&target);
    scenario.target.pid = Some(std::process::id());
    let result = write(&scenario).await.result;
    for table in [false, true] {
        let text = summary::text(&result, table);
        for expected in ["180", "36 × 204", "target memory", "lost", "lost: metric_"] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&result.to_json().unwrap()).unwrap();
    assert_eq!(json["totals"]["samples_acknowledged"], 180);
    assert_eq!(json["verify"]["lost"], 5);
    assert_eq!(json["verify"]["examples"][0]["fault"], "lost");
    assert_eq!(json["seed"], 1);
    assert!(json["observed"]["cpu_s"].is_number());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_can_be_kept_and_used_by_another_process() {
    let target = Target::start(|n| if n == 7 { Reaction::Lose } else { Reaction::Keep }).await;
    let mut scenario = scenario(&target);
    scenario.verify.after = false;
    let mut outcome = write(&scenario).await;
    let kept = outcome.ledgers.pop().unwrap();
    assert_eq!(kept.read_url, scenario.target.read);
    let verify = VerifyOptions {
        patience: scenario.verify.patience.0,
        page_samples: 17,
        ..VerifyOptions::new(target.read_url())
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    kept.save(&path).unwrap();
    let ledger = lab::Ledger::load(&path).unwrap();
    assert_eq!(ledger, kept);
    let found = lab::verify(&verify, &ledger, &Silent).await.unwrap();
    assert_eq!((found.lost, found.read_back), (5, 175));

    let text = std::fs::read_to_string(&path).unwrap();
    for (what, other) in
        [("\"batch\":5", "\"batch\":0"), ("[[0,5]]", "[[5,0]]"), ("[[0,5]]", "[[0,6]]"), ("{", "")]
    {
        assert!(text.contains(what), "{what} in {text}");
        std::fs::write(&path, text.replace(what, other)).unwrap();
        assert!(lab::Ledger::load(&path).is_err(), "{other}");
    }
}

#[test]
fn runs_can_be_spawned() {
    fn sendable<T: Send>(_: &T) {}
    let (scenario, options) = (Scenario::default(), RunOptions::default());
    sendable(&carry_out(&scenario, &options, &Silent));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_requests_and_more_targets_than_a_page() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    (scenario.load.connections, scenario.load.batch) = (20, 20);
    scenario.load.series_per_metric = Count(40.0);
    let result = write(&scenario).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(result.passed(), "{verify:?}");
    assert_eq!(
        verify.queries,
        5 * 2 * 16,
        "metrics × halves of the rounds × jobs: 17 samples a page, 5 targets a job"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_split_down_to_single_series_for_a_target_that_refuses_larger_ones() {
    let target = Target::start(|_| Reaction::Keep).await;
    // six rounds of one series
    target.answer_at_most(6);
    let mut scenario = scenario(&target);
    scenario.load.series_per_metric = Count(40.0);
    let result = write(&scenario).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(result.passed() && verify.read_back == 5 * 80 * 6, "{verify:?}");
    assert!((5 * 80..5 * 80 * 6).contains(&verify.queries), "{verify:?}");
}

/// Reads back what a run has written, with other limits.
async fn read_back(scenario: &Scenario, limits: fn(&mut VerifyOptions)) -> anyhow::Result<lab::VerifyReport> {
    let ledger = write(scenario).await.ledgers.remove(0);
    let mut options =
        VerifyOptions { patience: Duration::ZERO, ..VerifyOptions::new(ledger.read_url.as_ref().unwrap()) };
    limits(&mut options);
    lab::verify(&options, &ledger, &Silent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_whose_answers_are_too_slow_or_too_large_are_split() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    (scenario.load.series_per_metric, scenario.load.batch) = (Count(40.0), 200);
    scenario.verify.after = false;
    let large = read_back(&scenario, |options| options.answer_bytes_max = 30_000).await.unwrap();
    assert!(large.is_good() && large.queries > 2 * 5, "{large:?}");
    // a metric has 80 series with six samples each
    let target = Target::start(|_| Reaction::Keep).await;
    target.stall_after(480);
    (scenario.target.write, scenario.target.read) = (Texts::One(target.write_url()), Some(target.read_url()));
    let slow = read_back(&scenario, |options| options.timeout = Duration::from_secs(2)).await.unwrap();
    assert!(slow.is_good() && slow.queries > 5, "{slow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_answers_no_query_is_given_up() {
    let target = Target::start(|_| Reaction::Keep).await;
    target.stall_after(0);
    let mut scenario = scenario(&target);
    scenario.verify.after = false;
    let given_up = read_back(&scenario, |options| {
        (options.timeout, options.connections) = (Duration::from_millis(50), 1);
    });
    let said = format!("{:#}", given_up.await.unwrap_err());
    assert!(said.contains("asked for less and less") && said.contains("no answer within 50ms"), "{said}");
}

/// The target says success, and returns only some of the series.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_cut_short_are_no_loss() {
    for (series, said) in [(1, ""), (30, ""), (7, "isPartial"), (30, "an engine is down")] {
        let target = Target::start(|_| Reaction::Keep).await;
        target.cut_answers_after(series, said);
        let mut scenario = scenario(&target);
        (scenario.load.series_per_metric, scenario.verify.page) = (Count(40.0), Count(100_000.0));
        let result = write(&scenario).await.result;
        let verify = result.verify.as_ref().unwrap();
        assert!(result.passed() && verify.read_back == 5 * 80 * 6 && verify.cut_short > 0, "{verify:?}");
        assert_eq!(
            (verify.incomplete > 0, verify.said.as_deref().unwrap_or_default()),
            (!said.is_empty(), said)
        );
        assert!(summary::text(&result, false).contains(said));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_loss_takes_few_queries() {
    let target = Target::start(|n| if n % 2 == 0 { Reaction::Keep } else { Reaction::Lose }).await;
    let mut scenario = scenario(&target);
    (scenario.load.series_per_metric, scenario.load.batch) = (Count(400.0), 20);
    scenario.verify.page = Count(240.0);
    let result = write(&scenario).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert_eq!((verify.acknowledged, verify.lost), (24_000, 12_000), "{verify:?}");
    // at least 100 queries are needed, and the first of them are divided in vain
    assert!(verify.queries < 2_000 && verify.cut_short == 0, "{verify:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_every_query_is_named() {
    let target = Target::start(|_| Reaction::Keep).await;
    target.answer_at_most(0);
    let scenario = scenario(&target);
    let result = write(&scenario).await.result;
    assert!(!result.passed() && result.verify.is_none());
    let text = summary::text(&result, false);
    for expected in [scenario.target.read.as_deref().unwrap(), "even the smallest query", "too many samples"]
    {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_without_verification_fails_but_is_reported() {
    let target = Target::start(|_| Reaction::Keep).await;
    let mut scenario = scenario(&target);
    scenario.target.read = Some("http://127.0.0.1:1".into());
    let result = write(&scenario).await.result;
    assert_eq!(result.totals.samples_acknowledged, 180);
    assert!(!result.passed() && result.verify.is_none());
    assert!(summary::text(&result, false).contains("not read back"));
}
