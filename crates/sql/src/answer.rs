//! Encodes the rows of a result.
//!
//! | format | |
//! | --- | --- |
//! | [`Format::Json`] | the names and types of the columns, and a list for each row |
//! | [`Format::Csv`] | a line with the names of the columns, and a line for each row |
//! | [`Format::Arrow`] | a stream of Arrow's IPC |
//!
//! Rows are encoded a few at a time, because views may be much larger when they are written than they are in memory.

use crate::error::SqlError;
use crate::prepare::lengths;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Texts of rows that are encoded together, unless one row has more.
const SLICE_BYTES: usize = 256 << 10;

/// Encoding takes at most this many times the texts: a copy, and six times as much for what JSON escapes.
const ENCODED: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Csv,
    Arrow,
}

impl Format {
    pub const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Arrow];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Writes a result to `out`, which refuses what is too much by failing.
pub struct Answer<'a> {
    out: &'a mut (dyn Write + Send),
    format: Format,
    /// Columns as they are written.
    schema: SchemaRef,
    arrow: Option<StreamWriter<Vec<u8>>>,
    rows: u64,
    /// For rows that are larger than usual.
    memory: Option<MemoryReservation>,
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("format", &self.format)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl<'a> Answer<'a> {
    pub fn new(out: &'a mut (dyn Write + Send), format: Format) -> Self {
        Self { out, format, schema: Arc::new(Schema::empty()), arrow: None, rows: 0, memory: None }
    }

    pub(crate) fn begin(&mut self, schema: &Schema, pool: &Arc<dyn MemoryPool>) -> Result<(), SqlError> {
        self.memory = Some(MemoryConsumer::new("a row of the answer").register(pool));
        let fields: Vec<_> = schema.fields().iter().map(written).collect();
        self.schema = Arc::new(Schema::new(fields));
        match self.format {
            Format::Json => self.put(&columns_json(&self.schema)),
            // a batch without rows writes the names
            Format::Csv => self.csv(&RecordBatch::new_empty(Arc::clone(&self.schema)), true),
            Format::Arrow => {
                let writer = StreamWriter::try_new(Vec::new(), &self.schema).map_err(|error| bug(&error))?;
                self.arrow = Some(writer);
                self.flush_arrow()
            }
        }
    }

    pub(crate) fn batch(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        let sizes = row_bytes(batch);
        slices(&sizes, SLICE_BYTES).try_for_each(|rows| {
            let bytes = sizes[rows.clone()].iter().sum::<usize>();
            let reserved = if bytes > SLICE_BYTES { ENCODED * bytes } else { 0 };
            if let Some(memory) = &self.memory {
                memory.try_resize(reserved).map_err(|error| SqlError::of(&error, false))?;
            }
            self.slice(&batch.slice(rows.start, rows.len()))
        })
    }

    fn slice(&mut self, slice: &RecordBatch) -> Result<(), SqlError> {
        let columns = slice.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().map_err(|error| bug(&error))?;
        let options = RecordBatchOptions::new().with_row_count(Some(slice.num_rows()));
        let slice = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| bug(&error))?;
        match self.format {
            Format::Json => self.json(&slice)?,
            Format::Csv => self.csv(&slice, false)?,
            Format::Arrow => {
                if let Some(writer) = &mut self.arrow {
                    writer.write(&slice).map_err(|error| bug(&error))?;
                }
                self.flush_arrow()?;
            }
        }
        self.rows += slice.num_rows() as u64;
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Result<(), SqlError> {
        match self.format {
            Format::Json => self.put(b"]"),
            Format::Csv => Ok(()),
            Format::Arrow => {
                if let Some(writer) = &mut self.arrow {
                    writer.finish().map_err(|error| bug(&error))?;
                }
                self.flush_arrow()
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        self.out.write_all(bytes).map_err(|_| SqlError::Answer)
    }

    fn flush_arrow(&mut self) -> Result<(), SqlError> {
        let Some(writer) = &mut self.arrow else { return Ok(()) };
        let bytes = std::mem::take(writer.get_mut());
        self.put(&bytes)
    }

    fn json(&mut self, slice: &RecordBatch) -> Result<(), SqlError> {
        let options = EncoderOptions::default().with_explicit_nulls(true);
        let columns = slice.columns().iter().map(shown).collect::<Result<Vec<_>, _>>()?;
        let fields = columns.iter().zip(self.schema.fields());
        let fields: Vec<FieldRef> = fields
            .map(|(column, field)| Arc::new(Field::new(field.name(), column.data_type().clone(), true)))
            .collect();
        let encoders = columns.iter().zip(&fields);
        let encoders = encoders.map(|(column, field)| make_encoder(field, column, &options));
        let mut encoders =
            encoders.collect::<Result<Vec<NullableEncoder<'_>>, _>>().map_err(|error| bug(&error))?;
        let mut line = Vec::new();
        for row in 0..slice.num_rows() {
            line.extend_from_slice(if self.rows + row as u64 > 0 { b",\n[" } else { b"\n[" });
            for (at, encoder) in encoders.iter_mut().enumerate() {
                if at > 0 {
                    line.push(b',');
                }
                if encoder.is_null(row) {
                    line.extend_from_slice(b"null");
                } else if let Some(text) = not_finite(&columns[at], row) {
                    quote(text, &mut line);
                } else {
                    encoder.encode(row, &mut line);
                }
            }
            line.push(b']');
        }
        drop(encoders);
        self.put(&line)
    }

    fn csv(&mut self, slice: &RecordBatch, with_names: bool) -> Result<(), SqlError> {
        let mut out = Kept { out: self.out, is_refused: false };
        let written = csv::WriterBuilder::new().with_header(with_names).build(&mut out).write(slice);
        match written {
            Err(_) if out.is_refused => Err(SqlError::Answer),
            // the type of a column is known before its values are
            Err(error) => Err(SqlError::Execution(format!("the result cannot be written as CSV: {error}"))),
            Ok(()) if out.is_refused => Err(SqlError::Answer),
            Ok(()) => Ok(()),
        }
    }
}

/// Remembers whether a write failed, because CSV's writer flushes when it is dropped.
struct Kept<'a> {
    out: &'a mut dyn Write,
    is_refused: bool,
}

impl Write for Kept<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.is_refused |= written.is_err();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn bug(error: &ArrowError) -> SqlError {
    SqlError::Bug(error.to_string())
}

/// Texts are written as plain texts, because older readers of Arrow do not know views.
fn written(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        _ => return Arc::clone(field),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// Times as texts. The encoder would write an error in the place of a time that has no text.
fn shown(column: &ArrayRef) -> Result<ArrayRef, SqlError> {
    use DataType::{Date32, Date64, Duration, Interval, Time32, Time64, Timestamp};
    match column.data_type() {
        Date32 | Date64 | Duration(_) | Interval(_) | Time32(_) | Time64(_) | Timestamp(..) => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(column, &DataType::Utf8, &options).map_err(|error| {
                SqlError::Execution(format!("the result cannot be written as JSON: {error}"))
            })
        }
        _ => Ok(Arc::clone(column)),
    }
}

/// JSON has no such numbers. Exports write them likewise.
fn not_finite(column: &ArrayRef, row: usize) -> Option<&'static str> {
    let number = match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        _ => return None,
    };
    match number {
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        number if number.is_nan() => Some("NaN"),
        _ => None,
    }
}

fn columns_json(schema: &Schema) -> Vec<u8> {
    let mut json = br#""columns":["#.to_vec();
    for (at, field) in schema.fields().iter().enumerate() {
        json.extend_from_slice(if at > 0 { b",{\"name\":" } else { b"{\"name\":" });
        quote(field.name(), &mut json);
        json.extend_from_slice(b",\"type\":");
        quote(&field.data_type().to_string(), &mut json);
        json.push(b'}');
    }
    json.extend_from_slice(br#"],"rows":["#);
    json
}

fn quote(text: &str, json: &mut Vec<u8>) {
    json.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend_from_slice(&[b'\\', c as u8]),
            c if c < ' ' => json.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => json.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    json.push(b'"');
}

/// About how many bytes each row has if its texts are written out.
fn row_bytes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![8 * batch.num_columns(); batch.num_rows()];
    for column in batch.columns() {
        lengths(column).into_iter().zip(&mut sizes).for_each(|(bytes, size)| *size += bytes);
    }
    sizes
}

/// Divides rows into ranges of at most so many bytes, or of one row.
pub(crate) fn slices(row_bytes: &[usize], most: usize) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let mut bytes = *row_bytes.get(from)?;
        let mut to = from + 1;
        while to < row_bytes.len() && bytes + row_bytes[to] <= most {
            bytes += row_bytes[to];
            to += 1;
        }
        let rows = from..to;
        from = to;
        Some(rows)
    })
}
