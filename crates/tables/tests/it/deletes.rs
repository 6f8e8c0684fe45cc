//! Deletes samples at random, and compares the samples that queries see, and those that are left in files, with a map.

use crate::fleet::{DAY, Series, stem};
use crate::table::{location, open, stage};
use model::{Labels, LabelsRef, Samples, TimeRange};
use query::{MatchOp, Matcher};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stdx::rng::Rng;
use tables::compact::CompactLimits;
use tables::read::{Cursor, Footer, WINDOW_BYTES};
use tables::tombstone::TOMBSTONES_MAX;
use tables::upkeep::{Done, Now, Policy, Step, Upkeep};
use tables::{
    Cache, DAY_MS, Delete, LabelScan, METRICS, Scan, ScanLimits, Select, StagedBlock, Stop, Table,
    TableError, labels,
};
use tempfile::TempDir;

/// Value of each sample (its bits), by series and time.
type Contents = BTreeMap<(String, i64), u64>;

fn contents(table: &Table, cache: &Arc<Cache>, bytes: usize) -> Contents {
    let limits = ScanLimits { bytes, ..ScanLimits::default() };
    let mut scan = Scan::open(table, cache, &Select::ALL, &limits).unwrap();
    let (mut all, mut samples) = (Contents::new(), Samples::default());
    while scan.next_series().unwrap() {
        samples.clear();
        scan.read(&mut samples).unwrap();
        let labels = scan.labels().to_owned().to_string();
        for (t, v) in samples.timestamps.iter().zip(&samples.values) {
            assert_eq!(all.insert((labels.clone(), *t), v.to_bits()), None, "{labels} at {t} twice");
        }
    }
    assert_eq!(scan.warnings().next(), None);
    all
}

/// Series and times of all samples in live files, including deleted ones: this is what other engines see.
fn in_files(table: &Table) -> BTreeSet<(String, i64)> {
    let mut all = BTreeSet::new();
    for live in table.files().unwrap().all() {
        let file = table.file(live).unwrap();
        let footer = Arc::new(Footer::read(&METRICS, &file).unwrap());
        let mut cursor = Cursor::new(file, footer, Arc::new(Select::ALL), WINDOW_BYTES);
        let mut samples = Samples::default();
        while cursor.advance().unwrap() {
            samples.clear();
            cursor.read(&mut samples).unwrap();
            let labels = cursor.labels().to_owned().to_string();
            all.extend(samples.timestamps.iter().map(|t| (labels.clone(), *t)));
        }
    }
    all
}

fn listed(table: &Table, cache: &Arc<Cache>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut series, mut pods) = (BTreeSet::new(), BTreeSet::new());
    let mut add = |found: LabelsRef<'_>| {
        series.insert(found.to_owned().to_string());
        true
    };
    assert!(labels::series(table, cache, &Select::ALL, &mut add).unwrap().is_empty());
    let mut add = |pod: &str| {
        pods.insert(pod.to_string());
        true
    };
    labels::texts(table, cache, &Select::ALL, LabelScan::Values("pod"), &mut add).unwrap();
    (series, pods)
}

fn delete(selectors: &[&[(&str, MatchOp, &str)]], range: TimeRange) -> Delete {
    let matcher = |(name, op, value): &(&str, MatchOp, &str)| Matcher::new(name, *op, value).unwrap();
    Delete { selectors: selectors.iter().map(|s| s.iter().map(matcher).collect()).collect(), range }
}

fn apply(table: &Table, delete: &Delete, now_ms: i64) -> Option<i64> {
    table.delete(delete, &BTreeMap::new(), false, now_ms).unwrap()
}

fn fleet() -> Vec<Labels> {
    let of = |n: usize| {
        let (name, pod) = (format!("m{}", n % 3), format!("p{}", n / 3));
        Labels::from_pairs(&[("__name__", name.as_str()), ("pod", pod.as_str())])
    };
    let mut all: Vec<_> = (0..12).map(of).collect();
    all.sort_by(|a, b| a.as_ref().cmp_in_tables(b.as_ref()));
    all
}

/// Commits samples, and adds them to the model.
fn write(table: &Table, n: u64, rng: &mut Rng, model: &mut Contents) {
    let mut series = Vec::new();
    for labels in fleet() {
        let times: BTreeSet<i64> = (0..rng.below(6)).map(|_| DAY + rng.below(40) as i64).collect();
        let samples: Vec<_> = times.into_iter().map(|t| (t, rng.below(1000) as f64 / 8.0)).collect();
        if rng.chance(0.5) && !samples.is_empty() {
            let pairs: Vec<_> = labels.as_ref().iter().collect();
            let key = labels.to_string();
            model.extend(samples.iter().map(|(t, v)| ((key.clone(), *t), v.to_bits())));
            series.push(Series::new(&pairs, &samples));
        }
    }
    if !series.is_empty() {
        let files = vec![stage(table, &format!("f{n}"), &series)];
        let block = StagedBlock { source: format!("j{n}"), after: None, upto: 1, through: None, files };
        // results must not depend on a clock that jumps
        table.commit(&[block], DAY + rng.below(100) as i64).unwrap();
    }
}

fn draw(rng: &mut Rng) -> Delete {
    let (name, pod) = (format!("m{}", rng.below(4)), format!("p[{}{}]", rng.below(4), rng.below(5)));
    let (from, to) = (rng.below(50) as i64 - 5, rng.below(50) as i64);
    let range = if rng.chance(0.3) { TimeRange::ALL } else { TimeRange::new(DAY + from, DAY + from.max(to)) };
    match rng.below(5) {
        0 => delete(&[&[("__name__", MatchOp::Equal, &name)]], range),
        4 => Delete { range, ..Delete::everything() },
        1 => delete(&[&[("pod", MatchOp::Regex, &pod)]], range),
        2 => delete(&[&[("__name__", MatchOp::NotEqual, &name), ("pod", MatchOp::Regex, &pod)]], range),
        _ => delete(&[&[("__name__", MatchOp::Equal, &name)], &[("pod", MatchOp::Equal, "p2")]], range),
    }
}

fn policy(today_is_over: bool) -> (Now, Policy) {
    let limits = CompactLimits { files_min: 2, ..CompactLimits::default() };
    let wall_ms = if today_is_over { DAY + 2 * DAY_MS } else { DAY };
    (Now { wall_ms, steady_ms: 0 }, Policy { compact: Some(limits), grace_ms: 0, ..Policy::default() })
}

/// Runs at most `most` due steps. Returns how many steps for data were due.
fn keep(table: &Arc<Table>, upkeep: &mut Upkeep, rng: &mut Rng, most: usize, n: &mut u32) -> usize {
    let (now, policy) = policy(rng.chance(0.3));
    let steps = upkeep.plan(table, now, &policy).unwrap();
    let is_of_data =
        |s: &&Step| matches!(s, Step::DropDeleted | Step::Compact(_) | Step::Purge(_) | Step::EndDeletes);
    let due = steps.iter().filter(is_of_data).count();
    for step in steps.iter().take(most) {
        *n += 1;
        let done = upkeep.run(table, step, &stem(&format!("u{n}")), now, &policy, |_| true).unwrap();
        assert!(!matches!(done, Done::Damaged(_)), "{done:?}");
    }
    due
}

#[test]
fn deletes_hide_and_remove_only_earlier_samples() {
    let mut rng = Rng::announced();
    for _ in 0..40 {
        let folder = TempDir::new().unwrap();
        let mut table = open(&folder);
        let mut upkeep = Upkeep::new();
        let (mut model, mut n) = (Contents::new(), 0);
        let cache = Arc::new(Cache::new(1 << 20));
        for step in 0..25 {
            match rng.below(10) {
                0..4 => write(&table, step, &mut rng, &mut model),
                4..6 => {
                    let delete = draw(&mut rng);
                    apply(&table, &delete, DAY + rng.below(100) as i64);
                    let series: BTreeMap<_, _> = fleet().into_iter().map(|l| (l.to_string(), l)).collect();
                    model.retain(|(labels, t), _| {
                        !(delete.selects(series[labels].as_ref()) && delete.range.contains(*t))
                    });
                }
                6..8 => {
                    let most = rng.below(4) as usize;
                    keep(&table, &mut upkeep, &mut rng, most, &mut n);
                }
                8 => {
                    table.checkpoint().unwrap();
                }
                _ => {
                    table = Arc::new(Table::open(&METRICS, location(&folder)).unwrap().unwrap());
                    upkeep = Upkeep::new();
                }
            }
            let bytes = if rng.chance(0.3) { 40 << 10 } else { 64 << 20 };
            assert_eq!(contents(&table, &cache, bytes), model);
            let expected: BTreeSet<String> = model.keys().map(|(labels, _)| labels.clone()).collect();
            let (series, _) = listed(&table, &cache);
            assert!(series.is_superset(&expected));
        }
        while keep(&table, &mut upkeep, &mut rng, usize::MAX, &mut n) > 0 {}
        assert_eq!(table.files().unwrap().tombstones().list, []);
        assert_eq!(contents(&table, &cache, 64 << 20), model);
        assert_eq!(in_files(&table), model.keys().cloned().collect());
    }
}

fn fill(table: &Table) {
    for n in 0..3 {
        let of = |labels: &Labels| {
            let pairs: Vec<_> = labels.as_ref().iter().collect();
            let samples: Vec<_> = (0..10).map(|t| (DAY + 10 * n + t, t as f64)).collect();
            Series::new(&pairs, &samples)
        };
        let series: Vec<_> = fleet().iter().map(of).collect();
        let files = vec![stage(table, &format!("f{n}"), &series)];
        let block = StagedBlock { source: format!("j{n}"), after: None, upto: 1, through: None, files };
        table.commit(&[block], DAY + n).unwrap();
    }
}

#[test]
fn labels_of_deleted_series_are_listed_no_more() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    let cache = Arc::new(Cache::new(1 << 20));
    // with and without cached indexes
    for _ in 0..3 {
        assert_eq!(listed(&table, &cache).0.len(), 12);
    }
    let one = |range| delete(&[&[("pod", MatchOp::Equal, "p1")]], range);
    apply(&table, &one(TimeRange::new(DAY, DAY + 24)), DAY + 50).unwrap();
    assert_eq!(listed(&table, &cache).0.len(), 12, "series with remaining samples are still listed");
    let late = Select { range: TimeRange::new(DAY + 20, DAY + 24), ..Select::ALL };
    let mut found = 0;
    let mut count = |_: LabelsRef<'_>| {
        found += 1;
        true
    };
    labels::series(&table, &cache, &late, &mut count).unwrap();
    assert_eq!(found, 9, "series without samples in the range are not listed");
    apply(&table, &one(TimeRange::new(DAY + 25, DAY + 40)), DAY + 51).unwrap();
    for table in [&table, &open(&folder)] {
        let (series, pods) = listed(table, &cache);
        assert_eq!((series.len(), pods.len()), (9, 3));
        assert!(!pods.contains("p1"));
    }
}

#[test]
fn each_file_is_rewritten_once_for_all_deletes_and_untouched_ones_stay() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    let before: Vec<_> = table.files().unwrap().all().iter().map(|f| f.path.clone()).collect();
    // deletes samples of two pods, then samples that no file has
    apply(&table, &delete(&[&[("pod", MatchOp::Equal, "p1")]], TimeRange::new(DAY, DAY + 12)), DAY).unwrap();
    apply(&table, &delete(&[&[("pod", MatchOp::Equal, "p2")]], TimeRange::new(DAY, DAY + 12)), DAY).unwrap();
    apply(&table, &delete(&[&[("pod", MatchOp::Equal, "none")]], TimeRange::ALL), DAY).unwrap();
    assert_eq!(apply(&table, &delete(&[&[("__name__", MatchOp::Equal, "x")]], TimeRange::ALL), DAY), None);
    let (now, policy) = policy(false);
    let policy =
        Policy { compact: Some(CompactLimits { files_min: 100, ..CompactLimits::default() }), ..policy };
    let mut upkeep = Upkeep::new();
    let (mut rewritten, mut clean, mut n) = (0, 0, 0);
    loop {
        let mut is_done = true;
        for step in upkeep.plan(&table, now, &policy).unwrap() {
            n += 1;
            match upkeep.run(&table, &step, &stem(&format!("u{n}")), now, &policy, |_| true).unwrap() {
                Done::Compacted(_) => (rewritten, is_done) = (rewritten + 1, false),
                Done::Clean => (clean, is_done) = (clean + 1, false),
                Done::Deleted(ended) => assert_eq!(ended, 3),
                _ => {}
            }
        }
        if is_done {
            break;
        }
    }
    assert_eq!((rewritten, clean), (2, 1));
    let files = table.files().unwrap();
    assert_eq!(files.tombstones().list, []);
    let kept: Vec<_> = files.all().iter().filter(|f| before.contains(&f.path)).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(in_files(&table).len(), 12 * 30 - 6 * 13);
}

fn parquet_files(folder: &TempDir) -> usize {
    let days = std::fs::read_dir(folder.path().join("tenant")).unwrap().map(|day| day.unwrap().path());
    let days = days.filter(|path| path.is_dir() && !path.to_string_lossy().contains("/_"));
    days.map(|day| std::fs::read_dir(day).unwrap().count()).sum()
}

#[test]
fn files_that_a_delete_covers_are_dropped_without_being_read() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    for n in 0..TOMBSTONES_MAX as i64 {
        let range = TimeRange::new(DAY + n % 30, DAY + n % 30);
        apply(&table, &delete(&[&[("pod", MatchOp::Equal, "p0")]], range), DAY).unwrap();
    }
    let damaged = folder.path().join("tenant").join(&table.files().unwrap().all()[0].path);
    std::fs::write(damaged, b"damaged").unwrap();
    let sequence = apply(&table, &Delete::everything(), DAY).unwrap();
    let pending = |table: &Table| table.files().unwrap().tombstones().list.len();
    assert_eq!(pending(&table), 1, "it replaces the earlier ones");
    assert!(contents(&table, &Arc::new(Cache::new(0)), 64 << 20).is_empty());
    let (mut rng, mut model) = (Rng::announced(), Contents::new());
    while model.is_empty() {
        write(&table, 100, &mut rng, &mut model);
    }
    assert!(table.remove_fully_deleted(sequence - 1).unwrap().is_empty(), "a rollup has not taken it in yet");
    let reading = table.files().unwrap();
    let dropped = table.remove_fully_deleted(sequence).unwrap();
    assert_eq!((dropped.len(), parquet_files(&folder)), (3, 4));
    assert!(table.remove_fully_deleted(sequence).unwrap().is_empty());
    assert_eq!(table.erase(&dropped).unwrap(), 0, "they are being read");
    drop(reading);
    assert_eq!(table.erase(&dropped).unwrap(), dropped.iter().map(|file| file.bytes).sum::<u64>());
    assert_eq!((table.erase(&dropped).is_ok(), parquet_files(&folder)), (true, 1));
    let (mut upkeep, mut n) = (Upkeep::new(), 0);
    while keep(&table, &mut upkeep, &mut rng, usize::MAX, &mut n) > 0 {}
    for table in [&table, &open(&folder)] {
        assert_eq!((pending(table), contents(table, &Arc::new(Cache::new(0)), 64 << 20)), (0, model.clone()));
    }
}

#[test]
fn upkeep_drops_covered_files_once_the_delete_is_needed_nowhere_else() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    let all_but_the_last = TimeRange::new(i64::MIN, DAY + 25);
    let sequence = apply(&table, &Delete { range: all_but_the_last, ..Delete::everything() }, DAY).unwrap();
    let (now, policy) = policy(true);
    let mut upkeep = Upkeep::new();
    let mut plan = |deletes_upto| upkeep.plan(&table, now, &Policy { deletes_upto, ..policy }).unwrap();
    let reads = |steps: &[Step]| {
        let jobs = steps.iter().filter_map(|step| match step {
            Step::Compact(job) | Step::Purge(job) => Some(job.files.len()),
            _ => None,
        });
        jobs.sum::<usize>()
    };
    let early = plan(sequence - 1);
    assert!(!early.contains(&Step::DropDeleted), "{early:?}");
    let late = plan(sequence);
    assert!(late.contains(&Step::DropDeleted), "{late:?}");
    assert_eq!((reads(&early), reads(&late)), (1, 1), "only the file that has samples of other times");
    let (mut rng, mut n) = (Rng::announced(), 0);
    while keep(&table, &mut upkeep, &mut rng, usize::MAX, &mut n) > 0 {}
    assert_eq!(in_files(&table).len(), 12 * 4);
}

/// While rows are compared with the patterns of deletes, no samples are merged, so `go_on` is not asked.
#[test]
fn a_merge_or_rewrite_can_be_stopped_between_rows() {
    let (now, policy) = policy(true);
    for files_min in [2, 100] {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        fill(&table);
        apply(&table, &delete(&[&[("pod", MatchOp::Regex, "p[0-9]")]], TimeRange::new(DAY, DAY + 12)), DAY)
            .unwrap();
        let limits = CompactLimits { files_min, ..CompactLimits::default() };
        let now = Now { wall_ms: if files_min == 2 { now.wall_ms } else { DAY }, ..now };
        let policy = Policy { compact: Some(limits), ..policy };
        let mut upkeep = Upkeep::new();
        let steps = upkeep.plan(&table, now, &policy).unwrap();
        let jobs: Vec<_> = steps.iter().filter(|s| matches!(s, Step::Compact(_) | Step::Purge(_))).collect();
        assert!(!jobs.is_empty());
        let before = table.files().unwrap().all().to_vec();
        for checks in 0..4 {
            let asked = AtomicUsize::new(0);
            upkeep.stop_when(Stop::when(move || asked.fetch_add(1, Ordering::Relaxed) >= checks));
            let name = stem(&format!("stopped-{files_min}-{checks}"));
            let done = upkeep.run(&table, jobs[0], &name, now, &policy, |_| true).unwrap();
            assert_eq!((done, table.files().unwrap().all()), (Done::Abandoned, &before[..]), "{checks}");
        }
        upkeep.stop_when(Stop::NEVER);
        let done = upkeep.run(&table, jobs[0], &stem(&format!("all-{files_min}")), now, &policy, |_| true);
        assert!(matches!(done.unwrap(), Done::Compacted(_)));
    }
}

#[test]
fn files_that_are_dropped_under_a_merge_are_not_taken_for_damaged_ones() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    let (now, policy) = policy(true);
    let mut upkeep = Upkeep::new();
    let plan = upkeep.plan(&table, now, &policy).unwrap();
    let Step::Compact(job) = &plan[0] else { panic!("{plan:?}") };
    let mut merge =
        tables::compact::Compaction::open(&table, job, &stem("late"), policy.compact.unwrap()).unwrap();
    let sequence = apply(&table, &Delete::everything(), DAY).unwrap();
    let dropped = table.remove_fully_deleted(sequence).unwrap();
    assert_eq!((dropped.len(), table.erase(&dropped).unwrap()), (3, 0), "they are being merged");
    while !merge.step(100).unwrap().done {}
    drop(merge);
    assert!(table.erase(&dropped).unwrap() > 0);
    for step in [Step::Compact(job.clone()), Step::Purge(job.clone())] {
        let done = upkeep.run(&table, &step, &stem("later"), now, &policy, |_| true).unwrap();
        assert_eq!((done, upkeep.damaged().count()), (Done::Abandoned, 0), "{step:?}");
    }
}

#[test]
fn a_merge_that_began_before_a_delete_brings_nothing_back() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    let (now, policy) = policy(true);
    let mut upkeep = Upkeep::new();
    let plan = upkeep.plan(&table, now, &policy).unwrap();
    let Step::Compact(job) = &plan[0] else { panic!("{plan:?}") };
    let mut merge =
        tables::compact::Compaction::open(&table, job, &stem("late"), policy.compact.unwrap()).unwrap();
    while !merge.step(100).unwrap().done {}
    // another process deletes samples while the merge runs
    let other = open(&folder);
    apply(&other, &delete(&[&[("__name__", MatchOp::Equal, "m1")]], TimeRange::ALL), DAY).unwrap();
    assert!(table.replace(&job.files, &merge.into_staged()).unwrap());
    let cache = Arc::new(Cache::new(0));
    for table in [&table, &open(&folder)] {
        assert_eq!(contents(table, &cache, 64 << 20).len(), 8 * 30);
    }
    let (mut rng, mut n) = (Rng::announced(), 0);
    while keep(&table, &mut upkeep, &mut rng, usize::MAX, &mut n) > 0 {}
    assert_eq!(in_files(&table).len(), 8 * 30);
}

#[test]
fn deletes_of_two_processes_both_count_and_are_bounded() {
    let folder = TempDir::new().unwrap();
    let (table, other) = (open(&folder), open(&folder));
    fill(&table);
    for n in 0..TOMBSTONES_MAX / 2 {
        let one =
            |pod: &str, t: i64| delete(&[&[("pod", MatchOp::Equal, pod)]], TimeRange::new(DAY + t, DAY + t));
        apply(&table, &one("p0", n as i64 % 30), DAY).unwrap();
        apply(&other, &one("p1", n as i64 % 30), DAY).unwrap();
    }
    let more = delete(&[&[("pod", MatchOp::Equal, "p2")]], TimeRange::ALL);
    let refused = table.delete(&more, &BTreeMap::new(), false, DAY).unwrap_err();
    assert!(matches!(refused, TableError::TooManyDeletes { .. }), "{refused}");
    assert_eq!(refused.kind(), model::ErrorKind::Unavailable);
    let sequences: Vec<_> = {
        let files = table.files().unwrap();
        files.tombstones().list.iter().map(|t| t.sequence).collect()
    };
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
    assert_eq!(contents(&table, &Arc::new(Cache::new(0)), 64 << 20).len(), 6 * 30);
    let long = "x".repeat(tables::tombstone::SELECTOR_BYTES_MAX);
    let long = delete(&[&[("pod", MatchOp::Equal, &long)]], TimeRange::ALL);
    assert!(matches!(table.delete(&long, &BTreeMap::new(), false, DAY), Err(TableError::TooLarge { .. })));
}

#[test]
fn a_lost_list_of_deletes_is_an_error() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table);
    apply(&table, &delete(&[&[("pod", MatchOp::Equal, "p0")]], TimeRange::ALL), DAY).unwrap();
    drop(table);
    let list =
        std::fs::read_dir(folder.path().join("tenant/_floodmark")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read(&list).unwrap();
    for damage in [None, Some(&b"{}"[..])] {
        match damage {
            None => std::fs::remove_file(&list).unwrap(),
            Some(bytes) => std::fs::write(&list, bytes).unwrap(),
        }
        let error = Table::open(&METRICS, location(&folder)).unwrap_err();
        assert!(
            matches!(error, TableError::Log { .. }) && error.to_string().contains("tombstones-"),
            "{error}"
        );
    }
    std::fs::write(&list, text).unwrap();
    assert_eq!(contents(&open(&folder), &Arc::new(Cache::new(0)), 64 << 20).len(), 9 * 30);
}

#[test]
fn a_label_of_rollups_is_any_label_among_samples() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let of = |name: &str, value: &str| Series::new(&[("$rollup", value), ("__name__", name)], &[(DAY, 1.0)]);
    let series = [of("m", "keep"), of("m", "left_out"), of("n", "left_out")];
    let files = vec![stage(&table, "f", &series)];
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, through: None, files };
    table.commit(&[block], DAY).unwrap();
    let not_kept: &[_] = &[("__name__", MatchOp::Equal, "m"), ("$rollup", MatchOp::NotEqual, "keep")];
    apply(&table, &delete(&[not_kept], TimeRange::ALL), DAY).unwrap();
    apply(&table, &delete(&[&[("__name__", MatchOp::Equal, "n")]], TimeRange::ALL), DAY).unwrap();
    let left = contents(&table, &Arc::new(Cache::new(0)), 64 << 20);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left.keys().all(|(labels, _)| labels.contains("keep")), "{left:?}");
}
