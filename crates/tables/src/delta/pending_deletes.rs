//! The list of incomplete deletes in the log.
//!
//! ```text
//!   _floodmark/tombstones-NUMBER.json    a list; put before the entry that names it, never changed
//!   txn floodmark/tombstones  NUMBER     the current list; 0 for an empty one
//!   txn floodmark/deleted     SEQUENCE   place of the last delete in the order of writes
//! ```
//!
//! An entry refers to its list by a `txn` action, which every engine preserves. The number is a hash of the list's
//! text, which contains the entry's version. So no later entry can name a list that a sweep deleted.

use super::failure;
use super::lease::OWN_FOLDER;
use crate::error::TableError;
use crate::store::Location;
use crate::tombstone::Tombstones;
use model::SeriesKey;
use object_store::ObjectStoreExt;
use std::sync::Arc;

/// Name under which the log stores the number of the current list of deletes, as if it were a source's floodmark.
pub(super) const LIST: &str = "floodmark/tombstones";

/// Name under which the log stores the sequence of the last delete, as if it were a source's floodmark.
pub(super) const LAST: &str = "floodmark/deleted";

const PREFIX: &str = "tombstones-";

#[derive(Debug, Clone, Default)]
pub(super) struct PendingDeletes {
    pub(super) number: u64,
    /// True for a rollup table. Its series are statistics of the series that deletes select.
    pub(super) is_rollup: bool,
    pub(super) all: Arc<Tombstones>,
}

impl PendingDeletes {
    /// Path of the object with the list, or `None` if the list is empty.
    pub(super) fn path(&self) -> Option<String> {
        (self.number != 0).then(|| path(self.number))
    }
}

pub(super) fn is_list(name: &str) -> bool {
    name.starts_with(PREFIX)
}

pub(super) fn path(number: u64) -> String {
    format!("{OWN_FOLDER}/{PREFIX}{number:016x}.json")
}

/// The number of a list is 63 bits of its text's hash, so that it fits into a `txn` action. It is never 0, which
/// stands for an empty list.
pub(super) fn number_of(text: &[u8]) -> u64 {
    (SeriesKey::of(text, 0).0 as u64 >> 1).max(1)
}

/// Reads the tombstones of a version. `floodmark` looks up a floodmark in this version. If `known` is the same list,
/// it is returned without reading.
pub(super) fn load(
    location: &Location,
    floodmark: impl Fn(&str) -> Result<Option<u64>, TableError>,
    known: Option<&PendingDeletes>,
) -> Result<PendingDeletes, TableError> {
    let Some(last) = floodmark(LAST)? else { return Ok(PendingDeletes::default()) };
    let last = i64::try_from(last).unwrap_or(i64::MAX);
    let number = floodmark(LIST)?.unwrap_or(0);
    if let Some(known) = known.filter(|known| known.number == number && known.all.last == last) {
        return Ok(known.clone());
    }
    if number == 0 {
        let all = Arc::new(Tombstones { last, list: Vec::new() });
        return Ok(PendingDeletes { number, is_rollup: false, all });
    }
    let name = path(number);
    let damaged = |reason: String| {
        failure::damaged(
            location,
            format!("its list of deletes {name} cannot be used: {reason}; restore this file from a copy"),
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
    Ok(PendingDeletes { number, is_rollup: false, all })
}
