//! Writes, merges and scans a table at random, and compares the result with a map.

use crate::fleet::{DAY, Series, stem};
use crate::table::open;
use crate::upkeep::contents;
use model::{Labels, LabelsRef, Samples, SeriesKey, TimeRange};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::rng::Rng;
use tables::DAY_MS;
use tables::METRICS;
use tables::compact::{self, CompactLimits, Compaction};
use tables::{
    BlockStager, Cache, Date, LabelScan, Matcher, Scan, ScanLimits, Select, StagedBlock, Table, TableError,
    WriteLimits, labels,
};
use tempfile::TempDir;

type Truth = BTreeMap<(String, i64), u64>;

const NAMES: [&str; 3] = ["a", "aa", "b"];

/// Series with samples over three days, in table order.
fn block(rng: &mut Rng) -> Vec<Series> {
    let mut series = BTreeMap::new();
    for _ in 0..1 + rng.below(12) {
        let name = NAMES[rng.below(3) as usize];
        let (pod, zone) = (format!("p{}", rng.below(3)), ["", "x"][rng.below(2) as usize]);
        let labels = Labels::from_pairs(&[("__name__", name), ("Zone", zone), ("pod", &pod)]);
        let times: BTreeSet<i64> = (0..1 + rng.below(30)).map(|_| rng.below(3 * 40) as i64).collect();
        let at = |t: i64| DAY + t / 40 * DAY_MS + t % 40 * 1000;
        let value = |rng: &mut Rng| match rng.below(4) {
            0 => rng.unit(),
            1 => f64::from_bits(model::STALE_NAN_BITS),
            _ => rng.below(100_000) as f64 / 100.0,
        };
        let (timestamps, values) = times.into_iter().map(|t| (at(t), value(rng))).unzip();
        series.insert(labels.to_string(), Series { labels, timestamps, values });
    }
    let mut series: Vec<_> = series.into_values().collect();
    series.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
    series
}

fn write(table: &Arc<Table>, n: u64, series: &[Series], truth: &mut Truth) {
    let limits = WriteLimits { row_group_bytes: 500, file_bytes: 4000, open_bytes: 100_000 };
    let mut stager = BlockStager::new(table, stem(&format!("block-{n}")), limits, None);
    for one in series {
        stager.push(&one.stretch()).unwrap();
        let labels = one.labels.to_string();
        for (t, v) in one.timestamps.iter().zip(&one.values) {
            truth.insert((labels.clone(), *t), v.to_bits());
        }
    }
    let files = stager.finish().unwrap().files;
    table
        .commit(
            &[StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files }],
            DAY,
        )
        .unwrap();
}

/// Merges with small windows and files, so that data is divided everywhere.
fn merge(table: &Arc<Table>, n: u64, rng: &mut Rng) {
    let limits = CompactLimits {
        fan_in: 2 + rng.below(6) as usize,
        files_min: 2,
        window_bytes: 300,
        row_group_bytes: 700,
        file_bytes: 3000,
        ..CompactLimits::default()
    };
    let today = Date(Date::of(DAY).0 + rng.below(4) as i32);
    for (i, job) in
        compact::plan(&METRICS, table.files().unwrap().all(), today, &limits, |_| false).iter().enumerate()
    {
        let mut merge = Compaction::open(table, job, &stem(&format!("merge-{n}-{i}")), limits).unwrap();
        while !merge.step(1 + rng.below(50)).unwrap().done {}
        let staged = merge.into_staged();
        assert!(table.replace(&job.files, &staged).unwrap());
    }
}

/// Memory for the rows of one series that overlap, at worst: 14 blocks have 30 samples of the day each.
const OVERLAPPING_ROWS_BYTES_MAX: usize = 14 * 30 * 16;

fn scanned(table: &Table, cache: &Arc<Cache>, select: &Select, bytes: usize) -> Result<Truth, TableError> {
    let limits = ScanLimits { bytes, ..ScanLimits::default() };
    let mut scan = Scan::open(table, cache, select, &limits)?;
    let (mut found, mut last): (Truth, Option<Labels>) = Default::default();
    while scan.next_series()? {
        let labels = scan.labels().to_owned();
        assert!(
            last.is_none_or(|last| last.as_ref().cmp_in_tables(labels.as_ref()).is_lt()),
            "series are not in order"
        );
        assert_eq!(scan.key(), SeriesKey::of(labels.as_bytes(), 7));
        let mut samples = Samples::default();
        while scan.read_some(&mut samples)? {}
        assert!(samples.timestamps.is_sorted_by(|a, b| a < b));
        let bits = samples.values.iter().map(|v| v.to_bits());
        found.extend(samples.timestamps.iter().map(|t| (labels.to_string(), *t)).zip(bits));
        last = Some(labels);
    }
    assert_eq!(scan.warnings().next(), None);
    Ok(found)
}

/// Makes a random query, and compares its result with the map.
fn ask(table: &Table, cache: &Arc<Cache>, truth: &Truth, rng: &mut Rng) {
    let from = DAY + rng.below(3 * 40) as i64 / 40 * DAY_MS + rng.below(40_000) as i64;
    let range = TimeRange::new(from, from + rng.below(2 * DAY_MS as u64) as i64);
    let names = rng.chance(0.5).then(|| vec![NAMES[rng.below(3) as usize].to_string()]);
    let pod = format!("p{}", rng.below(3));
    let zoned = rng.chance(0.5);
    let (wanted_pod, wanted_names) = (pod.clone(), names.clone());
    let matchers = vec![
        Matcher::new("pod", move |v| v == wanted_pod),
        Matcher::new("Zone", move |v| !zoned || v.is_empty()),
    ];
    let select = Select { names, matchers, range, ..Select::ALL };
    // With little memory, files are closed in between, or the scan is refused.
    let most = [5_000, 50_000, 5_000_000][rng.below(3) as usize];
    let found = match scanned(table, cache, &select, 3_000 + rng.below(most) as usize) {
        Err(TableError::TooLarge { limit_bytes, .. }) if limit_bytes < OVERLAPPING_ROWS_BYTES_MAX => {
            scanned(table, cache, &select, 5_000_000)
        }
        found => found,
    }
    .unwrap();
    let named = |label: &str| {
        let name = label.split('{').next().unwrap_or_default();
        wanted_names.as_ref().is_none_or(|names| names[0] == name)
    };
    let matches =
        |label: &str| label.contains(&format!("pod={pod:?}")) && (!zoned || !label.contains("Zone"));
    let expected: Truth = truth
        .iter()
        .filter(|((label, t), _)| range.contains(*t) && named(label) && matches(label))
        .map(|(k, v)| (k.clone(), *v))
        .collect();
    assert_eq!(found, expected);

    let select = Select { samples: false, range: TimeRange::ALL, ..select };
    let (mut names, mut values) = (BTreeSet::new(), BTreeSet::new());
    for (what, texts) in [(LabelScan::Names, &mut names), (LabelScan::Values("__name__"), &mut values)] {
        let mut put = |text: &str| {
            texts.insert(text.to_string());
            true
        };
        labels::texts(table, cache, &select, what, &mut put).unwrap();
    }
    let expected = truth.keys().filter(|(label, _)| named(label) && matches(label));
    let expected: BTreeSet<String> =
        expected.map(|(l, _)| l.split('{').next().unwrap().to_string()).collect();
    assert_eq!(values, expected);
    assert_eq!(names.is_empty(), expected.is_empty());
    let mut all = BTreeSet::new();
    let mut put = |labels: LabelsRef<'_>| {
        all.insert(labels.to_owned().to_string());
        true
    };
    labels::series(table, cache, &select, &mut put).unwrap();
    let expected = truth.keys().map(|(label, _)| label).filter(|label| named(label) && matches(label));
    assert!(all.iter().eq(BTreeSet::from_iter(expected)));

    let mut expected = BTreeMap::new();
    for (label, time_ms) in truth.keys().filter(|(label, _)| named(label) && matches(label)) {
        expected.insert(label.clone(), *time_ms); // in the order of times
    }
    // a series is done when no file that is left can have a newer sample of it
    let (newest, mut last_ms) = (RefCell::new(BTreeMap::<String, i64>::new()), i64::MAX);
    let mut wanted = |end_ms: i64| {
        assert!(end_ms <= last_ms, "files are not in order");
        last_ms = end_ms;
        let (newest, is_known) = (newest.borrow(), |label: &String| expected.contains_key(label));
        assert!(newest.keys().all(is_known));
        let is_done = |label: &String| newest.get(label).is_some_and(|known_ms| *known_ms >= end_ms);
        (!expected.keys().all(is_done)).then(|| select.clone())
    };
    let mut each = |labels: LabelsRef<'_>, end_ms: i64| {
        let (mut newest, label) = (newest.borrow_mut(), labels.to_owned().to_string());
        let known_ms = newest.entry(label).or_insert(i64::MIN);
        *known_ms = end_ms.max(*known_ms);
    };
    assert!(labels::from_newest(table, cache, &mut wanted, &mut each).unwrap().is_empty());
    assert_eq!(newest.into_inner(), expected);
}

#[test]
fn a_table_is_a_map() {
    let mut rng = Rng::announced();
    for _ in 0..3 {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        // only a large cache has room for indexes
        let room = [200_000, 20_000_000][rng.below(2) as usize];
        let cache = Arc::new(Cache::new(rng.below(room) as usize));
        let mut truth = Truth::new();
        for n in 0..14 {
            write(&table, n, &block(&mut rng), &mut truth);
            if rng.chance(0.3) {
                merge(&table, n, &mut rng);
            }
            for _ in 0..5 {
                ask(&table, &cache, &truth, &mut rng);
            }
        }
        assert_eq!(contents(&table).unwrap(), truth);
        merge(&table, 99, &mut rng);
        for table in [&table, &open(&folder)] {
            assert_eq!(contents(table).unwrap(), truth);
        }
        assert!(cache.stats().held_bytes <= room);
    }
}
