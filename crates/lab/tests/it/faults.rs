//! Each way to lose, double or change a sample is found and named.

use crate::target::{Deed, Target};
use lab::verify::Fault;
use lab::{RetryPolicy, Silent, VerifyOptions, VerifyReport, WriteOptions, WriteReport};
use std::time::Duration;

/// 2 writers × 3 targets × 5 metrics in requests of 5, 6 rounds: 36 requests of 5 samples.
pub(crate) fn options(target: &Target) -> WriteOptions {
    let verify = VerifyOptions {
        // what a lying target has not got it will never have
        patience: Duration::ZERO,
        page_samples: 17,
        ..VerifyOptions::new(target.read_url())
    };
    WriteOptions {
        url: target.write_url(),
        metrics: 5,
        series_per_metric: 3,
        writers: 2,
        batch: 5,
        rounds: Some(6),
        retry: RetryPolicy {
            backoff_min: Duration::from_millis(1),
            // an hour is asked for
            retry_after_max: Duration::from_millis(1),
            ..RetryPolicy::default()
        },
        verify: Some(verify),
        ..WriteOptions::default()
    }
}

async fn run(script: impl Fn(u64) -> Deed + Send + Sync + 'static) -> (WriteReport, VerifyReport, Target) {
    let target = Target::start(script).await;
    let report = lab::write(&options(&target), &Silent).await.unwrap();
    let verify = report.verify.clone().unwrap();
    (report, verify, target)
}

/// Does `deed` to request number 7 and keeps all others.
async fn once(deed: Deed) -> (WriteReport, VerifyReport) {
    let (report, verify, target) = run(move |n| if n == 7 { deed } else { Deed::Keep }).await;
    assert_eq!(target.out_of_order(), 0);
    (report, verify)
}

fn faults(verify: &VerifyReport) -> [u64; 4] {
    [verify.lost, verify.doubled, verify.wrong, verify.unexpected]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_target_passes() {
    let (report, verify, target) = run(|_| Deed::Keep).await;
    assert_eq!((report.samples_acknowledged, target.samples(), target.series()), (180, 180, 30));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (180, 180, [0; 4]));
    assert_eq!(report.requests.statuses[&204], 36);
    assert!(verify.is_good() && report.is_good());
    assert!(verify.examples.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_samples_are_found() {
    let (report, verify) = once(Deed::Lose).await;
    assert_eq!((verify.read_back, faults(&verify)), (175, [5, 0, 0, 0]));
    assert!(!report.is_good());
    let example = &verify.examples[0];
    assert_eq!((verify.examples.len(), example.fault), (3, Fault::Lost), "three of five are shown");
    assert!(example.series.starts_with("metric_") && example.sent.is_some() && example.found.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_samples_are_found() {
    let (_, verify) = once(Deed::Double).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 5, 0, 0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_flipped_bit_is_found() {
    let (_, verify) = once(Deed::Corrupt).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 0, 5, 0]));
    let example = &verify.examples[0];
    assert_eq!(example.fault, Fault::Wrong);
    assert_eq!(example.sent.unwrap().to_bits() ^ example.found.unwrap().to_bits(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_samples_are_found() {
    let (_, verify) = once(Deed::Invent).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 0, 0, 5]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_repeated_until_taken() {
    let (report, verify, target) = run(|n| if n % 3 == 1 { Deed::Refuse(503) } else { Deed::Keep }).await;
    assert!(verify.is_good());
    assert_eq!((report.requests.sent, report.samples_acknowledged, target.out_of_order()), (36, 180, 0));
    let refused = report.requests.statuses[&503];
    assert!(refused > 0);
    assert_eq!((report.requests.retries, report.refusal.count), (refused, refused));
    assert_eq!(report.errors, [("503".to_owned(), "come back".to_owned())]);
    let (report, ..) = run(|n| if n % 2 == 1 { Deed::Refuse(429) } else { Deed::Keep }).await;
    assert_eq!((report.samples_acknowledged, report.requests.rejected), (180, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_are_final_and_promise_nothing() {
    let (report, verify) = once(Deed::Refuse(400)).await;
    assert_eq!((report.requests.rejected, report.requests.retries), (1, 0));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (175, 175, [0; 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_not_a_lost_sample() {
    let (report, verify) = once(Deed::Hush).await;
    assert_eq!((report.requests.failures_broken, report.requests.retries), (1, 1));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (180, 180, [0; 4]));
    let (report, verify) = once(Deed::Drop).await;
    assert_eq!(report.requests.failures_broken, 1);
    assert!(verify.is_good());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_kept_without_an_answer_is_allowed() {
    let target = Target::start(|n| if n == 7 { Deed::Hush } else { Deed::Keep }).await;
    let mut options = options(&target);
    options.retry.give_up_after = Duration::ZERO;
    let report = lab::write(&options, &Silent).await.unwrap();
    let verify = report.verify.unwrap();
    assert_eq!(report.requests.given_up, 1);
    assert_eq!(verify.acknowledged + verify.unacknowledged, target.samples() as u64);
    assert_eq!((verify.unacknowledged, faults(&verify)), (5, [0; 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_admits_to_less_is_not_believed_to_have_acknowledged() {
    let (report, verify) = once(Deed::Admit).await;
    assert_eq!((report.requests.short, report.samples_acknowledged), (1, 175));
    assert_eq!((verify.acknowledged, verify.unacknowledged, faults(&verify)), (175, 5, [0; 4]));
    assert!(report.warnings.iter().any(|w| w.contains("not all of their samples")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_samples_are_waited_for_and_counted() {
    let target = Target::start(|n| if n == 7 { Deed::Hide } else { Deed::Keep }).await;
    let mut options = options(&target);
    options.verify.as_mut().unwrap().patience = Duration::from_secs(60);
    let verify = lab::write(&options, &Silent).await.unwrap().verify.unwrap();
    assert_eq!((verify.read_back, faults(&verify)), (180, [0; 4]));
    assert!(verify.late > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_an_answer_is_repeated_on_a_new_connection() {
    let target = Target::start(|n| if n == 7 { Deed::Stall } else { Deed::Keep }).await;
    let mut options = options(&target);
    options.timeout = Duration::from_millis(300);
    let report = lab::write(&options, &Silent).await.unwrap();
    assert!(report.is_good());
    assert!(report.requests.failures_timeout >= 1);
    assert_eq!(report.samples_acknowledged, 180);
}
