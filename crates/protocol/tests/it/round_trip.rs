//! Encodes requests with our encoders or with prost, decodes them with the other, and compares. A request is
//! a list of [`Series`].

use crate::proto::{self, v1, v2};
use model::{Batch, Exemplar, Labels, LabelsBuilder, LabelsRef, Metadata, MetricKind, SeriesKey};
use proptest::prelude::*;
use protocol::Decoder as _;
use protocol::encode::{Extras, V1Encoder, V2Encoder};
use protocol::labels::labels_of;
use protocol::remote_write::{Decoder, Version};

type Pairs = Vec<(String, String)>;

/// A series as this test generates it. Values are kept as bits, so that NaNs can be compared.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    labels: Pairs,
    samples: Vec<(i64, u64)>,
    exemplars: Vec<(Pairs, i64, u64)>,
    metadata: (u8, String, String),
}

impl Series {
    fn labels(&self) -> Labels {
        labels(&self.labels)
    }

    fn columns(&self) -> (Vec<i64>, Vec<f64>) {
        self.samples.iter().map(|(t, v)| (*t, f64::from_bits(*v))).unzip()
    }

    fn exemplars(&self) -> Vec<Exemplar> {
        let exemplar = |(l, t, v): &(Vec<_>, i64, u64)| Exemplar {
            labels: labels(l),
            timestamp_ms: *t,
            value: f64::from_bits(*v),
        };
        self.exemplars.iter().map(exemplar).collect()
    }

    fn metadata(&self) -> Metadata {
        let (kind, help, unit) = self.metadata.clone();
        let metric = self.labels().get("__name__").unwrap_or("").to_owned();
        Metadata { metric, kind: MetricKind::from_wire(kind.into()), help, unit }
    }
}

fn labels(pairs: &[(String, String)]) -> Labels {
    let pairs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    Labels::from_pairs(&pairs)
}

/// Generates labels from a small vocabulary, so that consecutive series often share labels.
fn label_pairs(named: bool) -> impl Strategy<Value = Pairs> {
    let name = prop_oneof!["[a-e]", "[a-z_é]{1,9}", "[n]{120,140}"];
    let value = prop_oneof!["[x-z]", "\\PC{1,20}", "[v]{120,140}"];
    let more = prop::collection::btree_map(name, value, 0..12);
    (more, "[m-o][1-9]?").prop_map(move |(mut pairs, metric)| {
        if named {
            pairs.insert("__name__".into(), metric);
        }
        pairs.into_iter().collect()
    })
}

fn sample() -> impl Strategy<Value = (i64, u64)> {
    let usual = 1_600_000_000_000..1_900_000_000_000i64;
    let time = prop_oneof![4 => usual, 1 => any::<i64>(), 1 => -300..300i64];
    let value = prop_oneof![
        any::<u64>(),
        any::<f64>().prop_map(f64::to_bits),
        Just(model::STALE_NAN_BITS),
        Just(0),
        Just((-0.0f64).to_bits()),
    ];
    (time, value)
}

/// Drops the labels with which an exemplar would exceed its limit on characters.
fn of_exemplar(labels: Pairs) -> Pairs {
    let mut left = model::caps::EXEMPLAR_LABEL_CHARS_MAX;
    let fits = |(name, value): &(String, String)| {
        let chars = name.chars().count() + value.chars().count();
        let fits = chars <= left;
        left -= if fits { chars } else { 0 };
        fits
    };
    labels.into_iter().filter(fits).collect()
}

fn series() -> impl Strategy<Value = Series> {
    let exemplar = (label_pairs(false), sample()).prop_map(|(labels, (t, v))| (of_exemplar(labels), t, v));
    (
        label_pairs(true),
        prop::collection::vec(sample(), 1..4),
        prop::collection::vec(exemplar, 0..2),
        (0..8u8, "\\PC{0,9}", "[a-z]{0,3}"),
    )
        .prop_map(|(labels, samples, exemplars, metadata)| Series {
            labels,
            samples,
            exemplars,
            metadata,
        })
}

fn requests() -> impl Strategy<Value = Vec<Series>> {
    prop::collection::vec(series(), 0..12)
}

fn encode_v1(request: &[Series]) -> Vec<u8> {
    let mut encoder = V1Encoder::new();
    for s in request {
        let (timestamps, values) = s.columns();
        let exemplars = s.exemplars();
        let extras = Extras { exemplars: &exemplars, ..Extras::default() };
        encoder.series_with(s.labels().as_ref(), &timestamps, &values, extras);
        encoder.metadata(&s.metadata());
    }
    encoder.finish().to_vec()
}

fn encode_v2(request: &[Series]) -> Vec<u8> {
    let mut encoder = V2Encoder::new();
    for s in request {
        let (timestamps, values) = s.columns();
        let (exemplars, metadata) = (s.exemplars(), s.metadata());
        let extras = Extras { exemplars: &exemplars, metadata: Some(&metadata), start_ms: 77 };
        encoder.series_with(s.labels().as_ref(), &timestamps, &values, extras);
    }
    encoder.finish().to_vec()
}

fn prost_v1(request: &[Series]) -> v1::WriteRequest {
    let label = |(name, value): &(String, String)| v1::Label { name: name.clone(), value: value.clone() };
    let labels = |pairs: &[(String, String)]| pairs.iter().map(label).collect();
    let series = |s: &Series| v1::TimeSeries {
        labels: labels(&s.labels),
        samples: s
            .samples
            .iter()
            .map(|(t, v)| v1::Sample { value: f64::from_bits(*v), timestamp: *t })
            .collect(),
        exemplars: s
            .exemplars
            .iter()
            .map(|(l, t, v)| v1::Exemplar { labels: labels(l), value: f64::from_bits(*v), timestamp: *t })
            .collect(),
        histograms: Vec::new(),
    };
    let metadata = |s: &Series| v1::MetricMetadata {
        kind: s.metadata.0.into(),
        metric_family_name: s.metadata().metric,
        help: s.metadata.1.clone(),
        unit: s.metadata.2.clone(),
    };
    v1::WriteRequest {
        timeseries: request.iter().map(series).collect(),
        metadata: request.iter().map(metadata).collect(),
    }
}

fn prost_v2(request: &[Series]) -> v2::Request {
    let mut symbols = vec![String::new()];
    let mut reference = |text: &str| -> u32 {
        let at = symbols.iter().position(|s| s == text).unwrap_or_else(|| {
            symbols.push(text.into());
            symbols.len() - 1
        });
        at as u32
    };
    let mut refs = |pairs: &[(String, String)]| -> Vec<u32> {
        pairs.iter().flat_map(|(n, v)| [n, v]).map(|text| reference(text)).collect()
    };
    let mut timeseries = Vec::new();
    for s in request {
        timeseries.push(v2::TimeSeries {
            labels_refs: refs(&s.labels),
            samples: s
                .samples
                .iter()
                .map(|(t, v)| v2::Sample { value: f64::from_bits(*v), timestamp: *t, start_timestamp: 5 })
                .collect(),
            histograms: Vec::new(),
            exemplars: s
                .exemplars
                .iter()
                .map(|(l, t, v)| v2::Exemplar {
                    labels_refs: refs(l),
                    value: f64::from_bits(*v),
                    timestamp: *t,
                })
                .collect(),
            metadata: Some(v2::Metadata {
                kind: s.metadata.0.into(),
                help_ref: refs(&[(s.metadata.1.clone(), String::new())])[0],
                unit_ref: refs(&[(s.metadata.2.clone(), String::new())])[0],
            }),
        });
    }
    v2::Request { symbols, timeseries }
}

fn decode(version: Version, body: &[u8]) -> (Vec<Series>, Vec<Metadata>) {
    let mut batch = Batch::default();
    Decoder::new(9)
        .decode(crate::request(version, body), &mut batch, &mut crate::plenty())
        .expect("a valid request");
    assert_eq!((batch.refused_series, batch.refused_exemplars), (0, 0));
    let mut builder = LabelsBuilder::new();
    let pairs = |labels: LabelsRef<'_>| labels.iter().map(|(n, v)| (n.into(), v.into())).collect();
    let mut request = Vec::new();
    for (at, s) in batch.floats.series.iter().enumerate() {
        let labels = labels_of(batch.label_bytes(s), &mut builder).expect("valid labels");
        assert_eq!(s.key, SeriesKey::of(labels.as_bytes(), 9));
        let samples = s.samples.clone().map(|i| i as usize);
        let exemplars = batch.floats.exemplars.iter().filter(|(series, _)| *series as usize == at);
        request.push(Series {
            labels: pairs(labels.as_ref()),
            samples: samples
                .map(|i| (batch.floats.timestamps[i], batch.floats.values[i].to_bits()))
                .collect(),
            exemplars: exemplars
                .map(|(_, e)| (pairs(e.labels.as_ref()), e.timestamp_ms, e.value.to_bits()))
                .collect(),
            metadata: (0, String::new(), String::new()),
        });
    }
    (request, batch.metadata().map(model::MetadataRef::to_owned).collect())
}

fn without_metadata(request: &[Series]) -> Vec<Series> {
    let none = (0, String::new(), String::new());
    request.iter().map(|s| Series { metadata: none.clone(), ..s.clone() }).collect()
}

/// prost does not encode negative zeros, so they are replaced before the comparison.
fn without_negative_zeros(mut request: Vec<Series>) -> Vec<Series> {
    for s in &mut request {
        let values = s.samples.iter_mut().map(|(_, v)| v);
        for value in values.chain(s.exemplars.iter_mut().map(|(_, _, v)| v)) {
            if f64::from_bits(*value) == 0.0 {
                *value = 0;
            }
        }
    }
    request
}

fn last_of_each_metric(metadata: impl IntoIterator<Item = Metadata>) -> Vec<Metadata> {
    let mut last = std::collections::BTreeMap::new();
    for m in metadata {
        last.insert(m.metric.clone(), m);
    }
    last.into_values().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prost_reads_what_we_write(request in requests()) {
        // NaNs make messages differ from themselves, so their debug texts are compared
        let theirs = proto::unpack::<v1::WriteRequest>(&encode_v1(&request));
        prop_assert_eq!(format!("{theirs:?}"), format!("{:?}", prost_v1(&request)));
        let theirs = proto::unpack::<v2::Request>(&encode_v2(&request));
        for (theirs, s) in theirs.timeseries.iter().zip(&request) {
            prop_assert_eq!(theirs.samples.len(), s.samples.len());
            for (theirs, ours) in theirs.samples.iter().zip(&s.samples) {
                let got = (theirs.timestamp, theirs.value.to_bits(), theirs.start_timestamp);
                prop_assert_eq!(got, (ours.0, ours.1, 77));
            }
        }
    }

    #[test]
    fn we_read_what_we_write(request in requests()) {
        for (version, body) in [(Version::V1, encode_v1(&request)), (Version::V2, encode_v2(&request))] {
            let (series, metadata) = decode(version, &body);
            prop_assert_eq!(series, without_metadata(&request));
            let expected = request.iter().map(Series::metadata);
            let expected = expected.filter(|m| version == Version::V1 || !is_empty_metadata(m));
            prop_assert_eq!(last_of_each_metric(metadata), last_of_each_metric(expected));
        }
    }

    #[test]
    fn we_read_what_prost_writes(request in requests()) {
        let request = without_negative_zeros(request);
        let bodies = [
            (Version::V1, proto::body(&prost_v1(&request))),
            (Version::V2, proto::body(&prost_v2(&request))),
        ];
        for (version, body) in bodies {
            let (series, metadata) = decode(version, &body);
            prop_assert_eq!(series, without_metadata(&request));
            let expected = request.iter().map(Series::metadata);
            let expected = expected.filter(|m| version == Version::V1 || !is_empty_metadata(m));
            prop_assert_eq!(last_of_each_metric(metadata), last_of_each_metric(expected));
        }
    }
}

/// Version 2.0 cannot express metadata that has neither type nor texts.
fn is_empty_metadata(m: &Metadata) -> bool {
    m.kind == MetricKind::Unknown && m.help.is_empty() && m.unit.is_empty()
}
