//! Lets a process die at each place of upkeep ([`crate::fault`]). The next process must find every sample and record
//! once, and finish the work.

use super::*;
use crate::date::DAY_MS;
use crate::delta::{StagedBlock, StagedFile};
use crate::kind::metrics::METRICS;
use crate::kind::records::RECORDS;
use crate::read::{Cache, RecordScan, RecordSelect, Select};
use crate::scan::{Scan, ScanLimits};
use crate::store::FileStem;
use crate::store::Location;
use crate::tombstone::Delete;
use crate::write::records::RecordBatch;
use crate::write::{FileWriter, RecordLimits, RecordsStager, Stretch};
use model::{AttributeValue, Labels, RecordsBuilder, Samples, SeriesKey, TimeRange};
use std::path::Path;

/// Day of the samples that stay.
const DAY: i64 = 20_000 * DAY_MS;
/// Day of the samples that expire.
const OLD: i64 = DAY - 5 * DAY_MS;

/// Grace period, and time between two rounds.
const GRACE_MS: i64 = 100;

fn location(folder: &Path, runtime: &tokio::runtime::Runtime) -> Location {
    let url = format!("file://{}/t", folder.display());
    Location::open(&url, [], runtime.handle().clone()).unwrap()
}

/// Stages a file with one sample of each of 40 series.
fn stage(table: &Table, name: &str, at_ms: i64) -> StagedFile {
    let upload = table.upload(Date::of(at_ms), &FileStem::imported(name, 0), 1).unwrap();
    let mut writer = FileWriter::new(&METRICS, Date::of(at_ms), upload, 1 << 20).unwrap();
    for n in 0..40 {
        let labels = Labels::from_pairs(&[("__name__", &format!("m{n:02}"))]);
        let stretch = Stretch {
            labels: labels.as_ref(),
            key: SeriesKey::of(labels.as_bytes(), 7),
            timestamps: &[at_ms],
            values: &[n as f64],
        };
        writer.push(&stretch).unwrap();
    }
    let (summary, upload) = writer.finish().unwrap();
    table.staged(summary, upload).unwrap()
}

/// Prepares a table that has something to do for every step of upkeep: eight files of a past day, two of a day that
/// expires, a file without a commit, a checkpoint, and a delete of a quarter of the series.
fn fill(table: &Table) {
    for n in 0..10u64 {
        let at_ms = n as i64 + if n < 2 { OLD } else { DAY };
        let files = vec![stage(table, &format!("sealed-{n}"), at_ms)];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
        table.commit(&[block], at_ms).unwrap();
        if n == 3 {
            table.checkpoint().unwrap();
        }
    }
    stage(table, "left-behind", DAY);
    for (name, value) in [("__name__", "m0."), ("job", "none.*")] {
        let matcher = query::Matcher::new(name, query::MatchOp::Regex, value).unwrap();
        let delete = Delete { selectors: vec![vec![matcher]], range: TimeRange::new(DAY, DAY + DAY_MS) };
        table.delete(&delete, &BTreeMap::new(), true, DAY).unwrap().unwrap();
    }
}

/// Number of samples that a scan finds on the day that does not expire.
fn samples(table: &Table) -> usize {
    let cache = Arc::new(Cache::new(0));
    let mut scan = Scan::open(table, &cache, &Select::ALL, &ScanLimits::default()).unwrap();
    let (mut found, mut samples) = (0, Samples::default());
    while scan.next_series().unwrap() {
        samples.clear();
        scan.read(&mut samples).unwrap();
        found += samples.timestamps.iter().filter(|t| **t >= DAY).count();
    }
    assert_eq!(scan.warnings().next(), None);
    found
}

fn policy() -> Policy {
    Policy {
        expire_before_ms: Some(DAY),
        compact: Some(CompactLimits::default()),
        deletes_upto: i64::MAX,
        grace_ms: GRACE_MS,
        sweep_every_ms: 0,
        checkpoint_every: 2,
        // entries have the real time, so with this limit all of them are old
        log_keep_ms: i64::MIN / 2,
    }
}

/// One life of a process: several rounds of upkeep, after which nothing is left to do.
fn live(table: &Arc<Table>, life: u32) -> Result<(), TableError> {
    let mut upkeep = Upkeep::new();
    for round in 0..8 {
        let now = Now { wall_ms: DAY + 2 * DAY_MS, steady_ms: round * GRACE_MS };
        for (n, step) in upkeep.plan(table, now, &policy())?.iter().enumerate() {
            upkeep.run(
                table,
                step,
                &FileStem::imported(&format!("{life}-{round}-{n}"), 0),
                now,
                &policy(),
                |_| true,
            )?;
        }
    }
    Ok(())
}

fn stored(folder: &Path) -> usize {
    let days = std::fs::read_dir(folder.join("t")).unwrap().flatten();
    let days = days.filter(|entry| entry.file_name().to_string_lossy().starts_with("date="));
    days.map(|day| std::fs::read_dir(day.path()).unwrap().count()).sum()
}

#[test]
fn a_process_that_dies_anywhere_in_upkeep_loses_and_doubles_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    for place in fault::PLACES {
        let folder = tempfile::tempdir().unwrap();
        let table = Arc::new(Table::open_or_create(&METRICS, location(folder.path(), &runtime)).unwrap());
        fill(&table);
        fault::die_at(place);
        let died = live(&table, 1);
        assert!(!fault::is_alive() && died.is_err(), "{place} was never reached");
        drop(table);
        let table = Arc::new(Table::open(&METRICS, location(folder.path(), &runtime)).unwrap().unwrap());
        assert_eq!(samples(&table), 240, "after {place}");
        live(&table, 2).unwrap();
        assert_eq!(samples(&table), 240, "after {place} and another life");
        let files = table.files().unwrap();
        let rows: u64 = files.all().iter().map(|f| f.rows).sum();
        assert_eq!(
            (rows, stored(folder.path())),
            (30, files.all().len()),
            "after {place}: files are left over"
        );
        assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 9, "after {place}");
        assert_eq!(files.tombstones().list, [], "after {place}");
        let lists = std::fs::read_dir(folder.path().join("t/_floodmark")).unwrap().count();
        assert_eq!(lists, 0, "after {place}");
    }
}

/// Stages a block of 40 records.
fn stage_records(table: &Arc<Table>, name: &str, at_ms: i64) -> Vec<StagedFile> {
    let mut records = RecordsBuilder::new();
    for n in 0..40 {
        records.put("level", AttributeValue::Text("info")).unwrap();
        records.put(&format!("n{n}"), AttributeValue::Int(n)).unwrap();
        records.end((at_ms + n) * 1000);
    }
    let records = Arc::new(records.finish());
    let mut stager = RecordsStager::new(table, FileStem::imported(name, 0), RecordLimits::default(), None);
    stager.push(RecordBatch { stream: "s".into(), arrival_us: 0, id: None, records }).unwrap();
    stager.finish().unwrap().files
}

fn records(table: &Arc<Table>) -> usize {
    let range_us = [DAY * 1000, i64::MAX];
    let mut scan = RecordScan::open(table, RecordSelect { range_us, ..RecordSelect::ALL }).unwrap();
    let found = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(scan.warnings().next(), None);
    found
}

#[test]
fn a_process_that_dies_anywhere_in_upkeep_loses_and_doubles_no_record() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    // records have no deletes
    for place in fault::PLACES.into_iter().filter(|place| *place != "deletes_ended") {
        let folder = tempfile::tempdir().unwrap();
        let table = Arc::new(Table::open_or_create(&RECORDS, location(folder.path(), &runtime)).unwrap());
        for n in 0..10u64 {
            let at_ms = n as i64 + if n < 2 { OLD } else { DAY };
            let files = stage_records(&table, &format!("sealed-{n}"), at_ms);
            let after = n.checked_sub(1);
            table
                .commit(&[StagedBlock { source: "j".into(), after, upto: n, through: None, files }], at_ms)
                .unwrap();
            if n == 3 {
                table.checkpoint().unwrap();
            }
        }
        stage_records(&table, "left-behind", DAY);
        fault::die_at(place);
        let died = live(&table, 1);
        assert!(!fault::is_alive() && died.is_err(), "{place} was never reached");
        drop(table);
        let table = Arc::new(Table::open(&RECORDS, location(folder.path(), &runtime)).unwrap().unwrap());
        assert_eq!(records(&table), 320, "after {place}");
        live(&table, 2).unwrap();
        assert_eq!(records(&table), 320, "after {place} and another life");
        let files = table.files().unwrap();
        assert_eq!((files.all().len(), stored(folder.path())), (1, 1), "after {place}: files are left over");
        assert_eq!((files.all()[0].rows, table.floodmarks(["j"]).unwrap()["j"]), (320, 9), "after {place}");
    }
}
