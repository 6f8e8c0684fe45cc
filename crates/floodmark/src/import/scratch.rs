//! Temporary files without names. The system removes them when the process ends, however it ends.

use bytes::Bytes;
use protocol::tsdb::ReadAt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tables::TableError;
use tables::read::Ranges;
use tables::write::Sink;

const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub(crate) struct Scratch {
    file: Arc<File>,
    end: u64,
}

impl Scratch {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        Ok(Self { file: Arc::new(tempfile::tempfile_in(dir)?), end: 0 })
    }

    /// Begins the next part of the file. The previous part must have been passed to [`Scratch::take`].
    pub(crate) fn part(&self) -> PartWriter {
        PartWriter { file: Arc::clone(&self.file), start: self.end, at: self.end, buffer: Vec::new() }
    }

    pub(crate) fn take(&mut self, mut writer: PartWriter) -> io::Result<FilePart> {
        writer.flush()?;
        assert_eq!(writer.start, self.end, "BUG: two parts were written at once");
        self.end = writer.at;
        Ok(FilePart { file: writer.file, bytes: writer.start..writer.at })
    }
}

#[derive(Debug)]
pub(crate) struct PartWriter {
    file: Arc<File>,
    start: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Sink for PartWriter {
    fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    file: Arc<File>,
    bytes: Range<u64>,
}

impl FilePart {
    /// Opens a whole file. Bytes that are appended to it later are not read.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = 0..file.metadata()?.len();
        Ok(Self { file: Arc::new(file), bytes })
    }

    pub(crate) const fn byte_len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    pub(crate) fn copy_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut piece = vec![0; BUFFER_BYTES];
        let mut at = self.bytes.start;
        while at < self.bytes.end {
            let len = (self.bytes.end - at).min(BUFFER_BYTES as u64) as usize;
            self.file.read_exact_at(&mut piece[..len], at)?;
            out.write_all(&piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}

impl ReadAt for FilePart {
    fn len(&self) -> u64 {
        self.byte_len()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let fits = offset.checked_add(into.len() as u64).is_some_and(|end| end <= self.byte_len());
        if !fits {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(into, self.bytes.start + offset)
    }
}

impl Ranges for FilePart {
    fn name(&self) -> &str {
        "(on this machine)"
    }

    fn len(&self) -> u64 {
        self.byte_len()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        let read = |range: &Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.read_exact_at(&mut bytes, range.start)?;
            Ok(Bytes::from(bytes))
        };
        ranges.iter().map(read).collect::<io::Result<_>>().map_err(|e| TableError::Write(e.into()))
    }
}
