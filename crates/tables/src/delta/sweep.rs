//! Deletes files that no version of the table needs.
//!
//! A reader may use an older version, and staged files are not in the log yet. So a file is deleted only after it was
//! seen dead throughout a grace period, which begins anew after a restart. Readers in this process protect their files
//! for longer ([`crate::store::Location::readers`]).
//!
//! Files of other engines ([`crate::store::names`]) are deleted only if the log records their removal: those engines
//! take no leases.
//!
//! # Why no commit names a deleted file
//!
//! A writer may stage files, sleep for hours, and commit. So before a sweep deletes anything, it puts an entry that
//! moves the floodmark [`SWEPT`] to the entry's version:
//!
//! ```text
//!   sweep    list files ─▶ list leases, break stale ones ─▶ entry: SWEPT = its version ─▶ read live files ─▶ delete
//!   writer   stage from version s on ─▶ read version n: SWEPT <= s, or the lease is there ─▶ put entry n + 1
//! ```
//!
//! An entry is put only if its version is new.
//!
//! - If SWEPT is at most s, each sweep that listed the file has its entry after n + 1, and finds the file live.
//! - If the lease is there, a sweep whose entry is at most n kept the files, and a later sweep finds them live.

use super::lease::{LEASE_MS, Leases, OWN_FOLDER};
use super::pending_deletes::is_list;
use super::{StagedFile, Table};
use crate::error::TableError;
use crate::fault;
use crate::kind::DATE;
use crate::store::is_unfinished;
use crate::store::names;
use delta_kernel::snapshot::SnapshotRef;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Name under which the log stores the version of the last sweep's entry, as if it were a source's floodmark.
pub(super) const SWEPT: &str = "floodmark/swept";

/// Maximum number of tracked dead files. Later sweeps find the others.
const DEAD_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Sweeper {
    dead: HashMap<Path, Dead>,
    leases: Leases,
    /// Dead files of other engines that the log records as removed, in its versions up to `looked`.
    removed: HashSet<Path>,
    looked: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Dead {
    /// Time at which the file was first seen dead, by the monotonic clock.
    since_ms: i64,
    /// Modification time by the store's clock. A file that is still being written is not dead.
    modified_ms: i64,
    /// First version of the table without the file. Running reads of earlier versions may still need the file.
    version: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub files: u64,
    pub bytes: u64,
    /// Number of dead files kept for now: in their grace period, leased, being read, or because the sweep was ended.
    pub waiting: u64,
}

impl Sweeper {
    /// Deletes files that were dead for `grace_ms`, which must be longer than any query. `steady_ms` is monotonic.
    pub fn sweep(&mut self, table: &Table, steady_ms: i64, grace_ms: i64) -> Result<Swept, TableError> {
        self.sweep_while(table, steady_ms, grace_ms, || true)
    }

    /// Sweeps like [`Self::sweep`], until `go_on` returns false.
    pub fn sweep_while(
        &mut self,
        table: &Table,
        steady_ms: i64,
        grace_ms: i64,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Swept, TableError> {
        let found = self.find(table, steady_ms)?;
        fault::point("sweep_listed")?;
        let still: HashSet<&Path> = found.iter().map(|object| &object.location).collect();
        self.dead.retain(|path, _| still.contains(path));
        // leases are listed after the files, because a lease is older than its files
        let held = self.leases.look(&table.location, steady_ms, grace_ms.max(LEASE_MS))?;
        let mut swept = Swept::default();
        let mut due = Vec::new();
        for object in found {
            let modified_ms = object.last_modified.timestamp_millis();
            let new = Dead { since_ms: steady_ms, modified_ms, version: table.version() };
            let dead = self.dead.entry(object.location.clone()).or_insert(new);
            if dead.modified_ms != new.modified_ms {
                *dead = new;
            }
            let is_read = table.location.readers().oldest(table.location.prefix());
            let is_read = is_read.is_some_and(|oldest| oldest < dead.version);
            let is_fresh = steady_ms.saturating_sub(dead.since_ms) < grace_ms;
            if is_fresh || is_read || held.covers(&object.location) {
                swept.waiting += 1;
            } else {
                due.push(object);
            }
        }
        if due.is_empty() {
            return Ok(swept);
        }
        if !due.iter().all(is_unfinished) {
            table.note_sweep()?;
            fault::point("sweep_noted")?;
        }
        let live = live(table)?;
        for object in due.into_iter().filter(|object| !live.contains(&object.location)) {
            if swept.files > 0 && !go_on() {
                swept.waiting += 1;
                continue;
            }
            table.location.delete(&object.location)?;
            fault::point("swept_file")?;
            self.dead.remove(&object.location);
            swept.files += 1;
            swept.bytes += object.size;
        }
        Ok(swept)
    }

    /// Files that are dead now. The store is listed before the log is read, so that new commits count as live.
    fn find(&mut self, table: &Table, steady_ms: i64) -> Result<Vec<ObjectMeta>, TableError> {
        let location = &table.location;
        let (store, prefix) = (location.store(), location.prefix().clone());
        let (mut dead, mut others) = (Vec::new(), Vec::new());
        location.wait(async {
            let mut objects = store.list(Some(&prefix));
            while let Some(object) = objects.try_next().await? {
                match Writer::of(&object, &prefix) {
                    Some(Writer::Floodmark) => dead.push(object),
                    Some(Writer::Other) => others.push(object),
                    None => {}
                }
            }
            Ok::<_, object_store::Error>(())
        })?;
        table.refresh()?;
        let live = live(table)?;
        others.retain(|object| !live.contains(&object.location));
        self.look_for_removed(table, &others)?;
        others.retain(|object| self.removed.contains(&object.location));
        dead.retain(|object| !live.contains(&object.location));
        dead.append(&mut others);
        dead.sort_by_key(|object| self.dead.get(&object.location).map_or(steady_ms, |dead| dead.since_ms));
        dead.truncate(DEAD_MAX);
        Ok(dead)
    }

    /// Finds dead files of other engines that the log records as removed. Reads the log once for each version, and only
    /// if needed.
    fn look_for_removed(&mut self, table: &Table, dead: &[ObjectMeta]) -> Result<(), TableError> {
        let dead: HashSet<&Path> = dead.iter().map(|object| &object.location).collect();
        self.removed.retain(|path| dead.contains(path));
        let version = table.version();
        if self.removed.len() < dead.len() && self.looked != Some(version) {
            table.each_removed_file(|path| {
                if let Ok(path) = table.location.path(path)
                    && dead.contains(&path)
                {
                    self.removed.insert(path);
                }
            })?;
            self.looked = Some(version);
        }
        Ok(())
    }
}

enum Writer {
    Floodmark,
    Other,
}

impl Writer {
    /// Writer of the object; `None` if no sweep may delete it.
    fn of(object: &ObjectMeta, prefix: &Path) -> Option<Self> {
        if is_unfinished(object) {
            return Some(Self::Floodmark);
        }
        let mut parts = object.location.prefix_match(prefix)?;
        let folder = parts.next()?;
        if folder.as_ref() == OWN_FOLDER {
            return object.location.filename().filter(|name| is_list(name)).map(|_| Self::Floodmark);
        }
        let in_a_day = folder.as_ref().starts_with(DATE);
        let name = object.location.filename().filter(|name| in_a_day && names::is_data(name))?;
        Some(if names::is_own(name) { Self::Floodmark } else { Self::Other })
    }
}

fn live(table: &Table) -> Result<HashSet<Path>, TableError> {
    let files = table.files()?;
    let paths = files.all().iter().map(|file| file.path.clone()).chain(files.pending.path());
    paths.map(|path| table.location.path(&path)).collect()
}

impl Table {
    /// Fails if one of `files` may have been swept.
    pub(super) fn check_staged<'a>(
        &self,
        snapshot: &SnapshotRef,
        files: impl Iterator<Item = &'a StagedFile>,
    ) -> Result<(), TableError> {
        let Some(swept) = self.floodmark(snapshot, SWEPT)? else { return Ok(()) };
        let mut held = BTreeSet::new();
        for file in files.filter(|file| file.staging.since < swept) {
            let is_held = match &file.staging.lease {
                Some(lease) => held.contains(lease) || (self.has_lease(lease)? && held.insert(lease)),
                None => false,
            };
            if !is_held {
                return Err(TableError::Lapsed { file: file.path.clone(), version: swept });
            }
        }
        Ok(())
    }
}
