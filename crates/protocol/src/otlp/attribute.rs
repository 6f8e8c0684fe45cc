//! Attributes, and their values as text.
//!
//! Values that are not strings are written as Prometheus' receiver writes them: numbers as ECMAScript does, bytes as
//! base64, lists and maps as JSON.

use super::Stop;
use super::fields::{VALUES, any_value, byte, key_value};
use crate::wire::{Reader, WireError};
use model::SeriesRefusal;
use model::caps::{LABEL_VALUE_BYTES_MAX, SERIES_LABELS_MAX};
use std::io::Write;
use std::ops::Range;
use stdx::budget::IncrementalReservation;

/// Limit on the nesting of lists and maps in a value.
const DEPTH_MAX: usize = 16;

/// Limit on the attributes of a resource, a scope, a point or an exemplar. Only [`SERIES_LABELS_MAX`] of them can become
/// labels, but a resource may have others that do not. Its attributes are looked through several times, and an attribute
/// takes two bytes of the message, but tens of bytes in memory.
const ATTRIBUTES_MAX: usize = 8 * SERIES_LABELS_MAX;

/// The attributes of a resource, a scope, a point or an exemplar, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    found: Vec<Found>,
    /// Texts of values that are not strings.
    texts: Vec<u8>,
}

/// Where key and value of an attribute are.
#[derive(Debug, Clone)]
struct Found {
    /// Part of the message.
    key: Range<u32>,
    /// Part of the message, or of [`Attributes::texts`].
    value: Range<u32>,
    is_in_texts: bool,
}

impl Attributes {
    pub(super) fn memory_bytes(&self) -> usize {
        self.found.capacity() * size_of::<Found>() + self.texts.capacity()
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.texts.clear();
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// The length of all texts that are not in the message.
    #[inline(always)]
    pub(super) fn texts_bytes(&self) -> usize {
        self.texts.len()
    }

    #[inline(always)]
    pub(super) fn key<'a>(&self, number: usize, message: &'a [u8]) -> &'a [u8] {
        &message[wide(&self.found[number].key)]
    }

    #[inline(always)]
    pub(super) fn value<'a>(&'a self, number: usize, message: &'a [u8]) -> &'a [u8] {
        let Found { value, is_in_texts, .. } = &self.found[number];
        let bytes = if *is_in_texts { self.texts.as_slice() } else { message };
        &bytes[wide(value)]
    }

    /// Finds the first attribute with this key.
    pub(super) fn find(&self, key: &str, message: &[u8]) -> Option<usize> {
        (0..self.len()).find(|number| self.key(*number, message) == key.as_bytes())
    }

    /// Returns the value of the first attribute with this key.
    pub(super) fn get<'a>(&'a self, key: &str, message: &'a [u8]) -> Option<&'a [u8]> {
        Some(self.value(self.find(key, message)?, message))
    }

    /// The length of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.found.iter().map(|found| found.key.len() + found.value.len()).sum()
    }

    /// Removes the attributes whose keys are not wanted.
    pub(super) fn retain(&mut self, message: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
        self.found.retain(|found| is_wanted(&message[wide(&found.key)]));
    }

    /// Reads a KeyValue message, and adds the attribute. Fails with [`Stop::Point`] if its value cannot be a label,
    /// or if there are too many attributes.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        field: Reader<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        if self.found.len() == ATTRIBUTES_MAX {
            return Err(SeriesRefusal::TooManyLabels(ATTRIBUTES_MAX + 1).into());
        }
        let found = match short(field.rest()) {
            Some((key_bytes, value_bytes)) => {
                let key = field.at() + KEY_AT;
                let value = key + key_bytes + VALUE_AT;
                Found {
                    key: narrow(key..key + key_bytes),
                    value: narrow(value..value + value_bytes),
                    is_in_texts: false,
                }
            }
            None => self.read(field, reservation)?,
        };
        reservation.push(&mut self.found, found)?;
        Ok(())
    }

    #[inline(never)]
    fn read(
        &mut self,
        field: Reader<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Found, Stop> {
        let (key, value) = read(field)?;
        let (value, is_in_texts) = match value {
            Value::Text(text) => (text, false),
            other => {
                let start = self.texts.len();
                Text { out: &mut self.texts, start, reservation }.put(other)?;
                (start..self.texts.len(), true)
            }
        };
        Ok(Found { key: narrow(key), value: narrow(value), is_in_texts })
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

fn wide(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// In a KeyValue message that [`short`] reads, where the key is, and how far behind the key the value is.
const KEY_AT: usize = 2;
const VALUE_AT: usize = 4;

/// Returns the lengths of key and value if the message is as senders write it: the key, then a string, and each length
/// takes one byte. This is the fast path.
#[inline(always)]
fn short(message: &[u8]) -> Option<(usize, usize)> {
    const KEY: u8 = byte(key_value::KEY);
    const VALUE: u8 = byte(key_value::VALUE);
    const STRING: u8 = byte(any_value::STRING);
    let (&[key_tag, key_bytes], rest) = message.split_first_chunk()?;
    let rest = rest.get(usize::from(key_bytes)..)?;
    let (&[value_tag, value_bytes, string_tag, string_bytes], text) = rest.split_first_chunk()?;
    let is_short = [key_tag, value_tag, string_tag] == [KEY, VALUE, STRING]
        && key_bytes | value_bytes | string_bytes < 0x80
        && usize::from(string_bytes) == text.len()
        && usize::from(value_bytes) == text.len() + 2;
    is_short.then_some((usize::from(key_bytes), text.len()))
}

/// A value, as `AnyValue` has it. Positions are those of the message.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Empty,
    Text(Range<usize>),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(Reader<'a>),
    Map(Reader<'a>),
    Bytes(&'a [u8]),
}

/// Reads a KeyValue message. Returns the position of the key, and the value.
pub(crate) fn read(mut field: Reader<'_>) -> Result<(Range<usize>, Value<'_>), WireError> {
    let (mut key, mut value) = (field.at()..field.at(), Value::Empty);
    while let Some(tag) = field.tag()? {
        match tag {
            key_value::KEY => key = field.message()?.unread(),
            key_value::VALUE => value = read_value(field.message()?)?,
            other => field.skip_unknown(other, key_value::KNOWN)?,
        }
    }
    Ok((key, value))
}

pub(crate) fn read_value(mut field: Reader<'_>) -> Result<Value<'_>, WireError> {
    let mut value = Value::Empty;
    while let Some(tag) = field.tag()? {
        value = match tag {
            any_value::STRING => Value::Text(field.message()?.unread()),
            any_value::BOOL => Value::Bool(field.varint()? != 0),
            any_value::INT => Value::Int(field.varint()? as i64),
            any_value::DOUBLE => Value::Double(field.double()?),
            any_value::ARRAY => Value::List(field.message()?),
            any_value::KEY_VALUES => Value::Map(field.message()?),
            any_value::BYTES => Value::Bytes(field.len_field()?),
            other => {
                field.skip_unknown(other, any_value::KNOWN)?;
                continue;
            }
        }
    }
    Ok(value)
}

/// Writes a value as text.
struct Text<'a, 'p> {
    out: &'a mut Vec<u8>,
    /// Where the text begins in `out`.
    start: usize,
    reservation: &'a mut IncrementalReservation<'p>,
}

/// No number takes more text than the smallest double, which has 324 digits behind the point, or than the largest one,
/// which has 309 digits.
const NUMBER_BYTES_MAX: usize = 400;

impl<'a> Text<'_, '_> {
    fn put(&mut self, value: Value<'a>) -> Result<(), Stop> {
        match value {
            Value::Empty | Value::Text(_) => Ok(()),
            Value::Bool(value) => self.raw(if value { b"true" } else { b"false" }),
            Value::Int(n) => self.raw(itoa::Buffer::new().format(n).as_bytes()),
            Value::Double(n) => self.double(n),
            Value::Bytes(bytes) => self.base64(bytes),
            Value::List(_) | Value::Map(_) => self.json(value, &[], DEPTH_MAX),
        }
    }

    fn raw(&mut self, text: &[u8]) -> Result<(), Stop> {
        if self.out.len() - self.start + text.len() > LABEL_VALUE_BYTES_MAX {
            return Err(SeriesRefusal::AttributeTooLarge.into());
        }
        Ok(self.reservation.extend(self.out, text)?)
    }

    /// Writes a number as `Number.prototype.toString` of ECMAScript does, except for infinities.
    fn double(&mut self, n: f64) -> Result<(), Stop> {
        if !n.is_finite() {
            return self.raw(match n {
                f64::INFINITY => b"+Inf",
                f64::NEG_INFINITY => b"-Inf",
                _ => b"NaN",
            });
        }
        let mut text = [0; NUMBER_BYTES_MAX];
        let mut rest = &mut text[..];
        let written = match n.abs() {
            0.0 | 1e-6..1e21 => write!(rest, "{n}"),
            _ => write!(rest, "{n:e}"),
        };
        written.expect("BUG: a number takes more text than any number can");
        let len = NUMBER_BYTES_MAX - rest.len();
        let text = &text[..len];
        match text.iter().position(|byte| *byte == b'e') {
            Some(at) if text.get(at + 1) != Some(&b'-') => {
                self.raw(&text[..=at])?;
                self.raw(b"+")?;
                self.raw(&text[at + 1..])
            }
            _ => self.raw(text),
        }
    }

    fn base64(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        if bytes.len() > LABEL_VALUE_BYTES_MAX {
            return Err(SeriesRefusal::AttributeTooLarge.into());
        }
        for chunk in bytes.chunks(3) {
            let byte = |at| u32::from(chunk.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            let mut digits = [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize]);
            digits[chunk.len() + 1..].fill(b'=');
            self.raw(&digits)?;
        }
        Ok(())
    }

    /// Writes a value within a list or a map. `message` are the bytes to which the positions of texts refer, and
    /// `depth` is how many more levels there may be.
    fn json(&mut self, value: Value<'a>, message: &'a [u8], depth: usize) -> Result<(), Stop> {
        let Some(deeper) = depth.checked_sub(1) else { return Err(SeriesRefusal::AttributeTooDeep.into()) };
        match value {
            Value::Empty => self.raw(b"null"),
            Value::Text(text) => self.string(&message[text]),
            Value::Double(n) if !n.is_finite() => self.raw(b"null"),
            Value::Bool(_) | Value::Int(_) | Value::Double(_) => self.put(value),
            Value::Bytes(bytes) => {
                self.raw(b"\"")?;
                self.base64(bytes)?;
                self.raw(b"\"")
            }
            Value::List(mut values) => {
                self.raw(b"[")?;
                let mut is_first = true;
                while let Some(tag) = values.tag()? {
                    if tag != VALUES {
                        values.skip_unknown(tag, &[1])?;
                        continue;
                    }
                    let message = values.whole();
                    let value = read_value(values.message()?)?;
                    if !std::mem::take(&mut is_first) {
                        self.raw(b",")?;
                    }
                    self.json(value, message, deeper)?;
                }
                self.raw(b"]")
            }
            Value::Map(values) => self.map(values, deeper),
        }
    }

    /// Writes a map, sorted by its keys. Of entries with the same key, the last one counts.
    fn map(&mut self, mut values: Reader<'a>, depth: usize) -> Result<(), Stop> {
        let (message, mut entries) = (values.whole(), Vec::new());
        while let Some(tag) = values.tag()? {
            if tag != VALUES {
                values.skip_unknown(tag, &[1])?;
                continue;
            }
            let (key, value) = read(values.message()?)?;
            if entries.len() == LABEL_VALUE_BYTES_MAX {
                return Err(SeriesRefusal::AttributeTooLarge.into());
            }
            self.reservation.push(&mut entries, (&message[key], value))?;
        }
        entries.sort_by_key(|(key, _)| *key);
        self.raw(b"{")?;
        let mut is_first = true;
        let mut entries = entries.into_iter().peekable();
        while let Some((key, value)) = entries.next() {
            if entries.peek().is_some_and(|(next, _)| *next == key) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.raw(b",")?;
            }
            self.string(key)?;
            self.raw(b":")?;
            self.json(value, message, depth)?;
        }
        self.raw(b"}")
    }

    /// Writes a JSON string. As in Go, characters with a meaning in HTML are escaped too.
    fn string(&mut self, text: &[u8]) -> Result<(), Stop> {
        if text.len() > LABEL_VALUE_BYTES_MAX {
            return Err(SeriesRefusal::AttributeTooLarge.into());
        }
        self.raw(b"\"")?;
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' => self.raw(b"\\\"")?,
                    '\\' => self.raw(b"\\\\")?,
                    '\n' => self.raw(b"\\n")?,
                    '\r' => self.raw(b"\\r")?,
                    '\t' => self.raw(b"\\t")?,
                    '\u{8}' => self.raw(b"\\b")?,
                    '\u{c}' => self.raw(b"\\f")?,
                    '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                        self.raw(format!("\\u{:04x}", u32::from(c)).as_bytes())?;
                    }
                    _ => self.raw(c.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            if !chunk.invalid().is_empty() {
                self.raw(b"\\ufffd")?;
            }
        }
        self.raw(b"\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    fn text(value: Value<'_>) -> String {
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        let mut out = b"before".to_vec();
        let reservation = &mut IncrementalReservation::new(&mut memory);
        Text { out: &mut out, start: 6, reservation }.put(value).unwrap();
        String::from_utf8(out.split_off(6)).unwrap()
    }

    /// The expected texts are those of `Value.AsString` in OpenTelemetry's Go module `pdata`, except for infinities and NaN.
    #[test]
    fn values_as_text() {
        let check = |value, expected: &str| assert_eq!(text(value), expected);
        for (n, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.5e300, "-1.5e+300"),
            (1e-6, "0.000001"),
            (1.25e-7, "1.25e-7"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            check(Value::Double(n), expected);
        }
        check(Value::Int(i64::MIN), "-9223372036854775808");
        check(Value::Bool(false), "false");
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("\u{7ff}?", "378/")]
        {
            check(Value::Bytes(bytes.as_bytes()), expected);
        }
        // a list with the text `"\\<é\u{1}\u{2028}`, nothing, and a byte that is not UTF-8
        let list = b"\x0a\x0b\x0a\x09\"\\<\xc3\xa9\x01\xe2\x80\xa8\x0a\x00\x0a\x03\x0a\x01\xff";
        check(Value::List(Reader::new(list)), r#"["\"\\\u003cé\u0001\u2028",null,"\ufffd"]"#);
    }
}
