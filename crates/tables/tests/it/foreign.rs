//! Checks that other engines read the same rows and values as Floodmark.

use crate::fleet::{DAY, Series, fleet, stem};
use crate::table::{location, open, stage};
use crate::upkeep::contents;
use model::Samples;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use stdx::telemetry::Counter;
use tables::METRICS;
use tables::compact::{self, CompactLimits};
use tables::delta::StagedBlock;
use tables::{Cache, Date, Scan, ScanLimits, Select, Stop, Table};
use tempfile::TempDir;

/// Script that prints each sample of a table as `name|labels|ms|bits`, read with deltalake or with DuckDB.
const READER: &str = r#"
import os, struct, sys
import deltalake, duckdb

def show(name, labels, at, value):
    pairs = ','.join(f'{k}={v}' for k, v in sorted(labels))
    print(f'{name}|{pairs}|{at}|{struct.unpack(">Q", struct.pack(">d", value))[0]:016x}')

table = deltalake.DeltaTable(sys.argv[1])
assert table.version() == 2, table.version()
assert table.transaction_version('j') == 9
mode = sys.argv[2]
if mode == 'deltalake':
    import pyarrow as pa
    rows = pa.table(table.to_pyarrow_table() if hasattr(table, 'to_pyarrow_table') else table)
    for row in rows.to_pylist():
        assert row['count'] == len(row['timestamps']) and len(row['series']) == 16
        assert str(row['date']) == '2026-11-21'
        values = row['floats'] if row['exponent'] is None else [(m + row['base']) / 10 ** row['exponent'] for m in row['mantissas']]
        times = [round(t.timestamp() * 1000) for t in row['timestamps']]
        assert round(row['start'].timestamp() * 1000) == times[0] and round(row['end'].timestamp() * 1000) == times[-1]
        for at, value in zip(times, values):
            show(row['name'], row['labels'], at, value)
else:
    root = sys.argv[1].rstrip('/')
    paths = [f'{root}/{p}' for p in (a['path'] for a in table.get_add_actions(flatten=True).to_pylist())] \
        if hasattr(table.get_add_actions(flatten=True), 'to_pylist') else table.file_uris()
    view = sys.argv[3].replace("'<files>'", ', '.join(f"'{p}'" for p in paths))
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.sql(view)
    rows = duckdb.sql("SELECT name, labels, epoch_ms(timestamp), value FROM samples WHERE date = '2026-11-21'").fetchall()
    for name, labels, at, value in rows:
        show(name, labels.items(), at, value)
sys.stdout.flush()
os._exit(0)  # threads of these libraries have been seen to abort in the usual ending
"#;

/// View for DuckDB from the users' documentation, which the test runs as it is.
fn view() -> String {
    let text = include_str!("../../../../docs/sql.md");
    let (_, section) = text.split_once("## DuckDB").expect("docs/sql.md has a section on DuckDB");
    let (_, code) = section.split_once("```sql\n").expect("the section has the SQL of a view");
    code.split_once("```").expect("the SQL block is closed").0.into()
}

/// Python interpreter that has the needed modules, if one is installed.
pub(crate) fn python() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/floodmark"));
    let cache = std::env::var_os("FLOODMARK_CACHE").map(PathBuf::from).or_else(home)?;
    let python = cache.join("py/bin/python");
    let modules = Command::new(&python).args(["-c", "import deltalake, duckdb, pyarrow"]).output();
    let is_there = modules.is_ok_and(|modules| modules.status.success());
    if !is_there {
        stdx::skipped::for_want_of("Python with deltalake, duckdb and pyarrow (scripts/test-servers.sh)");
    }
    is_there.then_some(python)
}

/// Checks that deltalake and DuckDB find exactly these series in the table.
fn check(python: &Path, folder: &TempDir, series: &[Series]) {
    let mut expected: Vec<String> = Vec::new();
    for one in series {
        let labels: Vec<_> = one.labels.iter().filter(|(n, _)| *n != "__name__").collect();
        let labels: Vec<_> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let head = format!("{}|{}", one.stretch().name(), labels.join(","));
        let samples = one.timestamps.iter().zip(&one.values);
        expected.extend(samples.map(|(t, v)| format!("{head}|{t}|{:016x}", v.to_bits())));
    }
    expected.sort();
    for reader in ["deltalake", "duckdb"] {
        let path = folder.path().join("tenant");
        let output =
            Command::new(python).args(["-c", READER]).arg(&path).args([reader, &view()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
        let mut found: Vec<_> = text.lines().map(String::from).collect();
        found.sort();
        assert_eq!(found, expected, "{reader}");
    }
}

#[test]
fn deltalake_and_duckdb_read_the_same_samples() {
    let Some(python) = python() else { return };
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let at = |values: &[f64]| -> Vec<(i64, f64)> {
        values.iter().enumerate().map(|(i, v)| (DAY + i as i64 * 15_001, *v)).collect()
    };
    let series = [
        Series::new(&[("__name__", "a"), ("job", "x"), ("é", "ü")], &at(&[1.0, 2.5, 3.125, stale])),
        Series::new(&[("__name__", "b")], &at(&[0.1, 0.2, 1e15, 123_456.789, -0.001])),
        Series::new(&[("__name__", "c"), ("job", "y")], &at(&[f64::INFINITY, -0.0, 0.1 + 0.2, 5e-324])),
        Series::new(
            &[("__name__", "d")],
            &at(&(0..1000).map(|i| f64::from(i * i) / 100.0).collect::<Vec<_>>()),
        ),
    ];
    let block = |name: &str, after, upto, series: &[Series]| StagedBlock {
        source: "j".into(),
        after,
        upto,
        through: None,
        files: vec![stage(&table, name, series)],
    };
    table.commit(&[block("one", None, 4, &series[..2])], DAY).unwrap();
    table.commit(&[block("two", Some(4), 9, &series[2..])], DAY).unwrap();
    check(&python, &folder, &series);
}

/// Other engines must be able to read the table after Floodmark has put a damaged checkpoint aside.
#[test]
fn deltalake_and_duckdb_read_a_repaired_table() {
    let Some(python) = python() else { return };
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series =
        [Series::new(&[("__name__", "a")], &[(DAY, 1.5)]), Series::new(&[("__name__", "b")], &[(DAY, 2.0)])];
    for (n, one) in series.iter().enumerate() {
        let (after, upto) = ([None, Some(4)][n], [4, 9][n]);
        let files = vec![stage(&table, &format!("f{n}"), std::slice::from_ref(one))];
        table.commit(&[StagedBlock { source: "j".into(), after, upto, through: None, files }], DAY).unwrap();
    }
    table.checkpoint().unwrap();
    let checkpoint = folder.path().join("tenant/_delta_log/00000000000000000002.checkpoint.parquet");
    let bytes = std::fs::read(&checkpoint).unwrap();
    std::fs::write(&checkpoint, &bytes[..bytes.len() / 2]).unwrap();
    Table::open(&METRICS, location(&folder).with_repairs(Counter::default())).unwrap();
    check(&python, &folder, &series);
}

const REWRITE: &str = r#"
import os, sys
import deltalake

table = deltalake.DeltaTable(sys.argv[1])
what = sys.argv[2]
if what == 'compact':
    print(table.optimize.compact())
elif what == 'z_order':
    print(table.optimize.z_order(['start']))
else:
    print(table.delete("name = 'metric_0001'"))
sys.stdout.flush()
os._exit(0)
"#;

pub(crate) fn rewrite(python: &Path, folder: &TempDir, what: &str) {
    let path = folder.path().join("tenant");
    let output = Command::new(python).args(["-c", REWRITE]).arg(path).arg(what).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Commits blocks that each have a part of every series' samples, then a late block that overrides some of them.
fn fill(table: &Table) -> Vec<Series> {
    let mut all = fleet(3, 20, 240);
    let part = |series: &[Series], samples: std::ops::Range<usize>| -> Vec<Series> {
        let part = |s: &Series| Series {
            labels: s.labels.clone(),
            timestamps: s.timestamps[samples.clone()].to_vec(),
            values: s.values[samples.clone()].to_vec(),
        };
        series.iter().map(part).collect()
    };
    for n in 0..4u64 {
        let at = n as usize * 60;
        let files = vec![stage(table, &format!("f{n}"), &part(&all, at..at + 60))];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
        table.commit(&[block], DAY + n as i64).unwrap();
    }
    let late =
        Series::new(&[("__name__", "metric_0002"), ("job", "api"), ("pod", "pod-00003")], &[(DAY + 7, 77.0)]);
    let files = vec![stage(table, "late", std::slice::from_ref(&late))];
    table
        .commit(&[StagedBlock { source: "j".into(), after: Some(3), upto: 4, through: None, files }], DAY)
        .unwrap();
    all.push(late);
    all
}

#[test]
fn a_table_that_another_engine_rewrote_has_every_sample() {
    let Some(python) = python() else { return };
    for what in ["compact", "z_order", "delete"] {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        fill(&table);
        let mut expected = contents(&table).unwrap();
        rewrite(&python, &folder, what);
        if what == "delete" {
            expected.retain(|(labels, _), _| !labels.contains("metric_0001"));
        }
        assert!(table.refresh().unwrap() > 5, "{what}: the other engine changed nothing");
        assert_eq!(contents(&table).unwrap(), expected, "after {what}");
    }
}

/// Another engine merges files that have different values for the same sample.
#[test]
fn the_later_sample_wins_after_a_foreign_merge_with_a_warning() {
    let Some(python) = python() else { return };
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let one = |n: u64, value: f64| {
        let series = Series::new(&[("__name__", "m")], &[(DAY, value), (DAY + 1 + n as i64, value)]);
        let files = vec![stage(&table, &format!("f{n}"), &[series])];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
        table.commit(&[block], DAY + n as i64).unwrap();
    };
    (0..3).for_each(|n| one(n, n as f64));
    rewrite(&python, &folder, "compact");
    table.refresh().unwrap();
    // returns the value at `DAY`, the number of samples, and whether the scan warns that values are in doubt
    let read = || {
        let cache = Arc::new(Cache::new(1 << 20));
        let mut scan = Scan::open(&table, &cache, &Select::ALL, &ScanLimits::default()).unwrap();
        let mut samples = Samples::default();
        assert!(scan.next_series().unwrap());
        scan.read(&mut samples).unwrap();
        assert!(!scan.next_series().unwrap());
        (samples.values[0], samples.len(), scan.doubt().is_some())
    };
    assert_eq!(read(), (2.0, 4, true));
    // a write after the merge, although its clock is behind that of the other engine
    one(3, 3.0);
    assert_eq!(read(), (3.0, 5, true));
    // Floodmark merges the file of the other engine, which resolves the conflict
    let limits = CompactLimits::default();
    let jobs =
        compact::plan(&METRICS, table.files().unwrap().all(), Date(Date::of(DAY).0 + 1), &limits, |_| false);
    assert!(
        compact::run(&table, &jobs[0], &stem("merged"), limits, &Stop::NEVER, |_| true).unwrap().is_some()
    );
    assert_eq!(read(), (3.0, 5, false));
}
