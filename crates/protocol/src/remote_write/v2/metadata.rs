//! Metadata in a 2.0 request. Senders repeat a metric's metadata with each of its series, but the batch keeps
//! only one copy.

use super::Stop;
use super::symbols::{Symbols, read_ref};
use crate::remote_write::metadata::{family, push};
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::labels::METRIC_NAME;
use model::{Batch, MetricKind};
use stdx::budget::IncrementalReservation;

const KIND: Tag = tag(1, WireType::Varint);
const HELP: Tag = tag(3, WireType::Varint);
const UNIT: Tag = tag(4, WireType::Varint);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MetadataRefs {
    kind: MetricKind,
    help: u32,
    unit: u32,
}

impl MetadataRefs {
    /// Reads a Metadata message. If the field is repeated, later values override earlier ones.
    #[inline(always)]
    pub(super) fn read(mut self, mut metadata: Reader<'_>) -> Result<Self, WireError> {
        while let Some(tag) = metadata.tag()? {
            match tag {
                KIND => self.kind = MetricKind::from_wire(metadata.varint()?),
                HELP => self.help = read_ref(&mut metadata)?,
                UNIT => self.unit = read_ref(&mut metadata)?,
                other => metadata.skip_unknown(other, &[1, 3, 4])?,
            }
        }
        Ok(self)
    }
}

/// For each symbol that is the name of a metric, the metadata that was last seen for it.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<Option<MetadataRefs>>);

impl Scratch {
    pub(super) const fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Option<MetadataRefs>>()
    }
}

pub(super) struct KeptMetadata<'a> {
    by_symbol: &'a mut Vec<Option<MetadataRefs>>,
    /// The reference of the text `__name__`, once it was found.
    name_symbol: Option<u32>,
    /// The metric family that was last added to the batch, with its metadata.
    family: Option<(&'a [u8], MetadataRefs)>,
}

impl<'a> KeptMetadata<'a> {
    pub(super) fn new(scratch: &'a mut Scratch) -> Self {
        scratch.0.clear();
        Self { by_symbol: &mut scratch.0, name_symbol: None, family: None }
    }

    /// Adds the metadata that came with a series, unless the batch already has it for this metric. `labels`
    /// are the references of the series, which must be valid.
    #[inline(always)]
    pub(super) fn keep(
        &mut self,
        labels: Reader<'_>,
        metadata: MetadataRefs,
        symbols: Symbols<'a>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        match self.metric_symbol(labels, symbols)? {
            // the usual case, because all series of a metric have the same metadata
            Some(metric) if self.by_symbol.get(metric as usize) == Some(&Some(metadata)) => Ok(()),
            metric => self.keep_new(metric, metadata, symbols, batch, reservation),
        }
    }

    fn metric_symbol(
        &mut self,
        mut labels: Reader<'_>,
        symbols: Symbols<'_>,
    ) -> Result<Option<u32>, WireError> {
        let (mut name_symbol, mut metric) = (self.name_symbol, None);
        while !labels.is_empty() {
            let (name, value) = (read_ref(&mut labels)?, read_ref(&mut labels)?);
            let is_name = |name| symbols.get(name).is_some_and(|text| text == METRIC_NAME.as_bytes());
            if name_symbol == Some(name) || is_name(name) {
                (name_symbol, metric) = (Some(name), Some(value));
                break;
            }
        }
        self.name_symbol = name_symbol;
        Ok(metric)
    }

    #[cold]
    fn keep_new(
        &mut self,
        metric: Option<u32>,
        metadata: MetadataRefs,
        symbols: Symbols<'a>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Stop> {
        let help = symbols.text(metadata.help)?;
        let unit = symbols.text(metadata.unit)?;
        let Some(metric) = metric else { return Ok(()) };
        if self.by_symbol.is_empty() {
            reservation.room(self.by_symbol, symbols.len())?;
            self.by_symbol.resize(symbols.len(), None);
        }
        let kept = &mut self.by_symbol[metric as usize];
        if *kept != Some(metadata) {
            *kept = Some(metadata);
            let name = family(symbols.text(metric)?, metadata.kind);
            // the series of a histogram are consecutive, so the latest family is enough
            if self.family != Some((name, metadata)) {
                self.family = Some((name, metadata));
                push(batch, reservation, metadata.kind, name, help, unit)?;
            }
        }
        Ok(())
    }
}
