//! A target that loses, duplicates or changes samples must be found out, and the fault must be named.

use crate::target::{Reaction, Target};
use lab::drive::options::RunOptions;
use lab::drive::run::{Outcome, carry_out};
use lab::scenario::{Count, Model, Span, Texts};
use lab::verify::Fault;
use lab::{RunResult, Scenario, Silent, VerifyReport};

/// 2 writers × 3 targets × 5 metrics are 30 series. In 6 rounds, they take 36 requests of 5 samples.
pub(crate) fn scenario(target: &Target) -> Scenario {
    let mut scenario = Scenario { duration: Span::seconds(600.0), ..Scenario::default() };
    scenario.target.write = Texts::One(target.write_url());
    scenario.target.read = Some(target.read_url());
    scenario.target.tenant_header = Some(String::new());
    let load = &mut scenario.load;
    (load.metrics, load.series_per_metric, load.writers, load.batch) = (Count(5.0), Count(3.0), 2, 5);
    (load.model, load.rounds) = (Model::Closed, Some(6));
    load.backoff_min = Span::seconds(0.001);
    // the target asks for a pause of an hour when it refuses a request
    load.retry_after_max = Span::seconds(0.001);
    scenario.verify.probes_per_s = 0.0;
    // do not wait for lost samples, which never appear
    scenario.verify.patience = Span::seconds(0.0);
    scenario.verify.page = Count(17.0);
    scenario
}

pub(crate) async fn write(scenario: &Scenario) -> Outcome {
    carry_out(scenario, &RunOptions::default(), &Silent).await.unwrap()
}

async fn run(script: impl Fn(u64) -> Reaction + Send + Sync + 'static) -> (RunResult, VerifyReport, Target) {
    let target = Target::start(script).await;
    let result = write(&scenario(&target)).await.result;
    let verify = result.verify.clone().unwrap();
    (result, verify, target)
}

async fn once(reaction: Reaction) -> (RunResult, VerifyReport) {
    let (result, verify, target) = run(move |n| if n == 7 { reaction } else { Reaction::Keep }).await;
    assert_eq!(target.out_of_order(), 0);
    (result, verify)
}

fn faults(verify: &VerifyReport) -> [u64; 4] {
    [verify.lost, verify.doubled, verify.wrong, verify.unexpected]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_target_passes() {
    let (result, verify, target) = run(|_| Reaction::Keep).await;
    assert_eq!((result.totals.samples_acknowledged, target.samples(), target.series()), (180, 180, 30));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (180, 180, [0; 4]));
    assert_eq!(result.totals.by_reason["204"], 36);
    assert!(verify.is_good() && result.passed());
    assert!(verify.examples.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_samples_are_found() {
    let (result, verify) = once(Reaction::Lose).await;
    assert_eq!((verify.read_back, faults(&verify)), (175, [5, 0, 0, 0]));
    assert!(!result.passed());
    let example = &verify.examples[0];
    assert_eq!(
        (verify.examples.len(), example.fault),
        (3, Fault::Lost),
        "not three examples of the five faults"
    );
    assert!(example.series.starts_with("metric_") && example.sent.is_some() && example.found.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_samples_are_found() {
    let (_, verify) = once(Reaction::Double).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 5, 0, 0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_flipped_bit_is_found() {
    let (_, verify) = once(Reaction::Corrupt).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 0, 5, 0]));
    let example = &verify.examples[0];
    assert_eq!(example.fault, Fault::Wrong);
    assert_eq!(example.sent.unwrap().to_bits() ^ example.found.unwrap().to_bits(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_samples_are_found() {
    let (_, verify) = once(Reaction::Invent).await;
    assert_eq!((verify.read_back, faults(&verify)), (180, [0, 0, 0, 5]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retryable_refusals_are_repeated_until_accepted() {
    let (result, verify, target) =
        run(|n| if n % 3 == 1 { Reaction::Refuse(503) } else { Reaction::Keep }).await;
    assert!(verify.is_good());
    assert_eq!(
        (result.totals.requests, result.totals.samples_acknowledged, target.out_of_order()),
        (36, 180, 0)
    );
    let refused = result.totals.by_reason["503"];
    assert!(refused > 0);
    assert_eq!((result.totals.attempts - 36, result.totals.refusal.count), (refused, refused));
    assert_eq!(result.totals.said["503"], "come back");
    let (result, ..) = run(|n| if n % 2 == 1 { Reaction::Refuse(429) } else { Reaction::Keep }).await;
    assert_eq!((result.totals.samples_acknowledged, result.totals.rejected), (180, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_are_final_and_promise_nothing() {
    let (result, verify) = once(Reaction::Refuse(400)).await;
    assert_eq!((result.totals.rejected, result.totals.attempts), (1, 36));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (175, 175, [0; 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_not_a_lost_sample() {
    let (result, verify) = once(Reaction::StoreThenDisconnect).await;
    assert_eq!((result.totals.by_reason["broken"], result.totals.attempts), (1, 37));
    assert_eq!((verify.acknowledged, verify.read_back, faults(&verify)), (180, 180, [0; 4]));
    let (result, verify) = once(Reaction::Disconnect).await;
    assert_eq!(result.totals.by_reason["broken"], 1);
    assert!(verify.is_good());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_stored_without_an_answer_are_allowed() {
    let target = Target::start(|n| if n == 7 { Reaction::StoreThenDisconnect } else { Reaction::Keep }).await;
    let mut scenario = scenario(&target);
    scenario.load.give_up_after = Span::seconds(0.0);
    let result = write(&scenario).await.result;
    let verify = result.verify.unwrap();
    assert_eq!(result.totals.given_up, 1);
    assert_eq!(verify.acknowledged + verify.unacknowledged, target.samples() as u64);
    assert_eq!((verify.unacknowledged, faults(&verify)), (5, [0; 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn underreported_writes_do_not_count_as_acknowledged() {
    let (result, verify) = once(Reaction::UnderreportWritten).await;
    assert_eq!((result.totals.short, result.totals.samples_acknowledged), (1, 175));
    assert_eq!((verify.acknowledged, verify.unacknowledged, faults(&verify)), (175, 5, [0; 4]));
    assert!(result.warnings.iter().any(|w| w.contains("not all of their samples")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_samples_are_waited_for_and_counted() {
    let target = Target::start(|n| if n == 7 { Reaction::Hide } else { Reaction::Keep }).await;
    let mut scenario = scenario(&target);
    scenario.verify.patience = Span::seconds(60.0);
    let verify = write(&scenario).await.result.verify.unwrap();
    assert_eq!((verify.read_back, faults(&verify)), (180, [0; 4]));
    assert!(verify.late > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_an_answer_is_repeated_on_a_new_connection() {
    let target = Target::start(|n| if n == 7 { Reaction::Stall } else { Reaction::Keep }).await;
    let mut scenario = scenario(&target);
    scenario.target.timeout = Span::seconds(0.3);
    let result = write(&scenario).await.result;
    assert!(result.passed());
    assert!(result.totals.by_reason["timeout"] >= 1);
    assert_eq!(result.totals.samples_acknowledged, 180);
}
