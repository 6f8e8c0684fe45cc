//! The texts of a 2.0 request, by position.

use super::SYMBOLS;
use crate::remote_write::DecodeError;
use crate::wire::{Reader, WireError};
use model::SeriesError;
use model::caps::REQUEST_SYMBOLS_MAX;

/// Where a symbol lies in the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    start: u32,
    len: u32,
}

/// The table of symbols. Their bytes are text only by promise.
#[derive(Clone, Copy)]
pub(super) struct Symbols<'a> {
    body: &'a [u8],
    table: &'a [Symbol],
}

impl<'a> Symbols<'a> {
    /// Finds the symbols of `body`. This is a pass of its own over the request's fields, because protobuf
    /// does not promise that the table comes before its users.
    pub(super) fn read(body: &'a [u8], table: &'a mut Vec<Symbol>) -> Result<Self, DecodeError> {
        table.clear();
        let mut request = Reader::new(body);
        while let Some(tag) = request.tag()? {
            if tag != SYMBOLS {
                request.skip(tag)?;
                continue;
            }
            let symbol = request.len_field()?;
            if table.is_empty() && !symbol.is_empty() {
                return Err(DecodeError::FirstSymbol(symbol.len()));
            }
            if table.len() >= REQUEST_SYMBOLS_MAX {
                return Err(DecodeError::TooMany { what: "symbols", limit: REQUEST_SYMBOLS_MAX });
            }
            let len = symbol.len() as u32;
            table.push(Symbol { start: request.at() as u32 - len, len });
        }
        Ok(Self { body, table })
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// The symbol at a position.
    #[inline(always)]
    pub(super) fn get(&self, reference: u32) -> Option<&'a [u8]> {
        let symbol = self.table.get(reference as usize)?;
        Some(&self.body[symbol.start as usize..][..symbol.len as usize])
    }

    /// As [`Self::get`], but 0 is the empty text even where the table was left out.
    pub(super) fn text(&self, reference: u32) -> Result<&'a [u8], SeriesError> {
        let none = (reference == 0).then_some(&[][..]);
        self.get(reference).or(none).ok_or_else(|| self.missing(reference))
    }

    /// That a reference is beyond the table.
    pub(super) const fn missing(&self, reference: u32) -> SeriesError {
        SeriesError::SymbolOutOfRange(reference, self.table.len())
    }
}

/// A reference; one of more than 32 bits is cut to them, as protobuf demands of a `uint32`.
#[inline(always)]
pub(super) fn read_ref(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    Ok(reader.varint()? as u32)
}
