//! Reads Floodmark's tables with other query engines.

use crate::harness::programs::cache;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The engines that `bench/readers.py` knows. They are Python packages.
const ENGINES: [&str; 4] = ["deltalake", "duckdb", "datafusion", "polars"];

const READERS: &str = "Python with deltalake, duckdb, numpy, polars and pyarrow (scripts/test-servers.sh)";

/// Checks how many samples a table has, with the Python package `deltalake` if it is installed. A sample that
/// was sent more than once counts once.
pub(super) fn check_count(table: &Path, samples: u64) {
    check(&ENGINES[..1], table, samples);
}

/// Reads a table with all four engines. Each must find this number of samples, and the same bits in each sample.
pub(super) fn check_with_all(table: &Path, samples: u64) {
    check(&ENGINES, table, samples);
}

fn check(engines: &[&str], table: &Path, samples: u64) {
    let Some(found) = engines.iter().map(|engine| read(engine, table)).collect::<Option<Vec<_>>>() else {
        return stdx::skipped::for_want_of(READERS);
    };
    for (engine, found_by) in engines.iter().zip(&found) {
        assert_eq!(found_by["samples"], samples, "{engine} does not find all acknowledged samples");
        assert_eq!(found_by["digest"], found[0]["digest"], "{engine} and {} disagree", engines[0]);
    }
}

/// Lets an engine count the samples and compute their digest. Returns `None` if Python or a package is
/// missing.
fn read(engine: &str, table: &Path) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/readers.py");
    let mut command = Command::new(cache().join("py/bin/python"));
    let ended = command.arg("-B").arg(script).arg(engine).arg(table).output().ok()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("ModuleNotFoundError") {
        return None;
    }
    assert!(ended.status.success(), "{engine}: {said}");
    Some(serde_json::from_slice(&ended.stdout).expect("the script prints no JSON"))
}
