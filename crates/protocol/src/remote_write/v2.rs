//! `io.prometheus.write.v2.Request`.
//!
//! ```text
//!   Request        4 symbols*   5 TimeSeries*
//!   TimeSeries     1 labels_refs*   2 Sample*   3 Histogram*   4 Exemplar*   5 Metadata
//! ```
//!
//! Labels come as references into the request's table of symbols. Each series' label bytes are rebuilt
//! from it in canonical layout, in the order sent, into the batch's arena, and hashed there; so a series
//! has the same key in both versions.
//!
//! Where the specification leaves a choice, this follows Prometheus' receiver, with one exception: a
//! series with nothing but exemplars is taken, because Prometheus' own sender makes them.

use super::v1::{ExemplarLabels, push_metadata};
use super::{DecodeError, Decoder, sample, snappy};
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::caps::{BODY_BYTES_MAX, REQUEST_SYMBOLS_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{Batch, BatchSeries, Exemplar, Labels, LabelsBuilder, MetricKind, SeriesError, SeriesKey};

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

/// All rebuilt labels of a request together. References make labels cheap to send and dear to hold: one
/// of two bytes can stand for 16 KiB.
const LABELS_BYTES_MAX: usize = BODY_BYTES_MAX;

const _: () = assert!(LABELS_BYTES_MAX + SERIES_LABEL_BYTES_MAX < u32::MAX as usize);

/// Working memory of the 2.0 decoder.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    /// The references of the series that is being read, and of an exemplar of it.
    refs: Refs,
    exemplar_refs: Refs,
    /// By the symbol of the metric's name: the metadata kept last for it.
    metadata: Vec<Option<MetadataRefs>>,
}

/// References as sent, of which no more are kept than a series may have.
#[derive(Debug, Default)]
struct Refs {
    kept: Vec<u32>,
    count: usize,
}

/// Where a symbol lies in the body.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
}

/// A series' Metadata message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MetadataRefs {
    kind: u64,
    help: u32,
    unit: u32,
}

impl Refs {
    fn clear(&mut self) {
        self.kept.clear();
        self.count = 0;
    }

    #[inline(always)]
    fn push(&mut self, reference: u32) {
        self.count += 1;
        if self.kept.len() < 2 * SERIES_LABELS_MAX {
            self.kept.push(reference);
        }
    }

    fn read_packed(&mut self, mut packed: Reader<'_>) -> Result<(), WireError> {
        while !packed.is_empty() {
            self.push(read_ref(&mut packed)?);
        }
        Ok(())
    }

    /// Name and value of each label.
    fn pairs(&self) -> Result<impl Iterator<Item = (u32, u32)>, SeriesError> {
        if !self.count.is_multiple_of(2) {
            return Err(SeriesError::OddLabelRefs(self.count));
        }
        if self.count > 2 * SERIES_LABELS_MAX {
            return Err(SeriesError::TooManyLabels(self.count / 2));
        }
        Ok(self.kept.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }
}

impl Scratch {
    pub(super) fn memory_bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>()
            + (self.refs.kept.capacity() + self.exemplar_refs.kept.capacity()) * size_of::<u32>()
            + self.metadata.capacity() * size_of::<Option<MetadataRefs>>()
    }
}

pub(super) fn decode(decoder: &mut Decoder, body: &[u8], batch: &mut Batch) -> Result<(), DecodeError> {
    snappy::decompress(body, &mut decoder.body)?;
    batch.bytes.clear();
    let scratch = &mut decoder.v2;
    scratch.metadata.clear();
    read_symbols(&decoder.body, &mut scratch.symbols)?;
    let mut walk = Walk {
        seed: decoder.seed,
        symbols: Symbols { body: &decoder.body, table: &scratch.symbols },
        refs: &mut scratch.refs,
        exemplar_refs: &mut scratch.exemplar_refs,
        metadata_kept: &mut scratch.metadata,
        builder: &mut decoder.labels,
        batch,
    };
    walk.request()
}

/// The table of symbols; a pass of its own, because protobuf does not promise that it comes first.
fn read_symbols(body: &[u8], table: &mut Vec<Symbol>) -> Result<(), DecodeError> {
    table.clear();
    let mut request = Reader::new(body);
    while let Some(tag) = request.tag()? {
        if tag != SYMBOLS {
            request.skip(tag)?;
            continue;
        }
        let symbol = request.len_field()?;
        if table.is_empty() && !symbol.is_empty() {
            return Err(DecodeError::FirstSymbol(symbol.len()));
        }
        if table.len() >= REQUEST_SYMBOLS_MAX {
            return Err(DecodeError::TooMany { what: "symbols", limit: REQUEST_SYMBOLS_MAX });
        }
        let len = symbol.len() as u32;
        table.push(Symbol { start: request.at() as u32 - len, len });
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Symbols<'a> {
    body: &'a [u8],
    table: &'a [Symbol],
}

impl<'a> Symbols<'a> {
    #[inline]
    fn get(&self, reference: u32) -> Result<&'a [u8], SeriesError> {
        match self.table.get(reference as usize) {
            Some(s) => Ok(&self.body[s.start as usize..(s.start + s.len) as usize]),
            None => Err(SeriesError::SymbolOutOfRange(reference, self.table.len())),
        }
    }
}

struct Walk<'a> {
    seed: u64,
    symbols: Symbols<'a>,
    refs: &'a mut Refs,
    exemplar_refs: &'a mut Refs,
    metadata_kept: &'a mut Vec<Option<MetadataRefs>>,
    builder: &'a mut LabelsBuilder,
    batch: &'a mut Batch,
}

/// What one TimeSeries message holds beside its references, which are in `Walk::refs`.
#[derive(Default)]
struct Content {
    histograms: usize,
    exemplars: usize,
    metadata: MetadataRefs,
}

impl Walk<'_> {
    fn request(&mut self) -> Result<(), DecodeError> {
        let mut request = Reader::new(self.symbols.body);
        let mut series_seen = 0;
        while let Some(tag) = request.tag()? {
            match tag {
                TIMESERIES => {
                    sample::count_series(&mut series_seen)?;
                    self.series(request.message()?)?;
                }
                SYMBOLS => _ = request.len_field()?,
                other => request.skip_unknown(other, &[4, 5])?,
            }
        }
        Ok(())
    }

    fn series(&mut self, series: Reader<'_>) -> Result<(), DecodeError> {
        let first_sample = self.batch.timestamps.len();
        let first_exemplar = self.batch.exemplars.len();
        let content = self.read_series(series)?;
        let samples = first_sample as u32..self.batch.timestamps.len() as u32;
        let labels_start = self.batch.bytes.len();
        let kept = match self.check_content(&content, samples.len()) {
            Ok(()) => self.put_labels(),
            Err(e) => Err(e),
        };
        self.batch.refused_histograms += content.histograms as u64;
        if let Err(error) = kept {
            self.batch.refused_exemplars += (self.batch.exemplars.len() - first_exemplar) as u64;
            self.batch.exemplars.truncate(first_exemplar);
            self.batch.timestamps.truncate(first_sample);
            self.batch.values.truncate(first_sample);
            self.batch.bytes.truncate(labels_start);
            self.batch.refuse(error, 0..0, samples.len());
            return Ok(());
        }
        if self.batch.bytes.len() > LABELS_BYTES_MAX {
            return Err(DecodeError::TooMany { what: "bytes of labels", limit: LABELS_BYTES_MAX });
        }
        let labels = labels_start as u32..self.batch.bytes.len() as u32;
        if content.histograms > 0 {
            let error = SeriesError::NativeHistograms(content.histograms);
            self.batch.refuse(error, labels.clone(), 0);
        }
        self.keep_metadata(content.metadata)?;
        if !samples.is_empty() || self.batch.exemplars.len() > first_exemplar {
            let key = SeriesKey::of(&self.batch.bytes[labels_start..], self.seed);
            self.batch.series.push(BatchSeries { key, labels, samples });
        }
        Ok(())
    }

    /// Reads a TimeSeries message: its samples and exemplars into the batch, its references into `refs`.
    fn read_series(&mut self, mut series: Reader<'_>) -> Result<Content, DecodeError> {
        let mut content = Content::default();
        self.refs.clear();
        while let Some(tag) = series.tag()? {
            match tag {
                LABELS_REFS => self.refs.read_packed(series.message()?)?,
                SAMPLE => sample::push(series.message()?, self.batch)?,
                METADATA => content.metadata.read(series.message()?)?,
                HISTOGRAM => {
                    content.histograms += 1;
                    series.len_field()?;
                }
                EXEMPLAR => {
                    content.exemplars += 1;
                    self.exemplar(series.message()?)?;
                }
                LABELS_REF => self.refs.push(read_ref(&mut series)?),
                other => series.skip_unknown(other, &[1, 2, 3, 4, 5])?,
            }
        }
        Ok(content)
    }

    fn check_content(&self, content: &Content, samples: usize) -> Result<(), SeriesError> {
        if samples == 0 && content.histograms == 0 && content.exemplars == 0 {
            return Err(SeriesError::NoSamples);
        }
        self.symbols.get_text(content.metadata.help)?;
        self.symbols.get_text(content.metadata.unit)?;
        Ok(())
    }

    /// Rebuilds the series' label bytes at the end of the arena.
    fn put_labels(&mut self) -> Result<(), SeriesError> {
        let mut total = 0;
        for (name, value) in self.refs.pairs()? {
            total += self.symbols.get(name)?.len() + self.symbols.get(value)?.len();
        }
        if total > SERIES_LABEL_BYTES_MAX {
            return Err(SeriesError::LabelsTooLong(total));
        }
        for (name, value) in self.refs.pairs()? {
            put_label(&mut self.batch.bytes, self.symbols.get(name)?, self.symbols.get(value)?);
        }
        Ok(())
    }

    /// Keeps an exemplar for the series that is being read; one with bad labels is only counted.
    #[cold]
    fn exemplar(&mut self, mut exemplar: Reader<'_>) -> Result<(), DecodeError> {
        sample::check_extras(self.batch.exemplars.len(), "exemplars")?;
        let (mut timestamp_ms, mut value) = (0, 0.0);
        self.exemplar_refs.clear();
        while let Some(tag) = exemplar.tag()? {
            match tag {
                LABELS_REFS => self.exemplar_refs.read_packed(exemplar.message()?)?,
                LABELS_REF => self.exemplar_refs.push(read_ref(&mut exemplar)?),
                EXEMPLAR_VALUE => value = exemplar.double()?,
                EXEMPLAR_TIMESTAMP => timestamp_ms = exemplar.varint()? as i64,
                other => exemplar.skip_unknown(other, &[1, 2, 3])?,
            }
        }
        match exemplar_labels(self.symbols, self.exemplar_refs, self.builder) {
            Ok(labels) => {
                let series = self.batch.series.len() as u32;
                self.batch.exemplars.push((series, Exemplar { labels, timestamp_ms, value }));
            }
            Err(_) => self.batch.refused_exemplars += 1,
        }
        Ok(())
    }

    /// Keeps the metadata of the metric that the references name, unless it is the same as before.
    fn keep_metadata(&mut self, metadata: MetadataRefs) -> Result<(), DecodeError> {
        if metadata == MetadataRefs::default() {
            return Ok(());
        }
        let symbols = self.symbols;
        let is_name = |name| symbols.get(name).is_ok_and(|n| n == METRIC_NAME.as_bytes());
        let named = self.refs.pairs().ok().and_then(|mut pairs| pairs.find(|(name, _)| is_name(*name)));
        let Some((_, metric)) = named else { return Ok(()) };
        if self.metadata_kept.is_empty() {
            self.metadata_kept.resize(symbols.table.len(), None);
        }
        let kept = &mut self.metadata_kept[metric as usize];
        if *kept == Some(metadata) {
            return Ok(());
        }
        *kept = Some(metadata);
        sample::check_extras(self.batch.metadata.len(), "metadata entries")?;
        let kind = MetricKind::from_wire(metadata.kind);
        let text = |reference| symbols.get_text(reference).unwrap_or_default();
        push_metadata(self.batch, kind, text(metric), text(metadata.help), text(metadata.unit));
        Ok(())
    }
}

impl<'a> Symbols<'a> {
    /// As [`Self::get`], but 0 means "none" even where there is no table.
    fn get_text(&self, reference: u32) -> Result<&'a [u8], SeriesError> {
        if reference == 0 { Ok(&[]) } else { self.get(reference) }
    }
}

fn exemplar_labels(
    symbols: Symbols<'_>,
    refs: &Refs,
    builder: &mut LabelsBuilder,
) -> Result<Labels, SeriesError> {
    let mut labels = ExemplarLabels::new(builder);
    for (name, value) in refs.pairs()? {
        labels.push(symbols.get(name)?, symbols.get(value)?);
    }
    labels.finish()
}

/// A reference; one of more than 32 bits is cut to them, as protobuf demands of a `uint32`.
#[inline(always)]
fn read_ref(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    Ok(reader.varint()? as u32)
}

impl MetadataRefs {
    fn read(&mut self, mut metadata: Reader<'_>) -> Result<(), WireError> {
        while let Some(tag) = metadata.tag()? {
            match tag {
                METADATA_KIND => self.kind = metadata.varint()?,
                METADATA_HELP => self.help = read_ref(&mut metadata)?,
                METADATA_UNIT => self.unit = read_ref(&mut metadata)?,
                other => metadata.skip_unknown(other, &[1, 3, 4])?,
            }
        }
        Ok(())
    }
}
