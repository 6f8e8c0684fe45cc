use crate::JournalError;
use crate::disk::{Disk, DiskFile, Mode};
use std::io;
use std::path::{Path, PathBuf};

pub(super) const WINDOW_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Window {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    len: u64,
    buffer: Vec<u8>,
    start: u64,
    filled: usize,
}

impl Window {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, JournalError> {
        let file = disk.open(path, Mode::Read).map_err(|e| JournalError::io("open", path, e))?;
        let len = file.len().map_err(|e| JournalError::io("stat", path, e))?;
        Ok(Self { file, path: path.to_path_buf(), len, buffer: Vec::new(), start: 0, filled: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The length that the file had when it was opened. It may have grown since.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the `len` bytes at position `at`. There are fewer at the end of the file.
    pub(super) fn get(&mut self, at: u64, len: usize) -> Result<&[u8], JournalError> {
        let len = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX).min(len);
        let buffered = self.start..=self.start + self.filled as u64;
        if !(buffered.contains(&at) && buffered.contains(&(at + len as u64))) {
            self.fill(at, len)?;
        }
        let begin = (at - self.start) as usize;
        let end = (begin + len).min(self.filled);
        Ok(&self.buffer[begin..end])
    }

    fn fill(&mut self, at: u64, len: usize) -> Result<(), JournalError> {
        let file_len = usize::try_from(self.len).unwrap_or(usize::MAX);
        let wanted = len.max(WINDOW_BYTES.min(file_len));
        if self.buffer.len() < wanted {
            self.buffer = vec![0; wanted];
        }
        (self.start, self.filled) = (at, 0);
        while self.filled < self.buffer.len() {
            match self.file.read_at(&mut self.buffer[self.filled..], at + self.filled as u64) {
                Ok(0) => break,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(JournalError::io("read", &self.path, e)),
            }
        }
        Ok(())
    }

    /// Finds the end of the last byte that is not zero. Returns `from` if only zeros follow.
    pub(super) fn end_of_content(&mut self, from: u64) -> Result<u64, JournalError> {
        let (mut at, mut end) = (from, from);
        loop {
            let bytes = self.get(at, WINDOW_BYTES)?;
            if bytes.is_empty() {
                return Ok(end);
            }
            if let Some(last) = bytes.iter().rposition(|b| *b != 0) {
                end = at + last as u64 + 1;
            }
            at += bytes.len() as u64;
        }
    }
}
