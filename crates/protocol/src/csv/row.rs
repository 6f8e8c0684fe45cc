//! Reads the rows of a table.

use super::columns::{COLUMNS_MAX, Column, Columns};
use crate::decimal::{float, short_decimal};
use crate::line_batch::LineBatch;
use crate::line_fault::Fault;
use std::borrow::Cow;
use std::ops::Range;

/// Working memory for a row, reused for all rows.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The labels as they are written, each with a line break behind it, which they do not contain.
    labels: Vec<u8>,
    /// The metrics that have a value: the place of the column, and where its cell ends in the text.
    metrics: Vec<(u16, usize)>,
}

const _: () = assert!(COLUMNS_MAX <= u16::MAX as usize);

/// Limit on the bytes of a row's labels, as they are written.
const LABELS_BYTES_MAX: usize = 2 * model::caps::SERIES_LABEL_BYTES_MAX;

/// The limit on how many characters of a cell are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

impl Row {
    pub(super) const fn memory_bytes(&self) -> usize {
        self.labels.capacity() + self.metrics.capacity() * size_of::<(u16, usize)>()
    }

    /// Adds the samples of a row to a batch. A cell without text has no sample, or no label.
    pub(super) fn read(
        &mut self,
        lines: &mut LineBatch<'_, '_>,
        range: Range<usize>,
        columns: &Columns,
        arrival_ms: i64,
    ) -> Result<(), Fault> {
        self.labels.clear();
        self.metrics.clear();
        let (text, start, first) = (lines.text, range.start, lines.samples());
        let (mut at, mut timestamp_ms, mut found) = (start, arrival_ms, 0);
        for (place, (cell, column)) in cells(&text[range]).zip(columns.columns()).enumerate() {
            let cell =
                cell.ok_or_else(|| fault(format!("the quoted text of column {} does not end", place + 1)))?;
            let end = at + cell.len();
            at = end + 1;
            found = place + 1;
            match column {
                Column::Unused => {}
                Column::Label(_) => {
                    if self.labels.len() + cell.len() > LABELS_BYTES_MAX {
                        return Err(fault(format!("labels have more than {LABELS_BYTES_MAX} bytes")));
                    }
                    lines.extend(&mut self.labels, cell)?;
                    lines.extend(&mut self.labels, b"\n")?;
                }
                Column::Metric(name) => {
                    let Some(value) = value_of(cell) else {
                        if text_of(cell).trim_ascii().is_empty() {
                            continue;
                        }
                        let message = format!("value {} of metric {name:?} is not a number", shown(cell));
                        return Err(fault(message));
                    };
                    lines.push(&mut self.metrics, (place as u16, end))?;
                    lines.value(value)?;
                }
                Column::Time(form) => {
                    let cell = text_of(cell);
                    let word = cell.trim_ascii();
                    timestamp_ms = form.read(word).ok_or_else(|| {
                        fault(format!("time {} is not of the form {}", shown(word), form.name()))
                    })?;
                }
            }
        }
        if found < columns.columns().len() {
            return Err(fault(format!("{found} columns, but the table has {}", columns.columns().len())));
        }
        let head = lines.keys.head(&self.labels);
        for (i, (place, end)) in self.metrics.iter().enumerate() {
            lines.timestamp(timestamp_ms)?;
            let sample = first + i;
            lines.series_of(head.field(&place.to_le_bytes()), start..*end, sample..sample + 1)?;
        }
        Ok(())
    }
}

/// The cells of a row, as they are written: with their quotes. `None` is a cell whose quoted text does not end; it is the
/// last one.
pub(super) fn cells(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(row);
    std::iter::from_fn(move || {
        let text = rest?;
        let quoted = if text.first() == Some(&b'"') { quoted_end(text) } else { Some(0) };
        let Some(quoted) = quoted else {
            rest = None;
            return Some(None);
        };
        let end = text[quoted..].iter().position(|byte| *byte == b',').map(|end| quoted + end);
        rest = end.map(|end| &text[end + 1..]);
        Some(Some(&text[..end.unwrap_or(text.len())]))
    })
}

/// Returns where the quoted text ends at the start of `text`. Two quotes within it stand for one.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte == b'"')? + 1;
        if text.get(at) != Some(&b'"') {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns the text of a cell, without its quotes.
pub(super) fn text_of(cell: &[u8]) -> Cow<'_, [u8]> {
    let Some(inner) = cell.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")) else {
        return Cow::Borrowed(cell);
    };
    if !inner.contains(&b'"') {
        return Cow::Borrowed(inner);
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte == b'"' && bytes.as_slice().first() == Some(&b'"') {
            bytes.next();
        }
    }
    Cow::Owned(out)
}

fn value_of(cell: &[u8]) -> Option<f64> {
    match short_decimal(cell) {
        Some((value, length)) if length == cell.len() => Some(value),
        // NaN is no value, so the row is refused
        _ => float(text_of(cell).trim_ascii()).filter(|value| !value.is_nan()),
    }
}

fn fault(what: String) -> Fault {
    Fault::Line(what)
}

fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(&word[..word.len().min(4 * SHOWN_CHARS_MAX)]);
    format!("{:?}", text.chars().take(SHOWN_CHARS_MAX).collect::<String>())
}
