//! Load over Graphite's protocols, which have no answers, and the ledger of what the target owes.

mod carbon;

use crate::target::{Reaction, Target};
use carbon::{Carbon, Mode};
use lab::capture::recorder::{RecordOptions, Recorder};
use lab::drive::options::RunOptions;
use lab::drive::run::{Outcome, carry_out};
use lab::result::Judgement;
use lab::scenario::{Count, Model, ReadApi, SeriesNaming, Shape, Span, Texts, shape};
use lab::show::summary;
use lab::show::text::verify_report;
use lab::{Ledger, Protocol, RunResult, Scenario, Silent, VerifyOptions};
use stdx::clock::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// 2 hosts × 3 timers × 15 metrics are 90 series. In 8 rounds, they take 48 requests of 15 points.
fn scenario(carbon: &Carbon) -> Scenario {
    let mut scenario = Scenario { duration: Span::seconds(600.0), ..Scenario::default() };
    scenario.target.protocol = Protocol::Graphite;
    scenario.target.write = Texts::One(carbon.write_url());
    scenario.target.read = Some(carbon.read_url());
    let load = &mut scenario.load;
    (load.naming, load.metrics, load.series_per_metric) = (SeriesNaming::Timers, Count(15.0), Count(3.0));
    (load.writers, load.batch) = (2, 15);
    (load.model, load.rounds, load.interval) = (Model::Closed, Some(8), Some(Span::seconds(10.0)));
    load.backoff_min = Span::seconds(0.001);
    scenario.verify.probes_per_s = 0.0;
    scenario.verify.patience = Span::seconds(0.0);
    scenario.verify.page = Count(50.0);
    scenario
}

async fn run(scenario: &Scenario) -> Outcome {
    carry_out(scenario, &RunOptions::default(), &Silent).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_point_of_every_shape_is_read_back() {
    let shapes: [fn(&mut Scenario); 7] = [
        |_| {},
        |s| (s.load.batch, s.load.connections) = (7, 3),
        |s| (s.load.naming, s.load.metrics) = (SeriesNaming::Labels, Count(4.0)),
        |s| (s.load.naming, s.load.histograms) = (SeriesNaming::Labels, 0.9),
        |s| (s.load.series_interval, s.load.values) = (Some(Span::seconds(20.0)), lab::ValueModel::Timer),
        |s| {
            (s.load.metric_interval, s.load.reconnect) =
                (Some(Span::seconds(30.0)), Some(Span::seconds(0.01)))
        },
        |s| s.load.interval = Some(Span::seconds(60.0)),
    ];
    for pickled in [false, true] {
        for (seed, shape) in (100..).zip(shapes) {
            let about = format!("seed {seed}, pickled: {pickled}");
            let mut scenario = Scenario { seed, ..Scenario::default() };
            shape(&mut scenario);
            let step_s = scenario.load.interval.map_or(10, |interval| interval.s() as i64);
            let carbon = Carbon::start(step_s, pickled, |_| Mode::Keep).await;
            let mut scenario = self::scenario(&carbon);
            scenario.seed = seed;
            if pickled {
                scenario.target.protocol = Protocol::GraphitePickle;
            }
            shape(&mut scenario);
            let result = run(&scenario).await.result;
            let verify = result.verify.as_ref().unwrap_or_else(|| panic!("{about}: {:?}", result.warnings));
            assert!(result.passed(), "{about}: {verify:?}");
            assert_eq!(
                (verify.read_back, carbon.points()),
                (verify.acknowledged, verify.acknowledged),
                "{about}"
            );
            assert_eq!(verify.read_back, result.totals.series_active * 8, "{about}");
            assert_eq!(result.totals.by_reason["taken"], result.totals.requests, "{about}");
            assert_eq!(carbon.names().len() as u64, result.totals.series_distinct, "{about}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_may_have_many_slots() {
    let carbon = Carbon::start(10, false, |_| Mode::Keep).await;
    let mut scenario = scenario(&carbon);
    (scenario.load.interval, scenario.verify.step) = (Some(Span::seconds(60.0)), Some(Span::seconds(10.0)));
    for page in [1.0, 1e6] {
        scenario.verify.page = Count(page);
        let verify = run(&scenario).await.result.verify.unwrap();
        assert!(verify.is_good() && verify.read_back == 720 && verify.superseded == 0, "{verify:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_last_point_of_a_slot_can_be_read() {
    let carbon = Carbon::start(60, false, |_| Mode::Keep).await;
    let mut scenario = scenario(&carbon);
    scenario.load.rounds = Some(23);
    let unread = run(&scenario).await.result;
    assert!(unread.unverified.is_some_and(|why| why.contains("set verify.step (--step) to 60s")));
    scenario.verify.step = Some(Span::seconds(60.0));
    for page in [1.0, 90.0, 1e6] {
        scenario.verify.page = Count(page);
        let result = run(&scenario).await.result;
        let text = summary::text(&result, false);
        let verify = result.verify.unwrap();
        assert!(verify.is_good(), "{verify:?}");
        assert!(
            text.contains(&format!("{} of those read back are not readable", verify.superseded)),
            "{text}"
        );
        assert_eq!(verify.read_back, 90 * 23);
        // 23 rounds are in at least 4 slots of 6, and in at most 5
        let slots = 90 * 23 - verify.superseded;
        assert!((90 * 4..=90 * 5).contains(&slots), "{slots}");
    }
}

/// Hosts and timers have numbers of one, two and three digits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_refuses_large_queries_is_asked_for_parts() {
    let shapes: [fn(&mut Scenario); 3] = [
        |_| {},
        |s| s.load.series_interval = Some(Span::seconds(20.0)),
        |s| (s.load.naming, s.load.metrics) = (SeriesNaming::Labels, Count(4.0)),
    ];
    for shape in shapes {
        // three, because a timer may have been replaced twice
        for (series_max, refuses) in [(3, true), (40, true), (1_000_000, false)] {
            let carbon = Carbon::start(10, false, |_| Mode::Keep).await;
            carbon.answer_at_most(series_max);
            let mut scenario = scenario(&carbon);
            (scenario.load.writers, scenario.load.series_per_metric) = (3, Count(107.0));
            (scenario.load.first_writer, scenario.load.rounds) = (9, Some(3));
            (scenario.load.batch, scenario.verify.page) = (500, Count(1e6));
            shape(&mut scenario);
            let result = run(&scenario).await.result;
            let verify = result.verify.as_ref().unwrap_or_else(|| panic!("{:?}", result.warnings));
            assert!(result.passed(), "{verify:?}");
            assert_eq!(verify.read_back, result.totals.series_active * 3);
            assert_eq!(carbon.refusals() > 0, refuses, "at most {series_max} series");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_loses_points_is_found_out() {
    let carbon = Carbon::start(10, false, |_| Mode::Lose).await;
    let result = run(&scenario(&carbon)).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(!result.passed());
    assert_eq!((verify.acknowledged, verify.lost), (720, 720 / 7));
    assert!(verify.examples[0].series.contains("STRESS.host-"), "{:?}", verify.examples);
}

/// The first connection of a writer breaks. Points sent on it must be found only if the target states a
/// `commit_interval`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_of_a_broken_connection_are_verified_only_with_a_commit_interval() {
    let script = |number| if number < 1 { Mode::Reset(2_000) } else { Mode::Keep };
    let carbon = Carbon::start(10, false, script).await;
    let result = run(&scenario(&carbon)).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(result.passed(), "{verify:?}");
    assert_eq!(verify.read_back, verify.acknowledged);
    assert!(verify.acknowledged < 720 && carbon.connections() >= 2, "{verify:?}");
    assert!(result.warnings.iter().any(|warning| warning.contains("are not owed")), "{:?}", result.warnings);

    // a commit interval of zero, which the target does not keep
    let carbon = Carbon::start(10, false, script).await;
    let mut scenario = scenario(&carbon);
    scenario.target.commit_interval = Some(Span::seconds(0.0));
    let result = run(&scenario).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(!result.passed() && verify.lost > 0, "{verify:?}");
}

/// Such a target says nothing about the points that it has not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_target_closes_first_is_broken() {
    let carbon =
        Carbon::start(10, false, |number| if number < 1 { Mode::Hurry(900) } else { Mode::Keep }).await;
    let result = run(&scenario(&carbon)).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert!(result.passed(), "{verify:?}");
    assert!(verify.acknowledged < 720 && verify.unacknowledged > 0, "{verify:?}");
}

/// Both runs are in the same slot of a minute, unless a minute ends between them. The second sends half of the series.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_may_hold_points_of_an_earlier_run() {
    let carbon = Carbon::start(60, false, |_| Mode::Keep).await;
    for factor in [1.0, 0.5] {
        let mut scenario = scenario(&carbon);
        (scenario.load.model, scenario.load.rounds) = (Model::Open, None);
        (scenario.load.interval, scenario.verify.step) =
            (Some(Span::seconds(1.0)), Some(Span::seconds(60.0)));
        (scenario.load.writers, scenario.load.series_per_metric) = (1, Count(4.0));
        (scenario.duration, scenario.shape) =
            (Span::seconds(1.0), Shape { kind: shape::Kind::Stress, factor, ..Shape::default() });
        let result = run(&scenario).await.result;
        assert!(result.passed(), "{:?}", result.verify);
        assert_eq!(result.verify.unwrap().acknowledged, (60.0 * factor) as u64);
    }
}

fn judged<'a>(result: &'a RunResult, rule: &str) -> &'a Judgement {
    result.verdict.iter().find(|judgement| judgement.rule == rule).unwrap()
}

/// Each writer's last connection is reset, too, so that the ledger is empty, and no loss can be found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_owes_nothing_does_not_pass() {
    let carbon = Carbon::start(10, false, |_| Mode::Reset(1)).await;
    let mut scenario = scenario(&carbon);
    // a connection that is reset before all bytes are sent takes the request again
    scenario.load.give_up_after = Span::seconds(60.0);
    let mut outcome = run(&scenario).await;
    let totals = &outcome.result.totals;
    assert_eq!((totals.samples_owed, totals.samples_acknowledged > 0), (Some(0), true));
    assert!(!outcome.result.passed());
    for rule in ["lost", "doubled", "wrong", "unexpected"] {
        let judged = judged(&outcome.result, rule);
        assert!(judged.unmeasured, "{judged:?}");
    }
    assert!(judged(&outcome.result, "lost").measured.contains("owes none"));
    let ledger = outcome.ledgers.remove(0);
    let url = carbon.read_url();
    let options = VerifyOptions { read_api: ReadApi::Render, step_ms: 10_000, ..VerifyOptions::new(url) };
    let report = lab::verify(&options, &ledger, &Silent).await.unwrap();
    assert!(
        !report.is_good() && verify_report(&report, false).contains("nothing was verified"),
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_says_how_much_must_be_owed() {
    for (mode, share, passes) in
        [(Mode::Keep, 1.0, true), (Mode::Reset(2_000), 1.0, false), (Mode::Reset(2_000), 0.001, true)]
    {
        let carbon = Carbon::start(10, false, move |number| if number < 1 { mode } else { Mode::Keep }).await;
        let mut scenario = scenario(&carbon);
        scenario.verdict.owed = Some(share);
        let result = run(&scenario).await.result;
        assert_eq!((result.passed(), judged(&result, "owed").pass), (passes, passes), "{:?}", result.verdict);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_are_never_owed() {
    let carbon = Carbon::start(10, false, |_| Mode::Keep).await;
    let mut scenario = scenario(&carbon);
    scenario.target.write = Texts::One(carbon.datagram_url());
    scenario.target.commit_interval = Some(Span::seconds(0.0));
    let result = run(&scenario).await.result;
    let verify = result.verify.as_ref().unwrap();
    assert_eq!((result.totals.samples_acknowledged, verify.acknowledged, verify.lost), (720, 0, 0));
    assert!(carbon.datagrams() >= 48 && verify.is_good(), "{verify:?}");
    let lost = judged(&result, "lost");
    assert!(result.passed() && lost.measured.contains("not owed"), "{lost:?}");
    assert!(summary::text(&result, false).contains("datagrams are not owed"));
    assert!(result.warnings.iter().any(|warning| warning.contains("are not owed")), "{:?}", result.warnings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_is_read_back_later() {
    let carbon = Carbon::start(60, false, |_| Mode::Keep).await;
    let mut scenario = scenario(&carbon);
    (scenario.verify.after, scenario.verify.step) = (false, Some(Span::seconds(60.0)));
    let ledger = run(&scenario).await.ledgers.remove(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    ledger.save(&path).unwrap();
    let ledger = Ledger::load(&path).unwrap();
    assert_eq!((ledger.read_api, ledger.step_ms), (ReadApi::Render, 60_000));
    let options = VerifyOptions {
        read_api: ledger.read_api,
        step_ms: ledger.step_ms,
        ..VerifyOptions::new(ledger.read_url.clone().unwrap())
    };
    let report = lab::verify(&options, &ledger, &Silent).await.unwrap();
    assert!(report.is_good() && report.acknowledged == 720, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_schedule_is_spread_or_comes_in_bursts() {
    for burst in [false, true] {
        let carbon = Carbon::start(1, false, |_| Mode::Keep).await;
        let mut scenario = scenario(&carbon);
        (scenario.load.model, scenario.load.burst) = (Model::Open, burst);
        (scenario.load.rounds, scenario.load.interval) = (None, Some(Span::seconds(1.0)));
        scenario.duration = Span::seconds(2.0);
        scenario.verify.probes_per_s = 50.0;
        let result = run(&scenario).await.result;
        assert!(result.passed(), "{:?}", result.verify);
        assert_eq!((result.totals.samples_acknowledged, result.totals.unsent), (180, 0));
    }
}

/// A slot has the samples of many rounds. This server shows points only after their connection has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_that_do_not_become_visible_are_noticed_although_they_share_slots() {
    let carbon = Carbon::start(60, false, |_| Mode::Keep).await;
    let mut scenario = scenario(&carbon);
    scenario.load.model = Model::Open;
    (scenario.load.rounds, scenario.load.interval) = (None, Some(Span::seconds(1.0)));
    (scenario.duration, scenario.verify.step) = (Span::seconds(2.0), Some(Span::seconds(60.0)));
    (scenario.verify.probes_per_s, scenario.verify.invisible_after) = (50.0, Span::seconds(0.2));
    scenario.verdict.freshness_p99 = Some(Span::seconds(0.1));
    let result = run(&scenario).await.result;
    assert!(result.totals.invisible > 0, "{:?}", result.totals);
    let judged = judged(&result, "freshness_p99");
    assert!(!judged.pass && !judged.unmeasured, "{judged:?}");
}

/// Sends `text` to `address` in pieces of `bytes` bytes, and waits until the other side has closed the connection.
async fn send(address: std::net::SocketAddr, text: &str, bytes: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    for piece in text.as_bytes().chunks(bytes) {
        stream.write_all(piece).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_recorded_on_their_way_and_sent_again() {
    let backend = Carbon::start(1, false, |_| Mode::Keep).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines.rec");
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = RecordOptions::new(listen, backend.write_url(), &file);
    let stop = options.stop.clone();
    let recorder = Recorder::bind(options).await.unwrap();
    let address = recorder.address().unwrap();
    let recording = tokio::spawn(async move { recorder.run(&Silent).await.unwrap() });
    let now_s = SystemClock.now_ms() as u64 / 1000;
    let lines = |from: u64| -> String {
        (from..from + 500).map(|n| format!("path.p{} {n}.5 {}\n", n % 10, now_s - 500 + n % 500)).collect()
    };
    send(address, &lines(0), 7).await;
    send(address, &(lines(500) + "tagged;k=v 1 1795284000\n"), 100_000).await;
    // the sender saw the end of its connection, so that the backend has everything
    assert_eq!(backend.points(), 1_001);
    stop.now();
    let report = recording.await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.kept.samples, report.kept.series), (1_001, 11), "{report:?}");

    let target = Carbon::start(1, false, |_| Mode::Keep).await;
    let text = format!(
        "[target]\nprotocol = 'graphite'\nwrite = '{}'\n[load]\nwriters = 3\nbatch = 100\n\
         [replay]\nfile = '{}'\nspeed = 100\ncopies = 2\ntimes = 'shifted'",
        target.write_url(),
        file.display()
    );
    let scenario = Scenario::parse(&text).unwrap();
    let result = run(&scenario).await.result;
    assert_eq!(result.totals.samples_acknowledged, 2_002, "{:?}", result.totals);
    assert_eq!(target.points(), 2_002);
    let names = target.names();
    assert_eq!((names.len(), names[0].as_str()), (22, "floodmark_copy_1.path.p0"));
    assert!(names.contains(&"tagged;k=v;floodmark_copy=2".to_owned()), "{names:?}");

    // the same lines as remote write
    let target = Target::start(|_| Reaction::Keep).await;
    let text = format!(
        "[target]\nwrite = '{}'\n[replay]\nfile = '{}'\nspeed = 100",
        target.write_url(),
        file.display()
    );
    let result = run(&Scenario::parse(&text).unwrap()).await.result;
    assert_eq!((result.totals.samples_acknowledged, target.series()), (1_001, 11));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pickled_points_are_recorded_on_their_way() {
    let backend = Carbon::start(10, true, |_| Mode::Keep).await;
    let folder = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = RecordOptions::new(listen, backend.write_url(), folder.path().join("pickles.rec"));
    let stop = options.stop.clone();
    let recorder = Recorder::bind(options).await.unwrap();
    let mut scenario = scenario(&backend);
    scenario.target.protocol = Protocol::GraphitePickle;
    scenario.target.write = Texts::One(format!("tcp://{}", recorder.address().unwrap()));
    let recording = tokio::spawn(async move { recorder.run(&Silent).await.unwrap() });
    let result = run(&scenario).await.result;
    assert!(result.passed(), "{:?}", result.verify);
    stop.now();
    let report = recording.await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    let kept = &report.kept;
    assert_eq!((kept.samples, kept.series, kept.lines_refused), (720, 90, 0), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_away_breaks_the_connections_of_senders() {
    let away = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = format!("tcp://{}", away.local_addr().unwrap());
    drop(away);
    let folder = tempfile::tempdir().unwrap();
    let options = RecordOptions::new("127.0.0.1:0".parse().unwrap(), backend, folder.path().join("r.rec"));
    let stop = options.stop.clone();
    let recorder = Recorder::bind(options).await.unwrap();
    let address = recorder.address().unwrap();
    let recording = tokio::spawn(async move { recorder.run(&Silent).await.unwrap() });
    // the reset may arrive before the connection is used
    if let Ok(mut stream) = TcpStream::connect(address).await {
        assert!(stream.read_to_end(&mut Vec::new()).await.is_err(), "the connection must be reset");
    }
    stop.now();
    let report = recording.await.unwrap();
    assert_eq!(report.statuses["no connection"], 1, "{report:?}");
}

#[tokio::test]
async fn scenarios_that_cannot_work_are_refused() {
    for (text, why) in [
        ("[target]\nprotocol = 'graphite'", "does not begin with tcp:// or udp://"),
        ("[target]\nprotocol = 'graphite-pickle'\nwrite = 'udp://127.0.0.1:1'", "over TCP only"),
        ("[target]\nwrite = 'tcp://127.0.0.1:1'", "does not begin with http://"),
        ("[target]\ncommit_interval = '1s'", "applies only to"),
        (
            "[target]\nprotocol = 'graphite'\nwrite = 'tcp://127.0.0.1:1'\n[load]\ninterval = '1500ms'",
            "whole seconds",
        ),
        ("[load]\nnaming = 'timers'", "15 metrics"),
        ("[load]\nnaming = 'timers'\nmetrics = 15\nprefix = 'a b'", "letters"),
        ("[load]\nnaming = 'timers'\nmetrics = 15\nhistograms = 0.5", "no labels"),
        (
            "[target]\nprotocol = 'graphite'\nwrite = 'udp://127.0.0.1:1'\n[verdict]\nowed = 1",
            "datagrams are never owed",
        ),
        ("[replay]\nfile = 'r'\n[verdict]\nowed = 1", "no record of what is owed"),
        ("[verify]\nstep = '60s'", "only /render has steps"),
        (
            "[target]\nread_api = 'render'\n[load]\ninterval = '40s'\n[verify]\nstep = '60s'",
            "neither is the step",
        ),
        (
            "[target]\nread_api = 'render'\n[load]\ninterval = '60s'\n[verify]\nstep = '40s'",
            "neither is the step",
        ),
        (
            "[target]\nread_api = 'render'\n[load]\ninterval = '60s'\n[verify]\nstep = '1500ms'",
            "whole seconds",
        ),
        (
            "[target]\nread_api = 'render'\n[load]\ninterval = '20s'\nhistory = '1h'\nhistory_interval = '15s'",
            "neither is the step of 20000 ms",
        ),
    ] {
        let said = Scenario::parse(text).unwrap_err().to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
}
