//! Several runs: searches and races.

use crate::target::{Reaction, Target};
use lab::campaign::search::Search;
use lab::campaign::{Axis, Resource, Trial, find_limit, find_minimum, race};
use lab::drive::options::RunOptions;
use lab::scenario::ReadMix;
use lab::show::progress::{Observer, Progress};
use lab::{Scenario, Silent};

/// The load has 40 series and lasts one second. It ends earlier if 500 samples are sent.
const TEXT: &str = "
name = 'small'
duration = '1s'
[load]
writers = 2
metrics = 5
series_per_metric = 4
batch = 5
[verify]
patience = 0
[limits]
samples = 500
";

fn against(target: &Target) -> (Scenario, RunOptions) {
    let overrides = vec![format!("target.write={}", target.write_url())];
    let scenario = Scenario::parse_with(TEXT, &overrides).unwrap();
    (scenario, RunOptions { text: TEXT.into(), overrides, ..RunOptions::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_rate_is_found_and_its_result_can_be_repeated() {
    let target = Target::start(|_| Reaction::Keep).await;
    let (scenario, options) = against(&target);
    let search = Search::for_largest(200.0, 1_600.0, 1.5, 1);
    let found = find_limit(&scenario, &options, Axis::Rate, search, &Silent).await.unwrap();
    let trials: Vec<_> = found.trials.iter().map(|t| (t.value.round(), t.passed, t.confirming)).collect();
    let expected = [(200.0, false), (400.0, false), (800.0, false), (566.0, false), (400.0, true)];
    let passed = [true, true, false, false, true];
    let expected: Vec<_> = expected.into_iter().zip(passed).map(|((v, c), p)| (v, p, c)).collect();
    assert_eq!(trials, expected);
    assert_eq!((found.limit, found.partial), (Some(400.0), false));
    assert!(found.breaks_first[0].contains("stopped early"), "{:?}", found.breaks_first);
    let best = found.best.unwrap();
    let again = Scenario::parse_with(&best.scenario, &best.overrides).unwrap();
    assert_eq!((again.load.interval.map(lab::scenario::Span::s), again.seed), (Some(0.1), best.seed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_cannot_be_judged_ends_the_search_and_is_no_limit() {
    let target = Target::start(|_| Reaction::Keep).await;
    target.answer_at_most(0);
    let (scenario, options) = against(&target);
    let search = Search::for_largest(200.0, 400.0, 1.5, 1);
    let found = find_limit(&scenario, &options, Axis::Rate, search, &Silent).await.unwrap();
    assert_eq!((found.limit, found.trials.len(), found.breaks_first.len()), (None, 1, 0));
    let Trial { passed, failed, unmeasured, .. } = &found.trials[0];
    assert!(!passed && failed.is_empty() && unmeasured.len() == 4, "{:?}", found.trials);
    let why = found.undecided.unwrap();
    let url = target.read_url();
    let begin = format!("200 samples/s: lost not measured: tenant-0: cannot read back from {url}: ");
    assert!(why.starts_with(&begin) && why.contains(": POST /api/v1/query query="), "{why}");
    assert!(why.contains(": 422 Unprocessable Entity too many samples, "), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_target_is_found_and_one_that_never_starts_is_an_error() {
    let target = Target::start(|_| Reaction::Keep).await;
    let (mut scenario, options) = against(&target);
    scenario.load.interval = Some(lab::scenario::Span::seconds(0.1));
    // with one core, the process of the target ends during the run
    scenario.verdict.restarts = Some(0);
    scenario.target.start = Some("sh -c 'test {cores} != 1.00 || exec sleep 0.2; exec sleep 60'".into());
    scenario.target.ready = Some(target.read_url() + "/api/v1/query?query=x%5B1ms%5D&time=0");
    let search = || Search::for_smallest(1.0, 4.0, 2.0, 1);
    let found = find_minimum(&scenario, &options, Resource::Cores, search(), &Silent).await.unwrap();
    let values: Vec<_> = found.trials.iter().map(|Trial { value, passed, .. }| (*value, *passed)).collect();
    assert_eq!(values, [(4.0, true), (2.0, true), (1.0, false), (2.0, true)]);
    assert_eq!(found.limit, Some(2.0));
    let best = found.best.unwrap();
    let again = Scenario::parse_with(&best.scenario, &best.overrides).unwrap();
    assert!(again.target.start.unwrap().contains("test 2.00 !="), "{:?}", best.overrides);
    scenario.target.start = Some("false {cores}".into());
    scenario.target.ready = Some("http://127.0.0.1:1/".into());
    let error = find_minimum(&scenario, &options, Resource::Cores, search(), &Silent).await.unwrap_err();
    assert!(format!("{error:#}").contains("the target ended with"), "{error:#}");
    scenario.target.start = Some("sleep 60".into());
    let error = find_minimum(&scenario, &options, Resource::Memory, search(), &Silent).await.unwrap_err();
    assert!(error.to_string().contains("{memory}"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn races_go_forwards_and_backwards_and_each_result_names_its_target() {
    let (quick, slow) = (
        Target::start(|_| Reaction::Keep).await,
        Target::start(|n| if n % 2 == 0 { Reaction::Refuse(400) } else { Reaction::Keep }).await,
    );
    let racers = [against(&quick), against(&slow)].map(|(mut scenario, options)| {
        scenario.load.interval = Some(lab::scenario::Span::seconds(0.2));
        (scenario, options)
    });
    let race = race(&racers, 2, &Silent).await.unwrap();
    assert_eq!(race.laps.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 1, 0]);
    for (number, result) in &race.laps {
        assert_eq!(result.target, racers[*number].0.target.write.all()[0]);
        assert!(result.overrides.contains(&racers[*number].1.overrides[0]), "{:?}", result.overrides);
    }
    let rate = race.ratios.iter().find(|ratio| ratio.figure == "pass_rate").unwrap();
    assert_eq!((rate.medians[0], rate.first_to[0].is_some_and(|ratio| ratio > 1.5)), (Some(1.0), true));
}

struct Thief(std::path::PathBuf);

impl Observer for Thief {
    fn progress(&self, _: &Progress) {}

    fn note(&self, text: &str) {
        if text.starts_with("lap 2") {
            std::fs::remove_file(&self.0).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lap_that_cannot_be_run_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queries");
    std::fs::write(&path, "metric_1[1ms]\n").unwrap();
    let target = Target::start(|_| Reaction::Keep).await;
    let racers = [false, true].map(|asks| {
        let (mut scenario, mut options) = against(&target);
        options.folder = folder.path().to_owned();
        if asks {
            scenario.reads.push(ReadMix { query_log: Some("queries".into()), ..ReadMix::default() });
        }
        (scenario, options)
    });
    let race = race(&racers, 2, &Thief(path)).await.unwrap();
    assert_eq!(race.laps.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 0]);
    let [(1, why)] = race.missing.as_slice() else { panic!("{:?}", race.missing) };
    assert!(why.contains("queries"), "{why}");
}
