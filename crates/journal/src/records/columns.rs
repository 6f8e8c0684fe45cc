//! Encodes and decodes the columns of a batch, before they are packed.
//!
//! ```text
//!   columns   = records × zigzag delta                      times in µs; the first delta is from 0
//!               varint attributes   attributes × attribute
//!   attribute = u8 kind | ALL                               ALL: each record has a value
//!               varint length  path
//!               [not ALL]  varint n   n × varint gap        records without a value before this one
//!               values
//!
//!   bool      = ⌈n/8⌉ bytes, first value in the lowest bit
//!   int       = n × zigzag
//!   float     = n × 8 bytes
//!   text,json = n × varint length   the texts
//! ```
//!
//! An attribute has at least one value, and a path has each kind at most once.

use super::BatchError;
use crate::record::wire::Cursor;
use model::caps::{ATTRIBUTE_PATH_BYTES_MAX, BATCH_ATTRIBUTES_MAX};
use model::{Attribute, AttributeKind, AttributeValues, Records, Texts};
use std::collections::HashSet;
use stdx::varint::{self, unzigzag, zigzag};

/// Flag of an attribute that each record has.
const ALL: u8 = 0x80;

/// Memory that is counted for an attribute, besides its path and its values: its place in the batch, and in the set of
/// paths while the batch is decoded.
const ATTRIBUTE_BYTES: usize = 256;

const _: () = assert!(size_of::<Attribute>() + 4 * size_of::<(&str, AttributeKind)>() <= ATTRIBUTE_BYTES);

/// A bit of the columns takes at most this much memory: a boolean takes a byte, and 4 bytes for its row.
const BYTES_PER_BIT_MAX: usize = 5;

/// Appends the columns of a batch.
pub(super) fn put_columns(out: &mut Vec<u8>, records: &Records) {
    put_deltas(out, &records.times_us);
    let attributes = || records.attributes.iter().filter(|attribute| !attribute.rows.is_empty());
    varint::put(out, attributes().count() as u64);
    for Attribute { path, rows, values } in attributes() {
        assert!(path.len() <= ATTRIBUTE_PATH_BYTES_MAX, "BUG: a path has {} bytes", path.len());
        assert!(
            rows.len() == values.len(),
            "BUG: {path:?} has {} values in {} rows",
            values.len(),
            rows.len()
        );
        let is_all = rows.len() == records.len();
        out.push(values.kind() as u8 | if is_all { ALL } else { 0 });
        varint::put(out, path.len() as u64);
        out.extend_from_slice(path.as_bytes());
        if !is_all {
            put_rows(out, rows);
        }
        put_values(out, values);
    }
}

fn put_deltas(out: &mut Vec<u8>, times_us: &[i64]) {
    let mut previous = 0_i64;
    for time_us in times_us {
        varint::put(out, zigzag(time_us.wrapping_sub(previous)));
        previous = *time_us;
    }
}

fn put_rows(out: &mut Vec<u8>, rows: &[u32]) {
    varint::put(out, rows.len() as u64);
    let mut next = 0;
    for row in rows {
        assert!(*row >= next, "BUG: rows are not in order");
        varint::put(out, u64::from(row - next));
        next = row + 1;
    }
}

fn put_values(out: &mut Vec<u8>, values: &AttributeValues) {
    match values {
        AttributeValues::Bools(values) => {
            out.extend(values.chunks(8).map(|bits| {
                bits.iter().zip(0..).fold(0, |byte, (bit, place)| byte | u8::from(*bit) << place)
            }));
        }
        AttributeValues::Ints(values) => values.iter().for_each(|value| varint::put(out, zigzag(*value))),
        AttributeValues::Floats(values) => {
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        AttributeValues::Texts(texts) | AttributeValues::Json(texts) => {
            let mut start = 0;
            for end in texts.ends() {
                varint::put(out, u64::from(end - start));
                start = *end;
            }
            out.extend_from_slice(texts.joined().as_bytes());
        }
    }
}

/// Upper bound on the length of the columns.
pub(super) fn bytes_max(records: &Records) -> usize {
    let of_attribute = |attribute: &Attribute| {
        let Attribute { path, rows, values } = attribute;
        let of_values = match values {
            AttributeValues::Bools(values) => values.len() / 8 + 1,
            AttributeValues::Ints(values) => values.len() * varint::BYTES_MAX,
            AttributeValues::Floats(values) => values.len() * 8,
            AttributeValues::Texts(texts) | AttributeValues::Json(texts) => {
                texts.len() * LENGTH_BYTES_MAX + texts.joined().len()
            }
        };
        1 + 2 * varint::BYTES_MAX + path.len() + rows.len() * LENGTH_BYTES_MAX + of_values
    };
    let attributes: usize = records.attributes.iter().map(of_attribute).sum();
    (records.len() + 1) * varint::BYTES_MAX + attributes
}

/// A number of up to 32 bits takes at most this many bytes.
const LENGTH_BYTES_MAX: usize = 5;

/// Memory of the batch after decoding, in which each list is as long as necessary.
pub(super) fn memory_bytes(records: &Records) -> usize {
    let of_attribute = |attribute: &Attribute| {
        let count = attribute.rows.len();
        let of_values = match &attribute.values {
            AttributeValues::Bools(_) => count,
            AttributeValues::Ints(_) | AttributeValues::Floats(_) => 8 * count,
            AttributeValues::Texts(texts) | AttributeValues::Json(texts) => 4 * count + texts.joined().len(),
        };
        ATTRIBUTE_BYTES + attribute.path.len() + 4 * count + of_values
    };
    let attributes = records.attributes.iter().filter(|attribute| !attribute.rows.is_empty());
    8 * records.len() + attributes.map(of_attribute).sum::<usize>()
}

/// Upper bound on the memory of columns of this length.
pub(super) const fn memory_bytes_max(raw_bytes: usize) -> usize {
    BATCH_ATTRIBUTES_MAX * ATTRIBUTE_BYTES + raw_bytes.saturating_mul(8 * BYTES_PER_BIT_MAX)
}

/// Columns that are being decoded.
pub(super) struct Columns<'a> {
    cursor: Cursor<'a>,
    /// Memory that may still be taken.
    left_bytes: usize,
}

impl<'a> Columns<'a> {
    pub(super) const fn new(raw: &'a [u8], memory_bytes: usize) -> Self {
        Self { cursor: Cursor::new(raw), left_bytes: memory_bytes }
    }

    /// Decodes a batch of `count` records.
    pub(super) fn read(mut self, count: usize) -> Result<Records, BatchError> {
        let times_us = self.times(count)?;
        let attributes = self.cursor.count(BATCH_ATTRIBUTES_MAX)?;
        self.take(attributes * ATTRIBUTE_BYTES)?;
        let mut records = Records { times_us, attributes: Vec::with_capacity(attributes) };
        let mut known = HashSet::with_capacity(attributes);
        for _ in 0..attributes {
            let (path, attribute) = self.attribute(count)?;
            if !known.insert((path, attribute.kind())) {
                return Err(BatchError::Malformed("a duplicate attribute"));
            }
            records.attributes.push(attribute);
        }
        match self.cursor.rest.is_empty() {
            true => Ok(records),
            false => Err(BatchError::Malformed("bytes after the last attribute")),
        }
    }

    /// Takes a part of the memory.
    fn take(&mut self, bytes: usize) -> Result<(), BatchError> {
        let left = self.left_bytes.checked_sub(bytes);
        self.left_bytes = left.ok_or(BatchError::Malformed("columns take more memory than is declared"))?;
        Ok(())
    }

    /// An empty list with room for `count` elements.
    fn list<T>(&mut self, count: usize) -> Result<Vec<T>, BatchError> {
        self.take(count * size_of::<T>())?;
        Ok(Vec::with_capacity(count))
    }

    fn times(&mut self, count: usize) -> Result<Vec<i64>, BatchError> {
        self.check_count(count)?;
        let mut times_us = self.list(count)?;
        let mut time_us = 0_i64;
        for _ in 0..count {
            time_us = time_us.wrapping_add(unzigzag(self.cursor.varint()?));
            times_us.push(time_us);
        }
        Ok(times_us)
    }

    /// Fails if the rest has less than `count` bytes.
    fn check_count(&self, count: usize) -> Result<(), BatchError> {
        if count > self.cursor.rest.len() { Err(BatchError::Truncated) } else { Ok(()) }
    }

    fn attribute(&mut self, records: usize) -> Result<(&'a str, Attribute), BatchError> {
        let tag = self.cursor.byte()?;
        let kind =
            AttributeKind::of_number(tag & !ALL).ok_or(BatchError::Malformed("an unknown kind of values"))?;
        let path = self.cursor.text()?;
        if path.len() > ATTRIBUTE_PATH_BYTES_MAX {
            return Err(BatchError::Malformed("a path that is too long"));
        }
        self.take(path.len())?;
        let rows = if tag & ALL == 0 { self.rows(records)? } else { self.all_rows(records)? };
        let values = self.values(kind, rows.len())?;
        Ok((path, Attribute { path: path.into(), rows, values }))
    }

    fn all_rows(&mut self, records: usize) -> Result<Vec<u32>, BatchError> {
        if records == 0 {
            return Err(BatchError::Malformed("an attribute without values"));
        }
        let mut rows = self.list(records)?;
        rows.extend(0..records as u32);
        Ok(rows)
    }

    fn rows(&mut self, records: usize) -> Result<Vec<u32>, BatchError> {
        let count = self.cursor.count(records)?;
        if count == 0 {
            return Err(BatchError::Malformed("an attribute without values"));
        }
        self.check_count(count)?;
        let mut rows = self.list(count)?;
        let mut next = 0_usize;
        for _ in 0..count {
            let row = next.saturating_add(self.cursor.length()?);
            if row >= records {
                return Err(BatchError::Malformed("a row beyond the records"));
            }
            rows.push(row as u32);
            next = row + 1;
        }
        Ok(rows)
    }

    fn values(&mut self, kind: AttributeKind, count: usize) -> Result<AttributeValues, BatchError> {
        Ok(match kind {
            AttributeKind::Bool => {
                let bits = self.cursor.take(count.div_ceil(8))?;
                let mut values = self.list(count)?;
                values.extend((0..count).map(|at| bits[at / 8] >> (at % 8) & 1 == 1));
                AttributeValues::Bools(values)
            }
            AttributeKind::Int => {
                self.check_count(count)?;
                let mut values = self.list(count)?;
                for _ in 0..count {
                    values.push(unzigzag(self.cursor.varint()?));
                }
                AttributeValues::Ints(values)
            }
            AttributeKind::Float => {
                let bytes = self.cursor.take(count.saturating_mul(8))?;
                let mut values = self.list(count)?;
                let (floats, _) = bytes.as_chunks::<8>();
                values.extend(floats.iter().map(|bytes| f64::from_le_bytes(*bytes)));
                AttributeValues::Floats(values)
            }
            AttributeKind::Text => AttributeValues::Texts(self.texts(count)?),
            AttributeKind::Json => AttributeValues::Json(self.texts(count)?),
        })
    }

    /// JSON is not parsed again. The checksum of the journal guards it.
    fn texts(&mut self, count: usize) -> Result<Texts, BatchError> {
        self.check_count(count)?;
        let mut ends = self.list(count)?;
        let mut end = 0_usize;
        for _ in 0..count {
            end = end.saturating_add(self.cursor.length()?);
            ends.push(u32::try_from(end).map_err(|_| BatchError::Truncated)?);
        }
        let bytes = self.cursor.take(end)?;
        self.take(end)?;
        let text =
            std::str::from_utf8(bytes).map_err(|_| BatchError::Malformed("a text that is not UTF-8"))?;
        Texts::of(text.into(), ends).ok_or(BatchError::Malformed("a text that is not UTF-8"))
    }
}
