//! The journal (write-ahead log): the durable data from which everything else is derived.
//!
//! ```text
//!            begin ─▶ append ─▶ append ─▶ … ─▶ sync ─▶ acknowledge
//!              │                                │
//!          dictionary                      durable end
//! ```
//!
//! A partition's journal is a sequence of records, numbered densely by [`Offset`]. It has one owner, which writes in
//! *groups*: [`Journal::begin`], some calls of [`Journal::append`], one [`Journal::sync`]. Records may be acknowledged
//! only after `sync` has succeeded. A group is kept whole or, after any error, not at all.
//!
//! Journals store bytes; only [`record`] knows what a record means. The records of one *dictionary* may refer to
//! definitions in earlier records of the same dictionary (series' labels are written once per dictionary). So each
//! dictionary can be replayed alone.
//!
//! [`open`] opens the journal that [`Settings`] describe:
//!
//! - [`files`]: segment files in a directory, the default; [`disk`]: the file system that holds them
//! - [`in_memory`]: the reference implementation, for tests
//! - [`faulty`]: a wrapper of any journal that injects seeded faults
//! - [`conformance`]: a public test suite that every journal must pass
//!
//! There is no `delete` and no `update`: written records stay unchanged until [`Journal::truncate`] drops their whole
//! dictionary. There is no lock file either: the caller that opens a data directory ensures that it has one owner.

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
pub use record::{DecodeMemory, Outline, Record, RecordEncoder, RecordError};

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Limit on the length of a record. A request of 64 MiB takes at most about this length, whatever its contents.
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
    /// A journal in memory, which is opened in the state in which its last owner left it.
    Memory(Memory),
}

/// Opens the journal of a partition. A journal has one owner at a time.
pub fn open(settings: &Settings, partition: u32) -> Result<Box<dyn Journal>, JournalError> {
    Ok(match settings {
        Settings::Files { dir, options } => Box::new(Files::open(dir, partition, options.clone())?),
        Settings::Memory(memory) => Box::new(memory.reopen()),
    })
}

/// The durable log of one partition.
///
/// Each method also says how Kafka would implement it, which shows that the trait does not depend on files. On Kafka, a
/// journal is one partition of a topic with one writer: an idempotent producer whose groups are single batches, because
/// the control records of transactions would take offsets.
pub trait Journal: Send + std::fmt::Debug {
    /// The journal's identity. Reopening keeps the identity; a recreated journal has another one.
    ///
    /// Kafka: the id of the topic, or the newest change of it in a compacted topic.
    fn identity(&self) -> Arc<dyn Identity>;

    /// Ensures that no offset below `offset` is assigned. Needed if data derived from the journal is complete
    /// up to `offset`, but the journal ends earlier, because records may have been lost. Must be called
    /// before the first `begin`.
    ///
    /// Kafka: an error if the partition ends before `offset`; its offsets cannot be skipped.
    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError>;

    /// Begins a group, before its records are built. Begins a new dictionary if the current one is full or was ended.
    /// Returns the dictionary of the group's records. Has no effect while appended records are not synced.
    ///
    /// Kafka: sends nothing; the header of each record says where its dictionary begins.
    fn begin(&mut self) -> Result<DictionaryId, JournalError>;

    /// Appends a record, which is not durable yet. Never changes the dictionary.
    ///
    /// Kafka: adds the record to the batch; its offset follows from the end of the partition, since there is one writer.
    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError>;

    /// Makes everything appended so far durable and returns the durable end (exclusive).
    ///
    /// After an error of this or of [`Journal::append`], every record since the last successful sync is void,
    /// as after [`Journal::abandon`]. Both methods then fail until the next `begin`.
    ///
    /// Kafka: sends the batch with `acks=all`; an error if the batch gets another offset than expected.
    fn sync(&mut self) -> Result<Offset, JournalError>;

    /// Discards every record since the last successful sync. Their offsets will be assigned again, and the next `begin`
    /// starts a new dictionary. Has no effect after an error, which has already discarded them.
    ///
    /// Kafka: drops the batch. If the answer to a sent batch was lost, its sequence number shows whether it was stored;
    /// this is checked before the next batch is sent.
    fn abandon(&mut self);

    /// Ends the current dictionary: the next `begin` starts a new one, so that all records before it can be dropped together.
    /// For use between groups: records that are not synced are discarded.
    ///
    /// Kafka: the next record's header begins a dictionary.
    fn end_dictionary(&mut self);

    /// Offset of the oldest record, or of the next record if there are none.
    ///
    /// Kafka: the first dictionary that begins at or after the log start offset.
    fn start(&self) -> Offset;

    /// One past the newest durable record.
    ///
    /// Kafka: the high watermark in the latest answer.
    fn durable_end(&self) -> Offset;

    /// First record of the dictionary that contains the record at `offset`. A replay from `offset` must start
    /// reading at this first record, to get the definitions. An offset outside the journal is replaced by the
    /// nearest one inside.
    ///
    /// Kafka: from the headers of records; one header is kept in memory for each dictionary.
    fn dictionary_start(&self, offset: Offset) -> Offset;

    /// Streams the durable records in order, from `from`, or from the start if that is later. The reader sees
    /// the present state of the journal, and does not block the owner.
    ///
    /// Kafka: a consumer that is assigned the partition, up to the present high watermark.
    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError>;

    /// Drops the dictionaries that end at or before `before`, except the newest one.
    ///
    /// Kafka: `DeleteRecords` up to the beginning of a dictionary. The topic has no retention of its own.
    fn truncate(&mut self, before: Offset) -> Result<(), JournalError>;

    /// Counts since the journal was opened.
    ///
    /// Kafka: bytes from `DescribeLogDirs`; torn and repaired data is always 0.
    fn stats(&self) -> JournalStats;
}

/// Iterator over records in order. Its memory is bounded by one record and a read buffer.
pub trait Reader: Send + std::fmt::Debug {
    /// The next record or damage; `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError>;

    /// Quarantines the record that [`Self::next`] returned last, because its bytes are intact but cannot be decoded.
    /// The record counts as lost. Panics if the last item was not a record.
    ///
    /// If possible, the journal keeps the record's dictionary when [`Journal::truncate`] drops it, because the record
    /// refers to definitions there. This is not remembered across a restart, but replay then finds the record again.
    ///
    /// Kafka: copies the record to a topic for such records.
    fn quarantine(&mut self, what: &'static str) -> Damage;
}

/// Item of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// An intact record.
    Entry(Entry<'a>),
    /// Bytes that differ from those that were written. Reading continues after them.
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
    /// Location as text for people: a path and a range of bytes, or a topic, partition and offset.
    pub place: String,
    /// Offsets of the lost records. Empty if no record is affected (for example, if a header is).
    pub lost: Range<u64>,
    /// True if the journal proves that the lost records were durable, so they may have been acknowledged. False if they
    /// may belong to a group that was being written during a power loss, or if no record is lost.
    pub acknowledged: bool,
    /// True if the damage was a single wrong byte and was repaired: the record is the next item.
    pub repaired: bool,
    /// Kind of damage.
    pub what: &'static str,
    /// Location of the copy in the quarantine, as text for people; `None` if there is no copy.
    pub copy: Option<String>,
}

/// Counts of a journal since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// Present number of dictionaries.
    pub dictionaries: u64,
    /// Durable bytes in the dictionaries.
    pub bytes: u64,
    /// Records appended, including void ones.
    pub appended_records: u64,
    /// Payload bytes appended, including those of void records.
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
