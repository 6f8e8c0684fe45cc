//! Labels that series get from their resource and scope, and the series `target_info`.

use super::Stop;
use super::attribute::Attributes;
use super::fields::{resource, scope};
use super::labels::{FixedLabels, NAME_PREFIX_BYTES, PointLabels};
use super::names::put_label_name;
use super::translation::Translation;
use super::work::Work;
use crate::wire::Reader;
use model::SeriesRefusal;
use model::caps::{LABEL_NAME_BYTES_MAX, SERIES_LABELS_MAX};
use std::borrow::Cow;
use std::ops::Range;
use stdx::budget::IncrementalReservation;

const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const SERVICE_INSTANCE_ID: &str = "service.instance.id";

/// The attributes that identify a resource. The labels `job` and `instance` are made of them.
const IDENTIFYING: [&str; 3] = [SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_INSTANCE_ID];

const JOB: &[u8] = b"job";
const INSTANCE: &[u8] = b"instance";

pub(super) const TARGET_INFO: &[u8] = b"target_info";

/// The current resource and scope.
#[derive(Debug, Default)]
pub(super) struct ResourceScratch {
    attributes: Attributes,
    own: OwnLabels,
    scope: Scope,
    /// The labels of `target_info`.
    pub(super) target: PointLabels,
}

/// Where the labels that a resource itself gives to its series come from. This is worked out once for all of its scopes.
#[derive(Debug, Default)]
struct OwnLabels {
    has_job: bool,
    /// The value of the label `job`.
    job: Vec<u8>,
    /// The attribute with the value of the label `instance`.
    instance: Option<usize>,
    /// The promoted attributes in the order of their keys, each with the place of its label's name in `names`. There are
    /// at most as many as a series may have labels.
    promoted: Vec<(Range<u32>, usize)>,
    names: Vec<u8>,
}

#[derive(Debug, Default)]
struct Scope {
    attributes: Attributes,
    name: Vec<u8>,
    version: Vec<u8>,
    schema_url: Vec<u8>,
}

/// A label that all series of a resource or scope get, unless another one of the same name wins.
struct Candidate<'a> {
    name: Cow<'a, [u8]>,
    value: &'a [u8],
    /// Of candidates with the same name, the one with the highest rank wins, and of these the first one.
    rank: u8,
}

const PROMOTED: u8 = 0;
const OF_SCOPE: u8 = 1;
const IDENTITY: u8 = 2;

impl ResourceScratch {
    pub(super) fn memory_bytes(&self) -> usize {
        let Scope { attributes, name, version, schema_url } = &self.scope;
        let OwnLabels { job, promoted, names, .. } = &self.own;
        self.attributes.memory_bytes()
            + job.capacity()
            + promoted.capacity() * size_of::<(Range<u32>, usize)>()
            + names.capacity()
            + self.target.memory_bytes()
            + attributes.memory_bytes()
            + name.capacity()
            + version.capacity()
            + schema_url.capacity()
    }

    pub(super) fn clear(&mut self) {
        self.attributes.clear();
        self.target.attributes.clear();
        self.own.clear();
        self.clear_scope();
    }

    pub(super) fn clear_scope(&mut self) {
        let Scope { attributes, name, version, schema_url } = &mut self.scope;
        attributes.clear();
        name.clear();
        version.clear();
        schema_url.clear();
    }

    /// Reads a Resource message.
    pub(super) fn read(
        &mut self,
        mut fields: Reader<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        while let Some(tag) = fields.tag()? {
            match tag {
                resource::ATTRIBUTE => {
                    let field = fields.message()?;
                    self.attributes.push(field, reservation)?;
                    self.target.attributes.push(field, reservation)?;
                }
                other => fields.skip_unknown(other, resource::KNOWN)?,
            }
        }
        Ok(())
    }

    /// Reads an InstrumentationScope message.
    pub(super) fn read_scope(
        &mut self,
        mut fields: Reader<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        let Scope { attributes, name, version, .. } = &mut self.scope;
        while let Some(tag) = fields.tag()? {
            match tag {
                scope::NAME => replace(name, fields.len_field()?, reservation)?,
                scope::VERSION => replace(version, fields.len_field()?, reservation)?,
                scope::ATTRIBUTE => attributes.push(fields.message()?, reservation)?,
                other => fields.skip_unknown(other, scope::KNOWN)?,
            }
        }
        Ok(())
    }

    pub(super) fn set_schema_url(
        &mut self,
        url: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        replace(&mut self.scope.schema_url, url, reservation)
    }

    /// Works out the labels that series get from the resource itself. Must be called before the labels of the resource, of
    /// its scopes, and of `target_info` are set.
    pub(super) fn prepare(
        &mut self,
        translation: &Translation,
        message: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        let Self { attributes, own, .. } = self;
        own.clear();
        own.identify(attributes, message, reservation)?;
        own.promote(translation, attributes, message, reservation)
    }

    /// How many attributes of the resource are promoted, and the bytes of their labels' names.
    pub(super) fn promoted_size(&self) -> (usize, usize) {
        (self.own.promoted.len(), self.own.names.len())
    }

    /// Sets the labels that all series of the resource get, or of the scope if scopes have labels.
    pub(super) fn put_fixed(
        &self,
        translation: &Translation,
        message: &[u8],
        fixed: &mut FixedLabels,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        let Self { attributes, own, scope, .. } = self;
        let Translation { naming, has_scope_labels, .. } = translation;
        if scope.attributes.len() > SERIES_LABELS_MAX {
            return Err(SeriesRefusal::TooManyLabels(scope.attributes.len()).into());
        }
        let mut candidates = Vec::new();
        for (name, number) in &own.promoted {
            let name = Cow::Borrowed(&own.names[name.start as usize..name.end as usize]);
            candidates.push(Candidate { name, value: attributes.value(*number, message), rank: PROMOTED });
        }
        if *has_scope_labels {
            let mut put = |name, value| candidates.push(Candidate { name, value, rank: OF_SCOPE });
            put(Cow::Borrowed(b"otel_scope_name"), &scope.name);
            put(Cow::Borrowed(b"otel_scope_version"), &scope.version);
            put(Cow::Borrowed(b"otel_scope_schema_url"), &scope.schema_url);
            for number in (0..scope.attributes.len()).rev() {
                let key = [&b"otel_scope_"[..], checked(scope.attributes.key(number, message))?].concat();
                let mut name = Vec::new();
                put_label_name(&mut name, &key, *naming);
                put(Cow::Owned(name), scope.attributes.value(number, message));
            }
        }
        if own.has_job {
            candidates.push(Candidate { name: Cow::Borrowed(JOB), value: &own.job, rank: IDENTITY });
        }
        if let Some(number) = own.instance {
            let value = attributes.value(number, message);
            candidates.push(Candidate { name: Cow::Borrowed(INSTANCE), value, rank: IDENTITY });
        }
        candidates.sort_by(|a, b| a.name.cmp(&b.name).then(b.rank.cmp(&a.rank)));
        candidates.dedup_by(|b, a| a.name == b.name);
        fixed.clear();
        for Candidate { name, value, rank } in candidates {
            fixed.push(&name, value, rank > PROMOTED, reservation)?;
        }
        Ok(())
    }

    /// Prepares the labels of `target_info`. Returns false if the resource has no such series: it has only identifying
    /// attributes, or none.
    pub(super) fn prepare_target_info(
        &mut self,
        translation: &Translation,
        message: &[u8],
        work: &mut Work,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<bool, Stop> {
        let Self { attributes, own, target, .. } = self;
        let identifying = IDENTIFYING.iter().filter(|key| attributes.get(key, message).is_some()).count();
        if attributes.len() == identifying {
            return Ok(false);
        }
        if !translation.keeps_identifying {
            target
                .attributes
                .retain(message, |key| IDENTIFYING.iter().all(|identifying| identifying.as_bytes() != key));
        }
        target.fixed.clear();
        if let Some(number) = own.instance {
            target.fixed.push(INSTANCE, attributes.value(number, message), true, reservation)?;
        }
        if own.has_job {
            target.fixed.push(JOB, &own.job, true, reservation)?;
        }
        target.fixed_changed(reservation)?;
        target.prepare(message, translation.naming, work, reservation)?;
        Ok(true)
    }
}

impl OwnLabels {
    fn clear(&mut self) {
        let Self { has_job, job, instance, promoted, names } = self;
        (*has_job, *instance) = (false, None);
        job.clear();
        promoted.clear();
        names.clear();
    }

    /// Sets the labels `instance` and `job`. The latter is `service.namespace/service.name`, or `service.name` alone.
    fn identify(
        &mut self,
        attributes: &Attributes,
        message: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        self.instance = attributes.find(SERVICE_INSTANCE_ID, message);
        if let Some(name) = attributes.get(SERVICE_NAME, message) {
            self.has_job = true;
            if let Some(namespace) = attributes.get(SERVICE_NAMESPACE, message) {
                reservation.extend(&mut self.job, namespace)?;
                reservation.extend(&mut self.job, b"/")?;
            }
            reservation.extend(&mut self.job, name)?;
        }
        Ok(())
    }

    fn promote(
        &mut self,
        translation: &Translation,
        attributes: &Attributes,
        message: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        let Translation { naming, promoted, .. } = translation;
        let mut order: Vec<usize> = Vec::new();
        for number in 0..attributes.len() {
            if promoted.contains(attributes.key(number, message)) {
                reservation.push(&mut order, number)?;
            }
        }
        if order.len() > SERIES_LABELS_MAX {
            return Err(SeriesRefusal::TooManyLabels(order.len()).into());
        }
        order.sort_by_key(|number| attributes.key(*number, message));
        for number in order {
            let key = checked(attributes.key(number, message))?;
            let start = self.names.len() as u32;
            reservation.room(&mut self.names, key.len() + NAME_PREFIX_BYTES)?;
            put_label_name(&mut self.names, key, *naming);
            reservation.push(&mut self.promoted, (start..self.names.len() as u32, number))?;
        }
        Ok(())
    }
}

fn checked(key: &[u8]) -> Result<&[u8], SeriesRefusal> {
    match key.len() {
        bytes if bytes > LABEL_NAME_BYTES_MAX => Err(SeriesRefusal::LabelNameTooLong(bytes)),
        _ => Ok(key),
    }
}

fn replace(
    text: &mut Vec<u8>,
    with: &[u8],
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), Stop> {
    text.clear();
    Ok(reservation.extend(text, with)?)
}
