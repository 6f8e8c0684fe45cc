//! A column of a file under construction.

use crate::kind::Type;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use model::{Attribute, AttributeValues, Texts};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Column {
    of: Type,
    values: Values,
    valid: NullBufferBuilder,
}

#[derive(Debug)]
enum Values {
    Bools(BooleanBufferBuilder),
    /// Integers, or times.
    Longs(Vec<i64>),
    Floats(Vec<f64>),
    Bytes {
        bytes: Vec<u8>,
        ends: Vec<i32>,
    },
}

impl Column {
    /// A column with room for some rows, and for some bytes if they are texts.
    pub(crate) fn new(of: Type, rows: usize, bytes: usize) -> Self {
        let values = match of {
            Type::Bool => Values::Bools(BooleanBufferBuilder::new(rows)),
            Type::Long | Type::TimestampMicros => Values::Longs(Vec::with_capacity(rows)),
            Type::Double => Values::Floats(Vec::with_capacity(rows)),
            Type::Text | Type::Bytes => {
                let mut ends = Vec::with_capacity(rows + 1);
                ends.push(0);
                Values::Bytes { bytes: Vec::with_capacity(bytes), ends }
            }
            other => unreachable!("BUG: tables of records have no columns of type {other:?}"),
        };
        Self { of, values, valid: NullBufferBuilder::new(rows) }
    }

    /// Bytes of text so far.
    pub(crate) const fn bytes(&self) -> usize {
        match &self.values {
            Values::Bytes { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Adds `values` of an attribute, which belong to some of the `len` rows from `row` on. The first of these rows is
    /// the row `at` of the column.
    pub(super) fn append(
        &mut self,
        at: usize,
        attribute: &Attribute,
        values: Range<usize>,
        row: u32,
        len: usize,
    ) {
        if values.len() == len {
            self.pad(at);
            return self.extend(&attribute.values, values);
        }
        for value in values {
            self.pad(at + (attribute.rows[value] - row) as usize);
            self.extend(&attribute.values, value..value + 1);
        }
    }

    /// Adds nulls until there are `rows` rows.
    fn pad(&mut self, rows: usize) {
        let nulls = rows - self.valid.len();
        if nulls == 0 {
            return;
        }
        self.valid.append_n_nulls(nulls);
        match &mut self.values {
            Values::Bools(bools) => bools.append_n(nulls, false),
            Values::Longs(longs) => longs.resize(rows, 0),
            Values::Floats(floats) => floats.resize(rows, 0.0),
            Values::Bytes { ends, .. } => ends.resize(rows + 1, *ends.last().unwrap_or(&0)),
        }
    }

    fn extend(&mut self, from: &AttributeValues, range: Range<usize>) {
        self.valid.append_n_non_nulls(range.len());
        match (&mut self.values, from) {
            (Values::Bools(to), AttributeValues::Bools(from)) => to.append_slice(&from[range]),
            (Values::Longs(to), AttributeValues::Ints(from)) => to.extend_from_slice(&from[range]),
            (Values::Floats(to), AttributeValues::Floats(from)) => to.extend_from_slice(&from[range]),
            (Values::Bytes { bytes, ends }, AttributeValues::Texts(from) | AttributeValues::Json(from)) => {
                extend_texts(bytes, ends, from, range);
            }
            (_, from) => panic!("BUG: values of type {} are in another type's column", from.kind().name()),
        }
    }

    /// Adds rows of an array of the same type.
    pub(crate) fn append_array(&mut self, from: &dyn Array, range: Range<usize>) {
        let len = range.len();
        match from.nulls().map(|nulls| nulls.slice(range.start, len)) {
            Some(nulls) => self.valid.append_buffer(&nulls),
            None => self.valid.append_n_non_nulls(len),
        }
        match &mut self.values {
            Values::Bools(to) => to.append_buffer(&from.as_boolean().values().slice(range.start, len)),
            Values::Longs(to) if self.of == Type::Long => {
                to.extend_from_slice(&from.as_primitive::<Int64Type>().values()[range]);
            }
            Values::Longs(to) => {
                to.extend_from_slice(&from.as_primitive::<TimestampMicrosecondType>().values()[range]);
            }
            Values::Floats(to) => to.extend_from_slice(&from.as_primitive::<Float64Type>().values()[range]),
            Values::Bytes { bytes, ends } if self.of == Type::Text => {
                let from = from.as_string::<i32>();
                extend_bytes(bytes, ends, from.value_data(), &from.value_offsets()[range.start..=range.end]);
            }
            Values::Bytes { bytes, ends } => {
                let from = from.as_binary::<i32>();
                extend_bytes(bytes, ends, from.value_data(), &from.value_offsets()[range.start..=range.end]);
            }
        }
    }

    pub(crate) fn finish(mut self, rows: usize) -> ArrayRef {
        self.pad(rows);
        let valid = self.valid.finish();
        match self.values {
            Values::Bools(mut bools) => Arc::new(BooleanArray::new(bools.finish(), valid)),
            Values::Longs(longs) if self.of == Type::Long => Arc::new(Int64Array::new(longs.into(), valid)),
            Values::Longs(longs) => {
                Arc::new(TimestampMicrosecondArray::new(longs.into(), valid).with_timezone("UTC"))
            }
            Values::Floats(floats) => Arc::new(Float64Array::new(floats.into(), valid)),
            Values::Bytes { bytes, ends } => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                match self.of {
                    Type::Text => Arc::new(StringArray::new(ends, bytes.into(), valid)),
                    _ => Arc::new(BinaryArray::new(ends, bytes.into(), valid)),
                }
            }
        }
    }
}

fn extend_texts(bytes: &mut Vec<u8>, ends: &mut Vec<i32>, from: &Texts, range: Range<usize>) {
    let first = range.start.checked_sub(1).map_or(0, |before| from.ends()[before]);
    let added = &from.ends()[range];
    let last = added.last().copied().unwrap_or(first);
    let shift = bytes.len() as i64 - i64::from(first);
    bytes.extend_from_slice(&from.joined().as_bytes()[first as usize..last as usize]);
    // a column that is encoded at once is much smaller; see [`super::gather`]
    assert!(i32::try_from(bytes.len()).is_ok(), "BUG: texts that are encoded together exceed 2 GiB");
    ends.extend(added.iter().map(|end| (i64::from(*end) + shift) as i32));
}

/// `offsets` has the beginning of the first value and the ends of all.
fn extend_bytes(bytes: &mut Vec<u8>, ends: &mut Vec<i32>, from: &[u8], offsets: &[i32]) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let shift = bytes.len() as i64 - i64::from(first);
    bytes.extend_from_slice(&from[first as usize..last as usize]);
    assert!(i32::try_from(bytes.len()).is_ok(), "BUG: texts that are encoded together exceed 2 GiB");
    ends.extend(offsets[1..].iter().map(|end| (i64::from(*end) + shift) as i32));
}
