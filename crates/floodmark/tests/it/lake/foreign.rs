//! Reads tables with another engine, Python's `deltalake`.

use crate::harness::outside::cache;
use std::path::Path;
use std::process::Command;

/// Script that counts samples. It skips Python's usual shutdown, in which threads of its libraries sometimes abort.
const SCRIPT: &str = r#"
import os, sys
from deltalake import DeltaTable
columns = ["name", "labels", "timestamps"]
table = DeltaTable(sys.argv[1]).to_pyarrow_table(columns=columns)
seen = set()
for name, labels, times in zip(*(table.column(c).to_pylist() for c in columns)):
    series = (name, tuple(sorted(labels)))
    seen.update((series, t) for t in times)
print(len(seen), flush=True)
os._exit(0)
"#;

/// Programs that the check needs.
const READERS: &str = "Python with deltalake (scripts/test-servers.sh)";

/// Checks the number of samples with Python's `deltalake`, if it is installed. Samples of one series and time count once: if a
/// sender repeats a sealed sample, it is stored twice until it is compacted.
pub(super) fn check_count(table: &Path, samples: u64) {
    let python = cache().join("py/bin/python");
    let ended = match Command::new(&python).arg("-c").arg(SCRIPT).arg(table).output() {
        Ok(ended) => ended,
        Err(_) => return stdx::skipped::for_want_of(READERS),
    };
    let text = String::from_utf8_lossy(&ended.stderr);
    if text.contains("ModuleNotFoundError") {
        return stdx::skipped::for_want_of(READERS);
    }
    assert!(ended.status.success(), "{text}");
    let counted = String::from_utf8_lossy(&ended.stdout).trim().parse::<u64>().expect("a count");
    assert_eq!(counted, samples, "another engine counts what was acknowledged");
}
