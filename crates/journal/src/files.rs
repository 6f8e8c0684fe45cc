//! The default journal: segment files in a directory.
//!
//! - `frame`: encoding of a record in a file; `identity`: the file with the journal's identity
//! - `segment`: name and header of a segment file
//! - `writer`: writes the newest segment, with preallocation and group commit
//! - `scan`: reads the records of a segment, and continues after damage; `window`: its read buffer
//! - `recover`: finds segments and the end of the journal after a crash
//! - `repair`: corrects a single wrong byte in a record
//! - [`inspect`]: reads the files without changing them
//! - `reader`: reads all segments
//! - `quarantine`: copies damaged bytes to the quarantine
//!
//! Each segment has a dictionary of its own. A new segment begins after each opening and each failure, so
//! that nothing is ever written behind bytes that may be damaged. `docs/formats/journal.md` describes the
//! files.

mod frame;
mod identity;
pub mod inspect;
mod quarantine;
mod reader;
mod recover;
mod repair;
mod scan;
mod segment;
mod window;
mod writer;

pub use segment::SEGMENT_VERSION;

use crate::disk::{self, Access, Disk, Os};
use crate::{DictionaryId, Identity, Journal, JournalError, JournalStats, Offset, RECORD_BYTES_MAX, Reader};
use identity::IdentityFile;
use quarantine::Quarantine;
use reader::SegmentsReader;
use segment::Header;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::rng::mix;
use writer::Writer;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Records are synced to the disk, so they survive a power loss.
    #[default]
    Fsync,
    /// Records are only written to the operating system. They survive a crash of the process, but not a power
    /// loss.
    Os,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub durability: Durability,
    /// When a segment has reached this length in bytes, the next group goes into a new segment. So a segment
    /// can be longer by one group.
    pub segment_bytes: u64,
    /// Disk space that is allocated ahead of the writes, because a sync that also grows the file takes twice
    /// as long.
    pub preallocate_bytes: u64,
    /// Free space that must be left before a group is written, so that a full disk is noticed early.
    pub headroom_bytes: u64,
    /// Seed for the salts in the headers of segments. Each data directory has a random seed.
    pub seed: u64,
    /// Random number that becomes the journal's identity if it has none yet.
    pub fresh_id: u64,
    pub disk: Arc<dyn Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            segment_bytes: 128 << 20,
            preallocate_bytes: 16 << 20,
            headroom_bytes: 1 << 20,
            seed: 0,
            fresh_id: 0,
            disk: Arc::new(Os),
        }
    }
}

#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    partition: u32,
    options: Options,
    /// All segments, oldest first. The last one may be the one that is being written.
    segments: VecDeque<Segment>,
    writer: Option<(Writer, DictionaryId)>,
    void: bool,
    /// True if `end_dictionary` was called, so that old segments can be removed once a new one has begun. If
    /// the disk is full, the new one may then use the reserved space.
    was_ended: bool,
    has_reserve: bool,
    next: u64,
    durable: u64,
    /// How many segments this process has created, so that each gets a different salt.
    made: u64,
    quarantine: Arc<Quarantine>,
    identity: Arc<IdentityFile>,
    stats: JournalStats,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    first: u64,
    bytes: u64,
}

impl Files {
    /// Opens the journal of `partition` in the directory `dir`, which is created if it does not exist. The
    /// journal must not be open elsewhere.
    ///
    /// If the last write was cut off by a crash, its bytes are copied to the quarantine and removed from the
    /// segment. Fails if the newest segment has an unknown format version.
    pub fn open(dir: &Path, partition: u32, options: Options) -> Result<Self, JournalError> {
        let partition_dir = segment::partition_dir(dir, partition);
        disk::create_dir_all(&*options.disk, &partition_dir, Access::Private)
            .map_err(|e| JournalError::io("create", &partition_dir, e))?;
        let quarantine = Quarantine::new(Arc::clone(&options.disk), &partition_dir);
        let found = recover::recover(&partition_dir, partition, &options, &quarantine)?;
        quarantine.set_start(found.segments.first().map_or(found.end, |s| s.first));
        let identity =
            IdentityFile::open(Arc::clone(&options.disk), &partition_dir, partition, options.fresh_id)?;
        let stats = JournalStats { torn_bytes: found.torn_bytes, ..JournalStats::default() };
        Ok(Self {
            quarantine: Arc::new(quarantine),
            identity: Arc::new(identity),
            was_ended: false,
            has_reserve: writer::make_reserve(&partition_dir, &options),
            dir: partition_dir,
            partition,
            options,
            segments: found.segments.into(),
            writer: None,
            void: true,
            next: found.end,
            durable: found.end,
            made: 0,
            stats,
        })
    }

    /// True if there are segments, but no identity that can be read, so that [`Self::open`] will give the journal a new one.
    pub fn has_lost_identity(disk: &dyn Disk, dir: &Path, partition: u32) -> Result<bool, JournalError> {
        let partition_dir = segment::partition_dir(dir, partition);
        Ok(recover::has_segments(disk, &partition_dir)?
            && IdentityFile::find(disk, &partition_dir)?.is_none())
    }

    /// Folder with the copies of damaged bytes.
    pub fn quarantine_dir(dir: &Path, partition: u32) -> PathBuf {
        quarantine::folder(&segment::partition_dir(dir, partition))
    }

    fn roll(&mut self) -> Result<DictionaryId, JournalError> {
        if let Some((writer, _)) = self.writer.take() {
            writer.close();
        }
        self.made += 1;
        let place = u64::from(self.partition) << 48 ^ self.durable;
        let salt = mix(mix(self.options.seed ^ mix(place)).wrapping_add(self.made));
        let header = Header { partition: self.partition, first: self.durable, salt };
        let is_for_truncation = std::mem::take(&mut self.was_ended);
        let writer = match Writer::create(&self.dir, header, &self.options) {
            Err(full @ JournalError::Full { .. }) if is_for_truncation => {
                self.has_reserve = false;
                Writer::create_in_reserve(&self.dir, header, &self.options).map_err(|_| full)?
            }
            writer => writer?,
        };
        // a segment with the same name had no durable records, and this one has replaced it
        self.segments.pop_back_if(|newest| newest.first == header.first);
        self.segments.push_back(Segment { first: header.first, bytes: writer.durable() });
        let dictionary = DictionaryId(salt);
        self.writer = Some((writer, dictionary));
        Ok(dictionary)
    }

    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        let ends = self.segments.iter().skip(1).map(|s| s.first).chain([self.durable]);
        self.segments.iter().map(|s| s.first).zip(ends).map(|(first, end)| first..end)
    }
}

impl Journal for Files {
    fn identity(&self) -> Arc<dyn Identity> {
        Arc::clone(&self.identity) as _
    }

    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError> {
        assert!(self.void, "BUG: offsets are skipped after a group was begun");
        self.durable = self.durable.max(offset.0);
        self.next = self.durable;
        self.quarantine.set_start(self.start().0);
        Ok(())
    }

    fn begin(&mut self) -> Result<DictionaryId, JournalError> {
        if let Some((writer, dictionary)) = &mut self.writer {
            let dictionary = *dictionary;
            if self.next > self.durable {
                return Ok(dictionary);
            }
            if !writer.is_full(&self.options) {
                self.void = true;
                writer.allocate(0, &self.options)?;
                self.void = false;
                return Ok(dictionary);
            }
        }
        self.void = true;
        let dictionary = self.roll()?;
        self.void = false;
        Ok(dictionary)
    }

    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError> {
        let (Some((writer, _)), false) = (&mut self.writer, self.void) else {
            return Err(JournalError::Void);
        };
        let appended = match payload.len() {
            0..=RECORD_BYTES_MAX => writer.append(self.durable, self.next, payload, &self.options),
            bytes => Err(JournalError::TooLarge { bytes }),
        };
        if let Err(e) = appended {
            self.abandon();
            return Err(e);
        }
        let offset = Offset(self.next);
        self.next += 1;
        self.stats.appended_records += 1;
        self.stats.appended_bytes += payload.len() as u64;
        Ok(offset)
    }

    fn sync(&mut self) -> Result<Offset, JournalError> {
        let (Some((writer, _)), false) = (&mut self.writer, self.void) else {
            return Err(JournalError::Void);
        };
        if self.next == self.durable {
            return Ok(Offset(self.durable));
        }
        if let Err(e) = writer.sync(&self.options) {
            self.abandon();
            return Err(e);
        }
        let newest = self.segments.back_mut().expect("BUG: the segment being written is not listed");
        newest.bytes = writer.durable();
        self.stats.syncs += 1;
        self.stats.synced_records += self.next - self.durable;
        self.durable = self.next;
        Ok(Offset(self.durable))
    }

    fn abandon(&mut self) {
        if let Some((writer, _)) = self.writer.take() {
            writer.close();
        }
        self.stats.abandoned_groups += u64::from(!self.void);
        self.void = true;
        self.next = self.durable;
    }

    fn end_dictionary(&mut self) {
        if self.next > self.durable {
            return self.abandon();
        }
        if let Some((writer, _)) = self.writer.take() {
            writer.close();
        }
        self.void = true;
        self.was_ended = true;
    }

    fn start(&self) -> Offset {
        Offset(self.segments.front().map_or(self.durable, |s| s.first))
    }

    fn durable_end(&self) -> Offset {
        Offset(self.durable)
    }

    fn dictionary_start(&self, offset: Offset) -> Offset {
        let after = self.segments.partition_point(|s| s.first <= offset.0);
        Offset(self.segments.get(after.saturating_sub(1)).map_or(self.durable, |s| s.first))
    }

    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError> {
        let skipped = self.segments.partition_point(|s| s.first <= from.0).saturating_sub(1);
        Ok(Box::new(SegmentsReader {
            disk: Arc::clone(&self.options.disk),
            dir: self.dir.clone(),
            partition: self.partition,
            from: from.0,
            segments: self.ranges().skip(skipped).collect(),
            quarantine: Arc::clone(&self.quarantine),
            current: None,
        }))
    }

    fn truncate(&mut self, before: Offset) -> Result<(), JournalError> {
        let ended = self.segments.iter().skip(1).take_while(|s| s.first <= before.0).count();
        for _ in 0..ended {
            // removes the oldest segment first, so that a crash leaves no gap
            let Some(oldest) = self.segments.front() else { break };
            let path = segment::path(&self.dir, oldest.first);
            if self.quarantine.wants(oldest.first) {
                self.quarantine.take(&path, oldest.first)?;
            } else {
                match self.options.disk.remove(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        return Err(JournalError::io("remove", &path, e));
                    }
                    _ => {}
                }
            }
            // A power loss can undo removals that are not synced, in any order, which could leave a gap.
            writer::sync_dir(&self.dir, &self.options)?;
            self.segments.pop_front();
            self.quarantine.set_start(self.start().0);
        }
        self.has_reserve = self.has_reserve || writer::make_reserve(&self.dir, &self.options);
        Ok(())
    }

    fn stats(&self) -> JournalStats {
        let mut stats = self.stats;
        stats.dictionaries = self.segments.len() as u64;
        stats.bytes = self.segments.iter().map(|s| s.bytes).sum();
        self.quarantine.add_to(&mut stats);
        stats
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some((writer, _)) = self.writer.take() {
            writer.close();
        }
    }
}
