//! Decodes Graphite's plaintext protocol, with tags.
//!
//! ```text
//!   servers.web1.load 0.7 1795284000           path, value, time in seconds
//!   disk.used;host=web1;rack=b 42.5 1795284000 tags become labels
//!   disk.used;rack=b;host=web1 43 1795284000.5 the same series
//! ```
//!
//! The path becomes the metric name unchanged, with its dots. A line that cannot be read is left out and
//! reported. A line must have a time: if the server filled in the current time, a request that is sent twice
//! would store its samples twice. Sources: <https://graphite.readthedocs.io/en/latest/feeding-carbon.html>
//! and <https://graphite.readthedocs.io/en/latest/tags.html>.

use crate::{DecodeError, Encoding, Request};
use model::caps::{REQUEST_SERIES_MAX, SERIES_LABEL_BYTES_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{Batch, BatchSeries, SeriesBatch, SeriesHasher, SeriesRefusal};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};

/// The encodings of bodies that are accepted. Without `Content-Encoding`, a body is not compressed.
pub const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// A line may hold the longest labels of a series, a value and a time.
pub const LINE_BYTES_MAX: usize = SERIES_LABEL_BYTES_MAX + 1024;

/// The limit on how many characters of an unreadable word are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 64;

/// Largest number of bytes that an encoded label takes in addition to its name and value. These are three
/// tags of one byte each, and three lengths of up to five bytes each.
const LABEL_OVERHEAD_BYTES: usize = 3 + 3 * 5;

#[derive(Debug)]
pub struct Decoder {
    hasher: SeriesHasher,
    body: Vec<u8>,
    /// The labels of the current line, reused between lines.
    labels: Vec<Label>,
}

/// The ranges of the path that contain a tag's name and its value.
type Label = (Range<u32>, Range<u32>);

impl crate::Decoder for Decoder {
    type Format = ();

    fn new(seed: u64) -> Self {
        Self { hasher: SeriesHasher::new(seed), body: Vec::new(), labels: Vec::new() }
    }

    fn fill(
        &mut self,
        request: Request<'_, ()>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        request.body.decompress(&mut self.body, reservation)?;
        let Self { hasher, body, labels } = self;
        let mut lines = Lines { hasher, labels, batch, reservation };
        for (line, number) in body.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            if lines.batch.floats.series.len() + lines.batch.refused_series as usize >= REQUEST_SERIES_MAX {
                return Err(DecodeError::TooMany { what: "lines", limit: REQUEST_SERIES_MAX });
            }
            match lines.line(line) {
                Ok(()) => {}
                Err(Fault::Memory(full)) => return Err(full.into()),
                Err(Fault::Line(what)) => lines.batch.refuse(SeriesRefusal::Line { number, what }, 0..0, 1),
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.labels.capacity() * size_of::<Label>()
    }
}

#[derive(Debug)]
enum Fault {
    Line(String),
    Memory(Exhausted),
}

impl From<Exhausted> for Fault {
    fn from(full: Exhausted) -> Self {
        Self::Memory(full)
    }
}

struct Lines<'a, 'p> {
    hasher: &'a SeriesHasher,
    labels: &'a mut Vec<Label>,
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
}

impl Lines<'_, '_> {
    /// `line` must not be empty, and must have no white space at its ends.
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Fault::Line(format!("{} bytes, the limit is {LINE_BYTES_MAX}", line.len())));
        }
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let path = words.next().unwrap_or_default();
        let value = words.next().ok_or_else(|| Fault::Line("no value".into()))?;
        let value = value_of(value).ok_or_else(|| fault("value", value, "is not a number"))?;
        let time = words.next().ok_or_else(|| Fault::Line("no time".into()))?;
        let timestamp_ms = time_of(time).ok_or_else(|| fault("time", time, "is not a number of seconds"))?;
        if let Some(word) = words.next() {
            return Err(fault("unexpected text", word, "after the time"));
        }
        self.read_path(path)?;
        self.push(path, timestamp_ms, value)
    }

    /// Splits a path into the metric name and tags, and sorts the tags by name.
    fn read_path(&mut self, path: &[u8]) -> Result<(), Fault> {
        self.labels.clear();
        let mut tags = path.split(|byte| *byte == b';');
        let name = tags.next().unwrap_or_default();
        if name.is_empty() {
            return Err(Fault::Line("no metric name before the tags".into()));
        }
        let mut at = name.len() + 1;
        for tag in tags {
            let equals = tag.iter().position(|byte| *byte == b'=').filter(|equals| *equals > 0);
            let equals = equals.ok_or_else(|| fault("tag", tag, "is not of the form name=value"))?;
            let (name, value) = (at..at + equals, at + equals + 1..at + tag.len());
            at += tag.len() + 1;
            if value.is_empty() {
                continue; // an empty value means "no such label", as in the other formats
            }
            self.reservation.push(self.labels, (narrow(name), narrow(value)))?;
        }
        self.labels.sort_unstable_by_key(|(name, _)| &path[wide(name)]);
        Ok(())
    }

    /// Adds a sample. Its series was just parsed from `path` by [`Self::read_path`].
    fn push(&mut self, path: &[u8], timestamp_ms: i64, value: f64) -> Result<(), Fault> {
        let name = path.split(|byte| *byte == b';').next().unwrap_or_default();
        let Batch { bytes, floats, .. } = &mut *self.batch;
        let SeriesBatch { series, timestamps, values, .. } = floats;
        let texts_bytes = path.len() + METRIC_NAME.len();
        self.reservation.room(bytes, texts_bytes + (self.labels.len() + 1) * LABEL_OVERHEAD_BYTES)?;
        let (start, sample) = (bytes.len(), timestamps.len() as u32);
        let mut has_name = false;
        for (tag, value) in self.labels.iter() {
            let tag = &path[wide(tag)];
            if !has_name && tag > METRIC_NAME.as_bytes() {
                put_label(bytes, METRIC_NAME.as_bytes(), name);
                has_name = true;
            }
            put_label(bytes, tag, &path[wide(value)]);
        }
        if !has_name {
            put_label(bytes, METRIC_NAME.as_bytes(), name);
        }
        let key = self.hasher.key(&bytes[start..]);
        let labels = start as u32..bytes.len() as u32;
        self.reservation.push(timestamps, timestamp_ms)?;
        self.reservation.push(values, value)?;
        self.reservation.push(series, BatchSeries { key, labels, samples: sample..sample + 1 })?;
        Ok(())
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

fn wide(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

fn fault(what: &str, word: &[u8], why: &str) -> Fault {
    let text = String::from_utf8_lossy(&word[..word.len().min(4 * SHOWN_CHARS_MAX)]);
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    Fault::Line(format!("{what} {shown:?} {why}"))
}

/// Parses a value. A NaN is refused, because Graphite has none.
fn value_of(word: &[u8]) -> Option<f64> {
    number(word).filter(|value| !value.is_nan())
}

fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Parses a Unix time in seconds, which may have decimals, to milliseconds.
fn time_of(word: &[u8]) -> Option<i64> {
    if let Ok(seconds) = std::str::from_utf8(word).ok()?.parse::<i64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let seconds = number(word).filter(|seconds| seconds.is_finite())?;
    // a time out of range becomes the largest or smallest integer, which is refused later
    Some((seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests;
