//! The symbol table of a 2.0 request.

use super::SYMBOLS;
use crate::DecodeError;
use crate::wire::{Reader, WireError};
use model::SeriesRefusal;
use model::caps::REQUEST_SYMBOLS_MAX;
use stdx::budget::IncrementalReservation;

#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    start: u32,
    len: u32,
}

/// The distinct texts of a request, addressed by their position. They may be invalid UTF-8.
#[derive(Clone, Copy)]
pub(super) struct Symbols<'a> {
    body: &'a [u8],
    table: &'a [Symbol],
}

impl<'a> Symbols<'a> {
    /// Finds the symbols at the start of `body`. The returned reader continues after them. With `everywhere`,
    /// symbols are found between other fields too, and the returned reader starts at the beginning of the
    /// body.
    pub(super) fn read(
        body: &'a [u8],
        everywhere: bool,
        table: &'a mut Vec<Symbol>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(Self, Reader<'a>), DecodeError> {
        table.clear();
        let mut request = Reader::new(body);
        loop {
            let behind = request;
            match request.tag()? {
                Some(SYMBOLS) => push(request.len_field()?, request.at(), table, reservation)?,
                Some(other) if everywhere => request.skip(other)?,
                Some(_) | None if everywhere => return Ok((Self { body, table }, Reader::new(body))),
                Some(_) | None => return Ok((Self { body, table }, behind)),
            }
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    #[inline(always)]
    pub(super) fn get(&self, reference: u32) -> Option<&'a [u8]> {
        let symbol = self.table.get(reference as usize)?;
        Some(&self.body[symbol.start as usize..][..symbol.len as usize])
    }

    /// Like [`Self::get`], but reference 0 always means an empty text, even if the table is empty.
    pub(super) fn text(&self, reference: u32) -> Result<&'a [u8], SeriesRefusal> {
        let none = (reference == 0).then_some(&[][..]);
        self.get(reference).or(none).ok_or_else(|| self.missing(reference))
    }

    pub(super) const fn missing(&self, reference: u32) -> SeriesRefusal {
        SeriesRefusal::SymbolOutOfRange(reference, self.table.len())
    }
}

#[inline(always)]
fn push(
    symbol: &[u8],
    end: usize,
    table: &mut Vec<Symbol>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    if table.is_empty() && !symbol.is_empty() {
        return Err(DecodeError::FirstSymbol(symbol.len()));
    }
    if table.len() >= REQUEST_SYMBOLS_MAX {
        return Err(DecodeError::TooMany { what: "symbols", limit: REQUEST_SYMBOLS_MAX });
    }
    reservation.push(table, Symbol { start: (end - symbol.len()) as u32, len: symbol.len() as u32 })?;
    Ok(())
}

/// Reads a reference to a symbol. Only the low 32 bits count, as in protobuf.
#[inline(always)]
pub(super) fn read_ref(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    Ok(reader.varint()? as u32)
}
