//! The identity of a journal.
//!
//! A table stores a floodmark together with the identity of its journal. A journal that is created anew
//! assigns the same offsets again. If it had the same identity, too, tables would take its records for
//! records that they have already stored.

use crate::JournalError;
use std::fmt;

/// Identifies a journal. Tables show it as `9f86d081884c7d65/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalId {
    /// Random number that no other journal of the same partition has.
    pub number: u64,
    pub partition: u32,
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.number, self.partition)
    }
}

/// The identity of an open journal, which any thread may read and change.
pub trait Identity: Send + Sync + fmt::Debug {
    fn id(&self) -> JournalId;

    /// Changes the number durably. This is needed if a table's floodmark is beyond the end of this journal,
    /// because the journal is then a copy or an old backup.
    fn change(&self, number: u64) -> Result<(), JournalError>;
}
