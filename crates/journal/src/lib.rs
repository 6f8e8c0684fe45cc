//! The journal (write-ahead log): the durable data from which everything else is derived.
//!
//! ```text
//!            begin ─▶ append ─▶ append ─▶ … ─▶ sync ─▶ acknowledge
//!              │                                │
//!          dictionary                      durable end
//! ```
//!
//! A partition's journal is a sequence of records, numbered by [`Offset`]. Its only owner writes groups:
//! [`Journal::begin`], [`Journal::append`] several times, [`Journal::sync`]. Records may be acknowledged only after
//! `sync` has succeeded. A group is kept whole or, after any error, not at all.
//!
//! The records of one *dictionary* may refer to definitions in earlier records of the same dictionary (series' labels
//! are written once per dictionary). So each dictionary can be replayed alone. Only [`record`] knows what a record
//! means.
//!
//! [`open`] opens the journal that [`Settings`] describe:
//!
//! - [`files`]: segment files in a directory, the default; [`disk`]: the file system that holds them
//! - [`in_memory`]: the reference implementation, for tests
//! - [`faulty`]: a wrapper of any journal that injects seeded faults
//! - [`conformance`]: a public test suite that every journal must pass
//!
//! Records stay unchanged until [`Journal::truncate`] drops their dictionary. The caller ensures that a data directory
//! has one owner.

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

/// Limit on the length of a record. It suffices for any request of 64 MiB.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(2 * model::caps::BODY_BYTES_MAX <= RECORD_BYTES_MAX);

/// Sequence number of a record in its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub u64);

/// Identity of a dictionary. No two dictionaries that are visible at the same time share an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub u64);

#[derive(Debug)]
pub enum Settings {
    Files {
        /// Directory that contains a directory for each partition.
        dir: PathBuf,
        options: Options,
    },
    /// A journal in memory, in the state in which its last owner left it.
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
/// Each method also says how Kafka would implement it: the trait does not depend on files. On Kafka, a journal is one
/// partition of a topic with one idempotent producer.
pub trait Journal: Send + std::fmt::Debug {
    /// The identity, which survives reopening. A recreated journal has another identity.
    ///
    /// Kafka: the id of the topic, or its newest change in a compacted topic.
    fn identity(&self) -> Arc<dyn Identity>;

    /// Ensures that no offset below `offset` is assigned. Needed if tables are complete up to `offset`, but the journal
    /// ends earlier. Must be called before the first `begin`.
    ///
    /// Kafka: an error if the partition ends before `offset`.
    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError>;

    /// Begins a group and returns the dictionary of its records. Begins a new dictionary if the current one is full or
    /// was ended. Has no effect while appended records are not synced.
    ///
    /// Kafka: sends nothing; the header of each record says where its dictionary begins.
    fn begin(&mut self) -> Result<DictionaryId, JournalError>;

    /// Appends a record, which is not durable yet. Never changes the dictionary.
    ///
    /// Kafka: adds the record to the batch.
    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError>;

    /// Makes everything appended so far durable and returns the durable end (exclusive).
    ///
    /// After an error of this method or of [`Journal::append`], every unsynced record is void. Both methods then fail
    /// until the next `begin`.
    ///
    /// Kafka: sends the batch with `acks=all`; an error if the batch gets another offset than expected.
    fn sync(&mut self) -> Result<Offset, JournalError>;

    /// Discards all unsynced records. Their offsets will be assigned again, in a new dictionary. Has no effect after an
    /// error.
    ///
    /// Kafka: drops the batch, or checks by its sequence number whether it was stored.
    fn abandon(&mut self);

    /// Ends the current dictionary, so that all its records can be dropped. Discards unsynced records.
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

    /// First record of the dictionary that contains the record at `offset`, or of the nearest dictionary. A replay from
    /// `offset` starts at this first record, to get the definitions.
    ///
    /// Kafka: from the headers of records.
    fn dictionary_start(&self, offset: Offset) -> Offset;

    /// Reads the durable records in order, from the later of `from` and the start. Does not block the owner.
    ///
    /// Kafka: a consumer of the partition, up to the present high watermark.
    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError>;

    /// Drops the dictionaries that end at or before `before`, except the newest one.
    ///
    /// Kafka: `DeleteRecords` up to the beginning of a dictionary, in a topic without retention.
    fn truncate(&mut self, before: Offset) -> Result<(), JournalError>;

    /// Counts since the journal was opened.
    ///
    /// Kafka: bytes from `DescribeLogDirs`.
    fn stats(&self) -> JournalStats;
}

/// Iterator over records in order. Holds one record and a read buffer in memory.
pub trait Reader: Send + std::fmt::Debug {
    /// The next record or damage; `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError>;

    /// Quarantines the latest record, which is intact but cannot be decoded. The record counts as lost. Panics if the
    /// last item was not a record.
    ///
    /// [`Journal::truncate`] keeps the dictionary of a quarantined record if possible.
    ///
    /// Kafka: copies the record to a topic for such records.
    fn quarantine(&mut self, what: &'static str) -> Damage;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    Entry(Entry<'a>),
    /// Bytes that differ from those that were written. Reading continues after them.
    Damage(Damage),
}

/// A record as it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub offset: Offset,
    /// Dictionary that the record's references refer to.
    pub dictionary: DictionaryId,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Location as text, such as a path and a range of bytes.
    pub place: String,
    /// Offsets of the lost records, or empty.
    pub lost: Range<u64>,
    /// True if the journal proves that the lost records were durable, so they may have been acknowledged. False if a
    /// power loss during a group explains the damage.
    pub acknowledged: bool,
    /// True if a single wrong byte was repaired: the record is the next item.
    pub repaired: bool,
    /// Kind of damage.
    pub what: &'static str,
    /// Location of the copy in the quarantine as text, if there is one.
    pub copy: Option<String>,
}

/// Counts of a journal since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    pub dictionaries: u64,
    pub bytes: u64,
    /// Records appended, including void ones.
    pub appended_records: u64,
    /// Payload bytes appended, including void records.
    pub appended_bytes: u64,
    /// Records made durable.
    pub synced_records: u64,
    /// Groups made durable.
    pub syncs: u64,
    pub abandoned_groups: u64,
    /// Bytes of an unfinished group, dropped at the opening.
    pub torn_bytes: u64,
    pub damaged_ranges: u64,
    pub lost_records: u64,
    /// Records with one wrong byte that readers repaired.
    pub repaired_records: u64,
}
