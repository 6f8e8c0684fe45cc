use crate::{Offset, RECORD_BYTES_MAX};
use model::ErrorKind;
use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {operation} {place}: {source}")]
    Io {
        /// What failed, as a verb such as "write".
        operation: &'static str,
        /// Where it failed, such as a path.
        place: String,
        source: io::Error,
    },
    /// The disk is full, or a quota is used up. Writing goes on once there is room.
    #[error("disk is full: cannot {operation} {place}: {source}")]
    Full {
        operation: &'static str,
        /// Where it failed, such as a path.
        place: String,
        source: io::Error,
    },
    #[error("journal record of {bytes} bytes is too large, the limit is {RECORD_BYTES_MAX} bytes")]
    TooLarge { bytes: usize },
    #[error("{place} has journal format version {found}, this build reads version {known}")]
    Version {
        /// Where the unknown version was found, such as a path.
        place: String,
        found: u16,
        known: u16,
    },
    #[error(
        "journal record at offset {} has version {found}, this build reads versions up to {known}: \
         a later version of Floodmark wrote it; start that version again: nothing has been changed",
        offset.0
    )]
    RecordVersion { offset: Offset, found: u8, known: u8 },
    /// `begin` has to be called first: there is no group, or it was discarded.
    #[error("the group of journal records is void: begin a new group")]
    Void,
    /// A test let the operation fail ([`crate::faulty`]).
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

impl JournalError {
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Full { .. } | Self::Injected(_) => ErrorKind::Unavailable,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Version { .. } | Self::RecordVersion { .. } => ErrorKind::Unsupported,
            Self::Void => ErrorKind::Internal,
        }
    }

    pub fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (source, place) = (source.into(), path.display().to_string());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { operation, place, source }
            }
            _ => Self::Io { operation, place, source },
        }
    }
}
