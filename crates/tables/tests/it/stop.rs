//! Checks that canceled reads end soon, whatever they are doing.

use crate::fleet::{DAY, Series, fleet};
use crate::table::{open, stage};
use model::Samples;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tables::read::LabelScan;
use tables::{Cache, Matcher, Scan, ScanLimits, Select, StagedBlock, Stop, Table, TableError, labels};
use tempfile::TempDir;

const FILES: u64 = 3;
const PODS: usize = 500;

/// Maximum number of rows or short values that a read may process between two checks for cancellation.
const BETWEEN_MAX: usize = 64;

fn table(folder: &TempDir) -> Arc<Table> {
    let table = open(folder);
    let series: Vec<Series> = fleet(1, PODS, 1);
    let files = (0..FILES).map(|n| stage(&table, &format!("f-{n}"), &series)).collect();
    let block = StagedBlock { source: "j-0".into(), after: None, upto: 10, through: None, files };
    table.commit(&[block], DAY).unwrap();
    table
}

/// Counts how often a read checks for cancellation, and how many values it tests.
#[derive(Debug, Default)]
struct Watch {
    asked: AtomicUsize,
    /// The read is canceled when it makes the check with this number.
    stop_at: usize,
    tested: AtomicUsize,
    /// Number of values that were tested after the cancellation.
    after: AtomicUsize,
}

impl Watch {
    fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed) >= self.stop_at
    }

    fn note(&self) {
        self.tested.fetch_add(1, Ordering::Relaxed);
        self.after.fetch_add(usize::from(self.is_set()), Ordering::Relaxed);
    }
}

/// Returns a selection by a label, and its counters. The selection accepts all values of the label, or none.
fn watched(stop_at: usize, passes: bool) -> (Arc<Watch>, Select) {
    let watch = Arc::new(Watch { stop_at, ..Watch::default() });
    let (of_test, of_stop) = (Arc::clone(&watch), Arc::clone(&watch));
    let test = move |value: &str| {
        if !value.is_empty() {
            of_test.note();
        }
        passes && !value.is_empty()
    };
    let stop = Stop::when(move || of_stop.asked.fetch_add(1, Ordering::Relaxed) + 1 >= of_stop.stop_at);
    (watch, Select { matchers: vec![Matcher::new("pod", test)], samples: passes, stop, ..Select::ALL })
}

fn series_of(table: &Table, cache: &Arc<Cache>, select: &Select) -> Result<usize, TableError> {
    let mut scan = Scan::open(table, cache, select, &ScanLimits::default())?;
    let mut count = 0;
    let mut samples = Samples::default();
    while scan.next_series()? {
        count += 1;
        if select.samples {
            scan.read(&mut samples)?;
        }
    }
    assert_eq!(scan.warnings().count(), 0);
    Ok(count)
}

fn texts_of(
    table: &Table,
    cache: &Arc<Cache>,
    select: &Select,
    what: LabelScan<'_>,
) -> Result<usize, TableError> {
    let mut count = 0;
    let left_out = labels::texts(table, cache, select, what, &mut |_| {
        count += 1;
        true
    })?;
    assert!(left_out.is_empty(), "{left_out:?}");
    Ok(count)
}

/// Repeats a read, and cancels it at each of its checks in turn. The read must fail, and test no more values.
fn check(what: &str, passes: bool, read: &dyn Fn(&Select) -> Result<usize, TableError>) {
    let (whole, select) = watched(usize::MAX, passes);
    read(&select).unwrap();
    let asked = whole.asked.load(Ordering::Relaxed);
    let tested = whole.tested.load(Ordering::Relaxed);
    assert!(tested >= FILES as usize * PODS, "{what}: {tested} values are tested");
    assert!(asked >= tested / BETWEEN_MAX, "{what}: {asked} checks for {tested} values");
    for stop_at in 1..=asked {
        let (watch, select) = watched(stop_at, passes);
        let ended = read(&select);
        assert!(matches!(ended, Err(TableError::Canceled)), "{what}: {ended:?} at check {stop_at}");
        let after = watch.after.load(Ordering::Relaxed);
        assert_eq!(after, 0, "{what}: values were tested after check {stop_at}");
    }
}

#[test]
fn reads_stop_at_every_check() {
    let folder = TempDir::new().unwrap();
    let table = table(&folder);
    let kept = Arc::new(Cache::new(64 << 20));
    for _ in 0..3 {
        series_of(&table, &kept, &Select::ALL).unwrap();
    }
    let none: fn(&Arc<Cache>) -> Arc<Cache> = |_| Arc::new(Cache::new(0));
    let fresh: fn(&Arc<Cache>) -> Arc<Cache> = |_| Arc::new(Cache::new(64 << 20));
    for (how, cache) in [("no cache", none), ("an empty cache", fresh), ("a full cache", Arc::clone)] {
        for passes in [false, true] {
            check(how, passes, &|select| series_of(&table, &cache(&kept), select));
            for what in [LabelScan::Names, LabelScan::Values("job"), LabelScan::Values("pod")] {
                check(how, passes, &|select| {
                    texts_of(&table, &cache(&kept), &Select { samples: false, ..select.clone() }, what)
                });
            }
        }
    }
}

#[test]
fn stops_are_checked_without_matchers_too() {
    let folder = TempDir::new().unwrap();
    let table = table(&folder);
    for cache in [Cache::new(0), Cache::new(64 << 20)] {
        let cache = Arc::new(cache);
        let (watch, select) = watched(usize::MAX, true);
        let select = Select { matchers: Vec::new(), ..select };
        assert_eq!(series_of(&table, &cache, &select).unwrap(), PODS);
        let asked = watch.asked.load(Ordering::Relaxed);
        assert!(asked >= FILES as usize * PODS / BETWEEN_MAX, "{asked} checks");
    }
}
