//! Decodes `io.prometheus.write.v2.Request`.
//!
//! ```text
//!   Request        4 symbols*   5 TimeSeries*
//!   TimeSeries     1 labels_refs*   2 Sample*   3 Histogram*   4 Exemplar*   5 Metadata
//! ```
//!
//! A series refers to its labels by their positions in a symbol table. [`rebuild`] looks them up and writes
//! the label bytes into the batch. It uses the canonical layout and the order in which the labels were sent,
//! so that a series has the same key in both versions.
//!
//! Where the specification leaves a choice, this module behaves like Prometheus' receiver. There is one
//! exception: series that have only exemplars are accepted, because Prometheus sends them.

mod exemplar;
mod metadata;
mod rebuild;
mod symbols;

use super::{Decoder, Seen, Version, sample};
use crate::DecodeError;
use crate::labels::{LABEL_SHOWN_BYTES_MAX, LABELS_SHOWN_MAX};
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use metadata::{KeptMetadata, MetadataRefs};
use model::caps::SERIES_LABEL_BYTES_MAX;
use model::labels::put_label;
use model::{Batch, BatchSeries, LabelsBuilder, SeriesHasher, SeriesRefusal};
use rebuild::{LastSeries, REBUILT_BYTES_MAX};
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};
use symbols::{Symbol, Symbols, read_ref};

const SYMBOLS: Tag = tag(4, WireType::Len);
const TIMESERIES: Tag = tag(5, WireType::Len);

const LABELS_REFS: Tag = tag(1, WireType::Len);
const LABELS_REF: Tag = tag(1, WireType::Varint);
const SAMPLE: Tag = tag(2, WireType::Len);
const HISTOGRAM: Tag = tag(3, WireType::Len);
const EXEMPLAR: Tag = tag(4, WireType::Len);
const METADATA: Tag = tag(5, WireType::Len);

#[derive(Debug, Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    rebuild: rebuild::Scratch,
    /// The label references of a series that sent them in more than one field.
    gathered: Vec<u8>,
    metadata: metadata::Scratch,
}

impl Scratch {
    pub(super) fn memory_bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>()
            + self.rebuild.memory_bytes()
            + self.gathered.capacity()
            + self.metadata.memory_bytes()
    }
}

pub(super) fn decode(
    decoder: &mut Decoder,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    if walk(decoder, batch, reservation, false)? == SymbolsPosition::Late {
        batch.clear();
        walk(decoder, batch, reservation, true)?;
    }
    Ok(())
}

/// Room that is reserved before a series' labels are rebuilt. The labels shared with the previous series and
/// the remaining labels may each be as long as the labels of a valid series.
const SERIES_ROOM_BYTES: usize = 2 * SERIES_LABEL_BYTES_MAX + 64;

/// Whether the symbols come before the series, as senders write them.
#[derive(PartialEq, Eq)]
enum SymbolsPosition {
    First,
    Late,
}

/// Reads the series of the request. If symbols are found after a series, the result is
/// [`SymbolsPosition::Late`], and the caller starts again with `everywhere`. The symbols of the whole body
/// are then collected first.
fn walk(
    decoder: &mut Decoder,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
    everywhere: bool,
) -> Result<SymbolsPosition, DecodeError> {
    let scratch = &mut decoder.v2;
    let (symbols, fields) = Symbols::read(&decoder.body, everywhere, &mut scratch.symbols, reservation)?;
    scratch.rebuild.prepare(symbols.len(), reservation)?;
    let mut walk = Walk {
        hasher: &decoder.hasher,
        body: &decoder.body,
        symbols,
        last: LastSeries::new(&mut scratch.rebuild),
        gathered: &mut scratch.gathered,
        metadata: KeptMetadata::new(&mut scratch.metadata),
        builder: &mut decoder.labels,
        batch,
        reservation,
    };
    walk.request(fields, everywhere)
}

struct Walk<'a, 'p> {
    hasher: &'a SeriesHasher,
    body: &'a [u8],
    symbols: Symbols<'a>,
    last: LastSeries<'a>,
    gathered: &'a mut Vec<u8>,
    metadata: KeptMetadata<'a>,
    builder: &'a mut LabelsBuilder,
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
}

/// A TimeSeries message, without the samples and exemplars, which are already in the batch.
struct Content {
    /// The range of the body that contains the series' label references in packed form. References to names
    /// and to values alternate.
    refs: Range<usize>,
    /// True if the references were in more than one field. They were then copied to `Walk::gathered`.
    scattered: bool,
    histograms: usize,
    exemplars: usize,
    metadata: MetadataRefs,
}

impl Content {
    #[inline(always)]
    fn refs<'b>(&self, body: &'b [u8], gathered: &'b [u8]) -> Reader<'b> {
        match self.scattered {
            true => Reader::new(gathered),
            false => Reader::within(body, self.refs.clone()),
        }
    }
}

impl<'a> Walk<'a, '_> {
    fn request(&mut self, mut fields: Reader<'a>, everywhere: bool) -> Result<SymbolsPosition, DecodeError> {
        let mut series_seen = 0;
        let mut seen = Seen { known: self.symbols.len() > 0, unknown: false };
        while let Some(tag) = fields.tag()? {
            match tag {
                TIMESERIES => {
                    sample::count_series(&mut series_seen)?;
                    self.series(fields.message()?)?;
                }
                SYMBOLS if everywhere => _ = fields.len_field()?,
                SYMBOLS => return Ok(SymbolsPosition::Late),
                other => {
                    seen.unknown = true;
                    fields.skip_unknown(other, &[4, 5])?;
                }
            }
        }
        seen.known |= series_seen > 0;
        seen.check(Version::V2)?;
        Ok(SymbolsPosition::First)
    }

    #[inline(always)]
    fn series(&mut self, series: Reader<'a>) -> Result<(), DecodeError> {
        let first_sample = self.batch.floats.timestamps.len();
        let first_exemplar = self.batch.floats.exemplars.len();
        let labels_start = self.batch.bytes.len();
        let content = self.read_series(series)?;
        let samples = first_sample as u32..self.batch.floats.timestamps.len() as u32;
        self.batch.refused_histograms += content.histograms as u64;
        if let Err(stop) = self.keep(&content, samples.len()) {
            let error = match stop {
                Stop::Series(error) => error,
                Stop::Request(error) => return Err(error),
            };
            self.batch.refused_exemplars += (self.batch.floats.exemplars.len() - first_exemplar) as u64;
            self.batch.floats.exemplars.truncate(first_exemplar);
            self.batch.floats.timestamps.truncate(first_sample);
            self.batch.floats.values.truncate(first_sample);
            self.batch.bytes.truncate(labels_start);
            // the next series must not be compared with labels that were just removed from the batch
            self.last.forget();
            let labels = self.put_shown(&content)?;
            self.batch.refuse(error, labels, samples.len());
            return Ok(());
        }
        let labels = labels_start as u32..self.batch.bytes.len() as u32;
        if content.histograms > 0 {
            let error = SeriesRefusal::NativeHistograms(content.histograms);
            self.batch.refuse(error, labels.clone(), 0);
        }
        if !samples.is_empty() || self.batch.floats.exemplars.len() > first_exemplar {
            let key = self.hasher.key(&self.batch.bytes[labels_start..]);
            self.reservation.push(&mut self.batch.floats.series, BatchSeries { key, labels, samples })?;
        }
        Ok(())
    }

    /// Reads a TimeSeries message. Its samples and exemplars are added to the batch, everything else is
    /// returned.
    #[inline(always)]
    fn read_series(&mut self, mut series: Reader<'a>) -> Result<Content, DecodeError> {
        // a range fits into two registers, but a reader would be copied in memory
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
                SAMPLE => sample::push(series.message()?, self.batch, self.reservation)?,
                METADATA => metadata = metadata.read(series.message()?)?,
                HISTOGRAM => {
                    histograms += 1;
                    series.len_field()?;
                }
                EXEMPLAR => {
                    exemplars += 1;
                    exemplar::read(
                        series.message()?,
                        self.symbols,
                        self.builder,
                        self.batch,
                        self.reservation,
                    )?;
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

    /// Collects the references of a series that has them in more than one field. `piece` is the range of
    /// another such field in the body. On the first call for a series, `begun` is false, and `before` is the
    /// range of its first field. Each field must contain whole references.
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
        self.reservation.extend(self.gathered, &self.body[piece])?;
        Ok(())
    }

    #[inline(always)]
    fn keep(&mut self, content: &Content, samples: usize) -> Result<(), Stop> {
        if samples == 0 && content.histograms == 0 && content.exemplars == 0 {
            return Err(Stop::Series(SeriesRefusal::NoSamples));
        }
        let arena = &mut self.batch.bytes;
        self.reservation.room(arena, SERIES_ROOM_BYTES)?;
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
        let refs = content.refs(self.body, self.gathered);
        self.metadata.keep(refs, content.metadata, self.symbols, self.batch, self.reservation)
    }

    /// Appends the labels of a refused series to the batch, to be shown in the error message. There are
    /// limits on their number and length. A long text keeps one byte more than is shown, so that the message
    /// marks it as cut. Returns the range of the labels.
    #[cold]
    fn put_shown(&mut self, content: &Content) -> Result<Range<u32>, DecodeError> {
        let start = self.batch.bytes.len();
        if self.batch.refused.len() < Batch::REFUSED_KEPT_MAX {
            let mut shown = Vec::new();
            let mut refs = content.refs(self.body, self.gathered);
            for _ in 0..LABELS_SHOWN_MAX {
                let (Ok(name), Ok(value)) = (read_ref(&mut refs), read_ref(&mut refs)) else { break };
                let (Some(name), Some(value)) = (self.symbols.get(name), self.symbols.get(value)) else {
                    break;
                };
                let cut = |text: &[u8]| text.len().min(LABEL_SHOWN_BYTES_MAX + 1);
                put_label(&mut shown, &name[..cut(name)], &value[..cut(value)]);
            }
            self.reservation.extend(&mut self.batch.bytes, &shown)?;
        }
        Ok(start as u32..self.batch.bytes.len() as u32)
    }
}

/// An error that concerns either only the series or the whole request.
enum Stop {
    Series(SeriesRefusal),
    Request(DecodeError),
}

impl From<SeriesRefusal> for Stop {
    fn from(error: SeriesRefusal) -> Self {
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
