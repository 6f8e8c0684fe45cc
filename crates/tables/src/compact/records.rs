//! Merges files of records. Rows are not changed, and all of them stay.
//!
//! ```text
//!   files of one day, each sorted by stream and time ─▶ runs of rows of one file ─▶ slices ─▶ encoder
//! ```
//!
//! Of rows with the same stream and time, those of the file that was written first come first, so that log lines with
//! equal times stay in order. The result has the columns of all its inputs.

use super::{CompactLimits, Job, Progress, even_bytes};
use crate::delta::{Files, StagedFile, Table};
use crate::error::TableError;
use crate::fault;
use crate::kind::DATE;
use crate::kind::attributes::AttributeColumn;
use crate::kind::records::{Effort, RECORDS, STREAM, TIME};
use crate::read::{FileRows, RecordSelect, Stop};
use crate::store::{FileStem, StoredFile, Upload, names};
use crate::write::records::{Column, RecordsFile, SLICE_BYTES, SLICE_ROWS, schema};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Number of rows between two questions whether to continue.
const STEP_ROWS: u64 = 4_000;

#[derive(Debug)]
struct Merge {
    table: Arc<Table>,
    /// Keeps the job's files from being erased.
    _files: Arc<Files>,
    job: Job,
    stem: FileStem,
    limits: CompactLimits,
    sources: Vec<Source>,
    attributes: Vec<AttributeColumn>,
    schema: SchemaRef,
    /// Rows of the sources' current batches that are to be written next.
    slice: Vec<(usize, Range<usize>)>,
    slice_rows: usize,
    slice_bytes: usize,
    writer: Option<RecordsFile<Upload>>,
    /// Streams at which a new result file begins, in descending order.
    cuts: Vec<String>,
    staged: Vec<StagedFile>,
    progress: Progress,
    /// Rows of all files of the job.
    rows: u64,
}

/// A file of the job, and its rows that are decoded.
#[derive(Debug)]
struct Source {
    file: FileRows<StoredFile>,
    batch: RecordBatch,
    /// The next row.
    at: usize,
    /// Average size of a row in memory.
    row_bytes: usize,
}

impl Source {
    fn key(&self, at: usize) -> (&str, i64) {
        let times = self.batch.column(1).as_primitive::<TimestampMicrosecondType>();
        (self.batch.column(0).as_string::<i32>().value(at), times.value(at))
    }

    fn is_over(&self) -> bool {
        self.at == self.batch.num_rows()
    }

    /// Loads the next rows. Afterwards, the source is over if there are none.
    fn load(&mut self) -> Result<(), TableError> {
        let last =
            self.batch.num_rows().checked_sub(1).map(|last| (self.key(last).0.to_string(), self.key(last).1));
        loop {
            let Some(batch) = self.file.next_batch()? else {
                self.batch = self.batch.slice(0, 0);
                self.at = 0;
                return Ok(());
            };
            if batch.num_rows() > 0 {
                self.batch = batch;
                break;
            }
        }
        self.at = 0;
        let rows = self.batch.num_rows();
        self.row_bytes = self.batch.get_array_memory_size() / rows;
        let is_behind = last.is_none_or(|(stream, time)| (stream.as_str(), time) <= self.key(0));
        if is_behind && (1..rows).all(|at| self.key(at - 1) <= self.key(at)) {
            return Ok(());
        }
        Err(TableError::damaged(self.file.name(), "its rows are not sorted"))
    }
}

impl Merge {
    fn open(
        table: &Arc<Table>,
        job: &Job,
        stem: &FileStem,
        limits: CompactLimits,
        stop: Stop,
    ) -> Result<Self, TableError> {
        let live = table.files()?;
        let select = Arc::new(RecordSelect { stop, ..RecordSelect::ALL });
        let window = limits.window_bytes / 2;
        let mut opened = Vec::with_capacity(job.files.len());
        // files of one block have the same rank, and their names begin with the same stem
        let mut files: Vec<_> = job.files.iter().collect();
        files.sort_by_key(|file| (file.rank(), names::numbered(&file.path)));
        for file in files {
            let stored = table.file(file)?;
            opened.push(FileRows::open(stored, job.date, RECORDS.schema(), Arc::clone(&select), window)?);
        }
        let known = table.attributes();
        let is_known = |name: &str| {
            let is_fixed = name == DATE || RECORDS.columns.iter().any(|column| column.name == name);
            is_fixed || known.list().iter().any(|column| &*column.name == name)
        };
        for file in &opened {
            if let Some(name) = file.names().find(|name| !is_known(name)) {
                // perhaps another program has changed the table's schema
                let reason =
                    format!("a merge would drop its column {name:?}, which is no attribute of the table");
                return Err(TableError::damaged(file.name(), reason));
            }
        }
        let rows = opened.iter().map(FileRows::rows).sum();
        let names: HashSet<&str> = opened.iter().flat_map(FileRows::names).collect();
        let attributes: Vec<AttributeColumn> =
            known.list().iter().filter(|column| names.contains(&*column.name)).cloned().collect();
        let schema = schema(&attributes);
        assert!(
            schema.field(0).name() == STREAM && schema.field(1).name() == TIME,
            "BUG: the key comes first"
        );
        let mut sources = Vec::with_capacity(opened.len());
        for file in opened {
            let batch = RecordBatch::new_empty(Arc::clone(&schema));
            let mut source =
                Source { file: file.with_schema(Arc::clone(&schema)), batch, at: 0, row_bytes: 0 };
            source.load()?;
            sources.push(source);
        }
        Ok(Self {
            table: Arc::clone(table),
            _files: live,
            job: job.clone(),
            stem: stem.clone(),
            limits,
            sources,
            attributes,
            schema,
            slice: Vec::new(),
            slice_rows: 0,
            slice_bytes: 0,
            writer: None,
            cuts: job.cuts.iter().rev().cloned().collect(),
            staged: Vec::new(),
            progress: Progress::default(),
            rows,
        })
    }

    /// Merges about `rows` more rows, or all that are left.
    fn step(&mut self, rows: u64) -> Result<Progress, TableError> {
        let until = self.progress.samples.saturating_add(rows);
        while !self.progress.done && self.progress.samples < until {
            match self.next_run() {
                Some((source, run)) => self.take(source, run)?,
                None => {
                    self.write_slice()?;
                    self.end_file()?;
                    self.progress.done = true;
                }
            }
        }
        self.progress.bytes = self.sources.iter().map(|source| source.file.stats().bytes).sum();
        Ok(self.progress)
    }

    /// The source with the least row, and its rows that come before the rows of all others.
    fn next_run(&self) -> Option<(usize, Range<usize>)> {
        let mut open = (0..self.sources.len()).filter(|n| !self.sources[*n].is_over());
        let key = |n: usize| self.sources[n].key(self.sources[n].at);
        let mut least = open.next()?;
        let mut second = None;
        for n in open {
            if key(n) < key(least) {
                second = Some(std::mem::replace(&mut least, n));
            } else if second.is_none_or(|second| key(n) < key(second)) {
                second = Some(n);
            }
        }
        let source = &self.sources[least];
        let bound = second.map(|second| (key(second), second));
        let cut = self.cuts.last().map(String::as_str);
        let is_first = |at: usize| {
            let key = source.key(at);
            let is_before_cut = cut.is_none_or(|cut| key.0 < cut) || at == source.at;
            is_before_cut
                && bound.is_none_or(|(other, number)| match key.cmp(&other) {
                    Ordering::Less => true,
                    Ordering::Equal => least < number,
                    Ordering::Greater => false,
                })
        };
        let room = (SLICE_ROWS - self.slice_rows).max(1);
        let most = source.batch.num_rows().min(source.at + room);
        let len = (source.at + 1..most).take_while(|at| is_first(*at)).count() + 1;
        Some((least, source.at..source.at + len))
    }

    fn take(&mut self, number: usize, run: Range<usize>) -> Result<(), TableError> {
        let source = &self.sources[number];
        let (stream, _) = source.key(run.start);
        if self.cuts.last().is_some_and(|cut| cut.as_str() <= stream) {
            let stream = stream.to_string();
            while self.cuts.pop_if(|cut| *cut <= stream).is_some() {}
            self.write_slice()?;
            self.end_file()?;
        }
        let source = &mut self.sources[number];
        source.at = run.end;
        self.slice_rows += run.len();
        self.slice_bytes += run.len() * source.row_bytes;
        self.progress.samples += run.len() as u64;
        self.slice.push((number, run));
        let is_over = source.is_over();
        if is_over || self.slice_rows >= SLICE_ROWS || self.slice_bytes >= SLICE_BYTES {
            self.write_slice()?;
        }
        if is_over { self.sources[number].load() } else { Ok(()) }
    }

    fn write_slice(&mut self) -> Result<(), TableError> {
        let rows = std::mem::take(&mut self.slice_rows);
        self.slice_bytes = 0;
        let slice = std::mem::take(&mut self.slice);
        let batch = match slice.as_slice() {
            [] => return Ok(()),
            [(source, run)] => self.sources[*source].batch.slice(run.start, run.len()),
            runs => self.gather(runs, rows),
        };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let number = self.staged.len() as u32 + 1;
                let upload = self.table.upload(self.job.date, &self.stem, number)?;
                let bytes = self.limits.row_group_bytes;
                // a small result is probably merged again
                let is_large = self.job.bytes() >= self.limits.file_bytes / 2;
                let effort = if is_large { Effort::High } else { Effort::Fast };
                none.insert(RecordsFile::new(self.job.date, upload, &self.attributes, effort, bytes)?)
            }
        };
        writer.write(&batch)?;
        if writer.written_bytes() as u64 >= even_bytes(&self.job, &self.limits) {
            self.end_file()
        } else {
            Ok(())
        }
    }

    fn gather(&self, runs: &[(usize, Range<usize>)], rows: usize) -> RecordBatch {
        let types = RECORDS.columns.iter().map(|column| column.data_type);
        let types = types.chain(self.attributes.iter().map(AttributeColumn::data_type));
        let columns = types.enumerate().map(|(number, of)| -> ArrayRef {
            let mut column = Column::new(of, rows, 0);
            for (source, run) in runs {
                column.append_array(self.sources[*source].batch.column(number), run.clone());
            }
            column.finish(rows)
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect());
        batch.expect("BUG: columns differ from the schema")
    }

    /// Fails if the results do not have all rows.
    fn check_rows(&self) -> Result<(), TableError> {
        let written: u64 = self.staged.iter().map(|file| file.summary.rows).sum();
        if written == self.rows {
            return Ok(());
        }
        let file = format!("(merge of {} files of {})", self.job.files.len(), self.job.date);
        Err(TableError::damaged(&file, format!("{} rows became {written}", self.rows)))
    }

    fn end_file(&mut self) -> Result<(), TableError> {
        if let Some(writer) = self.writer.take() {
            let (summary, upload) = writer.finish()?;
            self.staged.push(self.table.staged(summary, upload)?);
            fault::point("compaction_file_staged")?;
        }
        Ok(())
    }
}

/// Like [`super::run`], but a stop is an error.
pub(super) fn merge(
    table: &Arc<Table>,
    job: &Job,
    stem: &FileStem,
    limits: CompactLimits,
    stop: &Stop,
    mut go_on: impl FnMut(&Progress) -> bool,
) -> Result<Option<Progress>, TableError> {
    let mut merge = Merge::open(table, job, stem, limits, stop.clone())?;
    fault::point("compaction_opened")?;
    loop {
        let progress = merge.step(STEP_ROWS)?;
        fault::point("compacting")?;
        if progress.done {
            fault::point("compaction_staged")?;
            merge.check_rows()?;
            let replaced = table.rewrite(&job.files, &merge.staged, false)?;
            fault::point("compaction_committed")?;
            return Ok(replaced.then_some(progress));
        }
        if !go_on(&progress) {
            return Ok(None);
        }
    }
}
