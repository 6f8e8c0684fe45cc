//! The identity of a journal.
//!
//! Tables keep floodmarks by the name of their journal. A journal that was lost or deleted is recreated and assigns
//! its offsets again: under the same name, a table would mistake its new records for those that it has. So a
//! journal's identity is stored with its records and lost with them.
//!
//! Tables keep floodmarks by the name of the journal that they are of. A journal that was lost or thrown away begins anew and
//! assigns its offsets again: under the same name, a table would take its new records for those that it has. So a journal's
//! identity lies with its records and goes when they go.

use crate::JournalError;
use std::fmt;

/// Identity of a journal. Its display form is its name in tables: `9f86d081884c7d65/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalId {
    /// Random; no two journals of a partition have the same.
    pub number: u64,
    pub partition: u32,
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.number, self.partition)
    }
}

/// The identity of an open journal. Other threads than its owner's may change it.
pub trait Identity: Send + Sync + fmt::Debug {
    /// The current id.
    fn id(&self) -> JournalId;

    /// Changes the number, durably. Tables know floodmarks under the old identity that this journal never reached: they have
    /// them from another one, of which this is a copy or the beginning.
    fn change(&self, number: u64) -> Result<(), JournalError>;
}
