//! Encodes `prometheus.WriteRequest` (see `remote_write/v1.rs`).

use super::put::{bytes, double, double_len, field_len, message, number, number_len};
use super::{BlockCompressor, Extras};
use model::{Exemplar, LabelsRef, Metadata};

#[derive(Debug, Default)]
pub struct V1Encoder {
    message: Vec<u8>,
    compressor: BlockCompressor,
}

impl V1Encoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a series. Panics if there are not as many timestamps as values.
    pub fn series(&mut self, labels: LabelsRef<'_>, timestamps: &[i64], values: &[f64]) {
        self.series_with(labels, timestamps, values, Extras::default());
    }

    /// Adds a series with its exemplars. Everything else in `extras` is ignored, because version 1.0 has no
    /// fields for it.
    pub fn series_with(
        &mut self,
        labels: LabelsRef<'_>,
        timestamps: &[i64],
        values: &[f64],
        extras: Extras<'_>,
    ) {
        assert_eq!(timestamps.len(), values.len(), "BUG: the numbers of timestamps and values differ");
        let samples = || timestamps.iter().copied().zip(values.iter().copied());
        let len = labels.as_bytes().len()
            + samples().map(|(t, v)| field_len(sample_len(t, v))).sum::<usize>()
            + extras.exemplars.iter().map(|e| field_len(exemplar_len(e))).sum::<usize>();
        message(&mut self.message, 0x0a, len, |out| {
            // canonical label bytes are identical to the encoding of the field `labels`
            out.extend_from_slice(labels.as_bytes());
            for (t, v) in samples() {
                message(out, 0x12, sample_len(t, v), |out| {
                    double(out, 0x09, v);
                    number(out, 0x10, t as u64);
                });
            }
            for e in extras.exemplars {
                message(out, 0x1a, exemplar_len(e), |out| {
                    out.extend_from_slice(e.labels.as_bytes());
                    double(out, 0x11, e.value);
                    number(out, 0x18, e.timestamp_ms as u64);
                });
            }
        });
    }

    pub fn metadata(&mut self, metadata: &Metadata) {
        let texts = [(0x12, &metadata.metric), (0x22, &metadata.help), (0x2a, &metadata.unit)];
        let written = || texts.iter().filter(|(_, text)| !text.is_empty());
        let kind = metadata.kind as u64;
        let len = number_len(kind) + written().map(|(_, text)| field_len(text.len())).sum::<usize>();
        message(&mut self.message, 0x1a, len, |out| {
            number(out, 0x08, kind);
            written().for_each(|(tag, text)| bytes(out, *tag, text.as_bytes()));
        });
    }

    /// Returns the compressed body. The encoder is then empty and can be used for the next request.
    pub fn finish(&mut self) -> &[u8] {
        let body = self.compressor.compress(&self.message);
        self.message.clear();
        body
    }
}

const fn sample_len(timestamp_ms: i64, value: f64) -> usize {
    double_len(value) + number_len(timestamp_ms as u64)
}

fn exemplar_len(e: &Exemplar) -> usize {
    e.labels.as_bytes().len() + double_len(e.value) + number_len(e.timestamp_ms as u64)
}
