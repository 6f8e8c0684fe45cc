//! Reads the rows of a records table.
//!
//! ```text
//!   live files by day, time, stream ─▶ row groups and pages likewise ─▶ time and stream of the rows there
//!                                   ─▶ wanted columns of the rows that match ─▶ batches of one schema
//! ```
//!
//! Files are read one after the other. Within a file of ours, rows are sorted by stream and time. Damaged files are
//! omitted and named in [`RecordScan::warnings`].

mod file;
mod prune;

use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::kind::DATE;
use crate::kind::attributes::AttributeColumns;
use crate::kind::records::RECORDS;
use crate::live_file::LiveFile;
use crate::read::{ReadStats, Stop};
use crate::store::StoredFile;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
pub(crate) use file::FileRows;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct RecordSelect {
    /// First and last wanted time, in microseconds.
    pub range_us: [i64; 2],
    /// `None` for all streams of the table.
    pub stream: Option<String>,
    /// Names of the wanted columns. `None` for all.
    pub columns: Option<Vec<String>>,
    pub stop: Stop,
}

impl RecordSelect {
    pub const ALL: Self =
        Self { range_us: [i64::MIN, i64::MAX], stream: None, columns: None, stop: Stop::NEVER };

    fn may_match(&self, file: &LiveFile) -> bool {
        let [from, to] = self.range_us.map(|us| us.div_euclid(1000));
        let stream =
            |stream: &String| file.names.as_ref().is_none_or(|(min, max)| min <= stream && stream <= max);
        file.range.start_ms <= to && file.range.end_ms >= from && self.stream.as_ref().is_none_or(stream)
    }
}

/// Rows of one table version that match a selection.
#[derive(Debug)]
pub struct RecordScan {
    table: Arc<Table>,
    /// Files that are not open yet.
    files: VecDeque<LiveFile>,
    select: Arc<RecordSelect>,
    schema: SchemaRef,
    open: Option<FileRows<StoredFile>>,
    window_bytes: usize,
    unreadable: Vec<TableError>,
    stats: ReadStats,
    _files: Arc<Files>,
}

impl RecordScan {
    /// Begins a scan of the latest version seen.
    pub fn open(table: &Arc<Table>, select: RecordSelect) -> Result<Self, TableError> {
        Self::open_files(table, &table.files()?, select)
    }

    pub fn open_files(
        table: &Arc<Table>,
        files: &Arc<Files>,
        select: RecordSelect,
    ) -> Result<Self, TableError> {
        assert_eq!(table.kind().name, RECORDS.name, "BUG: records are read from a table of another kind");
        // the schema may be of a later version than the files, which then lack some columns
        let schema = schema(&table.attributes());
        let schema = match &select.columns {
            None => schema,
            Some(names) => {
                let fields = schema.fields().iter().filter(|field| names.contains(field.name()));
                Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()))
            }
        };
        let wanted = files.all().iter().filter(|file| select.may_match(file));
        Ok(Self {
            table: Arc::clone(table),
            files: wanted.cloned().collect(),
            select: Arc::new(select),
            schema,
            open: None,
            window_bytes: file::WINDOW_BYTES,
            unreadable: Vec::new(),
            stats: ReadStats::default(),
            _files: Arc::clone(files),
        })
    }

    /// Bytes of a file that the scan fetches at a time, and of a batch, as far as the file says how large its values are.
    #[must_use]
    pub fn with_window(self, window_bytes: usize) -> Self {
        Self { window_bytes: window_bytes.min(file::WINDOW_BYTES), ..self }
    }

    /// Columns of all batches, in the order of the table.
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of files that were not excluded, and have not been opened yet.
    pub fn files_left(&self) -> usize {
        self.files.len()
    }

    /// Next rows, of which there is at least one. `None` after the last.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, TableError> {
        loop {
            self.select.stop.check()?;
            match self.next_of_file() {
                Ok(Some(batch)) if batch.num_rows() > 0 => return Ok(Some(batch)),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.close();
                    let Some(file) = self.files.pop_front() else { return Ok(None) };
                    match self.open_file(&file) {
                        Ok(open) => self.open = Some(open),
                        Err(error) => self.leave(error)?,
                    }
                }
                Err(error) => {
                    self.close();
                    self.leave(error)?;
                }
            }
        }
    }

    fn next_of_file(&mut self) -> Result<Option<RecordBatch>, TableError> {
        self.open.as_mut().map_or(Ok(None), FileRows::next_batch)
    }

    fn open_file(&self, file: &LiveFile) -> Result<FileRows<StoredFile>, TableError> {
        let (schema, select) = (Arc::clone(&self.schema), Arc::clone(&self.select));
        FileRows::open(self.table.file(file)?, file.date, schema, select, self.window_bytes)
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.stats += open.stats();
        }
    }

    fn leave(&mut self, error: TableError) -> Result<(), TableError> {
        if !error.is_of_one_file() {
            return Err(error);
        }
        self.unreadable.push(error);
        Ok(())
    }

    /// Memory of the scan without the returned batches.
    pub fn held_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, FileRows::held_bytes) + self.files.len() * size_of::<LiveFile>()
    }

    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.unreadable.iter().map(|error| format!("{error}; its records are left out"))
    }

    /// True if a file was deleted after the scan began. The result then matches no version.
    pub fn has_lost_files(&self) -> bool {
        self.unreadable.iter().any(|error| matches!(error, TableError::Missing { .. }))
    }

    pub fn stats(&self) -> ReadStats {
        let mut stats = self.stats;
        stats += self.open.as_ref().map_or_else(ReadStats::default, FileRows::stats);
        stats
    }
}

impl Iterator for RecordScan {
    type Item = Result<RecordBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// All columns of a table with these attributes: the day, the fixed columns, the attributes.
pub fn schema(attributes: &AttributeColumns) -> SchemaRef {
    let date = Arc::new(Field::new(DATE, DataType::Date32, false));
    let attribute = |c: &_| -> FieldRef { field(c) };
    let fixed = RECORDS.schema();
    let fields = std::iter::once(date)
        .chain(fixed.fields().iter().cloned())
        .chain(attributes.list().iter().map(attribute));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn field(column: &crate::kind::attributes::AttributeColumn) -> FieldRef {
    Arc::new(Field::new(&*column.name, column.data_type().arrow(), true))
}
