//! Tables of records that other engines read and write.

use super::merges::maintain;
use super::*;
use crate::foreign::{python, rewrite};
use std::process::Command;
use tables::compact::CompactLimits;

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
