//! Divides a table into cells.

use crate::records::{Fault, Reason};
use crate::scan::find;
use std::ops::Range;
use stdx::budget::IncrementalReservation;

/// The text of a table.
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    /// The same bytes, if all of them are UTF-8. It is faster to check them at once.
    valid: Option<&'a str>,
}

/// Where a cell is, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    Plain {
        start: usize,
        end: usize,
    },
    Quoted {
        start: usize,
        end: usize,
    },
    /// A quoted text in which two quotes stand for one.
    Doubled {
        start: usize,
        end: usize,
    },
}

/// The cells of a row. The memory is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Row {
    cells: Vec<Cell>,
    /// Number of cells, also of those that are not kept.
    count: usize,
    /// The text of a cell, if it differs from what is written.
    unquoted: String,
}

impl Row {
    /// The cells that were kept, and memory for [`Table::text`].
    pub(super) const fn cells(&mut self) -> (&[Cell], &mut String) {
        (self.cells.as_slice(), &mut self.unquoted)
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Reads the row that begins at `start`, and keeps its first `most` cells. Returns where the next row begins, and the
    /// number of lines of this one.
    pub(super) fn read(
        &mut self,
        table: &Table<'_>,
        start: usize,
        most: usize,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(usize, usize), Fault> {
        self.cells.clear();
        self.count = 0;
        let (mut at, mut lines) = (start, 1);
        loop {
            let (cell, end) = match table.bytes.get(at) {
                Some(b'"') => table.quoted(at, self.count + 1)?,
                _ => table.plain(at),
            };
            if self.count < most {
                memory.push(&mut self.cells, cell)?;
            }
            self.count += 1;
            if !matches!(cell, Cell::Plain { .. }) {
                lines += memchr::memchr_iter(b'\n', &table.bytes[cell.range()]).count();
            }
            match table.bytes.get(end) {
                Some(b',') => at = end + 1,
                Some(b'\r') => return Ok((end + 2, lines)),
                _ => return Ok(((end + 1).min(table.bytes.len()), lines)),
            }
        }
    }
}

impl Cell {
    const fn range(self) -> Range<usize> {
        let (Self::Plain { start, end } | Self::Quoted { start, end } | Self::Doubled { start, end }) = self;
        start..end
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, valid: std::str::from_utf8(bytes).ok() }
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text of a cell. It is copied to `unquoted` if it differs from what is written.
    pub(super) fn text<'t>(
        &self,
        cell: Cell,
        unquoted: &'t mut String,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<&'t str, Fault>
    where
        'a: 't,
    {
        let text = match self.valid {
            Some(valid) => &valid[cell.range()],
            None => std::str::from_utf8(&self.bytes[cell.range()]).map_err(|_| Reason::NotUtf8)?,
        };
        let Cell::Doubled { .. } = cell else { return Ok(text) };
        unquoted.clear();
        memory.room(unquoted, text.len() - memchr::memchr_iter(b'"', text.as_bytes()).count() / 2)?;
        for (n, piece) in text.split("\"\"").enumerate() {
            *unquoted += if n == 0 { "" } else { "\"" };
            *unquoted += piece;
        }
        Ok(unquoted)
    }

    /// Reads a cell without quotes. Returns it, and where the comma or line break behind it is.
    #[inline]
    fn plain(&self, start: usize) -> (Cell, usize) {
        let end = find(self.bytes, start, |eight| eight.equal(b',') | eight.equal(b'\n'));
        let end = end.unwrap_or(self.bytes.len());
        // a carriage return is a part of the line break
        let is_return = self.bytes.get(end) != Some(&b',') && self.bytes[start..end].last() == Some(&b'\r');
        let end = end - usize::from(is_return);
        (Cell::Plain { start, end }, end)
    }

    /// Reads a quoted cell of column `column`.
    fn quoted(&self, quote: usize, column: usize) -> Result<(Cell, usize), Reason> {
        let start = quote + 1;
        let (mut at, mut has_doubled) = (start, false);
        let end = loop {
            let found = memchr::memchr(b'"', &self.bytes[at..]).ok_or(Reason::OpenQuote(column))?;
            let end = at + found;
            if self.bytes.get(end + 1) != Some(&b'"') {
                break end;
            }
            has_doubled = true;
            at = end + 2;
        };
        if !matches!(self.bytes[end + 1..], [] | [b',' | b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..]) {
            return Err(Reason::BehindQuote(column));
        }
        let cell = if has_doubled { Cell::Doubled { start, end } } else { Cell::Quoted { start, end } };
        Ok((cell, end + 1))
    }
}
