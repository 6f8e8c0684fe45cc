//! Decodes tables of comma-separated values (RFC 4180). The first row has the names of the columns, which are the paths of the
//! attributes.
//!
//! ```text
//!   time,level,"user name",took       header
//!
//!   1795284000,info,"Ada ""L""",1.5   level="info"  user name="Ada \"L\""  took=1.5
//!   1795284001,warn,,true             level="warn"  took=true
//! ```
//!
//! - An empty cell has no value. `""` is an empty text.
//! - A cell without quotes that is a number in the grammar of JSON, `true` or `false` has this type. So `007` is a text.
//! - Quoted texts may have line breaks.
//! - A row with another number of columns than the header is left out, as is a row whose quotes are wrong. Reading continues
//!   at the next line then.
//!
//! A body that is too large to be decoded at once is cut into pieces: [`split_header`] reads the header of the first one, and
//! [`complete_rows`] says how much of each piece [`decode_rows`] can decode.

mod cells;
mod header;

pub use header::Header;

use super::{Decoded, Fault, Place, Reason, Request, without_mark};
use crate::DecodeError;
use crate::scan::line_end;
use cells::{Row, Table};
use stdx::budget::{IncrementalReservation, Reservation};

/// Decodes a whole table.
pub fn decode(request: Request<'_>, memory: &mut Reservation) -> Result<Decoded, DecodeError> {
    let before = memory.bytes();
    let Some((header, rest)) = split_header(request, memory)? else { return Ok(Decoded::default()) };
    let decoded = decode_rows(&header, rest, memory)?;
    memory.resize(before + decoded.records.memory_bytes() as u64)?;
    Ok(decoded)
}

/// Reads the header of a table, and returns it with the rest of the body. `None` if all lines are blank. The header must be
/// complete. Reserves memory for it.
pub fn split_header<'a>(
    request: Request<'a>,
    memory: &mut Reservation,
) -> Result<Option<(Header, Request<'a>)>, DecodeError> {
    let body = without_mark(request.body);
    let before = memory.bytes();
    let header = Header::read(&Table::new(body), &mut IncrementalReservation::new(memory))?;
    let Some((header, end, lines)) = header else { return Ok(None) };
    memory.resize(before + header.memory_bytes() as u64)?;
    let first_line = request.first_line + lines;
    Ok(Some((header, Request { body: body.get(end..).unwrap_or_default(), first_line, ..request })))
}

/// Decodes rows of a table whose header was read before.
pub fn decode_rows(
    header: &Header,
    request: Request<'_>,
    memory: &mut Reservation,
) -> Result<Decoded, DecodeError> {
    let table = Table::new(request.body);
    let mut at = Position { at: 0, line: request.first_line };
    request.into_records(memory, |rows| {
        let mut row = Row::default();
        while at.skip_blank_lines(&table) {
            let start = at.line;
            let read = match at.read(&table, &mut row, header.len(), rows.memory) {
                Ok(()) => header.record(&table, &mut row, rows),
                fault => fault,
            };
            read.or_else(|fault| rows.refuse(Place::Line(start), fault))?;
        }
        Ok(())
    })
}

/// Returns the length of the complete rows at the start of a piece of a table: those after which the piece has a line break.
/// It is 0 if the first row is not complete.
pub fn complete_rows(piece: &[u8], memory: &mut Reservation) -> Result<usize, DecodeError> {
    let before = memory.bytes();
    let mut reservation = IncrementalReservation::new(memory);
    let table = Table::new(piece);
    let (mut at, mut row) = (Position { at: 0, line: 1 }, Row::default());
    let complete = loop {
        if !at.skip_blank_lines(&table) {
            break piece.len();
        }
        let start = at.at;
        match at.read(&table, &mut row, 0, &mut reservation) {
            // the end of a quoted text is in a later piece
            Err(Fault::Record(Reason::OpenQuote(_))) => break start,
            Err(Fault::Request(error)) => return Err(error),
            _ if at.at >= piece.len() && piece.last() != Some(&b'\n') => break start,
            _ => {}
        }
    };
    memory.resize(before)?;
    Ok(complete)
}

/// Where reading is in a table.
#[derive(Debug, Clone, Copy)]
struct Position {
    at: usize,
    line: usize,
}

impl Position {
    /// Goes to the next row. Returns whether there is one.
    fn skip_blank_lines(&mut self, table: &Table<'_>) -> bool {
        loop {
            match table.bytes().get(self.at..) {
                None | Some([]) => return false,
                Some([b'\n', ..]) => self.at += 1,
                Some([b'\r', b'\n', ..]) => self.at += 2,
                Some(_) => return true,
            }
            self.line += 1;
        }
    }

    /// Reads the row here and goes behind it. If its quotes are wrong, goes to the next line.
    ///
    /// At most one quoted text of a table is searched for its end in vain: behind it, quotes come in even numbers, and a cell
    /// that begins with an even number of quotes has an end.
    fn read(
        &mut self,
        table: &Table<'_>,
        row: &mut Row,
        most: usize,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        let read = row.read(table, self.at, most, memory);
        let (end, lines) = match &read {
            Ok(end) => *end,
            Err(_) => (line_end(table.bytes(), self.at) + 1, 1),
        };
        self.at = end;
        self.line += lines;
        read.map(|_| ())
    }
}
