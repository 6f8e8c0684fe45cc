//! Shapes of load, bounds, and what a report says.

use crate::faults::options;
use crate::target::{Deed, Target};
use lab::show::progress::{Observer, Phase, Progress};
use lab::{Silent, Version, WriteOptions};
use std::sync::Mutex;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_comes_back_bit_by_bit() {
    let target = Target::start(|_| Deed::Keep).await;
    let shapes: [fn(&mut WriteOptions); 9] = [
        |o| o.version = Version::V2,
        |o| o.values = lab::ValueModel::Random,
        |o| (o.batch, o.connections) = (2, 3),
        |o| (o.batch, o.connections) = (100, 3),
        |o| (o.metrics, o.series_per_metric) = (1, 40),
        |o| (o.series_churn, o.interval) = (Some(2 * SECOND), Some(SECOND)),
        |o| (o.series_churn, o.interval, o.series_churn_staggered) = (Some(3 * SECOND), Some(SECOND), true),
        |o| (o.metric_churn, o.interval) = (Some(4 * SECOND), Some(SECOND)),
        |o| (o.fleet.labels, o.fleet.label_value_bytes) = (30, Some(50)),
    ];
    for (seed, shape) in (100..).zip(shapes) {
        let mut options = options(&target);
        options.fleet.seed = seed;
        shape(&mut options);
        let before = target.series();
        let report = lab::write(&options, &Silent).await.unwrap();
        let verify = report.verify.as_ref().unwrap();
        assert!(report.is_good(), "seed {seed}: {verify:?}");
        assert_eq!(verify.read_back, report.series * 6);
        assert_eq!((target.series() - before) as u64, report.series_distinct, "seed {seed}");
        let churned = options.series_churn.or(options.metric_churn).is_some();
        assert_eq!(report.series_distinct > report.series, churned);
        assert_eq!(report.warnings.iter().any(|w| w.contains("replaced")), churned);
    }
    assert_eq!(target.out_of_order(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_run_goes_on_with_the_same_series() {
    let target = Target::start(|_| Deed::Keep).await;
    let first = lab::write(&options(&target), &Silent).await.unwrap();
    let again = lab::write(&options(&target), &Silent).await.unwrap();
    assert!(first.is_good() && again.is_good(), "what overlaps in time is equal");
    assert_eq!(target.series(), 30);
}

/// Samples of the first run lie between those of the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_an_earlier_run_are_explained() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    options.interval = Some(SECOND);
    lab::write(&options, &Silent).await.unwrap();
    options.interval = Some(2 * SECOND);
    let mixed = lab::write(&options, &Silent).await.unwrap();
    assert!(mixed.verify.as_ref().unwrap().unexpected > 0 && mixed.to_text(false).contains("another --seed"));
    options.fleet.seed = 2;
    let apart = lab::write(&options, &Silent).await.unwrap();
    assert!(apart.is_good() && !apart.to_text(false).contains("another --seed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_sent_and_may_replace_our_own() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    options.headers = vec![("X-Scope-OrgID".into(), "blue".into()), ("User-Agent".into(), "me".into())];
    lab::write(&options, &Silent).await.unwrap();
    assert_eq!(target.header("x-scope-orgid").as_deref(), Some("blue"));
    assert_eq!(target.header("user-agent").as_deref(), Some("me"));
    assert_eq!(target.header("content-encoding").as_deref(), Some("snappy"));
    assert_eq!(target.header("x-prometheus-remote-write-version").as_deref(), Some("0.1.0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_schedule_sends_what_was_asked_for_and_no_more() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    (options.rounds, options.rate) = (Some(6), Some(3_000.0));
    let report = lab::write(&options, &Silent).await.unwrap();
    assert!(report.is_good());
    assert_eq!((report.samples_acknowledged, report.requests.unsent), (180, 0));
    assert_eq!(report.offered_samples_per_s, Some(3_000.0));
    assert_eq!(report.plan.interval_ms, 10, "30 series at 3,000 a second");
    assert!(report.wall_s >= 0.055, "the schedule takes 58 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_schedule_had_and_nobody_began_is_counted() {
    // once refused, a request is repeated until the end: nothing after it is begun
    let target = Target::start(|n| if n < 4 { Deed::Keep } else { Deed::Refuse(503) }).await;
    let mut options = options(&target);
    (options.rounds, options.rate, options.duration) = (None, Some(3_000.0), Some(SECOND / 5));
    options.retry.give_up_after = SECOND / 5;
    let report = lab::write(&options, &Silent).await.unwrap();
    let requests = &report.requests;
    assert_eq!(report.samples_acknowledged, 20);
    assert_eq!(requests.sent + requests.unsent, 120, "3,000 samples a second for 200 ms, 5 a request");
    assert!(report.warnings.iter().any(|w| w.contains("never begun")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_everything_ends_the_run() {
    let target = Target::start(|_| Deed::Refuse(404)).await;
    let mut options = options(&target);
    (options.rounds, options.verify) = (Some(1_000_000), None);
    let report = lab::write(&options, &Silent).await.unwrap();
    assert!(report.requests.rejected < 1_000 && !report.is_good());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_an_error_that_names_the_target() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    options.url = "http://127.0.0.1:1/api/v1/write".into();
    let said = format!("{:#}", lab::write(&options, &Silent).await.unwrap_err());
    assert!(said.contains("127.0.0.1:1") && said.contains("connect"), "{said}");
}

/// Stops the run once something was acknowledged, and remembers the phases.
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
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    (options.rounds, options.rate) = (Some(1_000_000), Some(100.0));
    let stopper = Stopper { stop: options.stop.clone(), phases: Mutex::default() };
    let report = lab::write(&options, &stopper).await.unwrap();
    assert!(report.partial && !report.is_good() && report.samples_acknowledged < 1_000);
    assert!(report.verify.as_ref().unwrap().is_good() && report.to_text(false).contains("PARTIAL"));
    assert_eq!(*stopper.phases.lock().unwrap(), [Phase::Preparing, Phase::Writing, Phase::Verifying]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_text_and_json() {
    let target = Target::start(|n| if n == 7 { Deed::Lose } else { Deed::Keep }).await;
    let mut options = options(&target);
    options.pid = Some(std::process::id());
    let report = lab::write(&options, &Silent).await.unwrap();
    for table in [false, true] {
        let text = report.to_text(table);
        for expected in ["180 acknowledged", "36 × 204", "target memory", "lost", "lost: metric_"] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["samples_acknowledged"], 180);
    assert_eq!(json["verify"]["lost"], 5);
    assert_eq!(json["verify"]["examples"][0]["fault"], "lost");
    assert_eq!(json["plan"]["fleet"]["seed"], 1);
    assert!(json["target"]["cpu_s"].is_number());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_can_be_kept_and_used_by_another_process() {
    let target = Target::start(|n| if n == 7 { Deed::Lose } else { Deed::Keep }).await;
    let mut options = options(&target);
    let verify = options.verify.take().unwrap();
    let report = lab::write(&options, &Silent).await.unwrap();
    assert_eq!(report.ledger.read_url.as_ref(), Some(&verify.read_url));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    report.ledger.save(&path).unwrap();
    let ledger = lab::Ledger::load(&path).unwrap();
    assert_eq!(ledger, report.ledger);
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
    let options = WriteOptions::default();
    sendable(&lab::write(&options, &Silent));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_requests_and_more_targets_than_a_page() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    (options.connections, options.series_per_metric, options.batch) = (20, 40, 20);
    let report = lab::write(&options, &Silent).await.unwrap();
    let verify = report.verify.as_ref().unwrap();
    assert!(report.is_good(), "{verify:?}");
    assert_eq!(
        verify.queries,
        5 * 2 * 16,
        "metrics × halves of the rounds × jobs: 17 samples a page, 5 targets a job"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_every_page_is_named_with_the_setting() {
    let target = Target::start(|_| Deed::Keep).await;
    target.answer_at_most(0);
    let options = options(&target);
    let report = lab::write(&options, &Silent).await.unwrap();
    assert!(!report.is_good() && report.verify.is_none());
    let text = report.to_text(false);
    for expected in [options.verify.unwrap().read_url.as_str(), "--page", "too many samples"] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_back_is_not_good_but_still_reported() {
    let target = Target::start(|_| Deed::Keep).await;
    let mut options = options(&target);
    options.verify.as_mut().unwrap().read_url = "ftp://127.0.0.1/".into();
    let report = lab::write(&options, &Silent).await.unwrap();
    assert_eq!(report.samples_acknowledged, 180);
    assert!(!report.is_good() && report.verify.is_none());
    assert!(report.to_text(false).contains("not verified: ftp"));
}
