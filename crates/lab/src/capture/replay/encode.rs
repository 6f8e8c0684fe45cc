//! Encodes batches as bodies of remote write, and helps the drivers of other protocols to do so. In remote write, native
//! histograms are copied, because `protocol` does not encode them. Elsewhere they are left out.

use super::COPY_LABEL;
use super::distributor::Batch;
use model::{Labels, LabelsBuilder, LabelsRef};
use std::collections::HashMap;
use stdx::varint;

#[derive(Debug, Default)]
pub(crate) struct Encoder {
    message: Vec<u8>,
    series: Vec<u8>,
    inner: Vec<u8>,
    refs: Vec<u8>,
    builder: LabelsBuilder,
}

impl Encoder {
    pub(super) fn body(&mut self, batch: &Batch) -> Vec<u8> {
        batch.protocol.encode(self, batch)
    }

    /// Remote write 1.0.
    pub(crate) fn v1(&mut self, batch: &Batch) -> Vec<u8> {
        self.message.clear();
        for part in &batch.parts {
            self.series.clear();
            match self.with_copy(&part.labels, batch.copy) {
                Some(labels) => self.series.extend_from_slice(labels.as_bytes()),
                None => self.series.extend_from_slice(&part.labels),
            }
            self.points(&part.samples, &part.histograms, 0x22);
            field(&mut self.message, 0x0a, &self.series);
        }
        self.compressed()
    }

    /// Remote write 2.0.
    pub(crate) fn v2(&mut self, batch: &Batch) -> Vec<u8> {
        self.message.clear();
        let labels: Vec<Option<Labels>> =
            batch.parts.iter().map(|part| self.with_copy(&part.labels, batch.copy)).collect();
        let mut symbols: HashMap<&str, u64> = HashMap::from([("", 0)]);
        field(&mut self.message, 0x22, b"");
        let mut all = Vec::new();
        for (part, copied) in batch.parts.iter().zip(&labels) {
            let labels = copied.as_ref().map_or(LabelsRef::from_canonical(&part.labels), Labels::as_ref);
            self.refs.clear();
            for text in labels.iter().flat_map(|(name, value)| [name, value]) {
                let next = symbols.len() as u64;
                let reference = *symbols.entry(text).or_insert_with(|| {
                    field(&mut self.message, 0x22, text.as_bytes());
                    next
                });
                varint::put(&mut self.refs, reference);
            }
            self.series.clear();
            field(&mut self.series, 0x0a, &self.refs);
            self.points(&part.samples, &part.histograms, 0x1a);
            field(&mut all, 0x2a, &self.series);
        }
        self.message.extend_from_slice(&all);
        self.compressed()
    }

    fn compressed(&self) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(&self.message).expect("BUG: a batch has 4 GiB or more")
    }

    /// Calls `put` with the labels and the samples of each series that has samples other than native histograms.
    pub(crate) fn each(&mut self, batch: &Batch, mut put: impl FnMut(LabelsRef<'_>, &[(i64, u64)])) {
        for part in batch.parts.iter().filter(|part| !part.samples.is_empty()) {
            let copied = self.with_copy(&part.labels, batch.copy);
            let labels = copied.as_ref().map_or(LabelsRef::from_canonical(&part.labels), Labels::as_ref);
            put(labels, &part.samples);
        }
    }

    fn points(&mut self, samples: &[(i64, u64)], histograms: &[(i64, Vec<u8>)], histogram_tag: u8) {
        for &(t, bits) in samples {
            self.inner.clear();
            if bits != 0 {
                self.inner.push(0x09);
                self.inner.extend_from_slice(&bits.to_le_bytes());
            }
            time(&mut self.inner, 0x10, t);
            field(&mut self.series, 0x12, &self.inner);
        }
        for (t, bytes) in histograms {
            self.inner.clear();
            self.inner.extend_from_slice(bytes);
            time(&mut self.inner, 0x78, *t);
            field(&mut self.series, histogram_tag, &self.inner);
        }
    }

    /// Adds [`COPY_LABEL`] to the labels. `None` if there is only one copy, or no further label is allowed.
    fn with_copy(&mut self, labels: &[u8], copy: Option<u32>) -> Option<Labels> {
        let copy = copy?;
        self.builder.clear();
        for (name, value) in LabelsRef::from_canonical(labels).iter().filter(|(name, _)| *name != COPY_LABEL)
        {
            self.builder.push(name, value);
        }
        self.builder.push(COPY_LABEL, &copy.to_string());
        self.builder.build_series().ok()
    }
}

fn time(out: &mut Vec<u8>, tag: u8, t: i64) {
    if t != 0 {
        out.push(tag);
        varint::put(out, t as u64);
    }
}

fn field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
