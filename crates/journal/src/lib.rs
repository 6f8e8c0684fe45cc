//! The journal, also known as write-ahead log. Everything else is derived from this durable data.
//!
//! ```text
//!            begin ─▶ append ─▶ append ─▶ … ─▶ sync ─▶ acknowledge
//!              │                                │
//!          dictionary                      durable end
//! ```
//!
//! A partition's journal is a sequence of records, numbered by [`Offset`]. It has one owner, which writes
//! records in groups: [`Journal::begin`], [`Journal::append`] several times, [`Journal::sync`]. Records may
//! be acknowledged only after `sync` has succeeded. After any error, no record of the group is kept.
//!
//! The labels of a series are written only once per *dictionary*: later records refer to the definition in an
//! earlier record of the same dictionary. So a dictionary can be replayed without the others. Only [`record`]
//! knows what the bytes of a record mean. A journal of datastreams has records of another format ([`records`]).
//!
//! [`open`] opens the journal that [`Settings`] describe:
//!
//! - [`files`]: segment files in a directory, the default; [`disk`]: the file system that holds them
//! - [`in_memory`]: the reference implementation, for tests
//! - [`faulty`]: a wrapper of any journal that injects seeded faults
//! - [`conformance`]: a public test suite that every journal must pass
//! - [`fuzz`]: the code of the fuzz targets
//!
//! Records do not change until [`Journal::truncate`] drops their dictionary. The caller ensures that only one
//! process opens a data directory.

pub mod conformance;
pub mod disk;
mod error;
pub mod faulty;
pub mod files;
pub mod fuzz;
mod id;
pub mod in_memory;
pub mod record;
pub mod records;

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

/// Limit on the length of a record. Any request of up to 64 MiB fits.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(2 * model::caps::BODY_BYTES_MAX <= RECORD_BYTES_MAX);

/// Number of a record in the journal of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

/// Identifies a dictionary. Ids are unique among the dictionaries that can be read at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub u64);

#[derive(Debug)]
pub enum Settings {
    Files {
        /// The directory in which each partition has its own directory.
        dir: PathBuf,
        options: Options,
    },
    /// A journal in memory, with the records that its last owner has synced.
    Memory(Memory),
}

/// Opens the journal of a partition. The same journal must not be opened twice at the same time.
pub fn open(settings: &Settings, partition: u32) -> Result<Box<dyn Journal>, JournalError> {
    Ok(match settings {
        Settings::Files { dir, options } => Box::new(Files::open(dir, partition, options.clone())?),
        Settings::Memory(memory) => Box::new(memory.reopen()),
    })
}

/// The durable log of one partition. Each record gets the next offset.
///
/// For each method, the comment also says how a journal on Kafka would implement it, which shows that the
/// trait does not depend on files. There, a journal is one partition of a topic, with one idempotent
/// producer.
pub trait Journal: Send + std::fmt::Debug {
    /// The identity stays the same when the journal is opened again. A journal that is created anew gets
    /// another one.
    ///
    /// Kafka: the id of the topic, or its newest change in a compacted topic.
    fn identity(&self) -> Arc<dyn Identity>;

    /// Ensures that offsets below `offset` are never assigned. This is needed if tables are complete up to
    /// `offset`, but the journal ends earlier. Must be called before the first `begin`.
    ///
    /// Kafka: an error if the partition ends before `offset`.
    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError>;

    /// Begins a group and returns the dictionary of its records. That is a new dictionary if the current one
    /// is full or was ended. Does nothing if records were appended but not synced.
    ///
    /// Kafka: sends nothing; the header of each record says where its dictionary begins.
    fn begin(&mut self) -> Result<DictionaryId, JournalError>;

    /// Appends a record, which is not durable until [`Journal::sync`]. It belongs to the dictionary that
    /// `begin` returned.
    ///
    /// Kafka: adds the record to the batch.
    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError>;

    /// Makes all appended records durable. Returns the offset after the last of them.
    /// After an error of this method or of [`Journal::append`], all records that were not synced are lost,
    /// and both methods fail until the next `begin`.
    ///
    /// Kafka: sends the batch with `acks=all`; an error if the batch gets another offset than expected.
    fn sync(&mut self) -> Result<Offset, JournalError>;

    /// Discards all records that were not synced. Their offsets will be assigned again, in a new dictionary.
    /// Does nothing after an error, because they are already discarded.
    ///
    /// Kafka: drops the batch, or checks by its sequence number whether it was stored.
    fn abandon(&mut self);

    /// Ends the current dictionary, so that [`Journal::truncate`] can drop all its records. Discards records
    /// that were not synced.
    ///
    /// Kafka: the next record's header begins a dictionary.
    fn end_dictionary(&mut self);

    /// Offset of the oldest record. If there are none, the offset that the next record will get.
    ///
    /// Kafka: the first dictionary that begins at or after the log start offset.
    fn start(&self) -> Offset;

    /// The offset after the newest durable record.
    ///
    /// Kafka: the high watermark in the latest answer.
    fn durable_end(&self) -> Offset;

    /// Offset of the first record in the dictionary that has the record at `offset`, or else in the nearest
    /// dictionary. A replay from `offset` has to start there to get the definitions.
    ///
    /// Kafka: from the headers of records.
    fn dictionary_start(&self, offset: Offset) -> Offset;

    /// Reads the durable records in order, starting at `from`, or at the oldest record if that is later. The
    /// owner can go on writing.
    ///
    /// Kafka: a consumer of the partition, up to the present high watermark.
    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError>;

    /// Drops all dictionaries whose records are all below `before`, but never the newest dictionary.
    ///
    /// Kafka: `DeleteRecords` up to the beginning of a dictionary, in a topic without retention.
    fn truncate(&mut self, before: Offset) -> Result<(), JournalError>;

    /// Counters that are exported as metrics. Most of them start at zero when the journal is opened.
    ///
    /// Kafka: bytes from `DescribeLogDirs`.
    fn stats(&self) -> JournalStats;
}

/// Reads records in order. Only one record and a read buffer are in memory.
pub trait Reader: Send + std::fmt::Debug {
    /// The next record, or damage found instead of records. `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError>;

    /// Puts the latest record into quarantine, because its bytes are intact but cannot be decoded. It counts
    /// as lost. Panics if the last item was not a record.
    ///
    /// If possible, [`Journal::truncate`] then keeps the files of the record's dictionary.
    ///
    /// Kafka: copies the record to a topic for such records.
    fn quarantine(&mut self, what: &'static str) -> Damage;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    Entry(Entry<'a>),
    /// Bytes that are not what was written. Reading continues behind them.
    Damage(Damage),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub offset: Offset,
    /// The dictionary that has the definitions of the series in this record.
    pub dictionary: DictionaryId,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where the damage is, such as a path and a range of bytes.
    pub place: String,
    pub lost: Range<u64>,
    /// True if the journal proves that the lost records were durable, so that they may have been
    /// acknowledged. False if they may just as well belong to a group that a power loss interrupted. If the
    /// newest segment cannot be read at all, or a record cannot be decoded, true is an assumption.
    pub acknowledged: bool,
    /// True if one wrong byte was repaired. Then the record is the next item.
    pub repaired: bool,
    pub what: &'static str,
    /// Where the copy of the damaged bytes is in the quarantine. `None` if there is no copy.
    pub copy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    pub dictionaries: u64,
    pub bytes: u64,
    /// Number of records that were appended, including those that were discarded later.
    pub appended_records: u64,
    /// Payload bytes of the records that were appended, including those that were discarded later.
    pub appended_bytes: u64,
    pub synced_records: u64,
    pub syncs: u64,
    pub abandoned_groups: u64,
    /// Bytes of an unfinished group that were cut off when the journal was opened.
    pub torn_bytes: u64,
    pub damaged_ranges: u64,
    pub lost_records: u64,
    /// Records in which readers have repaired one wrong byte.
    pub repaired_records: u64,
}
