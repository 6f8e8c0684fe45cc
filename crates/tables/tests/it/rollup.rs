//! Checks that each day is rolled up once, and again after late samples.

use crate::fleet::{DAY, Series, date, fleet, stem};
use crate::table::{open, runtime, stage};
use crate::upkeep::contents;
use model::{Samples, Statistic, TimeRange};
use query::Matcher;
use std::collections::BTreeMap;
use std::sync::Arc;
use tables::ROLLUP;
use tables::compact::{self, CompactLimits};
use tables::delta::StagedBlock;
use tables::rollup::label::LABEL;
use tables::rollup::{self, Resolution, RollupLimits};
use tables::{Cache, Date, Delete, Location, Scan, ScanLimits, Select, Stop, Table, WriteLimits};
use tempfile::TempDir;

fn rollup_table(folder: &TempDir) -> Table {
    let url = format!("file://{}/{}", folder.path().display(), Resolution::FiveMinutes.folder());
    Table::open_or_create(&ROLLUP, Location::open(&url, [], runtime().handle().clone()).unwrap()).unwrap()
}

fn commit(table: &Table, n: u64, series: &[Series]) {
    let files = vec![stage(table, &format!("f{n}"), series)];
    table
        .commit(
            &[StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files }],
            DAY,
        )
        .unwrap();
}

fn limits() -> RollupLimits {
    RollupLimits { window_bytes: 1 << 20, write: WriteLimits::default() }
}

fn column(table: &Table, of: Statistic) -> Vec<f64> {
    let select = Select { matchers: vec![rollup::matcher(of)], ..Select::ALL };
    let cache = Arc::new(Cache::new(1 << 20));
    let mut scan = Scan::open(table, &cache, &select, &ScanLimits::default()).unwrap();
    let mut samples = Samples::default();
    while scan.next_series().unwrap() {
        assert_eq!(scan.labels().get(LABEL), Some(of.name()));
        scan.read(&mut samples).unwrap();
    }
    samples.values
}

#[test]
fn a_day_is_rolled_up_again_only_after_late_samples() {
    let folder = TempDir::new().unwrap();
    let (metrics, rollup) = (open(&folder), rollup_table(&folder));
    let run = |name: &str| {
        let (width, limits) = (Resolution::FiveMinutes, limits());
        rollup::run(&metrics, &rollup, date(), width, &stem(name), &limits, DAY, &Stop::NEVER, |_| true)
            .unwrap()
    };
    let due = |today| rollup::due(&metrics, &rollup, today, i64::MIN).unwrap();
    let mut series = fleet(2, 3, 40);
    // these label names sort before and after the label that rollups add
    series.push(Series::new(&[("__name__", "z")], &[(DAY, 1.0)]));
    series.push(Series::new(&[("__name__", "z"), ("!", "x")], &[(DAY, 1.0)]));
    series.push(Series::new(&[("__name__", "z"), ("Zone", "x")], &[(DAY, 1.0)]));
    commit(&metrics, 0, &series);
    let tomorrow = Date(date().0 + 1);
    assert!(due(date()).is_empty(), "the day is not over");
    assert_eq!(due(tomorrow), [date()]);
    let rolled = run("a");
    assert_eq!((rolled.series, rolled.samples, rolled.committed), (9, 243, true));
    assert!(due(tomorrow).is_empty());
    let complete = || rollup::days(&metrics.files().unwrap(), &rollup).unwrap().complete;
    assert_eq!(complete(), [date()]);
    assert!(!run("b").committed, "the day is already rolled up");
    let before = contents(&rollup).unwrap();
    // the first sample of each series is exactly at the end of a bucket
    assert_eq!(before.len(), 7 * (6 * 3 + 3));
    assert_eq!(column(&rollup, Statistic::Count).iter().sum::<f64>(), 243.0);
    // the values in the fleet are i * i / 8
    assert_eq!(
        column(&rollup, Statistic::Increase)[..3],
        [0.0, (20.0 * 20.0 - 1.0) / 8.0, (39.0 * 39.0 - 21.0 * 21.0) / 8.0]
    );

    commit(&metrics, 1, &[Series::new(&[("__name__", "z")], &[(DAY + 5, 9.0)])]);
    assert_eq!(due(tomorrow), [date()]);
    assert!(complete().is_empty(), "the rollup lacks the late sample");
    let expiring = rollup::due(&metrics, &rollup, tomorrow, DAY + 1).unwrap();
    assert!(expiring.is_empty(), "a rollup of the remaining samples would be less complete");
    assert!(run("c").committed);
    assert_eq!(complete(), [date()]);
    assert_eq!(contents(&rollup).unwrap().len(), before.len() + 7);
    assert_eq!(column(&rollup, Statistic::Count).iter().sum::<f64>(), 244.0);
    assert_eq!(column(&rollup, Statistic::Max).iter().filter(|v| **v == 9.0).count(), 1);

    // the samples expire, but their rollup stays
    metrics.expire(DAY + 2 * tables::DAY_MS).unwrap();
    assert_eq!((metrics.files().unwrap().all().len(), complete()), (0, vec![date()]));
    assert!(due(tomorrow).is_empty());
}

/// The retention is raised after samples have expired: the caller regards all days as whole.
#[test]
fn a_late_sample_of_an_expired_day_does_not_replace_its_rollup() {
    let folders = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (metrics, rollup, width) = (open(&folders.0), rollup_table(&folders.1), Resolution::Hour);
    let due = |metrics: &Table| rollup::due(metrics, &rollup, Date(date().0 + 1), i64::MIN).unwrap();
    let one = |pod: &str, t: i64| [Series::new(&[("__name__", "m"), ("pod", pod)], &[(t, 1.0)])];
    commit(&metrics, 0, &one("early", DAY));
    commit(&metrics, 1, &one("late", DAY + 100));
    assert_eq!(metrics.expired_before_ms().unwrap(), None);
    assert_eq!(due(&metrics), [date()]);
    rollup::run(&metrics, &rollup, date(), width, &stem("a"), &limits(), DAY, &Stop::NEVER, |_| true)
        .unwrap();
    let count = || column(&rollup, Statistic::Count).iter().sum::<f64>();
    assert_eq!(count(), 2.0);

    // a part of the day expires, and samples of the rest are deleted
    assert_eq!(metrics.expire(DAY + 50).unwrap(), 1);
    let gone = Delete { selectors: vec![vec![Matcher::equal("pod", "none")]], range: TimeRange::ALL };
    metrics.delete(&gone, &BTreeMap::new(), true, DAY).unwrap().unwrap();
    rollup::apply_deletes(&metrics.files().unwrap(), &rollup, width, DAY).unwrap();
    for metrics in [&metrics, &open(&folders.0)] {
        assert_eq!((due(metrics), count()), (vec![], 2.0));
        assert_eq!(metrics.expired_before_ms().unwrap(), Some(DAY + 50));
    }

    assert_eq!(metrics.expire(DAY + tables::DAY_MS).unwrap(), 1);
    commit(&metrics, 2, &one("straggler", DAY + 10));
    assert_eq!((due(&metrics), count()), (vec![], 2.0));
    assert_eq!(metrics.expire(DAY + 50).unwrap(), 1, "a longer retention");
    assert_eq!(metrics.expired_before_ms().unwrap(), Some(DAY + tables::DAY_MS));
}

/// In another format, the same numbers may have another meaning, so such a rollup must not be read.
#[test]
fn a_rolled_up_day_in_another_format_is_ignored_and_rebuilt() {
    for floodmark in (0..=4).filter(|format| *format != 3).map(|format| format << 48 | (DAY + 99) as u64) {
        let folder = TempDir::new().unwrap();
        let (metrics, rollup) = (open(&folder), rollup_table(&folder));
        commit(&metrics, 0, &fleet(1, 1, 40));
        let odd = Series::new(&[("$rollup", "count"), ("__name__", "metric_0000")], &[(DAY, 77.0)]);
        let files = vec![stage(&rollup, "odd", &[odd])];
        let source = format!("rollup/{}", date());
        rollup
            .commit(&[StagedBlock { source, after: None, upto: floodmark, through: None, files }], DAY)
            .unwrap();
        let complete = || rollup::days(&metrics.files().unwrap(), &rollup).unwrap().complete;
        assert!(complete().is_empty(), "{floodmark}");
        assert_eq!(rollup::due(&metrics, &rollup, Date(date().0 + 1), i64::MIN).unwrap(), [date()]);
        let run = |name: &str| {
            let (width, limits) = (Resolution::FiveMinutes, limits());
            rollup::run(&metrics, &rollup, date(), width, &stem(name), &limits, DAY, &Stop::NEVER, |_| true)
                .unwrap()
        };
        assert!(run("new").committed && !run("again").committed);
        assert_eq!(complete(), [date()]);
        assert_eq!(column(&rollup, Statistic::Count), [1.0, 20.0, 19.0]);
    }
}

#[test]
fn a_rollup_works_in_little_memory_and_commits_nothing_if_stopped() {
    let folder = TempDir::new().unwrap();
    let (metrics, rollup) = (open(&folder), rollup_table(&folder));
    commit(&metrics, 0, &fleet(40, 100, 60));
    let run = |name: &str, limits: &RollupLimits, go_on: &dyn Fn() -> bool| {
        rollup::run(
            &metrics,
            &rollup,
            date(),
            Resolution::Hour,
            &stem(name),
            limits,
            DAY,
            &Stop::NEVER,
            |_| go_on(),
        )
        .unwrap()
    };
    let cut = run("cut", &limits(), &|| false);
    assert!(!cut.committed && cut.samples < 40 * 100 * 60, "{cut:?}");
    assert!(rollup.files().unwrap().all().is_empty());
    let write = WriteLimits { row_group_bytes: 64 << 10, file_bytes: 1 << 20, open_bytes: 1 << 20 };
    let rolled = run("little", &RollupLimits { window_bytes: 100 << 10, write }, &|| true);
    assert!(rolled.committed);
    let files = rollup.files().unwrap().all().len();
    assert!(files > 7, "{files} files: the largest must be finished early");
    assert_eq!(column(&rollup, Statistic::Count).iter().sum::<f64>(), 240_000.0);
    // files of a past day may be merged, although one commit wrote all of them
    let tomorrow = Date(date().0 + 1);
    let rollup = Arc::new(rollup);
    let jobs = || {
        compact::plan(&ROLLUP, rollup.files().unwrap().all(), tomorrow, &CompactLimits::default(), |_| false)
    };
    for n in 0..10 {
        let Some(job) = jobs().pop() else { break };
        assert!(
            compact::run(
                &rollup,
                &job,
                &stem(&format!("merged-{n}")),
                CompactLimits::default(),
                &Stop::NEVER,
                |_| true
            )
            .unwrap()
            .is_some()
        );
    }
    assert_eq!((jobs(), rollup.files().unwrap().all().len()), (Vec::new(), 1));
    assert_eq!(column(&rollup, Statistic::Count).iter().sum::<f64>(), 240_000.0);
}

/// Expired samples cannot be rolled up again. So a rollup in an old format is still read if its values have the same
/// meaning.
#[test]
fn a_day_in_another_format_without_samples_is_not_complete() {
    for (format, is_complete) in [(0u64, false), (1, false), (2, true), (3, true), (4, false)] {
        let folder = TempDir::new().unwrap();
        let (metrics, rollup) = (open(&folder), rollup_table(&folder));
        let odd = Series::new(&[("$rollup", "count"), ("__name__", "metric_0000")], &[(DAY, 77.0)]);
        let files = vec![stage(&rollup, "odd", &[odd])];
        let (source, upto) = (format!("rollup/{}", date()), format << 48 | DAY as u64);
        rollup.commit(&[StagedBlock { source, after: None, upto, through: None, files }], DAY).unwrap();
        let days = rollup::days(&metrics.files().unwrap(), &rollup).unwrap();
        let (complete, others) = if is_complete { (vec![date()], vec![]) } else { (vec![], vec![date()]) };
        assert_eq!(days, rollup::Days { complete, others }, "format {format}");
    }
}

#[test]
fn a_rollup_says_what_it_leaves_out() {
    let folder = TempDir::new().unwrap();
    let (metrics, rollup) = (open(&folder), rollup_table(&folder));
    let mut series = fleet(2, 1, 5);
    let names: Vec<String> = (0..127).map(|n| format!("l{n:03}")).collect();
    for value in ["x", "y"] {
        let mut full = vec![("__name__", "full")];
        full.extend(names.iter().map(|name| (name.as_str(), value)));
        series.push(Series::new(&full, &[(DAY, 1.0)]));
    }
    series.push(Series::new(&[("$rollup", "sum"), ("__name__", "posing")], &[(DAY, 1.0)]));
    series.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
    commit(&metrics, 0, &series);
    let (width, limits) = (Resolution::Hour, limits());
    let rolled =
        rollup::run(&metrics, &rollup, date(), width, &stem("a"), &limits, DAY, &Stop::NEVER, |_| true)
            .unwrap();
    assert_eq!((rolled.series, rolled.omitted, rolled.committed), (5, 3, true));
    let select = Select { matchers: vec![rollup::left_out_matcher()], ..Select::ALL };
    let cache = Arc::new(Cache::new(0));
    let mut scan = Scan::open(&rollup, &cache, &select, &ScanLimits::default()).unwrap();
    let mut said = Vec::new();
    while scan.next_series().unwrap() {
        let mut samples = Samples::default();
        scan.read(&mut samples).unwrap();
        said.push((scan.labels().get("__name__").unwrap().to_string(), samples.values[0]));
    }
    assert_eq!(said, [("full".into(), 2.0), ("posing".into(), 1.0)]);
    assert_eq!(
        column(&rollup, Statistic::Count).len(),
        4,
        "the two series of the fleet have two buckets each"
    );
}

/// Another instance of the metrics table deletes samples, and the instance that makes the rollup has not seen this
/// yet.
#[test]
fn a_day_rolled_up_after_a_delete_has_none_of_it() {
    let folders = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (metrics, rollup, width) = (open(&folders.0), rollup_table(&folders.1), Resolution::Hour);
    let of = |pod: &str, value: f64| Series::new(&[("__name__", "m"), ("pod", pod)], &[(DAY, value)]);
    commit(&metrics, 0, &[of("a", 1.0), of("b", 2.0)]);
    let other = open(&folders.0);
    let gone = vec![vec![Matcher::equal("pod", "a")]];
    let delete = Delete { selectors: gone, range: TimeRange::ALL };
    other.delete(&delete, &BTreeMap::new(), true, DAY).unwrap().unwrap();
    rollup::apply_deletes(&other.files().unwrap(), &rollup, width, DAY).unwrap();
    let rolled =
        rollup::run(&metrics, &rollup, date(), width, &stem("a"), &limits(), DAY, &Stop::NEVER, |_| true)
            .unwrap();
    assert!(rolled.committed);
    assert_eq!(column(&rollup, Statistic::Max), [2.0]);
}
