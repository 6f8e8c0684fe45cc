use super::DiskFaults;
use super::dir::{Dir, DirChange, Entry};
use super::inode::Inode;
use crate::power::{Change, Power};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::rng::Rng;

#[derive(Debug)]
pub(super) struct State {
    pub(super) power: Arc<Power>,
    pub(super) rng: Rng,
    pub(super) faults: DiskFaults,
    /// Number of process deaths so far. Files that were opened before the last one can no longer be used.
    pub(super) boots: u64,
    /// True if a power loss has destroyed bytes although a sync had reported success.
    pub(super) lied: bool,
    pub(super) files: BTreeMap<u64, Inode>,
    pub(super) dirs: BTreeMap<PathBuf, Dir>,
    pub(super) locked: BTreeSet<PathBuf>,
    made: u64,
}

impl State {
    pub(super) const fn new(rng: Rng, power: Arc<Power>) -> Self {
        Self {
            power,
            rng,
            faults: DiskFaults { error: 0.0, full: 0.0, lie: 0.0 },
            boots: 0,
            lied: false,
            files: BTreeMap::new(),
            dirs: BTreeMap::new(),
            locked: BTreeSet::new(),
            made: 0,
        }
    }

    /// To be called before each change. Returns an error if the change fails, and true if the power fails in
    /// the middle of it.
    pub(super) fn change(&mut self, takes_room: bool) -> io::Result<bool> {
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

    pub(super) fn dir(&mut self, path: &Path) -> io::Result<(&mut Dir, String)> {
        let (dir, name) = split(path);
        let dir = self.dirs.get_mut(&dir).ok_or(ErrorKind::NotFound)?;
        Ok((dir, name))
    }

    pub(super) fn put_dir(&mut self, path: &Path) {
        let Some(above) = path.parent() else { return };
        self.put_dir(above);
        self.dirs.entry(path.to_path_buf()).or_default();
        let (_, name) = split(path);
        self.dirs.entry(above.to_path_buf()).or_default().put(name, Entry::Dir);
    }

    /// Changes the names in a directory. If the power fails meanwhile, chance decides whether the change is
    /// made.
    pub(super) fn rename(&mut self, path: &Path, change: impl FnOnce(String) -> DirChange) -> io::Result<()> {
        let cut = self.change(false)?;
        if cut && self.rng.chance(0.5) {
            return Err(off());
        }
        let (dir, name) = self.dir(path)?;
        dir.change(change(name));
        if cut { Err(off()) } else { Ok(()) }
    }

    pub(super) const fn next_file(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub(super) fn inode(&mut self, file: u64) -> &mut Inode {
        self.files.get_mut(&file).expect("BUG: a named or open file does not exist")
    }

    /// If a write fails, some of the bytes may have been written nevertheless.
    pub(super) fn write(&mut self, file: u64, bytes: &[u8], at: usize) -> io::Result<()> {
        let (done, failed) = match self.change(true) {
            Ok(false) => (bytes.len(), None),
            Ok(true) => (self.rng.below(bytes.len() as u64 + 1) as usize, Some(off())),
            Err(e) if self.power.is_off() => (0, Some(e)),
            Err(e) => (self.rng.below(bytes.len() as u64 + 1) as usize, Some(e)),
        };
        self.inode(file).write(&bytes[..done], at);
        failed.map_or(Ok(()), Err)
    }

    /// Makes the content of a file durable, unless the sync fails or does nothing.
    pub(super) fn sync(&mut self, file: u64) -> io::Result<()> {
        let result = self.change(false);
        let lies = self.rng.chance(self.faults.lie);
        let inode = self.files.get_mut(&file).expect("BUG: an open file does not exist");
        match result {
            Ok(false) if lies => {
                inode.lie();
                Ok(())
            }
            Ok(false) => {
                inode.sync();
                Ok(())
            }
            Ok(true) => {
                inode.sync_some(&mut self.rng, false);
                Err(off())
            }
            // after a failed sync, the kernel marks pages as clean, although it has not written them
            Err(error) => {
                inode.sync_some(&mut self.rng, true);
                Err(error)
            }
        }
    }

    pub(super) fn crash(&mut self) {
        let rng = &mut self.rng;
        let mut kept = BTreeSet::new();
        let mut dirs: BTreeMap<PathBuf, Dir> = BTreeMap::new();
        // directories come after the directories that contain them
        for (path, mut dir) in std::mem::take(&mut self.dirs) {
            let above = path.parent().and_then(|above| dirs.get(above));
            let has_name = above.is_some_and(|above| above.has_dir(&split(&path).1));
            if path.parent().is_none() || has_name {
                dir.crash(rng);
                kept.extend(dir.files().map(|(_, file)| file));
                dirs.insert(path, dir);
            }
        }
        self.dirs = dirs;
        self.files.retain(|file, _| kept.contains(file));
        for inode in self.files.values_mut().filter(|inode| !inode.is_durable()) {
            // this counts even if the fault was turned off since the sync
            self.lied |= inode.is_lied_about();
            inode.crash(rng);
        }
    }
}

pub(super) fn off() -> io::Error {
    io::Error::other("the power is off")
}

pub(super) fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().and_then(|n| n.to_str()).expect("BUG: a path has no file name in UTF-8");
    (path.parent().unwrap_or(Path::new("/")).to_path_buf(), name.into())
}
