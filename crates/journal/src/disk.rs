//! The file operations that the server needs. The operating system provides them, and in tests a simulation.
//!
//! A file's bytes survive a power loss after [`DiskFile::sync_data`], and the names in a directory after
//! [`Disk::sync_dir`].
//!
//! Every name on which acknowledged data depends is synced before the acknowledgement:
//!
//! | name | synced by | when it is synced |
//! | --- | --- | --- |
//! | data directory, `journal/`, `journal/N/`, `damaged/` | [`create_dir_all`] | when each is created, or found at an opening |
//! | a segment | `files::writer` | before its first group is written |
//! | removal of a segment | `files` | before a later one is removed |
//! | `identity.json`, `journal/N/source`, `floodmarks.json` | [`replace`] | when it is replaced |
//! | `streams/mark`, copies of batches in `streams/journal/0/quarantine/` | [`replace`] | before a commit to a table |
//! | files and folders of a local table | `tables::store` | before an upload or commit is confirmed, and before a log is read |

use rustix::fs::{Advice, FallocateFlags};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Creates a directory. Fails with `AlreadyExists` if it exists, and with `NotFound` if its parent does
    /// not. The directory survives a power loss only after its parent is synced: see [`create_dir_all`].
    fn create_dir(&self, dir: &Path, access: Access) -> io::Result<()>;

    /// Lists the entries of a directory in any order, and at most `most` of them.
    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>>;

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file within its directory. If the new name exists, its file is replaced atomically, even in
    /// a crash.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable: files that were created, renamed or removed.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a file until the returned value is dropped. The file is created if it does not exist. Fails with
    /// `WouldBlock` if the file is already locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
}

/// Who may access a directory. Files are always private, because they hold samples or secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the owner.
    Private,
    /// Everyone to whom the umask gives access, because other programs may have files in the directory.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Read,
    Change,
    /// Creates the file, or empties it if it exists.
    Create,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Entries whose names are not UTF-8 are not listed.
    pub name: String,
    pub bytes: u64,
}

#[expect(
    clippy::len_without_is_empty,
    reason = "reading the length may fail, and a file is not a collection"
)]
pub trait DiskFile: Send + Sync + std::fmt::Debug {
    fn len(&self) -> io::Result<u64>;

    /// Reads some bytes at position `at` and returns how many. Returns 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Shortens the file, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Reserves disk space for `bytes` bytes from position `at` on. If the file is shorter, it is extended
    /// with zeros.
    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Says that nobody will read these bytes soon, so that they need not take memory. They must be durable.
    fn uncache(&self, _at: u64, _bytes: u64) {}
}

pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Mode::Read)?;
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let (mut bytes, mut filled) = (vec![0; len], 0);
    while filled < len {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Creates a directory and its missing parents. Each directory is made durable before another one is created
/// in it.
pub fn create_dir_all(disk: &dyn Disk, dir: &Path, access: Access) -> io::Result<()> {
    let Some(above) = dir.parent() else { return Ok(()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    match disk.create_dir(dir, access) {
        Ok(()) => disk.sync_dir(above),
        // The directory exists, but the process that created it may have died before it synced the parent, so
        // the parent is synced again. If that is not permitted, the directory belongs to another user and is
        // left alone.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match disk.sync_dir(above) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            create_dir_all(disk, above, access)?;
            match disk.create_dir(dir, access) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
                _ => disk.sync_dir(above),
            }
        }
        Err(e) => Err(e),
    }
}

/// Replaces the content of a small file atomically: after a crash, the file has either the old or the new
/// content.
pub fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let file = disk.open(&unfinished, Mode::Create)?;
    file.write_at(content, 0)?;
    file.sync_data()?;
    disk.rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Os;

impl Disk for Os {
    fn create_dir(&self, dir: &Path, access: Access) -> io::Result<()> {
        let mode = if access == Access::Private { 0o700 } else { 0o777 };
        DirBuilder::new().mode(mode).create(dir)
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(dir)?.take(most) {
            let entry = entry?;
            let bytes = match entry.metadata() {
                Ok(metadata) => metadata.len(),
                // the file was removed after it was listed
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            listed.extend(entry.file_name().into_string().ok().map(|name| Listed { name, bytes }));
        }
        Ok(listed)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let file = match mode {
            Mode::Read => File::open(path)?,
            Mode::Change => OpenOptions::new().write(true).open(path)?,
            Mode::Create => create(path)?,
        };
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match File::open(dir)?.sync_all() {
            // some file systems cannot sync directories
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = create(path)?;
        file.try_lock()?;
        Ok(Box::new(file))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Self::set_len(self, bytes)
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, FallocateFlags::empty(), at, bytes)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn uncache(&self, at: u64, bytes: u64) {
        // without effect where it is not supported
        let _ = rustix::fs::fadvise(self, at, NonZeroU64::new(bytes), Advice::DontNeed);
    }
}
