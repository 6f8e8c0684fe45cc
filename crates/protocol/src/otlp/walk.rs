//! Walks through a request, and adds the series of its points to a batch.

use super::attribute::Attributes;
use super::bounds::BoundsCache;
use super::exemplar;
use super::fields::{
    NO_RECORDED_VALUE, RESOURCE_METRICS, TEMPORALITY_CUMULATIVE, TEMPORALITY_DELTA, byte, data, metric,
    resource_metrics, scope_metrics,
};
use super::labels::{PointLabels, SeriesName};
use super::name_cache::{NameCache, Sent};
use super::names::NameKind;
use super::resource::{ResourceScratch, TARGET_INFO};
use super::translation::{Delta, Translation};
use super::work::Work;
use super::{Scratch, Stop};
use crate::DecodeError;
use crate::labels::{LABEL_SHOWN_BYTES_MAX, find_labels};
use crate::remote_write::metadata;
use crate::wire::{Fault, Reader, RunSteps, Tag};
use model::caps::{BODY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, REQUEST_SERIES_MAX, SERIES_LABEL_BYTES_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{
    Batch, BatchIncrement, BatchSeries, Exemplar, Increment, LabelsBuilder, MetricKind, STALE_NAN_BITS,
    SeriesHasher, SeriesRefusal, TotalsPart, TotalsRoom,
};
use std::ops::Range;
use stdx::budget::IncrementalReservation;

/// Limit on the label bytes of all series of a request. It is needed because the labels of a resource or of a point are
/// repeated in many series.
pub(super) const LABELS_BYTES_MAX: usize = BODY_BYTES_MAX;

const _: () = assert!(LABELS_BYTES_MAX + SERIES_LABEL_BYTES_MAX < u32::MAX as usize);

/// Upper bound on the bytes of labels of refused points. Each is the name of a metric.
pub(super) const SHOWN_BYTES_MAX: usize = Batch::REFUSED_KEPT_MAX * (LABEL_SHOWN_BYTES_MAX + 64);

/// OTLP has times in nanoseconds.
const NS_PER_MS: u64 = 1_000_000;

pub(super) fn decode(
    message: &[u8],
    (translation, totals): (&Translation, Option<&TotalsPart>),
    hasher: &SeriesHasher,
    scratch: &mut Scratch,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    let Scratch {
        names,
        labels,
        bounds,
        resource,
        pieces,
        upper_bounds,
        counts,
        ranked_bounds,
        exemplars,
        exemplar_attributes,
        builder,
    } = scratch;
    names.begin_request(reservation)?;
    let mut walk = Walk {
        message,
        translation,
        totals,
        next_total: totals.and_then(|part| part.wanted(part.from.number)),
        totals_put: TotalsRoom::default(),
        hasher,
        names,
        labels,
        bounds,
        resource,
        pieces,
        upper_bounds,
        counts,
        ranked_bounds,
        exemplars,
        exemplar_attributes,
        builder,
        batch,
        reservation,
        point_steps: RunSteps::default(),
        work: Work::default(),
        newest_ns: 0,
    };
    walk.request()?;
    assert_eq!(walk.next_total, None, "BUG: a request has other points when it is decoded again");
    Ok(())
}

pub(super) struct Walk<'a, 'p> {
    pub(super) message: &'a [u8],
    pub(super) translation: &'a Translation,
    /// What the points of exponential histograms have added up to, if the request is decoded again.
    pub(super) totals: Option<&'a TotalsPart>,
    /// Number of the next total to be read. `None` if there are no more in this part.
    pub(super) next_total: Option<usize>,
    /// The series of totals that were added to the batch.
    pub(super) totals_put: TotalsRoom,
    pub(super) hasher: &'a SeriesHasher,
    pub(super) names: &'a mut NameCache,
    pub(super) labels: &'a mut PointLabels,
    pub(super) bounds: &'a mut BoundsCache,
    resource: &'a mut ResourceScratch,
    pub(super) pieces: &'a mut [Vec<u8>; 2],
    pub(super) upper_bounds: &'a mut Vec<u8>,
    pub(super) counts: &'a mut Vec<f64>,
    pub(super) ranked_bounds: &'a mut Vec<(f64, u32)>,
    exemplars: &'a mut Vec<(u32, Exemplar)>,
    exemplar_attributes: &'a mut Attributes,
    builder: &'a mut LabelsBuilder,
    pub(super) batch: &'a mut Batch,
    pub(super) reservation: &'a mut IncrementalReservation<'p>,
    point_steps: RunSteps,
    pub(super) work: Work,
    /// Time of the newest point of the current resource.
    newest_ns: u64,
}

/// The metric whose points are read.
#[derive(Debug)]
pub(super) struct Metric {
    /// The translated name, part of the texts of [`NameCache`].
    pub(super) name: Range<u32>,
    /// Why none of the points is stored.
    refusal: Option<SeriesRefusal>,
    /// Whether the points are added up.
    pub(super) is_accumulated: bool,
    is_monotonic: bool,
    /// How many points were refused for this reason.
    refused: usize,
}

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
    fn request(&mut self) -> Result<(), DecodeError> {
        let mut fields = Reader::new(self.message);
        while let Some(tag) = fields.tag()? {
            match tag {
                RESOURCE_METRICS => {
                    let message = fields.message()?;
                    if self.wants(fields.at()) {
                        self.resource_metrics(message)?;
                    }
                }
                other => fields.skip_unknown(other, &[1])?,
            }
        }
        Ok(())
    }

    /// True if what ends at `end` must be read. If the request is decoded again, all is skipped that has no points to be read.
    fn wants(&self, end: usize) -> bool {
        match (self.totals, self.next_total) {
            (None, _) => true,
            (Some(part), Some(number)) => part.offsets[number] as usize <= end,
            (Some(_), None) => false,
        }
    }

    /// True if the point that begins at `start` must be read.
    fn wants_point(&self, start: usize) -> bool {
        match (self.totals, self.next_total) {
            (None, _) => true,
            (Some(part), Some(number)) => part.offsets[number] as usize == start,
            (Some(_), None) => false,
        }
    }

    fn resource_metrics(&mut self, whole: Reader<'a>) -> Result<(), DecodeError> {
        self.work.resource()?;
        self.newest_ns = 0;
        self.resource.clear();
        self.labels.fixed.clear();
        let (mut fields, mut refusal) = (whole, None);
        // the resource usually comes first, but need not
        while let Some(tag) = fields.tag()? {
            match tag {
                resource_metrics::RESOURCE => {
                    let read = self.resource.read(fields.message()?, self.reservation);
                    refusal = refusal.or(refusal_of(read)?);
                }
                other => fields.skip(other)?,
            }
        }
        let mut fixed_refusal = refusal.clone();
        if fixed_refusal.is_none() {
            let Self { resource, translation, message, reservation, .. } = &mut *self;
            fixed_refusal = refusal_of(resource.prepare(translation, message, reservation))?;
        }
        if !self.translation.has_scope_labels {
            self.put_fixed(fixed_refusal.clone())?;
        }
        let mut fields = whole;
        while let Some(tag) = fields.tag()? {
            match tag {
                resource_metrics::SCOPE_METRICS => {
                    self.work.scope()?;
                    let scope_metrics = fields.message()?;
                    if !self.wants(fields.at()) {
                        continue;
                    }
                    if self.translation.has_scope_labels {
                        let read = self.scope(scope_metrics);
                        let refusal = fixed_refusal.clone().or(refusal_of(read)?);
                        self.put_fixed(refusal)?;
                        // the labels of the resource are put in order for each of its scopes
                        let (labels, bytes) = self.labels.fixed.pushed();
                        let (promoted, names_bytes) = self.resource.promoted_size();
                        self.work.unstored(labels + promoted, bytes + names_bytes)?;
                    }
                    self.scope_metrics(scope_metrics)?;
                }
                resource_metrics::RESOURCE | resource_metrics::SCHEMA_URL => _ = fields.len_field()?,
                other => fields.skip_unknown(other, resource_metrics::KNOWN)?,
            }
        }
        match refusal {
            Some(_) => Ok(()), // without all attributes, `target_info` would be another series
            None => self.target_info(),
        }
    }

    /// Sets the labels that series get from resource and scope. With a `refusal`, no point gets labels.
    fn put_fixed(&mut self, refusal: Option<SeriesRefusal>) -> Result<(), DecodeError> {
        let Self { resource, translation, message, labels, reservation, .. } = self;
        let put = match refusal {
            Some(refusal) => Err(refusal.into()),
            None => resource.put_fixed(translation, message, &mut labels.fixed, reservation),
        };
        if let Some(refusal) = refusal_of(put)? {
            labels.fixed.refuse(refusal);
        }
        Ok(labels.fixed_changed(reservation)?)
    }

    fn scope(&mut self, mut fields: Reader<'a>) -> Result<(), Stop> {
        self.resource.clear_scope();
        while let Some(tag) = fields.tag()? {
            match tag {
                scope_metrics::SCOPE => self.resource.read_scope(fields.message()?, self.reservation)?,
                scope_metrics::SCHEMA_URL => {
                    self.resource.set_schema_url(fields.len_field()?, self.reservation)?;
                }
                other => fields.skip(other)?,
            }
        }
        Ok(())
    }

    fn scope_metrics(&mut self, mut fields: Reader<'a>) -> Result<(), DecodeError> {
        while let Some(tag) = fields.tag()? {
            match tag {
                scope_metrics::METRIC => {
                    let message = fields.message()?;
                    if self.wants(fields.at()) {
                        self.metric(message)?;
                    }
                }
                scope_metrics::SCOPE | scope_metrics::SCHEMA_URL => _ = fields.len_field()?,
                other => fields.skip_unknown(other, scope_metrics::KNOWN)?,
            }
        }
        Ok(())
    }

    fn metric(&mut self, fields: Reader<'a>) -> Result<(), DecodeError> {
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
        let (kind, type_of) = match tag {
            metric::GAUGE => (NameKind::Gauge, MetricKind::Gauge),
            metric::SUM if is_monotonic => (NameKind::Counter, MetricKind::Counter),
            metric::SUM => (NameKind::Other, MetricKind::Gauge),
            metric::SUMMARY => (NameKind::Other, MetricKind::Summary),
            _ => (NameKind::Other, MetricKind::Histogram),
        };
        let is_accumulated = is_delta && self.translation.delta == Delta::Accumulated;
        // there is no type for metrics whose points are differences
        let type_of = if is_delta && !is_accumulated { MetricKind::Unknown } else { type_of };
        let (name, unit) = match found.name.len().max(found.unit.len()) {
            bytes if bytes > LABEL_VALUE_BYTES_MAX => (&[][..], &[][..]),
            _ => (found.name, found.unit),
        };
        let Self { names, pieces, reservation, translation, hasher, message, .. } = self;
        let identity = match &found.texts {
            Some(texts) => &message[texts.clone()],
            None => {
                let together = &mut pieces[0];
                together.clear();
                for text in [name, unit, found.description] {
                    reservation.extend(together, &(text.len() as u64).to_le_bytes())?;
                    reservation.extend(together, text)?;
                }
                together.as_slice()
            }
        };
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

    fn points(
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

    #[inline(always)]
    fn mark(&self) -> Mark {
        let Batch { bytes, floats, .. } = &*self.batch;
        Mark { bytes: bytes.len(), series: floats.series.len(), exemplars: floats.exemplars.len() }
    }

    /// Removes all that was added since `mark`. Each series has one sample.
    #[cold]
    fn undo(&mut self, mark: Mark) -> Result<(), DecodeError> {
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

    /// Counts a refused point.
    #[cold]
    fn refuse(&mut self, refusal: SeriesRefusal, metric: &mut Metric) -> Result<(), DecodeError> {
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

    /// Adds the exemplars of a point to its series. Each is a field with the tag `exemplar` of `point`, and
    /// `series_of` says to which series it belongs, from its value. An exemplar without a series is left out.
    #[cold]
    pub(super) fn exemplars(
        &mut self,
        mut point: Reader<'a>,
        exemplar: Tag,
        series_of: impl Fn(&Self, f64) -> Option<u32>,
    ) -> Result<(), Stop> {
        self.exemplars.clear();
        while let Some(tag) = point.tag()? {
            if tag != exemplar {
                point.skip(tag)?;
                continue;
            }
            self.work.exemplar()?;
            let read = exemplar::read(
                point.message()?,
                self.message,
                self.exemplar_attributes,
                self.builder,
                self.reservation,
            )?;
            let found = read.and_then(|exemplar| Some((series_of(self, exemplar.value)?, exemplar)));
            match found {
                Some(found) => self.reservation.push(self.exemplars, found)?,
                None => self.batch.refused_exemplars += 1,
            }
        }
        // the batch has exemplars in the order of their series
        self.exemplars.sort_by_key(|(series, _)| *series);
        let all = &mut self.batch.floats.exemplars;
        self.reservation.room(all, self.exemplars.len())?;
        all.append(self.exemplars);
        Ok(())
    }

    /// Adds the series `target_info` of the current resource.
    fn target_info(&mut self) -> Result<(), DecodeError> {
        if !self.translation.has_target_info || self.newest_ns == 0 || self.totals.is_some() {
            return Ok(());
        }
        let before = self.mark();
        let put = self.put_target_info();
        if let Some(refusal) = refusal_of(put)? {
            self.undo(before)?;
            self.batch.refuse(refusal, 0..0, 0);
        }
        Ok(())
    }

    fn put_target_info(&mut self) -> Result<(), Stop> {
        let Self { resource, translation, message, batch, reservation, hasher, newest_ns, work, .. } = self;
        if !resource.prepare_target_info(translation, message, work, reservation)? {
            return Ok(());
        }
        let name = SeriesName { metric: TARGET_INFO, suffix: b"" };
        let start = batch.bytes.len();
        let target = &resource.target;
        reservation.room(&mut batch.bytes, target.bytes_max(target.attributes.bytes()) + name.bytes())?;
        target.put(name, message, &mut batch.bytes);
        let bytes = &batch.bytes[start..];
        let is_identified = ["job", "instance"].iter().any(|name| find_labels(bytes, [name]).is_some());
        if !is_identified {
            batch.bytes.truncate(start);
            return Ok(());
        }
        push(hasher, batch, reservation, start, Moment::of(*newest_ns), 1.0)
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

/// The state of a batch at some time.
#[derive(Debug, Clone, Copy)]
struct Mark {
    bytes: usize,
    series: usize,
    exemplars: usize,
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
}

/// Separates errors of a point from those of the whole request.
pub(super) fn refusal_of(result: Result<(), Stop>) -> Result<Option<SeriesRefusal>, DecodeError> {
    match result {
        Ok(()) => Ok(None),
        Err(Stop::Point(refusal)) => Ok(Some(refusal)),
        Err(Stop::Request(error)) => Err(error),
    }
}

pub(super) const fn too_many(what: &'static str, limit: usize) -> Stop {
    Stop::Request(DecodeError::TooMany { what, limit })
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
