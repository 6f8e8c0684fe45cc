//! Metrics: their kind, their names, and why points of a metric are not stored.

use super::fields::{TEMPORALITY_CUMULATIVE, TEMPORALITY_DELTA, byte, data, metric};
use super::name_cache::Sent;
use super::names::NameKind;
use super::translation::Delta;
use super::walk::Walk;
use crate::DecodeError;
use crate::labels::LABEL_SHOWN_BYTES_MAX;
use crate::remote_write::metadata;
use crate::wire::{Fault, Reader, Tag};
use model::caps::LABEL_VALUE_BYTES_MAX;
use model::labels::{METRIC_NAME, put_label};
use model::{Batch, MetricKind, SeriesRefusal};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};

/// Upper bound on the bytes of labels of refused points. Each is the name of a metric.
pub(super) const SHOWN_BYTES_MAX: usize = Batch::REFUSED_KEPT_MAX * (LABEL_SHOWN_BYTES_MAX + 64);

/// The metric whose points are read.
#[derive(Debug)]
pub(super) struct Metric {
    /// The translated name, part of the texts of [`NameCache`](super::name_cache::NameCache).
    pub(super) name: Range<u32>,
    /// Why none of the points is stored.
    pub(super) refusal: Option<SeriesRefusal>,
    /// Whether the points are added up.
    pub(super) is_accumulated: bool,
    pub(super) is_monotonic: bool,
    /// How many points were refused for this reason.
    refused: usize,
}

/// A metric that is not translated yet.
struct Found<'a> {
    name: &'a [u8],
    description: &'a [u8],
    unit: &'a [u8],
    /// The bytes of these three fields, if they are side by side.
    texts: Option<Range<usize>>,
    data: Option<(Tag, Reader<'a>)>,
}

/// How the points of a sum or histogram are meant.
#[derive(Debug, Clone, Copy, Default)]
struct Aggregation {
    temporality: u64,
    is_monotonic: bool,
}

impl<'a> Walk<'a, '_> {
    pub(super) fn metric(&mut self, fields: Reader<'a>) -> Result<(), DecodeError> {
        self.work.metric()?;
        let found = Found::read(fields)?;
        let Some((tag, points)) = found.data else { return self.refuse_unknown(found.name) };
        let aggregation = match tag {
            metric::SUM | metric::HISTOGRAM | metric::EXPONENTIAL_HISTOGRAM => {
                Some(self.aggregation(points)?)
            }
            _ => None,
        };
        let mut metric = self.name(&found, tag, aggregation)?;
        match tag {
            metric::GAUGE | metric::SUM => self.points(points, &mut metric, Self::number)?,
            metric::HISTOGRAM => self.points(points, &mut metric, Self::histogram)?,
            metric::EXPONENTIAL_HISTOGRAM => self.points(points, &mut metric, Self::exponential)?,
            metric::SUMMARY => self.points(points, &mut metric, Self::summary)?,
            _ => unreachable!("BUG: a field is taken for the points of a metric"),
        }
        let Metric { name, refusal, refused, .. } = metric;
        if let Some(refusal) = refusal
            && refused > 0
        {
            let labels = put_shown(self.names.text(&name), self.batch, self.reservation)?;
            self.batch.refuse(refusal, labels, refused);
        }
        Ok(())
    }

    /// Reads the temporality and whether the sum is monotonic, which senders write after the points.
    fn aggregation(&mut self, mut fields: Reader<'a>) -> Result<Aggregation, DecodeError> {
        const POINT: u8 = byte(data::POINT);
        let mut aggregation = Aggregation::default();
        loop {
            fields.skip_run(POINT, &mut self.point_steps)?;
            let Some(tag) = fields.tag()? else { return Ok(aggregation) };
            match tag {
                data::TEMPORALITY => aggregation.temporality = fields.varint()?,
                data::IS_MONOTONIC => aggregation.is_monotonic = fields.varint()? != 0,
                other => fields.skip(other)?,
            }
        }
    }

    /// Translates the name of a metric, and adds its metadata.
    fn name(
        &mut self,
        found: &Found<'a>,
        tag: Tag,
        aggregation: Option<Aggregation>,
    ) -> Result<Metric, DecodeError> {
        let refusal = self.refusal(found, aggregation);
        let is_delta = aggregation.is_some_and(|aggregation| aggregation.temporality == TEMPORALITY_DELTA);
        let is_monotonic = aggregation.is_some_and(|aggregation| aggregation.is_monotonic);
        let (kind, type_of) = kind_and_type(tag, is_monotonic);
        let is_accumulated = is_delta && self.translation.delta == Delta::Accumulated;
        // there is no type for metrics whose points are differences
        let type_of = if is_delta && !is_accumulated { MetricKind::Unknown } else { type_of };
        let (name, unit) = found.name_and_unit();
        let Self { names, pieces, reservation, translation, hasher, message, .. } = self;
        let identity = found.identity(message, &mut pieces[0], reservation)?;
        // the two ways to identify a metric must not be confused
        let variant = type_of as u8 | (kind as u8) << 4 | u8::from(found.texts.is_none()) << 7;
        let named = names.name(
            &Sent { name, unit, identity, kind, variant },
            translation.naming,
            hasher,
            reservation,
        )?;
        if named.is_first && refusal.is_none() && self.totals.is_none() {
            let name = names.text(&named.text);
            metadata::push(self.batch, reservation, type_of, name, found.description, found.unit)?;
        }
        Ok(Metric { name: named.text, refusal, is_accumulated, is_monotonic, refused: 0 })
    }

    /// Returns why no point of the metric can be stored, if there is a reason.
    fn refusal(&self, found: &Found<'_>, aggregation: Option<Aggregation>) -> Option<SeriesRefusal> {
        for (label, text) in [(METRIC_NAME, found.name), ("unit", found.unit)] {
            if text.len() > LABEL_VALUE_BYTES_MAX {
                return Some(SeriesRefusal::LabelValueTooLong(label.into(), text.len()));
            }
        }
        match aggregation?.temporality {
            TEMPORALITY_CUMULATIVE => None,
            TEMPORALITY_DELTA => match self.translation.delta {
                Delta::Refused => Some(SeriesRefusal::DeltaTemporality),
                Delta::Accumulated | Delta::Kept => None,
            },
            other => Some(SeriesRefusal::UnknownTemporality(other)),
        }
    }

    /// Counts a refused point.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: SeriesRefusal, metric: &mut Metric) -> Result<(), DecodeError> {
        if metric.refusal.is_some() {
            metric.refused += 1;
            return Ok(());
        }
        let Self { names, batch, reservation, .. } = self;
        let labels = put_shown(names.text(&metric.name), batch, reservation)?;
        batch.refuse(refusal, labels, 1);
        Ok(())
    }

    /// Reports a metric whose points cannot be found, so that it is not left out silently.
    #[cold]
    fn refuse_unknown(&mut self, name: &[u8]) -> Result<(), DecodeError> {
        let labels = put_shown(name, self.batch, self.reservation)?;
        self.batch.refuse(SeriesRefusal::UnknownMetricType, labels, 0);
        Ok(())
    }
}

impl<'a> Found<'a> {
    fn read(mut fields: Reader<'a>) -> Result<Self, DecodeError> {
        let mut found = Self { name: &[], description: &[], unit: &[], texts: None, data: None };
        let start = fields.at();
        // whether only texts have been read so far
        let mut is_start = true;
        while let Some(tag) = fields.tag()? {
            match tag {
                metric::NAME | metric::DESCRIPTION | metric::UNIT => {
                    let text = fields.len_field()?;
                    match tag {
                        metric::NAME => found.name = text,
                        metric::DESCRIPTION => found.description = text,
                        _ => found.unit = text,
                    }
                    found.texts = is_start.then_some(start..fields.at());
                }
                metric::GAUGE
                | metric::SUM
                | metric::HISTOGRAM
                | metric::EXPONENTIAL_HISTOGRAM
                | metric::SUMMARY => {
                    if found.data.is_some() {
                        return Err(fields.fault(Fault::Repeated).into());
                    }
                    is_start = false;
                    found.data = Some((tag, fields.message()?));
                }
                other => {
                    is_start = false;
                    fields.skip_unknown(other, metric::KNOWN)?;
                }
            }
        }
        Ok(found)
    }

    /// The name and the unit. They are empty if one of them is too long, because no point is stored then.
    fn name_and_unit(&self) -> (&'a [u8], &'a [u8]) {
        match self.name.len().max(self.unit.len()) {
            bytes if bytes > LABEL_VALUE_BYTES_MAX => (&[][..], &[][..]),
            _ => (self.name, self.unit),
        }
    }

    /// The bytes that identify the metric within the request: its texts where they stand in the message. If they are not side by
    /// side, they are copied into `together`.
    fn identity<'b>(
        &self,
        message: &'b [u8],
        together: &'b mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<&'b [u8], Exhausted> {
        if let Some(texts) = &self.texts {
            return Ok(&message[texts.clone()]);
        }
        let (name, unit) = self.name_and_unit();
        together.clear();
        for text in [name, unit, self.description] {
            reservation.extend(together, &(text.len() as u64).to_le_bytes())?;
            reservation.extend(together, text)?;
        }
        Ok(together.as_slice())
    }
}

/// The kind that decides about suffixes of the name, and the type in the metadata.
fn kind_and_type(tag: Tag, is_monotonic: bool) -> (NameKind, MetricKind) {
    match tag {
        metric::GAUGE => (NameKind::Gauge, MetricKind::Gauge),
        metric::SUM if is_monotonic => (NameKind::Counter, MetricKind::Counter),
        metric::SUM => (NameKind::Other, MetricKind::Gauge),
        metric::SUMMARY => (NameKind::Other, MetricKind::Summary),
        _ => (NameKind::Other, MetricKind::Histogram),
    }
}

/// Adds the name of a refused metric to the batch, for the error message. A long name is cut.
fn put_shown(
    name: &[u8],
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<Range<u32>, DecodeError> {
    let start = batch.bytes.len();
    if batch.refused.len() < Batch::REFUSED_KEPT_MAX {
        // one byte more than is shown, so that the message marks the name as cut
        let name = &name[..name.len().min(LABEL_SHOWN_BYTES_MAX + 1)];
        let mut shown = Vec::new();
        put_label(&mut shown, METRIC_NAME.as_bytes(), name);
        reservation.extend(&mut batch.bytes, &shown)?;
    }
    Ok(start as u32..batch.bytes.len() as u32)
}
