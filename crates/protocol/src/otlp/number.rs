//! Points of gauges and sums.

use super::Stop;
use super::fields::number;
use super::metric::Metric;
use super::point::Interval;
use super::walk::Walk;
use crate::wire::Reader;
use model::SeriesRefusal;

impl<'a> Walk<'a, '_> {
    /// Reads a point. It becomes one series.
    pub(super) fn number(&mut self, whole: Reader<'a>, metric: &Metric) -> Result<(), Stop> {
        let (mut start_ns, mut time_ns, mut flags, mut value, mut has_exemplars) = (0, 0, 0, None, false);
        let mut point = whole;
        self.labels.attributes.clear();
        while let Some(tag) = point.tag()? {
            match tag {
                number::ATTRIBUTE => self.labels.attribute(point.message()?, self.reservation)?,
                number::TIME => time_ns = point.fixed64()?,
                number::START => start_ns = point.fixed64()?,
                number::AS_DOUBLE => value = Some(point.double()?),
                number::AS_INT => value = Some(point.fixed64()? as i64 as f64),
                number::FLAGS => flags = point.varint()?,
                number::EXEMPLAR => {
                    has_exemplars = true;
                    point.len_field()?;
                }
                other => point.skip_unknown(other, number::KNOWN)?,
            }
        }
        let moment = self.moment(time_ns, flags, metric)?;
        let value = match value {
            Some(value) => value,
            None if moment.is_stale() => 0.0,
            None => return Err(SeriesRefusal::PointWithoutValue.into()),
        };
        self.prepare()?;
        let series = self.batch.floats.series.len() as u32;
        self.series(metric, b"", whole.rest().len(), moment, value)?;
        if metric.is_accumulated {
            self.increments(series, metric, moment, Interval { start_ns, end_ns: time_ns }, 0)?;
        }
        if has_exemplars {
            self.exemplars(whole, number::EXEMPLAR, |_, _| Some(series))?;
        }
        Ok(())
    }
}
