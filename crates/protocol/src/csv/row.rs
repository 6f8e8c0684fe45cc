//! Reads the rows of a table.
//!
//! ```text
//!   rows │ GOOG ⏎ NYSE ⏎  ask  bid │ "A, B" ⏎ ⏎  ask │ …
//!        │ └──labels───┘  └─entries┘
//!        └─ these bytes are appended to the text once all rows are read
//! ```
//!
//! An entry ([`Labelled`]) stands for a series: it says where the labels begin, and which column has the metric.

use super::columns::{COLUMNS_MAX, Column, Columns};
use crate::decimal::{float, short_decimal};
use crate::line_batch::LineBatch;
use crate::line_fault::Fault;
use crate::raw_keys::LabelBudget;
use std::borrow::Cow;
use std::ops::Range;

/// Working memory for the rows of a request.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The labels of all rows as they are written, each with a line break behind it, which they do not contain. Entries
    /// follow the labels of a row.
    labels: Vec<u8>,
    /// The metrics of the row that have a value: the places of their columns.
    metrics: Vec<u16>,
    budget: LabelBudget,
}

/// Where the labels of a series begin in the bytes of the batch, and the place of its metric's column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Labelled {
    pub(super) start: u32,
    pub(super) place: u16,
}

impl Labelled {
    const BYTES: usize = 6;

    fn encoded(self) -> [u8; Self::BYTES] {
        (u64::from(self.place) << 32 | u64::from(self.start)).to_le_bytes()[..Self::BYTES]
            .try_into()
            .expect("BUG: 8 bytes are at least 6")
    }

    /// Reads an entry. The decoder has written it, not the client.
    pub(super) fn of(entry: &[u8]) -> Self {
        let &[a, b, c, d, e, f] = entry else { unreachable!("BUG: an entry has {} bytes", entry.len()) };
        Self { start: u32::from_le_bytes([a, b, c, d]), place: u16::from_le_bytes([e, f]) }
    }
}

const _: () = assert!(COLUMNS_MAX <= u16::MAX as usize);

/// Limit on the bytes of a row's labels, as they are written.
const LABELS_BYTES_MAX: usize = 2 * model::caps::SERIES_LABEL_BYTES_MAX;

/// Bytes of labels for each byte of the text. A value has at least two bytes with its comma, so labels of up to 500 bytes,
/// with their names, always pass, however many metrics the table has.
const LABEL_BYTES_PER_BYTE: usize = 256;

/// The limit on how many characters of a cell are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

impl Row {
    pub(super) const fn memory_bytes(&self) -> usize {
        self.labels.capacity() + self.metrics.capacity() * size_of::<u16>()
    }

    /// Begins a request with a text of this length.
    pub(super) fn begin(&mut self, text_bytes: usize) {
        self.labels.clear();
        self.budget = LabelBudget::new(text_bytes, LABEL_BYTES_PER_BYTE);
    }

    /// The bytes that follow the text. The series refer to them.
    pub(super) fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Adds the samples of a row to a batch. A cell without text has no sample, or no label.
    pub(super) fn read(
        &mut self,
        lines: &mut LineBatch<'_, '_>,
        range: Range<usize>,
        columns: &Columns,
        arrival_ms: i64,
    ) -> Result<(), Fault> {
        let own = self.labels.len();
        let read = self.read_from(own, lines, range, columns, arrival_ms);
        if read.is_err() || self.metrics.is_empty() {
            self.labels.truncate(own); // no series refers to them
        }
        read
    }

    /// Reads a row whose labels will begin at `own`.
    fn read_from(
        &mut self,
        own: usize,
        lines: &mut LineBatch<'_, '_>,
        range: Range<usize>,
        columns: &Columns,
        arrival_ms: i64,
    ) -> Result<(), Fault> {
        self.metrics.clear();
        let (text, first) = (lines.text, lines.samples());
        let (mut timestamp_ms, mut found, mut name_bytes) = (arrival_ms, 0, 0);
        for (place, (cell, column)) in cells(&text[range]).zip(columns.columns()).enumerate() {
            let cell =
                cell.ok_or_else(|| fault(format!("the quoted text of column {} does not end", place + 1)))?;
            found = place + 1;
            match column {
                Column::Unused => {}
                Column::Label(name) => {
                    if self.labels.len() - own + cell.len() > LABELS_BYTES_MAX {
                        return Err(fault(format!("labels have more than {LABELS_BYTES_MAX} bytes")));
                    }
                    lines.extend(&mut self.labels, cell)?;
                    lines.extend(&mut self.labels, b"\n")?;
                    name_bytes += if cell.is_empty() { 0 } else { name.len() };
                }
                Column::Metric(name) => {
                    let Some(value) = value_of(cell) else {
                        if text_of(cell).trim_ascii().is_empty() {
                            continue;
                        }
                        let message = format!("value {} of metric {name:?} is not a number", shown(cell));
                        return Err(fault(message));
                    };
                    lines.push(&mut self.metrics, place as u16)?;
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
        let head = lines.keys.head(&self.labels[own..]);
        let (label_bytes, start) = (self.labels.len() - own + name_bytes, (text.len() + own) as u32);
        for (sample, &place) in (first..).zip(&self.metrics) {
            self.budget.take(label_bytes + columns.metric(place).len())?;
            lines.timestamp(timestamp_ms)?;
            let entry = text.len() + self.labels.len();
            lines.extend(&mut self.labels, &Labelled { start, place }.encoded())?;
            let key = head.field(&place.to_le_bytes());
            lines.series_of(key, entry..entry + Labelled::BYTES, sample..sample + 1)?;
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
