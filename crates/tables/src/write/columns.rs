//! Rows that wait for the encoder, column by column.

use crate::block::{Form, Stretch};
use crate::schema;
use arrow_array::builder::{BinaryBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    ArrayRef, Float64Array, Int8Array, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    TimestampMillisecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef};
use model::labels::METRIC_NAME;
use std::sync::Arc;

/// Rows that wait for the encoder.
#[derive(Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    name: StringBuilder,
    labels: MapBuilder<StringBuilder, StringBuilder>,
    series: BinaryBuilder,
    start: Vec<i64>,
    end: Vec<i64>,
    count: Vec<i32>,
    timestamps: Vec<i64>,
    timestamps_ends: Vec<i32>,
    exponent: Vec<Option<i8>>,
    /// The mantissas of all rows; [`crate::block::rows`] appends those of the next row here.
    pub(super) mantissas: Vec<i64>,
    mantissas_ends: Vec<i32>,
    floats: Vec<f64>,
    floats_ends: Vec<i32>,
}

impl Columns {
    pub(super) fn new() -> Self {
        let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
        Self {
            schema: schema::file_schema(),
            name: StringBuilder::new(),
            labels: MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()),
            series: BinaryBuilder::new(),
            start: Vec::new(),
            end: Vec::new(),
            count: Vec::new(),
            timestamps: Vec::new(),
            timestamps_ends: vec![0],
            exponent: Vec::new(),
            mantissas: Vec::new(),
            mantissas_ends: vec![0],
            floats: Vec::new(),
            floats_ends: vec![0],
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.count.len()
    }

    pub(super) const fn samples(&self) -> usize {
        self.timestamps.len()
    }

    /// Adds a row. Its mantissas, if that is its form, end at `mantissas_end`.
    pub(super) fn finish_row(&mut self, name: &str, row: &Stretch<'_>, form: Form, mantissas_end: usize) {
        let samples = row.timestamps.len();
        self.name.append_value(name);
        for (name, value) in row.labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
            self.labels.keys().append_value(name);
            self.labels.values().append_value(value);
        }
        self.labels.append(true).expect("BUG: as many keys as values");
        self.series.append_value(row.key.0.to_be_bytes());
        self.start.push(row.timestamps[0]);
        self.end.push(row.timestamps[samples - 1]);
        self.count.push(length(samples));
        self.timestamps.extend_from_slice(row.timestamps);
        self.timestamps_ends.push(length(self.timestamps.len()));
        match form {
            Form::Decimal(exponent) => self.exponent.push(Some(exponent as i8)),
            Form::Floats => {
                self.exponent.push(None);
                self.floats.extend_from_slice(row.values);
            }
        }
        self.mantissas_ends.push(length(mantissas_end));
        self.floats_ends.push(length(self.floats.len()));
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let longs = self.start.capacity() + self.end.capacity() + self.timestamps.capacity();
        8 * (longs + self.mantissas.capacity() + self.floats.capacity() + self.count.capacity())
            + self.name.values_slice().len()
            + 64 * self.count.len()
    }

    /// All rows as a batch; none are left.
    pub(super) fn take_batch(&mut self) -> RecordBatch {
        use std::mem::take;
        let decimal: NullBuffer = self.exponent.iter().map(Option::is_some).collect();
        let floats = NullBuffer::new(!decimal.inner());
        let timestamps = |values: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from(values).with_timezone("UTC"))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.name.finish()),
            Arc::new(self.take_labels()),
            Arc::new(self.series.finish()),
            timestamps(take(&mut self.start)),
            timestamps(take(&mut self.end)),
            Arc::new(Int32Array::from(take(&mut self.count))),
            list(
                schema::timestamp(),
                &mut self.timestamps_ends,
                timestamps(take(&mut self.timestamps)),
                None,
            ),
            Arc::new(Int8Array::from(take(&mut self.exponent))),
            list(
                DataType::Int64,
                &mut self.mantissas_ends,
                Arc::new(Int64Array::from(take(&mut self.mantissas))),
                Some(decimal),
            ),
            list(
                DataType::Float64,
                &mut self.floats_ends,
                Arc::new(Float64Array::from(take(&mut self.floats))),
                Some(floats),
            ),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns).expect("BUG: columns fit the schema")
    }

    /// The builder calls its values nullable; the schema does not.
    fn take_labels(&mut self) -> MapArray {
        let (_, offsets, entries, nulls, ordered) = self.labels.finish().into_parts();
        let (_, columns, _) = entries.into_parts();
        let DataType::Struct(fields) = schema::label_entries().data_type().clone() else {
            unreachable!("BUG: entries of a map are structs");
        };
        let entries = arrow_array::StructArray::new(fields, columns, None);
        MapArray::new(schema::label_entries(), offsets, entries, nulls, ordered)
    }
}

fn list(element: DataType, ends: &mut Vec<i32>, values: ArrayRef, valid: Option<NullBuffer>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(ends, vec![0])));
    Arc::new(ListArray::new(schema::element(element), offsets, values, valid))
}

/// A length as the file has it. A batch is cut long before it could overflow, and a stretch comes from a
/// head that holds hours, not years.
fn length(n: usize) -> i32 {
    i32::try_from(n).expect("BUG: a batch holds fewer than 2^31 samples")
}
