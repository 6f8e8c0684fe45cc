use super::frame;
use super::segment::{self, Header, RECORDS_START, UNFINISHED};
use super::{Durability, Options};
use crate::JournalError;
use crate::disk::{DiskFile, Mode};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// When this many bytes are buffered, they are written without waiting for the sync.
const BUFFER_BYTES_MAX: usize = 1 << 20;

const PAGE_BYTES: u64 = 4096;

/// This file keeps some disk space free for the case that the disk becomes full.
const RESERVE: &str = "reserve";
/// The reserve is larger than a segment's headroom by this much: a new dictionary starts with metadata and
/// exemplars.
const RESERVE_BYTES: u64 = 1 << 20;

/// When this many bytes are durable, they leave the page cache. Journals are rarely read: after a restart, and when a closed
/// tenant opens. In a full memory control group, each page that is written would make the owner look for a page to drop.
const CACHED_BYTES_MAX: u64 = 1 << 20;

/// When the disk is nearly full, space is allocated in steps of this size.
const ALLOCATE_BYTES_MIN: u64 = 64 << 10;

/// Writes the newest segment. Bytes behind `durable` do not count as written yet.
#[derive(Debug)]
pub(super) struct Writer {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    seed: u32,
    buffer: Vec<u8>,
    durable: u64,
    written: u64,
    allocated: u64,
    /// The bytes before this position have left the page cache.
    uncached: u64,
}

impl Writer {
    /// Creates a segment file. It gets its final name when its header is durable. It may replace a segment
    /// that has no durable records.
    pub(super) fn create(dir: &Path, header: Header, options: &Options) -> Result<Self, JournalError> {
        let unfinished = segment::path(dir, header.first).with_extension(UNFINISHED);
        let file = options.disk.open(&unfinished, Mode::Create);
        let file = file.map_err(|e| JournalError::io("create", &unfinished, e))?;
        Self::begin(dir, header, options, file, 0)
    }

    /// Like [`Self::create`], but takes the space of the reserve, because the disk is full.
    pub(super) fn create_in_reserve(
        dir: &Path,
        header: Header,
        options: &Options,
    ) -> Result<Self, JournalError> {
        let unfinished = segment::path(dir, header.first).with_extension(UNFINISHED);
        let failed = |e| JournalError::io("use reserved disk space for", &unfinished, e);
        // The file is renamed and not created anew, so that no other program can take the space.
        options.disk.rename(&dir.join(RESERVE), &unfinished).map_err(failed)?;
        let file = options.disk.open(&unfinished, Mode::Change).map_err(failed)?;
        let allocated = file.len().map_err(failed)?;
        Self::begin(dir, header, options, file, allocated)
    }

    fn begin(
        dir: &Path,
        header: Header,
        options: &Options,
        file: Box<dyn DiskFile>,
        allocated: u64,
    ) -> Result<Self, JournalError> {
        let (disk, path) = (&options.disk, segment::path(dir, header.first));
        let mut writer = Self {
            file,
            path: path.with_extension(UNFINISHED),
            seed: frame::crc_seed(header.salt),
            buffer: Vec::new(),
            durable: 0,
            written: 0,
            allocated,
            uncached: 0,
        };
        let made = writer.fill_in(header, options).and_then(|()| {
            disk.rename(&writer.path, &path).map_err(|e| JournalError::io("rename", &path, e))?;
            sync_dir(dir, options)
        });
        match made {
            Ok(()) => {
                writer.path = path;
                Ok(writer)
            }
            Err(e) => {
                // if this fails, too, the file is removed when the journal is opened again
                let _ = disk.remove(&writer.path);
                Err(e)
            }
        }
    }

    fn fill_in(&mut self, header: Header, options: &Options) -> Result<(), JournalError> {
        self.buffer = header.encode();
        self.allocate(0, options)?;
        self.sync(options)
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn is_full(&self, options: &Options) -> bool {
        self.durable > RECORDS_START && self.durable >= options.segment_bytes
    }

    /// Allocates space for `more` bytes and the headroom, so that a full disk is noticed before anything is
    /// written.
    pub(super) fn allocate(&mut self, more: usize, options: &Options) -> Result<(), JournalError> {
        let end = self.written + (self.buffer.len() + more) as u64;
        let needed = end + options.headroom_bytes.min(options.segment_bytes);
        if needed <= self.allocated {
            return Ok(());
        }
        let to_segment_end = options.segment_bytes.saturating_sub(end);
        let wanted = needed.max(end + options.preallocate_bytes.min(to_segment_end));
        match self.allocate_to(wanted) {
            Err(JournalError::Full { .. }) => self.allocate_to(needed.next_multiple_of(ALLOCATE_BYTES_MIN)),
            other => other,
        }
    }

    fn allocate_to(&mut self, end: u64) -> Result<(), JournalError> {
        let length = end - self.allocated;
        match self.file.allocate(self.allocated, length) {
            Ok(()) => self.allocated = end,
            // Some file systems cannot allocate space ahead. Then each sync takes longer.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) => {
                self.allocated = u64::MAX;
            }
            Err(e) => return Err(JournalError::io("fallocate", &self.path, e)),
        }
        Ok(())
    }

    /// Puts a record into the buffer. It is written by [`Self::sync`], or earlier if the buffer is full.
    pub(super) fn append(
        &mut self,
        group: u64,
        offset: u64,
        payload: &[u8],
        options: &Options,
    ) -> Result<(), JournalError> {
        self.allocate(frame::FRAME_HEADER_BYTES + payload.len(), options)?;
        if !self.buffer.is_empty() && self.buffer.len() + payload.len() > BUFFER_BYTES_MAX {
            self.write()?;
        }
        let at = self.written + self.buffer.len() as u64;
        frame::put(&mut self.buffer, self.seed, at, group, offset, payload);
        Ok(())
    }

    fn write(&mut self) -> Result<(), JournalError> {
        self.file
            .write_at(&self.buffer, self.written)
            .map_err(|e| JournalError::io("write", &self.path, e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.buffer.capacity() > 2 * BUFFER_BYTES_MAX {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, options: &Options) -> Result<(), JournalError> {
        self.write()?;
        if options.durability == Durability::Fsync {
            self.file.sync_data().map_err(|e| JournalError::io("fdatasync", &self.path, e))?;
            if self.written - self.uncached >= CACHED_BYTES_MAX {
                // the last page will be written again
                let end = self.written & !(PAGE_BYTES - 1);
                self.file.uncache(self.uncached, end - self.uncached);
                self.uncached = end;
            }
        }
        self.durable = self.written;
        Ok(())
    }

    /// Ends the segment after its durable bytes: gives back the space allocated ahead, and cuts off an
    /// abandoned group.
    ///
    /// Errors are ignored, because the next segment's first offset makes readers ignore what is left. After a
    /// failed fdatasync, the file is not synced again, because the kernel may have marked the unwritten pages
    /// as clean.
    pub(super) fn close(self) {
        if self.allocated > self.durable || self.written > self.durable {
            let _ = self.file.set_len(self.durable);
        }
    }
}

/// Reserves space for one segment. When the disk is full, old segments can only be dropped after a new
/// segment has begun, and the new one needs space. Returns true if the reserve exists.
pub(super) fn make_reserve(dir: &Path, options: &Options) -> bool {
    let (disk, path) = (&options.disk, dir.join(RESERVE));
    let bytes = options.headroom_bytes.min(options.segment_bytes) + RESERVE_BYTES;
    if disk.open(&path, Mode::Read).and_then(|file| file.len()).is_ok_and(|len| len >= bytes) {
        return true;
    }
    let made = disk.open(&path, Mode::Create).and_then(|file| file.allocate(0, bytes));
    if made.is_err() {
        // gives back the space that was allocated before the error
        let _ = disk.remove(&path);
    }
    made.is_ok()
}

pub(super) fn sync_dir(dir: &Path, options: &Options) -> Result<(), JournalError> {
    if options.durability == Durability::Os {
        return Ok(());
    }
    options.disk.sync_dir(dir).map_err(|e| JournalError::io("fsync", dir, e))
}
