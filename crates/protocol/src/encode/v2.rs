//! Encodes `io.prometheus.write.v2.Request` (see `remote_write/v2.rs`).

use super::put::{double, double_len, field_len, message, number, number_len};
use super::{BlockCompressor, Extras};
use hashbrown::{DefaultHashBuilder, HashTable};
use model::{Exemplar, Labels, LabelsRef, Metadata};
use std::hash::BuildHasher;
use std::ops::Range;
use stdx::varint;

#[derive(Debug)]
pub struct V2Encoder {
    symbols: SymbolTable,
    series_fields: Vec<u8>,
    /// The label references of the current series and its exemplars, in packed form.
    refs: Vec<u8>,
    compressor: BlockCompressor,
}

impl Default for V2Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl V2Encoder {
    pub fn new() -> Self {
        Self {
            symbols: SymbolTable::new(),
            series_fields: Vec::new(),
            refs: Vec::new(),
            compressor: BlockCompressor::default(),
        }
    }

    /// Adds a series. Panics if there are not as many timestamps as values.
    pub fn series(&mut self, labels: LabelsRef<'_>, timestamps: &[i64], values: &[f64]) {
        self.series_with(labels, timestamps, values, Extras::default());
    }

    pub fn series_with(
        &mut self,
        labels: LabelsRef<'_>,
        timestamps: &[i64],
        values: &[f64],
        extras: Extras<'_>,
    ) {
        assert_eq!(timestamps.len(), values.len(), "BUG: the numbers of timestamps and values differ");
        let samples = || timestamps.iter().copied().zip(values.iter().copied());
        self.refs.clear();
        let series_refs = self.put_refs(labels);
        let exemplar_refs: Vec<_> = extras.exemplars.iter().map(|e| self.put_refs_of(&e.labels)).collect();
        let metadata = extras.metadata.map(|m| self.metadata_refs(m));
        let exemplars = || extras.exemplars.iter().zip(&exemplar_refs);

        let len = packed_len(&series_refs)
            + samples().map(|(t, v)| field_len(sample_len(t, v, extras.start_ms))).sum::<usize>()
            + exemplars().map(|(e, refs)| field_len(exemplar_len(e, refs))).sum::<usize>()
            + metadata.as_ref().map_or(0, |m| field_len(metadata_len(m)));
        let refs = &self.refs;
        message(&mut self.series_fields, 0x2a, len, |out| {
            put_packed(out, &refs[series_refs]);
            for (t, v) in samples() {
                message(out, 0x12, sample_len(t, v, extras.start_ms), |out| {
                    double(out, 0x09, v);
                    number(out, 0x10, t as u64);
                    number(out, 0x18, extras.start_ms as u64);
                });
            }
            for (e, range) in exemplars() {
                message(out, 0x22, exemplar_len(e, range), |out| {
                    put_packed(out, &refs[range.clone()]);
                    double(out, 0x11, e.value);
                    number(out, 0x18, e.timestamp_ms as u64);
                });
            }
            if let Some([kind, help, unit]) = metadata {
                message(out, 0x2a, metadata_len(&[kind, help, unit]), |out| {
                    number(out, 0x08, kind);
                    number(out, 0x18, help);
                    number(out, 0x20, unit);
                });
            }
        });
    }

    /// Returns the compressed body. The encoder is then empty and can be used for the next request.
    pub fn finish(&mut self) -> &[u8] {
        self.symbols.fields.extend_from_slice(&self.series_fields);
        let body = self.compressor.compress(&self.symbols.fields);
        self.symbols.clear();
        self.series_fields.clear();
        body
    }

    /// Appends the references of `labels` to `refs`, in packed form. Returns their range.
    fn put_refs(&mut self, labels: LabelsRef<'_>) -> Range<usize> {
        let start = self.refs.len();
        for (name, value) in labels.iter() {
            for text in [name, value] {
                let reference = self.symbols.reference(text.as_bytes());
                varint::put(&mut self.refs, u64::from(reference));
            }
        }
        start..self.refs.len()
    }

    fn put_refs_of(&mut self, labels: &Labels) -> Range<usize> {
        self.put_refs(labels.as_ref())
    }

    fn metadata_refs(&mut self, metadata: &Metadata) -> [u64; 3] {
        let mut reference = |text: &str| u64::from(self.symbols.reference(text.as_bytes()));
        [metadata.kind as u64, reference(&metadata.help), reference(&metadata.unit)]
    }
}

const fn packed_len(refs: &Range<usize>) -> usize {
    if refs.start == refs.end { 0 } else { field_len(refs.end - refs.start) }
}

fn put_packed(out: &mut Vec<u8>, refs: &[u8]) {
    if !refs.is_empty() {
        super::put::bytes(out, 0x0a, refs);
    }
}

const fn sample_len(timestamp_ms: i64, value: f64, start_ms: i64) -> usize {
    double_len(value) + number_len(timestamp_ms as u64) + number_len(start_ms as u64)
}

const fn exemplar_len(e: &Exemplar, refs: &Range<usize>) -> usize {
    packed_len(refs) + double_len(e.value) + number_len(e.timestamp_ms as u64)
}

const fn metadata_len(refs: &[u64; 3]) -> usize {
    number_len(refs[0]) + number_len(refs[1]) + number_len(refs[2])
}

#[derive(Debug)]
struct SymbolTable {
    fields: Vec<u8>,
    /// Where the text of each symbol is in `fields`.
    spans: Vec<(u32, u32)>,
    by_text: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl SymbolTable {
    fn new() -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut table = Self { fields: Vec::new(), spans: Vec::new(), by_text: HashTable::new(), hasher };
        table.clear();
        table
    }

    fn clear(&mut self) {
        self.fields.clear();
        self.spans.clear();
        self.by_text.clear();
        assert_eq!(self.reference(b""), 0, "BUG: the first symbol is not the empty string");
    }

    fn reference(&mut self, text: &[u8]) -> u32 {
        let Self { fields, spans, by_text, hasher } = self;
        let at = |r: &u32| {
            let (start, end) = spans[*r as usize];
            &fields[start as usize..end as usize]
        };
        let hash = hasher.hash_one(text);
        if let Some(known) = by_text.find(hash, |r| at(r) == text) {
            return *known;
        }
        let reference = spans.len() as u32;
        by_text.insert_unique(hash, reference, |r| hasher.hash_one(at(r)));
        super::put::bytes(fields, 0x22, text);
        spans.push(((fields.len() - text.len()) as u32, fields.len() as u32));
        reference
    }
}
