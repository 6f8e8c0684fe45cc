//! Tests a table with files of two format versions, and a kind of table whose rows are not series.

use crate::fleet::{DAY, Series, date, fleet, stem};
use crate::table::{location, open, runtime, stage};
use crate::upkeep::contents;
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use model::TimeRange;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::sync::Arc;
use tables::compact::{self, CompactLimits};
use tables::delta::{FileSummary, StagedBlock, StagedFile, Sweeper};
use tables::kind::metrics::COLUMNS;
use tables::kind::{Coding, Column, FIRST_VERSION, Kind, MergePolicy, Type};
use tables::live_file::LiveFile;
use tables::rollup::{self, Resolution, RollupLimits};
use tables::write::FileWriter;
use tables::{Cache, Date, Location, METRICS, ROLLUP, Scan, ScanLimits, Select, Stop, Table, WriteLimits};
use tempfile::TempDir;

const NOTE: Column = Column {
    name: "note",
    data_type: Type::Text,
    is_nullable: true,
    since: METRICS.version + 1,
    encoding: Coding::Dictionary,
    has_bounds: false,
};

/// The next format version, with one more column.
static LATER: Kind = Kind { version: NOTE.since, columns: &LATER_COLUMNS, ..METRICS };

const LATER_COLUMNS: [Column; COLUMNS.len() + 1] = {
    let mut columns = [NOTE; COLUMNS.len() + 1];
    let mut at = 0;
    while at < COLUMNS.len() {
        columns[at] = COLUMNS[at];
        at += 1;
    }
    columns
};

/// Stages a file of the later format version, whose extra column has values.
fn stage_noted(table: &Table, name: &str, series: &[Series]) -> StagedFile {
    let mut writer = FileWriter::new(&LATER, date(), Vec::new(), 1 << 20).unwrap();
    series.iter().for_each(|one| writer.push(&one.stretch()).unwrap());
    let (mut summary, plain) = writer.finish().unwrap();
    let mut upload = table.upload(date(), &stem(name), 1).unwrap();
    let mut bytes = Vec::new();
    let mut noted =
        ArrowWriter::try_new(&mut bytes, LATER.schema(), Some(LATER.writer_properties())).unwrap();
    let rows = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(plain)).unwrap().build().unwrap();
    for batch in rows.map(Result::unwrap) {
        let mut columns = batch.columns().to_vec();
        let notes: ArrayRef = Arc::new(StringArray::from(vec!["by hand"; batch.num_rows()]));
        *columns.last_mut().unwrap() = notes;
        noted.write(&RecordBatch::try_new(LATER.schema(), columns).unwrap()).unwrap();
    }
    noted.close().unwrap();
    summary.bytes = bytes.len() as u64;
    upload.write_all(&bytes).unwrap();
    table.staged(summary, upload).unwrap()
}

fn commit(table: &Table, n: u64, file: StagedFile) {
    let block = StagedBlock {
        source: "j".into(),
        after: n.checked_sub(1),
        upto: n,
        through: None,
        files: vec![file],
    };
    table.commit(&[block], DAY).unwrap();
}

fn shifted(shift: i64) -> Vec<Series> {
    let mut series = fleet(3, 4, 40);
    series.iter_mut().for_each(|one| one.timestamps.iter_mut().for_each(|t| *t += shift * 15_000));
    series
}

fn columns(folder: &TempDir, file: &LiveFile) -> Vec<String> {
    let bytes = fs::read(folder.path().join("tenant").join(&file.path)).unwrap();
    let file = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    file.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// For each schema in the log, whether it has the new column.
fn schemas(folder: &TempDir) -> Vec<bool> {
    let mut entries: Vec<_> = fs::read_dir(folder.path().join("tenant/_delta_log")).unwrap().collect();
    entries.sort_by_key(|entry| entry.as_ref().unwrap().path());
    let texts = entries.into_iter().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.filter(|text| text.contains("schemaString")).map(|text| text.contains("note")).collect()
}

fn rolled_up(metrics: &Table) -> BTreeMap<(String, i64), u64> {
    let folder = TempDir::new().unwrap();
    let url = format!("file://{}", folder.path().display());
    let place = Location::open(&url, [], runtime().handle().clone()).unwrap();
    let rollup = Table::open_or_create(&ROLLUP, place).unwrap();
    let limits = RollupLimits { window_bytes: 1 << 20, write: WriteLimits::default() };
    let width = Resolution::FiveMinutes;
    let rolled =
        rollup::run(metrics, &rollup, date(), width, &stem("r"), &limits, DAY, &Stop::NEVER, |_| true)
            .unwrap();
    assert!(rolled.committed);
    contents(&rollup).unwrap()
}

fn compact(table: &Arc<Table>) -> usize {
    let (tomorrow, limits) = (Date(date().0 + 1), CompactLimits::default());
    let jobs = compact::plan(table.kind(), table.files().unwrap().all(), tomorrow, &limits, |_| false);
    for (n, job) in jobs.iter().enumerate() {
        assert!(
            compact::run(table, job, &stem(&format!("c{n}")), limits, &Stop::NEVER, |_| true)
                .unwrap()
                .is_some()
        );
    }
    jobs.len()
}

#[test]
fn files_of_two_format_versions_read_merge_and_roll_up_as_one() {
    let (folder, plain) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let expected = open(&plain);
    (0..4).for_each(|n| commit(&expected, n, stage(&expected, &format!("f{n}"), &shifted(10 * n as i64))));

    let before = open(&folder);
    (0..2).for_each(|n| commit(&before, n, stage(&before, &format!("f{n}"), &shifted(10 * n as i64))));
    drop(before);
    let table = Arc::new(Table::open(&LATER, location(&folder)).unwrap().expect("the table exists"));
    assert_eq!(contents(&table).unwrap().len(), 12 * 50, "only files of the previous version");
    assert_eq!(schemas(&folder), [false], "reading changes nothing");
    commit(&table, 2, stage(&table, "f2", &shifted(20)));
    commit(&table, 3, stage_noted(&table, "f3", &shifted(30)));
    assert_eq!(schemas(&folder), [false, true], "the first file of the later version adds the column");

    let rows = contents(&expected).unwrap();
    assert!(contents(&table).unwrap() == rows);
    // cached data gives the same results
    let cache = Arc::new(Cache::new(16 << 20));
    for _ in 0..3 {
        let mut scan = Scan::open(&table, &cache, &Select::ALL, &ScanLimits::default()).unwrap();
        let (mut samples, mut found) = (model::Samples::default(), 0);
        while scan.next_series().unwrap() {
            scan.read(&mut samples).unwrap();
            found += 1;
        }
        assert_eq!((found, samples.len(), scan.warnings().next()), (12, rows.len(), None));
    }
    let reopened = Table::open(&LATER, location(&folder)).unwrap().expect("the table exists");
    assert!(contents(&reopened).unwrap() == rows);
    let rollup = rolled_up(&expected);
    assert!(rolled_up(&table) == rollup);

    let files = table.files().unwrap();
    let noted = |file: &LiveFile| columns(&folder, file).contains(&"note".to_string());
    assert_eq!(files.all().iter().map(noted).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(compact(&table), 1);
    let merged = table.files().unwrap();
    assert_eq!(
        merged.all().iter().map(noted).collect::<Vec<_>>(),
        [true],
        "the result is one file of the later version"
    );
    assert!(contents(&table).unwrap() == rows);
    assert!(rolled_up(&table) == rollup);
}

#[test]
fn an_earlier_version_neither_misreads_nor_merges_files_of_a_later_one() {
    let folder = TempDir::new().unwrap();
    let table = Table::open_or_create(&LATER, location(&folder)).unwrap();
    commit(&table, 0, stage(&table, "f0", &shifted(0)));
    let earlier = open(&folder);
    let cache = Arc::new(Cache::new(1 << 20));
    let mut scan = Scan::open(&earlier, &cache, &Select::ALL, &ScanLimits::default()).unwrap();
    assert!(!scan.next_series().unwrap());
    let warning = scan.warnings().next().expect("a warning names the omitted file");
    assert!(
        warning.contains("its format version is 3, this version of Floodmark reads versions up to 2"),
        "{warning}"
    );
    commit(&earlier, 1, stage(&earlier, "f1", &shifted(10)));
    let (tomorrow, limits) = (Date(date().0 + 1), CompactLimits::default());
    for job in compact::plan(&METRICS, earlier.files().unwrap().all(), tomorrow, &limits, |_| false) {
        let error = compact::run(&earlier, &job, &stem("c"), limits, &Stop::NEVER, |_| true).unwrap_err();
        assert!(error.to_string().contains("its format version is 3"), "{error}");
    }
    table.refresh().unwrap();
    assert_eq!(contents(&table).unwrap().len(), 12 * 50, "both versions read files of the earlier one");
}

const fn required(name: &'static str, data_type: Type, encoding: Coding) -> Column {
    Column { name, data_type, is_nullable: false, since: FIRST_VERSION, encoding, has_bounds: true }
}

/// Kind for log lines. A row has one time, and there are no series.
static LINES: Kind = Kind {
    name: "lines",
    version: FIRST_VERSION,
    columns: &[
        required("stream", Type::Text, Coding::Dictionary),
        required("time", Type::Timestamp, Coding::Delta),
        required("body", Type::Text, Coding::Plain),
    ],
    sort_key: &["stream", "time"],
    time: ["time", "time"],
    merge: MergePolicy::Disjoint,
};

fn stage_lines(table: &Table, name: &str) -> StagedFile {
    let text = |texts: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let time = TimestampMillisecondArray::from(vec![DAY + 5, DAY + 2]).with_timezone("UTC");
    let columns = vec![text(["a", "b"]), Arc::new(time) as ArrayRef, text(["it began", "it ended"])];
    let mut bytes = Vec::new();
    let properties = Some(LINES.writer_properties());
    let mut writer = ArrowWriter::try_new(&mut bytes, LINES.schema(), properties).unwrap();
    writer.write(&RecordBatch::try_new(LINES.schema(), columns).unwrap()).unwrap();
    writer.close().unwrap();
    let mut upload = table.upload(date(), &stem(name), 1).unwrap();
    upload.write_all(&bytes).unwrap();
    let summary = FileSummary {
        date: date(),
        bytes: bytes.len() as u64,
        rows: 2,
        samples: 0,
        name_min: "a".into(),
        name_max: "b".into(),
        range: TimeRange::new(DAY + 2, DAY + 5),
        start_max_ms: DAY + 5,
        end_min_ms: DAY + 2,
        range_us: None,
        attributes: Arc::default(),
    };
    table.staged(summary, upload).unwrap()
}

#[test]
fn rows_without_series_are_committed_once_reopened_expired_and_swept() {
    let folder = TempDir::new().unwrap();
    let table = Table::open_or_create(&LINES, location(&folder)).unwrap();
    let file = stage_lines(&table, "f0");
    commit(&table, 0, file.clone());
    commit(&table, 0, file);
    let check = |table: &Table| {
        let files = table.files().unwrap();
        let [file] = files.all() else { panic!("one file is live: {files:?}") };
        assert_eq!((file.names.clone(), file.rows), (Some(("a".into(), "b".into())), 2));
        assert!((DAY + 5..=DAY + 6).contains(&file.range.end_ms) && file.range.start_ms == DAY + 2);
        assert_eq!(table.floodmarks(["j"]).unwrap(), BTreeMap::from([("j".into(), 0)]));
    };
    let reopen = || Table::open(&LINES, location(&folder)).unwrap().expect("the table exists");
    check(&table);
    check(&reopen());
    table.checkpoint().unwrap();
    check(&reopen());
    let error = Table::open(&METRICS, location(&folder)).unwrap_err().to_string();
    assert!(error.contains("column \"name\" is missing"), "{error}");
    assert_eq!(table.expire(DAY + tables::DAY_MS).unwrap(), 1);
    let swept = Sweeper::default().sweep(&table, 0, 0).unwrap();
    assert_eq!((swept.files, swept.waiting), (1, 0));
}
