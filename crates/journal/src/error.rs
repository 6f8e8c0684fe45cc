//! Errors of journals, and kinds of errors by what the caller should do.

use crate::{Offset, RECORD_BYTES_MAX};
use model::ErrorKind;
use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// An operation on the disk failed.
    #[error("cannot {operation} {place}: {source}")]
    Io {
        /// Failed operation, as a verb: "write", "fdatasync".
        operation: &'static str,
        /// Location as text for people, such as a path.
        place: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The disk is full, or a quota is exhausted. Writing resumes without intervention once there is room again.
    #[error("disk is full: cannot {operation} {place}: {source}")]
    Full {
        /// Failed operation.
        operation: &'static str,
        /// Location as text for people, such as a path.
        place: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A record is longer than [`RECORD_BYTES_MAX`].
    #[error("journal record of {bytes} bytes is too large, the limit is {RECORD_BYTES_MAX} bytes")]
    TooLarge {
        /// Length of the record.
        bytes: usize,
    },
    /// A file was written by a later version of Floodmark.
    #[error("{place} has journal format version {found}, this build reads version {known}")]
    Version {
        /// Location, such as a path.
        place: String,
        /// Version that was found.
        found: u16,
        /// The version that this build reads.
        known: u16,
    },
    /// A record was written by a later version of Floodmark.
    #[error(
        "journal record at offset {} has version {found}, this build reads versions up to {known}: \
         a later version of Floodmark wrote it; start that version again: nothing has been changed",
        offset.0
    )]
    RecordVersion {
        /// Offset of the record.
        offset: Offset,
        /// Version that was found.
        found: u8,
        /// The latest version that this build reads.
        known: u8,
    },
    /// [`crate::Journal::begin`] was not called, or was not called again after an error made the group void. No record
    /// of the group is kept.
    #[error("the group of journal records is void: begin a new group")]
    Void,
    /// A fault injected by [`crate::faulty`].
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

impl JournalError {
    /// Kind of error, by what the caller should do.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Full { .. } | Self::Injected(_) => ErrorKind::Unavailable,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Version { .. } | Self::RecordVersion { .. } => ErrorKind::Unsupported,
            Self::Void => ErrorKind::Internal,
        }
    }

    /// Error of the operating system, with its context.
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (source, place) = (source.into(), path.display().to_string());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { operation, place, source }
            }
            _ => Self::Io { operation, place, source },
        }
    }
}
