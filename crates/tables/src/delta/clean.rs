//! Takes log entries away that nobody needs any more.
//!
//! A table opens by its last checkpoint and the entries after it. What lies before is only for who wants to
//! see an older version.

use super::Table;
use super::log::{FOLDER, version_of};
use crate::error::TableError;
use crate::fault;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;

/// Entries that go in one call; the rest goes in the next.
const CLEANED_MAX: usize = 10_000;

/// What a cleaning came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Log files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Table {
    /// Deletes log files that lie before a checkpoint of version `upto` or an earlier one, and were last written before
    /// `before_ms` by the store's clock. Older versions cannot be read any more then; so `upto` must have been there
    /// before any reader began. The first go first, so that what is left after a crash is a log without its beginning,
    /// and nothing else.
    pub fn clean_log(&self, before_ms: i64, upto: u64) -> Result<Cleaned, TableError> {
        let (store, prefix) = (self.location.store(), self.location.path(FOLDER)?);
        let mut entries: Vec<(u64, Path, u64)> = Vec::new();
        let mut checkpoints: Vec<u64> = Vec::new();
        self.location.wait(async {
            let mut objects = store.list(Some(&prefix));
            while let Some(object) = objects.try_next().await? {
                let name = object.location.filename().unwrap_or_default();
                let Some(version) = version(name) else { continue };
                let old = object.last_modified.timestamp_millis() < before_ms;
                let is_checkpoint = version_of(name, ".checkpoint.parquet").is_some() && object.size > 0;
                if is_checkpoint && version <= upto && old {
                    checkpoints.push(version);
                }
                if old {
                    entries.push((version, object.location, object.size));
                }
            }
            Ok::<_, object_store::Error>(())
        })?;
        let mut cleaned = Cleaned::default();
        // A checkpoint of its own age: a reader that began before it may still go by the one before.
        let Some(keep) = checkpoints.into_iter().max() else { return Ok(cleaned) };
        entries.retain(|(version, ..)| *version < keep);
        entries.sort();
        fault::point("log_listed")?;
        for (_, path, bytes) in entries.into_iter().take(CLEANED_MAX) {
            self.location.delete(&path)?;
            fault::point("log_entry_deleted")?;
            cleaned.files += 1;
            cleaned.bytes += bytes;
        }
        Ok(cleaned)
    }
}

/// The version that a log file belongs to.
fn version(name: &str) -> Option<u64> {
    [".json", ".crc", ".checkpoint.parquet"].iter().find_map(|suffix| version_of(name, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("00000000000000000012.json"), Some(12));
        assert_eq!(version("00000000000000000012.checkpoint.parquet"), Some(12));
        assert_eq!(version("_last_checkpoint"), None);
        assert_eq!(version("12.json"), None);
        assert_eq!(version("0000000000000000001x.crc"), None);
    }
}
