//! Reads lines, and adds their fields to a batch.

use super::scan::{head_end, name_end, next_line, string_end, value_end};
use super::{FIELD_NAME_BYTES_MAX, HEAD_BYTES_MAX, Precision};
use crate::DecodeError;
use crate::decimal::{float, short_decimal};
use crate::line_fault::Fault;
use crate::raw_keys::{Head, LabelBudget, RawKeys};
use model::caps::REQUEST_SERIES_MAX;
use model::{Batch, BatchSeries, SeriesRefusal};
use stdx::budget::IncrementalReservation;

pub(super) struct Lines<'a, 'p> {
    text: &'a [u8],
    keys: RawKeys<'a>,
    precision: Precision,
    arrival_ms: i64,
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
    budget: LabelBudget,
    /// Number of the current line, counted from 1.
    number: usize,
}

/// Bytes of labels for each byte of the text. A field has at least four bytes with its comma, so heads of up to 500 bytes
/// always pass, however many fields their lines have.
const LABEL_BYTES_PER_BYTE: usize = 128;

enum FieldValue {
    Number(f64),
    /// How many line breaks it has.
    Text(usize),
}

/// The limit on how many characters of the message are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

impl<'a, 'p> Lines<'a, 'p> {
    pub(super) fn new(
        text: &'a [u8],
        keys: RawKeys<'a>,
        (precision, arrival_ms): (Precision, i64),
        batch: &'a mut Batch,
        reservation: &'a mut IncrementalReservation<'p>,
    ) -> Self {
        let budget = LabelBudget::new(text.len(), LABEL_BYTES_PER_BYTE);
        Self { text, keys, precision, arrival_ms, batch, reservation, budget, number: 0 }
    }

    pub(super) fn read(mut self) -> Result<(), DecodeError> {
        let mut at = 0;
        while at < self.text.len() {
            self.number += 1;
            let (number, refused) = (self.number, self.batch.refused_series);
            let (series, kept) = (self.batch.floats.series.len(), self.batch.refused.len());
            let budget = self.budget;
            match self.line(at) {
                Ok(next) => at = next,
                Err(Fault::Request(error)) => return Err(error),
                Err(Fault::Line(what)) => {
                    // the whole line is left out, including its first fields. Its times were not added yet
                    let batch = &mut *self.batch;
                    batch.floats.series.truncate(series);
                    batch.floats.values.truncate(batch.floats.timestamps.len());
                    batch.refused.truncate(kept);
                    batch.refused_samples -= batch.refused_series - refused;
                    batch.refused_series = refused;
                    self.budget = budget;
                    self.count()?;
                    self.batch.refuse(SeriesRefusal::Line { number, what }, 0..0, 1);
                    self.number = number;
                    at = next_line(self.text, at);
                }
            }
        }
        Ok(())
    }

    /// Reads the line that begins at `at`. Returns where the next one begins.
    fn line(&mut self, at: usize) -> Result<usize, Fault> {
        let text = self.text;
        let start = after_blanks(text, at);
        match text.get(start) {
            None => return Ok(text.len()),
            Some(b'\n') => return Ok(start + 1),
            Some(b'#') => return Ok(next_line(text, start)),
            Some(b',') => return Err(fault("no measurement")),
            Some(_) => {}
        }
        let end = head_end(text, start);
        if end - start > HEAD_BYTES_MAX {
            return Err(fault(format!(
                "measurement and tags have {} bytes, the limit is {HEAD_BYTES_MAX}",
                end - start
            )));
        }
        let head = self.keys.head(&text[start..end]);
        // only blanks separate the fields from the head, so that the name of the first field begins after one
        let mut at = end;
        while text.get(at) == Some(&b' ') {
            at += 1;
        }
        let first_value = self.batch.floats.values.len();
        loop {
            at = self.field((start, end), head, at)?;
            match text.get(at) {
                Some(b',') => at += 1,
                _ => break,
            }
        }
        let (timestamp_ms, at) = self.time(after_blanks(text, at))?;
        let timestamps = &mut self.batch.floats.timestamps;
        let values = self.batch.floats.values.len();
        self.reservation.room(timestamps, values - first_value)?;
        timestamps.resize(values, timestamp_ms);
        Ok(at)
    }

    /// Reads the field at `at`, of a line whose head is from `start` to `head_end`. Returns where the field ends.
    #[inline]
    fn field(&mut self, (start, head_end): (usize, usize), head: Head, at: usize) -> Result<usize, Fault> {
        let text = self.text;
        let equals = name_end(text, at);
        let name = &text[at..equals];
        if text.get(equals) != Some(&b'=') {
            return Err(match name {
                [] | [b'\r'] => fault("no field"),
                _ => fault(format!("field {} has no value", shown(name))),
            });
        }
        if name.is_empty() || name.len() > FIELD_NAME_BYTES_MAX {
            return Err(match name.len() {
                0 => fault("a field has no name"),
                bytes => {
                    fault(format!("name of a field has {bytes} bytes, the limit is {FIELD_NAME_BYTES_MAX}"))
                }
            });
        }
        self.count()?;
        let (value, end) = value(text, equals + 1, name)?;
        match value {
            FieldValue::Number(value) => {
                self.budget.take(head_end - start + name.len())?;
                let floats = &mut self.batch.floats;
                let samples = floats.values.len() as u32..floats.values.len() as u32 + 1;
                self.reservation.push(&mut floats.values, value)?;
                let (key, labels) = (head.field(name), start as u32..equals as u32);
                self.reservation.push(&mut floats.series, BatchSeries { key, labels, samples })?;
            }
            FieldValue::Text(breaks) => {
                self.refuse_text(start, name);
                self.number += breaks;
            }
        }
        Ok(end)
    }

    #[cold]
    fn refuse_text(&mut self, start: usize, name: &[u8]) {
        let batch = &mut *self.batch;
        // the message is only made if it will be shown
        let what = if batch.refused.len() < Batch::REFUSED_KEPT_MAX {
            let head = &self.text[start..head_end(self.text, start)];
            let measurement = head.split(|byte| *byte == b',').next().unwrap_or_default();
            format!("field {} of {} is a string, which cannot be stored", shown(name), shown(measurement))
        } else {
            String::new()
        };
        batch.refuse(SeriesRefusal::Line { number: self.number, what }, 0..0, 1);
    }

    /// Reads the time at `at`, if there is one, and the end of the line. Returns milliseconds, and where the next line
    /// begins.
    #[inline]
    fn time(&self, at: usize) -> Result<(i64, usize), Fault> {
        let text = self.text;
        let end = value_end(text, at);
        let word = &text[at..end];
        let timestamp_ms = match word {
            [] => self.arrival_ms,
            _ => {
                let time =
                    integer(word).ok_or_else(|| fault(format!("time {} is not an integer", shown(word))))?;
                self.precision.to_ms(time)
            }
        };
        let end = after_blanks(text, end);
        match text.get(end) {
            None => Ok((timestamp_ms, end)),
            Some(b'\n') => Ok((timestamp_ms, end + 1)),
            Some(_) => {
                let word = &text[end..value_end(text, end + 1)];
                Err(fault(format!("unexpected text {} after the fields and the time", shown(word))))
            }
        }
    }

    /// Fails if the batch has as many series and errors as a request may have.
    #[inline]
    fn count(&self) -> Result<(), DecodeError> {
        match self.batch.floats.series.len() + self.batch.refused_series as usize >= REQUEST_SERIES_MAX {
            true => Err(DecodeError::TooMany { what: "fields", limit: REQUEST_SERIES_MAX }),
            false => Ok(()),
        }
    }
}

/// Reads the value at `at`. Returns it, and where it ends.
#[inline]
fn value(text: &[u8], at: usize, name: &[u8]) -> Result<(FieldValue, usize), Fault> {
    if let Some((number, length)) = text.get(at..).and_then(short_decimal) {
        let end = at + length;
        match text.get(end) {
            None | Some(b',' | b' ' | b'\n' | b'\r') => return Ok((FieldValue::Number(number), end)),
            Some(b'i') if is_end(text, end + 1) && !text[at..end].contains(&b'.') => {
                return Ok((FieldValue::Number(number + 0.0), end + 1)); // the integer -0 is 0
            }
            Some(_) => {}
        }
    }
    if text.get(at) == Some(&b'"') {
        let (end, breaks) = string_end(text, at + 1)
            .ok_or_else(|| fault(format!("the string of field {} does not end", shown(name))))?;
        return match is_end(text, end + 1) {
            true => Ok((FieldValue::Text(breaks), end + 1)),
            false => Err(fault(format!("unexpected text after the string of field {}", shown(name)))),
        };
    }
    let end = value_end(text, at);
    let word = &text[at..end];
    match other_number(word) {
        Some(number) => Ok((FieldValue::Number(number), end)),
        None if word.is_empty() => Err(fault(format!("field {} has no value", shown(name)))),
        None => Err(fault(format!(
            "value {} of field {} is neither a number nor a boolean",
            shown(word),
            shown(name)
        ))),
    }
}

/// Reads a boolean, or a number of any form.
fn other_number(word: &[u8]) -> Option<f64> {
    match word {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => return Some(1.0),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => return Some(0.0),
        [digits @ .., b'i'] => return integer(digits).map(|number| number as f64),
        [digits @ .., b'u'] => {
            return std::str::from_utf8(digits).ok()?.parse::<u64>().ok().map(|n| n as f64);
        }
        _ => {}
    }
    // without letters other than an exponent, it is not "inf" or "nan"
    let is_number = word.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    float(word).filter(|number| is_number && number.is_finite())
}

fn integer(digits: &[u8]) -> Option<i64> {
    /// Numbers with up to 18 digits fit into 64 bits.
    const SHORT_DIGITS_MAX: usize = 18;
    if (1..=SHORT_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        return Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn is_end(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| matches!(byte, b',' | b' ' | b'\n' | b'\r'))
}

fn after_blanks(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

fn fault(what: impl Into<String>) -> Fault {
    Fault::Line(what.into())
}

fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(&word[..word.len().min(4 * SHOWN_CHARS_MAX)]);
    format!("{:?}", text.chars().take(SHOWN_CHARS_MAX).collect::<String>())
}
