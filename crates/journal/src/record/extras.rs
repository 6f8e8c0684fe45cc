//! Encodes and decodes metadata and exemplars, uncompressed.
//!
//! ```text
//!   metadata   = varint(n)  n × { u8 kind  text metric  text help  text unit }
//!   exemplars  = varint(n)  n × { varint(reference)  zigzag(timestamp)  8 bytes value
//!                                 varint(labels)  labels × { text name  text value } }
//!   text       = varint(length)  UTF-8
//! ```

use super::wire::{Cursor, put_text};
use super::{DecodeMemory, RecordError};
use model::caps::{REQUEST_EXTRAS_MAX, SERIES_LABELS_MAX};
use model::{Exemplar, LabelsBuilder, Metadata, MetricKind, SeriesRef};
use stdx::varint::{self, unzigzag, zigzag};

pub(super) fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    out.push(metadata.kind as u8);
    for text in [&metadata.metric, &metadata.help, &metadata.unit] {
        put_text(out, text);
    }
}

pub(super) fn put_exemplar(out: &mut Vec<u8>, series: SeriesRef, exemplar: &Exemplar) {
    varint::put(out, series.0.into());
    varint::put(out, zigzag(exemplar.timestamp_ms));
    out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
    varint::put(out, exemplar.labels.iter().count() as u64);
    for (name, value) in exemplar.labels.iter() {
        put_text(out, name);
        put_text(out, value);
    }
}

pub(super) fn metadata(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<Metadata>,
    memory: &mut dyn DecodeMemory,
) -> Result<(), RecordError> {
    into.clear();
    let count = cursor.count(REQUEST_EXTRAS_MAX)?;
    if count > 0 {
        memory.reserve_for(into, count)?;
        memory.try_reserve(cursor.rest.len())?;
        into.reserve_exact(count);
    }
    for _ in 0..count {
        let kind = MetricKind::from_wire(cursor.byte()?.into());
        let mut text = || cursor.text().map(str::to_owned);
        into.push(Metadata { kind, metric: text()?, help: text()?, unit: text()? });
    }
    Ok(())
}

pub(super) fn skip_metadata(cursor: &mut Cursor<'_>) -> Result<(), RecordError> {
    for _ in 0..cursor.count(REQUEST_EXTRAS_MAX)? {
        cursor.byte()?;
        for _ in 0..3 {
            cursor.text()?;
        }
    }
    Ok(())
}

pub(super) fn exemplars(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<(SeriesRef, Exemplar)>,
    memory: &mut dyn DecodeMemory,
) -> Result<(), RecordError> {
    into.clear();
    let mut labels = LabelsBuilder::new();
    let count = cursor.count(REQUEST_EXTRAS_MAX)?;
    if count > 0 {
        // a label takes a few more bytes in memory than in the record
        memory.reserve_for(into, count)?;
        memory.try_reserve(cursor.rest.len().saturating_mul(4))?;
        into.reserve_exact(count);
    }
    for _ in 0..count {
        let series = exemplar_ref(cursor)?;
        let timestamp_ms = unzigzag(cursor.varint()?);
        let value = cursor.f64_bits()?;
        labels.clear();
        for _ in 0..cursor.count(SERIES_LABELS_MAX)? {
            labels.push(cursor.text()?, cursor.text()?);
        }
        let labels = labels.build().map_err(|_| RecordError::Malformed("invalid exemplar labels"))?;
        into.push((series, Exemplar { labels, timestamp_ms, value }));
    }
    Ok(())
}

pub(super) fn exemplar_refs(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<SeriesRef>,
    memory: &mut dyn DecodeMemory,
) -> Result<(), RecordError> {
    into.clear();
    let count = cursor.count(REQUEST_EXTRAS_MAX)?;
    memory.reserve_for(into, count)?;
    into.reserve_exact(count);
    for _ in 0..count {
        into.push(exemplar_ref(cursor)?);
        cursor.varint()?;
        cursor.f64_bits()?;
        for _ in 0..cursor.count(SERIES_LABELS_MAX)? {
            cursor.text()?;
            cursor.text()?;
        }
    }
    Ok(())
}

fn exemplar_ref(cursor: &mut Cursor<'_>) -> Result<SeriesRef, RecordError> {
    super::series_ref(i64::try_from(cursor.varint()?).unwrap_or(-1))
}
