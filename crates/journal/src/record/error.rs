//! Why bytes are not a record.

use super::RECORD_VERSION;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They end too early.
    #[error("journal record ends too early")]
    Truncated,
    /// From a later version of Floodmark.
    #[error("journal record has version {0}, this build reads version {RECORD_VERSION}")]
    Version(u8),
    /// Something that no encoder writes.
    #[error("journal record holds {0}")]
    Malformed(&'static str),
    /// The reader may not take the memory that the record unpacks to. The bytes may be sound.
    #[error("no memory to decode a journal record: {bytes} more bytes are not available")]
    NoRoom {
        /// Size of the last reservation.
        bytes: usize,
    },
}
