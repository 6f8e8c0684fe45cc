//! Folders, and which of them are known to be durable with all the names in them.
//!
//! A file that was linked into a folder is seen at once, and is durable when the folder is synced. Where that sync fails, the
//! file is in doubt: it is there, and a power loss may take it away. The writer gets an error, and nobody is shown the
//! folder's names before it has been synced again. So whoever reads a log entry, after an unclear commit or in the next
//! process, may rely on it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Folders that are remembered. One that is forgotten is synced once more.
const SETTLED_MAX: usize = 10_000;

type Sync = Box<dyn Fn(&Path) -> io::Result<()> + Send + std::marker::Sync>;

/// Folders that were made or looked at.
pub(super) struct Folders {
    sync: Sync,
    /// Those whose own name, and the names in them, are durable.
    settled: Mutex<HashSet<PathBuf>>,
}

impl Default for Folders {
    fn default() -> Self {
        Self { sync: Box::new(|folder| File::open(folder)?.sync_all()), settled: Mutex::default() }
    }
}

impl std::fmt::Debug for Folders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folders").field("settled", &self.lock().len()).finish_non_exhaustive()
    }
}

impl Folders {
    #[cfg(test)]
    pub(super) fn synced_by(
        sync: impl Fn(&Path) -> io::Result<()> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self { sync: Box::new(sync), ..Self::default() }
    }

    /// Makes a folder and those above it where they are missing, each durable before there is anything in it.
    pub(super) fn create(&self, folder: &Path) -> io::Result<()> {
        if self.is_settled(folder) && folder.is_dir() {
            return Ok(());
        }
        // a new folder has no names in it that could be in doubt: it is synced with the first one
        if self.make(folder)? { Ok(()) } else { self.sync(folder) }
    }

    /// True where the folder was not there before.
    fn make(&self, folder: &Path) -> io::Result<bool> {
        let Some(above) = folder.parent() else { return Ok(false) };
        let made = match fs::create_dir(folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.make(above)?;
                fs::create_dir(folder)
            }
            made => made,
        };
        match made {
            Ok(()) => (self.sync)(above).map(|()| true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => self.sync_above(folder).map(|()| false),
            Err(e) => Err(e),
        }
    }

    /// Makes the name of a folder durable that was there already: whoever made it may have died before doing so.
    fn sync_above(&self, folder: &Path) -> io::Result<()> {
        let Some(above) = folder.parent() else { return Ok(()) };
        match (self.sync)(above) {
            // who may not open the folder above has not made this one
            Err(e) if e.kind() == ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    /// Makes the names in a folder durable. After an error they are in doubt.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        self.lock().remove(folder);
        (self.sync)(folder)?;
        let mut settled = self.lock();
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.insert(folder.into());
        Ok(())
    }

    /// Whether nothing in a folder is in doubt.
    pub(super) fn is_settled(&self, folder: &Path) -> bool {
        self.lock().contains(folder)
    }

    /// Makes durable what is in doubt, or may be since a process before this one died. A folder that is not there has
    /// nothing in it.
    pub(super) fn settle(&self, folder: &Path) -> io::Result<()> {
        if self.is_settled(folder) {
            return Ok(());
        }
        match self.sync(folder) {
            Ok(()) => self.sync_above(folder),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
