use super::SimDisk;
use super::state::{State, off};
use crate::power::Change;
use journal::disk::DiskFile;
use std::io;
use std::path::PathBuf;
use std::sync::MutexGuard;

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    /// The value of [`State::boots`] when the file was opened. If it has changed since, the process that
    /// opened the file is dead.
    pub(super) boot: u64,
    pub(super) file: u64,
    pub(super) lock: Option<PathBuf>,
}

impl SimFile {
    /// Locks the state of the disk. Fails if the process that opened the file is dead, or if the power is
    /// off.
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
        Ok(self.state()?.files[&self.file].bytes().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.state()?;
        let bytes = state.files[&self.file].bytes().get(at as usize..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.state()?.write(self.file, bytes, at as usize)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        // Here, only a power loss makes a truncation fail. Otherwise, a group whose sync has failed could
        // stay in the page cache, where the next process would read it although it was never acknowledged.
        if state.power.change() != Change::Made {
            return Err(off());
        }
        state.inode(self.file).resize(bytes as usize);
        Ok(())
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.change(true)? {
            return Err(off());
        }
        state.inode(self.file).grow((at + bytes) as usize);
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
