//! Commits deletes. [`super::pending_deletes`] lists their tombstones.

use super::commit::Change;
use super::pending_deletes::{LAST, LIST, PendingDeletes, number_of, path};
use super::{Files, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::tombstone::{Delete, PATTERN_BYTES_OF_TABLE_MAX, TOMBSTONES_MAX, Tombstone, Tombstones};
use std::collections::BTreeMap;
use std::sync::Arc;

const ATTEMPTS_MAX: usize = 100;
const UNCLEAR_MAX: usize = 3;

impl Table {
    /// Deletes samples from the table's present files, and moves `floodmarks` in the same commit. Reads omit the
    /// samples at once; [`crate::upkeep`] rewrites the files. Returns the delete's sequence, or `None` if no file has
    /// the samples and `always` is false.
    pub fn delete(
        &self,
        delete: &Delete,
        floodmarks: &BTreeMap<String, u64>,
        always: bool,
        now_ms: i64,
    ) -> Result<Option<i64>, TableError> {
        delete.check()?;
        let (mut unclear, mut tried) = (0, None);
        for _ in 0..ATTEMPTS_MAX {
            let version = self.refresh()?;
            let files = self.files()?;
            let known = &files.pending.all;
            // an earlier attempt was committed, but its answer was lost
            if tried
                .is_some_and(|tried| known.list.iter().any(|t| t.sequence == tried && t.delete == *delete))
            {
                return Ok(tried);
            }
            let sequence = files.sequence_max().saturating_add(1).max(now_ms);
            let tombstone = Tombstone { sequence, delete: delete.clone() };
            if !always && !files.all().iter().any(|file| tombstone.concerns(file)) {
                return Ok(None);
            }
            let mut list: Vec<_> = known.list.iter().filter(|t| !tombstone.replaces(t)).cloned().collect();
            let pattern_bytes: usize = list.iter().map(|t| t.delete.pattern_bytes()).sum();
            let is_full = pattern_bytes + delete.pattern_bytes() > PATTERN_BYTES_OF_TABLE_MAX;
            if list.len() >= TOMBSTONES_MAX || is_full {
                return Err(TableError::TooManyDeletes { pending: list.len() });
            }
            list.push(tombstone);
            let all = Tombstones { last: sequence, list };
            tried = Some(sequence);
            match self.try_tombstones(&files, version, all, floodmarks) {
                Ok(true) => return Ok(Some(sequence)),
                Ok(false) => {}
                Err(error) => {
                    unclear += 1;
                    if unclear > UNCLEAR_MAX {
                        return Err(error);
                    }
                }
            }
        }
        Err(TableError::Contended { attempts: ATTEMPTS_MAX })
    }

    /// Ends deletes that are complete: removes each tombstone up to `upto` that has been applied to all live files.
    /// Returns how many were removed. `is_clean(file, sequence)` is true if no tombstone up to this sequence deletes
    /// rows of the file.
    pub fn end_deletes(
        &self,
        upto: i64,
        is_clean: impl Fn(&LiveFile, i64) -> bool,
    ) -> Result<usize, TableError> {
        for _ in 0..ATTEMPTS_MAX {
            let version = self.version();
            let files = self.files()?;
            let known = &files.pending.all;
            let is_left = |t: &&Tombstone| {
                let is_open = |file: &LiveFile| t.concerns(file) && !is_clean(file, t.sequence);
                t.sequence > upto || files.all().iter().any(is_open)
            };
            let list: Vec<_> = known.list.iter().filter(is_left).cloned().collect();
            let ended = known.list.len() - list.len();
            if ended == 0 {
                return Ok(0);
            }
            let all = Tombstones { last: known.last, list };
            if files.version() == version && self.try_tombstones(&files, version, all, &BTreeMap::new())? {
                return Ok(ended);
            }
            self.refresh()?;
        }
        Err(TableError::Contended { attempts: ATTEMPTS_MAX })
    }

    /// Puts a new list of deletes, then the log entry that names it. Returns false if another writer was first.
    fn try_tombstones(
        &self,
        files: &Files,
        version: u64,
        all: Tombstones,
        floodmarks: &BTreeMap<String, u64>,
    ) -> Result<bool, TableError> {
        let snapshot = self.snapshot();
        if snapshot.version() != version || files.version() != version {
            return Ok(false);
        }
        let mut number = 0;
        if !all.list.is_empty() {
            let text = all.to_text(version + 1);
            number = number_of(text.as_bytes());
            self.location.put(&path(number), text.into())?;
        }
        let last = u64::try_from(all.last).unwrap_or(0);
        let mut floodmarks = floodmarks.clone();
        floodmarks.extend([(LIST.into(), number), (LAST.into(), last)]);
        let pending = PendingDeletes { number, is_rollup: files.pending.is_rollup, all: Arc::new(all) };
        let change = Change::of_tombstones(floodmarks, pending);
        Ok(self.try_change(&snapshot, files, &change)?.is_some())
    }
}
