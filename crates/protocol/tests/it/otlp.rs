//! Tests OTLP against a reference that translates messages as Prometheus' receiver does, with requests that prost encodes.

mod bad_input;
mod exponential;
pub(crate) mod json;
pub(crate) mod proto;
mod reference;

use crate::plenty;
use model::{Batch, BatchIncrement, Increment, LabelsBuilder};
use prost::Message;
use proto::*;
use protocol::labels::labels_of;
use protocol::otlp::{Decoder, Delta, Format, Media, Naming, Promoted, Translation};
use protocol::{Body, DecodeError, Decoder as _, Encoding};
use reference::{KEYS, METRICS, Translated};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::rng::Rng;

/// 2026-11-28, in nanoseconds.
pub(crate) const NOW: u64 = 1_795_824_000_000_000_000;

pub(crate) fn decode_with(
    decoder: &mut Decoder,
    media: Media,
    translation: &Translation,
    bytes: &[u8],
) -> Result<Batch, DecodeError> {
    let mut batch = Batch::default();
    let format = Format::new(media, Arc::new(translation.clone()));
    let body = Body { encoding: Encoding::Identity, bytes };
    decoder.decode(protocol::Request { format, body }, &mut batch, &mut plenty())?;
    Ok(batch)
}

pub(crate) fn decode(request: &Request) -> Batch {
    let translation = Translation::default();
    let bytes = request.encode_to_vec();
    decode_with(&mut Decoder::new(1), Media::Protobuf, &translation, &bytes).unwrap()
}

/// A request with one resource, one scope and these metrics.
pub(crate) fn request_of(attributes: Vec<KeyValue>, metrics: Vec<Metric>) -> Request {
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    Request {
        resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
    }
}

pub(crate) fn gauge(name: &str, attributes: Vec<KeyValue>, value: f64) -> Metric {
    let point =
        NumberPoint { attributes, time: NOW, value: Some(Number::Double(value)), ..NumberPoint::default() };
    Metric { name: name.into(), data: Some(Data::Gauge(Gauge { points: vec![point] })), ..Metric::default() }
}

/// Returns what a batch contains, in the form of the reference.
pub(crate) fn translated(batch: &Batch) -> Translated {
    let mut found = Translated {
        points: batch.points,
        refused: batch.refused_samples,
        refused_exemplars: batch.refused_exemplars,
        converted: batch.converted_points,
        ..Translated::default()
    };
    let (floats, mut builder) = (&batch.floats, LabelsBuilder::new());
    let mut names = Vec::new();
    for series in &floats.series {
        let bytes = batch.label_bytes(series);
        let labels = labels_of(bytes, &mut builder).unwrap();
        assert_eq!(labels.as_bytes(), bytes, "the labels are not canonical");
        names.push(labels.to_string());
        for at in series.samples.clone() {
            let sample = (floats.timestamps[at as usize], floats.values[at as usize].to_bits());
            found.series.entry(labels.to_string()).or_default().push(sample);
        }
    }
    assert!(floats.exemplars.is_sorted_by_key(|(series, _)| *series));
    for (series, exemplar) in &floats.exemplars {
        let exemplar = (exemplar.labels.to_string(), exemplar.timestamp_ms, exemplar.value.to_bits());
        found.exemplars.entry(names[*series as usize].clone()).or_default().push(exemplar);
    }
    for BatchIncrement { series, increment, .. } in &floats.increments {
        let Increment { start_ns, end_ns, layout, value, .. } = *increment;
        assert_eq!(value.to_bits(), floats.values[*series as usize].to_bits());
        let found = found.increments.entry(names[*series as usize].clone()).or_default();
        found.push((start_ns, end_ns, layout != 0));
    }
    for metadata in batch.metadata() {
        let texts = (metadata.kind.as_str().to_owned(), metadata.help.to_owned(), metadata.unit.to_owned());
        found.metadata.entry(metadata.metric.to_owned()).or_default().insert(texts);
    }
    found
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}

fn any_value(rng: &mut Rng) -> Option<AnyValue> {
    let texts = ["", "x", "GET", "größe", &"long".repeat(50)];
    let list = |values: Vec<Value>| List {
        values: values.into_iter().map(|v| AnyValue { value: Some(v) }).collect(),
    };
    let value = match rng.below(12) {
        0 => Value::Bool(rng.below(2) == 0),
        1 => Value::Int(rng.next_u64() as i64),
        2 => Value::Double(pick(rng, &[0.0, -0.5, 1.25, 1e20, 0.000_001])),
        3 => Value::Bytes(b"any bytes\xff"[..rng.below(11) as usize].to_vec()),
        4 => Value::List(list(vec![Value::Int(1), Value::Text("x".into()), Value::Bytes(vec![1])])),
        5 => Value::Map(Map {
            values: vec![text("b", "1"), attribute("a", Value::Bool(true)), text("b", "2")],
        }),
        6 => return Some(AnyValue { value: None }),
        7 => return None,
        _ => Value::Text(pick(rng, &texts).into()),
    };
    Some(AnyValue { value: Some(value) })
}

fn attributes(rng: &mut Rng, most: u64) -> Vec<KeyValue> {
    let count = rng.below(most + 1);
    (0..count).map(|_| KeyValue { key: pick(rng, &KEYS).0.into(), value: any_value(rng) }).collect()
}

fn resource(rng: &mut Rng) -> Option<Resource> {
    let mut attributes = attributes(rng, 4);
    for (key, values) in [
        ("service.name", ["shop", "", "billing"]),
        ("service.namespace", ["eu", "", "us"]),
        ("service.instance.id", ["i1", "", "i2"]),
    ] {
        if rng.below(3) > 0 {
            let at = rng.below(attributes.len() as u64 + 1) as usize;
            attributes.insert(at, text(key, pick(rng, &values)));
        }
    }
    (rng.below(8) > 0).then_some(Resource { attributes, ..Resource::default() })
}

fn time(rng: &mut Rng) -> u64 {
    if rng.below(20) == 0 { 0 } else { NOW + rng.below(1 << 40) }
}

fn exemplars(rng: &mut Rng) -> Vec<Exemplar> {
    let count = rng.below(4).saturating_sub(1);
    let exemplar = |_| {
        let long = text("user", &"u".repeat(rng.below(120) as usize));
        Exemplar {
            attributes: vec![long],
            time: NOW + rng.below(1 << 40),
            value: match rng.below(4) {
                0 => None,
                1 => Some(ExemplarNumber::Int(rng.below(9) as i64)),
                _ => Some(ExemplarNumber::Double(rng.below(80) as f64 / 8.0)),
            },
            span_id: if rng.below(2) == 0 { vec![] } else { vec![0xab; 8] },
            trace_id: if rng.below(2) == 0 { vec![] } else { vec![0x1c; 16] },
        }
    };
    (0..count).map(exemplar).collect()
}

fn flags(rng: &mut Rng) -> u32 {
    u32::from(rng.below(8) == 0)
}

fn number(rng: &mut Rng) -> NumberPoint {
    NumberPoint {
        attributes: attributes(rng, 4),
        start: pick(rng, &[0, NOW]),
        time: time(rng),
        value: match rng.below(6) {
            0 => None,
            1 | 2 => Some(Number::Int(rng.next_u64() as i64 >> rng.below(64))),
            _ => Some(Number::Double(pick(rng, &[0.0, -1.5, f64::INFINITY, 3.25e300]))),
        },
        exemplars: exemplars(rng),
        flags: flags(rng),
    }
}

fn histogram(rng: &mut Rng) -> HistogramPoint {
    let bounds = pick(rng, &[vec![], vec![0.5, 1.0, 2.5], vec![1.0], vec![-1.0, 0.0, 5.0, 1e9]]);
    // sometimes too few or too many
    let buckets = (bounds.len() as u64 + rng.below(3)) as usize;
    HistogramPoint {
        attributes: attributes(rng, 4),
        start: pick(rng, &[0, NOW]),
        time: time(rng),
        count: rng.below(1000),
        sum: (rng.below(3) > 0).then_some(12.5),
        counts: (0..buckets).map(|_| rng.below(5)).collect(),
        bounds,
        exemplars: exemplars(rng),
        flags: flags(rng),
        min: Some(0.5),
        max: None,
    }
}

fn summary(rng: &mut Rng) -> SummaryPoint {
    let quantiles = (0..rng.below(4)).map(|n| Quantile { quantile: n as f64 / 4.0, value: n as f64 });
    SummaryPoint {
        quantiles: quantiles.collect(),
        attributes: attributes(rng, 4),
        start: NOW,
        time: time(rng),
        count: rng.below(1000),
        sum: 12.5,
        flags: flags(rng),
    }
}

fn metric(rng: &mut Rng) -> Metric {
    let (name, unit, ..) = pick(rng, &METRICS);
    let count = rng.below(5);
    let temporality = pick(rng, &[2, 2, 2, 1]);
    let data = match rng.below(5) {
        0 => Data::Gauge(Gauge { points: (0..count).map(|_| number(rng)).collect() }),
        1 => Data::Histogram(Histogram { points: (0..count).map(|_| histogram(rng)).collect(), temporality }),
        2 => Data::Summary(Summary { points: (0..count).map(|_| summary(rng)).collect() }),
        _ => {
            let is_monotonic = rng.below(2) == 0;
            Data::Sum(Sum { points: (0..count).map(|_| number(rng)).collect(), temporality, is_monotonic })
        }
    };
    Metric { name: name.into(), description: "Help.".into(), unit: unit.into(), data: Some(data) }
}

fn request(rng: &mut Rng) -> Request {
    let scope_metrics = |rng: &mut Rng| {
        let scope = Scope {
            name: "lib".into(),
            version: pick(rng, &["", "1"]).into(),
            attributes: attributes(rng, 2),
        };
        ScopeMetrics {
            scope: (rng.below(2) == 0).then_some(scope),
            metrics: (0..rng.below(5)).map(|_| metric(rng)).collect(),
            schema_url: "https://opentelemetry.io".into(),
        }
    };
    let resource_metrics = |rng: &mut Rng| ResourceMetrics {
        resource: resource(rng),
        scope_metrics: (0..=rng.below(2)).map(|_| scope_metrics(rng)).collect(),
        schema_url: String::new(),
    };
    Request { resource_metrics: (0..=rng.below(3)).map(|_| resource_metrics(rng)).collect() }
}

/// Requests to be damaged by fuzzing.
pub(crate) fn corpus() -> Vec<Request> {
    let rng = &mut Rng::new(7);
    let mut requests: Vec<_> = (0..10).map(|_| request(rng)).collect();
    let exponential = ExponentialPoint {
        time: NOW,
        scale: 3,
        zero_count: 2,
        positive: Some(Buckets { offset: -3, counts: vec![1, 0, 300] }),
        negative: Some(Buckets { offset: 70, counts: vec![4, 5] }),
        ..ExponentialPoint::default()
    };
    for temporality in [1, 2] {
        let data = Data::Exponential(Exponential { points: vec![exponential.clone(); 2], temporality });
        let metric = Metric { name: "e".into(), data: Some(data), ..Metric::default() };
        requests.push(request_of(vec![], vec![metric]));
    }
    requests
}

fn translation(rng: &mut Rng) -> Translation {
    let namings = [Naming::EscapedWithSuffixes, Naming::Escaped, Naming::WithSuffixes, Naming::Unchanged];
    let these = ["a", "http.method", "http_method", "service.name", "Zone"].map(Into::into).to_vec();
    Translation {
        naming: pick(rng, &namings),
        promoted: pick(rng, &[Promoted::All, Promoted::These(Vec::new()), Promoted::These(these)]),
        keeps_identifying: rng.below(2) == 0,
        has_target_info: rng.below(4) > 0,
        has_scope_labels: rng.below(3) == 0,
        delta: pick(rng, &[Delta::Accumulated, Delta::Refused, Delta::Kept]),
        scale: 1,
    }
}

/// Requests come in both forms, to one decoder, whose working memory must not carry anything over.
#[test]
fn requests_become_the_series_of_the_reference() {
    let mut rng = Rng::announced();
    let mut decoder = Decoder::new(1);
    let (mut series, mut exemplars) = (0, 0);
    for round in 0..3000 {
        let (translation, request) = (translation(&mut rng), request(&mut rng));
        let expected = reference::translate(&request, &translation);
        series += expected.series.len();
        exemplars += expected.exemplars.len();
        let forms = [
            (Media::Protobuf, request.encode_to_vec()),
            (Media::Json, json::request(&request, false).into_bytes()),
            (Media::Json, json::request(&request, true).into_bytes()),
        ];
        for (media, bytes) in forms {
            let batch = decode_with(&mut decoder, media, &translation, &bytes);
            let found = translated(&batch.unwrap());
            assert_eq!(found, expected, "round {round} {media:?} {translation:?} {request:#?}");
        }
    }
    assert!(series > 20_000 && exemplars > 500, "{series} series, {exemplars} exemplars");
}

#[test]
fn keys_are_those_of_remote_write() {
    let batch = decode(&request_of(vec![text("service.name", "shop")], vec![gauge("up", vec![], 1.0)]));
    let labels = model::Labels::from_pairs(&[("__name__", "up"), ("job", "shop")]);
    assert_eq!(batch.floats.series[0].key, model::SeriesKey::of(labels.as_bytes(), 1));
}

/// More templates and lists of bounds than are remembered, and a metric name of which there are more than slots.
#[test]
fn what_is_forgotten_is_worked_out_again() {
    let mut decoder = Decoder::new(1);
    for _ in 0..3 {
        let metrics =
            (0..5000).map(|n| gauge(&format!("m{n}"), vec![text(&format!("k{}", n % 100), "v")], 1.0));
        let request = request_of(vec![], metrics.collect());
        let batch =
            decode_with(&mut decoder, Media::Protobuf, &Translation::default(), &request.encode_to_vec());
        let found = translated(&batch.unwrap());
        let expected: BTreeMap<_, _> = (0..5000)
            .map(|n| {
                (format!("m{n}{{k{}=\"v\"}}", n % 100), vec![((NOW / 1_000_000) as i64, 1.0_f64.to_bits())])
            })
            .collect();
        assert_eq!(found.series, expected);
        assert_eq!(found.metadata.len(), 5000);
        assert!(decoder.memory_bytes() < 2 << 20, "{}", decoder.memory_bytes());
    }
}

/// The message repeats the labels of its resource in each series.
#[test]
fn a_warm_decoder_reserves_nothing() {
    let metrics = (0..100).map(|n| gauge(&format!("m{n}"), vec![text("k", "v")], 1.0)).collect();
    let bytes = request_of(vec![text("service.name", "shop")], metrics).encode_to_vec();
    let account = stdx::budget::Account::new("inflight", 1 << 20);
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    for round in 0..2 {
        let format = Format::new(Media::Protobuf, Arc::default());
        let body = Body { encoding: Encoding::Identity, bytes: &bytes };
        let mut memory = account.reserve(7).unwrap();
        decoder.decode(protocol::Request { format, body }, &mut batch, &mut memory).unwrap();
        assert_eq!(memory.bytes() > 7, round == 0, "{} bytes in round {round}", memory.bytes());
        assert_eq!(batch.floats.series.len(), 100);
    }
}
