//! Tests scans and listings of many files with little memory.

use crate::fleet::{DAY, Series, fleet, stem};
use crate::table::{open, stage};
use model::{ErrorKind, Labels, LabelsRef, Samples, TimeRange};
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::DAY_MS;
use tables::{
    BlockStager, Cache, LabelScan, Matcher, Scan, ScanLimits, Select, StagedBlock, Table, WriteLimits, labels,
};
use tempfile::TempDir;

const DAYS: i64 = 365;

/// Fills a table with one file for each day of a year.
fn year(folder: &TempDir) -> (Arc<Table>, Vec<Series>) {
    let table = open(folder);
    let one = |n: i64| {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("pod", &format!("pod-{n}"))]);
        let sample = |i: i64| (DAY + i * DAY_MS / 4, (i * n) as f64);
        let (timestamps, values) = (0..DAYS * 4).map(sample).unzip();
        Series { labels, timestamps, values }
    };
    let series: Vec<_> = (0..2).map(one).collect();
    let limits = WriteLimits { open_bytes: 64 << 20, ..WriteLimits::default() };
    let mut stager = BlockStager::new(&table, stem("year"), limits, None);
    series.iter().for_each(|one| stager.push(&one.stretch()).unwrap());
    let files = stager.finish().unwrap().files;
    assert_eq!(files.len(), DAYS as usize);
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, through: None, files };
    table.commit(&[block], DAY).unwrap();
    (table, series)
}

/// Scans the table with at most `bytes` of memory. Returns the samples, and the peak memory of the scan.
fn read(table: &Table, cache: &Arc<Cache>, bytes: usize) -> (Vec<(String, i64, u64)>, usize) {
    let limits = ScanLimits::of(bytes);
    let mut scan = Scan::open(table, cache, &Select::ALL, &limits).unwrap();
    let (mut found, mut held) = (Vec::new(), 0);
    while scan.next_series().unwrap() {
        let mut samples = Samples::default();
        while scan.read_some(&mut samples).unwrap() {
            held = held.max(scan.held_bytes());
        }
        let labels = scan.labels().to_owned().to_string();
        let samples = samples.timestamps.iter().zip(&samples.values);
        found.extend(samples.map(|(t, v)| (labels.clone(), *t, v.to_bits())));
    }
    (found, held)
}

#[test]
fn a_year_of_daily_files_is_read_in_half_a_mebibyte() {
    let folder = TempDir::new().unwrap();
    let (table, series) = year(&folder);
    let expected: Vec<_> = series.iter().flat_map(Series::bits).collect();
    let bytes = 512 << 10;
    for cache_bytes in [0, 64 << 20] {
        let cache = Arc::new(Cache::new(cache_bytes));
        let (found, held) = read(&table, &cache, bytes);
        assert!(found == expected, "{} samples of {}", found.len(), expected.len());
        assert!(held <= bytes, "{held} bytes are held of {bytes}");
    }
    // with much memory, files stay open
    let (found, held) = read(&table, &Arc::new(Cache::new(0)), 2 << 30);
    assert!(found == expected && held > DAYS as usize * (1 << 20), "{held} bytes");
}

/// Building all indexes anew for each read takes longer than reading without indexes.
#[test]
fn a_read_builds_only_as_many_indexes_as_the_cache_keeps() {
    const FILES: i64 = 12;
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut expected = Vec::new();
    for n in 0..FILES {
        let mut series = fleet(2000, 1, 2);
        series.iter_mut().for_each(|one| one.timestamps.iter_mut().for_each(|t| *t += n * 60_000));
        let (files, source) = (vec![stage(&table, &format!("f{n}"), &series)], format!("j{n}"));
        table.commit(&[StagedBlock { source, after: None, upto: 1, through: None, files }], DAY).unwrap();
        expected.extend(series.iter().flat_map(Series::bits));
    }
    expected.sort_unstable();
    let cache = Arc::new(Cache::new(3 << 20));
    let read = |select: &Select| {
        let mut scan = Scan::open(&table, &cache, select, &ScanLimits::default()).unwrap();
        let mut found = Vec::new();
        while scan.next_series().unwrap() {
            let mut samples = Samples::default();
            scan.read(&mut samples).unwrap();
            let labels = scan.labels().to_owned().to_string();
            let samples = samples.timestamps.iter().zip(&samples.values);
            found.extend(samples.map(|(t, v)| (labels.clone(), *t, v.to_bits())));
        }
        found.sort_unstable();
        (found, scan.stats().indexes)
    };
    let (found, built) = read(&Select::ALL);
    assert!(found == expected && (2..FILES as u64 - 2).contains(&built), "{built} indexes");
    for _ in 0..3 {
        let (found, again) = read(&Select::ALL);
        assert!(found == expected);
        assert_eq!(again, 0, "{built} indexes were built before");
    }
    // a narrower read has room for the others
    let range = TimeRange::new(DAY + (FILES - 2) * 60_000, i64::MAX);
    let (_, more) = read(&Select { range, ..Select::ALL });
    assert_eq!(more, 2);
}

/// A remote store takes long for each request.
#[test]
fn row_groups_without_room_for_their_indexes_are_fetched_once() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..4 {
        let mut series = fleet(1, 2000, 2);
        series.iter_mut().for_each(|one| one.timestamps.iter_mut().for_each(|t| *t += n * 60_000));
        let (files, source) = (vec![stage(&table, &format!("f{n}"), &series)], format!("j{n}"));
        table.commit(&[StagedBlock { source, after: None, upto: 1, through: None, files }], DAY).unwrap();
    }
    let cache = Arc::new(Cache::new(1 << 20));
    let select = Select { matchers: vec![Matcher::new("pod", |v| v == "pod-00042")], ..Select::ALL };
    let mut fetched_bytes = Vec::new();
    for _ in 0..3 {
        let mut scan = Scan::open(&table, &cache, &select, &ScanLimits::default()).unwrap();
        let (mut series, mut samples) = (0, Samples::default());
        while scan.next_series().unwrap() {
            scan.read(&mut samples).unwrap();
            series += 1;
        }
        assert_eq!((series, samples.timestamps.len(), scan.stats().indexes), (1, 8, 0));
        fetched_bytes.push(cache.stats().fetched_bytes);
    }
    assert!(
        fetched_bytes[0] > 0 && fetched_bytes.iter().all(|bytes| *bytes == fetched_bytes[0]),
        "{fetched_bytes:?}"
    );
}

#[test]
fn more_files_than_can_be_named_are_refused() {
    let folder = TempDir::new().unwrap();
    let (table, _) = year(&folder);
    let limits = ScanLimits::of(364 << 10);
    let refused = Scan::open(&table, &Arc::new(Cache::new(0)), &Select::ALL, &limits).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert!(refused.to_string().contains("365 files"), "{refused}");
}

/// Lists label names, values of the label `pod`, and series. Each may occur several times.
fn listed(table: &Table, cache: &Arc<Cache>, select: &Select) -> [Vec<String>; 3] {
    let (mut names, mut values, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (what, texts) in [(LabelScan::Names, &mut names), (LabelScan::Values("pod"), &mut values)] {
        let mut put = |text: &str| {
            texts.push(text.to_owned());
            true
        };
        assert!(labels::texts(table, cache, select, what, &mut put).unwrap().is_empty());
    }
    let mut put = |labels: LabelsRef<'_>| {
        all.push(labels.to_owned().to_string());
        true
    };
    assert!(labels::series(table, cache, select, &mut put).unwrap().is_empty());
    [names, values, all]
}

#[test]
fn label_scan_reads_one_file_at_a_time() {
    let folder = TempDir::new().unwrap();
    let (table, series) = year(&folder);
    let days = |texts: &[&str]| -> Vec<String> {
        (0..DAYS).flat_map(|_| texts.iter().map(|text| (*text).to_owned())).collect()
    };
    let labels: Vec<_> = series.iter().map(|one| one.labels.to_string()).collect();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    for matchers in [vec![], vec![Matcher::new("pod", |pod| pod.starts_with("pod-"))]] {
        let select = Select { matchers, ..Select::ALL };
        for cache_bytes in [0, 2 << 20, 64 << 20] {
            let cache = Arc::new(Cache::new(cache_bytes));
            for _ in 0..2 {
                let [names, values, all] = listed(&table, &cache, &select);
                assert_eq!(BTreeSet::from_iter(names), BTreeSet::from(["__name__", "pod"].map(String::from)));
                assert_eq!(values, days(&["pod-0", "pod-1"]));
                assert_eq!(all, days(&labels));
            }
            // if not all files fit into the cache, nothing is cached
            assert_eq!(
                cache.stats().held_bytes > 0,
                cache_bytes == 64 << 20,
                "a cache of {cache_bytes} bytes"
            );
        }
    }
}

#[test]
fn label_scan_reads_no_more_files_than_needed() {
    let folder = TempDir::new().unwrap();
    let (table, _) = year(&folder);
    let all_bytes: u64 = table.files().unwrap().all().iter().map(|file| file.bytes).sum();
    let cache = Arc::new(Cache::new(0));
    let mut given = 0;
    let mut one = |_: &str| {
        given += 1;
        false
    };
    labels::texts(&table, &cache, &Select::ALL, LabelScan::Values("pod"), &mut one).unwrap();
    assert_eq!(given, 1);
    let read_bytes = cache.stats().fetched_bytes;
    assert!((1..all_bytes / 5).contains(&read_bytes), "{read_bytes} of {all_bytes} bytes");
}

#[test]
fn label_scan_names_missing_and_truncated_files() {
    let folder = TempDir::new().unwrap();
    let (table, _) = year(&folder);
    let files = table.files().unwrap();
    let path = |n: usize| folder.path().join("tenant").join(&files.all()[n].path);
    std::fs::remove_file(path(3)).unwrap();
    let short = std::fs::read(path(5)).unwrap();
    std::fs::write(path(5), &short[..short.len() / 2]).unwrap();
    let cache = Arc::new(Cache::new(64 << 20));
    let mut count = 0;
    let left_out = labels::series(&table, &cache, &Select::ALL, &mut |_| {
        count += 1;
        true
    });
    let left_out = left_out.unwrap();
    assert_eq!((count, left_out.len()), (2 * (DAYS - 2), 2), "{left_out:?}");
    for (n, text) in [3, 5].into_iter().zip(left_out) {
        assert!(text.contains(&files.all()[n].path), "{text}");
    }
}
