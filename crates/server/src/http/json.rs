//! Encodes Prometheus' JSON directly into bytes, because answers are long lists of numbers.

mod backwards;
mod chunks;
mod decimals;

use crate::refusal::{Refusal, grow};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use backwards::Backwards;
use chunks::Chunks;
use decimals::Decimals;
use model::{LabelsRef, Samples};
use stdx::budget::{Account, Reservation};

/// JSON encoder. The memory of the text stays reserved until the client has received the last byte.
#[derive(Debug)]
pub(crate) struct Json {
    /// Full chunks, before `bytes`. Long texts are not kept in one piece, because a larger piece would have to be copied
    /// again and again.
    full: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    /// Reservation for all chunks. `None` for small answers, whose size is fixed.
    memory: Option<Reservation>,
    /// The error, if memory for the text could not be reserved. Nothing is written after that.
    refused: Option<Refusal>,
    /// Value of a header, for formats that have no place for warnings.
    warning: Option<HeaderValue>,
    decimals: Decimals,
    /// The number or point that is being written.
    short: Backwards,
}

/// Names data that the answer lacks.
const WARNING: &str = "x-floodmark-warning";

/// Limits on the warnings in the header, and on the length of each. Servers and proxies accept a few kilobytes of headers.
const WARNINGS_MAX: usize = 2;
const WARNING_CHARS_MAX: usize = 500;

/// Each chunk is as long as all before it, within these limits.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct AnswerSize(pub(crate) Refusal);

impl Json {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::with_capacity(512), ..Self::empty(None) }
    }

    pub(crate) fn within(account: &Account) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        Self::empty(Some(memory))
    }

    /// A text that was written before, in pieces, and the reservation for them.
    pub(crate) fn of_pieces(pieces: Vec<Vec<u8>>, memory: Reservation) -> Self {
        Self { full: pieces, ..Self::empty(Some(memory)) }
    }

    fn empty(memory: Option<Reservation>) -> Self {
        Self {
            full: Vec::new(),
            bytes: Vec::new(),
            memory,
            refused: None,
            warning: None,
            decimals: Decimals::default(),
            short: Backwards::default(),
        }
    }

    pub(crate) fn finish(self) -> Result<Self, AnswerSize> {
        match self.refused {
            Some(refusal) => Err(AnswerSize(refusal)),
            None => Ok(self),
        }
    }

    /// True once memory was short. What is written after that is lost.
    #[cfg(feature = "sql")]
    pub(crate) const fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Adds warnings to the header of the answer. It has the first ones, and says how many others there are.
    pub(crate) fn warn(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let printable = |c: char| if c.is_control() || !c.is_ascii() { ' ' } else { c };
        let texts = warnings.iter().take(WARNINGS_MAX);
        let texts: Vec<String> =
            texts.map(|text| text.chars().take(WARNING_CHARS_MAX).map(printable).collect()).collect();
        let more = match warnings.len() - texts.len() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        self.warning = HeaderValue::try_from(format!("{}{more}", texts.join("; "))).ok();
    }

    pub(crate) fn raw(&mut self, text: &str) {
        self.put(text.as_bytes());
    }

    /// Appends bytes as they are, for answers in other formats.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.bytes.capacity() - self.bytes.len() || self.make_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Begins a chunk with room for `more` bytes. Returns false if memory is short.
    #[cold]
    fn make_room(&mut self, more: usize) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let before = self.full.iter().map(Vec::capacity).sum::<usize>() + self.bytes.capacity();
        let chunk = before.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).max(more);
        if let Some(memory) = &mut self.memory
            && let Err(refusal) = grow(memory, (before + chunk) as u64)
        {
            *self = Self { refused: Some(refusal), ..Self::empty(None) };
            return false;
        }
        let full = std::mem::replace(&mut self.bytes, Vec::with_capacity(chunk));
        if !full.is_empty() {
            self.full.push(full);
        }
        true
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.put(b"\"");
        let bytes = text.as_bytes();
        let mut from = 0;
        for (i, b) in bytes.iter().enumerate() {
            if *b >= 0x20 && *b != b'"' && *b != b'\\' {
                continue;
            }
            self.put(&bytes[from..i]);
            from = i + 1;
            match b {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\r' => self.raw("\\r"),
                b'\t' => self.raw("\\t"),
                _ => self.raw(&format!("\\u{b:04x}")),
            }
        }
        self.put(&bytes[from..]);
        self.put(b"\"");
    }

    pub(crate) fn integer(&mut self, n: i64) {
        self.raw(itoa::Buffer::new().format(n));
    }

    /// Writes a number, and `null` for NaN. JSON has no infinity, so it is written as a number that parses to it.
    pub(crate) fn number(&mut self, v: f64) {
        self.short.clear();
        self.number_before(v);
        self.put_short();
    }

    /// Writes a number before what `short` contains.
    #[inline]
    fn number_before(&mut self, v: f64) {
        let (whole, text) = (v as i64, &mut self.short);
        if whole as f64 == v && v.abs() < 9e15 {
            text.integer(whole);
        } else if v.is_nan() {
            text.text(b"null");
        } else if v.is_infinite() {
            text.text(if v > 0.0 { b"1e9999" } else { b"-1e9999" });
        } else if let Some((digits, places)) = self.decimals.of(v) {
            text.decimal(digits, places);
        } else {
            text.text(zmij::Buffer::new().format_finite(v).as_bytes());
        }
    }

    /// Writes a point of Graphite's, `[value,time]`, after a comma unless its position is 0.
    #[inline]
    pub(crate) fn datapoint(&mut self, position: usize, v: f64, time_s: i64) {
        self.short.clear();
        self.short.byte(b']');
        self.short.time(time_s);
        self.short.byte(b',');
        self.number_before(v);
        self.short.byte(b'[');
        if position > 0 {
            self.short.byte(b',');
        }
        self.put_short();
    }

    #[inline]
    fn put_short(&mut self) {
        let room = self.bytes.capacity() - self.bytes.len();
        if room >= Backwards::COPY_BYTES || self.make_room(Backwards::COPY_BYTES) {
            self.short.append_to(&mut self.bytes);
        }
    }

    /// Writes a time as Prometheus does: in seconds, with three decimals unless it is a whole second.
    pub(crate) fn time(&mut self, ms: i64) {
        if ms < 0 {
            self.put(b"-");
        }
        let ms = ms.unsigned_abs();
        self.raw(itoa::Buffer::new().format(ms / 1000));
        let rest = ms % 1000;
        if rest != 0 {
            self.put(b".");
            self.put(&[100, 10, 1].map(|unit| b'0' + (rest / unit % 10) as u8));
        }
    }

    /// Writes a value as Prometheus does: as a string with the fewest digits that parse to the same number.
    /// Values below 1e-6 or from 1e21 are written with an exponent.
    pub(crate) fn value(&mut self, v: f64) {
        self.put(b"\"");
        let size = v.abs();
        if v.is_nan() {
            self.raw("NaN");
        } else if v.is_infinite() {
            self.raw(if v > 0.0 { "+Inf" } else { "-Inf" });
        } else if v == v.trunc() && size < 9e15 && (v != 0.0 || v.is_sign_positive()) {
            self.integer(v as i64);
        } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{v:e}");
            let (digits, exponent) = text.split_once('e').expect("BUG: text of {:e} has no exponent");
            let (sign, exponent) = exponent.strip_prefix('-').map_or(("e+", exponent), |e| ("e-", e));
            self.raw(digits);
            self.raw(sign);
            // Go writes at least two digits of the exponent
            self.raw(if exponent.len() < 2 { "0" } else { "" });
            self.raw(exponent);
        } else {
            let text = zmij::Buffer::new().format_finite(v).to_string();
            match text.contains('e') {
                true => self.raw(&v.to_string()),
                false => self.raw(text.strip_suffix(".0").unwrap_or(&text)),
            }
        }
        self.put(b"\"");
    }

    pub(crate) fn labels(&mut self, labels: LabelsRef<'_>) {
        self.put(b"{");
        for (i, (name, value)) in labels.iter().enumerate() {
            self.comma(i);
            self.string(name);
            self.put(b":");
            self.string(value);
        }
        self.put(b"}");
    }

    pub(crate) fn point(&mut self, ms: i64, v: f64) {
        self.put(b"[");
        self.time(ms);
        self.put(b",");
        self.value(v);
        self.put(b"]");
    }

    /// Writes a scalar, `[time,"value"]`. Prometheus writes scalars, unlike samples, without an exponent.
    pub(crate) fn scalar(&mut self, ms: i64, v: f64) {
        if !v.is_finite() {
            return self.point(ms, v);
        }
        self.put(b"[");
        self.time(ms);
        self.raw(&format!(",\"{v}\"]"));
    }

    pub(crate) fn points(&mut self, samples: &Samples) {
        self.put(b"[");
        for (i, (t, v)) in samples.timestamps.iter().zip(&samples.values).enumerate() {
            self.comma(i);
            self.point(*t, *v);
        }
        self.put(b"]");
    }

    pub(crate) fn strings<S: AsRef<str>>(&mut self, texts: &[S]) {
        self.put(b"[");
        for (i, text) in texts.iter().enumerate() {
            self.comma(i);
            self.string(text.as_ref());
        }
        self.put(b"]");
    }

    /// Writes a comma before every element except the first, at position 0.
    pub(crate) fn comma(&mut self, position: usize) {
        if position > 0 {
            self.put(b",");
        }
    }

    /// Returns the bytes written so far, and releases their reservation.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.full.push(self.bytes);
        self.full.concat()
    }

    #[cfg(test)]
    pub(crate) fn text(self) -> String {
        String::from_utf8(self.into_bytes()).unwrap()
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let mut chunks = self.full;
        chunks.push(self.bytes);
        let mut response = Response::new(Body::new(Chunks::new(chunks, self.memory)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(warning) = self.warning {
            response.headers_mut().insert(WARNING, warning);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_prometheus_writes_them() {
        let check = |v: f64, expected: &str| {
            let mut json = Json::new();
            json.value(v);
            assert_eq!(json.text(), format!("\"{expected}\""));
        };
        check(1.0, "1");
        check(0.0, "0");
        check(-0.0, "-0");
        check(-1.5, "-1.5");
        check(0.1 + 0.2, "0.30000000000000004");
        check(1e20, "100000000000000000000");
        check(1e21, "1e+21");
        check(123456789012345680000.0, "123456789012345680000");
        check(1e-6, "0.000001");
        check(1.5e-7, "1.5e-07");
        check(-2e300, "-2e+300");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(5e-324, "5e-324");
        check(0.00001234, "0.00001234");
        check(9007199254740993.0, "9007199254740992");
    }

    #[test]
    fn scalars_have_no_exponent() {
        let check = |v: f64, expected: &str| {
            let mut json = Json::new();
            json.scalar(1, v);
            assert_eq!(json.text(), format!("[0.001,\"{expected}\"]"));
        };
        check(1e-7, "0.0000001");
        check(-2e22, "-20000000000000000000000");
        check(-0.0, "-0");
        check(f64::NEG_INFINITY, "-Inf");
    }

    #[test]
    fn numbers_are_json() {
        let check = |v: f64, expected: &str| {
            let mut json = Json::new();
            json.number(v);
            assert_eq!(json.text(), expected);
        };
        check(1.0, "1");
        check(-0.5, "-0.5");
        for v in [1e300, -2.5e-9, 0.1 + 0.2] {
            let mut json = Json::new();
            json.number(v);
            let text = json.text();
            assert_eq!(text.parse(), Ok(v));
            serde_json::from_str::<serde_json::Value>(&text).expect("a number of JSON");
        }
        check(f64::NAN, "null");
        check(f64::INFINITY, "1e9999");
        check(f64::NEG_INFINITY, "-1e9999");
    }

    /// Whatever way a number is written, it has the fewest digits that parse to it.
    #[test]
    fn numbers_have_the_fewest_digits() {
        let mut state = 1;
        let mut random = || {
            state = stdx::rng::mix(state);
            state
        };
        let mut json = Json::new();
        for round in 0..200_000 {
            let places = (random() % 13) as i32;
            let digits = (random() >> (random() % 60 + 4)) as i64;
            let v = match round % 4 {
                0 => f64::from_bits(random()),
                1 => (digits as f64 / 10_f64.powi(places)).next_up(),
                _ => digits as f64 / 10_f64.powi(places),
            } * if round % 3 == 0 { -1.0 } else { 1.0 };
            if !v.is_finite() {
                continue;
            }
            json.bytes.clear();
            json.number(v);
            let without_zero = |text: &str| text.strip_suffix(".0").unwrap_or(text).to_owned();
            let text = without_zero(std::str::from_utf8(&json.bytes).unwrap());
            assert_eq!(text.parse(), Ok(v), "{v:e}");
            let general = without_zero(zmij::Buffer::new().format_finite(v));
            if !general.contains('e') {
                assert_eq!(text, if v == 0.0 { "0" } else { &general }, "{v:e}");
            }
        }
    }

    #[test]
    fn datapoints() {
        let mut json = Json::new();
        let values = [1.0, f64::NAN, -0.25, 99.9, f64::INFINITY, f64::MIN_POSITIVE, -123_456_789.012_345_6];
        for (position, v) in values.into_iter().enumerate() {
            json.datapoint(position, v, 1_795_284_000 - 1_000_000_000 * position as i64);
        }
        assert_eq!(
            json.text(),
            "[1,1795284000],[null,795284000],[-0.25,-204716000],[99.9,-1204716000],[1e9999,-2204716000],\
             [2.2250738585072014e-308,-3204716000],[-123456789.0123456,-4204716000]"
        );
    }

    #[test]
    fn the_header_has_the_first_warnings() {
        let check = |warnings: &[&str], expected: &str| {
            let mut json = Json::new();
            json.warn(&warnings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            let header = json.warning.as_ref().map_or("", |warning| warning.to_str().unwrap());
            assert_eq!(header, expected);
        };
        check(&[], "");
        check(&["one"], "one");
        check(&["one\nline", "two"], "one line; two");
        check(&["one", "two", "three", "four"], "one; two (and 2 more)");
        let long = "x".repeat(WARNING_CHARS_MAX);
        check(&[&format!("{long}yy"), "two"], &format!("{long}; two"));
    }

    #[test]
    fn times() {
        let check = |ms: i64, expected: &str| {
            let mut json = Json::new();
            json.time(ms);
            assert_eq!(json.text(), expected);
        };
        check(0, "0");
        check(1_500, "1.500");
        check(1_007, "1.007");
        check(-1_500, "-1.500");
        check(1_795_284_000_000, "1795284000");
    }

    #[test]
    fn strings_are_escaped() {
        let mut json = Json::new();
        json.string("a\"b\\c\n\u{1}é");
        assert_eq!(json.text(), r#""a\"b\\c\n\u0001é""#);
    }

    #[test]
    fn an_answer_never_holds_more_than_it_reserved() {
        let account = Account::new("answers", 100_000);
        let mut json = Json::within(&account);
        while json.refused.is_none() {
            let held: usize = json.full.iter().chain([&json.bytes]).map(Vec::capacity).sum();
            assert!(held as u64 <= account.used_bytes());
            json.string("text");
        }
        json.string("more");
        assert_eq!((json.full.len(), json.bytes.capacity(), account.used_bytes()), (0, 0, 0));
        assert!(json.finish().is_err());
        assert!(account.peak_bytes() > 50_000, "most of the account was used");
    }

    #[test]
    fn an_answer_holds_its_memory_until_it_is_sent() {
        let account = Account::new("answers", 100_000);
        let mut json = Json::within(&account);
        json.string(&"x".repeat(1000));
        let response = json.finish().unwrap().into_response();
        assert!(account.used_bytes() >= 1002);
        drop(response);
        assert_eq!(account.used_bytes(), 0);
    }
}
