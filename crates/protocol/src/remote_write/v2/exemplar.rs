//! Reads exemplars of a 2.0 request.

use super::symbols::{Symbols, read_ref};
use super::{LABELS_REF, LABELS_REFS};
use crate::DecodeError;
use crate::remote_write::exemplar::ExemplarLabels;
use crate::remote_write::sample;
use crate::wire::{Reader, Tag, WireType, tag};
use model::{Batch, LabelsBuilder, SeriesRefusal};
use stdx::budget::IncrementalReservation;

const VALUE: Tag = tag(2, WireType::Fixed64);
const TIMESTAMP: Tag = tag(3, WireType::Varint);

#[cold]
pub(super) fn read(
    mut exemplar: Reader<'_>,
    symbols: Symbols<'_>,
    builder: &mut LabelsBuilder,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    sample::check_extras(batch.floats.exemplars.len(), "exemplars")?;
    let (mut timestamp_ms, mut value) = (0, 0.0);
    let mut labels = SymbolLabels::new(ExemplarLabels::new(builder), symbols);
    while let Some(tag) = exemplar.tag()? {
        match tag {
            LABELS_REFS => {
                let mut packed = exemplar.message()?;
                while !packed.is_empty() {
                    labels.push(read_ref(&mut packed)?);
                }
            }
            LABELS_REF => labels.push(read_ref(&mut exemplar)?),
            VALUE => value = exemplar.double()?,
            TIMESTAMP => timestamp_ms = exemplar.varint()? as i64,
            other => exemplar.skip_unknown(other, &[1, 2, 3])?,
        }
    }
    labels.finish().keep(timestamp_ms, value, batch, reservation)
}

/// Looks up the labels of an exemplar. Their references arrive one by one, alternating between names and
/// values.
struct SymbolLabels<'a, 's> {
    labels: ExemplarLabels<'a>,
    symbols: Symbols<'s>,
    name: Option<&'s [u8]>,
    count: usize,
}

impl<'a, 's> SymbolLabels<'a, 's> {
    const fn new(labels: ExemplarLabels<'a>, symbols: Symbols<'s>) -> Self {
        Self { labels, symbols, name: None, count: 0 }
    }

    fn push(&mut self, reference: u32) {
        self.count += 1;
        match (self.symbols.get(reference), self.name.take()) {
            (Some(name), None) => self.name = Some(name),
            (Some(value), Some(name)) => self.labels.push(name, value),
            (None, _) => self.labels.fail(self.symbols.missing(reference)),
        }
    }

    fn finish(mut self) -> ExemplarLabels<'a> {
        if !self.count.is_multiple_of(2) {
            self.labels.fail(SeriesRefusal::OddLabelRefs(self.count));
        }
        self.labels
    }
}
