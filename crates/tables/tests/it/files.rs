//! Tests single files: values are exact, reads skip what they do not need, and damage is reported.

use crate::fleet::{DAY, Series, date, fleet};
use bytes::Bytes;
use model::{Labels, Samples, SeriesKey, TimeRange};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tables::DAY_MS;
use tables::METRICS;
use tables::TableError;
use tables::delta::FileSummary;
use tables::read::fuzz::FullyCachedFile;
use tables::read::{CacheSlot, Cached, Cursor, Footer, LabelScan, Matcher, Ranges, ReadStats, Select};
use tables::write::{BlockWriter, FileWriter, WriteLimits};

fn write(series: &[Series], row_group_bytes: usize) -> (FileSummary, Bytes) {
    let mut writer = FileWriter::new(&METRICS, date(), Vec::new(), row_group_bytes).unwrap();
    for one in series {
        writer.push(&one.stretch()).unwrap();
    }
    let (summary, sink) = writer.finish().unwrap();
    assert_eq!(summary.bytes, sink.len() as u64);
    (summary, sink.into())
}

#[derive(Debug)]
struct Row {
    labels: Labels,
    key: SeriesKey,
    samples: Samples,
}

/// Reads without a cache, so rows are decoded in the order of the file.
fn read(file: &Bytes, select: &Select) -> Result<(Vec<Row>, ReadStats), TableError> {
    read_from(file.clone(), select)
}

/// Reads the file until everything is cached, and once more. The last read must fetch nothing.
fn read_kept(file: &Bytes, select: &Select) -> Result<Vec<Row>, TableError> {
    let cached_file = FullyCachedFile::of(file.clone());
    // an index is built only for the second read of a row group
    read_from(&cached_file, select)?;
    let (first, _) = read_from(&cached_file, select)?;
    let (second, stats) = read_from(&cached_file, select)?;
    assert_eq!(stats.bytes, 0);
    assert!(row_bits(&first) == row_bits(&second));
    Ok(second)
}

fn read_from<R: Ranges>(file: R, select: &Select) -> Result<(Vec<Row>, ReadStats), TableError> {
    let footer = Arc::new(Footer::read(&METRICS, &file)?);
    let mut cursor = Cursor::new(file, footer, Arc::new(select.clone()), 16 << 10);
    let mut rows = Vec::new();
    while cursor.advance()? {
        let mut row =
            Row { labels: cursor.labels().to_owned(), key: cursor.key(), samples: Samples::default() };
        cursor.read(&mut row.samples)?;
        rows.push(row);
    }
    Ok((rows, cursor.stats()))
}

/// Lists labels. If `file` has a cache, the listing uses what earlier listings put there.
fn list<R: Ranges>(file: R, select: &Select, what: LabelScan<'_>) -> BTreeSet<String> {
    let footer = Arc::new(Footer::read(&METRICS, &file).unwrap());
    let mut found = BTreeSet::new();
    let mut cursor = Cursor::new(file, footer, Arc::new(select.clone()), 16 << 10);
    let mut each = |text: &str| {
        found.insert(text.to_string());
        true
    };
    assert!(cursor.scan_labels(what, &mut each).unwrap());
    found
}

fn samples(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.samples.len()).sum()
}

fn row_bits(rows: &[Row]) -> Vec<(String, i64, u64)> {
    let bits = |row: &Row| {
        let label = row.labels.to_string();
        let Samples { timestamps, values } = row.samples.clone();
        timestamps
            .into_iter()
            .zip(values)
            .map(move |(t, v)| (label.clone(), t, v.to_bits()))
            .collect::<Vec<_>>()
    };
    rows.iter().flat_map(bits).collect()
}

fn series_bits(series: &[Series]) -> Vec<(String, i64, u64)> {
    series.iter().flat_map(Series::bits).collect()
}

#[test]
fn every_kind_of_value_round_trips() {
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let odd = f64::from_bits(0x7ff8_dead_beef_0001);
    let values = |values: &[f64]| -> Vec<(i64, f64)> {
        values.iter().enumerate().map(|(i, v)| (DAY + i as i64 * 1000, *v)).collect()
    };
    let series = [
        Series::new(&[("__name__", "a")], &values(&[1.0, 2.0, 3.5, stale])),
        Series::new(&[("__name__", "b"), ("l", "1")], &values(&[f64::NAN, odd, -0.0, 0.0])),
        Series::new(&[("__name__", "b"), ("l", "2")], &values(&[f64::INFINITY, f64::NEG_INFINITY])),
        Series::new(&[("__name__", "b"), ("l", "3")], &values(&[f64::MAX, f64::MIN_POSITIVE, 5e-324])),
        Series::new(&[("__name__", "c"), ("é", "ü\n\"")], &values(&[0.1 + 0.2, 1.0 / 3.0])),
        Series::new(&[("__name__", "d")], &values(&[9_007_199_254_740_993.0, -9.2e18])),
    ];
    let (summary, file) = write(&series, 1 << 20);
    let (rows, _) = read(&file, &Select::ALL).unwrap();
    assert_eq!(row_bits(&rows), series_bits(&series));
    assert_eq!((summary.rows, summary.samples), (8, 17));
    assert_eq!((summary.name_min.as_str(), summary.name_max.as_str()), ("a", "d"));
    assert_eq!(summary.range, TimeRange::new(DAY, DAY + 3000));
    assert!(rows.iter().all(|r| series.iter().any(|s| s.key() == r.key && s.labels == r.labels)));
}

#[test]
fn reads_only_what_may_match() {
    let series = fleet(40, 100, 60);
    let (_, file) = write(&series, 32 << 10);
    let (_, all) = read(&file, &Select::ALL).unwrap();
    assert!(all.row_groups > 3, "{all:?}");

    let name = "metric_0017";
    let one = Select { names: Some(vec![name.into()]), ..Select::ALL };
    let (rows, stats) = read(&file, &one).unwrap();
    let wanted: Vec<_> = series.iter().filter(|s| s.labels.get("__name__") == Some(name)).cloned().collect();
    assert_eq!(row_bits(&rows), series_bits(&wanted));
    assert!(stats.row_groups <= 2 && stats.rows == 100, "{stats:?}");
    assert!(stats.bytes < all.bytes / 2, "{stats:?} of {all:?}");

    let pod = Select {
        matchers: vec![Matcher::new("pod", |v| v == "pod-00042"), Matcher::new("none", str::is_empty)],
        range: TimeRange::new(DAY + 15_000, DAY + 30_000),
        ..one
    };
    let (rows, stats) = read(&file, &pod).unwrap();
    assert_eq!((rows.len(), stats.rows, samples(&rows)), (1, 1, 2));
    assert_eq!(rows[0].samples.timestamps, [DAY + 15_000, DAY + 30_000]);

    let is_wanted = |name: &str| name.starts_with("metric_001");
    let matchers = vec![Matcher::new("__name__", is_wanted)];
    let ten = Select { name_prefix: "metric_001".into(), matchers: matchers.clone(), ..Select::ALL };
    let (rows, stats) = read(&file, &ten).unwrap();
    let (same, of_all) = read(&file, &Select { matchers, ..Select::ALL }).unwrap();
    assert_eq!((rows.len(), row_bits(&rows)), (1000, row_bits(&same)));
    assert!(
        stats.row_groups < all.row_groups && of_all.row_groups == all.row_groups,
        "{stats:?} of {of_all:?}"
    );

    let keys = [&series[5], &series[3999]].map(Series::key).into_iter().collect();
    let keys = Select { series: Some(Arc::new(keys)), ..Select::ALL };
    assert_eq!(row_bits(&read(&file, &keys).unwrap().0), [series[5].bits(), series[3999].bits()].concat());

    for nothing in [
        Select { range: TimeRange::new(0, DAY - 1), ..Select::ALL },
        Select { names: Some(vec!["metric_0017x".into()]), ..Select::ALL },
        Select { names: Some(Vec::new()), ..Select::ALL },
        Select { name_prefix: "metric_1".into(), ..Select::ALL },
    ] {
        let (rows, stats) = read(&file, &nothing).unwrap();
        assert_eq!((rows.len(), stats.rows), (0, 0));
    }
}

/// Testing a name may cost as much as reading its row.
#[test]
fn names_are_tested_only_where_they_may_match() {
    let series = fleet(4000, 1, 3);
    let (_, file) = write(&series, 32 << 10);
    let tested = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tested);
    let matcher = Matcher::new("__name__", move |name| {
        counted.fetch_add(1, Ordering::Relaxed);
        name.ends_with('7')
    });
    let all = Select { matchers: vec![matcher], ..Select::ALL };
    let names = ["metric_0000", "metric_0017", "metric_0017x", "metric_3997", "metric_3998", "z"];
    let names = Some(names.map(Into::into).to_vec());
    for (select, expected) in [
        (Select { name_prefix: "metric_001".into(), ..all.clone() }, vec![17]),
        (Select { names, ..all.clone() }, vec![17, 3997]),
        (Select { names: Some(vec!["metric_0007".into()]), ..all }, vec![7]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|i: usize| series[i].clone()).collect();
        let rows = read_kept(&file, &select).unwrap();
        assert_eq!(row_bits(&rows), series_bits(&expected), "{select:?}");
        let tests = tested.swap(0, Ordering::Relaxed);
        assert!((1..=500).contains(&tests), "{tests} tests: {select:?}");
    }
}

#[test]
fn damage_is_reported() {
    let (_, file) = write(&fleet(3, 20, 30), 1 << 20);
    let check = |file: Bytes| match read(&file, &Select::ALL) {
        Err(e @ TableError::Damaged { .. }) => assert_eq!(e.kind(), model::ErrorKind::Data),
        other => panic!("{other:?}"),
    };
    check(Bytes::new());
    for len in [1, 4, 7, 8, 100, file.len() / 2, file.len() - 1] {
        check(file.slice(..len));
    }
    check(Bytes::from_static(b"PAR1\0\0\0\0PAR1"));
    check(Bytes::from_static(b"PAR1\xff\xff\xff\x7fPAR1"));
}

#[test]
fn flipped_bytes_never_panic() {
    let mut rng = stdx::rng::Rng::announced();
    let (_, file) = write(&fleet(2, 10, 20), 1 << 20);
    for _ in 0..300 {
        let mut bytes = file.to_vec();
        // half of the damage hits the footer
        let from = if rng.chance(0.5) { bytes.len() * 3 / 4 } else { 0 };
        let at = from + rng.below((bytes.len() - from) as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        let bytes = bytes.into();
        let _ = read(&bytes, &Select::ALL);
        let cached_file = FullyCachedFile::of(bytes);
        (0..2).for_each(|_| _ = read_from(&cached_file, &Select::ALL));
    }
}

#[test]
fn a_block_is_cut_into_days_and_files() {
    let mut series = fleet(20, 50, 100);
    for one in &mut series {
        // moves the first half of the samples to the day before
        one.timestamps.iter_mut().for_each(|t| *t -= 50 * 15_000);
    }
    let limits = WriteLimits { row_group_bytes: 16 << 10, file_bytes: 64 << 10, open_bytes: 20 << 10 };
    let mut writer = BlockWriter::new(&METRICS, limits, |_| Ok(Vec::new()));
    for one in &series {
        writer.push(&one.stretch()).unwrap();
    }
    let files = writer.finish().unwrap();
    assert!(files.len() > 2, "{}", files.len());
    let mut found = Vec::new();
    for (summary, bytes) in files {
        let (rows, _) = read(&bytes.into(), &Select::ALL).unwrap();
        let bits = row_bits(&rows);
        assert!(bits.iter().all(|(_, t, _)| t.div_euclid(DAY_MS) == i64::from(summary.date.0)));
        assert_eq!(summary.samples, bits.len() as u64);
        found.extend(bits);
    }
    found.sort();
    let mut expected = series_bits(&series);
    expected.sort();
    assert_eq!(found, expected);
}

/// The file has long rows, many pages, and values of both forms: decimal and floats.
#[test]
fn cached_indexes_and_pages_change_no_result() {
    let mut rng = stdx::rng::Rng::announced();
    let mut series = fleet(6, 15, 2000);
    for (i, one) in series.iter_mut().enumerate() {
        let jitter = if i % 2 == 0 { 1 } else { 9 };
        one.timestamps.iter_mut().for_each(|t| *t += rng.below(jitter) as i64);
        match i % 5 {
            0 => one.values.iter_mut().for_each(|v| *v = (rng.below(1000) as f64).sqrt()),
            1 => one.values.iter_mut().for_each(|v| *v = rng.next_u64() as f64 / 7.0),
            2 => one.values[7] = f64::from_bits(model::STALE_NAN_BITS),
            _ => {}
        }
    }
    let (_, file) = write(&series, 200_000);
    assert!(Footer::read(&METRICS, &file).unwrap().row_groups() > 1);
    // later reads find a cache that has only parts of some pages
    let kept_before = FullyCachedFile::of(file.clone());
    for round in 0..24 {
        let name = format!("metric_{:04}", rng.below(7));
        let pod = format!("pod-{:05}", rng.below(16));
        let start = DAY + rng.below(2000 * 15_000) as i64;
        let matcher = match round % 4 {
            0 => Matcher::new("pod", move |value| value == pod),
            1 => Matcher::new("pod", move |value| value != pod),
            2 => Matcher::new("none", str::is_empty),
            _ => Matcher::new("__name__", move |value| value <= name.as_str()),
        };
        let range = TimeRange::new(start, start + rng.below(1000 * 15_000) as i64);
        let names = rng.chance(0.3).then(|| vec!["metric_0001".into(), "metric_0004".into()]);
        let name_prefix = if rng.chance(0.3) { format!("metric_{:04}", rng.below(7)) } else { String::new() };
        let prefix = name_prefix.clone();
        let begins = Matcher::new("__name__", move |value| value.starts_with(&prefix));
        let select = Select { names, name_prefix, matchers: vec![matcher, begins], range, ..Select::ALL };
        let (rows, _) = read(&file, &select).unwrap();
        assert!(row_bits(&read_kept(&file, &select).unwrap()) == row_bits(&rows), "{select:?}");
        let (kept, _) = read_from(&kept_before, &select).unwrap();
        assert!(row_bits(&kept) == row_bits(&rows), "after other reads: {select:?}");
    }
}

/// The series have label names that sort before and after `__name__`, names with many values, and values with many
/// names. There are so many values that the writer gives up the dictionary in the middle of a column.
#[test]
fn labels_are_the_same_with_and_without_an_index() {
    let mut rng = stdx::rng::Rng::new(7);
    let mut texts =
        |len: usize| -> String { (0..len).map(|_| char::from(b'a' + rng.below(26) as u8)).collect() };
    let mut series = Vec::new();
    for i in 0..1500 {
        let (name, long, pod) = (format!("m{}", i % 5), texts(1000), format!("pod-{}", i % 40));
        let pairs: Vec<(&str, &str)> = match i % 6 {
            0 => vec![("__name__", &name), ("A", "x"), ("_", &pod), ("long", &long), ("z", "x")],
            1 => vec![("__name__", &name), ("B", &pod), ("__a", "x"), ("__o", "x"), ("long", &long)],
            _ => vec![("__name__", &name), ("a", "x"), ("long", &long), ("pod", &pod)],
        };
        series.push(Series::new(&pairs, &[(DAY + i, i as f64)]));
    }
    series.push(Series::new(&[("__name__", "m1")], &[(DAY, 1.0)]));
    series.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
    let (_, file) = write(&series, 16 << 20);
    let footer = Footer::read(&METRICS, &file).unwrap();
    assert_eq!(footer.row_groups(), 1);
    let is_x = |label: &str| Matcher::new(label, |value| value == "x");
    for matchers in [
        vec![],
        vec![is_x("A")],
        vec![is_x("__o")],
        vec![is_x("z"), Matcher::new("_", |value| value.ends_with('2'))],
        vec![Matcher::new("pod", str::is_empty)],
        vec![Matcher::new("long", |value| value.starts_with(['a', 'q']))],
        vec![Matcher::new("__name__", |value| value == "m1"), Matcher::new("B", |value| !value.is_empty())],
    ] {
        let select = Select { matchers, ..Select::ALL };
        let (rows, _) = read(&file, &select).unwrap();
        let kept = read_kept(&file, &select).unwrap();
        let labels =
            |rows: &[Row]| -> Vec<_> { rows.iter().map(|row| (row.labels.clone(), row.key)).collect() };
        assert!(labels(&kept) == labels(&rows), "{select:?}");
        assert!(row_bits(&kept) == row_bits(&rows), "{select:?}");
        assert!(!rows.is_empty(), "{select:?}");
        for label in ["", "__name__", "A", "B", "_", "__a", "a", "long", "none", "pod", "z"] {
            let listed = |labels: &Labels| -> Vec<String> {
                match label {
                    "" => labels.iter().map(|(name, _)| name.into()).collect(),
                    label => labels.get(label).map(String::from).into_iter().collect(),
                }
            };
            let expected: BTreeSet<String> = rows.iter().flat_map(|row| listed(&row.labels)).collect();
            let what = if label.is_empty() { LabelScan::Names } else { LabelScan::Values(label) };
            let cached_file = FullyCachedFile::of(file.clone());
            assert_eq!(list(file.clone(), &select, what), expected, "{label} of rows, {select:?}");
            assert_eq!(list(&cached_file, &select, what), expected, "{label} at first, {select:?}");
            assert_eq!(list(&cached_file, &select, what), expected, "{label} again, {select:?}");
        }
    }
}

fn has_index(cached_file: &FullyCachedFile) -> bool {
    match cached_file.cache.borrow().get(&CacheSlot::Index(0)) {
        Some(Cached::Index(_)) => true,
        Some(Cached::Asked) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn row_groups_are_indexed_on_second_read() {
    let (_, whole) = write(&fleet(10, 50, 3), 1 << 20);
    // so many rows that the column of names has several pages
    let (_, many) = write(&fleet(45, 1000, 1), 64 << 20);
    let few = Select { names: Some(vec!["metric_0002".into()]), ..Select::ALL };
    let reaching_in = Select { range: TimeRange::new(DAY + 1, DAY + 14_999), ..Select::ALL };
    for (file, select, pods) in [(&whole, Select::ALL, 50), (&whole, reaching_in, 50), (&many, few, 1000)] {
        let cached_file = FullyCachedFile::of(file.clone());
        for again in [false, true] {
            assert_eq!(list(&cached_file, &select, LabelScan::Values("pod")).len(), pods, "{select:?}");
            assert_eq!(has_index(&cached_file), again, "{select:?}");
        }
    }
    let mut series = fleet(10, 50, 3);
    series[7].timestamps.iter_mut().for_each(|t| *t += 3_600_000);
    let (_, file) = write(&series, 1 << 20);
    let cached_file = FullyCachedFile::of(file);
    let without_one = Select { range: TimeRange::new(DAY, DAY + 60_000), ..Select::ALL };
    assert_eq!(list(&cached_file, &without_one, LabelScan::Values("pod")).len(), 50);
    assert!(has_index(&cached_file), "an index is needed to know which rows overlap");
}

/// A page of floats that repeats one value takes only a few bytes in the cache.
#[test]
fn floats_are_kept_as_they_are_encoded() {
    let mut series = fleet(10, 200, 300);
    series.iter_mut().for_each(|one| one.values.fill(1.0 / 3.0));
    series[77].values[7] = 2.0 / 3.0;
    let (summary, file) = write(&series, 4 << 20);
    let cached_file = FullyCachedFile::of(file.clone());
    let (rows, _) = read_from(&cached_file, &Select::ALL).unwrap();
    assert!(row_bits(&rows) == series_bits(&series));
    let kept = cached_file.cache.borrow();
    let pages: Vec<_> = kept.values().filter(|kept| matches!(kept, Cached::Page(_))).collect();
    let bytes: usize = pages.iter().map(|kept| kept.memory_bytes()).sum();
    // these bytes include the pages of timestamps as well
    assert!(bytes < 4 * summary.samples as usize, "{bytes} bytes of {} samples", summary.samples);
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-100_000i64..100_000, 0i32..4).prop_map(|(m, e)| m as f64 / 10f64.powi(e)),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => Just(f64::from_bits(model::STALE_NAN_BITS)),
    ]
}

fn any_series() -> impl Strategy<Value = Series> {
    let samples = prop::collection::btree_map(0..DAY_MS, any_value(), 1..80);
    ("[a-c]{1,2}", "[x-z]{0,2}", samples).prop_map(|(name, label, samples)| {
        let samples: Vec<_> = samples.into_iter().map(|(t, v)| (DAY + t, v)).collect();
        Series::new(&[("__name__", &name), ("l", &label)], &samples)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn round_trip(mut series in prop::collection::vec(any_series(), 1..12), row_group in 1usize..20_000) {
        series.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
        series.dedup_by(|a, b| a.labels == b.labels);
        let (summary, file) = write(&series, row_group);
        let (rows, _) = read(&file, &Select::ALL).unwrap();
        let expected = series_bits(&series);
        prop_assert_eq!(summary.samples, expected.len() as u64);
        prop_assert_eq!(samples(&rows) as u64, summary.samples);
        prop_assert_eq!(&row_bits(&rows), &expected);
        prop_assert_eq!(row_bits(&read_kept(&file, &Select::ALL).unwrap()), expected);
    }

    #[test]
    fn a_range_cuts_rows(series in any_series(), from in 0..DAY_MS, len in 0..DAY_MS) {
        let range = TimeRange::new(DAY + from, DAY + from + len);
        let (_, file) = write(std::slice::from_ref(&series), 1 << 20);
        let select = Select { range, ..Select::ALL };
        let (rows, _) = read(&file, &select).unwrap();
        let expected: Vec<_> = series.bits().into_iter().filter(|(_, t, _)| range.contains(*t)).collect();
        prop_assert_eq!(&row_bits(&rows), &expected);
        prop_assert_eq!(row_bits(&read_kept(&file, &select).unwrap()), expected);
    }
}
