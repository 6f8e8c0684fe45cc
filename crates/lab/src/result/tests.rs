use super::*;

fn result() -> RunResult {
    let mut timeline = Timeline::default();
    for second in 0..5 {
        timeline.advance(f64::from(second));
        timeline.set(names::RATE_SENT, "1/s", SeriesKind::Sum, 100.0 + f64::from(second));
        if second > 2 {
            timeline.set("disk/await", "s", SeriesKind::Max, 0.25 * f64::from(second));
        }
    }
    timeline.finish();
    RunResult {
        format: FORMAT,
        name: "one".into(),
        scenario: "name = \"one\"\n".into(),
        machine: Machine::this(),
        part: (1, 1),
        events: vec![Event::new(1.5, EventKind::Fault, "kill -9")],
        timeline,
        steps: vec![Step { name: "all".into(), factor: 1.0, ..Step::default() }],
        totals: Totals { attempts: 4, succeeded: 3, samples_per_s: 10.0, ..Totals::default() },
        verdict: vec![Judgement { rule: "lost".into(), pass: true, ..Judgement::default() }],
        verify: Some(VerifyReport { acknowledged: 7, ..VerifyReport::default() }),
        ..RunResult::default()
    }
}

#[test]
fn results_round_trip_through_json_and_files() {
    let result = result();
    assert_eq!(RunResult::from_json(&result.to_json().unwrap()).unwrap(), result);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    result.save(&path).unwrap();
    assert_eq!(RunResult::load(&path).unwrap(), result);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file remains");
    assert!(result.save(&folder.path().join("nowhere/r.json")).is_err());
}

#[test]
fn old_results_are_read_and_later_ones_and_broken_ones_refused() {
    assert_eq!(RunResult::from_json("{}").unwrap(), RunResult::default());
    for bad in ["", "3", r#"{"format":99}"#, r#"{"timeline":{"step_s":0}}"#] {
        assert!(RunResult::from_json(bad).is_err(), "{bad}");
    }
    let longer = r#"{"timeline":{"points":1,"series":{"a/b":{"values":[1,2]}}}}"#;
    assert!(RunResult::from_json(longer).is_err());
}

#[test]
fn figures_and_verdicts() {
    let mut result = result();
    assert_eq!(result.figure("pass_rate"), Some(0.75));
    assert_eq!(result.figure("lost"), Some(0.0));
    assert_eq!(result.figure("p99_s"), None, "an empty result has a p99");
    assert_eq!(result.figure("nonsense"), None);
    assert!(result.passed());
    result.partial = true;
    assert!(!result.passed());
    result.partial = false;
    result.verdict[0].pass = false;
    assert!(!result.passed());
}

#[test]
fn queries_of_all_mixes_count() {
    let mix = |queries, succeeded, queries_per_s, p99_s| ReadTotals {
        queries,
        succeeded,
        queries_per_s,
        latency: Quantiles { count: succeeded, p99_s, ..Quantiles::default() },
        ..ReadTotals::default()
    };
    let reads = vec![mix(10, 10, 1.0, 0.1), mix(30, 20, 2.0, 0.5), mix(10, 0, 0.0, 0.0)];
    let result = RunResult { reads, ..RunResult::default() };
    let figures = ["queries_per_s", "read_pass_rate", "read_p99_s"].map(|name| result.figure(name));
    assert_eq!(figures, [Some(3.0), Some(0.6), Some(0.5)]);
    assert_eq!(
        RunResult::default().figure("queries_per_s"),
        None,
        "a result without queries has a query rate"
    );
}

#[test]
fn timelines_thin_out_and_merge() {
    let mut long = Timeline::default();
    for second in 0..10_000 {
        long.advance(f64::from(second));
        long.set("rate/sent", "1/s", SeriesKind::Sum, f64::from(second % 2));
        long.set("latency/p99", "s", SeriesKind::Max, f64::from(second % 2));
        long.set("no/number", "s", SeriesKind::Max, f64::NAN);
    }
    long.finish();
    assert_eq!((long.step_s, long.points), (4.0, 2_500));
    let mean = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>() / values.len() as f64;
    assert!((mean(long.get("rate/sent").unwrap()) - 0.5).abs() < 0.01);
    assert_eq!(long.max("latency/p99"), Some(1.0));
    assert_eq!(long.get("no/number"), None);
    assert!(long.check().is_ok());

    let one = result().timeline;
    let mut both = one.clone();
    both.merge(&one);
    assert_eq!(both.get("rate/sent").unwrap()[4], Some(208.0));
    assert_eq!(both.get("disk/await").unwrap(), one.get("disk/await").unwrap());
    let points = both.points;
    both.merge(&long);
    assert_eq!((both.step_s, both.points), (4.0, 2_500));
    assert!(points == 5 && both.check().is_ok());
}
