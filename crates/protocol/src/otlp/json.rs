//! Turns a request in JSON into the protobuf message with the same content, so that both forms have one decoder.
//!
//! ```text
//!   {"resourceMetrics":[{"scopeMetrics":[…]}]}  ─▶  0a <length> 12 <length> …
//! ```
//!
//! A table says which key is which field. Keys may be in camel case or in snake case, in any order. Unknown keys and
//! nulls are skipped. As in protobuf's JSON mapping, 64-bit integers may be strings, doubles may be `"NaN"` or
//! `"Infinity"`, and enums may be names. IDs of traces and spans are hexadecimal, other bytes are base64.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

mod schema;

use crate::DecodeError;
use crate::json::{JsonError, Parser};
use crate::number::NAN;
use model::caps::BODY_BYTES_MAX;
pub(crate) use schema::{Field, LOGS, METRICS, TRACES};
use schema::{Kind, Number};
use stdx::budget::{Exhausted, IncrementalReservation};
use stdx::varint;

/// While a message is written, its length takes this many bytes.
const LENGTH_BYTES: usize = 4;

const _: () = assert!(BODY_BYTES_MAX < 1 << (7 * LENGTH_BYTES), "a length does not fit");

/// Limit on the text of a number or of an ID.
const SHORT_BYTES_MAX: usize = 64;

/// Replaces the contents of `out` with the message, which has these fields.
pub(crate) fn transcode(
    body: &[u8],
    fields: &'static [Field],
    out: &mut Vec<u8>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    out.clear();
    let mut json = Parser::new(body);
    let mut writer = Writer { out, reservation };
    writer.message(&mut json, fields)?;
    Ok(json.end()?)
}

/// Why a body cannot be transcoded.
enum Stop {
    Json(JsonError),
    Memory(Exhausted),
    TooLarge(usize),
}

impl From<JsonError> for Stop {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<Exhausted> for Stop {
    fn from(full: Exhausted) -> Self {
        Self::Memory(full)
    }
}

impl From<Stop> for DecodeError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Json(error) => error.into(),
            Stop::Memory(full) => full.into(),
            Stop::TooLarge(bytes) => Self::DecodedTooLarge(bytes as u64),
        }
    }
}

struct Writer<'a, 'p> {
    out: &'a mut Vec<u8>,
    reservation: &'a mut IncrementalReservation<'p>,
}

impl Writer<'_, '_> {
    fn raw(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let len = self.out.len() + bytes.len();
        if len > BODY_BYTES_MAX {
            return Err(Stop::TooLarge(len));
        }
        Ok(self.reservation.extend(self.out, bytes)?)
    }

    fn varint(&mut self, n: u64) -> Result<(), Stop> {
        self.reservation.room(self.out, varint::BYTES_MAX)?;
        varint::put(self.out, n);
        Ok(())
    }

    fn tag(&mut self, field: u32, wire: u8) -> Result<(), Stop> {
        self.varint(u64::from(field << 3 | u32::from(wire)))
    }

    /// Writes a field whose length is not known before its content is written.
    fn sized(&mut self, field: u32, content: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        self.tag(field, LEN)?;
        let at = self.out.len();
        self.raw(&[0; LENGTH_BYTES])?;
        content(self)?;
        let start = at + LENGTH_BYTES;
        let len = self.out.len() - start;
        if len < 0x80 {
            // most fields are short, and the decoder is fast if their lengths take one byte
            self.out[at] = len as u8;
            self.out.copy_within(start.., at + 1);
            self.out.truncate(at + 1 + len);
        } else {
            for (number, byte) in self.out[at..start].iter_mut().enumerate() {
                let is_last = number == LENGTH_BYTES - 1;
                *byte = (len >> (7 * number)) as u8 & 0x7f | u8::from(!is_last) << 7;
            }
        }
        Ok(())
    }

    fn message(&mut self, json: &mut Parser<'_>, fields: &'static [Field]) -> Result<(), Stop> {
        json.object(|json, key| {
            let is_named = |field: &&Field| field.names.contains(&key);
            match fields.iter().find(is_named) {
                Some(field) if json.peek() != Some(b'n') => self.field(json, field),
                _ => Ok(json.skip()?),
            }
        })
    }

    fn field(&mut self, json: &mut Parser<'_>, field: &'static Field) -> Result<(), Stop> {
        let Field { number, kind, is_list, .. } = field;
        match (kind, is_list) {
            (Kind::Number(kind), true) => self.sized(*number, |writer| {
                json.list(|json| writer.number(json, *kind)) // packed
            }),
            (_, true) => json.list(|json| self.one(json, *number, *kind)),
            (_, false) => self.one(json, *number, *kind),
        }
    }

    fn one(&mut self, json: &mut Parser<'_>, field: u32, kind: Kind) -> Result<(), Stop> {
        match kind {
            Kind::Message(fields) => self.sized(field, |writer| writer.message(json, fields())),
            Kind::Text => self.sized(field, |writer| json.pieces(|piece| writer.raw(piece))),
            Kind::Hex => {
                let error = json.error("expected an ID in hexadecimal digits");
                self.sized(field, |writer| {
                    let mut high = None;
                    json.pieces(|piece| {
                        for digit in piece {
                            let digit = char::from(*digit).to_digit(16).ok_or(error)? as u8;
                            match high.take() {
                                None => high = Some(digit << 4),
                                Some(high) => writer.raw(&[high | digit])?,
                            }
                        }
                        Ok::<_, Stop>(())
                    })?;
                    if high.is_some() { Err(error.into()) } else { Ok(()) }
                })
            }
            Kind::Base64 => {
                let error = json.error("expected base64");
                self.sized(field, |writer| {
                    let mut base64 = Base64::default();
                    json.pieces(|piece| {
                        for digit in piece {
                            if let Some(byte) = base64.push(*digit).map_err(|NotBase64| error)? {
                                writer.raw(&[byte])?;
                            }
                        }
                        Ok(())
                    })
                })
            }
            Kind::Number(kind) => {
                self.tag(field, kind.wire())?;
                self.number(json, kind)
            }
        }
    }

    fn number(&mut self, json: &mut Parser<'_>, kind: Number) -> Result<(), Stop> {
        match kind {
            Number::Fixed64 => {
                let n: u64 = integer(json)?;
                self.raw(&n.to_le_bytes())
            }
            Number::Sfixed64 => {
                let n: i64 = integer(json)?;
                self.raw(&n.to_le_bytes())
            }
            Number::Double => {
                let n = double(json)?;
                self.raw(&n.to_le_bytes())
            }
            Number::Uint64 => {
                let n = integer(json)?;
                self.varint(n)
            }
            Number::Int64 => {
                let n: i64 = integer(json)?;
                self.varint(n as u64)
            }
            Number::Sint32 => {
                let n: i32 = integer(json)?;
                self.varint(u64::from(varint::zigzag(i64::from(n)) as u32))
            }
            Number::Bool => {
                let is_true = json.word()? == "true";
                self.varint(u64::from(is_true))
            }
            Number::Fixed32 => {
                let n: u32 = integer(json)?;
                self.raw(&n.to_le_bytes())
            }
            Number::Enum(names) => {
                let n = enumeration(json, names)?;
                self.varint(n)
            }
        }
    }
}

/// The wire type of fields with a length.
const LEN: u8 = 2;

/// A number, or a string with a number, as text.
fn number_text<T>(
    json: &mut Parser<'_>,
    parse: impl FnOnce(&str) -> Option<T>,
    what: &'static str,
) -> Result<T, JsonError> {
    let error = json.error(what);
    let parsed = match json.peek() {
        Some(b'"') => {
            let mut text = [0; SHORT_BYTES_MAX];
            parse(short_text(json, &mut text)?)
        }
        _ => parse(json.number()?),
    };
    parsed.ok_or(error)
}

fn short_text<'t>(json: &mut Parser<'_>, text: &'t mut [u8; SHORT_BYTES_MAX]) -> Result<&'t str, JsonError> {
    let too_long = json.error("text is too long");
    let mut len = 0;
    json.pieces(|piece| {
        let room = text.get_mut(len..len + piece.len()).ok_or(too_long)?;
        room.copy_from_slice(piece);
        len += piece.len();
        Ok::<_, JsonError>(())
    })?;
    std::str::from_utf8(&text[..len]).map_err(|_| too_long)
}

fn integer<T: std::str::FromStr + TryFrom<i128>>(json: &mut Parser<'_>) -> Result<T, JsonError> {
    let parse = |text: &str| {
        // integers may also be written as 1e3 or 1.0
        let whole = || text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && n.abs() < 1e30);
        text.parse().ok().or_else(|| T::try_from(whole()? as i128).ok())
    };
    number_text(json, parse, "expected an integer within the range of its type")
}

fn double(json: &mut Parser<'_>) -> Result<f64, JsonError> {
    let parse = |text: &str| match text {
        "NaN" => Some(NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // Rust also reads words such as `inf`
        _ if text.bytes().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) => None,
        _ => text.parse().ok(),
    };
    number_text(json, parse, "expected a number")
}

/// Reads a number, or the name of one. `names` are those of 0, 1 and so on.
fn enumeration(json: &mut Parser<'_>, names: &'static [&'static str]) -> Result<u64, JsonError> {
    let parse = |text: &str| match names.iter().position(|name| *name == text) {
        Some(number) => Some(number as u64),
        None => text.parse::<u32>().ok().map(u64::from),
    };
    number_text(json, parse, "expected one of the values of an enumeration")
}

struct NotBase64;

/// Decodes base64, with either alphabet, with or without padding.
#[derive(Debug, Default)]
struct Base64 {
    bits: u32,
    /// Number of the bits that are not returned yet.
    count: u32,
    has_ended: bool,
}

impl Base64 {
    fn push(&mut self, digit: u8) -> Result<Option<u8>, NotBase64> {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                self.has_ended = true;
                return Ok(None);
            }
            _ => return Err(NotBase64),
        };
        if self.has_ended {
            return Err(NotBase64);
        }
        self.bits = self.bits << 6 | u32::from(value);
        self.count += 6;
        if self.count < 8 {
            return Ok(None);
        }
        self.count -= 8;
        let byte = (self.bits >> self.count) as u8;
        self.bits &= (1 << self.count) - 1;
        Ok(Some(byte))
    }
}
