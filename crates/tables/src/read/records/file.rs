use super::{RecordSelect, prune};
use crate::date::Date;
use crate::error::TableError;
use crate::kind::records::{RECORDS, STREAM, TIME};
use crate::kind::{DATE, Type};
use crate::read::streamed_rows::{DECODER_BYTES, decode, selection};
use crate::read::{Ranges, ReadStats, footer, guarded};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, BooleanArray, Date32Array, RecordBatch, new_null_array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions, RowFilter};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, RowGroupMetaData};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a file that a scan fetches at a time, and bytes of a batch, as far as the file says how large its values
/// are.
pub(super) const WINDOW_BYTES: usize = 4 << 20;

const BATCH_ROWS: usize = 8192;

/// Rows of one file that match a selection, in batches of a given schema.
#[derive(Debug)]
pub(crate) struct FileRows<R: Ranges> {
    file: R,
    date: Date,
    schema: SchemaRef,
    select: Arc<RecordSelect>,
    metadata: ArrowReaderMetadata,
    /// The next row group.
    group: usize,
    /// Rows of the current row group that are not decoded yet, in portions.
    windows: VecDeque<Vec<Range<usize>>>,
    window_bytes: usize,
    decoder: Option<ParquetPushDecoder>,
    /// True if times are of microseconds, as in our own files.
    is_micros: bool,
    stats: ReadStats,
}

impl<R: Ranges> FileRows<R> {
    /// Opens a file. Columns of `schema` that the file lacks are null.
    pub(crate) fn open(
        file: R,
        date: Date,
        schema: SchemaRef,
        select: Arc<RecordSelect>,
        window_bytes: usize,
    ) -> Result<Self, TableError> {
        let metadata = guarded(file.name(), || {
            let metadata = footer::read(&file, PageIndexPolicy::Optional)?;
            footer::checked_version(&RECORDS, file.name(), &metadata)?;
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            ArrowReaderMetadata::try_new(Arc::new(metadata), options)
                .map_err(|e| TableError::damaged(file.name(), e))
        })?;
        for column in RECORDS.columns.iter().filter(|column| !column.is_nullable) {
            if metadata.schema().field_with_name(column.name).is_err() {
                let reason =
                    format!("not the columns of a {} table: {} is missing", RECORDS.name, column.name);
                return Err(TableError::damaged(file.name(), reason));
            }
        }
        let time = metadata.schema().field_with_name(TIME).map(|field| field.data_type());
        let is_micros = time.is_ok_and(|of| *of == Type::TimestampMicros.arrow());
        let (decoder, stats) = (None, ReadStats::default());
        let (group, windows) = (0, VecDeque::new());
        Ok(Self {
            file,
            date,
            schema,
            select,
            metadata,
            group,
            windows,
            window_bytes,
            decoder,
            is_micros,
            stats,
        })
    }

    /// Next rows, perhaps none. `None` after the last.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, TableError> {
        loop {
            let Some(decoder) = &mut self.decoder else {
                if let Some(rows) = self.windows.pop_front() {
                    self.decoder = Some(guarded(self.file.name(), || self.open_window(&rows))?);
                } else if self.group < self.metadata.metadata().num_row_groups() {
                    self.select.stop.check()?;
                    self.windows = guarded(self.file.name(), || Ok(self.windows_of(self.group)))?;
                    self.stats.row_groups += u64::from(!self.windows.is_empty());
                    self.group += 1;
                } else {
                    return Ok(None);
                }
                continue;
            };
            let decoded =
                guarded(self.file.name(), || decode(&self.file, decoder, &self.select.stop, &mut self.stats));
            let Some(batch) = decoded? else {
                self.decoder = None;
                continue;
            };
            self.stats.rows += batch.num_rows() as u64;
            return self.conform(&batch).map(Some);
        }
    }

    /// Divides the rows of a row group that may match into portions of about `window_bytes`.
    fn windows_of(&self, group: usize) -> VecDeque<Vec<Range<usize>>> {
        let parquet = self.metadata.metadata();
        let rows = prune::rows(parquet, group, &self.select, self.is_micros);
        let of = parquet.row_group(group);
        let bytes = self.wanted(of).map(|c| u64::try_from(c.compressed_size()).unwrap_or(0));
        let portion = rows_of(of, bytes.fold(0, u64::saturating_add), self.window_bytes).max(1);
        let (mut windows, mut window, mut room) = (VecDeque::new(), Vec::new(), portion);
        for mut range in rows {
            while range.start < range.end {
                let end = range.end.min(range.start.saturating_add(room));
                room -= end - range.start;
                window.push(range.start..end);
                range.start = end;
                if room == 0 {
                    windows.push_back(std::mem::take(&mut window));
                    room = portion;
                }
            }
        }
        windows.extend(Some(window).filter(|window| !window.is_empty()));
        windows
    }

    /// Decoder of some rows of the current row group.
    fn open_window(&self, rows: &[Range<usize>]) -> Result<ParquetPushDecoder, TableError> {
        self.select.stop.check()?;
        let (parquet, group) = (self.metadata.metadata(), self.group - 1);
        let of = parquet.row_group(group);
        // a text in a dictionary takes space for each row when it is decoded
        let size = |c: &ColumnChunkMetaData| {
            u64::try_from(c.uncompressed_size().max(c.unencoded_byte_array_data_bytes().unwrap_or(0)))
                .unwrap_or(0)
        };
        let batch = rows_of(of, self.wanted(of).map(size).fold(0, u64::saturating_add), self.window_bytes);
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(self.metadata.clone())
            .with_batch_size(batch.clamp(1, BATCH_ROWS))
            .with_row_groups(vec![group])
            .with_projection(self.columns(|name| self.schema.field_with_name(name).is_ok()));
        if !prune::all_match(parquet, group, &self.select, self.is_micros) {
            builder = builder.with_row_filter(self.filter());
        }
        let all = usize::try_from(of.num_rows()).unwrap_or(0);
        if rows != [Range { start: 0, end: all }] {
            builder = builder.with_row_selection(selection(rows, all));
        }
        builder.build().map_err(|e| TableError::damaged(self.file.name(), e))
    }

    fn wanted<'a>(&self, group: &'a RowGroupMetaData) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
        let is_wanted = |name: &String| self.schema.field_with_name(name).is_ok();
        group.columns().iter().filter(move |c| c.column_path().parts().first().is_some_and(is_wanted))
    }

    /// Number of the file's rows.
    pub(crate) fn rows(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Names of the file's columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.metadata.schema().fields().iter().map(|field| field.name().as_str())
    }

    /// Reads with another schema from now on. Nothing must have been read before.
    pub(crate) fn with_schema(self, schema: SchemaRef) -> Self {
        Self { schema, ..self }
    }

    pub(crate) fn name(&self) -> &str {
        self.file.name()
    }

    fn columns(&self, wanted: impl Fn(&str) -> bool) -> ProjectionMask {
        let fields = self.metadata.schema().fields().iter().enumerate();
        let roots = fields.filter(|(_, field)| field.name() != DATE && wanted(field.name()));
        let schema = self.metadata.metadata().file_metadata().schema_descr();
        ProjectionMask::roots(schema, roots.map(|(at, _)| at))
    }

    fn filter(&self) -> RowFilter {
        let by_stream = self.select.stream.is_some();
        let columns = self.columns(|name| name == TIME || by_stream && name == STREAM);
        let select = Arc::clone(&self.select);
        let predicate = ArrowPredicateFn::new(columns, move |batch| matching(&batch, &select));
        RowFilter::new(vec![Box::new(predicate)])
    }

    /// Converts a decoded batch to the wanted schema.
    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, TableError> {
        let rows = batch.num_rows();
        let column = |field: &arrow_schema::FieldRef| -> Result<ArrayRef, ArrowError> {
            if field.name() == DATE {
                return Ok(Arc::new(Date32Array::from(vec![self.date.0; rows])));
            }
            match batch.column_by_name(field.name()) {
                Some(found) if found.data_type() == field.data_type() => Ok(Arc::clone(found)),
                Some(found) => cast(found, field.data_type()),
                None => Ok(new_null_array(field.data_type(), rows)),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        columns
            .and_then(|columns| {
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            })
            .map_err(|e| TableError::damaged(self.file.name(), e))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let decoder = self.decoder.as_ref().map_or(0, |d| DECODER_BYTES + d.buffered_bytes() as usize);
        decoder + self.metadata.metadata().memory_size()
    }

    pub(crate) const fn stats(&self) -> ReadStats {
        self.stats
    }
}

/// Number of rows that together have about `wanted` bytes, if the whole row group has `bytes`.
fn rows_of(group: &RowGroupMetaData, bytes: u64, wanted: usize) -> usize {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    usize::try_from(u128::from(rows) * wanted as u128 / u128::from(bytes.max(1))).unwrap_or(usize::MAX)
}

/// Marks the wanted rows of a batch.
fn matching(batch: &RecordBatch, select: &RecordSelect) -> Result<BooleanArray, ArrowError> {
    let unexpected = || ArrowError::SchemaError("a column has an unexpected type".into());
    select.stop.check().map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    let column = |name: &str, of: Type| -> Result<ArrayRef, ArrowError> {
        let found = batch.column_by_name(name).ok_or_else(unexpected)?;
        cast(found, &of.arrow())
    };
    let times = column(TIME, Type::TimestampMicros)?;
    let times = times.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(unexpected)?;
    let [from, to] = select.range_us;
    let mut keep: Vec<bool> = times.values().iter().map(|time| (from..=to).contains(time)).collect();
    if let Some(wanted) = &select.stream {
        let streams = column(STREAM, Type::Text)?;
        let streams = streams.as_string_opt::<i32>().ok_or_else(unexpected)?;
        keep.iter_mut().enumerate().for_each(|(i, keep)| *keep &= streams.value(i) == wanted);
    }
    Ok(BooleanArray::from(keep))
}
