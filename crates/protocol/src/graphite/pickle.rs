//! Decodes lists of points that Python has serialized with its module `pickle`, as carbon's clients send them.
//!
//! ```text
//!   [(path, (time, value)), …]        a path is a string; time and value are numbers, or strings that contain numbers;
//!                                     a pair is a tuple or a list
//! ```
//!
//! A pickle is a program for a stack machine. A general interpreter can be made to run any code, so this one has only
//! the opcodes that lists, tuples, strings, numbers and repeated objects need ([`opcodes`]). A pickle with another opcode
//! is refused. The stack has no nested objects: a pair becomes a time with a value, or a point, or something that is
//! not a point. So neither deep nesting nor repeated objects take memory.
//! Source: <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

mod machine;
mod opcodes;
mod text;
mod usual;

use super::points::{Fault, Label, Points};
use super::{Format, split_frame};
use crate::{DecodeError, Request};
use machine::{Halt, Machine};
use model::{Batch, SeriesHasher, SeriesRefusal};
use stdx::budget::IncrementalReservation;

/// Error of a pickle that is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid pickle at byte {offset}: {fault}")]
pub struct PickleError {
    /// Counted from the beginning of the pickle.
    pub offset: usize,
    pub fault: PickleFault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickleFault {
    #[error("it ends before its opcode STOP")]
    Truncated,
    #[error("opcode {0} is not allowed in a list of points")]
    Opcode(&'static str),
    #[error("unknown opcode 0x{0:02x}")]
    UnknownOpcode(u8),
    #[error("protocol {0} is not supported")]
    Protocol(u8),
    #[error("{0} is not valid")]
    Argument(&'static str),
    #[error("opcode {0} needs more objects than there are")]
    Underflow(&'static str),
    #[error("the result is not a list of points")]
    NotAList,
    #[error("more than {limit} {what}")]
    TooMany {
        /// Plural noun.
        what: &'static str,
        limit: usize,
    },
}

/// An excerpt of a refused pickle begins this many bytes before the error.
const BYTES_BEFORE_FAULT: usize = 32;

#[derive(Debug)]
pub struct Decoder {
    hasher: SeriesHasher,
    body: Vec<u8>,
    labels: Vec<Label>,
    machine: Machine,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    const HAS_GRAPHITE_NAMES: bool = true;

    fn new(seed: u64) -> Self {
        Self {
            hasher: SeriesHasher::new(seed),
            body: Vec::new(),
            labels: Vec::new(),
            machine: Machine::default(),
        }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Self { hasher, body, labels, machine } = self;
        let Format { has_frames, arrival } = request.format;
        let mut rest = request.body.uncompressed(body, reservation)?;
        let mut points = Points { hasher, labels, batch, reservation, arrival };
        if !has_frames {
            return match machine.run(rest, &mut points) {
                Ok(()) => Ok(()),
                Err(Halt::Memory(full)) => Err(full.into()),
                Err(Halt::Refused(error)) => Err(error.into()),
            };
        }
        let mut number = 0;
        while let Some((frame, others)) = split_frame(rest) {
            (rest, number) = (others, number + 1);
            points.check_count("points")?;
            let before = points.mark();
            match machine.run(frame, &mut points) {
                Ok(()) => {}
                Err(Halt::Memory(full)) => return Err(full.into()),
                Err(Halt::Refused(error)) => {
                    points.undo(before);
                    let sent = &frame[error.offset.saturating_sub(BYTES_BEFORE_FAULT)..];
                    let what = points.with_excerpt(error.to_string(), sent);
                    points.batch.refuse(SeriesRefusal::Message { number, what }, 0..0, 1);
                }
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.labels.capacity() * size_of::<Label>() + self.machine.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
