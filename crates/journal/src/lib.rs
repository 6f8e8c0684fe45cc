//! The journal (write-ahead log): the durable data from which everything else is derived.
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
//! The meaning of a record is the business of [`record`]; the journals move bytes. Records of one *dictionary*
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
pub mod in_memory;
pub mod record;

pub use disk::Disk;
pub use error::JournalError;
pub use faulty::Faulty;
pub use files::{Durability, Files, Options};
pub use id::{Identity, JournalId};
pub use in_memory::Memory;
pub use record::{Outline, Record, RecordEncoder, RecordError, Room};

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Limit on the length of a record. A request of 64 MiB becomes at most about this long, whatever its content.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(2 * model::caps::BODY_BYTES_MAX <= RECORD_BYTES_MAX);

/// Position of a record in its partition: a dense sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

/// Identity of a dictionary, the scope in which definitions are valid. Opaque: only equality is meaningful. No two
/// dictionaries that are visible at the same time, on disk or by one owner, share an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub u64);

/// Kind and location of a journal.
#[derive(Debug)]
pub enum Settings {
    /// Segment files.
    Files {
        /// The directory with a directory for each partition.
        dir: PathBuf,
        /// Options for writing the files.
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
    /// The journal's identity. It stays the same when the journal is opened again; a recreated journal has another
    /// one.
    ///
    /// Kafka: the id of the topic, or the newest change of it in a compacted topic.
    fn identity(&self) -> Arc<dyn Identity>;

    /// Assigns no offset below `offset`: something derived from the journal is complete up to there, and records may have been
    /// lost. Before the first `begin` only.
    ///
    /// Kafka: an error if the partition ends before `offset`; its offsets cannot be skipped.
    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError>;

    /// Begins a group, before its records are built. Begins a new dictionary if the current one is full or was ended by a
    /// failure, and returns the dictionary of the group's records. Has no effect while appended records are not synced.
    ///
    /// Kafka: sends nothing; the header of each record says where its dictionary begins.
    fn begin(&mut self) -> Result<DictionaryId, JournalError>;

    /// Appends a record, which is not durable yet. Never changes the dictionary.
    ///
    /// Kafka: adds it to the batch; its offset follows from the end of the partition, since there is one writer.
    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError>;

    /// Makes everything appended so far durable and returns the durable end (exclusive).
    ///
    /// After an error of this or of [`Journal::append`], every record since the last successful sync is void, as after
    /// [`Journal::abandon`]; both fail until the next `begin`.
    ///
    /// Kafka: sends the batch with `acks=all`; an error if it does not land at the expected offset.
    fn sync(&mut self) -> Result<Offset, JournalError>;

    /// Discards every record since the last successful sync. Their offsets will be assigned again, and the next `begin`
    /// starts a new dictionary. Has no effect after an error, which has done the same.
    ///
    /// Kafka: drops the batch. One whose answer was lost is found by its sequence number before the next is sent.
    fn abandon(&mut self);

    /// Ends the current dictionary: the next `begin` starts a new one, so that all records before it can be dropped together.
    /// For use between groups: records that are not synced are discarded.
    ///
    /// Kafka: the next record's header begins a dictionary.
    fn end_dictionary(&mut self);

    /// Offset of the oldest record (of the next one if there are none).
    ///
    /// Kafka: the first dictionary that begins at or after the log start offset.
    fn start(&self) -> Offset;

    /// One past the newest durable record.
    ///
    /// Kafka: the high watermark, as of the last answer.
    fn durable_end(&self) -> Offset;

    /// First record of the dictionary of the record at `offset`: a replay from `offset` has to read from here on for the
    /// definitions. For an offset outside the journal, the nearest inside.
    ///
    /// Kafka: from the headers of records, of which one for each dictionary is kept in memory.
    fn dictionary_start(&self, offset: Offset) -> Offset;

    /// Streams the durable records from `from` (or from the start, if that is later) in order. The reader sees the current
    /// state of the journal, and does not block the owner.
    ///
    /// Kafka: a consumer that is assigned the partition, up to the high watermark of now.
    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError>;

    /// Drops the oldest dictionaries that end at or before `before`; never the newest.
    ///
    /// Kafka: `DeleteRecords` up to the beginning of a dictionary. The topic has no retention of its own.
    fn truncate(&mut self, before: Offset) -> Result<(), JournalError>;

    /// Counts since the journal was opened.
    ///
    /// Kafka: bytes by `DescribeLogDirs`; nothing is torn or repaired here.
    fn stats(&self) -> JournalStats;
}

/// Iterator over records in order. Its memory is bounded by one record and a read buffer.
pub trait Reader: Send + std::fmt::Debug {
    /// The next record or damage; `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError>;

    /// Quarantines the record that [`Self::next`] returned last: its bytes are intact, but cannot be decoded. It counts as
    /// lost. Panics if the last item was not a record.
    ///
    /// If possible, the journal keeps a copy of the record's dictionary when [`Journal::truncate`] drops it, because the
    /// record refers to definitions there. This is forgotten at a restart: replay then finds the record again.
    ///
    /// Kafka: copies it to a topic for such records.
    fn put_aside(&mut self, what: &'static str) -> Damage;
}

/// Item of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A record, intact.
    Entry(Entry<'a>),
    /// Bytes that differ from what was written. Reading continues after them.
    Damage(Damage),
}

/// A record as it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Position of the record.
    pub offset: Offset,
    /// Dictionary with the definitions of the record's references.
    pub dictionary: DictionaryId,
    /// Bytes as appended.
    pub payload: &'a [u8],
}

/// A damaged range of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Location, for people: a path and a range of bytes, or a topic, partition and offset.
    pub place: String,
    /// Offsets of the lost records. Empty if no record is affected (for example, if a header is).
    pub lost: Range<u64>,
    /// True if the journal proves that the lost records were durable, and so may have been acknowledged. False if they may be
    /// part of a group that was being written during a power loss, or if no record is lost.
    pub acknowledged: bool,
    /// True if the damage was a single wrong byte and was repaired: the record is the next item.
    pub repaired: bool,
    /// Kind of damage.
    pub what: &'static str,
    /// Location of the copy in the quarantine, for people; `None` if there is no copy.
    pub copy: Option<String>,
}

/// Counts of a journal since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// Number of dictionaries now.
    pub dictionaries: u64,
    /// Durable bytes in the dictionaries.
    pub bytes: u64,
    /// Records appended, void ones included.
    pub appended_records: u64,
    /// Payload bytes appended, void ones included.
    pub appended_bytes: u64,
    /// Records made durable.
    pub synced_records: u64,
    /// Groups made durable.
    pub syncs: u64,
    /// Groups discarded, by an error or by the owner.
    pub abandoned_groups: u64,
    /// Bytes of an unfinished group that were dropped when the journal was opened after a crash.
    pub torn_bytes: u64,
    /// Damaged ranges found by readers.
    pub damaged_ranges: u64,
    /// Records lost in damaged ranges.
    pub lost_records: u64,
    /// Records with one wrong byte that readers repaired.
    pub repaired_records: u64,
}
