//! Errors of protocols that are read line by line.

use crate::DecodeError;
use stdx::budget::Exhausted;

/// Why a line is left out, or why decoding ends.
#[derive(Debug)]
pub(crate) enum Fault {
    Line(String),
    Request(DecodeError),
}

impl From<Exhausted> for Fault {
    fn from(full: Exhausted) -> Self {
        Self::Request(full.into())
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Request(error)
    }
}
