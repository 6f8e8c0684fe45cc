//! Tracks which folders were synced, because only then the names of new files in them are durable.
//!
//! If the sync of a folder fails, its new files are visible, but may be lost. The writer gets an error, and the folder
//! must be synced before it is listed again. So every log entry that a reader sees is durable.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of folders remembered. A forgotten folder is synced once more.
const REMEMBERED_MAX: usize = 10_000;

type Sync = Box<dyn Fn(&Path) -> io::Result<()> + Send + std::marker::Sync>;

pub(super) struct Folders {
    sync: Sync,
    durable: Mutex<Durable>,
}

#[derive(Default)]
struct Durable {
    /// Folders whose own names, and those of all their parents, are durable.
    named: HashSet<PathBuf>,
    /// Folders in which the names of all files are durable too.
    settled: HashSet<PathBuf>,
}

impl Default for Folders {
    fn default() -> Self {
        Self { sync: Box::new(|folder| File::open(folder)?.sync_all()), durable: Mutex::default() }
    }
}

impl std::fmt::Debug for Folders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folders").field("settled", &self.lock().settled.len()).finish_non_exhaustive()
    }
}

impl Folders {
    pub(super) fn synced_by(
        sync: impl Fn(&Path) -> io::Result<()> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self { sync: Box::new(sync), ..Self::default() }
    }

    /// Creates a folder and missing parents, each durable before the next.
    pub(super) fn create(&self, folder: &Path) -> io::Result<()> {
        if self.is_settled(folder) && folder.is_dir() {
            return Ok(());
        }
        // a folder that was just created is empty, so it needs no sync
        if self.make(folder)? { Ok(()) } else { self.sync(folder) }
    }

    /// Makes a folder and its parents durable. Existing folders are synced too: the process that created them may have
    /// died. Returns true if the folder is new.
    fn make(&self, folder: &Path) -> io::Result<bool> {
        let Some(above) = folder.parent() else { return Ok(false) };
        if self.lock().named.contains(folder) && folder.is_dir() {
            return Ok(false);
        }
        self.make(above)?;
        let is_new = match fs::create_dir(folder) {
            Ok(()) => self.sync(above).map(|()| true)?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => match self.sync(above) {
                Err(e) if !is_foreign(&e) => return Err(e),
                _ => false,
            },
            Err(e) => return Err(e),
        };
        remember(&mut self.lock().named, folder);
        Ok(is_new)
    }

    /// Syncs a folder, which makes the names in it durable.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        self.lock().settled.remove(folder);
        (self.sync)(folder)?;
        remember(&mut self.lock().settled, folder);
        Ok(())
    }

    pub(super) fn is_settled(&self, folder: &Path) -> bool {
        self.lock().settled.contains(folder)
    }

    /// Syncs a folder that may not be durable. A missing folder needs no sync.
    pub(super) fn settle(&self, folder: &Path) -> io::Result<()> {
        if self.is_settled(folder) {
            return Ok(());
        }
        if !folder.is_dir() {
            return Ok(());
        }
        self.make(folder)?;
        self.sync(folder)
    }

    fn lock(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(folders: &mut HashSet<PathBuf>, folder: &Path) {
    if folders.len() >= REMEMBERED_MAX {
        folders.clear();
    }
    folders.insert(folder.into());
}

/// True if this process may not or cannot sync the folder. Then it cannot have created anything in it either.
fn is_foreign(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
    )
}
