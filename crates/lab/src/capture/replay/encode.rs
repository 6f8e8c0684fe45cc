//! Encodes batches as bodies of any protocol. In remote write, native histograms are copied, because `protocol` does not encode
//! them. Elsewhere they are left out.

use super::COPY_LABEL;
use super::distributor::Batch;
use crate::generate::points::key_of;
use crate::generate::protocol::Protocol;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef};
use protocol::encode::{OtlpEncoder, graphite, influx};
use protocol::exposition::{Dialect, put_samples};
use protocol::jsonl::put_line;
use std::collections::HashMap;
use stdx::varint;

#[derive(Debug, Default)]
pub(super) struct Encoder {
    message: Vec<u8>,
    series: Vec<u8>,
    inner: Vec<u8>,
    refs: Vec<u8>,
    builder: LabelsBuilder,
}

impl Encoder {
    pub(super) fn body(&mut self, batch: &Batch) -> Vec<u8> {
        self.message.clear();
        match batch.protocol {
            Protocol::V1 => self.v1(batch),
            Protocol::V2 => self.v2(batch),
            Protocol::Otlp | Protocol::OtlpGrpc => return self.otlp(batch),
            Protocol::Graphite => return lines(batch),
            Protocol::GraphitePickle => return pickled(batch),
            Protocol::Influx => return self.influx(batch),
            Protocol::JsonLines | Protocol::Text => return self.text(batch),
        }
        snap::raw::Encoder::new().compress_vec(&self.message).expect("BUG: a batch has 4 GiB or more")
    }

    fn v1(&mut self, batch: &Batch) {
        for part in &batch.parts {
            self.series.clear();
            match self.with_copy(&part.labels, batch.copy) {
                Some(labels) => self.series.extend_from_slice(labels.as_bytes()),
                None => self.series.extend_from_slice(&part.labels),
            }
            self.points(&part.samples, &part.histograms, 0x22);
            field(&mut self.message, 0x0a, &self.series);
        }
    }

    fn v2(&mut self, batch: &Batch) {
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
    }

    fn otlp(&mut self, batch: &Batch) -> Vec<u8> {
        let mut encoder = OtlpEncoder::new();
        for part in &batch.parts {
            let copied = self.with_copy(&part.labels, batch.copy);
            let labels = copied.as_ref().map_or(LabelsRef::from_canonical(&part.labels), Labels::as_ref);
            encoder.resource(labels.iter().filter_map(|(name, value)| Some((key_of(name)?, value))));
            encoder.gauge(labels.get(METRIC_NAME).unwrap_or_default());
            for (timestamp_ms, bits) in &part.samples {
                let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME && key_of(name).is_none());
                let time_ns = (*timestamp_ms as u64).wrapping_mul(1_000_000);
                encoder.point(others, time_ns, f64::from_bits(*bits));
            }
        }
        encoder.finish()
    }

    /// A line for each sample that Influx' lines can have: no NaN, and no infinity.
    fn influx(&mut self, batch: &Batch) -> Vec<u8> {
        let (mut body, mut head) = (Vec::new(), Vec::new());
        for part in &batch.parts {
            let copied = self.with_copy(&part.labels, batch.copy);
            let labels = copied.as_ref().map_or(LabelsRef::from_canonical(&part.labels), Labels::as_ref);
            let name = labels.get(METRIC_NAME).unwrap_or_default();
            let parts = name.rsplit_once('_').filter(|(first, last)| !first.is_empty() && !last.is_empty());
            let (measurement, field) = parts.unwrap_or((name, "value"));
            head.clear();
            influx::head(&mut head, measurement, labels.iter().filter(|(name, _)| *name != METRIC_NAME));
            for (timestamp_ms, bits) in &part.samples {
                let value = f64::from_bits(*bits);
                if value.is_finite() {
                    body.extend_from_slice(&head);
                    influx::field(&mut body, true, field, value);
                    influx::end(&mut body, *timestamp_ms);
                }
            }
        }
        body
    }

    /// JSON lines, or Prometheus' text.
    fn text(&mut self, batch: &Batch) -> Vec<u8> {
        let (mut body, mut timestamps, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for part in batch.parts.iter().filter(|part| !part.samples.is_empty()) {
            let copied = self.with_copy(&part.labels, batch.copy);
            let labels = copied.as_ref().map_or(LabelsRef::from_canonical(&part.labels), Labels::as_ref);
            timestamps.clear();
            timestamps.extend(part.samples.iter().map(|(timestamp_ms, _)| *timestamp_ms));
            values.clear();
            values.extend(part.samples.iter().map(|(_, bits)| f64::from_bits(*bits)));
            match batch.protocol {
                Protocol::JsonLines => put_line(&mut body, labels, &timestamps, &values),
                // a staleness marker cannot be written as text
                _ => _ = put_samples(&mut body, Dialect::Prometheus, labels, &timestamps, &values),
            }
        }
        body
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

fn lines(batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    points(batch, |path, value, time_s| graphite::line(&mut body, &[path], value, time_s));
    body
}

fn pickled(batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut frames = graphite::PickleEncoder::new(&mut body);
    points(batch, |path, value, time_s| frames.point(&[path], value, time_s));
    frames.finish();
    body
}

/// Calls `point` with each sample that is not a native histogram and not a NaN, because Graphite has neither.
fn points(batch: &Batch, mut point: impl FnMut(&str, f64, i64)) {
    for part in &batch.parts {
        let path = path(LabelsRef::from_canonical(&part.labels), batch.copy);
        for (timestamp_ms, bits) in &part.samples {
            let value = f64::from_bits(*bits);
            if !value.is_nan() {
                point(&path, value, timestamp_ms.div_euclid(1000));
            }
        }
    }
}

/// Name of a series with its tags. Copies of a series without tags differ by the first part of their path, because not
/// every server has tags.
fn path(labels: LabelsRef<'_>, copy: Option<u32>) -> String {
    let mut path = String::new();
    let tagged = labels.iter().any(|(name, _)| name != METRIC_NAME);
    if let Some(copy) = copy.filter(|_| !tagged) {
        path += &format!("{COPY_LABEL}_{copy}.");
    }
    put_plain(&mut path, labels.iter().find(|(name, _)| *name == METRIC_NAME).map_or("_", |(_, name)| name));
    for (name, value) in labels.iter().filter(|(name, _)| ![METRIC_NAME, COPY_LABEL].contains(name)) {
        path.push(';');
        put_plain(&mut path, name);
        path.push('=');
        put_plain(&mut path, value);
    }
    if let Some(copy) = copy.filter(|_| tagged) {
        path += &format!(";{COPY_LABEL}={copy}");
    }
    path
}

/// Appends text without the characters that separate the parts of a line.
fn put_plain(out: &mut String, text: &str) {
    let plain = |c: char| if c.is_whitespace() || c.is_control() || c == ';' { '_' } else { c };
    out.extend(text.chars().map(plain));
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
