//! Tombstones in the log: commits of deletes, and the list of incomplete deletes.
//!
//! ```text
//!   _floodmark/tombstones-NUMBER.json    a list; put before the entry that names it, never changed
//!   txn floodmark/tombstones  NUMBER     the current list; 0 for an empty one
//!   txn floodmark/deleted     SEQUENCE   place of the last delete in the order of writes
//! ```
//!
//! The log has no field for arbitrary text that every engine preserves, but all preserve `txn` actions. So an entry refers to a
//! list by number, which is the hash of the list's text. The text contains the version of the entry, so no two entries refer to
//! the same list. Therefore, when a sweep has found a list unused and deletes it after its own entry ([`super::sweep`]), no later
//! entry can refer to that list.

use super::commit::Change;
use super::lease::BESIDE;
use super::{Files, LiveFile, Table, failure};
use crate::error::TableError;
use crate::store::Location;
use crate::tombstone::{Delete, PATTERN_BYTES_OF_TABLE_MAX, TOMBSTONES_MAX, Tombstone, Tombstones};
use model::SeriesKey;
use object_store::ObjectStoreExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Source whose floodmark is the number of the list.
const LIST: &str = "floodmark/tombstones";

/// Source whose floodmark is the sequence of the last delete.
const LAST: &str = "floodmark/deleted";

/// Prefix of the names of lists.
const PREFIX: &str = "tombstones-";

/// Maximum number of attempts after conflicts and unclear answers.
const ATTEMPTS_MAX: usize = 100;
const UNCLEAR_MAX: usize = 3;

/// The tombstones of one version, and the number of their list.
#[derive(Debug, Clone, Default)]
pub(super) struct Pending {
    number: u64,
    /// True for a rollup: its series are statistics of the series that deletes select.
    pub(super) is_rollup: bool,
    pub(super) all: Arc<Tombstones>,
}

impl Pending {
    /// Path of the list in the table; `None` if it is empty.
    pub(super) fn path(&self) -> Option<String> {
        (self.number != 0).then(|| path(self.number))
    }
}

/// True for the name of a list.
pub(super) fn is_list(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn path(number: u64) -> String {
    format!("{BESIDE}/{PREFIX}{number:016x}.json")
}

/// Number of a list: 63 bits of the hash of its text, which fit into a `txn` action, and never 0.
fn number_of(text: &[u8]) -> u64 {
    (SeriesKey::of(text, 0).0 as u64 >> 1).max(1)
}

/// Reads the tombstones of a version. `floodmark` returns that version's floodmarks; `known` are the tombstones of another
/// version, which may be reused.
pub(super) fn load(
    location: &Location,
    floodmark: impl Fn(&str) -> Result<Option<u64>, TableError>,
    known: Option<&Pending>,
) -> Result<Pending, TableError> {
    let Some(last) = floodmark(LAST)? else { return Ok(Pending::default()) };
    let last = i64::try_from(last).unwrap_or(i64::MAX);
    let number = floodmark(LIST)?.unwrap_or(0);
    if let Some(known) = known.filter(|known| known.number == number && known.all.last == last) {
        return Ok(known.clone());
    }
    if number == 0 {
        let all = Arc::new(Tombstones { last, list: Vec::new() });
        return Ok(Pending { number, is_rollup: false, all });
    }
    let name = path(number);
    let damaged = |reason: String| {
        failure::damaged(
            location,
            format!("its list of deletes {name} cannot be used: {reason}; restore it from a copy"),
        )
    };
    let (store, object) = (location.store(), location.path(&name)?);
    let text = match location.wait(async { store.get(&object).await?.bytes().await }) {
        Ok(text) => text,
        Err(object_store::Error::NotFound { .. }) => return Err(damaged("it is missing".into())),
        Err(error) => return Err(error.into()),
    };
    if number_of(&text) != number {
        return Err(damaged("its checksum is wrong".into()));
    }
    let all = Arc::new(Tombstones::parse(&text, last).map_err(damaged)?);
    Ok(Pending { number, is_rollup: false, all })
}

impl Table {
    /// Deletes samples from all files that the table has now, and moves `floodmarks` in the same commit. Files committed later
    /// are not affected, whatever the times of their samples. Returns the sequence of the delete. Returns `None` without a change
    /// if no file has any of the samples and `always` is false.
    ///
    /// Reads omit the samples at once. [`crate::upkeep`] rewrites the files.
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
            // an earlier attempt whose answer was lost
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

    /// Removes the tombstones that have been applied to all live files, and returns their number. `is_clean` returns true if a
    /// file has no rows that tombstones up to a sequence delete.
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

    /// Puts a list, and an entry that refers to it. Returns false if another writer was first.
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
        let pending = Pending { number, is_rollup: files.pending.is_rollup, all: Arc::new(all) };
        let change = Change::of_tombstones(floodmarks, pending);
        Ok(self.try_change(&snapshot, files, &change)?.is_some())
    }
}
