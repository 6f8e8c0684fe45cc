//! JSON of the attributes that have no column.

use crate::error::TableError;
use arrow_array::{ArrayRef, StringArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use model::{Attribute, AttributeValue, Records};
use std::io::Write;
use std::sync::Arc;

/// Upper bound on the bytes of a number or a truth value in JSON, or of the quotes of a text, and of what separates it from the
/// next one.
const NUMBER_BYTES: usize = 32;

/// Values without a column in one batch, by row.
#[derive(Debug)]
pub(super) struct Rest {
    /// `"path":` of each attribute, and the same with the type behind the path.
    keys: Vec<[Box<str>; 2]>,
    attributes: Vec<u32>,
    /// For each row, the end of its values in `values`.
    ends: Vec<u32>,
    /// Positions in `attributes`, and in the values of this attribute.
    values: Vec<(u32, u32)>,
}

impl Rest {
    /// Collects the values of these attributes of a batch. `None` if there are no attributes.
    pub(super) fn of(records: &Records, mut attributes: Vec<u32>) -> Option<Self> {
        if attributes.is_empty() {
            return None;
        }
        let of = |number: u32| -> &Attribute { &records.attributes[number as usize] };
        attributes.sort_unstable_by_key(|number| (&of(*number).path, of(*number).kind()));
        let keys = attributes.iter().map(|number| {
            let attribute = of(*number);
            let typed = format!("{}_{}", attribute.path, attribute.kind().name());
            [&*attribute.path, &typed].map(|text| {
                let mut key = Vec::new();
                quote(text, &mut key);
                key.push(b':');
                String::from_utf8(key).expect("BUG: quoting broke UTF-8").into()
            })
        });
        let keys = keys.collect();
        // counts the values of each row, then puts each value at its place
        let mut ends = vec![0u32; records.len()];
        for number in &attributes {
            of(*number).rows.iter().for_each(|row| ends[*row as usize] += 1);
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut values = vec![(0, 0); sum as usize];
        for (at, number) in (0..).zip(&attributes) {
            for (value, row) in (0..).zip(&of(*number).rows) {
                let next = &mut ends[*row as usize];
                values[*next as usize] = (at, value);
                *next += 1;
            }
        }
        Some(Self { keys, attributes, ends, values })
    }

    /// Adds the bytes of keys and numbers, and by how much texts grow in JSON, to the bytes of each row's texts. So they are an
    /// upper bound on those of the JSON.
    pub(super) fn add_bytes(&self, records: &Records, row_bytes: &mut [u32]) {
        for (keys, number) in self.keys.iter().zip(&self.attributes) {
            let attribute = &records.attributes[*number as usize];
            for (at, row) in attribute.rows.iter().enumerate() {
                let escapes = match attribute.values.get(at) {
                    AttributeValue::Text(text) => escape_bytes(text),
                    _ => 0,
                };
                let bytes = keys[1].len() + NUMBER_BYTES + escapes;
                let sum = &mut row_bytes[*row as usize];
                *sum = sum.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            }
        }
    }

    fn row(&self, row: usize) -> &[(u32, u32)] {
        let from = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[from as usize..self.ends[row] as usize]
    }
}

/// Builds the column of JSON texts.
#[derive(Debug)]
pub(super) struct RestColumn {
    text: Vec<u8>,
    ends: Vec<i32>,
    valid: NullBufferBuilder,
}

impl RestColumn {
    /// `bytes` is an upper bound on the texts.
    pub(super) fn new(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { text: Vec::with_capacity(bytes), ends, valid: NullBufferBuilder::new(rows) }
    }

    /// Adds rows from `row` on. `None` stands for a batch without such values.
    pub(super) fn append(
        &mut self,
        records: &Records,
        rest: Option<&Rest>,
        row: usize,
        len: usize,
    ) -> Result<(), TableError> {
        let Some(rest) = rest else {
            self.valid.append_n_nulls(len);
            self.ends.extend(std::iter::repeat_n(*self.ends.last().unwrap_or(&0), len));
            return Ok(());
        };
        for row in row..row + len {
            let values = rest.row(row);
            self.valid.append(!values.is_empty());
            let mut last = None;
            for (at, value) in values {
                self.text.push(if last.is_none() { b'{' } else { b',' });
                let attribute = &records.attributes[rest.attributes[*at as usize] as usize];
                // a path with values of several types in one record
                let is_again = last.replace(&attribute.path) == Some(&attribute.path);
                self.text.extend_from_slice(rest.keys[*at as usize][usize::from(is_again)].as_bytes());
                json(attribute.values.get(*value as usize), &mut self.text);
            }
            if last.is_some() {
                self.text.push(b'}');
            }
            let too_large = || TableError::TooLarge {
                what: "the attributes of a record",
                limit_bytes: i32::MAX as usize,
            };
            self.ends.push(i32::try_from(self.text.len()).map_err(|_| too_large())?);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> ArrayRef {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Arc::new(StringArray::new(ends, self.text.into(), self.valid.finish()))
    }
}

fn json(value: AttributeValue<'_>, out: &mut Vec<u8>) {
    match value {
        AttributeValue::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        AttributeValue::Int(value) => display(format_args!("{value}"), out),
        // keeps a digit after the point, so that the number stays a float
        AttributeValue::Float(value) if value.is_finite() => display(format_args!("{value:?}"), out),
        // JSON has no such numbers; Protobuf's mapping to JSON writes them like this, too
        AttributeValue::Float(value) if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        AttributeValue::Float(value) if value > 0.0 => out.extend_from_slice(b"\"Infinity\""),
        AttributeValue::Float(_) => out.extend_from_slice(b"\"-Infinity\""),
        AttributeValue::Text(text) => quote(text, out),
        AttributeValue::Json(text) => out.extend_from_slice(text.as_bytes()),
    }
}

fn display(value: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    out.write_fmt(value).expect("BUG: writing to memory failed");
}

/// By how many bytes a text becomes longer in JSON, without the quotes.
fn escape_bytes(text: &str) -> usize {
    // the sum of one chunk fits into a byte, so that many bytes are compared and added at once
    const CHUNK: usize = 48;
    let of_byte = |byte: &u8| {
        let is_short = matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | b'\t');
        u8::from(is_short) + 5 * u8::from(*byte < 0x20 && !is_short)
    };
    let of_chunk = |chunk: &[u8]| usize::from(chunk.iter().map(of_byte).sum::<u8>());
    text.as_bytes().chunks(CHUNK).map(of_chunk).sum()
}

/// Writes a text as a JSON string.
fn quote(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let (bytes, mut from) = (text.as_bytes(), 0);
    let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    // looks at all bytes without a branch, which is several at a time
    if !bytes.iter().fold(false, |any, byte| any | is_special(*byte)) {
        out.extend_from_slice(bytes);
        return out.push(b'"');
    }
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| is_special(**byte)) {
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => {
                out.extend_from_slice(b"\\u00");
                out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use stdx::rng::Rng;

    #[test]
    fn a_quoted_text_is_the_same_text_in_json() {
        let mut rng = Rng::announced();
        for _ in 0..5_000 {
            let len = rng.below(12);
            let text: String = (0..len)
                .map(|_| match rng.below(4) {
                    0 => char::from(rng.below(128) as u8),
                    1 => *['"', '\\', '\n', '\0', '\u{7f}', '\u{2028}', '\u{ffff}']
                        .get(rng.below(7) as usize)
                        .unwrap(),
                    2 => char::from_u32(rng.below(0x11_0000) as u32).unwrap_or('x'),
                    _ => 'a',
                })
                .collect();
            let mut json = Vec::new();
            quote(&text, &mut json);
            assert_eq!(json.len(), text.len() + 2 + escape_bytes(&text), "{text:?}");
            assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), Value::String(text));
        }
    }

    #[test]
    fn long_texts_have_many_escapes() {
        for (text, bytes) in [("\u{1}", 5), ("\\", 1), ("x", 0), ("ä", 0)] {
            assert_eq!(escape_bytes(&text.repeat(1000)), 1000 * bytes, "{text:?}");
        }
    }

    #[test]
    fn every_number_is_the_same_number_in_json() {
        let check = |value: f64, expected: &str| {
            let mut out = Vec::new();
            json(AttributeValue::Float(value), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(1.0, "1.0");
        check(-0.0, "-0.0");
        check(1e300, "1e300");
        check(5e-324, "5e-324");
        check(f64::NAN, "\"NaN\"");
        check(f64::INFINITY, "\"Infinity\"");
        check(f64::NEG_INFINITY, "\"-Infinity\"");
        let mut rng = Rng::announced();
        for _ in 0..5_000 {
            let value = f64::from_bits(rng.next_u64());
            let mut out = Vec::new();
            json(AttributeValue::Float(value), &mut out);
            if value.is_finite() {
                let back: f64 = String::from_utf8(out).unwrap().parse().unwrap();
                assert_eq!(back.to_bits(), value.to_bits());
            }
        }
    }
}
