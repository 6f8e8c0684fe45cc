//! Tests tables of records: what was put comes back, once, whatever the attributes are.

mod rows;

use crate::faults::{Failing, Faults, Put};
use crate::foreign::{python, rewrite};
use crate::table::location;
use model::{AttributeValue, Records, RecordsBuilder};
use object_store::path::Path;
use object_store::{PutOptions, PutPayload};
use rows::{Row, expected, row, rows_of};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stdx::rng::Rng;
use tables::compact::CompactLimits;
use tables::delta::{Floodmark, Outcome, StagedBlock, Sweeper};
use tables::kind::attributes;
use tables::upkeep::{Done, Now, Policy, Step, Upkeep};
use tables::write::records::RecordBatch;
use tables::{
    DAY_MS, Date, FileStem, RECORDS, RecordLimits, RecordScan, RecordSelect, RecordsStager, Table, TableError,
};
use tempfile::TempDir;

/// 2026-11-21T00:00:00Z
const DAY_US: i64 = crate::fleet::DAY * 1000;
const HOUR_US: i64 = 3_600_000_000;
const NOW: i64 = crate::fleet::DAY + DAY_MS;

const SMALL: RecordLimits = RecordLimits { buffer_bytes: 20_000, row_group_bytes: 4_000 };

fn open(folder: &TempDir) -> Arc<Table> {
    Arc::new(Table::open_or_create(&RECORDS, location(folder)).unwrap())
}

fn stager(table: &Arc<Table>, limits: RecordLimits) -> RecordsStager {
    let attempt = u128::from(Rng::fresh_seed()) << 64 | u128::from(Rng::fresh_seed());
    RecordsStager::new(table, FileStem::sealed(attempt), limits, None)
}

/// Stages batches as the block `n` of a journal.
fn block(table: &Arc<Table>, n: u64, batches: &[RecordBatch], limits: RecordLimits) -> StagedBlock {
    let mut stager = stager(table, limits);
    batches.iter().for_each(|batch| stager.push(batch.clone()).unwrap());
    let staged = stager.finish().unwrap();
    assert_eq!(staged.through, None);
    StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files: staged.files }
}

fn commit(table: &Arc<Table>, n: u64, batches: &[RecordBatch]) {
    let block = block(table, n, batches, RecordLimits::default());
    assert!(matches!(table.commit(&[block], NOW).unwrap()[..], [Outcome::Committed { .. }]));
}

fn batch(stream: &str, records: Records) -> RecordBatch {
    let id = Some(b"batch \xff".as_slice().into());
    RecordBatch { stream: stream.into(), arrival_us: DAY_US + 7, id, records: Arc::new(records) }
}

/// One record for each list of attributes, a second apart.
fn records(all: &[&[(&str, AttributeValue<'_>)]]) -> Records {
    let mut builder = RecordsBuilder::new();
    for (attributes, time_us) in all.iter().zip((DAY_US..).step_by(1_000_000)) {
        attributes.iter().for_each(|(path, value)| builder.put(path, *value).unwrap());
        builder.end(time_us);
    }
    builder.finish()
}

/// A batch of a few streams and days, whose attributes have several types.
fn random_batch(rng: &mut Rng) -> RecordBatch {
    let mut builder = RecordsBuilder::new();
    let paths =
        ["level", "http.status", "time", "ID", "deep.er", "q\"uo\te'", "größe", "message", "x y", "f"];
    let shape = rng.below(1 << paths.len());
    let days = 1 + rng.below(4) as i64;
    for n in 0..rng.below(60) {
        for (bit, path) in paths.iter().enumerate() {
            if shape >> bit & 1 == 0 && rng.chance(0.9) || rng.chance(0.1) {
                continue;
            }
            let text: String =
                (0..rng.below(6)).map(|_| ['a', '"', '\\', '\n', '\0', 'é'][rng.below(6) as usize]).collect();
            let value = match (bit as u64 + u64::from(rng.chance(0.1))) % 5 {
                0 | 3 => AttributeValue::Text(&text),
                1 => AttributeValue::Int((rng.next_u64() as i64) >> rng.below(64)),
                2 => AttributeValue::Float(rng.below(1000) as f64 / 8.0),
                4 if rng.chance(0.5) => AttributeValue::Bool(rng.chance(0.5)),
                _ => AttributeValue::Json("[1,{\"a\":[]}]"),
            };
            builder.put(path, value).unwrap();
        }
        let day = rng.below(days as u64) as i64 * 24 * HOUR_US;
        let time_us = match rng.below(3) {
            0 => n as i64,
            1 => 24 * HOUR_US - 1 - rng.below(3) as i64,
            _ => rng.below(24 * HOUR_US as u64) as i64,
        };
        builder.end(DAY_US + day + time_us);
    }
    RecordBatch {
        stream: ["app", "nginx", "über"][rng.below(3) as usize].into(),
        arrival_us: DAY_US + rng.below(1 << 40) as i64,
        id: rng.chance(0.5).then(|| rng.next_u64().to_be_bytes().as_slice().into()),
        records: Arc::new(builder.finish()),
    }
}

/// All rows that a scan finds, sorted.
fn contents(table: &Arc<Table>, select: RecordSelect) -> Vec<Row> {
    let mut scan = RecordScan::open(table, select).unwrap();
    let attributes = table.attributes();
    let mut found = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        assert!(batch.num_rows() > 0 && batch.schema() == *scan.schema());
        found.extend((0..batch.num_rows()).map(|at| row(&batch, at, &attributes)));
    }
    assert_eq!(scan.warnings().next(), None);
    found.sort();
    found
}

fn all_expected(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows: Vec<Row> = batches.iter().flat_map(expected).collect();
    rows.sort();
    rows
}

#[test]
fn records_come_back_as_they_were() {
    let mut rng = Rng::announced();
    for _ in 0..12 {
        let folder = TempDir::new().unwrap();
        let mut table = open(&folder);
        let mut batches = Vec::new();
        for n in 0..1 + rng.below(4) {
            let new: Vec<_> = (0..rng.below(12)).map(|_| random_batch(&mut rng)).collect();
            let limits = if rng.chance(0.5) { SMALL } else { RecordLimits::default() };
            let block = block(&table, n, &new, limits);
            table.commit(&[block], NOW).unwrap();
            batches.extend(new);
            if rng.chance(0.3) {
                table.checkpoint().unwrap();
            }
            if rng.chance(0.3) {
                table = open(&folder);
            }
        }
        let rows = all_expected(&batches);
        assert_eq!(contents(&table, RecordSelect::ALL), rows);
        for _ in 0..8 {
            let mut times = [0, 0].map(|_| DAY_US + rng.below(5 * 24 * HOUR_US as u64) as i64);
            if let Some(row) = rows.get(rng.below(rows.len() as u64) as usize) {
                times[0] = row.time_us;
            }
            times.sort_unstable();
            let stream = rng.chance(0.5).then(|| "nginx".to_string());
            let is_wanted = |row: &Row| {
                (times[0]..=times[1]).contains(&row.time_us)
                    && stream.as_ref().is_none_or(|s| row.stream == *s)
            };
            let wanted: Vec<Row> = rows.iter().filter(|row| is_wanted(row)).cloned().collect();
            let select = RecordSelect { range_us: times, stream: stream.clone(), ..RecordSelect::ALL };
            assert_eq!(contents(&table, select), wanted);
        }
    }
}

#[test]
fn a_file_is_of_one_day_and_sorted_by_stream_time_and_arrival() {
    let mut rng = Rng::announced();
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut batches: Vec<_> = (0..40).map(|_| random_batch(&mut rng)).collect();
    (0..).zip(&mut batches).for_each(|(n, batch)| batch.arrival_us = n);
    commit(&table, 0, &batches);
    for file in table.files().unwrap().all() {
        let path = folder.path().join("tenant").join(&file.path);
        let mut last = None;
        let mut rows = 0;
        for row in rows_of(fs::read(path).unwrap(), &table.attributes()) {
            assert_eq!(Date::of(row.time_us.div_euclid(1000)), file.date);
            assert!((file.range.start_ms..=file.range.end_ms).contains(&(row.time_us / 1000)));
            let (first, end) = file.names.as_ref().expect("the log has the bounds");
            assert!(*first <= row.stream && row.stream <= *end);
            let place = Some((row.stream.clone(), row.time_us, row.arrival_us));
            assert!(last <= place);
            last = place;
            rows += 1;
        }
        assert_eq!(rows, file.rows);
    }
}

#[test]
fn a_scan_reads_only_files_and_columns_that_are_wanted() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let text = AttributeValue::Text;
    for n in 0..3 {
        let mut records =
            records(&[&[("level", text("info")), ("a.b", AttributeValue::Int(n))] as &[_]; 100]);
        records.times_us.iter_mut().for_each(|t| *t += n * 24 * HOUR_US);
        commit(&table, n as u64, &[batch(["a", "b", "c"][n as usize], records)]);
    }
    let open = |select| RecordScan::open(&table, select).unwrap();
    assert_eq!(open(RecordSelect::ALL).files_left(), 3);
    let range_us = [DAY_US + 24 * HOUR_US, DAY_US + 25 * HOUR_US];
    assert_eq!(open(RecordSelect { range_us, ..RecordSelect::ALL }).files_left(), 1);
    assert_eq!(open(RecordSelect { stream: Some("b".into()), ..RecordSelect::ALL }).files_left(), 1);
    assert_eq!(open(RecordSelect { stream: Some("bb".into()), ..RecordSelect::ALL }).files_left(), 0);
    let columns = Some(vec!["a.b".to_string(), "date".into(), "none".into()]);
    let mut scan = open(RecordSelect { range_us, columns, ..RecordSelect::ALL });
    let batch = scan.next_batch().unwrap().unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!((names, batch.num_rows()), (vec!["date".to_string(), "a.b".into()], 100));
    assert!(scan.next().is_none());
    // only the number of rows
    let mut scan = open(RecordSelect { columns: Some(Vec::new()), ..RecordSelect::ALL });
    assert_eq!(scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 300);
    let [from, _] = range_us;
    let range_us = [from + 90_000_000, i64::MAX];
    let mut scan = open(RecordSelect { range_us, stream: Some("b".into()), ..RecordSelect::ALL });
    assert_eq!(scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 10);
}

#[test]
fn later_blocks_add_columns_and_old_files_have_nulls_there() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let text = AttributeValue::Text;
    let names = |table: &Table| -> Vec<String> {
        table.attributes().list().iter().map(|column| column.name.to_string()).collect()
    };
    let first = batch("s", records(&[&[("level", text("info"))], &[("level", text("warn"))]]));
    commit(&table, 0, std::slice::from_ref(&first));
    assert_eq!(names(&table), ["level"]);
    let old = table.files().unwrap().all().to_vec();
    let rare: &[(&str, AttributeValue<'_>)] =
        &[("level", AttributeValue::Int(5)), ("user.name", text("ada"))];
    let rest: &[(&str, AttributeValue<'_>)] = &[("user.name", text("bob")), ("date", AttributeValue::Int(1))];
    let second = batch("s", records(&[&[rare], [rest; 12].as_slice()].concat()));
    commit(&table, 1, std::slice::from_ref(&second));
    assert_eq!(names(&table), ["level", "user.name", "date_int"], "one level in 13 is an integer: too few");
    let reopened = open(&folder);
    assert_eq!(reopened.attributes().list(), table.attributes().list());
    for table in [&table, &reopened] {
        assert!(old.iter().all(|file| table.files().unwrap().all().contains(file)));
        assert_eq!(contents(table, RecordSelect::ALL), all_expected(&[first.clone(), second.clone()]));
    }
    // a column stays, however rare its attribute becomes
    let levels =
        batch("s", records(&[&[&[("level", text("x"))] as &[_]], [&[] as &[_]; 50].as_slice()].concat()));
    commit(&reopened, 2, std::slice::from_ref(&levels));
    let found = contents(&reopened, RecordSelect::ALL);
    assert_eq!(found, all_expected(&[first, second, levels]));
    assert_eq!(found.iter().filter(|row| row.columns.contains("level")).count(), 3);
}

#[test]
fn a_block_is_committed_once_and_staged_files_without_a_commit_are_swept() {
    let folder = TempDir::new().unwrap();
    let batches = [batch("s", records(&[&[("level", AttributeValue::Text("info"))] as &[_]; 3]))];
    {
        // the process dies between staging and commit
        let table = open(&folder);
        block(&table, 4, &batches, RecordLimits::default());
    }
    let table = open(&folder);
    assert!(table.attributes().list().is_empty() && contents(&table, RecordSelect::ALL).is_empty());
    assert!(table.floodmarks(["j"]).unwrap().is_empty());
    let mut block = block(&table, 4, &batches, RecordLimits::default());
    block.after = None;
    assert!(matches!(
        table.commit(std::slice::from_ref(&block), NOW).unwrap()[..],
        [Outcome::Committed { .. }]
    ));
    assert_eq!(table.commit(std::slice::from_ref(&block), NOW).unwrap(), [Outcome::Already { floodmark: 4 }]);
    // another process has staged the same records
    let other = open(&folder);
    let mut again = self::block(&other, 4, &batches, RecordLimits::default());
    again.after = None;
    assert_eq!(other.commit(&[again], NOW).unwrap(), [Outcome::Already { floodmark: 4 }]);
    assert_eq!(contents(&other, RecordSelect::ALL), all_expected(&batches));
    let swept = Sweeper::default().sweep(&table, 0, 0).unwrap();
    assert_eq!((swept.files, swept.waiting), (2, 0));
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
}

#[test]
fn a_column_that_contradicts_another_process_must_be_staged_again() {
    let folder = TempDir::new().unwrap();
    let (table, other) = (open(&folder), open(&folder));
    let of = |value| [batch("s", records(&[&[("status", value)]]))];
    let (ints, texts) = (of(AttributeValue::Int(200)), of(AttributeValue::Text("ok")));
    let mut theirs = block(&other, 0, &texts, SMALL);
    theirs.source = "k".into();
    commit(&table, 0, &ints);
    other.refresh().unwrap();
    let good = block(&table, 1, &ints, SMALL);
    let error = other.commit(&[good.clone(), theirs], NOW).unwrap_err();
    assert!(matches!(&error, TableError::Outdated { column, .. } if column == "status"), "{error}");
    table.refresh().unwrap();
    assert_eq!(
        table.commit(&[good], NOW).unwrap(),
        [Outcome::Already { floodmark: 1 }],
        "the block before is committed"
    );
    let mut theirs = block(&other, 0, &texts, SMALL);
    theirs.source = "k".into();
    assert!(matches!(other.commit(&[theirs], NOW).unwrap()[..], [Outcome::Committed { .. }]));
    let names: Vec<_> = other.attributes().list().iter().map(|column| column.name.to_string()).collect();
    assert_eq!(names, ["status", "status_text"]);
    assert_eq!(contents(&other, RecordSelect::ALL), all_expected(&[ints.clone(), ints, texts].concat()));
}

/// Stagers of one process never contradict each other, in whatever order their files are committed.
#[test]
fn writers_of_one_process_choose_the_same_columns() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let of = |value| [batch("s", records(&[&[("status", value)]]))];
    let (ints, texts) = (of(AttributeValue::Int(200)), of(AttributeValue::Text("ok")));
    let mut blocks: Vec<_> =
        (0..4).map(|n| block(&table, n, if n % 2 == 0 { &ints } else { &texts }, SMALL)).collect();
    blocks.iter_mut().zip(["a", "b", "c", "d"]).for_each(|(block, source)| {
        block.source = source.into();
        block.after = None;
    });
    blocks.reverse();
    assert_eq!(table.commit(&blocks, NOW).unwrap().len(), 4);
    assert_eq!(
        contents(&table, RecordSelect::ALL),
        all_expected(&[ints.clone(), ints, texts.clone(), texts].concat())
    );
}

#[test]
fn a_block_of_many_days_is_staged_in_passes() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut rng = Rng::announced();
    let mut batches = Vec::new();
    for _ in 0..20 {
        let mut builder = RecordsBuilder::new();
        for _ in 0..50 {
            builder.put("n", AttributeValue::Int(rng.below(100) as i64)).unwrap();
            builder.end(DAY_US + rng.below(11) as i64 * 24 * HOUR_US + rng.below(1000) as i64);
        }
        batches.push(batch("s", builder.finish()));
    }
    let (mut after, mut passes, mut progress) = (None, 0, Floodmark::default());
    loop {
        let stem = FileStem::sealed(rng.next_u64().into());
        let limits = if rng.chance(0.5) { SMALL } else { RecordLimits::default() };
        let mut stager = RecordsStager::new(&table, stem, limits, after).with_files_max(3);
        batches.iter().for_each(|batch| stager.push(batch.clone()).unwrap());
        let staged = stager.finish().unwrap();
        let days: std::collections::BTreeSet<_> = staged.files.iter().map(|file| file.summary.date).collect();
        assert!(
            staged.files.len() <= 3 || days.len() == 1,
            "{} files of {} days",
            staged.files.len(),
            days.len()
        );
        let block = StagedBlock {
            source: "j".into(),
            after: None,
            upto: 9,
            through: staged.through,
            files: staged.files,
        };
        let outcome = table.commit_pass(&block, &progress, NOW).unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        passes += 1;
        match staged.through {
            Some(through) => (after, progress) = (Some(through), progress.after_pass(9, through)),
            None => break,
        }
        assert_eq!(table.progress("j").unwrap().as_ref(), Some(&progress));
    }
    assert!((4..=11).contains(&passes), "{passes}");
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 9);
}

/// A store that fails for a while after a put of a log entry.
#[derive(Debug, Clone, Default)]
struct Outage {
    /// What becomes of an entry, and how many are put before it.
    next: Arc<Mutex<Option<(Put, usize)>>>,
    is_on: Arc<AtomicBool>,
}

impl Faults for Outage {
    fn put(&self, path: &Path, _: &PutPayload, _: &PutOptions) -> Put {
        let is_entry = path.as_ref().ends_with(".json") && path.as_ref().contains("_delta_log");
        let mut next = self.next.lock().unwrap();
        if let Some((_, before @ 1..)) = next.as_mut().filter(|_| is_entry) {
            *before -= 1;
            return Put::Done;
        }
        let Some((fate, _)) = next.take_if(|_| is_entry) else { return Put::Done };
        self.is_on.store(true, Ordering::SeqCst);
        fate
    }

    fn is_alive(&self) -> bool {
        !self.is_on.load(Ordering::SeqCst)
    }
}

/// Batches of a stream that are not known to be in the table, as a node has them.
#[derive(Debug, Default)]
struct Waiting(Vec<(u64, RecordBatch)>);

impl Waiting {
    /// Loads the batches, with at most two files in a pass.
    fn load(&mut self, table: &Arc<Table>) -> Result<(), String> {
        let error = |error: TableError| error.to_string();
        let after = table.floodmarks(["j"]).map_err(error)?.get("j").copied();
        let mut progress = table.progress("j").map_err(error)?.unwrap_or_default();
        self.0.retain(|(offset, _)| *offset >= progress.upto);
        let Some((first, _)) = self.0.first() else { return Ok(()) };
        let (end, mut through) =
            progress.interrupted(*first).map_or((u64::MAX, None), |(end, through)| (end, Some(through)));
        let block = self.0.iter().take_while(|(offset, _)| *offset < end);
        let upto = block.clone().last().map_or(0, |(offset, _)| offset + 1);
        loop {
            let stem = FileStem::sealed(Rng::fresh_seed().into());
            let mut stager =
                RecordsStager::new(table, stem, RecordLimits::default(), through).with_files_max(2);
            block.clone().try_for_each(|(_, batch)| stager.push(batch.clone())).map_err(error)?;
            let staged = stager.finish().map_err(error)?;
            through = staged.through;
            let pass = StagedBlock { source: "j".into(), after, upto, through, files: staged.files };
            match table.commit_pass(&pass, &progress, NOW).map_err(error)? {
                mismatch @ Outcome::FloodmarkMismatch { .. } => return Err(format!("{mismatch:?}")),
                Outcome::Committed { .. } | Outcome::Already { .. } => {}
            }
            match through {
                Some(through) => progress = progress.after_pass(upto, through),
                None => break,
            }
        }
        self.0.retain(|(offset, _)| *offset >= upto);
        Ok(())
    }
}

/// The answer to the first pass of a block is lost, and the log cannot be read either. Until the next attempt, another batch
/// arrives, so that it is a block of other batches.
#[test]
fn a_pass_whose_answer_was_lost_is_not_repeated_by_a_longer_block() {
    for fate in [Put::AnswerLost, Put::Refused] {
        for entry in 0..3 {
            for restarts in [false, true] {
                let folder = TempDir::new().unwrap();
                open(&folder);
                let outage = Outage::default();
                let faults = outage.clone();
                let location = location(&folder).with_store(|store| Arc::new(Failing { store, faults }));
                let opened = || Arc::new(Table::open_or_create(&RECORDS, location.clone()).unwrap());
                let mut table = opened();
                let days = |days: std::ops::Range<i64>| {
                    let mut builder = RecordsBuilder::new();
                    for day in days {
                        builder.put("day", AttributeValue::Int(day)).unwrap();
                        builder.end(DAY_US + day * 24 * HOUR_US);
                    }
                    batch("s", builder.finish())
                };
                let all = [(10, days(0..5)), (29, days(2..4)), (35, days(1..7))];
                let mut waiting = Waiting(all[..2].to_vec());
                *outage.next.lock().unwrap() = Some((fate, entry));
                waiting.load(&table).unwrap_err();
                outage.is_on.store(false, Ordering::SeqCst);
                if restarts {
                    table = opened();
                }
                waiting.0.push(all[2].clone());
                // an attempt fails if the table has something else than the block was staged for
                let attempts = (0..3).take_while(|_| waiting.load(&table).is_err()).count();
                assert!(attempts < 3, "{fate:?} {entry}");
                waiting.load(&table).unwrap();
                assert!(waiting.0.is_empty());
                let batches: Vec<_> = all.iter().map(|(_, batch)| batch.clone()).collect();
                let table = open(&folder);
                assert_eq!(
                    contents(&table, RecordSelect::ALL),
                    all_expected(&batches),
                    "{fate:?} {entry} {restarts}"
                );
                assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 36);
            }
        }
    }
}

#[test]
fn hostile_records_come_back_too() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    // as many attributes as a request may have, whose names no engine likes
    let mut many = RecordsBuilder::new();
    for n in 0..model::caps::BATCH_ATTRIBUTES_MAX {
        let path =
            format!("{}{n}", ["a", "A", "\"", "'; DROP TABLE x --", "\0", "a.b.", "`", "\u{202e}"][n % 8]);
        let value = ["", "\0", "\u{1}\u{1f}\u{7f}", "\"\\"][n % 4];
        many.put(&path, AttributeValue::Text(value)).unwrap();
    }
    many.end(DAY_US);
    // texts of 16 MiB, in a column and in the rest
    let long = "\0".repeat(16 << 20);
    let mut texts = RecordsBuilder::new();
    for n in 0..3 {
        texts.put("long", AttributeValue::Text(&long)).unwrap();
        texts.put(["quo\"ted", "", " "][n], AttributeValue::Text(&long)).unwrap();
        texts.end(DAY_US + n as i64);
    }
    // types that flip, and a path with values of all types in one record
    let mut flips = RecordsBuilder::new();
    for n in 0..100 {
        for value in [
            AttributeValue::Int(i64::MIN + n),
            AttributeValue::Float(f64::MAX),
            AttributeValue::Bool(true),
            AttributeValue::Text("NUL \0"),
            AttributeValue::Json("123456789012345678901234567890"),
        ] {
            flips.put("flip", value).unwrap();
            flips.put("fl ip", value).unwrap();
        }
        flips.end(model::caps::TIMESTAMP_MS_MAX * 1000 + 999);
    }
    let empty = batch("", records(&[]));
    let batches = [batch("s", many.finish()), batch("s", texts.finish()), empty, batch("\0", flips.finish())];
    commit(&table, 0, &batches);
    assert!(table.attributes().list().len() <= attributes::MAX);
    let rows = all_expected(&batches);
    assert_eq!(rows.len(), 104);
    // the message of `assert_eq` would be long
    assert!(contents(&table, RecordSelect::ALL) == rows);
    assert!(contents(&open(&folder), RecordSelect::ALL) == rows);
}

/// Runs upkeep until nothing is left to do. Returns the number of merges.
fn maintain(table: &Arc<Table>, compact: CompactLimits) -> usize {
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

#[test]
fn files_that_another_engine_wrote_are_read_and_not_merged() {
    let Some(python) = python() else { return };
    let mut rng = Rng::announced();
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut batches = Vec::new();
    for n in 0..4 {
        let new: Vec<_> = (0..4).map(|_| random_batch(&mut rng)).collect();
        commit(&table, n, &new);
        batches.extend(new);
    }
    rewrite(&python, &folder, "compact");
    table.refresh().unwrap();
    assert!(table.files().unwrap().all().iter().any(|file| file.is_early));
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
    let more: Vec<_> = (0..4).map(|_| random_batch(&mut rng)).collect();
    commit(&table, 4, &more);
    batches.extend(more);
    maintain(&table, CompactLimits::for_records());
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
}

/// A journal of records has a new name whenever it is opened.
#[test]
fn memory_of_a_table_includes_the_names_of_its_sources() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let batches = [batch("s", records(&[&[("n", AttributeValue::Int(1))]]))];
    let beyond_files = |table: &Table| table.memory_bytes() - table.files().unwrap().memory_bytes();
    let load = |source: &str, n: u64| {
        let mut block = block(&table, n, &batches, RecordLimits::default());
        (block.source, block.after) = (source.into(), n.checked_sub(1));
        assert!(matches!(table.commit(&[block], NOW).unwrap()[..], [Outcome::Committed { .. }]));
    };
    for n in 0..30 {
        load("one", n);
    }
    let one_name = beyond_files(&table);
    for name in 0..100 {
        load(&format!("{name:016x}/0"), 0);
    }
    let many_names = beyond_files(&table);
    assert!((20_000..80_000).contains(&(many_names - one_name)), "{many_names} {one_name}");
    for is_checkpointed in [false, true] {
        if is_checkpointed {
            table.checkpoint().unwrap();
        }
        let opened = beyond_files(&open(&folder));
        assert!((20_000..80_000).contains(&(opened - one_name)), "{is_checkpointed}: {opened} {one_name}");
    }
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

/// Script that prints the rows of a table as lines of JSON, read with deltalake, DuckDB or Polars.
const READER: &str = r#"
import json, os, sys
import deltalake

path, mode = sys.argv[1:3]
table = deltalake.DeltaTable(path)
def micros(t):
    import datetime
    return round((t - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) / datetime.timedelta(microseconds=1))
if mode == 'deltalake':
    import pyarrow as pa
    rows = pa.table(table.to_pyarrow_table()).to_pylist()
elif mode == 'polars':
    import polars
    rows = polars.read_delta(path).to_dicts()
else:
    import duckdb
    files = [f.removeprefix('file://') for f in table.file_uris()]
    duckdb.sql("SET TimeZone = 'UTC'")
    found = duckdb.sql(f"SELECT * FROM read_parquet({files!r}, hive_partitioning = true, union_by_name = true)")
    rows = [dict(zip(found.columns, row)) for row in found.fetchall()]
names = [f.name for f in table.schema().fields]
for row in rows:
    assert set(row) == set(names), (sorted(row), names)
    out = {name: row[name] for name in names}
    out['date'] = str(out['date'])
    out['time'], out['arrival'] = micros(out['time']), micros(out['arrival'])
    out['id'] = None if out['id'] is None else bytes(out['id']).hex()
    out['attributes'] = None if out['attributes'] is None else json.loads(out['attributes'])
    print(json.dumps(out))
sys.stdout.flush()
os._exit(0)
"#;

#[test]
fn other_engines_read_the_same_records() {
    let Some(python) = python() else { return };
    let mut rng = Rng::announced();
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut batches = Vec::new();
    for n in 0..3 {
        let new: Vec<_> = (0..10).map(|_| random_batch(&mut rng)).collect();
        commit(&table, n, &new);
        batches.extend(new);
    }
    let rows = all_expected(&batches);
    let attributes = table.attributes();
    let names: Vec<_> = attributes.list().iter().map(|column| &*column.name).collect();
    assert!(names.contains(&"http.status") && names.contains(&"deep.er"), "names with dots: {names:?}");
    for reader in ["deltalake", "duckdb", "polars"] {
        let output =
            Command::new(&python).args(["-c", READER]).arg(folder.path().join("tenant")).arg(reader).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found: Vec<_> = text.lines().map(|line| rows::of_json(line, &attributes)).collect();
        found.sort();
        assert_eq!(found, rows, "{reader}");
    }
}
