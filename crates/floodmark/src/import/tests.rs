use super::intake::Intake;
use super::*;
use model::{Labels, STALE_NAN_BITS, Samples, SeriesHasher};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::rng::Rng;
use tables::METRICS;
use tables::read::{Cursor, Footer, Select};

const DAY_MS: i64 = 86_400_000;

fn labels(i: u64) -> Labels {
    Labels::from_pairs(&[("__name__", &format!("m{}", i % 7)), ("Zone", "z"), ("i", &i.to_string())])
}

type Content = BTreeMap<Labels, BTreeMap<i64, u64>>;

/// Reads the samples of all files. Where files have the same sample, the last file counts. Panics if the rows
/// of a file are out of order.
fn content(files: &[intake::Finished]) -> Content {
    let mut all = Content::new();
    for file in files {
        let mut last: Option<Labels> = None;
        let footer = Arc::new(Footer::read(&METRICS, &file.part).unwrap());
        let mut rows = Cursor::new(file.part.clone(), footer, Arc::new(Select::ALL), 1 << 20);
        while rows.advance().unwrap() {
            let labels = rows.labels().to_owned();
            let in_order = |last: &Labels| last.as_ref().cmp_in_tables(labels.as_ref()).is_le();
            assert!(last.as_ref().is_none_or(in_order), "rows are not in order");
            let mut samples = Samples::default();
            rows.read(&mut samples).unwrap();
            let Samples { timestamps, values } = samples;
            let series = all.entry(labels.clone()).or_default();
            series.extend(timestamps.into_iter().zip(values.into_iter().map(f64::to_bits)));
            last = Some(labels);
        }
    }
    all
}

#[test]
fn any_order_gives_the_same_content() {
    let seed = Rng::fresh_seed();
    eprintln!("seed {seed}");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let mut intake = Intake::new(SeriesHasher::new(seed), dir.path());
        let mut expected = Content::new();
        for _ in 0..300 {
            let labels = labels(rng.below(40));
            let sorted = rng.below(2) == 0;
            if sorted { intake.series(&labels) } else { intake.series_unsorted(&labels) }.unwrap();
            let mut t = 20_000 * DAY_MS + rng.below(100 * DAY_MS as u64) as i64;
            for _ in 0..rng.below(50) {
                t += rng.below(DAY_MS as u64 / 8) as i64;
                let bits = if rng.below(9) == 0 { STALE_NAN_BITS } else { rng.next_u64() >> rng.below(64) };
                // Each timestamp gets only one value. If there were two, the expected one would depend on
                // more than the order of arrival, because files from sorted batches override those that
                // needed no sorting.
                let series = expected.entry(labels.clone()).or_default();
                let bits = *series.entry(t).or_insert(bits);
                intake.sample(t, f64::from_bits(bits)).unwrap();
            }
            if round > 2 && rng.below(20) == 0 {
                intake.flush_for_tests();
            }
        }
        let (files, tally) = intake.finish().unwrap();
        expected.retain(|_, samples| !samples.is_empty());
        assert_eq!(content(&files), expected, "round {round}");
        assert_eq!(tally.series.count(), expected.len());
    }
}

#[test]
fn the_last_of_two_samples_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = Intake::new(SeriesHasher::new(1), dir.path());
    for value in [1.0, 2.0, 3.0] {
        intake.series_unsorted(&labels(1)).unwrap();
        intake.sample(DAY_MS, value).unwrap();
        intake.flush_for_tests();
        intake.sample(DAY_MS, value + 0.5).unwrap();
        intake.sample(DAY_MS, value + 0.25).unwrap();
    }
    intake.sample(-1, 0.0).unwrap();
    let (files, tally) = intake.finish().unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(content(&files)[&labels(1)][&DAY_MS], 3.25f64.to_bits());
    assert_eq!(tally.skipped.values().sum::<u64>(), 1);
}

#[test]
fn more_sorted_days_than_the_sorted_lane_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = Intake::new(SeriesHasher::new(1), dir.path());
    let mut expected = Content::new();
    for i in 0..3 {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
        intake.series(&labels).unwrap();
        for day in 0..500 {
            intake.sample(day * DAY_MS + i, day as f64).unwrap();
            expected.entry(labels.clone()).or_default().insert(day * DAY_MS + i, (day as f64).to_bits());
        }
    }
    let (files, _) = intake.finish().unwrap();
    assert_eq!(content(&files), expected);
}

#[test]
fn lines_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    fs::write(&path, "a\nbb\n\nccc").unwrap();
    let mut lines = Lines::open(&path, 3).unwrap();
    let mut all = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        all.push(String::from_utf8(line.to_vec()).unwrap());
    }
    assert_eq!(all, ["a", "bb", "", "ccc"]);
    let mut lines = Lines::open(&path, 2).unwrap();
    assert!((0..3).all(|_| lines.next().is_ok()));
    assert!(lines.next().unwrap_err().to_string().contains("line 4"));
}
