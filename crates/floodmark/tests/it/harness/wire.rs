//! Builds remote-write bodies field by field, so that they can also be malformed. It shares no code with the
//! server.

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A series to be sent. The labels are sent in this order, whether it is valid or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) labels: Pairs,
    pub(crate) samples: Vec<(i64, f64)>,
    pub(crate) histograms: usize,
    pub(crate) exemplars: Vec<(Pairs, i64, f64)>,
    /// Type, help and unit of the metric, which only a 2.0 body contains.
    pub(crate) metadata: Option<(u64, &'static str, &'static str)>,
}

fn pairs<T: AsRef<[u8]>>(labels: &[(&str, T)]) -> Pairs {
    labels.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_ref().to_vec())).collect()
}

impl Series {
    pub(crate) fn new<T: AsRef<[u8]>>(labels: &[(&str, T)]) -> Self {
        Self { labels: pairs(labels), ..Self::default() }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::new(&[("__name__", name)])
    }

    pub(crate) fn label(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.labels.push((name.as_bytes().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn sample(mut self, timestamp_ms: i64, value: f64) -> Self {
        self.samples.push((timestamp_ms, value));
        self
    }

    pub(crate) fn samples(mut self, samples: impl IntoIterator<Item = (i64, f64)>) -> Self {
        self.samples.extend(samples);
        self
    }

    pub(crate) const fn histograms(mut self, count: usize) -> Self {
        self.histograms = count;
        self
    }

    pub(crate) fn exemplar(mut self, labels: &[(&str, &str)], timestamp_ms: i64, value: f64) -> Self {
        self.exemplars.push((pairs(labels), timestamp_ms, value));
        self
    }

    pub(crate) const fn metadata(mut self, kind: u64, help: &'static str, unit: &'static str) -> Self {
        self.metadata = Some((kind, help, unit));
        self
    }
}

pub(crate) fn v1(series: &[Series]) -> Vec<u8> {
    snappy(&v1_message(series))
}

pub(crate) fn v1_message(series: &[Series]) -> Vec<u8> {
    let mut out = Vec::new();
    for s in series {
        let mut one = Vec::new();
        for label in &s.labels {
            put_bytes(&mut one, 1, &v1_label(label));
        }
        for (t, v) in &s.samples {
            put_bytes(&mut one, 2, &sample(*t, *v));
        }
        for (labels, t, v) in &s.exemplars {
            let mut exemplar = Vec::new();
            labels.iter().for_each(|l| put_bytes(&mut exemplar, 1, &v1_label(l)));
            put_double(&mut exemplar, 2, *v);
            put_number(&mut exemplar, 3, *t as u64);
            put_bytes(&mut one, 3, &exemplar);
        }
        (0..s.histograms).for_each(|_| put_bytes(&mut one, 4, &HISTOGRAM));
        put_bytes(&mut out, 1, &one);
    }
    out
}

/// Encodes a metadata entry of version 1.0, which can be placed before or after the series of a message.
pub(crate) fn v1_metadata(kind: u64, metric: &str, help: &str, unit: &str) -> Vec<u8> {
    let mut one = Vec::new();
    put_number(&mut one, 1, kind);
    put_bytes(&mut one, 2, metric.as_bytes());
    put_bytes(&mut one, 4, help.as_bytes());
    put_bytes(&mut one, 5, unit.as_bytes());
    let mut out = Vec::new();
    put_bytes(&mut out, 3, &one);
    out
}

fn v1_label((name, value): &(Vec<u8>, Vec<u8>)) -> Vec<u8> {
    let mut label = Vec::new();
    put_bytes(&mut label, 1, name);
    put_bytes(&mut label, 2, value);
    label
}

pub(crate) fn v2(series: &[Series]) -> Vec<u8> {
    let mut symbols = vec![Vec::new()];
    let mut all = Vec::new();
    for s in series {
        let mut one = Vec::new();
        put_bytes(&mut one, 1, &refs(&mut symbols, &s.labels));
        for (t, v) in &s.samples {
            put_bytes(&mut one, 2, &sample(*t, *v));
        }
        (0..s.histograms).for_each(|_| put_bytes(&mut one, 3, &HISTOGRAM));
        for (labels, t, v) in &s.exemplars {
            let mut exemplar = Vec::new();
            put_bytes(&mut exemplar, 1, &refs(&mut symbols, labels));
            put_double(&mut exemplar, 2, *v);
            put_number(&mut exemplar, 3, *t as u64);
            put_bytes(&mut one, 4, &exemplar);
        }
        if let Some((kind, help, unit)) = s.metadata {
            let mut metadata = Vec::new();
            put_number(&mut metadata, 1, kind);
            put_number(&mut metadata, 3, symbol(&mut symbols, help.as_bytes()));
            put_number(&mut metadata, 4, symbol(&mut symbols, unit.as_bytes()));
            put_bytes(&mut one, 5, &metadata);
        }
        put_bytes(&mut all, 5, &one);
    }
    let mut out = Vec::new();
    symbols.iter().for_each(|s| put_bytes(&mut out, 4, s));
    out.extend(all);
    snappy(&out)
}

/// Encodes a 2.0 body with one series. The references of its labels can be wrong.
pub(crate) fn v2_with_refs(symbols: &[&str], label_refs: &[u64], timestamp_ms: i64) -> Vec<u8> {
    let mut out = Vec::new();
    symbols.iter().for_each(|s| put_bytes(&mut out, 4, s.as_bytes()));
    let mut packed = Vec::new();
    label_refs.iter().for_each(|r| varint(&mut packed, *r));
    let mut one = Vec::new();
    put_bytes(&mut one, 1, &packed);
    put_bytes(&mut one, 2, &sample(timestamp_ms, 1.0));
    put_bytes(&mut out, 5, &one);
    snappy(&out)
}

fn refs(symbols: &mut Vec<Vec<u8>>, labels: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, value) in labels {
        for text in [name, value] {
            let reference = symbol(symbols, text);
            varint(&mut packed, reference);
        }
    }
    packed
}

fn symbol(symbols: &mut Vec<Vec<u8>>, text: &[u8]) -> u64 {
    let found = symbols.iter().position(|s| s == text);
    let position = found.unwrap_or_else(|| {
        symbols.push(text.to_vec());
        symbols.len() - 1
    });
    position as u64
}

/// An encoded native histogram. Its sum is 1.0, and its other fields are absent, which means zero.
const HISTOGRAM: [u8; 9] = [0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];

pub(crate) fn sample(timestamp_ms: i64, value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    put_double(&mut out, 1, value);
    put_number(&mut out, 2, timestamp_ms as u64);
    out
}

pub(crate) fn snappy(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).expect("snappy")
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn put_number(out: &mut Vec<u8>, field: u64, n: u64) {
    varint(out, field << 3);
    varint(out, n);
}

pub(crate) fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
