//! Stages records as files, in bounded memory.
//!
//! ```text
//!   push(batch) ─▶ buffer ──full──▶ rows by day, sorted ─▶ gather ──some 1,000 rows──▶ Parquet encoder ─▶ sink
//!                                   by stream and time     rest (JSON)
//! ```
//!
//! Rows are sorted as positions, and values are copied once, from the columns of the batches to those of the encoder. A
//! full buffer becomes one file for each day. One file is open at a time.
//!
//! As in [`super::stage`], a block of too many days is staged in passes, from the first day to the last.

mod column;
mod file;
mod gather;
mod rest;
mod unloaded;

use crate::date::Date;
use crate::delta::{COMMIT_FILES_MAX, StagedFile, Table};
use crate::error::TableError;
use crate::kind::attributes::Seen;
use crate::kind::records::{Effort, RECORDS};
use crate::store::FileStem;
use crate::write::stage::Staged;
pub(crate) use column::Column;
pub(crate) use file::{RecordsFile, schema};
use gather::Gather;
use model::{AttributeKind, AttributeValues, Records};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
pub use unloaded::{Unloaded, conform};

const DAY_US: i64 = crate::date::DAY_MS * 1000;

/// Maximum number of rows passed to the encoder together.
pub(crate) const SLICE_ROWS: usize = 4096;

/// Bytes of text after which no more rows are passed to the encoder together.
pub(crate) const SLICE_BYTES: usize = 4 << 20;

/// Memory of a batch in the buffer besides its records, and of each row and value while the buffer is written.
const BATCH_BYTES: usize = 300;
const ROW_BYTES: usize = size_of::<Row>() + 8;
const VALUE_BYTES: usize = 8;

#[derive(Debug, Clone, Copy)]
pub struct RecordLimits {
    /// Memory of the batches that become one file, or one for each day. If one batch is larger, it has a file of its own.
    pub buffer_bytes: usize,
    /// Encoded bytes at which a row group is closed. The encoder holds up to three times as much.
    pub row_group_bytes: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self { buffer_bytes: 64 << 20, row_group_bytes: 8 << 20 }
    }
}

/// Records that arrived together in one datastream.
#[derive(Debug, Clone)]
pub struct RecordBatch {
    pub stream: Arc<str>,
    /// Microseconds since the Unix epoch.
    pub arrival_us: i64,
    /// Id of the batch, if its sender gave one.
    pub id: Option<Arc<[u8]>>,
    /// Times are between the years 1970 and 9999 ([`model::caps`]).
    pub records: Arc<Records>,
}

/// A row that waits for the encoder.
#[derive(Debug, Clone, Copy)]
struct Row {
    time_us: i64,
    /// Position of the stream's name among the sorted names.
    stream: u32,
    batch: u32,
    row: u32,
}

/// Writes batches into new files, which [`Table::commit`] adds to the table. A sweep deletes the files of a failed
/// stager.
#[derive(Debug)]
pub struct RecordsStager {
    table: Arc<Table>,
    stem: FileStem,
    limits: RecordLimits,
    buffer: Vec<RecordBatch>,
    buffer_bytes: usize,
    staged: Vec<StagedFile>,
    /// Number of files that were begun.
    files: u32,
    files_max: usize,
    /// Last day that is already in the table.
    after: Option<Date>,
    /// Days of this pass.
    days: BTreeSet<Date>,
    /// Last day of this pass, moved back if there are too many days.
    through: Date,
    /// True if records after `through` were left out.
    is_cut: bool,
}

impl RecordsStager {
    /// Begins a pass after the day `after`. `stem` must be new. The table is of the kind [`RECORDS`].
    pub fn new(table: &Arc<Table>, stem: FileStem, limits: RecordLimits, after: Option<Date>) -> Self {
        assert_eq!(table.kind().name, RECORDS.name, "BUG: records are staged for a table of another kind");
        Self {
            table: Arc::clone(table),
            stem,
            limits,
            buffer: Vec::new(),
            buffer_bytes: 0,
            staged: Vec::new(),
            files: 0,
            files_max: COMMIT_FILES_MAX,
            after,
            days: BTreeSet::new(),
            through: Date(i32::MAX),
            is_cut: false,
        }
    }

    /// Limits the files of a pass, for tests.
    #[must_use]
    pub fn with_files_max(self, files_max: usize) -> Self {
        Self { files_max, ..self }
    }

    /// Adds a batch. Of records of one stream with the same time, those that are added first come first in the table.
    pub fn push(&mut self, batch: RecordBatch) -> Result<(), TableError> {
        let bytes = memory_bytes(&batch);
        if self.buffer_bytes + bytes > self.limits.buffer_bytes {
            self.flush()?;
        }
        self.note_days(&batch.records.times_us);
        self.buffer_bytes += bytes;
        self.buffer.push(batch);
        Ok(())
    }

    /// Notes the days of a batch, and moves the end of the pass back if there are too many.
    fn note_days(&mut self, times_us: &[i64]) {
        let mut last = None;
        for time_us in times_us {
            let date = date_of(*time_us);
            if last.replace(date) == Some(date) || self.after.is_some_and(|after| date <= after) {
                continue;
            }
            if date > self.through {
                self.is_cut = true;
            } else if self.days.insert(date) && self.days.len() > self.files_max {
                self.leave_last_day();
            }
        }
    }

    /// Leaves the last day of this pass to the next pass, and drops its files.
    fn leave_last_day(&mut self) {
        let Some(last) = self.days.pop_last() else { return };
        self.staged.retain(|file| file.summary.date != last);
        self.through = Date(last.0 - 1);
        self.is_cut = true;
    }

    /// Writes the buffered records of this pass as one file for each day.
    fn flush(&mut self) -> Result<(), TableError> {
        let batches = std::mem::take(&mut self.buffer);
        self.buffer_bytes = 0;
        let (streams, mut days) = self.rows(&batches);
        while self.staged.len() + days.len() > self.files_max && self.days.len() > 1 {
            self.leave_last_day();
            days.retain(|date, _| *date <= self.through);
        }
        if days.is_empty() {
            return Ok(());
        }
        let attributes = Attributes::of(&batches);
        let records = batches.iter().map(|batch| batch.records.len() as u64).sum();
        let columns = self.table.choose_attributes(&attributes.seen, records);
        let streams = streams.into_iter().map(Arc::from).collect();
        let mut gather = Gather::new(&batches, streams, &attributes, &columns);
        for (date, mut rows) in days {
            rows.sort_by_key(|row| (row.stream, row.time_us));
            self.files += 1;
            let upload = self.table.upload(date, &self.stem, self.files)?;
            let mut file =
                RecordsFile::new(date, upload, gather.columns(), Effort::Fast, self.limits.row_group_bytes)?;
            let mut rows = rows.as_slice();
            while !rows.is_empty() {
                let (slice, rest) = rows.split_at(gather.slice_rows(rows, SLICE_ROWS, 1, SLICE_BYTES));
                file.write(&gather.batch(slice)?)?;
                rows = rest;
            }
            let (summary, upload) = file.finish()?;
            self.staged.push(self.table.staged(summary, upload)?);
        }
        Ok(())
    }

    /// Sorted names of the streams, and the rows of this pass by day, in the order of their arrival.
    fn rows<'a>(&self, batches: &'a [RecordBatch]) -> (Vec<&'a str>, BTreeMap<Date, Vec<Row>>) {
        let streams: BTreeSet<&str> = batches.iter().map(|batch| &*batch.stream).collect();
        let streams: Vec<&str> = streams.into_iter().collect();
        let mut days: BTreeMap<Date, Vec<Row>> = BTreeMap::new();
        for (number, batch) in batches.iter().enumerate() {
            let stream = streams.binary_search(&&*batch.stream).expect("BUG: a stream is missing") as u32;
            let mut rows = (0..).zip(&batch.records.times_us).peekable();
            while let Some((_, first)) = rows.peek() {
                let date = date_of(**first);
                let is_wanted = date <= self.through && self.after.is_none_or(|after| date > after);
                let mut day = is_wanted.then(|| days.entry(date).or_default());
                while let Some((row, time_us)) = rows.next_if(|(_, time_us)| date_of(**time_us) == date) {
                    if let Some(day) = &mut day {
                        day.push(Row { time_us: *time_us, stream, batch: number as u32, row });
                    }
                }
            }
        }
        (streams, days)
    }

    /// Memory of the buffer, and what it takes to write it. The encoder comes on top; see [`RecordLimits`].
    pub const fn held_bytes(&self) -> usize {
        self.buffer_bytes
    }

    pub fn finish(mut self) -> Result<Staged, TableError> {
        self.flush()?;
        Ok(Staged { files: self.staged, through: self.is_cut.then_some(self.through) })
    }
}

fn date_of(time_us: i64) -> Date {
    const LAST_US: i64 = model::caps::TIMESTAMP_MS_MAX * 1000 + 999;
    assert!((0..=LAST_US).contains(&time_us), "BUG: the time of a record is not between 1970 and 9999");
    Date((time_us / DAY_US) as i32)
}

fn memory_bytes(batch: &RecordBatch) -> usize {
    let values: usize = batch.records.attributes.iter().map(|attribute| attribute.rows.len()).sum();
    BATCH_BYTES
        + batch.records.memory_bytes()
        + ROW_BYTES * batch.records.len()
        + VALUE_BYTES * values
        + batch.id.as_ref().map_or(0, |id| id.len())
}

/// The different attributes of several batches.
#[derive(Debug)]
struct Attributes<'a> {
    seen: Vec<Seen<'a>>,
    /// Positions in `seen` of the attributes of all batches, one after the other.
    numbers: Vec<usize>,
}

impl<'a> Attributes<'a> {
    fn of(batches: &'a [RecordBatch]) -> Self {
        let (mut seen, mut numbers) = (Vec::<Seen<'a>>::new(), Vec::<usize>::new());
        let mut known: HashMap<(&str, AttributeKind), usize> = HashMap::new();
        let mut before = 0..0;
        for batch in batches {
            let first = numbers.len();
            for (at, attribute) in batch.records.attributes.iter().enumerate() {
                let (path, kind) = (&*attribute.path, attribute.kind());
                // most batches have the same attributes in the same order as the one before
                let like = before.clone().nth(at).map(|at| numbers[at]);
                let like = like.filter(|number| seen[*number].kind == kind && seen[*number].path == path);
                let number = like.unwrap_or_else(|| {
                    *known.entry((path, kind)).or_insert_with(|| {
                        seen.push(Seen { path, kind, records: 0 });
                        seen.len() - 1
                    })
                });
                seen[number].records += attribute.rows.len() as u64;
                numbers.push(number);
            }
            before = first..numbers.len();
        }
        Self { seen, numbers }
    }
}

/// Appends the bytes of text of each record.
fn text_bytes(records: &Records, all: &mut Vec<u32>) {
    let first = all.len();
    all.resize(first + records.len(), 0);
    let bytes = &mut all[first..];
    for attribute in &records.attributes {
        let (AttributeValues::Texts(texts) | AttributeValues::Json(texts)) = &attribute.values else {
            continue;
        };
        let mut from = 0;
        for (row, end) in attribute.rows.iter().zip(texts.ends()) {
            let sum = &mut bytes[*row as usize];
            *sum = sum.saturating_add(end - from);
            from = *end;
        }
    }
}
