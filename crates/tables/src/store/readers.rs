//! Tracks which table versions are being read in this process, so that their files are not swept.
//!
//! A list of live files keeps its version registered for as long as the list exists, because an export may read for
//! hours.

use object_store::path::Path;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For each table, the versions that are being read, with the number of their reads.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<HashMap<Path, BTreeMap<u64, usize>>>);

/// Registers a read of one version until dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    readers: Arc<Readers>,
    table: Path,
    version: u64,
}

impl Readers {
    pub(crate) fn begin(self: &Arc<Self>, table: &Path, version: u64) -> Reading {
        *self.lock().entry(table.clone()).or_default().entry(version).or_default() += 1;
        Reading { readers: Arc::clone(self), table: table.clone(), version }
    }

    pub(crate) fn oldest(&self, table: &Path) -> Option<u64> {
        self.lock().get(table)?.keys().next().copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Path, BTreeMap<u64, usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut tables = self.readers.lock();
        let Some(versions) = tables.get_mut(&self.table) else { return };
        if let Some(readers) = versions.get_mut(&self.version) {
            *readers -= 1;
            if *readers == 0 {
                versions.remove(&self.version);
            }
        }
        if versions.is_empty() {
            tables.remove(&self.table);
        }
    }
}
