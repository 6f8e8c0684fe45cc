//! Tests tables of records: what was put comes back, once, whatever the attributes are.

mod columns;
mod commits;
mod engines;
mod merges;
mod rows;

use crate::table::location;
use model::{AttributeValue, Records, RecordsBuilder};
use rows::{Row, expected, row, rows_of};
use std::fs;
use std::sync::Arc;
use stdx::rng::Rng;
use tables::delta::{Outcome, StagedBlock};
use tables::kind::attributes;
use tables::write::records::RecordBatch;
use tables::{DAY_MS, Date, FileStem, RECORDS, RecordLimits, RecordScan, RecordSelect, RecordsStager, Table};
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
