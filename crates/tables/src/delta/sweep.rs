//! Deletes files that no version of the table needs any more.
//!
//! A reader may still be at a version from which a file has gone since, and a file that was staged a moment
//! ago is not in the log yet. Neither can be seen in the store, so a file is deleted only when it has been
//! seen dead for the whole of a grace period. The memory of it is in the process: after a restart the grace
//! begins anew, which costs disk for a while and never a file that is needed.

use super::Table;
use crate::error::TableError;
use crate::fault;
use crate::schema;
use crate::store::ASIDE;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::collections::{HashMap, HashSet};

/// Dead files that are remembered at a time; more are found when these are gone.
const DEAD_MAX: usize = 10_000;

/// Sweeps one table, again and again.
#[derive(Debug, Default)]
pub struct Sweeper {
    /// When each dead file was first seen dead, by the steady clock.
    dead: HashMap<Path, i64>,
}

/// What a sweep came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are dead and wait for the end of their grace.
    pub waiting: u64,
}

impl Sweeper {
    /// Deletes what has been dead for `grace_ms`, which must be longer than any query and than the time
    /// between staging and committing. `steady_ms` is of a clock that never jumps, from any beginning.
    pub fn sweep(&mut self, table: &Table, steady_ms: i64, grace_ms: i64) -> Result<Swept, TableError> {
        let found = self.find(table, steady_ms)?;
        fault::point("sweep_listed")?;
        let still: HashSet<&Path> = found.iter().map(|(path, _)| path).collect();
        self.dead.retain(|path, _| still.contains(path));
        let mut swept = Swept::default();
        for (path, bytes) in found {
            let since = *self.dead.entry(path.clone()).or_insert(steady_ms);
            if steady_ms.saturating_sub(since) < grace_ms {
                swept.waiting += 1;
                continue;
            }
            table.location.delete(&path)?;
            fault::point("swept_file")?;
            self.dead.remove(&path);
            swept.files += 1;
            swept.bytes += bytes;
        }
        Ok(swept)
    }

    /// Files that are dead now. The store is listed before the log is read: a file that is committed in between
    /// is then live.
    fn find(&self, table: &Table, steady_ms: i64) -> Result<Vec<(Path, u64)>, TableError> {
        let location = &table.location;
        let (store, prefix) = (location.store(), location.prefix().clone());
        let ours = |object: &ObjectMeta| {
            let mut parts = object.location.prefix_match(location.prefix()).into_iter().flatten();
            let folder = parts.next().map(|p| p.as_ref().to_string()).unwrap_or_default();
            let name = object.location.filename().unwrap_or_default();
            // nothing but what this program writes
            (folder.starts_with(schema::DATE) && name.ends_with(".parquet")) || name.starts_with(ASIDE)
        };
        let mut listed = Vec::new();
        location.wait(async {
            let mut objects = store.list(Some(&prefix));
            while let Some(object) = objects.try_next().await? {
                if ours(&object) {
                    listed.push((object.location, object.size));
                }
            }
            Ok::<_, object_store::Error>(())
        })?;
        table.refresh()?;
        let mut live = HashSet::new();
        for file in table.files()?.all() {
            live.insert(location.path(&file.path)?);
        }
        let known = |path: &Path| self.dead.get(path).copied().unwrap_or(steady_ms);
        let mut dead: Vec<_> = listed.into_iter().filter(|(path, _)| !live.contains(path)).collect();
        dead.sort_by_key(|(path, _)| known(path));
        dead.truncate(DEAD_MAX);
        Ok(dead)
    }
}
