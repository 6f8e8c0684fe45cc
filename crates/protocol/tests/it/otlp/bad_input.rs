//! Invalid requests and points.

use super::proto::*;
use super::{NOW, decode, decode_with, gauge, request_of, translated};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, REQUEST_EXTRAS_MAX, SERIES_LABEL_BYTES_MAX};
use model::{Batch, ErrorKind, SeriesRefusal};
use prost::Message;
use protocol::labels::describe_labels;
use protocol::otlp::{Decoder, Delta, Format, Media, Promoted, Translation};
use protocol::{Body, DecodeError, Decoder as _, Encoding};
use std::sync::Arc;
use stdx::budget::Account;
use stdx::damage::damage;
use stdx::rng::Rng;

fn decode_bytes(media: Media, bytes: &[u8]) -> Result<Batch, DecodeError> {
    decode_with(&mut Decoder::new(1), media, &Translation::default(), bytes)
}

/// A field of a message whose tag takes one byte.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![tag];
    stdx::varint::put(&mut field, content.len() as u64);
    field.extend_from_slice(content);
    field
}

fn refusals(batch: &Batch) -> Vec<(SeriesRefusal, String)> {
    let shown = |labels: &std::ops::Range<u32>| {
        describe_labels(&batch.bytes[labels.start as usize..labels.end as usize])
    };
    batch.refused.iter().map(|(refusal, labels)| (refusal.clone(), shown(labels))).collect()
}

#[test]
fn media_types() {
    let check = |header: Option<&str>, expected: Option<Media>| {
        let found = Media::of(header);
        assert_eq!(found.as_ref().ok(), expected.as_ref(), "{header:?}");
        assert!(found.is_ok() || found.unwrap_err().kind() == ErrorKind::Unsupported);
    };
    check(Some("application/x-protobuf"), Some(Media::Protobuf));
    check(Some("application/protobuf"), Some(Media::Protobuf));
    check(Some("Application/JSON; charset=utf-8"), Some(Media::Json));
    check(Some("text/plain"), None);
    check(Some("application/jsonl"), None);
    check(Some(""), None);
    check(None, None);
}

#[test]
fn a_refused_point_does_not_affect_others() {
    let mut metrics = vec![gauge("first", vec![], 1.0)];
    let value = |value: Value| AnyValue { value: Some(value) };
    let deep =
        (0..40).fold(value(Value::Int(1)), |inner, _| value(Value::List(List { values: vec![inner] })));
    let large = Value::List(List { values: vec![value(Value::Text("x".repeat(LABEL_VALUE_BYTES_MAX))); 2] });
    let wide = (0..130).map(|n| text(&format!("k{n}"), "v")).collect();
    metrics.push(gauge("deep", vec![KeyValue { key: "k".into(), value: Some(deep) }], 1.0));
    metrics.push(gauge("large", vec![attribute("k", large)], 1.0));
    metrics.push(gauge("wide", wide, 1.0));
    metrics.push(gauge("long_key", vec![text(&"k".repeat(2000), "v")], 1.0));
    let huge = (0..5).map(|n| text(&format!("k{n}"), &"v".repeat(15_000))).collect();
    metrics.push(gauge("huge", huge, 1.0));
    let mut valueless = gauge("valueless", vec![], 1.0);
    let mut timeless = gauge("timeless", vec![], 1.0);
    for (metric, is_timed) in [(&mut valueless, true), (&mut timeless, false)] {
        let Some(Data::Gauge(gauge)) = &mut metric.data else { unreachable!() };
        let point = &mut gauge.points[0];
        (point.time, point.value) = if is_timed { (NOW, None) } else { (0, point.value) };
    }
    metrics.extend([valueless, timeless]);
    let sum = |temporality| {
        let points =
            vec![NumberPoint { time: NOW, value: Some(Number::Int(1)), ..NumberPoint::default() }; 3];
        Some(Data::Sum(Sum { points, temporality, is_monotonic: true }))
    };
    metrics.push(Metric { name: "delta".into(), data: sum(1), ..Metric::default() });
    metrics.push(Metric { name: "unknown".into(), data: sum(0), ..Metric::default() });
    metrics.push(Metric { name: "typeless".into(), ..Metric::default() });
    metrics.push(gauge(&"n".repeat(LABEL_VALUE_BYTES_MAX + 1), vec![], 1.0));
    metrics.push(gauge("last", vec![], 1.0));
    let refusing = Translation { delta: Delta::Refused, ..Translation::default() };
    let request = request_of(vec![], metrics).encode_to_vec();
    let batch = decode_with(&mut Decoder::new(1), Media::Protobuf, &refusing, &request).unwrap();
    let expected = [
        (SeriesRefusal::AttributeTooDeep, "deep{}"),
        (SeriesRefusal::AttributeTooLarge, "large{}"),
        (SeriesRefusal::TooManyLabels(130), "wide{}"),
        (SeriesRefusal::LabelNameTooLong(2000), "long_key{}"),
        (SeriesRefusal::LabelsTooLong(75_100), "huge{}"),
        (SeriesRefusal::PointWithoutValue, "valueless{}"),
        (SeriesRefusal::PointWithoutTime, "timeless{}"),
        (SeriesRefusal::DeltaTemporality, "delta_total{}"),
        (SeriesRefusal::UnknownTemporality(0), "unknown_total{}"),
        (SeriesRefusal::UnknownMetricType, "typeless{}"),
    ];
    let found = refusals(&batch);
    for ((found, labels), (expected, expected_labels)) in found.iter().zip(expected) {
        assert_eq!(labels, expected_labels);
        match (found, expected) {
            (SeriesRefusal::LabelsTooLong(bytes), SeriesRefusal::LabelsTooLong(_)) => {
                assert!(*bytes > SERIES_LABEL_BYTES_MAX);
            }
            (found, expected) => assert_eq!(*found, expected),
        }
    }
    assert_eq!((found.len(), batch.refused_series), (Batch::REFUSED_KEPT_MAX, 11));
    assert_eq!((batch.points, batch.refused_samples), (2 + 7 + 3 + 3 + 1, 7 + 3 + 3 + 1));
    let found = translated(&batch);
    assert_eq!(found.series.keys().collect::<Vec<_>>(), ["first{}", "last{}"]);
}

#[test]
fn labels_of_a_resource_that_cannot_be_stored() {
    let wide: Vec<_> = (0..130).map(|n| text(&format!("k{n}"), "v")).collect();
    let promoting = Translation { promoted: Promoted::All, ..Translation::default() };
    let check =
        |attributes: Vec<KeyValue>, translation: &Translation, expected: SeriesRefusal, target_too: bool| {
            let mut request = request_of(attributes, vec![gauge("a", vec![], 1.0), gauge("b", vec![], 1.0)]);
            request
                .resource_metrics
                .extend(request_of(vec![], vec![gauge("other", vec![], 1.0)]).resource_metrics);
            let bytes = request.encode_to_vec();
            let batch = decode_with(&mut Decoder::new(1), Media::Protobuf, translation, &bytes).unwrap();
            let found = refusals(&batch);
            assert!(found[..2].iter().all(|(refusal, _)| *refusal == expected), "{found:?}");
            assert_eq!((found.len(), batch.refused_samples), (2 + usize::from(target_too), 2));
            assert_eq!(translated(&batch).series.keys().collect::<Vec<_>>(), ["other{}"]);
        };
    let named = |mut attributes: Vec<KeyValue>| {
        attributes.push(text("service.name", "shop"));
        attributes
    };
    check(named(wide), &promoting, SeriesRefusal::TooManyLabels(131), true);
    let long = text(&"k".repeat(LABEL_NAME_BYTES_MAX + 1), "v");
    check(named(vec![long]), &promoting, SeriesRefusal::LabelNameTooLong(LABEL_NAME_BYTES_MAX + 1), true);
}

/// A resource's labels, and those of a point, are repeated in many series.
#[test]
fn floods_are_bounded() {
    let check = |request: &Request, what, limit| {
        let error = decode_bytes(Media::Protobuf, &request.encode_to_vec()).unwrap_err();
        assert_eq!(error, DecodeError::TooMany { what, limit });
    };
    let long = vec![text("a", &"x".repeat(15_000)), text("b", &"x".repeat(15_000))];
    let histogram = |buckets: usize, attributes, exemplars| {
        let point = HistogramPoint {
            attributes,
            time: NOW,
            bounds: (0..buckets).map(|n| n as f64).collect(),
            counts: vec![1; buckets],
            exemplars: vec![
                Exemplar { value: Some(ExemplarNumber::Int(1)), ..Exemplar::default() };
                exemplars
            ],
            ..HistogramPoint::default()
        };
        let data = Some(Data::Histogram(Histogram { points: vec![point], temporality: 2 }));
        request_of(vec![], vec![Metric { name: "h".into(), data, ..Metric::default() }])
    };
    check(&histogram(3000, long.clone(), 0), "bytes of labels", 64 << 20);
    check(&histogram(250_000, vec![], 0), "series", 250_000);
    check(&histogram(1, vec![], REQUEST_EXTRAS_MAX + 1), "exemplars", REQUEST_EXTRAS_MAX);
    let points =
        vec![NumberPoint { time: NOW, value: Some(Number::Int(1)), ..NumberPoint::default() }; 250_001];
    let metric = Metric { name: "g".into(), data: Some(Data::Gauge(Gauge { points })), ..Metric::default() };
    check(&request_of(vec![], vec![metric]), "points", 250_000);
}

/// Items that leave nothing in the batch take two bytes of the message, and each may be work.
#[test]
fn items_that_are_not_stored_are_counted() {
    let check = |message: &[u8], what, limit| {
        let error = decode_bytes(Media::Protobuf, message).unwrap_err();
        assert_eq!(error, DecodeError::TooMany { what, limit });
    };
    let resource = |content: &[u8]| field(0x0a, content);
    let scope = |content: &[u8]| resource(&field(0x12, content));
    let gauge = |content: &[u8]| scope(&field(0x12, &field(0x2a, content)));
    let too_many = 250_001;
    check(&b"\x0a\x00".repeat(too_many), "resources", 250_000);
    check(&resource(&b"\x12\x00".repeat(too_many)), "scopes", 250_000);
    check(&scope(&b"\x12\x00".repeat(too_many)), "metrics", 250_000);
    check(&gauge(&b"\x0a\x00".repeat(too_many)), "points", 250_000);
    let batch = decode_bytes(Media::Protobuf, &gauge(&b"\x0a\x00".repeat(1000))).unwrap();
    assert_eq!((batch.points, batch.refused_samples), (1000, 1000));

    let nan = Exemplar { value: Some(ExemplarNumber::Double(f64::NAN)), ..Exemplar::default() };
    let point = |exemplars| HistogramPoint {
        time: NOW,
        exemplars: vec![nan.clone(); exemplars],
        ..HistogramPoint::default()
    };
    let histogram = |points| {
        let data = Some(Data::Histogram(Histogram { points, temporality: 2 }));
        request_of(vec![], vec![Metric { name: "h".into(), data, ..Metric::default() }]).encode_to_vec()
    };
    let half = REQUEST_EXTRAS_MAX / 2;
    let batch = decode_bytes(Media::Protobuf, &histogram(vec![point(half), point(half)])).unwrap();
    assert_eq!((batch.points, batch.refused_exemplars), (2, REQUEST_EXTRAS_MAX as u64));
    check(&histogram(vec![point(half), point(half + 1)]), "exemplars", REQUEST_EXTRAS_MAX);
}

/// The labels of a resource are worked out again for refused points, for scopes, and for points with other attributes.
#[test]
fn labels_that_are_not_stored_are_limited() {
    let scoped = Translation { has_scope_labels: true, ..Translation::default() };
    let promoting = Translation { promoted: Promoted::All, ..Translation::default() };
    let check = |translation: &Translation, request: &dyn Fn(usize) -> Request, few, many| {
        let decode = |count| {
            let bytes = request(count).encode_to_vec();
            decode_with(&mut Decoder::new(1), Media::Protobuf, translation, &bytes)
        };
        let batch = decode(few).unwrap();
        let expected = DecodeError::TooMany { what: "bytes of labels that are not stored", limit: 256 << 20 };
        assert_eq!(decode(many).unwrap_err(), expected);
        batch
    };

    // the series `_count` just fits, but `_bucket` does not
    let refused = |count| {
        let points = vec![HistogramPoint { time: NOW, ..HistogramPoint::default() }; count];
        let data = Some(Data::Histogram(Histogram { points, temporality: 2 }));
        let metric = Metric { name: "h".into(), data, ..Metric::default() };
        request_of(vec![text("service.name", &"x".repeat(SERIES_LABEL_BYTES_MAX - 36))], vec![metric])
    };
    let batch = check(&Translation::default(), &refused, 10, 2200);
    let (refusal, labels) = &refusals(&batch)[0];
    assert_eq!((labels.as_str(), batch.refused_samples, batch.floats.series.len()), ("h{}", 10, 0));
    assert!(matches!(refusal, SeriesRefusal::LabelsTooLong(bytes) if *bytes < SERIES_LABEL_BYTES_MAX + 20));

    let scopes = |count| {
        let mut request = request_of(vec![text("service.name", &"x".repeat(60_000))], vec![]);
        request.resource_metrics[0].scope_metrics = vec![ScopeMetrics::default(); count];
        request
    };
    check(&scoped, &scopes, 1000, 4800);

    // labels that are refused in the end were copied, too
    let refused_scopes = |count| {
        let attributes =
            vec![text("service.instance.id", &"x".repeat(60_000)), text("service.name", &"x".repeat(10_000))];
        let mut request = request_of(attributes, vec![]);
        request.resource_metrics[0].scope_metrics = vec![ScopeMetrics::default(); count];
        request
    };
    check(&scoped, &refused_scopes, 1000, 4800);

    // labels without values take no bytes in the series
    let empty: Vec<_> = (0..120).map(|n| text(&format!("{n:0500}"), "")).collect();
    let templates = |count| {
        let metric = |n| gauge("g", vec![text(&format!("k{n}"), "v")], 1.0);
        request_of(empty.clone(), (0..count).map(metric).collect())
    };
    let batch = check(&promoting, &templates, 1000, 4800);
    assert_eq!(batch.floats.series.len(), 1000);
}

#[test]
fn attributes_are_limited_while_they_are_read() {
    let attributes = |count| (0..count).map(|n| text(&format!("k{n}"), "v")).collect::<Vec<_>>();
    let scoped = Translation { has_scope_labels: true, ..Translation::default() };
    let check = |request: &Request, expected: Option<SeriesRefusal>| {
        for translation in [&Translation::default(), &scoped] {
            let bytes = request.encode_to_vec();
            let batch = decode_with(&mut Decoder::new(1), Media::Protobuf, translation, &bytes).unwrap();
            let found = refusals(&batch).into_iter().map(|(refusal, _)| refusal).next();
            assert_eq!(found, expected);
            assert_eq!(batch.refused_samples, u64::from(expected.is_some()));
        }
    };
    // none of the attributes of this resource becomes a label
    let of_resource = |count| {
        let mut request = request_of(attributes(count), vec![gauge("g", vec![], 1.0)]);
        request.resource_metrics[0].scope_metrics.extend(vec![ScopeMetrics::default(); 3]);
        request
    };
    let no_target = |count| {
        let mut request = of_resource(count);
        let Some(Data::Gauge(gauge)) = &mut request.resource_metrics[0].scope_metrics[0].metrics[0].data
        else {
            unreachable!()
        };
        gauge.points[0].time = 0;
        request
    };
    check(&of_resource(100), None);
    check(&no_target(1024), Some(SeriesRefusal::PointWithoutTime));
    check(&of_resource(1025), Some(SeriesRefusal::TooManyLabels(1025)));
    check(&of_resource(100_000), Some(SeriesRefusal::TooManyLabels(1025)));
    let of_point = |count| request_of(vec![], vec![gauge("g", attributes(count), 1.0)]);
    check(&of_point(100), None);
    check(&of_point(1024), Some(SeriesRefusal::TooManyLabels(1024)));
    check(&of_point(100_000), Some(SeriesRefusal::TooManyLabels(1025)));
}

/// Returns for each exemplar of a histogram with these bounds the number of its bucket.
fn buckets_of(bounds: &[f64], values: &[f64]) -> Vec<Option<usize>> {
    let exemplar = |(number, value): (u64, &f64)| Exemplar {
        time: number * 1_000_000,
        value: Some(ExemplarNumber::Double(*value)),
        ..Exemplar::default()
    };
    let point = HistogramPoint {
        time: NOW,
        counts: vec![1; bounds.len()],
        bounds: bounds.to_vec(),
        exemplars: (0..).zip(values).map(exemplar).collect(),
        ..HistogramPoint::default()
    };
    let data = Some(Data::Histogram(Histogram { points: vec![point], temporality: 2 }));
    let batch = decode(&request_of(vec![], vec![Metric { name: "h".into(), data, ..Metric::default() }]));
    let mut found = vec![None; values.len()];
    for (series, exemplar) in &batch.floats.exemplars {
        // the first series is `_count`
        found[exemplar.timestamp_ms as usize] = Some(*series as usize - 1);
    }
    assert_eq!(batch.refused_exemplars as usize, found.iter().filter(|bucket| bucket.is_none()).count());
    found
}

#[test]
fn an_exemplar_belongs_to_the_least_bucket_that_holds_it() {
    const ANY: [f64; 9] = [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 0.5, 1.0, 7.0, f64::INFINITY];
    let mut rng = Rng::announced();
    let mut some = |most| {
        let count = rng.below(most);
        (0..count).map(|_| ANY[rng.below(ANY.len() as u64) as usize]).collect::<Vec<f64>>()
    };
    for _ in 0..500 {
        let (bounds, values) = (some(12), some(8));
        let all = || bounds.iter().copied().chain([f64::INFINITY]).enumerate();
        let expected = values.iter().map(|value| {
            let fitting = all().filter(|(_, bound)| value <= bound);
            fitting.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(number, _)| number)
        });
        assert_eq!(buckets_of(&bounds, &values), expected.collect::<Vec<_>>(), "{bounds:?} {values:?}");
    }
    // with a look at each bound for each exemplar, this would be ten billion looks
    let descending: Vec<f64> = (0..100_000).rev().map(f64::from).collect();
    let found = buckets_of(&descending, &descending);
    assert!(found.iter().enumerate().all(|(number, bucket)| *bucket == Some(number)));
}

/// What a decoder remembers is right after a request for which memory was too short.
#[test]
fn a_decoder_is_usable_after_memory_was_short() {
    let histogram = |buckets: usize| {
        let point = HistogramPoint {
            time: NOW,
            bounds: (0..buckets).map(|n| n as f64).collect(),
            counts: vec![1; buckets],
            ..HistogramPoint::default()
        };
        let data = Some(Data::Histogram(Histogram { points: vec![point], temporality: 2 }));
        request_of(vec![], vec![Metric { name: "h".into(), data, ..Metric::default() }]).encode_to_vec()
    };
    let (large, small) = (histogram(2000), histogram(0));
    let mut failures = 0;
    for limit in (0..400).map(|number| number << 12) {
        let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
        let mut memory = Account::new("inflight", limit).reserve(0).unwrap();
        let format = Format::new(Media::Protobuf, Arc::default());
        let body = Body { encoding: Encoding::Identity, bytes: &large };
        let decoded = decoder.decode(protocol::Request { format, body }, &mut batch, &mut memory);
        failures += u32::from(decoded.is_err());
        let batch = decode_with(&mut decoder, Media::Protobuf, &Translation::default(), &small).unwrap();
        let series = translated(&batch).series.into_keys().collect::<Vec<_>>();
        assert_eq!(series, [r#"h_bucket{le="+Inf"}"#, "h_count{}"], "limit {limit}");
    }
    assert!((20..400).contains(&failures), "memory was short {failures} times");
}

/// Messages whose decoded form needs much more memory than the messages themselves.
fn amplifiers() -> Vec<(&'static str, Media, Vec<u8>)> {
    let long = vec![text("a", &"x".repeat(15_000))];
    let bounds = HistogramPoint {
        attributes: long.clone(),
        time: NOW,
        bounds: (0..2000).map(f64::from).collect(),
        counts: vec![1; 2000],
        ..HistogramPoint::default()
    };
    let data = Some(Data::Histogram(Histogram { points: vec![bounds], temporality: 2 }));
    let histogram = Metric { name: "h".into(), data, ..Metric::default() };
    let point = NumberPoint { time: NOW, value: Some(Number::Int(1)), ..NumberPoint::default() };
    let gauge_of =
        |points| Metric { name: "g".into(), data: Some(Data::Gauge(Gauge { points })), ..Metric::default() };
    let empty = NumberPoint { attributes: vec![KeyValue::default(); 600_000], ..point.clone() };
    let map = Map { values: vec![KeyValue::default(); 600_000] };
    let map = NumberPoint { attributes: vec![attribute("m", Value::Map(map))], ..point.clone() };
    let resource = request_of(long, vec![gauge_of(vec![point; 20_000])]);
    let json = super::json::request(
        &request_of(vec![], vec![gauge_of(vec![NumberPoint::default(); 120_000])]),
        false,
    );
    let escaped = format!("{{\"{}\":1}}", "\\u0041".repeat(2 << 20));
    vec![
        ("buckets", Media::Protobuf, request_of(vec![], vec![histogram]).encode_to_vec()),
        ("attributes", Media::Protobuf, request_of(vec![], vec![gauge_of(vec![empty])]).encode_to_vec()),
        ("map", Media::Protobuf, request_of(vec![], vec![gauge_of(vec![map])]).encode_to_vec()),
        ("resource", Media::Protobuf, resource.encode_to_vec()),
        ("json", Media::Json, json.into_bytes()),
        ("key", Media::Json, escaped.into_bytes()),
    ]
}

#[test]
fn memory_is_reserved_before_it_is_used() {
    let promoting = Arc::new(Translation { promoted: Promoted::All, ..Translation::default() });
    for (what, media, bytes) in amplifiers() {
        for limit in [1_u64 << 20, 4 << 20, 1 << 40] {
            let account = Account::new("inflight", limit);
            let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
            let mut memory = account.reserve(0).unwrap();
            let format = Format::new(media, Arc::clone(&promoting));
            let body = Body { encoding: Encoding::Identity, bytes: &bytes };
            let decoded = decoder.decode(protocol::Request { format, body }, &mut batch, &mut memory);
            let peak = account.peak_bytes();
            eprintln!(
                "{what}: {} KiB become {} KiB, limit {} KiB",
                bytes.len() >> 10,
                peak >> 10,
                limit >> 10
            );
            assert!(peak <= limit && batch.memory_bytes() as u64 <= peak, "{what}");
            match decoded {
                Ok(()) => {}
                Err(DecodeError::Memory(_)) => assert!(limit < 1 << 40, "{what}"),
                Err(DecodeError::TooMany { .. }) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}"),
            }
        }
    }
}

#[test]
fn damaged_json() {
    let check = |json: &str, expected: &str| {
        let error = decode_bytes(Media::Json, json.as_bytes()).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, expected), "{json}");
    };
    check("", "unexpected JSON at byte 0: expected an object");
    check("[]", "unexpected JSON at byte 0: expected an object");
    check("{}x", "unexpected JSON at byte 2: trailing characters after the end");
    check(r#"{"resourceMetrics":{}}"#, "unexpected JSON at byte 19: expected a list");
    check(r#"{"resourceMetrics":["#, "unexpected JSON at byte 20: expected an object");
    let point = |json: &str| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"gauge":{{"dataPoints":[{{{json}}}]}}}}]}}]}}]}}"#
        )
    };
    check(
        &point(r#""asInt":"1.5""#),
        "unexpected JSON at byte 82: expected an integer within the range of its type",
    );
    check(
        &point(r#""timeUnixNano":-1"#),
        "unexpected JSON at byte 89: expected an integer within the range of its type",
    );
    check(&point(r#""asDouble":"inf""#), "unexpected JSON at byte 85: expected a number");
    let value = |json: &str| point(&format!(r#""attributes":[{{"value":{json}}}]"#));
    check(&value(r#"{"bytesValue":"!"}"#), "unexpected JSON at byte 111: expected base64");
    let deep = r#"{"arrayValue":{"values":["#.repeat(30);
    assert!(
        decode_bytes(Media::Json, value(&deep).as_bytes())
            .unwrap_err()
            .to_string()
            .ends_with("nested too deeply")
    );
    for good in ["{}", r#"{"resourceMetrics":null}"#, r#"{"resourceMetrics":[{"resource":null}]}"#] {
        assert!(decode_bytes(Media::Json, good.as_bytes()).unwrap().floats.series.is_empty(), "{good}");
    }
    for number in [r#""1e3""#, "1e3", "1000", r#""1000""#, "1000.0"] {
        let json = point(&format!(r#""timeUnixNano":"{NOW}","asInt":{number}"#));
        let json = json.replace(r#"{"gauge""#, r#"{"name":"g","gauge""#);
        assert_eq!(decode_bytes(Media::Json, json.as_bytes()).unwrap().floats.values, [1000.0], "{number}");
    }
}

/// Fields may be in any order, in pieces, and not packed.
#[test]
fn unusual_encodings() {
    let number = |tag: u8, n: u64| [&[tag][..], &n.to_le_bytes()].concat();
    let bound = |tag, n: f64| number(tag, n.to_bits());
    let key = field(0x0a, b"k");
    let value = field(0x12, &field(0x0a, b"v"));
    let point = [
        bound(0x39, 0.5),
        number(0x31, 1),
        field(0x3a, &1.0_f64.to_le_bytes()),
        number(0x31, 2),
        field(0x32, &[3_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat()),
        field(0x4a, &[value, key].concat()), // the value before the key
        number(0x21, 10),
        number(0x19, NOW),
        vec![0x7d, 1, 2, 3, 4], // an unknown field of 32 bits
    ]
    .concat();
    // temporality, points, name
    let histogram = [vec![0x10, 2], field(0x0a, &point)].concat();
    let metric = [field(0x4a, &histogram), field(0x0a, b"h")].concat();
    let attribute = field(0x0a, &[field(0x0a, b"service.name"), field(0x12, &field(0x0a, b"shop"))].concat());
    // the resource behind its metrics, in two pieces
    let second =
        field(0x0a, &[field(0x0a, b"service.instance.id"), field(0x12, &field(0x0a, b"i"))].concat());
    let resource_metrics =
        [field(0x12, &field(0x12, &metric)), field(0x0a, &attribute), field(0x0a, &second)].concat();
    let batch = decode_bytes(Media::Protobuf, &field(0x0a, &resource_metrics)).unwrap();
    let found = translated(&batch);
    let series: Vec<_> =
        found.series.iter().map(|(series, samples)| (&**series, f64::from_bits(samples[0].1))).collect();
    let labels = r#"instance="i", job="shop", k="v""#;
    let expected = [
        (format!(r#"h_bucket{{{labels}, le="+Inf"}}"#), 10.0),
        (format!(r#"h_bucket{{{labels}, le="0.5"}}"#), 1.0),
        (format!(r#"h_bucket{{{labels}, le="1"}}"#), 3.0),
        (format!("h_count{{{labels}}}"), 10.0),
    ];
    assert_eq!(series, expected.each_ref().map(|(series, value)| (&**series, *value)));
}

#[test]
fn every_truncation_and_damage() {
    let mut rng = Rng::announced();
    let whole = request_of(
        vec![text("service.name", "shop"), text("host", "h")],
        vec![gauge("a", vec![text("k", "v"), attribute("n", Value::Int(7))], 1.0)],
    );
    let bytes = whole.encode_to_vec();
    for end in 0..bytes.len() {
        let decoded = decode_bytes(Media::Protobuf, &bytes[..end]);
        assert_eq!(decoded.is_ok(), end == 0, "{end} of {}", bytes.len());
    }
    let (mut decoder, mut read) = (Decoder::new(1), 0);
    for _ in 0..stdx::damage::mutations(20_000) {
        let mut bytes = bytes.clone();
        damage(&mut bytes, &mut rng);
        let Ok(message) = Request::decode(&*bytes) else { continue };
        read += 1;
        let found = decode_with(&mut decoder, Media::Protobuf, &Translation::default(), &bytes);
        let points = message.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        let points = points.flat_map(|scope| &scope.metrics).map(|metric| match &metric.data {
            Some(Data::Gauge(Gauge { points }) | Data::Sum(Sum { points, .. })) => points.len(),
            Some(Data::Histogram(histogram)) => histogram.points.len(),
            Some(Data::Exponential(histogram)) => histogram.points.len(),
            Some(Data::Summary(summary)) => summary.points.len(),
            None => 0,
        });
        match found {
            Ok(batch) => assert_eq!(batch.points as usize, points.sum::<usize>(), "{bytes:x?}"),
            // prost skips groups, and accepts that the points of a metric are in two messages
            Err(DecodeError::Wire(_)) => {}
            Err(error) => panic!("only prost accepts it: {error}: {bytes:x?}"),
        }
    }
    assert!(read > 200, "prost accepts too few of the damaged messages");
}

#[test]
fn deltas_that_cannot_be_added_are_refused() {
    let point = |value| NumberPoint { time: NOW, value: Some(value), ..NumberPoint::default() };
    let sum = |name: &str, value, is_monotonic| {
        let data = Some(Data::Sum(Sum { points: vec![point(value)], temporality: 1, is_monotonic }));
        Metric { name: name.into(), data, ..Metric::default() }
    };
    let histogram =
        HistogramPoint { time: NOW, sum: Some(f64::NAN), bounds: vec![1.0], ..HistogramPoint::default() };
    let histogram = Histogram { points: vec![histogram], temporality: 1 };
    let exponential = ExponentialPoint { time: NOW, sum: Some(f64::NAN), ..ExponentialPoint::default() };
    let exponential = Exponential { points: vec![exponential], temporality: 1 };
    let named = |name: &str, data| Metric { name: name.into(), data: Some(data), ..Metric::default() };
    let batch = decode(&request_of(
        vec![],
        vec![
            sum("up", Number::Int(1), true),
            sum("down", Number::Int(-1), true),
            sum("both", Number::Int(-1), false),
            sum("infinite", Number::Double(f64::INFINITY), false),
            named("took", Data::Histogram(histogram)),
            named("exponential", Data::Exponential(exponential)),
        ],
    ));
    let expected = [
        (SeriesRefusal::NegativeIncrement, "down_total{}"),
        (SeriesRefusal::IncrementNotFinite, "infinite{}"),
        (SeriesRefusal::IncrementNotFinite, "took{}"),
        (SeriesRefusal::IncrementNotFinite, "exponential{}"),
    ];
    assert_eq!(refusals(&batch), expected.map(|(refusal, labels)| (refusal, labels.to_owned())));
    assert_eq!(translated(&batch).increments.keys().collect::<Vec<_>>(), ["both{}", "up_total{}"]);
}

#[test]
fn a_histogram_with_other_bounds_has_another_layout() {
    let layouts = |bounds: &[f64]| {
        let (bounds, counts) = (bounds.to_vec(), vec![0; bounds.len() + 1]);
        let point = HistogramPoint { time: NOW, sum: Some(0.0), bounds, counts, ..HistogramPoint::default() };
        let data = Some(Data::Histogram(Histogram { points: vec![point], temporality: 1 }));
        let batch =
            decode(&request_of(vec![], vec![Metric { name: "took".into(), data, ..Metric::default() }]));
        assert_eq!(batch.floats.increments.len(), batch.floats.series.len());
        let layouts: Vec<_> = batch.floats.increments.iter().map(|i| i.increment.layout).collect();
        assert!(layouts.iter().all(|layout| *layout == layouts[0]), "{layouts:?}");
        layouts[0]
    };
    let all = [layouts(&[]), layouts(&[1.0]), layouts(&[1.0, 2.0]), layouts(&[1.0, 2.5])];
    assert!(
        all.iter().all(|layout| *layout != 0 && all.iter().filter(|other| *other == layout).count() == 1)
    );
    assert_eq!(layouts(&[1.0]), all[1]);
}
