//! Values of attributes and bodies.
//!
//! | value | becomes |
//! | --- | --- |
//! | text, boolean, integer, finite number | the same |
//! | number that is not finite | text: `NaN`, `Infinity`, `-Infinity` |
//! | bytes | text: base64 |
//! | list, map | JSON |
//! | none | nothing |

use super::super::{Fault, Reason};
use super::fields::VALUES;
use crate::otlp::attribute::{Value, read, read_value};
use crate::wire::Reader;
use model::AttributeValue;
use std::fmt::{Display, Write as _};
use stdx::budget::IncrementalReservation;

/// Limit on the nesting of lists and maps in a value.
pub(super) const DEPTH_MAX: usize = 16;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// No number takes more text: the longest is the smallest double, which has 324 digits behind the point.
const NUMBER_BYTES_MAX: usize = 400;

/// The attribute that a value becomes. `message` are the bytes to which positions refer. `out` is used for text that is not in
/// the message.
pub(super) fn attribute_value<'a>(
    value: Value<'_>,
    message: &'a [u8],
    out: &'a mut String,
    memory: &mut IncrementalReservation<'_>,
) -> Result<Option<AttributeValue<'a>>, Fault> {
    out.clear();
    Ok(Some(match value {
        Value::Empty => return Ok(None),
        Value::Bool(value) => AttributeValue::Bool(value),
        Value::Int(value) => AttributeValue::Int(value),
        Value::Double(value) if value.is_finite() => AttributeValue::Float(value),
        Value::Double(value) => AttributeValue::Text(not_finite(value)),
        Value::Text(text) => AttributeValue::Text(self::text(&message[text], out, memory)?),
        Value::Bytes(bytes) => {
            Text { out, memory }.base64(bytes)?;
            AttributeValue::Text(out)
        }
        Value::List(_) | Value::Map(_) => {
            Text { out, memory }.value(value, message, DEPTH_MAX)?;
            AttributeValue::Json(out)
        }
    }))
}

/// The text of a field. What is not UTF-8 becomes U+FFFD.
#[inline]
pub(in crate::records) fn text<'a>(
    bytes: &'a [u8],
    out: &'a mut String,
    memory: &mut IncrementalReservation<'_>,
) -> Result<&'a str, Fault> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(text);
    }
    out.clear();
    for chunk in bytes.utf8_chunks() {
        memory.room(out, chunk.valid().len() + char::REPLACEMENT_CHARACTER.len_utf8())?;
        out.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Ok(out)
}

const fn not_finite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// Writes JSON.
pub(super) struct Text<'a, 'm> {
    pub(super) out: &'a mut String,
    pub(super) memory: &'a mut IncrementalReservation<'m>,
}

impl<'a> Text<'_, '_> {
    pub(super) fn raw(&mut self, text: &str) -> Result<(), Fault> {
        self.memory.room(self.out, text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn display(&mut self, value: impl Display) -> Result<(), Fault> {
        self.memory.room(self.out, NUMBER_BYTES_MAX)?;
        write!(self.out, "{value}").expect("BUG: writing to memory failed");
        Ok(())
    }

    fn base64(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.memory.room(self.out, bytes.len().div_ceil(3) * 4)?;
        for chunk in bytes.chunks(3) {
            let byte = |at| u32::from(chunk.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for (number, shift) in [18, 12, 6, 0].into_iter().enumerate() {
                let digit = char::from(DIGITS[(bits >> shift & 63) as usize]);
                self.out.push(if number <= chunk.len() { digit } else { '=' });
            }
        }
        Ok(())
    }

    /// Writes a string. What is not UTF-8 becomes U+FFFD.
    pub(super) fn string(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.raw("\"")?;
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            let mut from = 0;
            for (at, byte) in valid.bytes().enumerate() {
                let short = match byte {
                    b'"' => "\\\"",
                    b'\\' => "\\\\",
                    b'\n' => "\\n",
                    b'\r' => "\\r",
                    b'\t' => "\\t",
                    0..0x20 => "",
                    _ => continue,
                };
                self.raw(&valid[from..at])?;
                from = at + 1;
                match short {
                    "" => self.display(format_args!("\\u{byte:04x}"))?,
                    short => self.raw(short)?,
                }
            }
            self.raw(&valid[from..])?;
            if !chunk.invalid().is_empty() {
                self.raw("\u{fffd}")?;
            }
        }
        self.raw("\"")
    }

    /// Writes a value. There may be `depth` more levels of lists and maps. Keys of a map stay in their order.
    pub(super) fn value(&mut self, value: Value<'a>, message: &'a [u8], depth: usize) -> Result<(), Fault> {
        match value {
            Value::Empty => self.raw("null"),
            Value::Bool(value) => self.raw(if value { "true" } else { "false" }),
            Value::Int(value) => self.display(value),
            Value::Double(value) if value.is_finite() => self.display(format_args!("{value:?}")),
            Value::Double(value) => self.string(not_finite(value).as_bytes()),
            Value::Text(text) => self.string(&message[text]),
            Value::Bytes(bytes) => {
                self.raw("\"")?;
                self.base64(bytes)?;
                self.raw("\"")
            }
            Value::List(values) => self.elements(values, "[", "]", depth, |text, element, depth| {
                let message = element.whole();
                text.value(read_value(element)?, message, depth)
            }),
            Value::Map(values) => self.elements(values, "{", "}", depth, Self::member),
        }
    }

    /// Writes a member of a map, from its KeyValue message.
    pub(super) fn member(&mut self, member: Reader<'a>, depth: usize) -> Result<(), Fault> {
        let message = member.whole();
        let (key, value) = read(member)?;
        self.string(&message[key])?;
        self.raw(":")?;
        self.value(value, message, depth)
    }

    fn elements(
        &mut self,
        mut values: Reader<'a>,
        begin: &str,
        end: &str,
        depth: usize,
        mut element: impl FnMut(&mut Self, Reader<'a>, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(depth) = depth.checked_sub(1) else { return Err(Reason::ValueTooDeep.into()) };
        self.raw(begin)?;
        let mut is_first = true;
        while let Some(tag) = values.tag()? {
            if tag != VALUES {
                values.skip_unknown(tag, &[1])?;
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.raw(",")?;
            }
            element(self, values.message()?, depth)?;
        }
        self.raw(end)
    }
}
