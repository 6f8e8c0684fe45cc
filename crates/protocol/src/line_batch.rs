//! Reads text line by line into a batch. A line that cannot be read is left out and reported with its number.

use crate::DecodeError;
use crate::line_fault::Fault;
use crate::raw_keys::RawKeys;
use crate::scan::line_end;
use model::caps::{REQUEST_SAMPLES_MAX, REQUEST_SERIES_MAX};
use model::{Batch, BatchSeries, SeriesKey, SeriesRefusal};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};

pub(crate) struct LineBatch<'a, 'p> {
    /// The whole text.
    pub(crate) text: &'a [u8],
    pub(crate) keys: RawKeys<'a>,
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
}

impl<'a, 'p> LineBatch<'a, 'p> {
    pub(crate) const fn new(
        text: &'a [u8],
        keys: RawKeys<'a>,
        batch: &'a mut Batch,
        reservation: &'a mut IncrementalReservation<'p>,
    ) -> Self {
        Self { text, keys, batch, reservation }
    }

    /// Calls `read` for the range of each line that is not blank, without its line break. `first` is the number of the
    /// first line.
    pub(crate) fn each_line(
        mut self,
        first: usize,
        mut read: impl FnMut(&mut Self, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), DecodeError> {
        let (mut at, mut number) = (0, first);
        while at < self.text.len() {
            let end = line_end(self.text, at);
            let line = at..end - usize::from(self.text[at..end].last() == Some(&b'\r'));
            at = end + 1;
            if !self.text[line.clone()].trim_ascii().is_empty() {
                let (samples, series) = (self.samples(), self.batch.floats.series.len());
                match read(&mut self, line) {
                    Ok(()) => {}
                    Err(Fault::Request(error)) => return Err(error),
                    Err(Fault::Line(what)) => {
                        let floats = &mut self.batch.floats;
                        floats.values.truncate(samples);
                        floats.timestamps.truncate(samples);
                        floats.series.truncate(series);
                        self.check_series()?;
                        self.batch.refuse(SeriesRefusal::Line { number, what }, 0..0, 1);
                    }
                }
            }
            number += 1;
        }
        Ok(())
    }

    /// Number of samples in the batch, if each has its time and its value.
    pub(crate) fn samples(&self) -> usize {
        self.batch.floats.timestamps.len().min(self.batch.floats.values.len())
    }

    #[inline]
    pub(crate) fn value(&mut self, value: f64) -> Result<(), DecodeError> {
        let values = &mut self.batch.floats.values;
        if values.len() >= REQUEST_SAMPLES_MAX {
            return Err(DecodeError::TooMany { what: "samples", limit: REQUEST_SAMPLES_MAX });
        }
        Ok(self.reservation.push(values, value)?)
    }

    #[inline]
    pub(crate) fn timestamp(&mut self, timestamp_ms: i64) -> Result<(), DecodeError> {
        let timestamps = &mut self.batch.floats.timestamps;
        if timestamps.len() >= REQUEST_SAMPLES_MAX {
            return Err(DecodeError::TooMany { what: "samples", limit: REQUEST_SAMPLES_MAX });
        }
        Ok(self.reservation.push(timestamps, timestamp_ms)?)
    }

    /// Numbers of values and timestamps, which differ while a line is read.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.batch.floats.values.len(), self.batch.floats.timestamps.len())
    }

    pub(crate) fn truncate_values(&mut self, count: usize) {
        self.batch.floats.values.truncate(count);
    }

    pub(crate) fn truncate_timestamps(&mut self, count: usize) {
        self.batch.floats.timestamps.truncate(count);
    }

    /// Adds a series whose samples are all from `first_sample` on. `labels` is the part of the text with its labels.
    #[inline]
    pub(crate) fn series(
        &mut self,
        key: SeriesKey,
        labels: Range<usize>,
        first_sample: usize,
    ) -> Result<(), DecodeError> {
        let (values, timestamps) = self.counts();
        assert_eq!(values, timestamps, "BUG: a sample has no time or no value");
        self.series_of(key, labels, first_sample..values)
    }

    /// Adds a series with these samples, of which the times need not be complete yet.
    #[inline]
    pub(crate) fn series_of(
        &mut self,
        key: SeriesKey,
        labels: Range<usize>,
        samples: Range<usize>,
    ) -> Result<(), DecodeError> {
        self.check_series()?;
        let series = BatchSeries {
            key,
            labels: labels.start as u32..labels.end as u32,
            samples: samples.start as u32..samples.end as u32,
        };
        Ok(self.reservation.push(&mut self.batch.floats.series, series)?)
    }

    /// Appends to memory of the decoder.
    pub(crate) fn extend(&mut self, into: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Exhausted> {
        self.reservation.extend(into, bytes)
    }

    /// Appends to memory of the decoder.
    pub(crate) fn push<T>(&mut self, into: &mut Vec<T>, value: T) -> Result<(), Exhausted> {
        self.reservation.push(into, value)
    }

    /// Fails if the batch has as many series and errors as a request may have.
    fn check_series(&self) -> Result<(), DecodeError> {
        match self.batch.floats.series.len() + self.batch.refused_series as usize >= REQUEST_SERIES_MAX {
            true => Err(DecodeError::TooMany { what: "lines", limit: REQUEST_SERIES_MAX }),
            false => Ok(()),
        }
    }
}
