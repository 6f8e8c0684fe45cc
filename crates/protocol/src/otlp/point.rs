//! What points of all kinds have in common: their time and their labels, and the series that they become.

use super::Stop;
use super::fields::{NO_RECORDED_VALUE, data};
use super::labels::SeriesName;
use super::metric::Metric;
use super::walk::{LABELS_BYTES_MAX, Walk, refusal_of, too_many};
use crate::DecodeError;
use crate::wire::Reader;
use model::caps::{REQUEST_SERIES_MAX, SERIES_LABEL_BYTES_MAX};
use model::{Batch, BatchIncrement, BatchSeries, Increment, STALE_NAN_BITS, SeriesHasher, SeriesRefusal};
use stdx::budget::IncrementalReservation;

/// OTLP has times in nanoseconds.
const NS_PER_MS: u64 = 1_000_000;

/// When a point was taken, and whether it says that its series end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    timestamp_ms: i64,
    is_stale: bool,
}

impl Moment {
    pub(super) const fn of(time_ns: u64) -> Self {
        Self { timestamp_ms: (time_ns / NS_PER_MS) as i64, is_stale: false }
    }

    /// The series end.
    pub(super) const fn stale(self) -> Self {
        Self { is_stale: true, ..self }
    }

    pub(super) const fn is_stale(self) -> bool {
        self.is_stale
    }

    pub(super) const fn value(self, value: f64) -> f64 {
        if self.is_stale { f64::from_bits(STALE_NAN_BITS) } else { value }
    }
}

/// The time that a point is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    /// 0 if the sender did not give it.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// The state of a batch at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    series: usize,
    exemplars: usize,
}

impl<'a> Walk<'a, '_> {
    /// Reads the points of a metric with `point`. If a point is refused, nothing of it is added.
    pub(super) fn points(
        &mut self,
        mut fields: Reader<'a>,
        metric: &mut Metric,
        point: impl Fn(&mut Self, Reader<'a>, &Metric) -> Result<(), Stop>,
    ) -> Result<(), DecodeError> {
        while let Some(tag) = fields.tag()? {
            match tag {
                data::POINT => {
                    let message = fields.message()?;
                    if !self.wants_point(message.at()) {
                        continue;
                    }
                    self.work.point()?;
                    self.batch.points += u64::from(self.totals.is_none());
                    let before = self.mark();
                    if let Some(refusal) = refusal_of(point(self, message, metric))? {
                        self.undo(before)?;
                        self.refuse(refusal, metric)?;
                    }
                }
                data::TEMPORALITY | data::IS_MONOTONIC => _ = fields.varint()?,
                other => fields.skip_unknown(other, data::KNOWN)?,
            }
        }
        Ok(())
    }

    /// True if the point that begins at `start` must be read.
    fn wants_point(&self, start: usize) -> bool {
        match (self.totals, self.next_total) {
            (None, _) => true,
            (Some(part), Some(number)) => part.offsets[number] as usize == start,
            (Some(_), None) => false,
        }
    }

    #[inline(always)]
    pub(super) fn mark(&self) -> Mark {
        let Batch { bytes, floats, .. } = &*self.batch;
        Mark { bytes: bytes.len(), series: floats.series.len(), exemplars: floats.exemplars.len() }
    }

    /// Removes all that was added since `mark`. Each series has one sample.
    #[cold]
    pub(super) fn undo(&mut self, mark: Mark) -> Result<(), DecodeError> {
        let Batch { bytes, floats, .. } = &mut *self.batch;
        self.work.unstored(0, bytes.len() - mark.bytes)?;
        bytes.truncate(mark.bytes);
        floats.series.truncate(mark.series);
        floats.timestamps.truncate(mark.series);
        floats.values.truncate(mark.series);
        floats.exemplars.truncate(mark.exemplars);
        let is_kept = |increment: &BatchIncrement| (increment.series as usize) < mark.series;
        floats.increments.truncate(floats.increments.partition_point(is_kept));
        Ok(())
    }

    /// Checks the time of a point, and whether the points of its metric are stored at all.
    #[inline(always)]
    pub(super) fn moment(&mut self, time_ns: u64, flags: u64, metric: &Metric) -> Result<Moment, Stop> {
        self.newest_ns = self.newest_ns.max(time_ns);
        if let Some(refusal) = &metric.refusal {
            return Err(refusal.clone().into());
        }
        if time_ns == 0 {
            return Err(SeriesRefusal::PointWithoutTime.into());
        }
        Ok(Moment { is_stale: flags & NO_RECORDED_VALUE != 0, ..Moment::of(time_ns) })
    }

    /// Finds the order of the labels of the current point. Fails if it cannot have labels.
    #[inline(always)]
    pub(super) fn prepare(&mut self) -> Result<(), Stop> {
        self.labels.prepare(self.message, self.translation.naming, &mut self.work, self.reservation)
    }

    /// Adds a series of the current point, whose message has `point_bytes`, with one sample.
    #[inline(always)]
    pub(super) fn series(
        &mut self,
        metric: &Metric,
        suffix: &'static [u8],
        point_bytes: usize,
        moment: Moment,
        value: f64,
    ) -> Result<(), Stop> {
        let Self { names, labels, message, batch, reservation, hasher, .. } = self;
        let name = SeriesName { metric: names.text(&metric.name), suffix };
        let start = batch.bytes.len();
        reservation.room(&mut batch.bytes, labels.bytes_max(point_bytes) + name.bytes())?;
        labels.put(name, message, &mut batch.bytes);
        push(hasher, batch, reservation, start, moment, moment.value(value))
    }

    /// Says that the samples of the current point are increments: those of the series from `first` on.
    #[cold]
    pub(super) fn increments(
        &mut self,
        first: u32,
        metric: &Metric,
        moment: Moment,
        interval: Interval,
        layout: u32,
    ) -> Result<(), Stop> {
        if moment.is_stale() {
            return Ok(()); // a staleness marker is a value
        }
        let Self { batch, reservation, .. } = self;
        let Interval { start_ns, end_ns } = interval;
        for series in first..batch.floats.series.len() as u32 {
            let value = batch.floats.values[series as usize];
            if !value.is_finite() {
                return Err(SeriesRefusal::IncrementNotFinite.into());
            }
            if metric.is_monotonic && value < 0.0 {
                return Err(SeriesRefusal::NegativeIncrement.into());
            }
            let increment = Increment { start_ns, end_ns, layout, value, ..Increment::default() };
            let increment = BatchIncrement { series, point: first, increment };
            reservation.push(&mut batch.floats.increments, increment)?;
        }
        Ok(())
    }
}

/// Adds a series whose labels are the bytes of the batch from `start`, with one sample.
#[inline(always)]
pub(super) fn push(
    hasher: &SeriesHasher,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
    start: usize,
    moment: Moment,
    value: f64,
) -> Result<(), Stop> {
    let Batch { bytes, floats, .. } = batch;
    if bytes.len() - start > SERIES_LABEL_BYTES_MAX {
        return Err(SeriesRefusal::LabelsTooLong(bytes.len() - start).into());
    }
    if bytes.len() > LABELS_BYTES_MAX {
        return Err(too_many("bytes of labels", LABELS_BYTES_MAX));
    }
    let sample = floats.series.len() as u32;
    if sample as usize >= REQUEST_SERIES_MAX {
        return Err(too_many("series", REQUEST_SERIES_MAX));
    }
    let key = hasher.key(&bytes[start..]);
    let labels = start as u32..bytes.len() as u32;
    reservation.push(&mut floats.timestamps, moment.timestamp_ms)?;
    reservation.push(&mut floats.values, value)?;
    reservation.push(&mut floats.series, BatchSeries { key, labels, samples: sample..sample + 1 })?;
    Ok(())
}
