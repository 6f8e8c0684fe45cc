//! Imitates another engine, which has its own file names, file metadata and log entries.

use serde_json::json;
use std::fs;
use std::path::PathBuf;
use tables::live_file::LiveFile;
use tempfile::TempDir;

fn root(folder: &TempDir) -> PathBuf {
    folder.path().join("tenant")
}

/// Copies one of the table's files to a name that the other engine would choose, and makes the copy say that the other
/// engine wrote it. The copy is not committed.
pub(crate) fn stage_copy(folder: &TempDir, file: &LiveFile, name: &str) -> LiveFile {
    let mut bytes = fs::read(root(folder).join(&file.path)).unwrap();
    // the footer has the length of the writer's name, then the name
    let maker =
        bytes.windows(10).rposition(|text| text == b"\x09floodmark").expect("the footer names the writer");
    bytes[maker + 1..maker + 10].copy_from_slice(b"deltalake");
    let path = format!("date={}/{name}.parquet", file.date);
    fs::write(root(folder).join(&path), bytes).unwrap();
    LiveFile { path, is_early: true, ..file.clone() }
}

/// Commits `version`, which replaces the file `removed` with `added`, as the other engine would when its clock shows
/// `now_ms`.
pub(crate) fn replace(folder: &TempDir, version: u64, removed: &LiveFile, added: &LiveFile, now_ms: i64) {
    let partition = json!({"date": added.date.to_string()});
    let (first, last) = added.names.as_ref().expect("the log has the bounds of the names");
    let stats = json!({"numRecords": added.rows, "minValues": {"name": first}, "maxValues": {"name": last}});
    let actions = [
        json!({"commitInfo": {"operation": "DELETE", "timestamp": now_ms}}),
        json!({"remove": {"path": removed.path, "deletionTimestamp": now_ms, "dataChange": true,
            "extendedFileMetadata": true, "partitionValues": partition, "size": removed.bytes}}),
        json!({"add": {"path": added.path, "partitionValues": partition, "size": added.bytes,
            "modificationTime": now_ms, "dataChange": true, "stats": stats.to_string()}}),
    ];
    let entry: String = actions.iter().map(|action| format!("{action}\n")).collect();
    let path = root(folder).join(format!("_delta_log/{version:020}.json"));
    let file = fs::File::create_new(path).expect("the version is new");
    std::io::Write::write_all(&mut { file }, entry.as_bytes()).unwrap();
}
