use super::RECORD_VERSION;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("journal record ends too early")]
    Truncated,
    #[error("journal record has version {0}, this build reads versions up to {RECORD_VERSION}")]
    Version(u8),
    #[error("malformed journal record: {0}")]
    Malformed(&'static str),
    /// The memory for decoding is not available. The record itself may be valid.
    #[error("no memory to decode a journal record: {bytes} more bytes are not available")]
    NoRoom { bytes: usize },
}
