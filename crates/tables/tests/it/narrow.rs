//! Scans of many files in little memory.

use crate::fleet::{DAY, Series, stem};
use crate::table::open;
use model::{ErrorKind, Labels, Samples};
use std::sync::Arc;
use tables::block::DAY_MS;
use tables::{BlockStager, Cache, Scan, ScanLimits, Select, StagedBlock, Table, WriteLimits};
use tempfile::TempDir;

const DAYS: i64 = 365;

/// A table with a file for each day of a year.
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

/// What a scan finds, and the most that it held.
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

#[test]
fn more_files_than_can_be_named_are_refused() {
    let folder = TempDir::new().unwrap();
    let (table, _) = year(&folder);
    let limits = ScanLimits::of(364 << 10);
    let refused = Scan::open(&table, &Arc::new(Cache::new(0)), &Select::ALL, &limits).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert!(refused.to_string().contains("365 files"), "{refused}");
}
