//! Makes the label bytes of series from the attributes of points.
//!
//! ```text
//!   attributes of a point   method=GET  code=200  host=        (as sent)
//!   labels of the resource  instance=i1  job=shop              (sorted)
//!   template                [name] [code: attribute 1] [resource 0..2] [method: attribute 0]
//!   label bytes             {__name__=…}{code=200}{instance=i1}{job=shop}{method=GET}
//! ```
//!
//! A template says in which order the labels of a series are, and where their values come from. It depends only on the
//! keys of the attributes and on the names of the resource's labels, so neighboring points have the same template.
//! Empty values are left out.
//!
//! Where labels have the same name, these rules of Prometheus' receiver apply: the label that makes a series of a metric
//! (`__name__`, `le`, `quantile`) wins over labels of the scope, `job` and `instance`, these win over attributes of the
//! point, and these over promoted attributes of the resource. Attributes of a point with the same name are joined.

use super::Stop;
use super::attribute::Attributes;
use super::names::put_label_name;
use super::translation::Naming;
use super::work::Work;
use crate::wire::Reader;
use model::SeriesRefusal;
use model::caps::{LABEL_NAME_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, put_label};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};
use stdx::varint;

/// The tags of a label in its canonical form.
const LABEL: u8 = 0x0a;
const LABEL_NAME: u8 = 0x0a;
const LABEL_VALUE: u8 = 0x12;

/// Limit on the templates that are remembered. One replaces another in turn.
const TEMPLATES_MAX: usize = 32;

/// A label takes at most this many bytes in addition to its name and value: three tags, and three lengths of up to three
/// bytes.
const OVERHEAD_BYTES: usize = 3 + 3 * 3;

/// Naming puts at most this many bytes before the name of a label.
pub(super) const NAME_PREFIX_BYTES: usize = 4;

/// The label that tells series of the same point apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Le,
    Quantile,
}

impl Part {
    const ALL: [Self; 2] = [Self::Le, Self::Quantile];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Le => "le",
            Self::Quantile => "quantile",
        }
    }
}

/// Labels that all points of a resource, or of a scope, have.
#[derive(Debug, Default)]
pub(super) struct FixedLabels {
    /// Sorted by name, which is unique.
    labels: Vec<FixedLabel>,
    names: Vec<u8>,
    /// The labels in canonical form.
    bytes: Vec<u8>,
    /// Why there are none, although there should be.
    refusal: Option<SeriesRefusal>,
    /// Labels that were added, and their bytes.
    pushed: (usize, usize),
}

#[derive(Debug, Clone)]
struct FixedLabel {
    name: Range<u32>,
    /// End of the label in [`FixedLabels::bytes`]. A label without value takes no bytes.
    end: u32,
    /// True if the label wins over an attribute of a point with the same name.
    overrides: bool,
}

impl FixedLabels {
    fn memory_bytes(&self) -> usize {
        self.labels.capacity() * size_of::<FixedLabel>() + self.names.capacity() + self.bytes.capacity()
    }

    pub(super) fn clear(&mut self) {
        self.empty();
        self.refusal = None;
        self.pushed = (0, 0);
    }

    fn empty(&mut self) {
        self.labels.clear();
        self.names.clear();
        self.bytes.clear();
    }

    pub(super) fn refuse(&mut self, refusal: SeriesRefusal) {
        self.empty();
        self.refusal = Some(refusal);
    }

    /// How many labels were added since they were cleared, and the bytes of their names and values, also if all were refused
    /// in the end.
    pub(super) fn pushed(&self) -> (usize, usize) {
        self.pushed
    }

    /// Adds a label. Labels must come sorted by name, without repetitions.
    pub(super) fn push(
        &mut self,
        name: &[u8],
        value: &[u8],
        overrides: bool,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let bytes = self.bytes.len() + name.len() + value.len();
        if self.labels.len() == SERIES_LABELS_MAX {
            self.refuse(SeriesRefusal::TooManyLabels(SERIES_LABELS_MAX + 1));
        } else if bytes > SERIES_LABEL_BYTES_MAX {
            self.refuse(SeriesRefusal::LabelsTooLong(bytes));
        }
        if self.refusal.is_some() {
            return Ok(());
        }
        let (labels, pushed_bytes) = self.pushed;
        self.pushed = (labels + 1, pushed_bytes + 2 * name.len() + value.len());
        let start = self.names.len() as u32;
        reservation.extend(&mut self.names, name)?;
        if !value.is_empty() {
            reservation.room(&mut self.bytes, name.len() + value.len() + OVERHEAD_BYTES)?;
            put_label(&mut self.bytes, name, value);
        }
        let label =
            FixedLabel { name: start..self.names.len() as u32, end: self.bytes.len() as u32, overrides };
        reservation.push(&mut self.labels, label)
    }

    fn name(&self, number: usize) -> &[u8] {
        let name = &self.labels[number].name;
        &self.names[name.start as usize..name.end as usize]
    }

    fn bytes_of(&self, numbers: &Range<u16>) -> &[u8] {
        let start = match numbers.start {
            0 => 0,
            first => self.labels[usize::from(first) - 1].end as usize,
        };
        &self.bytes[start..self.labels[usize::from(numbers.end) - 1].end as usize]
    }

    /// Whether templates for `other` are also right for these labels.
    fn is_like(&self, other: &FixedNames) -> bool {
        self.names == other.names
            && self.labels.len() == other.labels.len()
            && self.labels.iter().map(FixedLabel::shape).eq(other.labels.iter().cloned())
    }
}

impl FixedLabel {
    fn shape(&self) -> (Range<u32>, bool) {
        (self.name.clone(), self.overrides)
    }
}

/// The names of the fixed labels for which there are templates.
#[derive(Debug, Default)]
struct FixedNames {
    names: Vec<u8>,
    labels: Vec<(Range<u32>, bool)>,
}

impl FixedNames {
    fn set(
        &mut self,
        fixed: &FixedLabels,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        self.names.clear();
        self.labels.clear();
        reservation.extend(&mut self.names, &fixed.names)?;
        reservation.room(&mut self.labels, fixed.labels.len())?;
        self.labels.extend(fixed.labels.iter().map(FixedLabel::shape));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Template {
    naming: Option<Naming>,
    /// The keys of the attributes, as they were sent, one after the other.
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    pieces: Vec<Piece>,
    /// Names of labels, each with the tags around it, as they are in label bytes.
    names: Vec<u8>,
    /// Numbers of attributes that are joined.
    joined: Vec<u16>,
    parts: [PartPlace; Part::ALL.len()],
}

#[derive(Debug, Clone)]
enum Piece {
    MetricName,
    Fixed(Range<u16>),
    Attribute { name: Range<u32>, number: u16 },
    Joined { name: Range<u32>, numbers: Range<u16> },
}

/// Where the label of a [`Part`] is.
#[derive(Debug, Clone, Copy, Default)]
struct PartPlace {
    /// Number of the pieces before it.
    before: usize,
    /// Whether the next piece is a label of the same name, which the part replaces.
    replaces: bool,
}

impl Template {
    fn memory_bytes(&self) -> usize {
        let Self { keys, key_ends, pieces, names, joined, .. } = self;
        keys.capacity()
            + key_ends.capacity() * size_of::<u32>()
            + pieces.capacity() * size_of::<Piece>()
            + names.capacity()
            + joined.capacity() * size_of::<u16>()
    }

    #[inline(always)]
    fn fits(&self, naming: Naming, attributes: &Attributes, message: &[u8]) -> bool {
        let mut start = 0;
        self.naming == Some(naming)
            && self.key_ends.len() == attributes.len()
            && self.key_ends.iter().enumerate().all(|(number, end)| {
                let key = &self.keys[start..*end as usize];
                start = *end as usize;
                attributes.key(number, message) == key
            })
    }
}

/// The labels of the series of one point.
#[derive(Debug, Default)]
pub(super) struct PointLabels {
    pub(super) attributes: Attributes,
    pub(super) fixed: FixedLabels,
    templates: Vec<Template>,
    of: FixedNames,
    /// The template of the current point.
    current: usize,
    /// The template that is replaced next.
    oldest: usize,
}

/// The name of a series: the name of the metric, and what is appended to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesName<'a> {
    pub(super) metric: &'a [u8],
    pub(super) suffix: &'static [u8],
}

impl SeriesName<'_> {
    pub(super) const fn bytes(&self) -> usize {
        self.metric.len() + self.suffix.len()
    }
}

impl PointLabels {
    pub(super) fn memory_bytes(&self) -> usize {
        self.attributes.memory_bytes()
            + self.fixed.memory_bytes()
            + self.templates.capacity() * size_of::<Template>()
            + self.templates.iter().map(Template::memory_bytes).sum::<usize>()
            + self.of.names.capacity()
            + self.of.labels.capacity() * size_of::<(Range<u32>, bool)>()
    }

    /// Must be called when the fixed labels have changed.
    pub(super) fn fixed_changed(
        &mut self,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if !self.fixed.is_like(&self.of) {
            // the templates keep their memory
            self.templates.iter_mut().for_each(|template| template.naming = None);
            self.of.set(&self.fixed, reservation)?;
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn attribute(
        &mut self,
        field: Reader<'_>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        self.attributes.push(field, reservation)
    }

    /// Finds the template for the attributes of the current point. Fails if the point cannot have labels.
    #[inline(always)]
    pub(super) fn prepare(
        &mut self,
        message: &[u8],
        naming: Naming,
        work: &mut Work,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        match self.templates.get(self.current) {
            Some(last) if last.fits(naming, &self.attributes, message) && self.fixed.refusal.is_none() => {
                Ok(())
            }
            _ => self.prepare_another(message, naming, work, reservation),
        }
    }

    #[inline(never)]
    fn prepare_another(
        &mut self,
        message: &[u8],
        naming: Naming,
        work: &mut Work,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        if let Some(refusal) = &self.fixed.refusal {
            return Err(refusal.clone().into());
        }
        let fits = |template: &Template| template.fits(naming, &self.attributes, message);
        if let Some(known) = self.templates.iter().position(fits) {
            self.current = known;
            return Ok(());
        }
        let count = self.attributes.len();
        if count > SERIES_LABELS_MAX {
            return Err(SeriesRefusal::TooManyLabels(count).into());
        }
        let too_long = (0..count).map(|number| self.attributes.key(number, message).len());
        if let Some(bytes) = too_long.into_iter().find(|bytes| *bytes > LABEL_NAME_BYTES_MAX) {
            return Err(SeriesRefusal::LabelNameTooLong(bytes).into());
        }
        // a label without value takes no bytes in the series, but its name is put in order for each template
        work.unstored(self.fixed.labels.len(), self.fixed.names.len())?;
        self.current = if self.templates.len() < TEMPLATES_MAX {
            reservation.push(&mut self.templates, Template::default())?;
            self.templates.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % TEMPLATES_MAX;
            self.oldest
        };
        let template = &mut self.templates[self.current];
        Ok(template.build(naming, &self.attributes, &self.fixed, message, reservation)?)
    }

    /// Upper bound on the label bytes of a series of the current point, without its name and its part.
    #[inline(always)]
    pub(super) fn bytes_max(&self, point_bytes: usize) -> usize {
        // values that are strings are in the message, each with its key
        let names = self.templates[self.current].names.len() + METRIC_NAME.len();
        point_bytes
            + self.attributes.texts_bytes()
            + names
            + self.fixed.bytes.len()
            + (self.attributes.len() + 2) * OVERHEAD_BYTES
    }

    /// Appends the labels of a series without a part. The caller must have made room.
    #[inline(always)]
    pub(super) fn put(&self, name: SeriesName<'_>, message: &[u8], out: &mut Vec<u8>) {
        self.put_pieces(&self.templates[self.current].pieces, name, message, out);
    }

    /// Appends the labels of a series that come before its part.
    pub(super) fn put_before(&self, part: Part, name: SeriesName<'_>, message: &[u8], out: &mut Vec<u8>) {
        let template = &self.templates[self.current];
        let PartPlace { before, .. } = template.parts[part as usize];
        self.put_pieces(&template.pieces[..before], name, message, out);
    }

    /// Appends the labels of a series that come after its part.
    pub(super) fn put_after(&self, part: Part, name: SeriesName<'_>, message: &[u8], out: &mut Vec<u8>) {
        let template = &self.templates[self.current];
        let PartPlace { before, replaces } = template.parts[part as usize];
        self.put_pieces(&template.pieces[before + usize::from(replaces)..], name, message, out);
    }

    #[inline(always)]
    fn put_pieces(&self, pieces: &[Piece], name: SeriesName<'_>, message: &[u8], out: &mut Vec<u8>) {
        let template = &self.templates[self.current];
        let framed = |name: &Range<u32>| &template.names[name.start as usize..name.end as usize];
        for piece in pieces {
            match piece {
                Piece::MetricName => put_name(out, name),
                Piece::Fixed(numbers) => out.extend_from_slice(self.fixed.bytes_of(numbers)),
                Piece::Attribute { name, number } => {
                    let value = self.attributes.value(usize::from(*number), message);
                    if !value.is_empty() {
                        put_value(out, framed(name), value);
                    }
                }
                Piece::Joined { name, numbers } => {
                    let numbers = &template.joined[usize::from(numbers.start)..usize::from(numbers.end)];
                    self.put_joined(framed(name), numbers, message, out);
                }
            }
        }
    }

    #[cold]
    fn put_joined(&self, framed_name: &[u8], numbers: &[u16], message: &[u8], out: &mut Vec<u8>) {
        let values = || numbers.iter().map(|number| self.attributes.value(usize::from(*number), message));
        let bytes = values().map(<[u8]>::len).sum::<usize>() + numbers.len() - 1;
        put_frame(out, framed_name, bytes);
        for (position, value) in values().enumerate() {
            if position > 0 {
                out.push(b';');
            }
            out.extend_from_slice(value);
        }
    }
}

#[inline(always)]
fn put_name(out: &mut Vec<u8>, SeriesName { metric, suffix }: SeriesName<'_>) {
    /// The name of the label, with the tags around it.
    const FRAMED: &[u8] = b"\x0a\x08__name__\x12";
    put_frame(out, FRAMED, metric.len() + suffix.len());
    out.extend_from_slice(metric);
    out.extend_from_slice(suffix);
}

/// Appends a label. `framed_name` is its name with the tags around it.
#[inline(always)]
fn put_value(out: &mut Vec<u8>, framed_name: &[u8], value: &[u8]) {
    put_frame(out, framed_name, value.len());
    out.extend_from_slice(value);
}

/// Appends a label, but for its value, which takes `value_bytes`.
#[inline(always)]
fn put_frame(out: &mut Vec<u8>, framed_name: &[u8], value_bytes: usize) {
    out.push(LABEL);
    varint::put(out, (framed_name.len() + varint::len(value_bytes as u64) + value_bytes) as u64);
    out.extend_from_slice(framed_name);
    varint::put(out, value_bytes as u64);
}

/// Where the value of a label comes from.
#[derive(Debug, Clone)]
enum Source {
    MetricName,
    Fixed(u16),
    /// Attributes in the order of their keys.
    Attributes(Vec<u16>),
}

impl Template {
    /// Works out the template for attributes with these keys. There are at most as many as a series may have labels.
    fn build(
        &mut self,
        naming: Naming,
        attributes: &Attributes,
        fixed: &FixedLabels,
        message: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        // it must not be used if memory is short
        self.naming = None;
        let Self { keys, key_ends, pieces, names, joined, .. } = self;
        keys.clear();
        key_ends.clear();
        pieces.clear();
        names.clear();
        joined.clear();
        let count = attributes.len();
        let keys_bytes = (0..count).map(|number| attributes.key(number, message).len()).sum::<usize>();
        reservation.room(keys, keys_bytes)?;
        reservation.room(key_ends, count)?;
        reservation.room(pieces, count + fixed.labels.len() + 1)?;
        reservation.room(names, keys_bytes + count * (NAME_PREFIX_BYTES + OVERHEAD_BYTES))?;
        reservation.room(joined, count)?;
        for number in 0..count {
            keys.extend_from_slice(attributes.key(number, message));
            key_ends.push(keys.len() as u32);
        }
        let mut labels = labels_of_attributes(naming, attributes, message);
        labels.retain(|(name, _)| name != METRIC_NAME.as_bytes());
        let of_attributes = labels.len();
        for number in 0..fixed.labels.len() {
            let name = fixed.name(number);
            let source = Source::Fixed(number as u16);
            match labels[..of_attributes].binary_search_by(|(other, _)| other.as_slice().cmp(name)) {
                Ok(same) if fixed.labels[number].overrides => labels[same].1 = source,
                Err(_) if name != METRIC_NAME.as_bytes() => labels.push((name.to_vec(), source)),
                Ok(_) | Err(_) => {}
            }
        }
        labels.push((METRIC_NAME.into(), Source::MetricName));
        labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.arrange(labels);
        self.naming = Some(naming);
        Ok(())
    }

    /// Turns sorted labels into pieces.
    fn arrange(&mut self, labels: Vec<(Vec<u8>, Source)>) {
        let mut parts = Part::ALL.map(|_| None);
        // fixed labels must not be in the same piece if a part comes between them
        let mut is_split = true;
        for (name, source) in labels {
            for (part, place) in Part::ALL.into_iter().zip(&mut parts) {
                if place.is_none() && name.as_slice() >= part.label().as_bytes() {
                    let replaces = name == part.label().as_bytes();
                    *place = Some(PartPlace { before: self.pieces.len(), replaces });
                    is_split = true;
                }
            }
            match source {
                Source::MetricName => self.pieces.push(Piece::MetricName),
                Source::Fixed(number) => match self.pieces.last_mut() {
                    Some(Piece::Fixed(before)) if before.end == number && !is_split => before.end += 1,
                    _ => self.pieces.push(Piece::Fixed(number..number + 1)),
                },
                Source::Attributes(numbers) => {
                    let name = self.put_framed(&name);
                    self.pieces.push(match numbers[..] {
                        [number] => Piece::Attribute { name, number },
                        _ => {
                            let start = self.joined.len() as u16;
                            self.joined.extend_from_slice(&numbers);
                            Piece::Joined { name, numbers: start..self.joined.len() as u16 }
                        }
                    });
                }
            }
            // the label that a part replaces must be a piece of its own
            is_split = Part::ALL.iter().any(|part| name == part.label().as_bytes());
        }
        self.parts =
            parts.map(|place| place.unwrap_or(PartPlace { before: self.pieces.len(), replaces: false }));
    }

    fn put_framed(&mut self, name: &[u8]) -> Range<u32> {
        let start = self.names.len() as u32;
        self.names.push(LABEL_NAME);
        varint::put(&mut self.names, name.len() as u64);
        self.names.extend_from_slice(name);
        self.names.push(LABEL_VALUE);
        start..self.names.len() as u32
    }
}

/// Returns the labels of attributes, sorted by name, each with the attributes of this name.
fn labels_of_attributes(naming: Naming, attributes: &Attributes, message: &[u8]) -> Vec<(Vec<u8>, Source)> {
    let mut all: Vec<(Vec<u8>, u16)> = (0..attributes.len())
        .map(|number| {
            let mut name = Vec::new();
            put_label_name(&mut name, attributes.key(number, message), naming);
            (name, number as u16)
        })
        .collect();
    let key = |number: u16| attributes.key(usize::from(number), message);
    // attributes with equal keys stay in the order in which they were sent
    all.sort_by(|(a_name, a), (b_name, b)| a_name.cmp(b_name).then_with(|| key(*a).cmp(key(*b))));
    let groups = all.chunk_by(|(a, _), (b, _)| a == b);
    groups
        .map(|group| {
            let numbers = group.iter().map(|(_, number)| *number).collect();
            (group[0].0.clone(), Source::Attributes(numbers))
        })
        .collect()
}
