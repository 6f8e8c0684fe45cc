//! Rows waiting for the encoder, by column.

use super::stretch::{Form, Stretch};
use crate::kind::{self, Type};
use arrow_array::builder::{BinaryBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    ArrayRef, Float64Array, Int8Array, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    TimestampMillisecondArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef};
use model::labels::METRIC_NAME;
use std::sync::Arc;

/// Bound on mantissas and bases of chained rows, so that no sum overflows in any engine. Larger mantissas are stored
/// unchanged, and a longer chain restarts at zero.
const CHAIN_MAX: u64 = 1 << 60;

/// Shifts each row's mantissas so that they continue the mantissas of the previous row.
///
/// The encoder stores one column of differences. A jump between two series would widen the 256 differences of a block.
#[derive(Debug, Default)]
struct Chain {
    last: i64,
}

impl Chain {
    /// Shifts a row's mantissas. Returns the base, which restores them when added.
    fn link(&mut self, mantissas: &mut [i64]) -> i64 {
        let Some(first) = mantissas.first().copied() else { return 0 };
        if mantissas.iter().any(|m| m.unsigned_abs() > CHAIN_MAX) {
            self.last = 0;
            return 0;
        }
        if self.last.unsigned_abs() > CHAIN_MAX {
            self.last = 0;
        }
        // the difference to the previous row becomes equal to the first difference within the row, so a straight line
        // takes no bits
        let step = mantissas.get(1).map_or(0, |second| second - first);
        let base = first - self.last - step;
        mantissas.iter_mut().for_each(|m| *m -= base);
        self.last = mantissas[mantissas.len() - 1];
        base
    }
}

#[derive(Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    name: StringBuilder,
    labels: MapBuilder<StringBuilder, StringBuilder>,
    label_bytes: usize,
    series: BinaryBuilder,
    start: Vec<i64>,
    end: Vec<i64>,
    count: Vec<i32>,
    timestamps: Vec<i64>,
    timestamps_ends: Vec<i32>,
    exponent: Vec<Option<i8>>,
    base: Vec<Option<i64>>,
    chain: Chain,
    /// All rows' mantissas, appended by [`super::stretch::rows`].
    pub(super) mantissas: Vec<i64>,
    mantissas_ends: Vec<i32>,
    floats: Vec<f64>,
    floats_ends: Vec<i32>,
}

impl Columns {
    pub(super) fn new(schema: SchemaRef) -> Self {
        let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
        Self {
            schema,
            name: StringBuilder::new(),
            labels: MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()),
            label_bytes: 0,
            series: BinaryBuilder::new(),
            start: Vec::new(),
            end: Vec::new(),
            count: Vec::new(),
            timestamps: Vec::new(),
            timestamps_ends: vec![0],
            exponent: Vec::new(),
            base: Vec::new(),
            chain: Chain::default(),
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

    pub(super) const fn label_bytes(&self) -> usize {
        self.label_bytes
    }

    /// Adds a row. `mantissas` holds the mantissas of all rows so far. If this row is decimal, its mantissas are the
    /// last ones.
    pub(super) fn finish_row(&mut self, name: &str, row: &Stretch<'_>, form: Form, mantissas: &mut [i64]) {
        let samples = row.timestamps.len();
        self.name.append_value(name);
        self.label_bytes += row.labels.as_bytes().len();
        for (name, value) in row.labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
            self.labels.keys().append_value(name);
            self.labels.values().append_value(value);
        }
        self.labels.append(true).expect("BUG: the numbers of keys and values differ");
        self.series.append_value(row.key.0.to_be_bytes());
        self.start.push(row.timestamps[0]);
        self.end.push(row.timestamps[samples - 1]);
        self.count.push(length(samples));
        self.timestamps.extend_from_slice(row.timestamps);
        self.timestamps_ends.push(length(self.timestamps.len()));
        match form {
            Form::Decimal(exponent) => {
                let begin = *self.mantissas_ends.last().expect("BUG: the list of ends is empty") as usize;
                self.exponent.push(Some(exponent as i8));
                self.base.push(Some(self.chain.link(&mut mantissas[begin..])));
            }
            Form::Floats => {
                self.exponent.push(None);
                self.base.push(None);
                self.floats.extend_from_slice(row.values);
            }
        }
        self.mantissas_ends.push(length(mantissas.len()));
        self.floats_ends.push(length(self.floats.len()));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let longs = self.start.capacity() + self.end.capacity() + self.timestamps.capacity();
        8 * (longs + self.mantissas.capacity() + self.floats.capacity() + self.count.capacity())
            + self.name.values_slice().len()
            + 2 * self.label_bytes // buffers grow by doubling
            + 64 * self.count.len()
    }

    pub(super) fn take_batch(&mut self) -> RecordBatch {
        use std::mem::take;
        self.label_bytes = 0;
        let decimal: NullBuffer = self.exponent.iter().map(Option::is_some).collect();
        let floats = NullBuffer::new(!decimal.inner());
        let timestamps = |values: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from(values).with_timezone("UTC"))
        };
        let rows = self.count.len();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.name.finish()),
            Arc::new(self.take_labels()),
            Arc::new(self.series.finish()),
            timestamps(take(&mut self.start)),
            timestamps(take(&mut self.end)),
            Arc::new(Int32Array::from(take(&mut self.count))),
            list(
                Type::Timestamp.arrow(),
                &mut self.timestamps_ends,
                timestamps(take(&mut self.timestamps)),
                None,
            ),
            Arc::new(Int8Array::from(take(&mut self.exponent))),
            Arc::new(Int64Array::from(take(&mut self.base))),
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
        // columns of later formats, which these rows lack
        let added = self.schema.fields().iter().skip(columns.len());
        columns.extend(added.map(|field| new_null_array(field.data_type(), rows)).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::clone(&self.schema), columns).expect("BUG: columns differ from the schema")
    }

    /// Rebuilds the map of labels, because the builder declares its values as nullable, unlike the schema.
    fn take_labels(&mut self) -> MapArray {
        let (_, offsets, entries, nulls, ordered) = self.labels.finish().into_parts();
        let (_, columns, _) = entries.into_parts();
        let DataType::Struct(fields) = kind::text_entries().data_type().clone() else {
            unreachable!("BUG: the entries of a map are not structs");
        };
        let entries = arrow_array::StructArray::new(fields, columns, None);
        MapArray::new(kind::text_entries(), offsets, entries, nulls, ordered)
    }
}

fn list(element: DataType, ends: &mut Vec<i32>, values: ArrayRef, valid: Option<NullBuffer>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(ends, vec![0])));
    Arc::new(ListArray::new(kind::element(element), offsets, values, valid))
}

/// Converts a length to the type of offsets in Arrow lists. Batches are encoded long before it overflows.
fn length(n: usize) -> i32 {
    i32::try_from(n).expect("BUG: a batch holds 2^31 samples or more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn chained_rows_round_trip() {
        let mut rng = Rng::announced();
        let mut chain = Chain::default();
        for row in 0..5000 {
            let bits = 1 + rng.below(63) as u32;
            let len = 1 + rng.below(5) as usize;
            let mantissas: Vec<i64> = (0..len).map(|_| (rng.next_u64() as i64) >> (64 - bits)).collect();
            let mut stored = mantissas.clone();
            let before = chain.last;
            let base = chain.link(&mut stored);
            // other engines check the addition for overflow
            let back: Vec<i64> = stored.iter().map(|m| m.checked_add(base).expect("no overflow")).collect();
            assert_eq!(back, mantissas, "row {row}");
            if bits < 50 && before.unsigned_abs() < CHAIN_MAX && len > 1 {
                assert_eq!(stored[0] - before, mantissas[1] - mantissas[0], "row {row}");
            }
        }
        assert_eq!(chain.link(&mut []), 0);
        let mut extremes = [i64::MIN, i64::MAX];
        assert_eq!((chain.link(&mut extremes), extremes), (0, [i64::MIN, i64::MAX]));
    }
}
