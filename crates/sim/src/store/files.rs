//! A store of local files in a real directory. In a simulated power loss, names of files may disappear.
//!
//! A file gets its name only after its bytes are synced, so a power loss affects only names. The names in a
//! folder are durable after the folder is synced. Hard links keep the files that have durable names, so that
//! a power loss can bring back files that were deleted or replaced.

use crate::clock::SimClock;
use crate::power::Power;
use object_store::path::Path as Location;
use object_store::prefix::PrefixStore;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use stdx::rng::{Rng, mix};
use tables::store::DynObjectStore;
use tempfile::TempDir;

/// On most machines, this directory is in memory.
const MEMORY: &str = "/dev/shm";

/// Files with this prefix are not complete yet (`tables::store`), and the simulation ignores them. Their
/// names contain the process ID, which is different in each run.
const TEMPORARY: &str = ".aside-";

#[derive(Debug)]
pub(super) struct Files {
    _dir: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    seed: u64,
    power: Arc<Power>,
    clock: Arc<SimClock>,
    error: f64,
    rng: Rng,
    /// For each folder, the names that were in it when it was last synced.
    durable: BTreeMap<PathBuf, BTreeMap<String, Kept>>,
    links: u64,
    links_dir: PathBuf,
    root: PathBuf,
}

/// A file or folder whose name would survive a power loss.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Folder,
    /// The inode number of a file, and a hard link that keeps it.
    File(u64, PathBuf),
}

impl Files {
    pub(super) fn new(seed: u64, power: Arc<Power>, clock: Arc<SimClock>) -> Self {
        let builder = || tempfile::Builder::new().prefix("floodmark-sim-").to_owned();
        let dir = builder().tempdir_in(MEMORY).or_else(|_| builder().tempdir());
        let dir = dir.expect("BUG: cannot create a directory");
        let (links_dir, root) = (dir.path().join("links"), dir.path().join("tables"));
        for made in [&links_dir, &root] {
            fs::create_dir(made).expect("BUG: cannot create a directory");
        }
        let state = State {
            seed,
            power,
            clock,
            error: 0.0,
            rng: Rng::new(mix(seed)),
            durable: BTreeMap::new(),
            links: 0,
            links_dir,
            root,
        };
        Self { _dir: dir, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn open(&self) -> Arc<DynObjectStore> {
        let (state, root) = (Arc::clone(&self.state), lock(&self.state).root.clone());
        let prefix = Location::from_absolute_path(&root).expect("BUG: invalid path of a directory");
        let files = tables::store::local_files(move |folder| {
            // the folders above the root are not part of the simulation
            if folder.starts_with(&root) { lock(&state).sync(folder) } else { Ok(()) }
        });
        Arc::new(PrefixStore::new(files, prefix))
    }

    pub(super) fn set_error(&self, error: f64) {
        lock(&self.state).error = error;
    }

    /// Chance decides which changes are lost: a new name that was not synced may disappear, and a deleted one
    /// may come back.
    pub(super) fn lose_power(&self) {
        let mut state = lock(&self.state);
        let root = state.root.clone();
        state.lose(&root);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("BUG: a user of the state panicked")
}

impl State {
    fn sync(&mut self, folder: &Path) -> io::Result<()> {
        if self.power.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        if self.fails(folder) && !self.clock.slept_too_often() {
            return Err(io::Error::other("injected"));
        }
        self.note(folder)
    }

    /// True if the sync of this folder must fail. This does not depend on the order of concurrent requests.
    fn fails(&self, folder: &Path) -> bool {
        let name = folder.strip_prefix(&self.root).unwrap_or(folder);
        let mut hasher = std::hash::DefaultHasher::new();
        name.hash(&mut hasher);
        Rng::new(mix(self.seed ^ mix(self.clock.epoch())) ^ hasher.finish()).chance(self.error)
    }

    fn note(&mut self, folder: &Path) -> io::Result<()> {
        let before = self.durable.remove(folder).unwrap_or_default();
        let mut names = BTreeMap::new();
        for (name, file) in listed(folder)? {
            let kept = match (file, before.get(&name)) {
                (None, _) => Kept::Folder,
                (Some(file), Some(Kept::File(number, link))) if *number == file => {
                    Kept::File(file, link.clone())
                }
                (Some(file), _) => {
                    self.links += 1;
                    let link = self.links_dir.join(self.links.to_string());
                    fs::hard_link(folder.join(&name), &link)?;
                    Kept::File(file, link)
                }
            };
            names.insert(name, kept);
        }
        self.durable.insert(folder.to_path_buf(), names);
        Ok(())
    }

    /// Decides by chance what a power loss does to a folder and everything in it.
    fn lose(&mut self, folder: &Path) {
        let durable = self.durable.get(folder).cloned().unwrap_or_default();
        let there = listed(folder).expect("BUG: cannot list a folder");
        for (name, file) in &there {
            let (path, kept) = (folder.join(name), durable.get(name));
            let is_durable = match (file, kept) {
                (None, Some(Kept::Folder)) => true,
                (Some(file), Some(Kept::File(number, _))) => file == number,
                _ => false,
            };
            if !is_durable && self.rng.chance(0.5) {
                match file {
                    Some(_) => fs::remove_file(&path),
                    None => fs::remove_dir_all(&path),
                }
                .expect("BUG: cannot remove a file or folder");
                self.durable.retain(|folder, _| !folder.starts_with(&path));
                bring_back(&path, kept);
            } else if file.is_none() {
                self.lose(&path);
            }
        }
        for (name, kept) in durable.iter().filter(|(name, _)| !there.contains_key(*name)) {
            if self.rng.chance(0.5) {
                bring_back(&folder.join(name), Some(kept));
            }
        }
        self.note(folder).expect("BUG: cannot list a folder");
    }
}

/// If a file had this name when the folder was synced, restores it.
fn bring_back(path: &Path, kept: Option<&Kept>) {
    if let Some(Kept::File(_, link)) = kept {
        fs::hard_link(link, path).expect("BUG: cannot link a file");
    }
}

/// The names in a folder. Files have an inode number, folders have none.
fn listed(folder: &Path) -> io::Result<BTreeMap<String, Option<u64>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(TEMPORARY) {
            let about = entry.metadata()?;
            all.insert(name, about.is_file().then(|| about.ino()));
        }
    }
    Ok(all)
}
