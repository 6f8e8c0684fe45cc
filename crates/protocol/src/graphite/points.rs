//! Adds points to a batch: splits paths into names and tags, and writes them as labels.

use super::TimeOfArrival;
use crate::DecodeError;
use model::caps::REQUEST_SERIES_MAX;
use model::labels::{METRIC_NAME, put_label};
use model::{Batch, BatchSeries, SeriesBatch, SeriesHasher};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};
use stdx::excerpt::Excerpt;

/// Largest number of bytes that an encoded label takes in addition to its name and value. These are three
/// tags of one byte each, and three lengths of up to five bytes each.
const LABEL_OVERHEAD_BYTES: usize = 3 + 3 * 5;

/// The limit on how much of an unreadable word is quoted in an error message. It leaves room for an excerpt of the line.
const WORD_BYTES_MAX: usize = 48;

/// The ranges of the path that contain a tag's name and its value.
pub(super) type Label = (Range<u32>, Range<u32>);

/// Why a point is left out, or why decoding ends.
#[derive(Debug)]
pub(super) enum Fault {
    Point(String),
    Memory(Exhausted),
}

impl From<Exhausted> for Fault {
    fn from(full: Exhausted) -> Self {
        Self::Memory(full)
    }
}

pub(super) fn fault(what: &str, word: &[u8], why: &str) -> Fault {
    Fault::Point(format!("{what} {} {why}", Excerpt::at_most(WORD_BYTES_MAX, word)))
}

pub(super) struct Points<'a, 'p> {
    pub(super) hasher: &'a SeriesHasher,
    /// The tags of the current path.
    pub(super) labels: &'a mut Vec<Label>,
    pub(super) batch: &'a mut Batch,
    pub(super) reservation: &'a mut IncrementalReservation<'p>,
    pub(super) arrival: TimeOfArrival,
}

/// The state of a batch at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    samples: usize,
    series: usize,
    refused: usize,
    refused_series: u64,
    refused_samples: u64,
}

impl Points<'_, '_> {
    pub(super) const fn mark(&self) -> Mark {
        let Batch { bytes, floats, refused, refused_series, refused_samples, .. } = &*self.batch;
        Mark {
            bytes: bytes.len(),
            samples: floats.values.len(),
            series: floats.series.len(),
            refused: refused.len(),
            refused_series: *refused_series,
            refused_samples: *refused_samples,
        }
    }

    /// Removes all that was added since `mark`.
    pub(super) fn undo(&mut self, mark: Mark) {
        let Batch { bytes, floats, refused, refused_series, refused_samples, .. } = &mut *self.batch;
        bytes.truncate(mark.bytes);
        floats.timestamps.truncate(mark.samples);
        floats.values.truncate(mark.samples);
        floats.series.truncate(mark.series);
        refused.truncate(mark.refused);
        (*refused_series, *refused_samples) = (mark.refused_series, mark.refused_samples);
    }

    /// Adds an excerpt of what was sent to an error, if the batch keeps the error. Of a flood, it keeps only the first ones.
    pub(super) fn with_excerpt(&self, what: String, sent: &[u8]) -> String {
        match self.batch.keeps_errors() && !sent.is_empty() {
            true => format!("{what}, in {}", Excerpt::of(sent)),
            false => what,
        }
    }

    /// Fails if the batch has as many points and errors as a request may have. `what` is a plural noun for the message.
    pub(super) fn check_count(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.batch.floats.series.len() + self.batch.refused_series as usize >= REQUEST_SERIES_MAX {
            true => Err(DecodeError::TooMany { what, limit: REQUEST_SERIES_MAX }),
            false => Ok(()),
        }
    }

    /// Adds a point to the batch.
    #[inline]
    pub(super) fn add(&mut self, path: &[u8], timestamp_ms: i64, value: f64) -> Result<(), Fault> {
        let labels = self.put_path(path)?;
        self.sample(timestamp_ms, value)?;
        self.series(labels, 1)
    }

    pub(super) fn sample(&mut self, timestamp_ms: i64, value: f64) -> Result<(), Fault> {
        self.reservation.push(&mut self.batch.floats.timestamps, timestamp_ms)?;
        self.reservation.push(&mut self.batch.floats.values, value)?;
        Ok(())
    }

    /// Adds a series with the last `samples` samples of the batch.
    pub(super) fn series(&mut self, labels: Range<u32>, samples: usize) -> Result<(), Fault> {
        let Batch { bytes, floats, .. } = &mut *self.batch;
        let SeriesBatch { series, timestamps, .. } = floats;
        let key = self.hasher.key(&bytes[wide(&labels)]);
        let samples = (timestamps.len() - samples) as u32..timestamps.len() as u32;
        self.reservation.push(series, BatchSeries { key, labels, samples })?;
        Ok(())
    }

    /// Appends the labels of a path to the batch's bytes, and returns their range.
    #[inline]
    pub(super) fn put_path(&mut self, path: &[u8]) -> Result<Range<u32>, Fault> {
        let start = self.batch.bytes.len();
        match path.contains(&b';') {
            false if path.is_empty() => return Err(Fault::Point("no metric name".into())),
            false => self.put_name(path)?,
            true => self.put_tagged(path)?,
        }
        Ok(start as u32..self.batch.bytes.len() as u32)
    }

    /// Appends a metric name without tags. Equal to [`put_label`], and twice as fast for names of usual length.
    #[inline]
    fn put_name(&mut self, name: &[u8]) -> Result<(), Fault> {
        /// Up to this length of a name, all lengths in the label take one byte.
        const SHORT_BYTES_MAX: usize = 127 - 12;
        let bytes = &mut self.batch.bytes;
        self.reservation.room(bytes, name.len() + METRIC_NAME.len() + LABEL_OVERHEAD_BYTES)?;
        if name.len() > SHORT_BYTES_MAX {
            put_label(bytes, METRIC_NAME.as_bytes(), name);
            return Ok(());
        }
        let mut head = *b"\x0a\x00\x0a\x08__name__\x12\x00";
        (head[1], head[13]) = (12 + name.len() as u8, name.len() as u8);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(name);
        Ok(())
    }

    fn put_tagged(&mut self, path: &[u8]) -> Result<(), Fault> {
        self.read_tags(path)?;
        let name = path.split(|byte| *byte == b';').next().unwrap_or_default();
        let bytes = &mut self.batch.bytes;
        let texts_bytes = path.len() + METRIC_NAME.len();
        self.reservation.room(bytes, texts_bytes + (self.labels.len() + 1) * LABEL_OVERHEAD_BYTES)?;
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
        Ok(())
    }

    /// Finds the tags of a path, and sorts them by name.
    fn read_tags(&mut self, path: &[u8]) -> Result<(), Fault> {
        self.labels.clear();
        let mut tags = path.split(|byte| *byte == b';');
        let name = tags.next().unwrap_or_default();
        if name.is_empty() {
            return Err(Fault::Point("no metric name before the tags".into()));
        }
        let mut at = name.len() + 1;
        for tag in tags {
            let equals = tag.iter().position(|byte| *byte == b'=').filter(|equals| *equals > 0);
            let equals = equals.ok_or_else(|| fault("tag", tag, "is not of the form name=value"))?;
            let (name, value) = (at..at + equals, at + equals + 1..at + tag.len());
            at += tag.len() + 1;
            // an empty value means "no such label", as in the other formats; the metric's name takes the place of a tag `name`,
            // as in carbon
            if value.is_empty() || tag.starts_with(b"name=") {
                continue;
            }
            self.reservation.push(self.labels, (narrow(name), narrow(value)))?;
        }
        self.labels.sort_unstable_by_key(|(name, _)| (&path[wide(name)], name.start));
        // of several values of a tag, the last one counts, as in carbon
        self.labels.dedup_by(|later, earlier| {
            let is_same = path[wide(&later.0)] == path[wide(&earlier.0)];
            if is_same {
                earlier.clone_from(later);
            }
            is_same
        });
        Ok(())
    }

    /// Returns the time of a point in milliseconds. The time -1 s becomes the time of arrival, if that is allowed.
    pub(super) const fn time_ms(&self, timestamp_ms: i64) -> i64 {
        match self.arrival {
            TimeOfArrival::Is(arrival_ms) if timestamp_ms == -1000 => arrival_ms,
            _ => timestamp_ms,
        }
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

fn wide(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    #[test]
    fn names_are_written_like_any_label() {
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        for length in (1..300).chain([16_000]) {
            let (name, mut expected, mut batch) = ("n".repeat(length), Vec::new(), Batch::default());
            put_label(&mut expected, METRIC_NAME.as_bytes(), name.as_bytes());
            let mut points = Points {
                hasher: &SeriesHasher::new(1),
                labels: &mut Vec::new(),
                batch: &mut batch,
                reservation: &mut IncrementalReservation::new(&mut memory),
                arrival: TimeOfArrival::Refused,
            };
            points.put_name(name.as_bytes()).unwrap();
            assert_eq!(batch.bytes, expected, "{length}");
        }
    }
}
