//! `io.prometheus.write.v2.Request`.
//!
//! ```text
//!   Request        4 symbols*   5 TimeSeries*
//!   TimeSeries     1 labels_refs*   2 Sample*   3 Histogram*   4 Exemplar*   5 Metadata
//! ```
//!
//! Labels come as references into the request's table of symbols. Each series' label bytes are rebuilt
//! from it in canonical layout, in the order sent, into the batch's arena ([`rebuild`]), and hashed there;
//! so a series has the same key in both versions.
//!
//! Where the specification leaves a choice, this follows Prometheus' receiver, with one exception: a
//! series with nothing but exemplars is taken, because Prometheus' own sender makes them.

mod rebuild;
mod symbols;

use super::exemplar::ExemplarLabels;
use super::labels::{LABEL_SHOWN_BYTES_MAX, LABELS_SHOWN_MAX};
use super::{DecodeError, Decoder, Seen, Version, metadata, sample, snappy};
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::caps::SERIES_LABEL_BYTES_MAX;
use model::labels::{METRIC_NAME, put_label};
use model::{Batch, BatchSeries, LabelsBuilder, MetricKind, SeriesError, SeriesHasher};
use rebuild::{LastSeries, REBUILT_BYTES_MAX};
use std::ops::Range;
use stdx::budget::{Exhausted, Purse};
use symbols::{Symbol, Symbols, read_ref};

const SYMBOLS: Tag = tag(4, WireType::Len);
const TIMESERIES: Tag = tag(5, WireType::Len);

const LABELS_REFS: Tag = tag(1, WireType::Len);
const LABELS_REF: Tag = tag(1, WireType::Varint);
const SAMPLE: Tag = tag(2, WireType::Len);
const HISTOGRAM: Tag = tag(3, WireType::Len);
const EXEMPLAR: Tag = tag(4, WireType::Len);
const METADATA: Tag = tag(5, WireType::Len);

const EXEMPLAR_VALUE: Tag = tag(2, WireType::Fixed64);
const EXEMPLAR_TIMESTAMP: Tag = tag(3, WireType::Varint);

const METADATA_KIND: Tag = tag(1, WireType::Varint);
const METADATA_HELP: Tag = tag(3, WireType::Varint);
const METADATA_UNIT: Tag = tag(4, WireType::Varint);

/// Working memory of the 2.0 decoder.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    rebuild: rebuild::Scratch,
    /// References that a series or an exemplar sent in pieces.
    gathered: Vec<u8>,
    /// By the symbol of the metric's name: the metadata kept last for it.
    metadata: Vec<Option<MetadataRefs>>,
}

impl Scratch {
    pub(super) fn memory_bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>()
            + self.rebuild.memory_bytes()
            + self.gathered.capacity()
            + self.metadata.capacity() * size_of::<Option<MetadataRefs>>()
    }
}

pub(super) fn decode(
    decoder: &mut Decoder,
    body: &[u8],
    batch: &mut Batch,
    mut purse: Purse<'_>,
) -> Result<(), DecodeError> {
    snappy::decompress_bought(body, &mut decoder.body, &mut purse)?;
    if walk(decoder, batch, &mut purse, false)? == SymbolsCame::Late {
        batch.clear();
        walk(decoder, batch, &mut purse, true)?;
    }
    Ok(())
}

/// Room in the arena for the labels of a series, in canonical form or refused in the middle of it: those which
/// it has for itself and those which it shares with the series before may each have as much as a whole one.
const SERIES_ROOM_BYTES: usize = 2 * SERIES_LABEL_BYTES_MAX + 64;

/// Whether the symbols stood where senders put them: before the series.
#[derive(PartialEq, Eq)]
enum SymbolsCame {
    First,
    Late,
}

/// Reads the request; once more with `everywhere` where symbols come late.
fn walk(
    decoder: &mut Decoder,
    batch: &mut Batch,
    purse: &mut Purse<'_>,
    everywhere: bool,
) -> Result<SymbolsCame, DecodeError> {
    let scratch = &mut decoder.v2;
    scratch.metadata.clear();
    let (symbols, fields) = Symbols::read(&decoder.body, everywhere, &mut scratch.symbols, purse)?;
    scratch.rebuild.prepare(symbols.len(), purse)?;
    let mut walk = Walk {
        hasher: &decoder.hasher,
        body: &decoder.body,
        symbols,
        last: LastSeries::new(&mut scratch.rebuild),
        gathered: &mut scratch.gathered,
        metadata_kept: &mut scratch.metadata,
        name_symbol: None,
        family_kept: None,
        builder: &mut decoder.labels,
        batch,
        purse,
    };
    walk.request(fields, everywhere)
}

struct Walk<'a, 'p> {
    hasher: &'a SeriesHasher,
    body: &'a [u8],
    symbols: Symbols<'a>,
    last: LastSeries<'a>,
    gathered: &'a mut Vec<u8>,
    metadata_kept: &'a mut Vec<Option<MetadataRefs>>,
    /// The symbol that is `__name__`, once it was met.
    name_symbol: Option<u32>,
    /// The family kept last, and what is known of it.
    family_kept: Option<(&'a [u8], MetadataRefs)>,
    builder: &'a mut LabelsBuilder,
    batch: &'a mut Batch,
    purse: &'a mut Purse<'p>,
}

/// What one TimeSeries message holds beside its samples.
struct Content {
    /// References to name, value, name, value and so on: where in the body they lie, as one packed field.
    refs: Range<usize>,
    /// They were in pieces instead, which were brought together in `Walk::gathered`.
    scattered: bool,
    histograms: usize,
    exemplars: usize,
    metadata: MetadataRefs,
}

/// A series' Metadata message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MetadataRefs {
    kind: MetricKind,
    help: u32,
    unit: u32,
}

impl<'a> Walk<'a, '_> {
    fn request(&mut self, mut fields: Reader<'a>, everywhere: bool) -> Result<SymbolsCame, DecodeError> {
        let mut series_seen = 0;
        let mut seen = Seen { known: self.symbols.len() > 0, unknown: false };
        while let Some(tag) = fields.tag()? {
            match tag {
                TIMESERIES => {
                    sample::count_series(&mut series_seen)?;
                    self.series(fields.message()?)?;
                }
                SYMBOLS if everywhere => _ = fields.len_field()?,
                SYMBOLS => return Ok(SymbolsCame::Late),
                other => {
                    seen.unknown = true;
                    fields.skip_unknown(other, &[4, 5])?;
                }
            }
        }
        seen.known |= series_seen > 0;
        seen.check(Version::V2)?;
        Ok(SymbolsCame::First)
    }

    #[inline(always)]
    fn series(&mut self, series: Reader<'a>) -> Result<(), DecodeError> {
        let first_sample = self.batch.timestamps.len();
        let first_exemplar = self.batch.exemplars.len();
        let labels_start = self.batch.bytes.len();
        let content = self.read_series(series)?;
        let samples = first_sample as u32..self.batch.timestamps.len() as u32;
        self.batch.refused_histograms += content.histograms as u64;
        if let Err(stop) = self.keep(&content, samples.len()) {
            let error = match stop {
                Stop::Series(error) => error,
                Stop::Request(error) => return Err(error),
            };
            self.batch.refused_exemplars += (self.batch.exemplars.len() - first_exemplar) as u64;
            self.batch.exemplars.truncate(first_exemplar);
            self.batch.timestamps.truncate(first_sample);
            self.batch.values.truncate(first_sample);
            self.batch.bytes.truncate(labels_start);
            // its labels may have been the last ones put, and they are gone
            self.last.forget();
            let labels = self.put_shown(&content)?;
            self.batch.refuse(error, labels, samples.len());
            return Ok(());
        }
        let labels = labels_start as u32..self.batch.bytes.len() as u32;
        if content.histograms > 0 {
            let error = SeriesError::NativeHistograms(content.histograms);
            self.batch.refuse(error, labels.clone(), 0);
        }
        if !samples.is_empty() || self.batch.exemplars.len() > first_exemplar {
            let key = self.hasher.key(&self.batch.bytes[labels_start..]);
            self.purse.push(&mut self.batch.series, BatchSeries { key, labels, samples })?;
        }
        Ok(())
    }

    /// Reads a TimeSeries message: its samples and exemplars go into the batch.
    #[inline(always)]
    fn read_series(&mut self, mut series: Reader<'a>) -> Result<Content, DecodeError> {
        // a range, not a reader: two registers, not a copy in memory
        let mut refs = 0..0;
        let (mut scattered, mut histograms, mut exemplars) = (false, 0, 0);
        let mut metadata = MetadataRefs::default();
        while let Some(tag) = series.tag()? {
            match tag {
                LABELS_REFS => {
                    let packed = series.message()?.unread();
                    if refs.is_empty() && !scattered {
                        refs = packed;
                    } else {
                        self.gather(refs.clone(), packed, scattered)?;
                        scattered = true;
                    }
                }
                SAMPLE => sample::push(series.message()?, self.batch, self.purse)?,
                METADATA => metadata = metadata.read(series.message()?)?,
                HISTOGRAM => {
                    histograms += 1;
                    series.len_field()?;
                }
                EXEMPLAR => {
                    exemplars += 1;
                    self.exemplar(series.message()?)?;
                }
                LABELS_REF => {
                    let start = series.at();
                    series.varint()?;
                    self.gather(refs.clone(), start..series.at(), scattered)?;
                    scattered = true;
                }
                other => series.skip_unknown(other, &[1, 2, 3, 4, 5])?,
            }
        }
        Ok(Content { refs, scattered, histograms, exemplars, metadata })
    }

    /// Adds a piece to the references of a series; those `before` are the first piece where none is
    /// gathered yet. A piece holds whole references, and none reaches into the next.
    #[cold]
    fn gather(&mut self, before: Range<usize>, piece: Range<usize>, begun: bool) -> Result<(), DecodeError> {
        if !begun {
            self.gathered.clear();
            self.gather(0..0, before, true)?;
        }
        let mut refs = Reader::within(self.body, piece.clone());
        while !refs.is_empty() {
            refs.varint()?;
        }
        self.purse.extend(self.gathered, &self.body[piece])?;
        Ok(())
    }

    /// Puts the series' labels into the arena and keeps its metadata.
    #[inline(always)]
    fn keep(&mut self, content: &Content, samples: usize) -> Result<(), Stop> {
        if samples == 0 && content.histograms == 0 && content.exemplars == 0 {
            return Err(Stop::Series(SeriesError::NoSamples));
        }
        let arena = &mut self.batch.bytes;
        self.purse.room(arena, SERIES_ROOM_BYTES)?;
        if content.scattered {
            self.last.put_labels_once(Reader::new(self.gathered), self.symbols, arena)?;
        } else {
            let refs = Reader::within(self.body, content.refs.clone());
            self.last.put_labels(refs, self.symbols, arena)?;
        }
        if arena.len() > REBUILT_BYTES_MAX {
            let error = DecodeError::TooMany { what: "bytes of labels", limit: REBUILT_BYTES_MAX };
            return Err(Stop::Request(error));
        }
        if content.metadata == MetadataRefs::default() {
            return Ok(());
        }
        match self.metric_symbol(content)? {
            // nearly always: all series of a metric say the same of it
            Some(metric) if self.metadata_kept.get(metric as usize) == Some(&Some(content.metadata)) => {
                Ok(())
            }
            metric => self.keep_metadata(metric, content.metadata),
        }
    }

    fn refs_of(&self, content: &Content) -> Reader<'_> {
        match content.scattered {
            true => Reader::new(self.gathered),
            false => Reader::within(self.body, content.refs.clone()),
        }
    }

    /// Puts the first labels of a refused series into the arena, for the message about it: as label bytes, each
    /// name and value cut to a little more than is shown. Where they lie; nowhere if there is nothing to show.
    #[cold]
    fn put_shown(&mut self, content: &Content) -> Result<Range<u32>, DecodeError> {
        let start = self.batch.bytes.len();
        if self.batch.refused.len() < Batch::REFUSED_KEPT_MAX {
            let mut shown = Vec::new();
            let mut refs = self.refs_of(content);
            for _ in 0..LABELS_SHOWN_MAX {
                let (Ok(name), Ok(value)) = (read_ref(&mut refs), read_ref(&mut refs)) else { break };
                let (Some(name), Some(value)) = (self.symbols.get(name), self.symbols.get(value)) else {
                    break;
                };
                let cut = |text: &[u8]| text.len().min(LABEL_SHOWN_BYTES_MAX + 1);
                put_label(&mut shown, &name[..cut(name)], &value[..cut(value)]);
            }
            self.purse.extend(&mut self.batch.bytes, &shown)?;
        }
        Ok(start as u32..self.batch.bytes.len() as u32)
    }

    /// The symbol that is the metric's name, of references that are known to be good.
    fn metric_symbol(&mut self, content: &Content) -> Result<Option<u32>, WireError> {
        let mut refs = self.refs_of(content);
        let (mut name_symbol, mut metric) = (self.name_symbol, None);
        while !refs.is_empty() {
            let (name, value) = (read_ref(&mut refs)?, read_ref(&mut refs)?);
            let is_name = |name| self.symbols.get(name).is_some_and(|text| text == METRIC_NAME.as_bytes());
            if name_symbol == Some(name) || is_name(name) {
                (name_symbol, metric) = (Some(name), Some(value));
                break;
            }
        }
        self.name_symbol = name_symbol;
        Ok(metric)
    }

    /// Keeps the metadata of a metric.
    #[cold]
    fn keep_metadata(&mut self, metric: Option<u32>, metadata: MetadataRefs) -> Result<(), Stop> {
        let help = self.symbols.text(metadata.help)?;
        let unit = self.symbols.text(metadata.unit)?;
        let Some(metric) = metric else { return Ok(()) };
        if self.metadata_kept.is_empty() {
            self.purse.room(self.metadata_kept, self.symbols.len())?;
            self.metadata_kept.resize(self.symbols.len(), None);
        }
        let kept = &mut self.metadata_kept[metric as usize];
        if *kept != Some(metadata) {
            *kept = Some(metadata);
            let name = metadata::family(self.symbols.text(metric)?, metadata.kind);
            // the parts of a histogram come one after the other
            if self.family_kept != Some((name, metadata)) {
                self.family_kept = Some((name, metadata));
                metadata::push(self.batch, self.purse, metadata.kind, name, help, unit)?;
            }
        }
        Ok(())
    }

    /// Keeps an exemplar for the series that is being read.
    #[cold]
    fn exemplar(&mut self, mut exemplar: Reader<'_>) -> Result<(), DecodeError> {
        sample::check_extras(self.batch.exemplars.len(), "exemplars")?;
        let (mut timestamp_ms, mut value) = (0, 0.0);
        let mut labels = SymbolLabels::new(ExemplarLabels::new(self.builder), self.symbols);
        while let Some(tag) = exemplar.tag()? {
            match tag {
                LABELS_REFS => {
                    let mut packed = exemplar.message()?;
                    while !packed.is_empty() {
                        labels.push(read_ref(&mut packed)?);
                    }
                }
                LABELS_REF => labels.push(read_ref(&mut exemplar)?),
                EXEMPLAR_VALUE => value = exemplar.double()?,
                EXEMPLAR_TIMESTAMP => timestamp_ms = exemplar.varint()? as i64,
                other => exemplar.skip_unknown(other, &[1, 2, 3])?,
            }
        }
        labels.finish().keep(timestamp_ms, value, self.batch, self.purse)
    }
}

impl MetadataRefs {
    /// Merged with what a message says, as protobuf demands where a field comes twice.
    #[inline(always)]
    fn read(mut self, mut metadata: Reader<'_>) -> Result<Self, WireError> {
        while let Some(tag) = metadata.tag()? {
            match tag {
                METADATA_KIND => self.kind = MetricKind::from_wire(metadata.varint()?),
                METADATA_HELP => self.help = read_ref(&mut metadata)?,
                METADATA_UNIT => self.unit = read_ref(&mut metadata)?,
                other => metadata.skip_unknown(other, &[1, 3, 4])?,
            }
        }
        Ok(self)
    }
}

/// Labels of an exemplar, one reference after the other.
struct SymbolLabels<'a, 's> {
    labels: ExemplarLabels<'a>,
    symbols: Symbols<'s>,
    /// A name whose value is still to come.
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
            self.labels.fail(SeriesError::OddLabelRefs(self.count));
        }
        self.labels
    }
}

/// Why a series cannot be kept: for itself, or because the request cannot be read.
enum Stop {
    Series(SeriesError),
    Request(DecodeError),
}

impl From<SeriesError> for Stop {
    fn from(error: SeriesError) -> Self {
        Self::Series(error)
    }
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Self::Request(error)
    }
}

impl From<Exhausted> for Stop {
    fn from(full: Exhausted) -> Self {
        Self::Request(full.into())
    }
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Request(error.into())
    }
}
