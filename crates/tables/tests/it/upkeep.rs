//! Checks that merges, expiry and sweeps change no samples within the retention period.

use crate::fleet::{DAY, Series, date, fleet, stem};
use crate::other;
use crate::table::{open, stage};
use model::Samples;
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::rng::Rng;
use tables::METRICS;
use tables::compact::{self, CompactLimits, Compaction, Job};
use tables::delta::{Cleaned, StagedBlock, Sweeper, Swept, Table};
use tables::live_file::LiveFile;
use tables::upkeep::{Done, Now, Policy, Upkeep};
use tables::{Cache, Date, Scan, ScanLimits, Select, Stop, TableError};
use tempfile::TempDir;

pub(crate) fn contents(table: &Table) -> Result<BTreeMap<(String, i64), u64>, TableError> {
    let cache = Arc::new(Cache::new(1 << 20));
    let mut scan = Scan::open(table, &cache, &Select::ALL, &ScanLimits::default())?;
    let mut found = BTreeMap::new();
    while scan.next_series()? {
        let mut samples = Samples::default();
        scan.read(&mut samples)?;
        let labels = scan.labels().to_owned().to_string();
        for (t, v) in samples.timestamps.iter().zip(&samples.values) {
            assert!(found.insert((labels.clone(), *t), v.to_bits()).is_none(), "a sample is returned twice");
        }
    }
    assert_eq!(scan.warnings().next(), None);
    Ok(found)
}

fn jobs(table: &Table, today: Date) -> Vec<Job> {
    compact::plan(&METRICS, table.files().unwrap().all(), today, &CompactLimits::default(), |_| false)
}

/// Runs a compaction job. Returns false if one of its files is gone.
fn merge(table: &Arc<Table>, job: &Job, name: &str) -> bool {
    compact::run(table, job, &stem(name), CompactLimits::default(), &Stop::NEVER, |_| true).unwrap().is_some()
}

/// Commits the samples of all series in `blocks` blocks, each of which has a slice of every series.
fn fill(table: &Table, series: &[Series], blocks: usize) {
    (0..blocks).for_each(|n| fill_slice(table, series, blocks, n));
}

fn fill_slice(table: &Table, series: &[Series], blocks: usize, n: usize) {
    let len = series[0].timestamps.len() / blocks;
    let part = |s: &Series| Series {
        labels: s.labels.clone(),
        timestamps: s.timestamps[n * len..(n + 1) * len].to_vec(),
        values: s.values[n * len..(n + 1) * len].to_vec(),
    };
    let part: Vec<_> = series.iter().map(part).collect();
    let files = vec![stage(table, &format!("part-{n}"), &part)];
    let after = n.checked_sub(1).map(|n| n as u64);
    let block = StagedBlock { source: "j".into(), after, upto: n as u64, through: None, files };
    table.commit(&[block], DAY + n as i64).unwrap();
}

#[test]
fn a_merge_keeps_every_sample() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series = fleet(5, 7, 600);
    fill(&table, &series, 6);
    let before = contents(&table).unwrap();
    assert_eq!(before.len(), 5 * 7 * 600);
    let small = live_bytes(&table);

    let planned = jobs(&table, date());
    assert_eq!((planned.len(), planned[0].files.len()), (1, 6));
    assert!(merge(&table, &planned[0], "merged"));
    assert_eq!(table.files().unwrap().all().len(), 1);
    let large = live_bytes(&table);
    assert!(large < small / 2, "{large} of {small}");
    assert_eq!(contents(&open(&folder)).unwrap(), before);
    // the job was done before, so its files are gone
    assert!(!merge(&table, &planned[0], "again"));
    assert_eq!(contents(&table).unwrap(), before);
}

#[test]
fn the_later_of_two_samples_stays() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let one = |value: f64| Series::new(&[("__name__", "m")], &[(DAY, value), (DAY + value as i64, value)]);
    for (n, value) in [(0, 5.0), (1, 7.0), (2, 6.0)] {
        let files = vec![stage(&table, &format!("f{n}"), &[one(value)])];
        let block = StagedBlock { source: format!("j{n}"), after: None, upto: 1, through: None, files };
        table.commit(&[block], DAY + n).unwrap();
    }
    let planned = jobs(&table, Date(date().0 + 1));
    assert!(merge(&table, &planned[0], "merged"));
    let values: Vec<_> =
        contents(&table).unwrap().into_iter().map(|((_, t), v)| (t - DAY, f64::from_bits(v))).collect();
    assert_eq!(values, [(0, 6.0), (5, 5.0), (6, 6.0), (7, 7.0)]);
}

#[test]
fn dead_files_are_swept_after_their_grace() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table, &fleet(2, 2, 40), 4);
    let staged = stage(&table, "never-committed", &fleet(1, 1, 1));
    let planned = jobs(&table, date());
    assert!(merge(&table, &planned[0], "merged"));
    let before = contents(&table).unwrap();
    let mut sweeper = Sweeper::default();
    let waiting = Swept { files: 0, bytes: 0, waiting: 5 };
    assert_eq!(sweeper.sweep(&table, 1000, 100).unwrap(), waiting);
    assert_eq!(sweeper.sweep(&table, 1099, 100).unwrap(), waiting);
    let swept = sweeper.sweep(&table, 1100, 100).unwrap();
    assert_eq!((swept.files, swept.waiting), (5, 0));
    assert_eq!(sweeper.sweep(&table, 9999, 100).unwrap(), Swept::default());
    assert!(!folder.path().join("tenant").join(staged.path).exists());
    assert_eq!(contents(&open(&folder)).unwrap(), before);
}

#[test]
fn old_days_expire() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table, &fleet(1, 1, 4), 2);
    assert_eq!(table.expire(DAY).unwrap(), 0);
    assert_eq!(table.expire(DAY + tables::DAY_MS).unwrap(), 2);
    assert!(contents(&open(&folder)).unwrap().is_empty());
    assert_eq!(
        table.floodmarks(["j"]).unwrap()["j"],
        1,
        "the floodmark stays, so expired samples are not stored again"
    );
}

/// Runs upkeep until no step is due.
fn keep_up(upkeep: &mut Upkeep, table: &Arc<Table>, now: Now, policy: &Policy) -> Vec<Done> {
    let mut all = Vec::new();
    for round in 0..10 {
        let steps = upkeep.plan(table, now, policy).unwrap();
        if steps.is_empty() {
            return all;
        }
        for (n, step) in steps.iter().enumerate() {
            let name = format!("merged-{}-{}-{round}-{n}", now.wall_ms, now.steady_ms);
            all.push(upkeep.run(table, step, &stem(&name), now, policy, |_| true).unwrap());
        }
    }
    panic!("upkeep does not end");
}

#[test]
fn upkeep_merges_sweeps_and_expires() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series = fleet(3, 4, 60);
    (0..3).for_each(|n| fill_slice(&table, &series, 6, n));
    table.checkpoint().unwrap();
    (3..6).for_each(|n| fill_slice(&table, &series, 6, n));
    let before = contents(&table).unwrap();
    const HOUR: i64 = 3_600_000;
    let at = |wall_ms, steady_ms| Now { wall_ms, steady_ms };
    // log entries have the real time, which is far ahead of the test's, so this limit makes all of them old
    let policy = Policy { checkpoint_every: 3, log_keep_ms: -1_000_000_000_000, ..Policy::default() };
    let mut upkeep = Upkeep::new();
    let done = keep_up(&mut upkeep, &table, at(DAY + HOUR, 0), &policy);
    assert!(done.iter().any(|d| matches!(d, Done::Compacted(p) if p.samples == 720)), "{done:?}");
    assert!(done.contains(&Done::Checkpointed), "{done:?}");
    // a wall clock a month ahead must not make anything old
    let jump = keep_up(&mut upkeep, &table, at(DAY + 720 * HOUR, HOUR / 4), &policy);
    let waits = [Done::Cleaned(Cleaned::default()), Done::Swept(Swept { files: 0, bytes: 0, waiting: 6 })];
    assert_eq!(jump, waits);
    let later = keep_up(&mut upkeep, &table, at(DAY + 2 * HOUR, HOUR + 1), &policy);
    assert!(later.iter().any(|d| matches!(d, Done::Swept(s) if s.files == 6 && s.waiting == 0)), "{later:?}");
    assert!(later.iter().any(|d| matches!(d, Done::Cleaned(c) if c.files == 3)), "{later:?}");
    for table in [&table, &open(&folder)] {
        assert_eq!(contents(table).unwrap(), before);
        assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 5);
    }
    let policy = Policy { expire_before_ms: Some(DAY + 47 * HOUR), ..policy };
    let last = keep_up(&mut upkeep, &table, at(DAY + 48 * HOUR, HOUR + 2), &policy);
    assert!(last.contains(&Done::Expired(1)), "{last:?}");
    assert!(contents(&open(&folder)).unwrap().is_empty());
}

#[derive(Debug, Default)]
struct Merged {
    jobs: u64,
    bytes: u64,
    job_most: u64,
    held_most: usize,
}

/// Merges until nothing is left to do. If `dies`, merges only once, and dies in the middle of the last job.
fn merge_all(table: &Arc<Table>, today: Date, limits: &CompactLimits, dies: bool, merged: &mut Merged) {
    for _ in 0..50 {
        let jobs = compact::plan(&METRICS, table.files().unwrap().all(), today, limits, |_| false);
        for (n, job) in jobs.iter().enumerate() {
            merged.jobs += 1;
            merged.job_most = merged.job_most.max(job.bytes());
            let mut merge =
                Compaction::open(table, job, &stem(&format!("merged-{}", merged.jobs)), *limits).unwrap();
            while !merge.step(5000).unwrap().done {
                merged.held_most = merged.held_most.max(merge.held_bytes());
                if dies && n + 1 == jobs.len() {
                    return;
                }
            }
            let staged = merge.into_staged();
            merged.bytes += staged.iter().map(|f| f.summary.bytes).sum::<u64>();
            assert!(table.replace(&job.files, &staged).unwrap());
        }
        if jobs.is_empty() {
            return;
        }
    }
    panic!("merging does not end");
}

/// A scaled-down day of a large tenant: files have 320 KiB, and a merge takes four of them.
#[test]
fn a_large_day_is_merged_in_pieces_and_what_is_done_stays_done() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut rng = Rng::new(1);
    let (metrics, pods, slices) = (40, 100, 32);
    let mut series = fleet(metrics, pods, slices * 3);
    series.iter_mut().flat_map(|s| &mut s.values).for_each(|value| *value = rng.unit());
    let limits = CompactLimits {
        file_bytes: 320 << 10,
        job_bytes: 1280 << 10,
        row_group_bytes: 64 << 10,
        window_bytes: 8 << 10,
        ..CompactLimits::default()
    };
    let (mut sealed, mut merged) = (0, Merged::default());
    for n in 0..slices as usize {
        let before = live_bytes(&table);
        fill_slice(&table, &series, slices as usize, n);
        sealed += live_bytes(&table) - before;
        merge_all(&table, date(), &limits, n % 3 == 2, &mut merged);
    }
    let tomorrow = Date(date().0 + 1);
    merge_all(&table, tomorrow, &limits, true, &mut merged);
    merge_all(&table, tomorrow, &limits, false, &mut merged);
    assert_eq!(count(&open(&folder)), series.len() * 3 * slices as usize);
    let files = table.files().unwrap();
    let has = |file: &LiveFile, name: &str| {
        let (first, last) = file.names.as_ref().unwrap();
        first.as_str() <= name && name <= last.as_str()
    };
    let of = |name: &str| files.all().iter().filter(|file| has(file, name)).count();
    let of_a_metric = (0..metrics).map(|n| of(&format!("metric_{n:04}"))).max().unwrap();
    let (live, count) = (live_bytes(&table), files.all().len());
    println!("sealed {sealed} bytes, {merged:?}, live {live} in {count} files, {of_a_metric} of a metric");
    assert!(merged.job_most <= limits.job_bytes && merged.jobs > 20);
    assert!(of_a_metric <= 3 && count > 6);
    assert!(merged.held_most <= limits.memory_bytes());
}

fn count(table: &Table) -> usize {
    let mut scan = Scan::open(table, &Arc::new(Cache::new(0)), &Select::ALL, &ScanLimits::default()).unwrap();
    let (mut found, mut samples) = (0, Samples::default());
    while scan.next_series().unwrap() {
        samples.clear();
        scan.read(&mut samples).unwrap();
        assert!(samples.timestamps.is_sorted_by(|a, b| a < b));
        found += samples.len();
    }
    assert_eq!(scan.warnings().next(), None);
    found
}

fn live_bytes(table: &Table) -> u64 {
    table.files().unwrap().all().iter().map(|f| f.bytes).sum()
}

/// Commits `rewritten` small files that have different values for the same sample, and a large file that overrides them
/// all. Another engine then rewrites the small files, and four more files are committed. Merges must change no sample.
fn merge_rewritten(rewritten: u64, today: Date) -> Vec<LiveFile> {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let commit = |n: u64, series: &[Series]| {
        let files = vec![stage(&table, &format!("f{n}"), series)];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
        table.commit(&[block], DAY + n as i64).unwrap();
    };
    let mut rng = Rng::new(5);
    let mut all = fleet(20, 20, 100);
    all.iter_mut().flat_map(|s| &mut s.values).for_each(|value| *value = rng.unit());
    let sample =
        |at_ms: i64, value: f64| Series { timestamps: vec![at_ms], values: vec![value], ..all[0].clone() };
    (0..rewritten).for_each(|n| commit(n, &[sample(DAY, -1.0 - n as f64)]));
    commit(rewritten, &all);
    for (file, n) in table.files().unwrap().all()[..rewritten as usize].iter().zip(1..) {
        let copy = other::stage_copy(&folder, file, &format!("part-{n:05}"));
        other::replace(&folder, table.version() + n, file, &copy, DAY + 1_000_000 + n as i64);
    }
    table.refresh().unwrap();
    (1..=4).for_each(|n| commit(rewritten + n, &[sample(DAY + 1_500_000 + n as i64, 1.0)]));
    let limits = CompactLimits { file_bytes: 256 << 10, ..CompactLimits::default() };
    assert!(table.files().unwrap().all().iter().any(|file| file.bytes >= limits.file_bytes));
    let before = contents(&table).unwrap();
    assert_eq!(before[&(all[0].labels.to_string(), DAY)], all[0].values[0].to_bits());
    merge_all(&table, today, &limits, false, &mut Merged::default());
    assert_eq!(contents(&open(&folder)).unwrap(), before, "{:?}", table.files());
    table.files().unwrap().all().to_vec()
}

#[test]
fn no_merge_brings_back_a_sample_that_was_overwritten_before_another_engine_rewrote_it() {
    for today in [date(), Date(date().0 + 1)] {
        let files = merge_rewritten(1, today);
        let is_early: Vec<_> = files.iter().map(|file| file.is_early).collect();
        assert_eq!(is_early, [true, false, false], "the four small files are now one: {files:?}");
    }
}

#[test]
fn files_that_another_engine_rewrote_stay_early_when_they_are_merged() {
    let files = merge_rewritten(4, date());
    let is_early: Vec<_> = files.iter().map(|file| file.is_early).collect();
    assert_eq!(is_early, [true, false, false], "{files:?}");
    assert!(!files[0].path.contains("part-"), "the rewritten files were not merged: {files:?}");
}

#[test]
fn a_damaged_file_is_left_alone_and_named() {
    damaged_file(|len| len / 2);
}

#[test]
fn empty_file_is_left_alone_and_named() {
    damaged_file(|_| 0);
}

fn damaged_file(left: impl Fn(usize) -> usize) {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    fill(&table, &fleet(1, 1, 60), 6);
    let bad = table.files().unwrap().all()[2].path.clone();
    let path = folder.path().join("tenant").join(&bad);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..left(bytes.len())]).unwrap();
    let mut upkeep = Upkeep::new();
    let now = Now { wall_ms: DAY + 2 * tables::DAY_MS, steady_ms: 0 };
    let done = keep_up(&mut upkeep, &table, now, &Policy::default());
    assert!(done.contains(&Done::Damaged(bad.clone())), "{done:?}");
    assert_eq!(upkeep.damaged().map(|(file, _)| file).collect::<Vec<_>>(), [bad.as_str()]);
    assert_eq!(
        table.files().unwrap().all().len(),
        3,
        "files before and after the damaged one are merged separately"
    );
    let cache = Arc::new(Cache::new(0));
    let mut scan = Scan::open(&table, &cache, &Select::ALL, &ScanLimits::default()).unwrap();
    let mut samples = Samples::default();
    while scan.next_series().unwrap() {
        scan.read(&mut samples).unwrap();
    }
    assert_eq!(samples.len(), 50, "the other files are read");
    let warnings: Vec<_> = scan.warnings().collect();
    assert!(warnings.len() == 1 && warnings[0].contains(&bad), "{warnings:?}");
}

#[test]
fn a_clock_that_jumps_back_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for (n, now) in [(0u64, DAY), (1, DAY - 1_000_000), (2, 5)] {
        let series = [Series::new(&[("__name__", "m")], &[(DAY, n as f64)])];
        let files = vec![stage(&table, &format!("f{n}"), &series)];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
        // commits as another process, which knows only the log
        open(&folder).commit(&[block], now).unwrap();
        table.refresh().unwrap();
    }
    let read = |table: &Table| contents(table).unwrap().into_values().map(f64::from_bits).collect::<Vec<_>>();
    assert_eq!(read(&table), [2.0]);
    let planned = jobs(&table, Date(date().0 + 1));
    assert!(merge(&table, &planned[0], "merged"));
    assert_eq!(read(&open(&folder)), [2.0]);
}
