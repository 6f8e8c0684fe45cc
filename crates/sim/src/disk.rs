//! A simulated disk in memory. It can lose power, and its syncs can report success without doing anything.
//!
//! The disk knows for each byte whether it would survive a power loss. If a sector was not synced, chance
//! decides which content it has after a power loss. The changes of a directory are undone from some point on,
//! as in a journaling file system. If the name of a directory is lost, everything in it is lost, too.

mod dir;
mod file;
mod inode;
mod state;
#[cfg(test)]
mod tests;

use crate::power::Power;
use dir::{Dir, DirChange, Entry};
use file::SimFile;
use inode::Inode;
use journal::Disk;
use journal::disk::{Access, DiskFile, Listed, Mode};
use state::{State, off, split};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use stdx::rng::Rng;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DiskFaults {
    pub error: f64,
    pub full: f64,
    /// A sync reports success, but does nothing.
    pub lie: f64,
}

#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Clone)]
pub struct Copy(Vec<(PathBuf, Vec<u8>)>);

impl SimDisk {
    pub fn new(seed: u64, power: Arc<Power>) -> Self {
        let mut state = State::new(Rng::new(seed), power);
        state.dirs.insert("/".into(), Dir::default());
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn faults(&self) -> DiskFaults {
        self.lock().faults
    }

    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// True if a power loss has destroyed bytes although a sync had reported success.
    pub fn has_lied(&self) -> bool {
        self.lock().lied
    }

    /// Kills the process, which closes its files and releases its locks. What it has written is kept.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.boots += 1;
        state.locked.clear();
    }

    /// Cuts the power, so that changes that were not synced may be lost.
    pub fn lose_power(&self) {
        self.kill();
        self.lock().crash();
    }

    pub fn copy(&self, under: &Path) -> Copy {
        let state = self.lock();
        let mut files = Vec::new();
        for (dir, names) in state.dirs.iter().filter(|(dir, _)| dir.starts_with(under)) {
            files.extend(
                names.files().map(|(name, file)| (dir.join(name), state.files[&file].bytes().to_vec())),
            );
        }
        Copy(files)
    }

    /// Replaces all files in a directory, and below it, by those of an earlier copy.
    pub fn put_back(&self, under: &Path, copy: &Copy) {
        let mut state = self.lock();
        for dir in state.dirs.iter_mut().filter(|(dir, _)| dir.starts_with(under)).map(|(_, dir)| dir) {
            dir.clear();
        }
        for (path, bytes) in &copy.0 {
            let (dir, name) = split(path);
            let file = state.next_file();
            state.files.insert(file, Inode::durable(bytes.clone()));
            state.put_dir(&dir);
            state.dirs.entry(dir).or_default().put(name, Entry::File(file));
        }
    }

    /// Deletes a file, even if the power fails later. Returns false if there is no such file.
    pub fn delete(&self, path: &Path) -> bool {
        let (dir, name) = split(path);
        let mut state = self.lock();
        state.dirs.get_mut(&dir).is_some_and(|dir| dir.delete(&name))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("BUG: a user of the disk's state panicked")
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path, _: Access) -> io::Result<()> {
        let mut state = self.lock();
        if state.dirs.contains_key(dir) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.dir(dir)?; // fails if the parent does not exist
        let cut = state.change(true)?;
        if !(cut && state.rng.chance(0.5)) {
            let (above, name) = state.dir(dir)?;
            above.change(DirChange::Add(name, Entry::Dir));
            state.dirs.insert(dir.to_path_buf(), Dir::default());
        }
        if cut { Err(off()) } else { Ok(()) }
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        let state = self.lock();
        let found = state.dirs.get(dir).ok_or(ErrorKind::NotFound)?;
        let bytes = |entry| match entry {
            Entry::File(file) => state.files[&file].bytes().len() as u64,
            Entry::Dir => 0,
        };
        let listed = |(name, entry): (&String, Entry)| Listed { name: name.clone(), bytes: bytes(entry) };
        Ok(found.names().map(listed).take(most).collect())
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        let (dir, name) = state.dir(path)?;
        let found = dir.file(&name);
        if mode == Mode::Create && state.change(true)? {
            return Err(off());
        }
        let file = match (mode, found) {
            (Mode::Create, None) => {
                let file = state.next_file();
                state.files.insert(file, Inode::default());
                state.dir(path)?.0.change(DirChange::Add(name, Entry::File(file)));
                file
            }
            (Mode::Create, Some(file)) => {
                state.inode(file).resize(0);
                file
            }
            (_, Some(file)) => file,
            (_, None) => return Err(ErrorKind::NotFound.into()),
        };
        let boot = state.boots;
        Ok(Box::new(SimFile { disk: self.clone(), boot, file, lock: None }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "BUG: a file is renamed into another directory");
        let mut state = self.lock();
        let (dir, name) = state.dir(from)?;
        if dir.file(&name).is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename(to, |to| DirChange::Rename(name, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let (dir, name) = state.dir(path)?;
        if dir.file(&name).is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename(path, DirChange::Remove)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let cut = state.change(false)?;
        let dir = state.dirs.get_mut(dir).ok_or(ErrorKind::NotFound)?;
        dir.sync();
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
