//! Upkeep merges files, and leaves alone those that it cannot read or does not know.

use super::*;
use tables::compact::CompactLimits;
use tables::upkeep::{Done, Now, Policy, Step, Upkeep};

/// Runs upkeep until nothing is left to do. Returns the number of merges.
pub(super) fn maintain(table: &Arc<Table>, compact: CompactLimits) -> usize {
    let policy = Policy { compact: Some(compact), grace_ms: 0, sweep_every_ms: 0, ..Policy::default() };
    let (mut upkeep, mut merges) = (Upkeep::new(), 0);
    for round in 0..100 {
        let now = Now { wall_ms: NOW + 30 * DAY_MS, steady_ms: round };
        let steps = upkeep.plan(table, now, &policy).unwrap();
        let merges_before = merges;
        for step in &steps {
            let stem = FileStem::rewritten(Rng::fresh_seed());
            let done = upkeep.run(table, step, &stem, now, &policy, |_| true).unwrap();
            merges += usize::from(matches!(step, Step::Compact(_)));
            assert!(!matches!(done, Done::Damaged(_)), "{:?}", upkeep.damaged().collect::<Vec<_>>());
        }
        if merges == merges_before {
            return merges;
        }
    }
    panic!("upkeep never ends");
}

#[test]
fn upkeep_merges_the_files_of_a_day_and_changes_no_record() {
    let mut rng = Rng::announced();
    let tiny = CompactLimits {
        fan_in: 5,
        job_bytes: 120_000,
        files_min: 2,
        window_bytes: 4_000,
        row_group_bytes: 3_000,
        file_bytes: 30_000,
    };
    let whole = CompactLimits { fan_in: 1000, ..CompactLimits::for_records() };
    for limits in [whole, tiny, tiny] {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        let mut batches = Vec::new();
        for n in 0..5 {
            let mut new: Vec<_> = (0..16).map(|_| random_batch(&mut rng)).collect();
            // the arrival shows the order of the writes
            (0..).zip(&mut new).for_each(|(at, batch)| batch.arrival_us = (batches.len() + at) as i64);
            let block = block(&table, n, &new, SMALL);
            table.commit(&[block], NOW).unwrap();
            batches.extend(new);
        }
        let rows = all_expected(&batches);
        let before = table.files().unwrap().all().len();
        assert!(maintain(&table, limits) > 0);
        let files = table.files().unwrap();
        assert!(files.all().len() < before / 2, "{} of {before}", files.all().len());
        assert!(contents(&table, RecordSelect::ALL) == rows);
        assert!(contents(&open(&folder), RecordSelect::ALL) == rows);
        for file in files.all() {
            let path = folder.path().join("tenant").join(&file.path);
            let places = rows_of(fs::read(path).unwrap(), &table.attributes());
            let places = places.iter().map(|row| (&row.stream, row.time_us, row.arrival_us));
            let places: Vec<_> = places.collect();
            assert!(places.is_sorted_by_key(|(stream, time, _)| (*stream, *time)));
            // a job without all files of a block does not know which of them came first
            let is_whole = limits.job_bytes == CompactLimits::for_records().job_bytes;
            assert!(!is_whole || places.is_sorted(), "the order of arrival");
            assert_eq!(places.len() as u64, file.rows);
        }
        assert_eq!(maintain(&table, limits), 0);
    }
}

#[test]
fn a_damaged_file_is_left_out_and_named() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..3 {
        commit(&table, n, &[batch("s", records(&[&[("level", AttributeValue::Text("info"))] as &[_]; 5]))]);
    }
    let path = table.files().unwrap().all()[1].path.clone();
    let file = folder.path().join("tenant").join(&path);
    let whole = fs::read(&file).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&file, bytes).unwrap();
        let mut scan = RecordScan::open(&table, RecordSelect::ALL).unwrap();
        let rows: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        let warning = scan.warnings().next();
        assert!(rows == 15 || rows == 10 && warning.is_some_and(|text| text.contains(&path)), "byte {at}");
    }
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let (mut upkeep, policy) = (Upkeep::new(), Policy::default());
    let now = Now { wall_ms: NOW + 30 * DAY_MS, steady_ms: 0 };
    let steps = upkeep.plan(&table, now, &policy).unwrap();
    let done = upkeep.run(&table, &steps[0], &FileStem::rewritten(1), now, &policy, |_| true).unwrap();
    assert_eq!(done, Done::Damaged(path));
}

/// Another program has replaced the schema, and has left out what says that a column is an attribute's.
#[test]
fn a_merge_drops_no_column_that_it_does_not_know() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..4 {
        commit(&table, n, &[batch("s", records(&[&[("level", AttributeValue::Text("info"))]]))]);
    }
    let log = |version: u64| folder.path().join(format!("tenant/_delta_log/{version:020}.json"));
    let entries: Vec<_> = (0..=4).map(|version| fs::read_to_string(log(version)).unwrap()).collect();
    let metadata = entries.iter().flat_map(|entry| entry.lines()).rfind(|line| line.contains("metaData"));
    let changed = metadata.unwrap().replace("floodmark.path", "other.path");
    assert_ne!(changed, metadata.unwrap());
    fs::write(log(5), changed + "\n").unwrap();
    table.refresh().unwrap();
    let paths = || -> Vec<_> { table.files().unwrap().all().iter().map(|file| file.path.clone()).collect() };
    let before = paths();
    let (mut upkeep, policy) =
        (Upkeep::new(), Policy { compact: Some(CompactLimits::for_records()), ..Policy::default() });
    let now = Now { wall_ms: NOW, steady_ms: NOW };
    let mut left = 0;
    for step in upkeep.plan(&table, now, &policy).unwrap() {
        if let Step::Compact(_) = step {
            let stem = FileStem::rewritten(Rng::fresh_seed());
            let done = upkeep.run(&table, &step, &stem, now, &policy, |_| true).unwrap();
            assert!(matches!(&done, Done::Damaged(file) if before.contains(file)), "{done:?}");
            left += 1;
        }
    }
    assert!(left > 0);
    assert_eq!(paths(), before);
    assert!(upkeep.damaged().all(|(_, reason)| reason.contains("level")));
}
