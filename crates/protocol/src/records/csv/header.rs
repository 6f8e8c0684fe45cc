use super::Position;
use super::cells::{Cell, Row, Table};
use crate::DecodeError;
use crate::records::rows::check_path;
use crate::records::{Fault, Reason, Rows, number, time};
use model::AttributeValue;
use model::caps::BATCH_ATTRIBUTES_MAX;
use std::collections::HashSet;
use stdx::budget::IncrementalReservation;

/// The names of a table's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    columns: Vec<Column>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    path: Box<str>,
    /// See [`time::rank`].
    rank: Option<u8>,
}

/// The limit on how many characters of a name are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

impl Header {
    pub fn memory_bytes(&self) -> usize {
        let paths: usize = self.columns.iter().map(|column| column.path.len()).sum();
        self.columns.capacity() * size_of::<Column>() + paths
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Reads the first row that is not blank. Returns where the next row begins, and the number of lines before it.
    pub(super) fn read(
        table: &Table<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<Option<(Self, usize, usize)>, DecodeError> {
        let (mut at, mut row) = (Position { at: 0, line: 0 }, Row::default());
        if !at.skip_blank_lines(table) {
            return Ok(None);
        }
        let read = at.read(table, &mut row, BATCH_ATTRIBUTES_MAX, memory);
        let columns =
            read.and_then(|()| Self::columns(table, &mut row, memory)).map_err(|fault| match fault {
                Fault::Record(reason) => DecodeError::TableHeader(reason.to_string()),
                Fault::Request(error) => error,
            })?;
        if row.count() > columns.len() {
            let what = format!("{} columns, the limit is {BATCH_ATTRIBUTES_MAX}", row.count());
            return Err(DecodeError::TableHeader(what));
        }
        let mut paths = HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !paths.insert(&column.path)) {
            let shown: String = twice.path.chars().take(SHOWN_CHARS_MAX).collect();
            return Err(DecodeError::TableHeader(format!("more than one column has the name {shown:?}")));
        }
        Ok(Some((Self { columns }, at.at, at.line)))
    }

    fn columns(
        table: &Table<'_>,
        row: &mut Row,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<Vec<Column>, Fault> {
        let mut columns = Vec::new();
        let (cells, unquoted) = row.cells();
        for cell in cells {
            let path = table.text(*cell, unquoted, memory)?;
            check_path(path.len())?;
            // the path, and its place in the set of all
            memory.reserve(path.len() + 3 * size_of::<&str>())?;
            memory.push(&mut columns, Column { path: path.into(), rank: time::rank(path) })?;
        }
        Ok(columns)
    }

    /// Adds a row as a record.
    pub(super) fn record(
        &self,
        table: &Table<'_>,
        row: &mut Row,
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), Fault> {
        if row.count() != self.columns.len() {
            return Err(Reason::Columns { found: row.count(), expected: self.columns.len() }.into());
        }
        let (cells, unquoted) = row.cells();
        for (column, cell) in self.columns.iter().zip(cells) {
            let text = table.text(*cell, unquoted, rows.memory)?;
            let value = match cell {
                Cell::Plain { .. } if text.is_empty() => continue,
                Cell::Plain { .. } => plain_value(text),
                _ => AttributeValue::Text(text),
            };
            rows.put(&column.path, column.rank, value)?;
        }
        rows.end()
    }
}

/// The value of a cell without quotes.
fn plain_value(text: &str) -> AttributeValue<'_> {
    match text.as_bytes()[0] {
        b'-' | b'0'..=b'9' => match number::number(text, 0) {
            Some((value, end)) if end == text.len() => value,
            _ => AttributeValue::Text(text),
        },
        b't' if text == "true" => AttributeValue::Bool(true),
        b'f' if text == "false" => AttributeValue::Bool(false),
        _ => AttributeValue::Text(text),
    }
}
