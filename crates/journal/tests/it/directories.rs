//! When a record is acknowledged, a power loss must not take the names of its file and directories.

use journal::disk::{Access, DiskFile, Listed, Mode, Os};
use journal::{Disk, Files, Item, Journal, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A disk that knows which names would survive a power loss.
#[derive(Debug, Default)]
struct DurableNames(Mutex<BTreeMap<PathBuf, BTreeSet<PathBuf>>>);

impl DurableNames {
    fn check(&self, root: &Path, path: &Path) {
        let durable = self.0.lock().unwrap();
        for path in path.ancestors().take_while(|path| *path != root) {
            let names = durable.get(path.parent().unwrap());
            assert!(names.is_some_and(|names| names.contains(path)), "{} is not durable", path.display());
        }
    }
}

impl Disk for DurableNames {
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

fn commit(root: &Path, dir: &Path) {
    let disk = Arc::new(DurableNames::default());
    let options = Options { disk: Arc::clone(&disk) as Arc<dyn Disk>, ..Options::default() };
    let mut journal = Files::open(dir, 3, options).unwrap();
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
fn new_directories_are_synced_with_their_parents() {
    let root = tempfile::tempdir().unwrap();
    commit(root.path(), &root.path().join("data/deep/journal"));
}

/// The process that created the directories died before it synced them.
#[test]
fn existing_directories_are_synced_too() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    std::fs::create_dir_all(dir.join("3")).unwrap();
    commit(&dir, &dir);
}

/// A disk that loses power after some files were removed.
#[derive(Debug)]
struct Failing {
    /// The power fails after this many files were removed.
    removals: AtomicUsize,
    /// Files that were removed since the directory was last synced. A power loss may bring them back.
    unsynced: Mutex<Vec<(PathBuf, Vec<u8>)>>,
}

impl Failing {
    fn check_power(&self) -> io::Result<()> {
        match self.removals.load(Ordering::SeqCst) {
            0 => Err(io::Error::other("no power")),
            _ => Ok(()),
        }
    }
}

impl Disk for Failing {
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
        self.check_power()?;
        self.unsynced.lock().unwrap().push((path.into(), std::fs::read(path)?));
        self.removals.fetch_sub(1, Ordering::SeqCst);
        Os.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check_power()?;
        self.unsynced.lock().unwrap().clear();
        Os.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Os.lock(path)
    }
}

/// Drops three segments. The power fails after `removals` of them. Returns the files that a power loss may
/// bring back.
fn drop_segments(dir: &Path, removals: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let disk = Arc::new(Failing { removals: AtomicUsize::new(removals), unsynced: Mutex::default() });
    let options = Options { disk: Arc::clone(&disk) as Arc<dyn Disk>, ..Options::default() };
    let mut journal = Files::open(dir, 3, options).unwrap();
    for _ in 0..4 {
        journal.begin().unwrap();
        journal.append(b"record").unwrap();
        journal.sync().unwrap();
        journal.end_dictionary();
    }
    journal.truncate(journal::Offset(3)).unwrap_err();
    std::mem::take(&mut *disk.unsynced.lock().unwrap())
}

#[test]
fn a_power_loss_while_segments_are_dropped_leaves_no_gap() {
    for removals in 1..=3 {
        for brought_back in 0..removals {
            let root = tempfile::tempdir().unwrap();
            let unsynced = drop_segments(root.path(), removals);
            assert!(!unsynced.is_empty());
            let Some((path, bytes)) = unsynced.get(brought_back) else { continue };
            std::fs::write(path, bytes).unwrap();
            let journal = Files::open(root.path(), 3, Options::default()).unwrap();
            let (mut records, mut count) = (journal.read(journal.start()).unwrap(), 0);
            while let Some(item) = records.next().unwrap() {
                assert!(
                    matches!(item, Item::Entry(_)),
                    "{removals} segments dropped, {} reappeared: {item:?}",
                    path.display()
                );
                count += 1;
            }
            assert!(count >= 1, "the last segment stays");
        }
    }
}
