//! Points of summaries. A point becomes the series `_sum` and `_count`, and a series for each quantile.

use super::Stop;
use super::bounds::put_bound;
use super::fields::{quantile, summary};
use super::labels::{Part, SeriesName};
use super::metric::Metric;
use super::point::{Moment, push};
use super::walk::Walk;
use crate::wire::{Reader, WireError};

/// A label of a quantile takes at most this many bytes.
const LABEL_BYTES_MAX: usize = 360;

impl<'a> Walk<'a, '_> {
    pub(super) fn summary(&mut self, whole: Reader<'a>, metric: &Metric) -> Result<(), Stop> {
        let (mut time_ns, mut flags, mut count, mut sum) = (0, 0, 0, 0.0);
        let mut point = whole;
        self.labels.attributes.clear();
        while let Some(tag) = point.tag()? {
            match tag {
                summary::ATTRIBUTE => self.labels.attribute(point.message()?, self.reservation)?,
                summary::TIME => time_ns = point.fixed64()?,
                summary::COUNT => count = point.fixed64()?,
                summary::SUM => sum = point.double()?,
                summary::FLAGS => flags = point.varint()?,
                summary::QUANTILE => _ = point.len_field()?,
                summary::START => _ = point.fixed64()?,
                other => point.skip_unknown(other, summary::KNOWN)?,
            }
        }
        let moment = self.moment(time_ns, flags, metric)?;
        self.prepare()?;
        self.sum_and_count(metric, whole.rest().len(), moment, Some(sum), count)?;
        let mut point = whole;
        while let Some(tag) = point.tag()? {
            match tag {
                summary::QUANTILE => {
                    let (quantile, value) = read_quantile(point.message()?)?;
                    self.quantile(metric, whole.rest().len(), moment, quantile, value)?;
                }
                other => point.skip(other)?,
            }
        }
        Ok(())
    }

    fn quantile(
        &mut self,
        metric: &Metric,
        point_bytes: usize,
        moment: Moment,
        quantile: f64,
        value: f64,
    ) -> Result<(), Stop> {
        let Self { names, labels, message, batch, reservation, hasher, .. } = self;
        let name = SeriesName { metric: names.text(&metric.name), suffix: b"" };
        let start = batch.bytes.len();
        let bytes = labels.bytes_max(point_bytes) + name.bytes() + LABEL_BYTES_MAX;
        reservation.room(&mut batch.bytes, bytes)?;
        labels.put_before(Part::Quantile, name, message, &mut batch.bytes);
        put_bound(&mut batch.bytes, Part::Quantile.label(), quantile);
        labels.put_after(Part::Quantile, name, message, &mut batch.bytes);
        push(hasher, batch, reservation, start, moment, moment.value(value))
    }
}

/// Reads a quantile and its value. Absent fields are zero.
fn read_quantile(mut fields: Reader<'_>) -> Result<(f64, f64), WireError> {
    let (mut quantile, mut value) = (0.0, 0.0);
    while let Some(tag) = fields.tag()? {
        match tag {
            quantile::QUANTILE => quantile = fields.double()?,
            quantile::VALUE => value = fields.double()?,
            other => fields.skip_unknown(other, quantile::KNOWN)?,
        }
    }
    Ok((quantile, value))
}
