//! Exemplars of points.

use super::Stop;
use super::attribute::Attributes;
use super::fields::exemplar;
use super::walk::{Walk, refusal_of};
use crate::remote_write::exemplar::{ExemplarLabels, char_count};
use crate::wire::{Reader, Tag};
use model::caps::EXEMPLAR_LABEL_CHARS_MAX;
use model::{Exemplar, LabelsBuilder};
use stdx::budget::IncrementalReservation;

/// Limit on the bytes of a trace or of a span ID. They have 16 and 8 bytes.
const ID_BYTES_MAX: usize = 16;

const TRACE_ID: &[u8] = b"trace_id";
const SPAN_ID: &[u8] = b"span_id";

impl<'a> Walk<'a, '_> {
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
            let read = read(
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
}

/// Reads an exemplar. Returns `None` if it cannot be stored: it has no value, or its labels are not valid.
///
/// Its labels are the IDs of trace and span, and the attributes that the point does not have. If they are together longer
/// than exemplars may be, the attributes are left out, as Prometheus does.
pub(super) fn read(
    mut fields: Reader<'_>,
    message: &[u8],
    attributes: &mut Attributes,
    builder: &mut LabelsBuilder,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<Option<Exemplar>, Stop> {
    let (mut time_ns, mut value, mut trace_id, mut span_id) = (0, None, &[][..], &[][..]);
    let mut is_valid = true;
    attributes.clear();
    while let Some(tag) = fields.tag()? {
        match tag {
            exemplar::TIME => time_ns = fields.fixed64()?,
            exemplar::AS_DOUBLE => value = Some(fields.double()?),
            exemplar::AS_INT => value = Some(fields.fixed64()? as i64 as f64),
            exemplar::TRACE_ID => trace_id = fields.len_field()?,
            exemplar::SPAN_ID => span_id = fields.len_field()?,
            exemplar::ATTRIBUTE => {
                is_valid &= refusal_of(attributes.push(fields.message()?, reservation))?.is_none();
            }
            other => fields.skip_unknown(other, exemplar::KNOWN)?,
        }
    }
    let ids = [(TRACE_ID, trace_id), (SPAN_ID, span_id)];
    is_valid &= ids.iter().all(|(_, id)| id.len() <= ID_BYTES_MAX);
    let Some(value) = value.filter(|_| is_valid) else { return Ok(None) };

    let mut labels = ExemplarLabels::new(builder);
    let mut chars = 0;
    for (name, id) in ids.into_iter().filter(|(_, id)| id.iter().any(|byte| *byte != 0)) {
        let mut text = [0; 2 * ID_BYTES_MAX];
        let text = hex(id, &mut text);
        labels.push(name, text);
        chars += name.len() + text.len();
    }
    let attributes = &*attributes;
    let attribute = move |number| (attributes.key(number, message), attributes.value(number, message));
    let all = || (0..attributes.len()).map(attribute);
    chars += all().map(|(key, value)| char_count(key) + char_count(value)).sum::<usize>();
    if chars <= EXEMPLAR_LABEL_CHARS_MAX {
        all().for_each(|(key, value)| labels.push(key, value));
    }
    let timestamp_ms = (time_ns / 1_000_000) as i64;
    let exemplar = labels.finish(timestamp_ms, value);
    reservation.reserve(exemplar.as_ref().map_or(0, |exemplar| exemplar.labels.as_bytes().len()))?;
    Ok(exemplar)
}

fn hex<'a>(bytes: &[u8], out: &'a mut [u8; 2 * ID_BYTES_MAX]) -> &'a [u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, digits) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    &out[..2 * bytes.len()]
}
