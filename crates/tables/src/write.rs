//! Writes stretches to Parquet files, in bounded memory.
//!
//! ```text
//!   push(stretch) ──days, rows──▶ Columns ──some 1,000 rows──▶ Parquet encoder ──row group──▶ sink
//!                                  < 1 MiB                       <= row_group_bytes
//! ```
//!
//! A [`FileWriter`] writes one file of one day. A [`BlockWriter`] keeps a file open for each day, and bounds their
//! memory.

mod columns;
pub mod records;
pub mod stage;
mod stretch;

use crate::date::Date;
use crate::delta::FileSummary;
use crate::error::TableError;
use crate::kind::{Kind, LABELS_KEY};
use crate::store::Upload;
use columns::Columns;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use std::collections::BTreeMap;
use std::io::Write;

pub use records::{RecordLimits, RecordsStager};
pub use stage::BlockStager;
pub use stretch::Stretch;

/// Number of rows passed to the encoder together, to amortise its overhead.
const BATCH_ROWS: usize = 1024;

/// Number of samples passed to the encoder together: half a MiB.
const BATCH_SAMPLES: usize = 32 << 10;

/// Size of the labels passed to the encoder together. Those of one row may take 64 KiB.
const BATCH_LABEL_BYTES: usize = 512 << 10;

/// Labels of this size, of a file's rows that wait for the encoder, are worth encoding early.
const LONG_LABELS_BYTES: usize = 32 << 10;

pub const OPEN_DATES_MAX: usize = 400;

/// Memory of an open file that its writer does not count.
const OPEN_FILE_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy)]
pub struct WriteLimits {
    /// Encoded bytes at which a row group is closed. The encoder holds up to three times as much.
    pub row_group_bytes: usize,
    /// Size at which the next file begins.
    pub file_bytes: usize,
    /// Maximum memory of a block's open files. Beyond it, the largest file is finished early.
    pub open_bytes: usize,
}

impl WriteLimits {
    /// Maximum number of files open at a time, as far as the memory limit permits them.
    pub(crate) fn open_max(&self) -> usize {
        (self.open_bytes / OPEN_FILE_BYTES).clamp(2, OPEN_DATES_MAX)
    }
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self { row_group_bytes: 4 << 20, file_bytes: 128 << 20, open_bytes: 32 << 20 }
    }
}

pub trait Sink: Write + Send {
    fn held_bytes(&self) -> usize;
}

impl Sink for Vec<u8> {
    fn held_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Sink for Upload {
    fn held_bytes(&self) -> usize {
        Self::held_bytes(self)
    }
}

impl FileSummary {
    fn add(&mut self, name: &str, row: &Stretch<'_>) {
        let (first, last) = (row.timestamps[0], row.timestamps[row.timestamps.len() - 1]);
        if self.rows == 0 {
            self.name_min = name.into();
        }
        if self.name_max != name {
            self.name_max = name.into();
        }
        self.rows += 1;
        self.samples += row.timestamps.len() as u64;
        self.range.start_ms = self.range.start_ms.min(first);
        self.range.end_ms = self.range.end_ms.max(last);
        self.start_max_ms = self.start_max_ms.max(first);
        self.end_min_ms = self.end_min_ms.min(last);
    }
}

#[derive(Debug)]
struct Counted<W> {
    sink: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let written = self.sink.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}

#[derive(Debug)]
pub struct FileWriter<W: Sink> {
    encoder: ArrowWriter<Counted<W>>,
    columns: Columns,
    summary: FileSummary,
    row_group_bytes: usize,
    label_bytes_max: usize,
    /// Sum over all rows.
    label_bytes: u64,
    /// Labels of the last row, to check that rows come in order.
    last: Vec<u8>,
}

impl<W: Sink> FileWriter<W> {
    pub fn new(kind: &'static Kind, date: Date, sink: W, row_group_bytes: usize) -> Result<Self, TableError> {
        let options = ArrowWriterOptions::new()
            .with_properties(kind.writer_properties())
            .with_skip_arrow_metadata(true);
        let sink = Counted { sink, bytes: 0 };
        let encoder =
            ArrowWriter::try_new_with_options(sink, kind.schema(), options).map_err(TableError::Write)?;
        let summary = FileSummary::new(date);
        let columns = Columns::new(kind.schema());
        Ok(Self {
            encoder,
            columns,
            summary,
            row_group_bytes,
            label_bytes_max: 0,
            label_bytes: 0,
            last: Vec::new(),
        })
    }

    /// Adds a stretch on the file's day. Stretches come in table order ([`model::LabelsRef::cmp_in_tables`]), then by
    /// time.
    pub fn push(&mut self, stretch: &Stretch<'_>) -> Result<(), TableError> {
        let name = stretch.name();
        self.check(stretch);
        let columns = &mut self.columns;
        let (summary, label_bytes) = (&mut self.summary, &mut self.label_bytes);
        let mut mantissas = std::mem::take(&mut columns.mantissas);
        stretch::rows(stretch.values, &mut mantissas, |range, form, mantissas| {
            let row = stretch.slice(range);
            summary.add(name, &row);
            *label_bytes += row.labels.as_bytes().len() as u64;
            columns.finish_row(name, &row, form, mantissas);
        });
        columns.mantissas = mantissas;
        if self.columns.rows() >= BATCH_ROWS
            || self.columns.samples() >= BATCH_SAMPLES
            || self.columns.label_bytes() >= BATCH_LABEL_BYTES
        {
            self.encode()?;
            if self.encoder.in_progress_size() >= self.row_group_bytes {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn check(&mut self, stretch: &Stretch<'_>) {
        assert_eq!(
            stretch.timestamps.len(),
            stretch.values.len(),
            "BUG: the numbers of times and values differ"
        );
        let (Some(first), Some(last)) = (stretch.timestamps.first(), stretch.timestamps.last()) else {
            panic!("BUG: a stretch has no samples");
        };
        let date = self.summary.date;
        assert!(
            Date::of(*first) == date && Date::of(*last) == date,
            "BUG: a stretch is not on its file's day"
        );
        let labels = stretch.labels;
        if self.last != labels.as_bytes() {
            let before = model::LabelsRef::from_canonical(&self.last);
            assert!(
                self.last.is_empty() || before.cmp_in_tables(labels).is_lt(),
                "BUG: rows are not in order"
            );
            self.label_bytes_max = self.label_bytes_max.max(labels.as_bytes().len());
            self.last.clear();
            self.last.extend_from_slice(labels.as_bytes());
        }
    }

    fn encode(&mut self) -> Result<(), TableError> {
        if self.columns.rows() > 0 {
            let batch = self.columns.take_batch();
            self.encoder.write(&batch).map_err(TableError::Write)?;
        }
        Ok(())
    }

    /// Closes the row group and frees its memory.
    fn end_row_group(&mut self) -> Result<(), TableError> {
        self.encode()?;
        self.encoder.flush().map_err(TableError::Write)
    }

    pub fn held_bytes(&self) -> usize {
        self.encoder.memory_size() + self.columns.memory_bytes() + self.encoder.inner().sink.held_bytes()
    }

    pub fn written_bytes(&self) -> usize {
        self.encoder.bytes_written() + self.encoder.in_progress_size()
    }

    pub fn finish(mut self) -> Result<(FileSummary, W), TableError> {
        self.encode()?;
        let mean = self.label_bytes / self.summary.rows.max(1);
        let label_bytes = format!("{} {mean}", self.label_bytes_max);
        self.encoder.append_key_value_metadata(KeyValue::new(LABELS_KEY.into(), label_bytes));
        let Counted { sink, bytes } = self.encoder.into_inner().map_err(TableError::Write)?;
        self.summary.bytes = bytes;
        Ok((self.summary, sink))
    }
}

/// Writes a block's stretches into one file for each day, or several if a file grows large.
pub struct BlockWriter<W: Sink, S: FnMut(Date) -> std::io::Result<W>> {
    kind: &'static Kind,
    limits: WriteLimits,
    new_sink: S,
    open: BTreeMap<Date, FileWriter<W>>,
    finished: Vec<(FileSummary, W)>,
}

impl<W: Sink, S: FnMut(Date) -> std::io::Result<W>> BlockWriter<W, S> {
    pub const fn new(kind: &'static Kind, limits: WriteLimits, new_sink: S) -> Self {
        Self { kind, limits, new_sink, open: BTreeMap::new(), finished: Vec::new() }
    }

    /// Adds a stretch, which may span several days. The order of stretches is that of [`FileWriter::push`].
    pub fn push(&mut self, stretch: &Stretch<'_>) -> Result<(), TableError> {
        for (date, part) in stretch.days() {
            let file = self.file(date)?;
            file.push(&part)?;
            if file.written_bytes() >= self.limits.file_bytes {
                let file = self.open.remove(&date).expect("BUG: the file of this day is not open");
                self.finished.push(file.finish()?);
            }
        }
        self.bound_open()
    }

    fn file(&mut self, date: Date) -> Result<&mut FileWriter<W>, TableError> {
        if !self.open.contains_key(&date) {
            if self.open.len() >= self.limits.open_max() {
                self.finish_fullest()?;
            }
            let sink = (self.new_sink)(date).map_err(|e| TableError::Write(e.into()))?;
            let file = FileWriter::new(self.kind, date, sink, self.limits.row_group_bytes)?;
            self.open.insert(date, file);
        }
        Ok(self.open.get_mut(&date).expect("BUG: the file of this day is not open"))
    }

    /// If open files exceed the limit, encodes long labels, and then finishes the largest file early.
    fn bound_open(&mut self) -> Result<(), TableError> {
        while self.open.len() > 1 && self.held_bytes() > self.limits.open_bytes {
            let longest = self.open.values_mut().max_by_key(|file| file.columns.label_bytes());
            match longest.filter(|file| file.columns.label_bytes() >= LONG_LABELS_BYTES) {
                Some(file) => file.encode()?,
                None => self.finish_fullest()?,
            }
        }
        Ok(())
    }

    fn finish_fullest(&mut self) -> Result<(), TableError> {
        let fullest = self.open.iter().max_by_key(|(_, f)| f.held_bytes()).map(|(date, _)| *date);
        let file = fullest.and_then(|date| self.open.remove(&date)).expect("BUG: no file is open");
        self.finished.push(file.finish()?);
        Ok(())
    }

    /// Drops the files of a day, except those that the caller has already taken.
    pub(crate) fn abandon(&mut self, date: Date) {
        self.open.remove(&date);
        self.finished.retain(|(summary, _)| summary.date != date);
    }

    /// Number of files that the caller has not taken yet.
    pub(crate) fn files(&self) -> usize {
        self.open.len() + self.finished.len()
    }

    pub fn held_bytes(&self) -> usize {
        self.open.values().map(FileWriter::held_bytes).sum()
    }

    pub fn take_finished(&mut self) -> Vec<(FileSummary, W)> {
        std::mem::take(&mut self.finished)
    }

    /// Finishes the open files. Returns all files that the caller has not taken yet.
    pub fn finish(mut self) -> Result<Vec<(FileSummary, W)>, TableError> {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Result<Vec<(FileSummary, W)>, TableError> {
        for file in std::mem::take(&mut self.open).into_values() {
            self.finished.push(file.finish()?);
        }
        Ok(self.take_finished())
    }
}

impl<W: Sink, S: FnMut(Date) -> std::io::Result<W>> std::fmt::Debug for BlockWriter<W, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.open.len();
        f.debug_struct("BlockWriter").field("open", &open).field("finished", &self.finished.len()).finish()
    }
}
