//! Reads the fields of a protobuf message, for messages of which only a few fields matter.

use anyhow::{Context, Result};
use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The number and the content of the next field. `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = decode_key(&mut self.rest)?;
        let field = match wire_type {
            WireType::Varint => Field::Number(decode_varint(&mut self.rest)?),
            WireType::SixtyFourBit => Field::Fixed64(self.rest.try_get_u64_le()?),
            WireType::LengthDelimited => {
                let len = usize::try_from(decode_varint(&mut self.rest)?)?;
                let (bytes, rest) =
                    self.rest.split_at_checked(len).context("a field ends beyond its message")?;
                self.rest = rest;
                Field::Bytes(bytes)
            }
            other => {
                skip_field(other, number, &mut self.rest, DecodeContext::default())?;
                Field::Other
            }
        };
        Ok(Some((number, field)))
    }
}
