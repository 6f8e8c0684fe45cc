//! Decodes `prometheus.WriteRequest`.
//!
//! ```text
//!   WriteRequest   1 TimeSeries*   3 MetricMetadata*
//!   TimeSeries     1 Label*   2 Sample*   3 Exemplar*   4 Histogram*
//! ```
//!
//! The batch uses the decompressed body as its label bytes, without a copy. If a series' labels are sorted,
//! their fields already are the canonical form of [`model::labels`], so they can be hashed in place. Labels
//! that are interrupted by samples are copied to the end of the body.

use super::exemplar::ExemplarLabels;
use super::{Decoder, Seen, Version, metadata, sample};
use crate::DecodeError;
use crate::labels::name_and_value;
use crate::wire::{Reader, RunSteps, Tag, WireType, tag};
use model::{Batch, BatchSeries, LabelsBuilder, MetricKind, SeriesHasher, SeriesKey, SeriesRefusal};
use std::ops::Range;
use stdx::budget::IncrementalReservation;

const TIMESERIES: Tag = tag(1, WireType::Len);
const METADATA: Tag = tag(3, WireType::Len);

const LABEL: Tag = tag(1, WireType::Len);
const SAMPLE: Tag = tag(2, WireType::Len);
const EXEMPLAR: Tag = tag(3, WireType::Len);
const HISTOGRAM: Tag = tag(4, WireType::Len);

const EXEMPLAR_LABEL: Tag = tag(1, WireType::Len);
const EXEMPLAR_VALUE: Tag = tag(2, WireType::Fixed64);
const EXEMPLAR_TIMESTAMP: Tag = tag(3, WireType::Varint);

const METADATA_KIND: Tag = tag(1, WireType::Varint);
const METADATA_NAME: Tag = tag(2, WireType::Len);
const METADATA_HELP: Tag = tag(4, WireType::Len);
const METADATA_UNIT: Tag = tag(5, WireType::Len);

pub(super) fn decode(
    decoder: &mut Decoder,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    decoder.gathered.clear();
    // moved out, so that other fields of the batch can be modified while the bytes are borrowed
    let bytes = std::mem::take(&mut batch.bytes);
    let mut walk = Walk {
        hasher: &decoder.hasher,
        gathered: &mut decoder.gathered,
        builder: &mut decoder.labels,
        body: &bytes,
        label_steps: RunSteps::default(),
        batch,
        reservation: &mut *reservation,
    };
    let walked = walk.request();
    batch.bytes = bytes;
    walked?;
    reservation.extend(&mut batch.bytes, &decoder.gathered)?;
    Ok(())
}

struct Walk<'a, 'p> {
    hasher: &'a SeriesHasher,
    gathered: &'a mut Vec<u8>,
    builder: &'a mut LabelsBuilder,
    body: &'a [u8],
    label_steps: RunSteps,
    batch: &'a mut Batch,
    reservation: &'a mut IncrementalReservation<'p>,
}

impl Walk<'_, '_> {
    fn request(&mut self) -> Result<(), DecodeError> {
        let mut request = Reader::new(self.body);
        let mut series_seen = 0;
        let mut seen = Seen::default();
        while let Some(tag) = request.tag()? {
            match tag {
                TIMESERIES => {
                    sample::count_series(&mut series_seen)?;
                    self.series(request.message()?)?;
                }
                METADATA => {
                    seen.known = true;
                    self.metadata(request.message()?)?;
                }
                other => {
                    seen.unknown = true;
                    request.skip_unknown(other, &[1, 3])?;
                }
            }
        }
        seen.known |= series_seen > 0;
        seen.check(Version::V1)
    }

    fn series(&mut self, mut series: Reader<'_>) -> Result<(), DecodeError> {
        let whole = series;
        let first_sample = self.batch.floats.timestamps.len() as u32;
        let first_exemplar = self.batch.floats.exemplars.len();
        let labels_start = series.at();
        series.skip_run(LABEL as u8, &mut self.label_steps)?;
        let labels = labels_start..series.at();
        let (mut scattered, mut histograms) = (false, 0);
        while let Some(tag) = series.tag()? {
            match tag {
                SAMPLE => sample::push(series.message()?, self.batch, self.reservation)?,
                LABEL => {
                    scattered = true;
                    series.len_field()?;
                }
                EXEMPLAR => self.exemplar(series.message()?)?,
                HISTOGRAM => {
                    histograms += 1;
                    series.len_field()?;
                }
                other => series.skip_unknown(other, &[1, 2, 3, 4])?,
            }
        }
        let samples = first_sample..self.batch.floats.timestamps.len() as u32;
        // There is nothing to store. Some senders announce metadata or new series in this way.
        if samples.is_empty() && histograms == 0 && self.batch.floats.exemplars.len() == first_exemplar {
            return Ok(());
        }
        let (key, labels) = if scattered { self.gather(whole)? } else { self.key(labels) };
        if histograms > 0 {
            self.batch.refused_histograms += histograms as u64;
            self.batch.refuse(SeriesRefusal::NativeHistograms(histograms), labels.clone(), 0);
        }
        if !samples.is_empty() || self.batch.floats.exemplars.len() > first_exemplar {
            self.reservation.push(&mut self.batch.floats.series, BatchSeries { key, labels, samples })?;
        }
        Ok(())
    }

    #[inline(always)]
    fn key(&self, labels: Range<usize>) -> (SeriesKey, Range<u32>) {
        let key = self.hasher.key(&self.body[labels.clone()]);
        (key, labels.start as u32..labels.end as u32)
    }

    /// Copies labels that are interrupted by other fields into one contiguous piece.
    #[cold]
    fn gather(&mut self, mut series: Reader<'_>) -> Result<(SeriesKey, Range<u32>), DecodeError> {
        let start = self.gathered.len();
        loop {
            let field = series.at();
            let Some(tag) = series.tag()? else { break };
            series.skip(tag)?;
            if tag == LABEL {
                self.reservation.extend(self.gathered, &self.body[field..series.at()])?;
            }
        }
        let key = self.hasher.key(&self.gathered[start..]);
        let offset = self.body.len();
        Ok((key, (offset + start) as u32..(offset + self.gathered.len()) as u32))
    }

    #[cold]
    fn exemplar(&mut self, mut exemplar: Reader<'_>) -> Result<(), DecodeError> {
        sample::check_extras(self.batch.floats.exemplars.len(), "exemplars")?;
        let (mut timestamp_ms, mut value) = (0, 0.0);
        let mut labels = ExemplarLabels::new(self.builder);
        while let Some(tag) = exemplar.tag()? {
            match tag {
                EXEMPLAR_LABEL => {
                    let (name, value) = name_and_value(exemplar.message()?)?;
                    labels.push(name, value);
                }
                EXEMPLAR_VALUE => value = exemplar.double()?,
                EXEMPLAR_TIMESTAMP => timestamp_ms = exemplar.varint()? as i64,
                other => exemplar.skip_unknown(other, &[1, 2, 3])?,
            }
        }
        labels.keep(timestamp_ms, value, self.batch, self.reservation)
    }

    #[cold]
    fn metadata(&mut self, mut entry: Reader<'_>) -> Result<(), DecodeError> {
        let (mut kind, mut name, mut help, mut unit) = (0, &[][..], &[][..], &[][..]);
        while let Some(tag) = entry.tag()? {
            match tag {
                METADATA_KIND => kind = entry.varint()?,
                METADATA_NAME => name = entry.len_field()?,
                METADATA_HELP => help = entry.len_field()?,
                METADATA_UNIT => unit = entry.len_field()?,
                other => entry.skip_unknown(other, &[1, 2, 4, 5])?,
            }
        }
        metadata::push(self.batch, self.reservation, MetricKind::from_wire(kind), name, help, unit)
    }
}
