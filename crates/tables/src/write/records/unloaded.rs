//! The rows of a batch that is in no table yet, in the columns that the table has for them.

use super::gather::Gather;
use super::{Attributes, RecordBatch, Row, SLICE_ROWS, date_of, memory_bytes};
use crate::error::TableError;
use crate::kind::DATE;
use crate::kind::attributes::AttributeColumns;
use crate::kind::records::{ATTRIBUTES, TIME};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, Date32Array, RecordBatchOptions, new_null_array};
use arrow_schema::SchemaRef;
use model::Records;
use std::sync::Arc;

/// Memory of an attribute while its values are converted, besides these and its path.
const ATTRIBUTE_BYTES: usize = 300;

/// Memory of a row: its times, its id, the ends of these. The name of its stream comes on top.
const FIXED_BYTES: usize = 120;

/// Memory of a value in a row, which may have become a view.
const VALUE_BYTES: usize = 32;

/// Converts the records of a batch to rows, in the order of their arrival, some at a time.
#[derive(Debug)]
pub struct Unloaded {
    gather: Gather,
    rows: Vec<Row>,
    /// The first row that is not converted yet.
    next: usize,
    schema: SchemaRef,
    /// Memory of a row without its texts.
    row_bytes: usize,
    slice_bytes: usize,
}

impl Unloaded {
    /// Drops attributes that no column of `schema` has. It has those of the table's columns that are wanted; `columns` are all columns
    /// of attributes.
    pub fn select(records: &mut Records, columns: &AttributeColumns, schema: &SchemaRef) {
        let has = |name: &str| schema.field_with_name(name).is_ok();
        let has_rest = has(ATTRIBUTES);
        records.attributes.retain(|attribute| {
            let column = columns.find(&attribute.path, attribute.kind());
            column.map_or(has_rest, |column| has(&columns.list()[column].name))
        });
    }

    /// Memory of a batch while it is converted, besides the rows that are converted.
    pub fn memory_bytes(batch: &RecordBatch) -> usize {
        let path_bytes = batch.records.attributes.iter().map(|attribute| 3 * attribute.path.len());
        let attributes = ATTRIBUTE_BYTES * batch.records.attributes.len() + path_bytes.sum::<usize>();
        memory_bytes(batch) + attributes
    }

    /// The rows of the records whose time is wanted, after [`Self::select`]. Rows that are converted together take about
    /// `slice_bytes`. Times must be between the years 1970 and 9999.
    pub fn new(
        batch: RecordBatch,
        columns: &AttributeColumns,
        schema: SchemaRef,
        slice_bytes: usize,
        is_wanted: impl Fn(i64) -> bool,
    ) -> Self {
        let times_us = &batch.records.times_us;
        let wanted = (0..).zip(times_us).filter(|(_, time_us)| is_wanted(**time_us));
        let rows = wanted.map(|(row, time_us)| Row { time_us: *time_us, stream: 0, batch: 0, row });
        let rows = rows.collect();
        let (stream, batches) = (Arc::clone(&batch.stream), [batch]);
        let stream_bytes = stream.len();
        let gather = Gather::new(&batches, vec![stream], &Attributes::of(&batches), columns);
        // the fixed columns are built whether they are wanted or not
        let row_bytes = FIXED_BYTES + 2 * stream_bytes + VALUE_BYTES * schema.fields().len();
        Self { gather, rows, next: 0, schema, row_bytes, slice_bytes }
    }

    /// Memory of the rows that are converted next. More than `slice_bytes` only if it is one row.
    pub fn next_bytes(&self) -> usize {
        let slice = &self.rows[self.next..][..self.slice()];
        slice.iter().map(|row| self.row_bytes + 2 * self.gather.bytes_of(row) as usize).sum()
    }

    fn slice(&self) -> usize {
        let rows = &self.rows[self.next..];
        // a text is copied into a buffer that grows
        self.gather.slice_rows(rows, SLICE_ROWS, self.row_bytes / 2, self.slice_bytes / 2)
    }
}

impl Iterator for Unloaded {
    type Item = Result<arrow_array::RecordBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.next + self.slice();
        let slice = &self.rows[std::mem::replace(&mut self.next, end)..end];
        if slice.is_empty() {
            return None;
        }
        Some(self.gather.batch(slice).map(|rows| conform(&rows, &self.schema)))
    }
}

/// Selects the columns of `schema`. Columns that the batch lacks are null. So are those that have another type there: the table got
/// such a column after the batch's files, so the batch has only nulls of it.
pub fn conform(batch: &arrow_array::RecordBatch, schema: &SchemaRef) -> arrow_array::RecordBatch {
    let column = |field: &arrow_schema::FieldRef| -> ArrayRef {
        match batch.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
            None if field.name() == DATE => {
                let times = batch.column_by_name(TIME).expect("BUG: rows have no time");
                let times = times.as_primitive::<TimestampMicrosecondType>().values();
                Arc::new(Date32Array::from_iter_values(times.iter().map(|time_us| date_of(*time_us).0)))
            }
            other => {
                debug_assert!(other.is_none_or(|column| column.null_count() == batch.num_rows()));
                new_null_array(field.data_type(), batch.num_rows())
            }
        }
    };
    let columns = schema.fields().iter().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    arrow_array::RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .expect("BUG: the columns of an attribute have different types")
}
