//! For each kind of invalid input, checks the error, and that the valid series of the same request are
//! accepted.

use crate::plenty;
use crate::proto::{self, Histogram, pack, v1, v2};
use model::caps::{REQUEST_SAMPLES_MAX, REQUEST_SERIES_MAX};
use model::{Batch, ErrorKind, LabelsBuilder, SeriesRefusal};
use protocol::labels::labels_of;
use protocol::remote_write::{Decoder, Version};
use protocol::{Body, DecodeError, Decoder as _, Fault, WireError};

fn label(name: &str, value: &str) -> v1::Label {
    v1::Label { name: name.into(), value: value.into() }
}

fn series(labels: &[(&str, &str)]) -> v1::TimeSeries {
    v1::TimeSeries {
        labels: labels.iter().map(|(n, v)| label(n, v)).collect(),
        samples: vec![v1::Sample { value: 1.0, timestamp: 1_795_276_800_000 }],
        ..v1::TimeSeries::default()
    }
}

fn request(timeseries: Vec<v1::TimeSeries>) -> Vec<u8> {
    proto::body(&v1::WriteRequest { timeseries, metadata: Vec::new() })
}

fn decode(version: Version, body: &[u8]) -> Result<Batch, DecodeError> {
    let mut batch = Batch::default();
    let decoded = Decoder::new(1).decode(crate::request(version, body), &mut batch, &mut plenty());
    if decoded.is_err() {
        assert_eq!((batch.floats.series.len(), batch.floats.timestamps.len(), batch.bytes.len()), (0, 0, 0));
    }
    decoded.map(|()| batch)
}

/// Returns the labels of each series as text, or the error of [`labels_of`] if they are invalid.
fn resolve(batch: &Batch) -> Vec<Result<String, SeriesRefusal>> {
    let mut builder = LabelsBuilder::new();
    let labels = |s| labels_of(batch.label_bytes(s), &mut builder).map(|l| l.to_string());
    batch.floats.series.iter().map(labels).collect()
}

#[test]
fn bodies_that_are_no_message() {
    let check = |version, body: &[u8], kind, text: &str| {
        let error = decode(version, body).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
    };
    let good = request(vec![series(&[("__name__", "up")])]);
    let both = [Version::V1, Version::V2];
    for version in both {
        check(version, b"", ErrorKind::Invalid, "invalid snappy block: no valid length at the start");
        check(
            version,
            b"{\"not\": \"snappy\"}",
            ErrorKind::Invalid,
            "invalid snappy block: damaged or truncated",
        );
        check(
            version,
            &good[..good.len() - 1],
            ErrorKind::Invalid,
            "invalid snappy block: damaged or truncated",
        );
        // small bodies that declare 1 GiB and 60 MiB
        check(
            version,
            b"\x80\x80\x80\x80\x04\x00\x00\x00\x00\x00",
            ErrorKind::TooLarge,
            "body decompresses to at least 1073741824 bytes, the limit is 67108864",
        );
        check(
            version,
            b"\x80\x80\x80\x1e\x00\x00\x00\x00\x00\x00",
            ErrorKind::Invalid,
            "invalid snappy block: declared length is larger than the body can expand to",
        );
        check(
            version,
            &vec![0; (16 << 20) + 1],
            ErrorKind::TooLarge,
            "compressed body has 16777217 bytes, the limit is 16777216",
        );
        let wire = |message: &[u8], text| check(version, &pack(message), ErrorKind::Invalid, text);
        wire(b"\x0a", "invalid protobuf at byte 1: truncated varint");
        wire(b"\x00", "invalid protobuf at byte 0: field number out of range");
        wire(b"\x0b\x0c", "invalid protobuf at byte 0: group or unknown wire type");
        wire(b"\x2a\x02\x12", "invalid protobuf at byte 1: length beyond the end of the message");
        wire(b"\x31\x01\x02", "invalid protobuf at byte 1: truncated fixed-size number");
        wire(
            b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "invalid protobuf at byte 1: varint of more than 64 bits",
        );
    }
    let mut garbage = proto::unpack::<v1::WriteRequest>(&good);
    garbage.timeseries.truncate(1);
    let mut message = prost::Message::encode_to_vec(&garbage);
    message.push(0xff);
    let at = message.len() - 1;
    let error = decode(Version::V1, &pack(&message)).unwrap_err();
    assert_eq!(error, DecodeError::Wire(WireError { offset: at, fault: Fault::TruncatedVarint }));
}

#[test]
fn every_truncation_of_a_message() {
    let whole = request(vec![series(&[("__name__", "up"), ("job", "x")]); 2]);
    let message = snap::raw::Decoder::new().decompress_vec(&whole).unwrap();
    for end in 1..message.len() {
        let decoded = decode(Version::V1, &pack(&message[..end]));
        // a cut between the two series leaves a valid message
        assert_eq!(decoded.is_ok(), end == message.len() / 2, "{end} of {}", message.len());
    }
}

#[test]
fn a_field_of_ours_with_another_type() {
    // a known field of the request, of a series or of a sample is a varint, which is the wrong wire type for
    // it
    for message in [&b"\x08\x01"[..], b"\x0a\x02\x10\x01", b"\x0a\x04\x12\x02\x08\x01"] {
        let error = decode(Version::V1, &pack(message)).unwrap_err();
        assert!(matches!(error, DecodeError::Wire(WireError { fault: Fault::Mismatch, .. })), "{error}");
    }
}

#[test]
fn bad_labels_leave_out_one_series() {
    let large = "v".repeat(10 << 20);
    let many: Vec<String> = (0..1000).map(|i| format!("l{i:04}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "x")).chain([("__name__", "m")]).collect();
    let wide: Vec<String> = (0..5).map(|i| format!("w{i}{}", "w".repeat(15_000))).collect();
    let wide: Vec<(&str, &str)> =
        wide.iter().map(|v| (&v[..2], v.as_str())).chain([("__name__", "m")]).collect();
    let mut check = Vec::new();
    let mut expect = |labels: &[(&str, &str)], expected: Result<&str, SeriesRefusal>| {
        check.push((series(labels), expected.map(str::to_owned)));
    };
    expect(&[("__name__", "up"), ("job", "x")], Ok("up{job=\"x\"}"));
    expect(&[("job", "x"), ("__name__", "up"), ("a", "")], Ok("up{job=\"x\"}"));
    expect(&[("job", "x")], Err(SeriesRefusal::NoName));
    expect(&[], Err(SeriesRefusal::NoName));
    expect(&[("__name__", "")], Err(SeriesRefusal::NoName));
    expect(&[("__name__", "up"), ("a", "1"), ("a", "2")], Err(SeriesRefusal::DuplicateLabel("a".into())));
    expect(&[("__name__", "up"), ("", "1")], Err(SeriesRefusal::EmptyLabelName));
    expect(
        &[("__name__", "up"), ("big", &large)],
        Err(SeriesRefusal::LabelValueTooLong("big".into(), large.len())),
    );
    expect(&[("__name__", "up"), (&large[..2000], "x")], Err(SeriesRefusal::LabelNameTooLong(2000)));
    expect(&many, Err(SeriesRefusal::TooManyLabels(1001)));
    expect(&wide, Err(SeriesRefusal::LabelsTooLong(5 * 15_002 + 10 + 9)));
    expect(&[("__name__", "down")], Ok("down{}"));

    let (series, expected): (Vec<_>, Vec<_>) = check.into_iter().unzip();
    let batch = decode(Version::V1, &request(series)).unwrap();
    assert_eq!(resolve(&batch), expected);
    assert_eq!(batch.floats.timestamps.len(), expected.len());
}

#[test]
fn labels_that_are_not_text_or_not_labels() {
    let check = |raw: &[u8], expected: SeriesRefusal| {
        assert_eq!(labels_of(raw, &mut LabelsBuilder::new()), Err(expected), "{raw:x?}");
    };
    check(b"\x0a\x06\x0a\x01\xff\x12\x01x", SeriesRefusal::NotUtf8);
    check(b"\x0a\x06\x0a\x01a\x12\x01\xff", SeriesRefusal::NotUtf8);
    check(b"\x0a\x05\x0a\x01a", SeriesRefusal::DamagedLabels(1));
    check(b"\x0a\x04\x0a\x03ab", SeriesRefusal::DamagedLabels(3));
    check(b"\x0a\x02\x0a", SeriesRefusal::DamagedLabels(1));
    check(b"\x0a\x02\x08\x01", SeriesRefusal::DamagedLabels(3));
    check(b"\xff", SeriesRefusal::DamagedLabels(0));
    // the labels are valid but not canonical: the value comes before the name, a field is unknown, and a
    // length takes two bytes
    let raw = b"\x0a\x8f\x00\x12\x02up\x0a\x08__name__\x18\x01";
    let raw = [&raw[..1], &[0x90, 0x00], &raw[3..]].concat();
    let labels = labels_of(&raw, &mut LabelsBuilder::new()).unwrap();
    assert_eq!(labels.to_string(), "up{}");
}

#[test]
fn labels_and_samples_mixed() {
    // a series whose fields are a label, a sample, and another label
    let (a, b) = (series(&[("__name__", "up")]), series(&[("job", "x")]));
    let inner = |s: &v1::TimeSeries| prost::Message::encode_to_vec(s);
    let merged = [inner(&a), inner(&b)].concat();
    let other = inner(&series(&[("__name__", "up"), ("job", "x")]));
    let mut message = Vec::new();
    for s in [merged, other] {
        message.extend([0x0a, s.len() as u8]);
        message.extend(s);
    }
    let batch = decode(Version::V1, &pack(&message)).unwrap();
    assert_eq!(resolve(&batch), [Ok("up{job=\"x\"}".into()), Ok("up{job=\"x\"}".into())]);
    assert_eq!(batch.floats.series[0].key, batch.floats.series[1].key);
    assert_eq!(
        (batch.floats.series[0].samples.clone(), batch.floats.series[1].samples.clone()),
        (0..2, 2..3)
    );
}

#[test]
fn floods_are_bounded() {
    let check = |version, message: Vec<u8>, what, limit| {
        let error = decode(version, &pack(&message)).unwrap_err();
        assert_eq!(error, DecodeError::TooMany { what, limit });
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    };
    let empty_series = b"\x0a\x00".repeat(REQUEST_SERIES_MAX + 1);
    check(Version::V1, empty_series, "series", REQUEST_SERIES_MAX);
    let empty_series = b"\x2a\x00".repeat(REQUEST_SERIES_MAX + 1);
    check(Version::V2, empty_series, "series", REQUEST_SERIES_MAX);
    let field = |tag: u8, content: &[u8]| {
        let mut len = content.len();
        let mut out = vec![tag];
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        [out, content.to_vec()].concat()
    };
    let empty_samples = b"\x12\x00".repeat(REQUEST_SAMPLES_MAX + 1);
    check(Version::V1, field(0x0a, &empty_samples), "samples", REQUEST_SAMPLES_MAX);
    check(Version::V2, field(0x2a, &empty_samples), "samples", REQUEST_SAMPLES_MAX);
    check(Version::V2, b"\x22\x00".repeat(2_000_001), "symbols", 2_000_000);
    check(Version::V1, field(0x0a, &b"\x1a\x00".repeat(250_001)), "exemplars", 250_000);
    check(Version::V1, b"\x1a\x03\x12\x01m".repeat(250_001), "metadata entries", 250_000);
    // 6,000 series refer to the same 12 KiB of labels
    let name = field(0x22, b"__name__");
    let value = field(0x22, &[b'v'; 12 << 10]);
    let one = field(0x2a, b"\x0a\x02\x01\x02\x12\x00");
    let unfolding = [b"\x22\x00".to_vec(), name, value, one.repeat(6000)].concat();
    check(Version::V2, unfolding, "bytes of labels", 64 << 20);
}

#[test]
fn empty_series_cost_nothing() {
    let body = pack(&b"\x0a\x00".repeat(REQUEST_SERIES_MAX));
    assert!(body.len() < 30_000 && Body::snappy(&body).decoded_len() == Ok(Some(2 * REQUEST_SERIES_MAX)));
    let batch = decode(Version::V1, &body).unwrap();
    assert_eq!(batch.floats.series.len(), 0);
    assert!(batch.memory_bytes() < (1 << 20) + 2 * REQUEST_SERIES_MAX);
    let body = pack(&b"\x2a\x00".repeat(REQUEST_SERIES_MAX));
    let batch = decode(Version::V2, &body).unwrap();
    assert_eq!((batch.floats.series.len(), batch.refused_series), (0, REQUEST_SERIES_MAX as u64));
    assert!(batch.refused.len() <= Batch::REFUSED_KEPT_MAX && batch.memory_bytes() < 1 << 20);
}

#[test]
fn native_histograms_are_refused_and_samples_beside_them_kept() {
    let histogram = Histogram { count_int: 3, timestamp: 1, ..Histogram::default() };
    let mixed = v1::TimeSeries { histograms: vec![histogram.clone(); 2], ..series(&[("__name__", "a")]) };
    let only = v1::TimeSeries { samples: Vec::new(), ..mixed.clone() };
    let batch = decode(Version::V1, &request(vec![mixed, only])).unwrap();
    assert_eq!((batch.floats.series.len(), batch.floats.timestamps.len()), (1, 1));
    assert_eq!((batch.refused_series, batch.refused_samples, batch.refused_histograms), (2, 0, 4));
    assert_eq!(batch.refused[0].0, SeriesRefusal::NativeHistograms(2));
    let labels = batch.refused[1].1.clone();
    let labels = &batch.bytes[labels.start as usize..labels.end as usize];
    assert_eq!(protocol::labels::describe_labels(labels), "a{}");

    let mixed = v2::TimeSeries {
        labels_refs: vec![1, 2],
        samples: vec![v2::Sample::default()],
        histograms: vec![histogram],
        ..v2::TimeSeries::default()
    };
    let only = v2::TimeSeries { samples: Vec::new(), ..mixed.clone() };
    let symbols = vec![String::new(), "__name__".into(), "a".into()];
    let batch =
        decode(Version::V2, &proto::body(&v2::Request { symbols, timeseries: vec![mixed, only] })).unwrap();
    assert_eq!((batch.floats.series.len(), batch.floats.timestamps.len()), (1, 1));
    assert_eq!((batch.refused_series, batch.refused_samples, batch.refused_histograms), (2, 0, 2));
}

#[test]
fn bad_references_leave_out_one_series() {
    let symbols = ["", "__name__", "up", "job", "x", &"v".repeat(16 << 10)].map(String::from).to_vec();
    let one = |labels_refs: Vec<u32>| v2::TimeSeries {
        labels_refs,
        samples: vec![v2::Sample { value: 2.0, timestamp: 5, start_timestamp: 0 }],
        ..v2::TimeSeries::default()
    };
    let exemplar = v2::Exemplar { labels_refs: vec![3, 4], value: 1.0, timestamp: 2 };
    let bad_exemplar = v2::Exemplar { labels_refs: vec![3], ..exemplar.clone() };
    let timeseries = vec![
        one(vec![1, 2, 3, 4]),
        one(vec![1, 2, 3]),
        one(vec![1, 2, 3, 6]),
        one(vec![1, 2, u32::MAX, 4]),
        one([1, 2].repeat(129)),
        one([vec![1, 2], [3, 5].repeat(5)].concat()),
        v2::TimeSeries { samples: Vec::new(), ..one(vec![1, 2]) },
        v2::TimeSeries {
            metadata: Some(v2::Metadata { kind: 1, help_ref: 9, unit_ref: 0 }),
            ..one(vec![1, 2])
        },
        v2::TimeSeries { exemplars: vec![exemplar.clone(), bad_exemplar], ..one(vec![1, 2, 3, 4]) },
        v2::TimeSeries { exemplars: vec![exemplar.clone()], ..one(vec![1, 2, 3]) },
        v2::TimeSeries { samples: Vec::new(), exemplars: vec![exemplar], ..one(vec![1, 2]) },
        one(vec![1, 2]),
    ];
    let batch = decode(Version::V2, &proto::body(&v2::Request { symbols, timeseries })).unwrap();
    let errors: Vec<_> = batch.refused.iter().map(|(e, _)| e.clone()).collect();
    assert_eq!(
        errors,
        [
            SeriesRefusal::OddLabelRefs(3),
            SeriesRefusal::SymbolOutOfRange(6, 6),
            SeriesRefusal::SymbolOutOfRange(u32::MAX, 6),
            SeriesRefusal::TooManyLabels(129),
            SeriesRefusal::LabelsTooLong(10 + 5 * (3 + (16 << 10))),
            SeriesRefusal::NoSamples,
            SeriesRefusal::SymbolOutOfRange(9, 6),
            SeriesRefusal::OddLabelRefs(3),
        ]
    );
    assert_eq!((batch.refused_series, batch.refused_samples, batch.refused_exemplars), (8, 7, 2));
    let up = |text: &str| Ok::<_, SeriesRefusal>(text.to_owned());
    assert_eq!(resolve(&batch), [up("up{job=\"x\"}"), up("up{job=\"x\"}"), up("up{}"), up("up{}")]);
    assert_eq!(batch.floats.timestamps, [5, 5, 5]);
    assert_eq!(batch.floats.exemplars.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn exemplars_with_long_labels_are_left_out() {
    // the first exemplar is allowed: its texts have 128 characters, although they have more bytes
    let values = ["é".repeat(120), "é".repeat(121), "short".to_owned()];
    let exemplar =
        |value: &String| v1::Exemplar { labels: vec![label("trace_id", value)], value: 1.0, timestamp: 2 };
    let exemplars = values.iter().map(exemplar).collect();
    let request = request(vec![v1::TimeSeries { exemplars, ..series(&[("__name__", "up")]) }]);
    check(&decode(Version::V1, &request).unwrap(), &values);

    let symbols: Vec<_> = ["", "__name__", "up", "trace_id"].map(String::from).to_vec();
    let exemplar = |value| v2::Exemplar { labels_refs: vec![3, value], value: 1.0, timestamp: 2 };
    let series = v2::TimeSeries {
        labels_refs: vec![1, 2],
        exemplars: (4..7).map(exemplar).collect(),
        ..v2::TimeSeries::default()
    };
    let symbols = [symbols, values.to_vec()].concat();
    let request = proto::body(&v2::Request { symbols, timeseries: vec![series] });
    check(&decode(Version::V2, &request).unwrap(), &values);

    fn check(batch: &Batch, values: &[String; 3]) {
        let kept: Vec<_> =
            batch.floats.exemplars.iter().map(|(_, e)| e.labels.get("trace_id").unwrap()).collect();
        assert_eq!(kept, [&values[0], &values[2]]);
        assert_eq!((batch.floats.series.len(), batch.refused_series, batch.refused_exemplars), (1, 0, 1));
    }
}

#[test]
fn a_series_behind_a_refused_one_keeps_its_labels() {
    let symbols = ["", "__name__", "up", "down", "job", "x"].map(String::from).to_vec();
    let one = |name, help_ref| v2::TimeSeries {
        labels_refs: vec![1, name, 4, 5],
        samples: vec![v2::Sample::default()],
        metadata: Some(v2::Metadata { kind: 1, help_ref, unit_ref: 0 }),
        ..v2::TimeSeries::default()
    };
    // the labels of the second series are already in the batch when its metadata turns out to be invalid
    let timeseries = vec![one(2, 0), one(3, 99), one(2, 0), one(3, 0)];
    let batch = decode(Version::V2, &proto::body(&v2::Request { symbols, timeseries })).unwrap();
    assert_eq!(batch.refused_series, 1);
    let expected = ["up{job=\"x\"}", "up{job=\"x\"}", "down{job=\"x\"}"];
    assert_eq!(resolve(&batch), expected.map(|text| Ok(text.to_owned())));
}

#[test]
fn symbol_tables() {
    let series = b"\x2a\x08\x0a\x02\x01\x02\x12\x02\x10\x05".to_vec();
    let symbols = b"\x22\x00\x22\x08__name__\x22\x02up".to_vec();
    let ok = |message: Vec<u8>| resolve(&decode(Version::V2, &pack(&message)).unwrap());
    // the symbols come after the series, then both before and after it
    assert_eq!(ok([series.clone(), symbols.clone()].concat()), [Ok("up{}".into())]);
    let around = [&symbols[..2], &series, &symbols[2..], &series].concat();
    assert_eq!(ok(around), [Ok("up{}".into()), Ok("up{}".into())]);
    // references may be unpacked, in several fields, or encoded with needless bytes
    let one_by_one = b"\x2a\x08\x08\x01\x12\x02\x10\x05\x08\x02".to_vec();
    let pieces = b"\x2a\x0a\x0a\x01\x01\x12\x02\x10\x05\x0a\x01\x02".to_vec();
    let needless = b"\x2a\x09\x0a\x03\x01\x82\x00\x12\x02\x10\x05".to_vec();
    for other in [one_by_one, pieces, needless] {
        let message = [symbols.clone(), series.clone(), other, series.clone()].concat();
        let batch = decode(Version::V2, &pack(&message)).unwrap();
        assert_eq!(resolve(&batch), vec![Ok("up{}".into()); 3]);
        assert!(batch.floats.series.iter().all(|s| s.key == batch.floats.series[0].key));
    }
    // a reference is split over two fields
    let message = [symbols.clone(), b"\x2a\x06\x0a\x01\x81\x0a\x01\x01".to_vec()].concat();
    assert_eq!(decode(Version::V2, &pack(&message)).unwrap_err().kind(), ErrorKind::Invalid);
    // a symbol table that does not start with the empty string, then a request without symbols
    let error = decode(Version::V2, &pack(&symbols[2..])).unwrap_err();
    assert_eq!(error.to_string(), "the first symbol has 8 bytes, it must be the empty string");
    let batch = decode(Version::V2, &pack(&series)).unwrap();
    assert_eq!(batch.refused[0].0, SeriesRefusal::SymbolOutOfRange(1, 0));
}

#[test]
fn the_other_versions_message_is_refused() {
    let v1 = request(vec![series(&[("__name__", "up")])]);
    let v1_metadata = pack(b"\x1a\x05\x12\x03foo");
    let v2 = pack(b"\x22\x00\x22\x08__name__\x22\x02up\x2a\x08\x0a\x02\x01\x02\x12\x02\x10\x05");
    for (version, body, other) in [
        (Version::V2, &v1, "proto=prometheus.WriteRequest"),
        (Version::V2, &v1_metadata, "proto=prometheus.WriteRequest"),
        (Version::V1, &v2, "proto=io.prometheus.write.v2.Request"),
    ] {
        let error = decode(version, body).unwrap_err();
        assert!(matches!(error, DecodeError::OtherMessage { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().ends_with(other), "{error}");
    }
    // unknown fields are ignored if there are also known ones; a message without fields is valid
    let unknown = b"\x7a\x03new";
    let plain = |body: &[u8]| snap::raw::Decoder::new().decompress_vec(body).unwrap();
    for (version, body, known) in
        [(Version::V1, &v1, 1), (Version::V2, &v2, 1), (Version::V1, &v1_metadata, 0)]
    {
        for message in [[unknown, &plain(body)[..]].concat(), [&plain(body)[..], unknown].concat()] {
            let later = decode(version, &pack(&message));
            assert_eq!(later.unwrap().floats.series.len(), known, "{version:?}");
        }
    }
    for version in [Version::V1, Version::V2] {
        assert!(decode(version, &pack(b"")).unwrap().floats.series.is_empty());
        assert!(decode(version, &pack(unknown)).is_err());
    }
    assert!(decode(Version::V2, &pack(b"\x22\x00")).unwrap().floats.series.is_empty(), "symbols alone");
}

#[test]
fn a_decoder_frees_memory_after_a_flood() {
    let mut decoder = Decoder::new(1);
    let mut batch = Batch::default();
    let flood = pack(&b"\x22\x00".repeat(1_500_000));
    decoder.decode(crate::request(Version::V2, &flood), &mut batch, &mut plenty()).unwrap();
    assert!(decoder.memory_bytes() <= Decoder::KEPT_BYTES_MAX);
    let good = request(vec![series(&[("__name__", "up")])]);
    decoder.decode(crate::request(Version::V1, &good), &mut batch, &mut plenty()).unwrap();
    assert_eq!(batch.floats.series.len(), 1);
}
