//! Decodes requests of Prometheus' and OpenMetrics' text.
//!
//! The key of a series is a hash of the text before the value, so the labels of known series are not parsed.

use super::{Dialect, Reader, parse_time, parse_value};
use crate::decimal::short_decimal;
use crate::decoder::{describe_text, part};
use crate::line_batch::LineBatch;
use crate::line_fault::Fault;
use crate::raw_keys::RawKeys;
use crate::scan::{Eight, eight, find};
use crate::{DecodeError, LabelForm, Request, SharedLabels};
use model::{Batch, Labels, LabelsBuilder, SeriesHasher, SeriesRefusal};
use std::ops::Range;
use std::sync::Arc;
use stdx::budget::IncrementalReservation;

/// What a request says besides its lines.
#[derive(Debug, Clone)]
pub struct Format {
    pub dialect: Dialect,
    pub labels: Arc<TextLabels>,
    /// The time of lines without a time, in milliseconds since the Unix epoch.
    pub arrival_ms: i64,
    /// Number of the first line, for error messages.
    pub first_line: usize,
}

/// Labels of a line of text.
#[derive(Debug, Default)]
pub struct TextLabels(pub SharedLabels);

#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    fn new(seed: u64) -> Self {
        Self { seed, hasher: SeriesHasher::new(seed) }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Request { format: Format { dialect, labels, arrival_ms, first_line }, body } = request;
        body.decompress(&mut batch.bytes, reservation)?;
        // moved out, so that other fields of the batch can be modified while the bytes are borrowed
        let bytes = std::mem::take(&mut batch.bytes);
        let keys = RawKeys { hasher: &self.hasher, fingerprint: labels.0.fingerprint(self.seed) };
        let lines = LineBatch::new(&bytes, keys, batch, reservation);
        let read = lines.each_line(first_line, |lines, range| line(lines, range, dialect, arrival_ms));
        batch.bytes = bytes;
        read
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn label_form(format: &Format) -> &dyn LabelForm {
        &*format.labels
    }
}

impl LabelForm for TextLabels {
    /// The range is a line up to the value.
    fn labels_of(
        &self,
        bytes: &[u8],
        labels: &Range<u32>,
        builder: &mut LabelsBuilder,
    ) -> Result<Labels, SeriesRefusal> {
        builder.clear();
        let text = std::str::from_utf8(part(bytes, labels)).map_err(|_| SeriesRefusal::NotUtf8)?;
        let mut reader = Reader { text, at: 0 };
        reader
            .series(|name, value| self.0.push_own(name, value, builder))
            .map_err(|error| SeriesRefusal::Text(error.to_string()))?;
        if !reader.rest().is_empty() {
            return Err(SeriesRefusal::Text(reader.error("unexpected text").to_string()));
        }
        self.0.push_to(builder);
        builder.build_series()
    }

    fn describe(&self, bytes: &[u8], labels: &Range<u32>) -> String {
        let found = self.labels_of(bytes, labels, &mut LabelsBuilder::new());
        describe_text(part(bytes, labels), found)
    }
}

fn line(
    lines: &mut LineBatch<'_, '_>,
    range: Range<usize>,
    dialect: Dialect,
    arrival_ms: i64,
) -> Result<(), Fault> {
    let text = lines.text;
    let start = after_blanks(text, range.start, range.end);
    if text[start] == b'#' {
        return Ok(());
    }
    let line = &text[start..range.end];
    let end = series_end(line).ok_or_else(|| Fault::Line("unterminated labels".into()))?;
    let (value, timestamp_ms) = match usual(&line[end..], dialect) {
        Some((value, time)) => (value, time),
        None => other(&line[end..], dialect)?,
    };
    let first = lines.samples();
    lines.value(value)?;
    lines.timestamp(timestamp_ms.unwrap_or(arrival_ms))?;
    let key = lines.keys.head(&line[..end]).only();
    Ok(lines.series(key, start..start + end, first)?)
}

/// Returns where the name and the labels end. `None` if the labels have no end.
fn series_end(line: &[u8]) -> Option<usize> {
    let is_end = |eight: Eight| eight.equal(b'{') | eight.equal(b' ') | eight.equal(b'\t');
    let name = find(line, 0, is_end).unwrap_or(line.len());
    // blanks may come between the name and the labels
    let brace = name + line[name..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    if line.get(brace) != Some(&b'{') {
        return Some(name);
    }
    usual_labels_end(line, brace + 1).or_else(|| labels_end(line, brace + 1))
}

/// Returns where the labels end of a line that has no exemplar and whose last label has a value without escape sequences
/// at its end. Such a line has nothing quoted behind the labels. If it has, it is invalid, and refused because the labels
/// are.
fn usual_labels_end(line: &[u8], start: usize) -> Option<usize> {
    let brace = memchr::memrchr(b'}', &line[start..])? + start;
    let is_usual = match line[start..brace] {
        [.., b'\\', b'"'] => false,
        [.., b'"'] => memchr::memchr(b'#', line).is_none(),
        _ => false,
    };
    is_usual.then_some(brace + 1)
}

/// Returns where the labels end whose first byte is at `start`: after the first brace that is not quoted.
fn labels_end(line: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut is_quoted) = (start, false);
    loop {
        let (eight, is_there) = eight(line, at)?;
        if eight.equal(b'\\') & is_there != 0 {
            return labels_end_with_escapes(line, at, is_quoted);
        }
        let quotes = eight.all_equal(b'"') & is_there;
        let mut braces = eight.all_equal(b'}') & is_there;
        while braces != 0 {
            let brace = braces.trailing_zeros();
            let quotes_before = quotes & ((1 << brace) - 1);
            if is_quoted == (quotes_before.count_ones() % 2 == 1) {
                return Some(at + brace as usize / 8 + 1);
            }
            braces &= braces - 1;
        }
        is_quoted ^= quotes.count_ones() % 2 == 1;
        at += 8;
    }
}

/// Like [`labels_end`], from the middle of the labels on.
fn labels_end_with_escapes(line: &[u8], mut at: usize, mut is_quoted: bool) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => at += 1,
            b'}' if !is_quoted => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}

/// Reads a short decimal, and a whole number of digits as the time, if there is one. `None` if the text has another form.
fn usual(text: &[u8], dialect: Dialect) -> Option<(f64, Option<i64>)> {
    /// So many digits fit into 64 bits, also as milliseconds.
    const DIGITS_MAX: usize = 15;
    let at = after_blanks(text, 0, text.len());
    let (value, length) = short_decimal(&text[at..])?;
    let at = at + length;
    let time = after_blanks(text, at, text.len());
    if time == text.len() {
        return Some((value, None));
    }
    let digits = &text[time..];
    if time == at || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    Some((value, Some(if dialect == Dialect::OpenMetrics { number * 1000 } else { number })))
}

/// Reads a value and a time of any form, and skips an exemplar.
fn other(text: &[u8], dialect: Dialect) -> Result<(f64, Option<i64>), Fault> {
    let fault = |what: &str| Fault::Line(what.into());
    let text = std::str::from_utf8(text).map_err(|_| fault("not UTF-8"))?;
    let mut reader = Reader { text, at: 0 };
    let value = parse_value(reader.word()).ok_or_else(|| fault("missing or invalid value"))?;
    let timestamp_ms = match reader.word() {
        "" => None,
        text => Some(parse_time(text, dialect).ok_or_else(|| fault("invalid timestamp"))?),
    };
    reader.spaces();
    if !(reader.rest().is_empty() || reader.rest().starts_with('#')) {
        return Err(fault("trailing characters after the timestamp"));
    }
    Ok((value, timestamp_ms))
}

fn after_blanks(text: &[u8], mut at: usize, end: usize) -> usize {
    while at < end && matches!(text[at], b' ' | b'\t' | b'\r') {
        at += 1;
    }
    at
}
