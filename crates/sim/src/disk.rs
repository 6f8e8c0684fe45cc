//! A disk in memory: what the operating system holds, what would be left after a power loss, and how it lies.
//!
//! A file's bytes are kept twice, as written and as durable, with the sectors that differ. A power loss chooses for each
//! of these what is left of it. The names in a directory are kept as durable ones and a list of changes since; a power
//! loss leaves a prefix of that list, as a file system with a journal of its own does.

use crate::power::{Change, Power};
use journal::Disk;
use journal::disk::{DiskFile, Listed, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use stdx::rng::Rng;

const SECTOR: usize = 512;

/// How often what goes wrong: chances for each call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DiskFaults {
    /// A write, an allocation, a sync or a name fails.
    pub error: f64,
    /// There is no room left for a write or a new file.
    pub full: f64,
    /// A sync says that it is done, and is not.
    pub lie: f64,
}

/// The disk.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    power: Arc<Power>,
    rng: Rng,
    faults: DiskFaults,
    /// Counts crashes: who held a file open before one holds nothing.
    boots: u64,
    lied: bool,
    files: BTreeMap<u64, Inode>,
    made: u64,
    dirs: BTreeMap<PathBuf, Dir>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Debug, Default, Clone)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors whose bytes are not all durable.
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Default, Clone)]
struct Dir {
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    changes: Vec<Renaming>,
}

/// A change of a directory.
#[derive(Debug, Clone)]
enum Renaming {
    Add(String, u64),
    Remove(String),
    Rename(String, String),
}

/// An open file, or a lock.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    boot: u64,
    file: u64,
    lock: Option<PathBuf>,
}

/// All files, to be put back later.
#[derive(Debug, Clone)]
pub struct Copy(Vec<(PathBuf, Vec<u8>)>);

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64, power: Arc<Power>) -> Self {
        Self(Arc::new(Mutex::new(State {
            power,
            rng: Rng::new(seed),
            faults: DiskFaults::default(),
            boots: 0,
            lied: false,
            files: BTreeMap::new(),
            made: 0,
            dirs: BTreeMap::new(),
            locked: BTreeSet::new(),
        })))
    }

    /// Changes what goes wrong.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// True where a sync has lied and what it lied about was lost since.
    pub fn has_lied(&self) -> bool {
        self.lock().lied
    }

    /// The process is gone; what it wrote is there.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.boots += 1;
        state.locked.clear();
    }

    /// The power is gone: what was not synced may be.
    pub fn lose_power(&self) {
        self.kill();
        self.lock().crash();
    }

    /// Copies what lies under a directory.
    pub fn copy(&self, under: &Path) -> Copy {
        let state = self.lock();
        let mut files = Vec::new();
        for (dir, names) in state.dirs.iter().filter(|(dir, _)| dir.starts_with(under)) {
            files.extend(
                names.names.iter().map(|(name, file)| (dir.join(name), state.files[file].bytes.clone())),
            );
        }
        Copy(files)
    }

    /// Puts back what lay under a directory, instead of what lies there now.
    pub fn put_back(&self, under: &Path, copy: &Copy) {
        let mut state = self.lock();
        for dir in state.dirs.iter_mut().filter(|(dir, _)| dir.starts_with(under)).map(|(_, dir)| dir) {
            *dir = Dir::default();
        }
        for (path, bytes) in &copy.0 {
            let (dir, name) = split(path);
            state.made += 1;
            let made = state.made;
            let inode = Inode { bytes: bytes.clone(), durable: bytes.clone(), dirty: BTreeSet::new() };
            state.files.insert(made, inode);
            let dir = state.dirs.entry(dir).or_default();
            dir.names.insert(name.clone(), made);
            dir.durable.insert(name, made);
        }
    }

    /// Takes a file away for good, as an operator would. False where it is not there.
    pub fn delete(&self, path: &Path) -> bool {
        let (dir, name) = split(path);
        let mut state = self.lock();
        let Some(dir) = state.dirs.get_mut(&dir) else { return false };
        dir.durable.remove(&name);
        dir.changes.retain(|change| !change.makes(&name));
        dir.names.remove(&name).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("BUG: the disk's state is plain")
    }
}

impl Renaming {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Add(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }

    fn makes(&self, what: &str) -> bool {
        matches!(self, Self::Add(name, _) | Self::Rename(_, name) if name == what)
    }
}

impl State {
    /// Before a change: why it is not made, or whether the power fails in the middle of it.
    fn change(&mut self, takes_room: bool) -> io::Result<bool> {
        match self.power.change() {
            Change::Off => return Err(off()),
            Change::Cut => return Ok(true),
            Change::Made => {}
        }
        if takes_room && self.rng.chance(self.faults.full) {
            return Err(ErrorKind::StorageFull.into());
        }
        if self.rng.chance(self.faults.error) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(false)
    }

    fn dir(&mut self, path: &Path) -> io::Result<(&mut Dir, String)> {
        let (dir, name) = split(path);
        let dir = self.dirs.get_mut(&dir).ok_or(ErrorKind::NotFound)?;
        Ok((dir, name))
    }

    /// Changes a directory's names; in the middle of a power cut, perhaps.
    fn rename(&mut self, path: &Path, change: impl FnOnce(String) -> Renaming) -> io::Result<()> {
        let cut = self.change(false)?;
        if cut && self.rng.chance(0.5) {
            return Err(off());
        }
        let (dir, name) = self.dir(path)?;
        let change = change(name);
        change.apply(&mut dir.names);
        dir.changes.push(change);
        if cut { Err(off()) } else { Ok(()) }
    }

    fn write(&mut self, file: u64, bytes: &[u8], at: usize) -> io::Result<()> {
        let (done, failed) = match self.change(true) {
            Ok(false) => (bytes.len(), None),
            Ok(true) => (self.rng.below(bytes.len() as u64 + 1) as usize, Some(off())),
            Err(e) if self.power.is_off() => (0, Some(e)),
            Err(e) => (self.rng.below(bytes.len() as u64 + 1) as usize, Some(e)),
        };
        if done > 0 {
            let inode = self.files.get_mut(&file).expect("BUG: an open file is there");
            if inode.bytes.len() < at + done {
                inode.bytes.resize(at + done, 0);
            }
            inode.bytes[at..at + done].copy_from_slice(&bytes[..done]);
            inode.dirty.extend(at / SECTOR..=(at + done - 1) / SECTOR);
        }
        failed.map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: u64) -> io::Result<()> {
        let result = self.change(false);
        let lies = self.rng.chance(self.faults.lie);
        let inode = self.files.get_mut(&file).expect("BUG: an open file is there");
        let dirty = std::mem::take(&mut inode.dirty);
        match result {
            Ok(false) if lies => {
                inode.dirty = dirty;
                Ok(())
            }
            Ok(false) => {
                inode.durable.resize(inode.bytes.len(), 0);
                dirty.into_iter().for_each(|sector| inode.make_durable(sector));
                Ok(())
            }
            // Some of it is durable. After an error the rest never will be, for the kernel takes it for clean.
            Ok(true) | Err(_) => {
                for sector in dirty {
                    if self.rng.chance(0.5) {
                        inode.make_durable(sector);
                    } else if result.is_ok() {
                        inode.dirty.insert(sector);
                    }
                }
                Err(result.err().unwrap_or_else(off))
            }
        }
    }

    fn crash(&mut self) {
        let rng = &mut self.rng;
        let mut kept = BTreeSet::new();
        for dir in self.dirs.values_mut() {
            let done = rng.below(dir.changes.len() as u64 + 1) as usize;
            for change in dir.changes.drain(..).take(done) {
                change.apply(&mut dir.durable);
            }
            dir.names.clone_from(&dir.durable);
            kept.extend(dir.names.values().copied());
        }
        self.files.retain(|file, _| kept.contains(file));
        for inode in self.files.values_mut().filter(|inode| inode.bytes != inode.durable) {
            // what a lying sync left dirty is lost like the rest: who asked is told by `has_lied`
            self.lied |= self.faults.lie > 0.0;
            inode.crash(rng);
        }
    }
}

impl Inode {
    fn make_durable(&mut self, sector: usize) {
        let range = sector * SECTOR..self.bytes.len().min((sector + 1) * SECTOR);
        if range.is_empty() {
            return;
        }
        if self.durable.len() < range.end {
            self.durable.resize(range.end, 0);
        }
        self.durable[range.clone()].copy_from_slice(&self.bytes[range]);
    }

    /// Leaves what a power loss leaves.
    fn crash(&mut self, rng: &mut Rng) {
        let (shorter, longer) =
            (self.durable.len().min(self.bytes.len()), self.durable.len().max(self.bytes.len()));
        let len = match rng.below(3) {
            0 => self.durable.len(),
            1 => self.bytes.len(),
            _ => shorter + rng.below((longer - shorter) as u64 + 1) as usize,
        };
        let mut left = std::mem::take(&mut self.durable);
        let durable = left.len();
        left.resize(len, 0);
        let how = rng.below(5);
        let cut = rng.below(longer as u64 + 1) as usize;
        for sector in std::mem::take(&mut self.dirty) {
            let (from, to) = (sector * SECTOR, len.min(self.bytes.len()).min((sector + 1) * SECTOR));
            for (at, byte) in left.iter_mut().enumerate().take(to).skip(from) {
                let is_new = match how {
                    0 => false,
                    1 => true,
                    2 => at < cut,
                    // the whole sector, or nothing of it
                    _ => stdx::rng::mix(cut as u64 ^ sector as u64) & 1 == 0,
                };
                if is_new {
                    *byte = self.bytes[at];
                } else if how == 4 && at >= durable {
                    *byte = rng.next_u64() as u8;
                }
            }
        }
        self.bytes.clone_from(&left);
        self.durable = left;
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        for dir in dir.ancestors() {
            state.dirs.entry(dir.to_path_buf()).or_default();
        }
        Ok(())
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        let state = self.lock();
        let found = state.dirs.get(dir).ok_or(ErrorKind::NotFound)?;
        let listed = |(name, file): (&String, &u64)| Listed {
            name: name.clone(),
            bytes: state.files[file].bytes.len() as u64,
        };
        let dirs =
            state.dirs.keys().filter(|d| d.parent() == Some(dir)).filter_map(|d| d.file_name()?.to_str());
        let dirs = dirs.map(|name| Listed { name: name.into(), bytes: 0 });
        Ok(found.names.iter().map(listed).chain(dirs).take(most).collect())
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        let (dir, name) = state.dir(path)?;
        let found = dir.names.get(&name).copied();
        let file = match (mode, found) {
            (Mode::Create, None) => {
                state.made += 1;
                let made = state.made;
                if state.change(true)? {
                    return Err(off());
                }
                state.files.insert(made, Inode::default());
                let (dir, name) = state.dir(path)?;
                let change = Renaming::Add(name, made);
                change.apply(&mut dir.names);
                dir.changes.push(change);
                made
            }
            (Mode::Create, Some(file)) => {
                if state.change(true)? {
                    return Err(off());
                }
                let inode = state.files.get_mut(&file).expect("BUG: a name has a file");
                inode.dirty.clear();
                inode.bytes.clear();
                file
            }
            (_, Some(file)) => file,
            (_, None) => return Err(ErrorKind::NotFound.into()),
        };
        let boot = state.boots;
        Ok(Box::new(SimFile { disk: self.clone(), boot, file, lock: None }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "BUG: files stay in their directory");
        let mut state = self.lock();
        let (dir, name) = state.dir(from)?;
        if !dir.names.contains_key(&name) {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename(to, |to| Renaming::Rename(name, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.dir(path)?;
        if !dir.names.contains_key(&name) {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename(path, Renaming::Remove)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let cut = state.change(false)?;
        let dir = state.dirs.get_mut(dir).ok_or(ErrorKind::NotFound)?;
        dir.durable.clone_from(&dir.names);
        dir.changes.clear();
        if cut { Err(off()) } else { Ok(()) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = Self::lock(self);
        if !state.locked.insert(path.to_path_buf()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let boot = state.boots;
        Ok(Box::new(SimFile { disk: self.clone(), boot, file: 0, lock: Some(path.to_path_buf()) }))
    }
}

impl SimFile {
    /// The disk, where this is a file of a process that lives.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock();
        if state.boots != self.boot || state.power.is_off() {
            return Err(off());
        }
        Ok(state)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.files[&self.file].bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.state()?;
        let bytes = state.files[&self.file].bytes.get(at as usize..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.state()?.write(self.file, bytes, at as usize)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        // It does not fail by itself. A journal whose disk refuses both to sync a group and to cut it off again cannot hide
        // it from the process that comes next, which may see it until the power fails.
        if state.power.change() != Change::Made {
            return Err(off());
        }
        let inode = state.files.get_mut(&self.file).expect("BUG: an open file is there");
        inode.bytes.resize(bytes as usize, 0);
        inode.dirty.retain(|sector| sector * SECTOR < bytes as usize);
        Ok(())
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.change(true)? {
            return Err(off());
        }
        let inode = state.files.get_mut(&self.file).expect("BUG: an open file is there");
        let len = inode.bytes.len().max((at + bytes) as usize);
        inode.bytes.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state()?.sync(self.file)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let Some(path) = &self.lock else { return };
        let mut state = self.disk.lock();
        if state.boots == self.boot {
            state.locked.remove(path);
        }
    }
}

fn off() -> io::Error {
    io::Error::other("there is no power")
}

fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().and_then(|n| n.to_str()).expect("BUG: the paths are ours");
    (path.parent().unwrap_or(Path::new("/")).to_path_buf(), name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/d";
    const PATH: &str = "/d/file";

    fn disk(seed: u64) -> (SimDisk, Box<dyn DiskFile>) {
        let disk = SimDisk::new(seed, Arc::new(Power::default()));
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let file = disk.open(Path::new(PATH), Mode::Create).unwrap();
        (disk, file)
    }

    fn content(disk: &SimDisk) -> Option<Vec<u8>> {
        journal::disk::read(disk, Path::new(PATH)).ok()
    }

    #[test]
    fn what_is_synced_survives_and_what_is_not_may_not() {
        let mut left = BTreeSet::new();
        for seed in 0..200 {
            let (disk, file) = disk(seed);
            file.write_at(&[1; 700], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new(DIR)).unwrap();
            file.write_at(&[2; 700], 700).unwrap();
            disk.lose_power();
            assert!(file.write_at(&[3], 0).is_err(), "of a process that is gone");
            let found = content(&disk).unwrap();
            assert_eq!(found[..700], [1; 700], "seed {seed}");
            left.insert(found[700..].iter().filter(|byte| **byte == 2).count());
        }
        assert!(left.contains(&0) && left.contains(&700) && left.len() > 10, "{left:?}");
    }

    #[test]
    fn a_name_survives_once_its_directory_is_synced() {
        let mut found = BTreeSet::new();
        for seed in 0..50 {
            let (disk, file) = disk(seed);
            file.write_at(b"new", 0).unwrap();
            file.sync_data().unwrap();
            let to = Path::new("/d/other");
            disk.rename(Path::new(PATH), to).unwrap();
            disk.lose_power();
            let names: Vec<_> = disk.list(Path::new(DIR), 10).unwrap().into_iter().map(|l| l.name).collect();
            found.insert(names);
        }
        // one name at a time: a rename is all or nothing
        let names = [vec![], vec!["file".to_string()], vec!["other".to_string()]];
        assert_eq!(found, BTreeSet::from(names));
    }

    #[test]
    fn a_killed_process_loses_nothing_and_no_lock() {
        let (disk, file) = disk(7);
        let lock = || Disk::lock(&disk, Path::new("/d/LOCK"));
        let held = lock().unwrap();
        assert_eq!(lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        file.write_at(b"kept", 0).unwrap();
        disk.kill();
        assert_eq!(content(&disk).unwrap(), b"kept");
        let held_again = lock().unwrap();
        drop(held);
        assert!(lock().is_err(), "a lock of the dead is not the living one's");
        drop(held_again);
        assert!(lock().is_ok());
    }
}
