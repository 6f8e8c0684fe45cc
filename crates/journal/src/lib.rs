//! The durable log: the truth that everything else is derived from.
//!
//! ```text
//!            begin ─▶ append ─▶ append ─▶ … ─▶ sync ─▶ acknowledge
//!              │                                │
//!          dictionary                      durable end
//! ```
//!
//! A partition's journal is a sequence of records, numbered densely by [`Offset`]. It has one owner, who
//! writes in *groups*: [`Journal::begin`], some [`Journal::append`], one [`Journal::sync`]. Only what `sync`
//! returned from may be acknowledged. A group is kept whole or, after any error, not at all.
//!
//! What a record *means* is the business of [`record`]; the journals move bytes. Records of one *dictionary*
//! may refer to what earlier records of the same dictionary defined (series' labels are written once), so a
//! dictionary is what can be replayed alone.
//!
//! [`open`] gives the journal that [`Settings`] ask for:
//!
//! - [`files`]: segment files in a directory, the default; [`disk`]: where the files lie
//! - [`memory`]: the reference implementation, for tests
//! - [`faulty`]: any of them, with seeded faults
//! - [`conformance`]: what each of them must do, as one exported suite
//!
//! Why no `delete` and no `update`: what is written stays as it is until the whole dictionary is dropped by
//! [`Journal::truncate`]. Why no lock file: who may own a data directory is decided by who opens it.

pub mod conformance;
pub mod disk;
mod error;
pub mod faulty;
pub mod files;
mod id;
pub mod memory;
pub mod record;

pub use disk::Disk;
pub use error::JournalError;
pub use faulty::Faulty;
pub use files::{Durability, Files, Options};
pub use id::{Identity, JournalId};
pub use memory::Memory;
pub use record::{Outline, Record, RecordEncoder, RecordError, Room};

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest record. A request of 64 MiB becomes at most about that much, whatever is in it.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(2 * model::caps::BODY_BYTES_MAX <= RECORD_BYTES_MAX);

/// The position of a record in its partition: dense, one more for each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

/// The scope in which definitions stay valid. Opaque: only equality means anything. No two dictionaries that
/// can be seen at the same time, on disk or by one owner, share an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub u64);

/// Which kind of journal, and where it is.
#[derive(Debug)]
pub enum Settings {
    /// Segment files.
    Files {
        /// The directory with a directory for each partition.
        dir: PathBuf,
        /// How they are written.
        options: Options,
    },
    /// A journal in memory, as its next owner finds it.
    Memory(Memory),
}

/// Opens the journal of a partition. It has one owner at a time.
pub fn open(settings: &Settings, partition: u32) -> Result<Box<dyn Journal>, JournalError> {
    Ok(match settings {
        Settings::Files { dir, options } => Box::new(Files::open(dir, partition, options.clone())?),
        Settings::Memory(memory) => Box::new(memory.reopen()),
    })
}

/// The durable log of one partition.
///
/// One line on Kafka at each method keeps the trait honest: a journal there is one partition of a topic with one writer, an
/// idempotent producer whose groups are single batches, since the control records of transactions would take offsets.
pub trait Journal: Send + std::fmt::Debug {
    /// The journal's identity. It stays when the journal is opened again, and a journal that begins anew has another one.
    ///
    /// Kafka: the id of the topic, or the newest change of it in a compacted topic.
    fn identity(&self) -> Arc<dyn Identity>;

    /// Assigns no offset below `offset`: something derived from the journal is complete up to there, and records may have been
    /// lost. Before the first `begin` only.
    ///
    /// Kafka: an error if the partition ends before `offset`; its offsets cannot be skipped.
    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError>;

    /// Begins a group, before its records are built: moves on to a new dictionary where the current one is
    /// full or was damaged by a failure, and says which dictionary the records will live in. With records
    /// appended and not yet synced it changes nothing.
    ///
    /// Kafka: sends nothing; the header of each record says where its dictionary begins.
    fn begin(&mut self) -> Result<DictionaryId, JournalError>;

    /// Takes one record, which is not durable yet. Never changes the dictionary.
    ///
    /// Kafka: adds it to the batch; its offset follows from the end of the partition, since there is one writer.
    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError>;

    /// Makes everything appended so far durable and returns the durable end (exclusive).
    ///
    /// After an error of this or of [`Journal::append`] every record since the last successful sync is void,
    /// as after [`Journal::abandon`]; until the next `begin` both go on failing.
    ///
    /// Kafka: sends the batch with `acks=all`; an error if it does not land at the expected offset.
    fn sync(&mut self) -> Result<Offset, JournalError>;

    /// Gives up every record since the last successful sync. Their offsets will be used again, and the next
    /// `begin` starts a new dictionary. Harmless after an error, which has done it already.
    ///
    /// Kafka: drops the batch. One whose answer was lost is found by its sequence number before the next is sent.
    fn abandon(&mut self);

    /// Ends the current dictionary: the next `begin` starts a new one, so that all records before it can be
    /// dropped together. Between groups only: records that are not synced yet are given up.
    ///
    /// Kafka: the next record's header begins a dictionary.
    fn end_dictionary(&mut self);

    /// The oldest record that is still there (or would be, were there any).
    ///
    /// Kafka: the first dictionary that begins at or after the log start offset.
    fn start(&self) -> Offset;

    /// One past the newest durable record.
    ///
    /// Kafka: the high watermark, as of the last answer.
    fn durable_end(&self) -> Offset;

    /// The first record of the dictionary that the record at `offset` lives in: who replays from `offset`
    /// reads from here on for the definitions. For an offset outside the journal, the nearest inside.
    ///
    /// Kafka: from the headers of records, of which one for each dictionary is kept in memory.
    fn dictionary_start(&self, offset: Offset) -> Offset;

    /// Streams the durable records from `from` (or from the start, if that is later) in order. The reader
    /// sees the journal as it is now; it does not keep the owner from going on.
    ///
    /// Kafka: a consumer that is assigned the partition, up to the high watermark of now.
    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError>;

    /// Drops the oldest dictionaries as long as they end at or before `before`; never the newest.
    ///
    /// Kafka: `DeleteRecords` up to the beginning of a dictionary. The topic has no retention of its own.
    fn truncate(&mut self, before: Offset) -> Result<(), JournalError>;

    /// Counts since the journal was opened.
    ///
    /// Kafka: bytes by `DescribeLogDirs`; nothing is torn or repaired here.
    fn stats(&self) -> JournalStats;
}

/// Walks records in order. Bounded memory: one record and a read buffer.
pub trait Reader: Send + std::fmt::Debug {
    /// The next record or damage; `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError>;

    /// Puts aside the record that [`Self::next`] returned last: its bytes are what was written, but they cannot be decoded.
    /// It counts as lost. Panics where the last item was no record.
    ///
    /// Where the journal can, it keeps the record's dictionary when [`Journal::truncate`] drops it, since the record refers to
    /// definitions there. This is not remembered over a restart: replay then meets the record again.
    ///
    /// Kafka: copies it to a topic for such records.
    fn put_aside(&mut self, what: &'static str) -> Damage;
}

/// What a reader comes across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A record, intact.
    Entry(Entry<'a>),
    /// Bytes that are not what was written. Reading goes on after them.
    Damage(Damage),
}

/// A record as it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its position.
    pub offset: Offset,
    /// Where its references are defined.
    pub dictionary: DictionaryId,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A stretch of the journal that could not be read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where it is, for people: a path and a range of bytes, or a topic, partition and offset.
    pub place: String,
    /// Which records are lost with it. Empty where no record was hit (a header, say).
    pub lost: Range<u64>,
    /// True where the journal proves that the lost records had been durable, and so may have been
    /// acknowledged. False where they may as well be what is left of a group that was being written when the
    /// power failed (or where no record is lost).
    pub acknowledged: bool,
    /// The damage was a single wrong byte and could be put right: the record comes next.
    pub repaired: bool,
    /// What was found there.
    pub what: &'static str,
    /// Where a copy was put aside, for people; `None` if that was not possible.
    pub copy: Option<String>,
}

/// Counts of a journal since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// Dictionaries there are now.
    pub dictionaries: u64,
    /// Durable bytes in them.
    pub bytes: u64,
    /// Records taken, void ones included.
    pub appended_records: u64,
    /// Payload bytes taken, void ones included.
    pub appended_bytes: u64,
    /// Records made durable.
    pub synced_records: u64,
    /// Groups made durable.
    pub syncs: u64,
    /// Groups given up, by an error or by the owner.
    pub abandoned_groups: u64,
    /// Bytes of an unfinished group that were dropped when the journal was opened after a crash.
    pub torn_bytes: u64,
    /// Damaged stretches met by readers.
    pub damaged_ranges: u64,
    /// Records lost with them.
    pub lost_records: u64,
    /// Records with one wrong byte that readers put right.
    pub repaired_records: u64,
}
