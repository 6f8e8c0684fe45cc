//! Tracks which folders are known to be durable, with all names in them.
//!
//! A file that was linked into a folder is visible at once, but durable only when the folder is synced. If that sync fails, the
//! file is in doubt: it is visible, but a power loss may remove it. The writer gets an error, and the folder is not listed again
//! before it has been synced. So every log entry that a reader sees is durable, even after an unclear commit or in the next
//! process.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of folders that are remembered. A forgotten folder is synced once more.
const REMEMBERED_MAX: usize = 10_000;

type Sync = Box<dyn Fn(&Path) -> io::Result<()> + Send + std::marker::Sync>;

/// Folders that were created or listed.
pub(super) struct Folders {
    sync: Sync,
    durable: Mutex<Durable>,
}

/// Names that are known to be durable.
#[derive(Default)]
struct Durable {
    /// Folders whose names are durable, with the names of all their parents.
    named: HashSet<PathBuf>,
    /// Folders in which the names of all entries are durable as well.
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

    /// Creates a folder and its missing parents, each durable before anything is put into it.
    pub(super) fn create(&self, folder: &Path) -> io::Result<()> {
        if self.is_settled(folder) && folder.is_dir() {
            return Ok(());
        }
        // a new folder is empty, so it need not be synced before the first file is put into it
        if self.make(folder)? { Ok(()) } else { self.sync(folder) }
    }

    /// Makes the names of a folder and of all its parents durable, even if they already exist: an earlier process may have died,
    /// or an earlier attempt failed, after creating a folder and before syncing its parent. Returns true if the folder did not
    /// exist before.
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

    /// Makes the names in a folder durable. After an error the names are in doubt.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        self.lock().settled.remove(folder);
        (self.sync)(folder)?;
        remember(&mut self.lock().settled, folder);
        Ok(())
    }

    /// True if everything in a folder is durable.
    pub(super) fn is_settled(&self, folder: &Path) -> bool {
        self.lock().settled.contains(folder)
    }

    /// Syncs the folders that may not be durable, such as those made by a process that died. A missing folder needs no sync.
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

/// True if a folder cannot be synced because this process could not create anything in it.
fn is_foreign(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
    )
}
