//! Every name on the way to a record is durable when the record is said to be.

use journal::disk::{Access, DiskFile, Listed, Mode, Os};
use journal::{Disk, Embedded, Item, Journal, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The operating system's files. It notes which names a power loss would leave.
#[derive(Debug, Default)]
struct Noted(Mutex<BTreeMap<PathBuf, BTreeSet<PathBuf>>>);

impl Noted {
    /// Sees that a power loss leaves a path, and all above it up to `root`.
    fn check(&self, root: &Path, path: &Path) {
        let durable = self.0.lock().unwrap();
        for path in path.ancestors().take_while(|path| *path != root) {
            let names = durable.get(path.parent().unwrap());
            assert!(names.is_some_and(|names| names.contains(path)), "{} is not durable", path.display());
        }
    }
}

impl Disk for Noted {
    fn create_dir(&self, dir: &Path, access: Access) -> io::Result<()> {
        Os.create_dir(dir, access)
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        Os.list(dir, most)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        Os.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Os.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        self.0.lock().unwrap().insert(dir.into(), names);
        Os.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Os.lock(path)
    }
}

/// Commits a record in a journal under `dir`, and sees that it can be found again.
fn commit(root: &Path, dir: &Path) {
    let disk = Arc::new(Noted::default());
    let options = Options { disk: Arc::clone(&disk) as Arc<dyn Disk>, ..Options::default() };
    let mut journal = Embedded::open(dir, 3, options).unwrap();
    journal.begin().unwrap();
    journal.append(b"record").unwrap();
    journal.sync().unwrap();
    let segments = std::fs::read_dir(dir.join("3")).unwrap().map(|entry| entry.unwrap().path());
    let segments: Vec<_> = segments.filter(|path| path.extension().is_some_and(|e| e == "journal")).collect();
    assert!(!segments.is_empty());
    segments.iter().for_each(|segment| disk.check(root, segment));
    let mut records = journal.read(journal::Offset(0)).unwrap();
    assert!(matches!(records.next().unwrap(), Some(Item::Entry(_))));
}

#[test]
fn a_record_in_a_fresh_directory_is_durable_with_all_above_it() {
    let root = tempfile::tempdir().unwrap();
    commit(root.path(), &root.path().join("data/deep/journal"));
}

/// A process that died after it had made the directories and before they were synced.
#[test]
fn directories_that_were_there_are_made_durable_too() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    std::fs::create_dir_all(dir.join("3")).unwrap();
    commit(&dir, &dir);
}
