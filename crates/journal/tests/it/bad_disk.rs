//! The file system of the operating system, in which operations fail as the test demands.

use journal::Disk;
use journal::disk::{Access, DiskFile, Listed, Mode, Os};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct FileFault {
    pub(crate) error: io::Error,
    /// If a write fails, this many bytes are written nevertheless.
    pub(crate) done: usize,
}

pub(crate) trait FileFaults: Send + Sync + std::fmt::Debug {
    /// Called before each `create`, `fallocate`, `write` and `fdatasync`. `path` is the name under which the
    /// file was created.
    fn before(&self, operation: &'static str, bytes: usize, path: &Path) -> Result<(), FileFault>;
}

#[derive(Debug)]
pub(crate) struct BadDisk(pub(crate) Arc<dyn FileFaults>);

#[derive(Debug)]
struct BadFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    faults: Arc<dyn FileFaults>,
}

impl Disk for BadDisk {
    fn create_dir(&self, dir: &Path, access: Access) -> io::Result<()> {
        Os.create_dir(dir, access)
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        Os.list(dir, most)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        // only segment files fail, but not the copies in the quarantine
        let is_journal = path.extension().is_some_and(|e| e == "new");
        if mode == Mode::Create && is_journal {
            self.0.before("create", 0, path).map_err(|fault| fault.error)?;
        }
        let file = Os.open(path, mode)?;
        if mode != Mode::Create || !is_journal {
            return Ok(file);
        }
        Ok(Box::new(BadFile { file, path: path.into(), faults: Arc::clone(&self.0) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Os.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Os.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Os.lock(path)
    }
}

impl DiskFile for BadFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.faults.before("write", bytes.len(), &self.path) {
            Ok(()) => self.file.write_at(bytes, at),
            Err(fault) => {
                self.file.write_at(&bytes[..fault.done.min(bytes.len())], at)?;
                Err(fault.error)
            }
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.faults.before("fallocate", bytes as usize, &self.path).map_err(|fault| fault.error)?;
        self.file.allocate(at, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.before("fdatasync", 0, &self.path).map_err(|fault| fault.error)?;
        self.file.sync_data()
    }
}
