use super::BATCH_VERSION;
use crate::RecordError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("batch of records ends too early")]
    Truncated,
    #[error("batch of records has version {0}, this build reads versions up to {BATCH_VERSION}")]
    Version(u8),
    #[error("malformed batch of records: {0}")]
    Malformed(&'static str),
}

/// Errors of the cursor.
impl From<RecordError> for BatchError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Truncated => Self::Truncated,
            RecordError::Version(version) => Self::Version(version),
            RecordError::Malformed(what) => Self::Malformed(what),
            RecordError::NoRoom { .. } => Self::Malformed("no memory"),
        }
    }
}
