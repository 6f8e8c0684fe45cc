//! Walks through a request: its resources and scopes, and the metrics in them. Adds the series `target_info` of resources.

use super::attribute::Attributes;
use super::bounds::BoundsCache;
use super::fields::{RESOURCE_METRICS, resource_metrics, scope_metrics};
use super::labels::{PointLabels, SeriesName};
use super::name_cache::NameCache;
use super::point::{Moment, push};
use super::resource::{ResourceScratch, TARGET_INFO};
use super::translation::Translation;
use super::work::Work;
use super::{Scratch, Stop};
use crate::DecodeError;
use crate::labels::find_labels;
use crate::wire::{Reader, RunSteps};
use model::caps::{BODY_BYTES_MAX, SERIES_LABEL_BYTES_MAX};
use model::{Batch, Exemplar, LabelsBuilder, SeriesHasher, SeriesRefusal, TotalsPart, TotalsRoom};
use stdx::budget::IncrementalReservation;

/// Limit on the label bytes of all series of a request. It is needed because the labels of a resource or of a point are
/// repeated in many series.
pub(super) const LABELS_BYTES_MAX: usize = BODY_BYTES_MAX;

const _: () = assert!(LABELS_BYTES_MAX + SERIES_LABEL_BYTES_MAX < u32::MAX as usize);

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
    pub(super) exemplars: &'a mut Vec<(u32, Exemplar)>,
    pub(super) exemplar_attributes: &'a mut Attributes,
    pub(super) builder: &'a mut LabelsBuilder,
    pub(super) batch: &'a mut Batch,
    pub(super) reservation: &'a mut IncrementalReservation<'p>,
    pub(super) point_steps: RunSteps,
    pub(super) work: Work,
    /// Time of the newest point of the current resource.
    pub(super) newest_ns: u64,
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

    fn resource_metrics(&mut self, whole: Reader<'a>) -> Result<(), DecodeError> {
        self.work.resource()?;
        self.newest_ns = 0;
        self.labels.fixed.clear();
        let refusal = self.read_resource(whole)?;
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
                        self.put_labels_of_scope(scope_metrics, fixed_refusal.clone())?;
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

    /// Reads the resource, which usually comes before its metrics, but need not. Returns why no point of it can be stored, if
    /// there is a reason.
    fn read_resource(&mut self, mut fields: Reader<'a>) -> Result<Option<SeriesRefusal>, DecodeError> {
        self.resource.clear();
        let mut refusal = None;
        while let Some(tag) = fields.tag()? {
            match tag {
                resource_metrics::RESOURCE => {
                    let read = self.resource.read(fields.message()?, self.reservation);
                    refusal = refusal.or(refusal_of(read)?);
                }
                other => fields.skip(other)?,
            }
        }
        Ok(refusal)
    }

    /// Sets the labels that series get from the resource and from this scope. With a `refusal` of the resource, no point gets
    /// labels.
    fn put_labels_of_scope(
        &mut self,
        scope_metrics: Reader<'a>,
        refusal: Option<SeriesRefusal>,
    ) -> Result<(), DecodeError> {
        let read = self.scope(scope_metrics);
        let refusal = refusal.or(refusal_of(read)?);
        self.put_fixed(refusal)?;
        // the labels of the resource are put in order for each of its scopes
        let (labels, bytes) = self.labels.fixed.pushed();
        let (promoted, names_bytes) = self.resource.promoted_size();
        self.work.unstored(labels + promoted, bytes + names_bytes)
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
