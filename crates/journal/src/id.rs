//! The identity of a journal.
//!
//! Tables store a floodmark under the name of its journal. A journal that was lost or deleted is created
//! again and assigns the same offsets again. If the new journal had the old name, a table would take new
//! records for records that it already has. So a journal's identity is stored with its records, and lost with
//! them.

use crate::JournalError;
use std::fmt;

/// Identity of a journal. Its display form is its name in tables: `9f86d081884c7d65/3`.
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

/// Identity of an open journal. Threads other than the owner's may change it, too.
pub trait Identity: Send + Sync + fmt::Debug {
    /// The current id.
    fn id(&self) -> JournalId;

    /// Changes the number durably. This is needed if a table has a floodmark under the old identity that this
    /// journal has never reached. Such a floodmark comes from another journal with the same identity: this
    /// journal is its copy, or an earlier state of it.
    fn change(&self, number: u64) -> Result<(), JournalError>;
}
