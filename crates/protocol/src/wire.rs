//! Reads Protocol Buffers messages field by field. Bytes are borrowed, so there is no allocation, and no
//! recursion. Varints of more than ten bytes and groups are refused. Source:
//! <https://protobuf.dev/programming-guides/encoding/>.

use std::ops::Range;
use stdx::varint;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid protobuf at byte {offset}: {fault}")]
pub struct WireError {
    /// Position of the fault, counted in bytes of the decompressed body.
    pub offset: usize,
    pub fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("truncated varint")]
    TruncatedVarint,
    #[error("varint of more than 64 bits")]
    LongVarint,
    /// A value's declared length reaches beyond the end of the message.
    #[error("length beyond the end of the message")]
    Overrun,
    #[error("truncated fixed-size number")]
    TruncatedFixed,
    /// A field number must be between 1 and 2^29 - 1.
    #[error("field number out of range")]
    FieldNumber,
    /// Groups are not supported, and the other wire types are undefined.
    #[error("group or unknown wire type")]
    WireType,
    #[error("wrong wire type for a known field")]
    Mismatch,
    #[error("a message that may occur once is repeated")]
    Repeated,
}

/// How a field's value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Len,
    Fixed32,
}

/// The number before each field, `field number << 3 | wire type`. Tags are checked when they are read, so
/// their field number and wire type are valid.
pub(crate) type Tag = u32;

pub(crate) const fn tag(field: u32, wire: WireType) -> Tag {
    let kind = match wire {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Len => 2,
        WireType::Fixed32 => 5,
    };
    field << 3 | kind
}

pub(crate) const fn field_of(tag: Tag) -> u32 {
    tag >> 3
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The request body from its beginning to the end of this message. Starting at the body's beginning keeps
    /// the offsets in errors right.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn within(body: &'a [u8], part: Range<usize>) -> Self {
        Self { bytes: &body[..part.end], at: part.start }
    }

    pub(crate) const fn unread(&self) -> Range<usize> {
        self.at..self.bytes.len()
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// The request body from its beginning to the end of this message. Positions refer to these bytes.
    pub(crate) const fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Skips bytes that the caller has already parsed from [`Self::rest`].
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        assert!(self.at <= self.bytes.len(), "BUG: advanced beyond the end of the message");
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    #[cold]
    pub(crate) const fn fault(&self, fault: Fault) -> WireError {
        WireError { offset: self.at, fault }
    }

    #[inline(always)]
    pub(crate) fn tag(&mut self) -> Result<Option<Tag>, WireError> {
        match self.bytes.get(self.at) {
            None => Ok(None),
            // the usual tags take one byte: field numbers 1 to 15, with a valid wire type
            Some(&byte) if (8..0x80).contains(&byte) && 0b10_0111 >> (byte & 7) & 1 == 1 => {
                self.at += 1;
                Ok(Some(Tag::from(byte)))
            }
            Some(_) => self.tag_slow().map(Some),
        }
    }

    #[cold]
    fn tag_slow(&mut self) -> Result<Tag, WireError> {
        let start = *self;
        let tag = self.varint()?;
        let Ok(tag) = Tag::try_from(tag) else { return Err(start.fault(Fault::FieldNumber)) };
        if field_of(tag) == 0 {
            return Err(start.fault(Fault::FieldNumber));
        }
        match tag & 7 {
            0 | 1 | 2 | 5 => Ok(tag),
            _ => Err(start.fault(Fault::WireType)),
        }
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.varint_long(),
        }
    }

    fn varint_long(&mut self) -> Result<u64, WireError> {
        let mut rest = self.rest();
        let fault = if rest.len() < varint::BYTES_MAX { Fault::TruncatedVarint } else { Fault::LongVarint };
        let value = varint::take(&mut rest).ok_or_else(|| self.fault(fault))?;
        self.at = self.bytes.len() - rest.len();
        Ok(value)
    }

    #[inline(always)]
    pub(crate) fn fixed64(&mut self) -> Result<u64, WireError> {
        self.double().map(f64::to_bits)
    }

    #[inline(always)]
    pub(crate) fn double(&mut self) -> Result<f64, WireError> {
        match self.rest().first_chunk::<8>() {
            Some(bytes) => {
                self.at += 8;
                Ok(f64::from_bits(u64::from_le_bytes(*bytes)))
            }
            None => Err(self.fault(Fault::TruncatedFixed)),
        }
    }

    pub(crate) fn fixed32(&mut self) -> Result<u32, WireError> {
        match self.rest().first_chunk::<4>() {
            Some(bytes) => {
                self.at += 4;
                Ok(u32::from_le_bytes(*bytes))
            }
            None => Err(self.fault(Fault::TruncatedFixed)),
        }
    }

    #[inline(always)]
    fn end_of_len(&mut self) -> Result<usize, WireError> {
        let start = *self;
        let len = self.varint()?;
        if len > (self.bytes.len() - self.at) as u64 {
            return Err(start.fault(Fault::Overrun));
        }
        Ok(self.at + len as usize)
    }

    /// Returns a reader of the same message that ends `tail` bytes earlier. These bytes must not have been
    /// read yet.
    pub(crate) fn without_tail(&self, tail: usize) -> Self {
        let end = self.bytes.len() - tail;
        assert!(end >= self.at, "BUG: the tail includes bytes that were already read");
        Self { bytes: &self.bytes[..end], at: self.at }
    }

    #[inline(always)]
    pub(crate) fn len_field(&mut self) -> Result<&'a [u8], WireError> {
        let end = self.end_of_len()?;
        let value = &self.bytes[self.at..end];
        self.at = end;
        Ok(value)
    }

    /// Returns a reader for a nested message, and continues after that message.
    #[inline(always)]
    pub(crate) fn message(&mut self) -> Result<Self, WireError> {
        let end = self.end_of_len()?;
        let inner = Self { bytes: &self.bytes[..end], at: self.at };
        self.at = end;
        Ok(inner)
    }

    /// Skips consecutive length-delimited fields that have the same one-byte tag. The labels of neighboring
    /// series often have the same lengths. For speed, the lengths in the previous call are therefore used as
    /// predictions, which are checked.
    #[inline(always)]
    pub(crate) fn skip_run(&mut self, tag: u8, last: &mut RunSteps) -> Result<(), WireError> {
        let mut at = self.at;
        for (header, step) in last.headers.iter_mut().zip(&mut last.steps) {
            let Some(found) = self.bytes.get(at..at + 2) else { break };
            let found = u16::from_le_bytes([found[0], found[1]]);
            if found != *header {
                // either the run ends here, or the length differs from the predicted one
                if found as u8 != tag || found >> 8 >= 0x80 {
                    break;
                }
                (*header, *step) = (found, (found >> 8) + 2);
            }
            at += usize::from(*step);
        }
        // if a field reaches beyond the message, the caller reads it again to report the offset
        if at <= self.bytes.len() {
            self.at = at;
        }
        self.skip_run_plainly(tag)
    }

    #[inline(always)]
    fn skip_run_plainly(&mut self, tag: u8) -> Result<(), WireError> {
        while self.bytes.get(self.at) == Some(&tag) {
            self.at += 1;
            self.at = self.end_of_len()?;
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, tag: Tag) -> Result<(), WireError> {
        let fixed = match tag & 7 {
            0 => return self.varint().map(|_| ()),
            2 => return self.len_field().map(|_| ()),
            1 => 8,
            5 => 4,
            _ => return Err(self.fault(Fault::WireType)),
        };
        if self.rest().len() < fixed {
            return Err(self.fault(Fault::TruncatedFixed));
        }
        self.at += fixed;
        Ok(())
    }

    /// Skips a field that the decoder does not know. A field whose number is in `known` can only get here if
    /// its wire type is wrong. That is an error, as in Prometheus.
    #[cold]
    pub(crate) fn skip_unknown(&mut self, tag: Tag, known: &[u32]) -> Result<(), WireError> {
        if known.contains(&field_of(tag)) {
            return Err(self.fault(Fault::Mismatch));
        }
        self.skip(tag)
    }
}

/// The tags and lengths of the fields that [`Reader::skip_run`] skipped last, and the distances between them.
/// They serve as predictions for the next call.
#[derive(Debug, Default)]
pub(crate) struct RunSteps {
    headers: [u16; Self::FIELDS_MAX],
    steps: [u16; Self::FIELDS_MAX],
}

impl RunSteps {
    const FIELDS_MAX: usize = 32;
}

#[cfg(test)]
mod tests;
