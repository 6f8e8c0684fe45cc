//! Changes of one tenant's file: events are appended, the oldest are removed, and all are deleted.
//!
//! Only the owner of the [`Log`] changes the file, one change at a time. After an error, the file is read again before
//! the next change.

use super::EventsError;
use super::file::{self, Contents, RECORD_BYTES_MAX, Record, scan, scan_all};
use crate::limits::tenant_usage::Peak;
use journal::Disk;
use journal::disk::{self, Access, DiskFile, Mode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::telemetry::Counter;

/// Extension of a file that will replace another one.
pub(super) const UNFINISHED: &str = "unfinished";

/// Folder with copies of damaged lines, beside the files.
const QUARANTINE: &str = "quarantine";

/// Limits on the copies of all tenants. Further lines are lost without a copy, because a disk that damages files again and
/// again must not be filled by them.
pub(super) const QUARANTINE_BYTES_MAX: u64 = 64 << 20;
const QUARANTINE_FILES_MAX: usize = 10_000;

const COPY_BYTES: usize = 64 << 10;

/// A file is rewritten at most this often because of events that have expired. A tenant could otherwise have it rewritten
/// at each check, with one event that is older than its retention.
const EXPIRE_EVERY_MS: u64 = 3_600_000;

/// An event that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Since 1970, at most [`file::WHEN_MS_MAX`].
    pub(crate) when_ms: i64,
    pub(crate) what: String,
    /// Separated by spaces.
    pub(crate) tags: String,
    pub(crate) data: String,
}

#[derive(Debug)]
pub(super) struct Log {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What is in the file. `None` if it must be read first.
    contents: Option<Contents>,
    /// False if it is certain that there is no file.
    has_file: bool,
    /// The time before which events were removed last because they had expired.
    expired_before_ms: i64,
    /// Length of the file, for others.
    file_bytes: Arc<FileBytes>,
    /// Counts damaged lines of all files.
    damaged: Counter,
}

/// Length of a file, and the largest since the start.
#[derive(Debug, Default)]
pub(super) struct FileBytes {
    now: AtomicU64,
    peak: Peak,
}

impl FileBytes {
    fn set(&self, bytes: u64) {
        self.now.store(bytes, Ordering::Relaxed);
        self.peak.note(bytes);
    }

    pub(super) fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn peak(&self) -> u64 {
        self.peak.get()
    }
}

impl Log {
    /// `found_bytes` is the length of the file if there is one.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        found_bytes: Option<u64>,
        damaged: Counter,
    ) -> Self {
        let file_bytes = Arc::new(FileBytes::default());
        file_bytes.set(found_bytes.unwrap_or(0));
        let (has_file, expired_before_ms) = (found_bytes.is_some(), i64::MIN);
        Self { disk, path, contents: None, has_file, expired_before_ms, file_bytes, damaged }
    }

    /// Length of the file. It follows all changes.
    pub(super) fn file_bytes(&self) -> Arc<FileBytes> {
        Arc::clone(&self.file_bytes)
    }

    pub(super) const fn has_file(&self) -> bool {
        self.has_file
    }

    /// Stores an event. Returns its id once it is durable. If the file would exceed `file_bytes_max`, the events that
    /// arrived first are removed, so that a quarter of the file becomes free.
    pub(super) fn append(&mut self, event: &Event, file_bytes_max: u64) -> Result<u64, EventsError> {
        let mut contents = self.contents()?;
        let Event { when_ms, what, tags, data } = event;
        let (id, when_ms) = (contents.next_id, *when_ms);
        let line =
            file::encode(&Record { id, when_ms, what: what.into(), tags: tags.into(), data: data.into() });
        if line.len() > RECORD_BYTES_MAX {
            return Err(EventsError::TooLarge { bytes: line.len() });
        }
        let line_bytes = line.len() as u64;
        if contents.end_bytes + line_bytes > file_bytes_max {
            let kept_bytes = (file_bytes_max / 4 * 3).saturating_sub(line_bytes);
            contents = self.replace(kept_bytes, i64::MIN)?;
        }
        let at = contents.end_bytes;
        let bytes = if at == 0 { [file::header(id), line].concat() } else { line };
        self.contents = None; // until it is certain what is in the file
        self.has_file = true;
        self.write(&bytes, at).map_err(self.failed())?;
        let end_bytes = at + bytes.len() as u64;
        let oldest_ms = contents.oldest_ms.min(when_ms);
        self.know(Contents { next_id: id + 1, end_bytes, oldest_ms, ..contents });
        Ok(id)
    }

    /// Removes the events before `before_ms`, if an hour has passed since this was last done, or the retention has changed
    /// by an hour.
    pub(super) fn expire(&mut self, before_ms: i64) -> Result<(), EventsError> {
        let is_soon = before_ms.abs_diff(self.expired_before_ms) < EXPIRE_EVERY_MS;
        // damage is looked for in any case
        if self.contents()?.oldest_ms < before_ms && !is_soon {
            self.replace(u64::MAX, before_ms)?;
            self.expired_before_ms = before_ms;
        }
        Ok(())
    }

    /// Deletes all events.
    pub(super) fn delete(&mut self) -> Result<(), EventsError> {
        self.contents = None;
        let remove = |path: &Path| match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let removed = remove(&self.path).and_then(|()| remove(&self.unfinished()));
        match removed.and_then(|()| self.disk.sync_dir(self.dir())) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(self.failed()(source)),
            _ => {
                self.has_file = false;
                self.file_bytes.set(0);
                Ok(())
            }
        }
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("BUG: a file of events is in no directory")
    }

    fn unfinished(&self) -> PathBuf {
        self.path.with_extension(UNFINISHED)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> EventsError + use<> {
        let path = self.path.clone();
        |source| EventsError::Io { path, source }
    }

    fn know(&mut self, contents: Contents) {
        self.file_bytes.set(contents.end_bytes);
        self.contents = Some(contents);
    }

    /// What is in the file. When the file is read for the first time, an unfinished line is removed, and damaged ones are
    /// moved to the quarantine.
    fn contents(&mut self) -> Result<Contents, EventsError> {
        if let Some(contents) = self.contents {
            return Ok(contents);
        }
        let contents = match self.disk.open(&self.path, Mode::Read) {
            Ok(file) => {
                self.has_file = true;
                let contents = scan(&*file, &self.path, |_| Ok(()))?;
                // the process that created the file may have ended before it made the name durable
                self.disk.sync_dir(self.dir()).map_err(self.failed())?;
                if contents.damaged > 0 {
                    return self.replace(u64::MAX, i64::MIN);
                }
                self.cut(&contents).map_err(self.failed())?;
                contents
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(error) => return Err(self.failed()(error)),
        };
        self.know(contents);
        Ok(contents)
    }

    fn cut(&self, contents: &Contents) -> io::Result<()> {
        let (path, bytes) = (self.path.display(), contents.unfinished_bytes);
        if bytes == 0 {
            return Ok(());
        }
        tracing::info!(%path, bytes, "removed the end of a file of events, whose write was interrupted");
        let file = self.disk.open(&self.path, Mode::Change)?;
        file.set_len(contents.end_bytes)?;
        file.sync_data()
    }

    /// Makes bytes at the end of the file durable. After an error, tries to remove them, because their request fails.
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (file, is_new) = match self.disk.open(&self.path, Mode::Change) {
            Ok(file) => (file, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk::create_dir_all(&*self.disk, self.dir(), Access::Private)?;
                (self.disk.open(&self.path, Mode::Create)?, true)
            }
            Err(error) => return Err(error),
        };
        let written = file.write_at(bytes, at).and_then(|()| file.sync_data());
        if written.is_err() {
            let _ = file.set_len(at); // otherwise, an event without an answer may be shown
        }
        written?;
        if is_new { self.disk.sync_dir(self.dir()) } else { Ok(()) }
    }

    /// Copies the lines of the file that are not valid to the quarantine. Returns the copy, whose name depends only on its
    /// bytes, so that the copy of another attempt replaces it. `None` if the quarantine is full.
    fn quarantine(&self, file: &dyn DiskFile) -> Result<Option<PathBuf>, EventsError> {
        let dir = self.dir().join(QUARANTINE);
        let tenant = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let unfinished = dir.join(format!("{tenant}.{UNFINISHED}"));
        disk::create_dir_all(&*self.disk, &dir, Access::Private).map_err(self.failed())?;
        let new = self.disk.open(&unfinished, Mode::Create).map_err(self.failed())?;
        let (mut copy, mut check) = (Copy { file: &*new, buffer: Vec::new(), at: 0 }, 0);
        let keep = |line: &[u8]| {
            check = crc32c::crc32c_append(check, line);
            copy.push(line).map_err(self.failed())
        };
        scan_all(file, &self.path, |_| Ok(()), keep)?;
        let name = format!("{tenant}.{check:08x}.lines");
        let kept = dir.join(&name);
        let done = copy.finish().and_then(|bytes| {
            if !self.has_room(&dir, &name, bytes)? {
                self.disk.remove(&unfinished)?;
                return Ok(None);
            }
            self.disk.rename(&unfinished, &kept)?;
            self.disk.sync_dir(&dir)?;
            Ok(Some(kept))
        });
        done.map_err(self.failed())
    }

    /// True if the quarantine may get a copy of this name and length.
    fn has_room(&self, dir: &Path, name: &str, bytes: u64) -> io::Result<bool> {
        let mut kept = self.disk.list(dir, QUARANTINE_FILES_MAX)?;
        let is_full = kept.len() == QUARANTINE_FILES_MAX;
        kept.retain(|copy| copy.name != name && !copy.name.ends_with(UNFINISHED));
        let kept_bytes = kept.iter().map(|copy| copy.bytes).fold(0, u64::saturating_add);
        Ok(!is_full && kept_bytes.saturating_add(bytes) <= QUARANTINE_BYTES_MAX)
    }

    /// Replaces the file by one that has only the newest `kept_bytes` of its events, and none before `before_ms`. The lines
    /// of the file that are damaged are moved to the quarantine.
    fn replace(&mut self, kept_bytes: u64, before_ms: i64) -> Result<Contents, EventsError> {
        let old = self.disk.open(&self.path, Mode::Read).map_err(self.failed())?;
        let mut live_bytes = 0;
        let before = scan(&*old, &self.path, |line| {
            let is_live = line.record.when_ms >= before_ms;
            live_bytes += if is_live { line.text.len() as u64 } else { 0 };
            Ok(())
        })?;
        let mut surplus_bytes = live_bytes.saturating_sub(kept_bytes);
        let known_id = self.contents.take().map_or(0, |known| known.next_id);
        let next_id = before.next_id.max(known_id);
        let lost = if before.damaged > 0 { self.quarantine(&*old)? } else { None };
        let new = self.disk.open(&self.unfinished(), Mode::Create).map_err(self.failed())?;
        let mut copy = Copy { file: &*new, buffer: file::header(next_id), at: 0 };
        let (mut oldest_ms, mut removed) = (i64::MAX, 0_u64);
        scan(&*old, &self.path, |line| {
            if line.record.when_ms < before_ms || surplus_bytes > 0 {
                if line.record.when_ms >= before_ms {
                    surplus_bytes = surplus_bytes.saturating_sub(line.text.len() as u64);
                }
                removed += 1;
                return Ok(());
            }
            oldest_ms = oldest_ms.min(line.record.when_ms);
            copy.push(line.text).map_err(self.failed())
        })?;
        let done = copy.finish().and_then(|end_bytes| {
            self.disk.rename(&self.unfinished(), &self.path)?;
            self.disk.sync_dir(self.dir())?;
            Ok(end_bytes)
        });
        let end_bytes = done.map_err(self.failed())?;
        let path = self.path.display();
        if before.damaged > 0 {
            let lines = before.damaged;
            let copy =
                lost.map_or_else(|| "none, the quarantine is full".into(), |copy| copy.display().to_string());
            tracing::error!(%path, lines, copy, "a file of events is damaged: the events of these lines are lost");
            self.damaged.add(lines);
        }
        tracing::debug!(%path, removed, "removed old events");
        let contents = Contents { next_id, end_bytes, oldest_ms, ..Contents::default() };
        self.know(contents);
        Ok(contents)
    }
}

/// A file that is written from its begin.
struct Copy<'f> {
    file: &'f dyn DiskFile,
    buffer: Vec<u8>,
    at: u64,
}

impl Copy<'_> {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= COPY_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the length of the file, which is then durable.
    fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.file.sync_data()?;
        Ok(self.at)
    }
}
