//! Reads large files in pieces, so that only a small part of a file is in memory.

use super::TsdbError;
use std::io;
use stdx::varint;

pub trait ReadAt {
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` with the bytes that start at `offset`. Fails with [`io::ErrorKind::UnexpectedEof`] if the
    /// file has fewer bytes.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = from.checked_add(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = self.get(from..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(into, offset)
    }
}

#[derive(Debug)]
pub(super) struct Window<R> {
    source: R,
    file: &'static str,
    step: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl<R: ReadAt> Window<R> {
    pub(super) const fn new(source: R, file: &'static str, step: usize) -> Self {
        Self { source, file, step, start: 0, bytes: Vec::new() }
    }

    pub(super) fn len(&self) -> u64 {
        self.source.len()
    }

    pub(super) fn release(&mut self) {
        if self.bytes.capacity() > 0 {
            self.bytes = Vec::new();
        }
    }

    /// Returns `len` bytes from offset `at`. The caller must limit `len`, because that much memory is
    /// allocated. Fails with [`TsdbError::Damaged`] if the file ends earlier.
    pub(super) fn get(&mut self, at: u64, len: usize) -> Result<&[u8], TsdbError> {
        let got = self.get_up_to(at, len)?.len();
        if got < len {
            return Err(TsdbError::damaged(self.file, at, "the file is truncated"));
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from..from + len])
    }

    /// Like [`Self::get`], but if the file ends earlier, returns only the bytes up to its end.
    pub(super) fn get_up_to(&mut self, at: u64, len: usize) -> Result<&[u8], TsdbError> {
        let end = at.saturating_add(len as u64).min(self.source.len());
        let at = at.min(end);
        let held = self.start..self.start + self.bytes.len() as u64;
        if !(held.start <= at && end <= held.end) {
            let wanted = (end - at).max(self.step as u64).min(self.source.len() - at);
            self.bytes.resize(wanted as usize, 0);
            self.start = at;
            let (file, read) = (self.file, self.source.read_exact_at(&mut self.bytes, at));
            if let Err(source) = read {
                self.bytes.clear();
                return Err(TsdbError::Io { file, source });
            }
        }
        Ok(&self.bytes[(at - self.start) as usize..(end - self.start) as usize])
    }
}

/// Reads numbers from a slice. Its methods return `None` if bytes are missing, or if a varint has more than
/// 64 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.take(8)?.first_chunk()?))
    }

    pub(super) fn uvarint(&mut self) -> Option<u64> {
        varint::take(&mut self.rest)
    }

    pub(super) fn varint(&mut self) -> Option<i64> {
        self.uvarint().map(varint::unzigzag)
    }
}
