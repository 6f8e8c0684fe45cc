//! The identity of a journal.
//!
//! A table stores a floodmark under the journal's identity. A recreated journal assigns the same offsets again. With
//! the old identity, tables would ignore its records as already stored.

use crate::JournalError;
use std::fmt;

/// Identity of a journal, displayed in tables as `9f86d081884c7d65/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalId {
    /// Random number, unique among the journals of a partition.
    pub number: u64,
    pub partition: u32,
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.number, self.partition)
    }
}

/// Identity of an open journal. Any thread may change it.
pub trait Identity: Send + Sync + fmt::Debug {
    fn id(&self) -> JournalId;

    /// Changes the number durably. Needed if a table's floodmark is beyond this journal's end: the journal is then a
    /// copy or an old backup.
    fn change(&self, number: u64) -> Result<(), JournalError>;
}
