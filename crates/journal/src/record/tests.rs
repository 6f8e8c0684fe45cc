use super::*;
use expect_test::{Expect, expect};
use model::accumulator::Piece;
use model::exponential::{Exponential, ExponentialSum, Side};
use model::histogram::{CounterReset, Counts, HistogramParts, Layout, Span};
use model::{Histogram, Labels, MetricKind, TimeRange, ValueKind};
use proptest::prelude::*;
use std::sync::Arc;
use stdx::rng::Rng;

#[derive(Debug, Clone, PartialEq, Default)]
struct Content {
    kind: ValueKind,
    definitions: Vec<(u32, Labels)>,
    /// For each sample: the series' reference, the timestamp, and the bits of the value, or of the sum if it
    /// is a histogram.
    samples: Vec<(u32, i64, u64)>,
    metadata: Vec<Metadata>,
    exemplars: Vec<(SeriesRef, Exemplar)>,
    sums: Vec<(SeriesKey, Accumulator)>,
    forgotten_ns: u64,
}

impl Content {
    fn encode(&self, tenant: &TenantId, encoder: &mut RecordEncoder) -> Vec<u8> {
        encoder.begin_of(tenant, self.kind);
        for (series, labels) in &self.definitions {
            encoder.define(SeriesRef(*series), labels.as_ref());
        }
        for (series, timestamp_ms, bits) in &self.samples {
            let (series, value) = (SeriesRef(*series), f64::from_bits(*bits));
            match self.kind {
                ValueKind::Float => encoder.sample(series, *timestamp_ms, value),
                ValueKind::Histogram => encoder.histogram(series, *timestamp_ms, &histogram_of(value)),
            }
        }
        self.metadata.iter().for_each(|m| encoder.metadata(m));
        self.exemplars.iter().for_each(|(series, e)| encoder.exemplar(*series, e));
        if !self.sums.is_empty() || self.forgotten_ns > 0 {
            encoder.forgotten(self.forgotten_ns);
        }
        self.sums.iter().for_each(|(key, sum)| encoder.sum(*key, sum));
        encoder.finish().to_vec()
    }

    fn of(record: &Record) -> Self {
        let bits: Vec<u64> = match &record.values {
            Values::Floats(values) => values.iter().map(|value| value.to_bits()).collect(),
            Values::Histograms(values) => values
                .iter()
                .map(|value| {
                    let sum = value.parts().sum;
                    assert_eq!(*value, histogram_of(sum));
                    sum.to_bits()
                })
                .collect(),
        };
        let samples = record.refs.iter().zip(&record.timestamps).zip(bits);
        Self {
            kind: record.values.kind(),
            definitions: record.definitions.iter().map(|(r, l)| (r.0, l.to_owned())).collect(),
            samples: samples.map(|((r, t), bits)| (r.0, *t, bits)).collect(),
            metadata: record.metadata.clone(),
            exemplars: record.exemplars.clone(),
            sums: record.sums.clone(),
            forgotten_ns: record.forgotten_ns,
        }
    }
}

fn histogram_of(sum: f64) -> Histogram {
    let buckets = (sum.to_bits() >> 50) as u32 % 4;
    let spans = vec![Span { offset: -3, length: buckets }];
    let layout = Layout { schema: 2, zero_threshold: 0.25, positive: spans, ..Layout::default() };
    let counts = Counts::Whole((0..u64::from(buckets) + 2).map(|i| i * 100).collect());
    Histogram::new(&HistogramParts { reset: CounterReset::No, layout, counts, sum }).unwrap()
}

fn labels(i: usize) -> Labels {
    let (name, pod, le) = (format!("metric_{}", i % 50), format!("pod-{}", i / 50), (i % 7).to_string());
    let mut pairs = vec![("__name__", name.as_str()), ("job", "checkout"), ("pod", pod.as_str())];
    if i.is_multiple_of(3) {
        pairs.push(("le", &le));
    }
    Labels::from_pairs(&pairs)
}

fn metadata() -> Metadata {
    let text = |t: &str| t.to_string();
    Metadata { metric: text("up"), kind: MetricKind::Gauge, help: text("Is it?"), unit: String::new() }
}

fn exemplar(value: f64) -> Exemplar {
    Exemplar { labels: Labels::from_pairs(&[("trace_id", "abc")]), timestamp_ms: -5, value }
}

fn sums() -> Vec<(SeriesKey, Accumulator)> {
    let plain =
        Accumulator { end_ns: 1_700_000_000_000_000_000, sum: 2.5, newest: 0.5, ..Accumulator::new(90, 0) };
    let pieces =
        [Piece { start_ns: 110, end_ns: 120, sum: 3.0 }, Piece { start_ns: 120, end_ns: 400, sum: 4.0 }];
    let with_pieces = Accumulator { pieces: pieces.into(), end_ns: 100, layout: u32::MAX, ..plain.clone() };
    vec![(SeriesKey(1), plain), (SeriesKey(u128::MAX), with_pieces)]
}

/// Among them is an exponential histogram.
fn sums_of_histograms() -> Vec<(SeriesKey, Accumulator)> {
    let increment = Exponential {
        scale: -1,
        zero_threshold: 0.25,
        zero: 3,
        positive: Side::new(-2, &[1, 0, 300]),
        negative: Side::new(5, &[2]),
        count: 307,
        sum: Some(1.5),
    };
    let base = Exponential { scale: 3, sum: None, negative: Side::default(), ..increment.clone() };
    let latest = vec![(120, Arc::new(increment)), (400, Arc::default())];
    let mut sums = sums();
    sums[1].1.exponential = Some(Box::new(ExponentialSum { base: Arc::new(base), latest }));
    sums
}

fn mixed(definitions: usize) -> Content {
    mixed_of(ValueKind::Float, definitions)
}

fn mixed_of(kind: ValueKind, definitions: usize) -> Content {
    Content {
        kind,
        definitions: (0..definitions).map(|i| (i as u32 * 3, labels(i))).collect(),
        samples: (0..definitions)
            .map(|i| (i as u32 * 3, 1000 + i as i64, (i as f64 / 2.0).to_bits()))
            .collect(),
        metadata: vec![metadata(), Metadata::default()],
        exemplars: vec![
            (SeriesRef(3), exemplar(0.25)),
            (SeriesRef(u32::MAX), Exemplar { labels: Labels::empty(), timestamp_ms: i64::MAX, value: 0.0 }),
        ],
        sums: match definitions % 4 {
            0 if kind == ValueKind::Float => sums_of_histograms(),
            2 if kind == ValueKind::Float => sums(),
            _ => Vec::new(),
        },
        forgotten_ns: 0,
    }
}

#[test]
fn round_trips_in_one_encoder_and_one_record() {
    let (mut encoder, mut record) = (RecordEncoder::new(), Record::new());
    let tenants = ["team-a", "team-b", "team-b"].map(|name| TenantId::parse(name).unwrap());
    for definitions in [0, 1, 2, 200, 3] {
        for tenant in &tenants {
            for kind in [ValueKind::Float, ValueKind::Histogram] {
                let content = mixed_of(kind, definitions);
                record.decode(&content.encode(tenant, &mut encoder)).unwrap();
                assert_eq!((&record.tenant, Content::of(&record)), (tenant, content));
            }
        }
    }
    encoder.begin(&tenants[0]);
    assert!(encoder.is_empty() && !encoder.is_full());
    record.decode(encoder.finish()).unwrap();
    assert_eq!(Content::of(&record), Content::default());
}

#[test]
fn label_sets_of_every_size_follow_each_other() {
    let set = |n: usize, from: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("l{:03}", from + i)).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "x")).collect();
        Labels::from_pairs(&[&[("__name__", "m")][..], &pairs].concat())
    };
    let sizes = [0, 127, 0, 1, 7, 8, 9, 63, 64, 65, 126, 127, 127, 3];
    let definitions = sizes.iter().enumerate().map(|(i, n)| (i as u32, set(*n, i % 3))).collect();
    let content = Content { definitions, ..Content::default() };
    let mut record = Record::new();
    record.decode(&content.encode(&TenantId::anonymous(), &mut RecordEncoder::new())).unwrap();
    assert_eq!(Content::of(&record), content);
}

#[test]
fn long_labels_fit() {
    let long = "v".repeat(model::caps::LABEL_VALUE_BYTES_MAX);
    let name = "n".repeat(model::caps::LABEL_NAME_BYTES_MAX);
    let labels = Labels::from_pairs(&[("__name__", &long), (&name, &long)]);
    let content = Content { definitions: vec![(0, labels.clone()), (1, labels)], ..Content::default() };
    let mut record = Record::new();
    let bytes = content.encode(&TenantId::anonymous(), &mut RecordEncoder::new());
    record.decode(&bytes).unwrap();
    assert_eq!(Content::of(&record), content);
    assert!(bytes.len() < 500, "packed: {} bytes", bytes.len());
}

#[test]
fn an_encoder_reports_when_it_is_full() {
    let mut encoder = RecordEncoder::new();
    encoder.begin(&TenantId::anonymous());
    let samples = (0..).take_while(|i| {
        encoder.sample(SeriesRef(7), *i, 0.5);
        !encoder.is_full()
    });
    assert_eq!(samples.count() + 1, FULL_SAMPLES);
    assert_eq!(Record::new().decode(encoder.finish()), Ok(()));

    encoder.begin(&TenantId::anonymous());
    let long = "v".repeat(model::caps::LABEL_VALUE_BYTES_MAX);
    let labels = Labels::from_pairs(&[("__name__", &long), ("a", &long), ("b", &long)]);
    let mut defined = 0;
    while !encoder.is_full() {
        encoder.define(SeriesRef(defined), labels.as_ref());
        defined += 1;
    }
    assert_eq!(defined as usize, FULL_LABEL_BYTES.div_ceil(labels.as_bytes().len()));
    assert_eq!(Record::new().decode(encoder.finish()), Ok(()));
}

fn hex(bytes: &[u8]) -> String {
    let line = |l: &[u8]| l.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ") + "\n";
    bytes.chunks(16).map(line).collect()
}

fn check_bytes(content: &Content, expected: Expect) {
    let bytes = content.encode(&TenantId::parse("t").unwrap(), &mut RecordEncoder::new());
    expected.assert_eq(&hex(&bytes));
    let mut record = Record::new();
    record.decode(&bytes).unwrap();
    assert_eq!(Content::of(&record), *content);
}

/// Users have these bytes on their disks, so a change requires a new format version.
#[test]
fn golden_records() {
    check_bytes(
        &Content::default(),
        expect![[r#"
        01 01 74 00 00 00 00
    "#]],
    );
    let definitions = vec![
        (5, Labels::from_pairs(&[("__name__", "up"), ("job", "a")])),
        (6, Labels::from_pairs(&[("__name__", "up"), ("job", "b")])),
        (7, Labels::from_pairs(&[("__name__", "up")])),
    ];
    let values = [1.0, 300.0, 0.5, -1.0, -300.0, 0.0, f64::from_bits(model::STALE_NAN_BITS)];
    let samples = values.iter().zip(5..).map(|(v, r)| (r, 1_700_000_000_000, v.to_bits())).collect();
    let content = Content {
        kind: ValueKind::Float,
        definitions,
        samples,
        metadata: vec![metadata()],
        exemplars: vec![(SeriesRef(6), exemplar(2.5))],
        ..Content::default()
    };
    check_bytes(
        &content,
        expect![[r#"
        01 01 74 27 00 03 01 02 0a 01 02 02 05 08 02 03
        01 01 5f 5f 6e 61 6d 65 5f 5f 75 70 6a 6f 62 61
        62 02 01 00 01 00 02 02 00 00 01 00 07 01 02 0a
        01 02 06 01 02 80 a0 ab fe f9 62 01 00 06 21 8f
        0a 0f 01 2c 01 00 00 00 00 00 00 e0 3f 2b 01 02
        00 00 00 00 00 f0 7f 01 02 02 75 70 06 49 73 20
        69 74 3f 00 01 06 09 00 00 00 00 00 00 04 40 01
        08 74 72 61 63 65 5f 69 64 03 61 62 63
    "#]],
    );
    let irregular =
        Content { samples: vec![(9, 5, 0), (2, 8, 0), (300, 1, 0), (1, 7, 0)], ..Content::default() };
    check_bytes(
        &irregular,
        expect![[r#"
        01 01 74 00 04 00 12 0d d4 04 d5 04 00 0a 06 0d
        0c 00 00 00 00
    "#]],
    );
    let histograms = Content {
        kind: ValueKind::Histogram,
        samples: vec![(9, 5, 2.5f64.to_bits()), (9, 6, 3.0f64.to_bits())],
        ..Content::default()
    };
    check_bytes(
        &histograms,
        expect![[r#"
        02 01 74 00 02 00 12 00 00 0a 02 1b 04 02 00 00
        00 00 00 00 d0 3f 01 05 01 00 00 00 64 c8 01 00
        00 00 00 00 00 04 40 1d 04 02 00 00 00 00 00 00
        d0 3f 01 05 02 00 00 00 64 c8 01 ac 02 00 00 00
        00 00 00 08 40 00 00
    "#]],
    );
}

#[test]
fn a_record_may_have_only_sums() {
    let content = Content { sums: sums(), forgotten_ns: 300, ..Content::default() };
    check_bytes(
        &content,
        expect![[r#"
        04 01 74 00 00 00 00 ac 02 02 01 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 80 80 a8 b1 e3
        9f e7 cb 17 a6 ff a7 b1 e3 9f e7 cb 17 00 00 00
        00 00 00 04 40 00 00 00 00 00 00 e0 3f 00 ff ff
        ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
        ff ff 0f 64 0a 00 00 00 00 00 00 04 40 00 00 00
        00 00 00 e0 3f 02 0a 0a 00 00 00 00 00 00 08 40
        00 98 02 00 00 00 00 00 00 10 40
    "#]],
    );
    let with_histogram = Content { sums: sums_of_histograms(), forgotten_ns: 300, ..Content::default() };
    check_bytes(
        &with_histogram,
        expect![[r#"
        06 01 74 00 00 00 00 ac 02 02 01 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 80 80 a8 b1 e3
        9f e7 cb 17 a6 ff a7 b1 e3 9f e7 cb 17 00 00 00
        00 00 00 04 40 00 00 00 00 00 00 e0 3f 00 ff ff
        ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
        ff ff 0f 64 0a 00 00 00 00 00 00 04 40 00 00 00
        00 00 00 e0 3f 02 0a 0a 00 00 00 00 00 00 08 40
        00 98 02 00 00 00 00 00 00 10 40 01 01 06 00 00
        00 00 00 00 d0 3f 03 03 03 01 00 ac 02 00 b3 02
        00 02 78 01 00 00 00 00 00 00 d0 3f 03 03 03 01
        00 ac 02 01 0a 02 b3 02 01 00 00 00 00 00 00 f8
        3f 90 03 06 00 00 00 00 00 00 00 00 00 00 00 00
        01 00 00 00 00 00 00 00 00
    "#]],
    );
    let mut record = Record::new();
    for (content, is_only_sums) in [
        (with_histogram, true),
        (content, true),
        (Content { forgotten_ns: 1, ..Content::default() }, true),
        (mixed(2), false),
        (Content::default(), false),
    ] {
        record.decode(&content.encode(&TenantId::anonymous(), &mut RecordEncoder::new())).unwrap();
        assert_eq!(record.is_only_sums(), is_only_sums, "{content:?}");
    }
}

#[test]
fn a_deleted_tenant_is_a_record_without_anything_else() {
    let tenant = TenantId::parse("t").unwrap();
    let mut encoder = RecordEncoder::new();
    encoder.begin(&TenantId::anonymous());
    encoder.metadata(&metadata());
    let bytes = encoder.deleted(&tenant).to_vec();
    expect![[r#"
        03 01 74
    "#]]
    .assert_eq(&hex(&bytes));
    assert!(encoder.is_empty(), "what was begun before is discarded");
    let (mut record, mut outline) = (Record::new(), Outline::new());
    let batch = mixed(9).encode(&TenantId::anonymous(), &mut encoder);
    for _ in 0..2 {
        record.decode(&bytes).unwrap();
        assert_eq!((record.is_deleted, &record.tenant), (true, &tenant));
        assert_eq!(Content::of(&record), Content::default());
        check_outline(&bytes, &record);
        record.decode(&batch).unwrap();
        assert!(!record.is_deleted);
        outline.decode(&bytes, &mut Unlimited).unwrap();
        assert!(outline.is_deleted);
        outline.decode(&batch, &mut Unlimited).unwrap();
        assert!(!outline.is_deleted);
    }
    assert_eq!(
        record.decode(&[&bytes[..], &[0]].concat()),
        Err(RecordError::Malformed("bytes after the end of the record"))
    );
    assert!(record.decode(&bytes[..2]).is_err() && !record.is_deleted);
}

fn deleted_exemplars() -> DeletedExemplars {
    let condition =
        |label: &str, operator, value: &str| Condition { label: label.into(), operator, value: value.into() };
    DeletedExemplars {
        range: TimeRange::new(-1, 300),
        selectors: vec![
            vec![condition("a", Operator::Equal, "é"), condition("b", Operator::NotRegex, "x.*")],
            vec![condition("c", Operator::NotEqual, ""), condition("d", Operator::Regex, "")],
        ],
    }
}

#[test]
fn deleted_exemplars_are_a_record_without_anything_else() {
    let tenant = TenantId::parse("t").unwrap();
    let (mut encoder, deleted) = (RecordEncoder::new(), deleted_exemplars());
    encoder.begin(&TenantId::anonymous());
    encoder.metadata(&metadata());
    let bytes = encoder.deleted_exemplars(&tenant, &deleted).to_vec();
    expect![[r#"
        05 01 74 01 d8 04 02 02 00 01 61 02 c3 a9 03 01
        62 03 78 2e 2a 02 01 01 63 00 02 01 64 00
    "#]]
    .assert_eq(&hex(&bytes));
    assert!(encoder.is_empty(), "what was begun before is discarded");
    let mut record = Record::new();
    let batch = mixed(9).encode(&TenantId::anonymous(), &mut encoder);
    for range in [deleted.range, TimeRange::ALL] {
        let deleted = DeletedExemplars { range, ..deleted.clone() };
        let bytes = encoder.deleted_exemplars(&tenant, &deleted).to_vec();
        record.decode(&bytes).unwrap();
        assert_eq!((&record.deleted_exemplars, &record.tenant), (&Some(deleted), &tenant));
        assert!(Content::of(&record) == Content::default() && !record.is_only_sums() && !record.is_deleted);
        check_outline(&bytes, &record);
        record.decode(&batch).unwrap();
        assert_eq!(record.deleted_exemplars, None);
    }
    for len in 0..bytes.len() {
        assert!(record.decode(&bytes[..len]).is_err() && record.deleted_exemplars.is_none(), "{len} bytes");
    }
    let wrong = |bytes: &[u8]| Record::new().decode(bytes).unwrap_err();
    assert_eq!(
        wrong(&[&bytes[..], &[0]].concat()),
        RecordError::Malformed("bytes after the end of the record")
    );
    let mut unknown = bytes.clone();
    unknown[8] = 4;
    assert_eq!(wrong(&unknown), RecordError::Malformed("an unknown operator of a condition"));
    let no_room = record.decode_within(&bytes, &mut Limited { left: 100 });
    assert!(matches!(no_room, Err(RecordError::NoRoom { .. })), "{no_room:?}");
}

/// Decodes damaged bytes, which must not panic. If the record is accepted, checks that it is valid and
/// returns true.
fn decode_anything(bytes: &[u8], record: &mut Record) -> bool {
    if record.decode(bytes).is_err() {
        assert!(record.refs.is_empty() && record.definitions.is_empty() && record.metadata.is_empty());
        return false;
    }
    assert_eq!(record.refs.len(), record.timestamps.len());
    assert_eq!(record.refs.len(), record.values.len());
    for (_, labels) in record.definitions.iter() {
        assert!(model::labels::is_canonical(labels.as_bytes()));
    }
    check_outline(bytes, record);
    true
}

fn check_outline(bytes: &[u8], record: &Record) {
    let mut outline = Outline::new();
    outline.decode(bytes, &mut Unlimited).unwrap();
    assert_eq!((&outline.tenant, outline.is_deleted), (&record.tenant, record.is_deleted));
    assert_eq!(outline.deletes_exemplars, record.deleted_exemplars.is_some());
    assert!(outline.defined.iter().copied().eq(record.definitions.iter().map(|(series, _)| series)));
    assert_eq!(outline.sampled, record.refs);
    assert!(outline.exemplars.iter().eq(record.exemplars.iter().map(|(series, _)| series)));
}

struct Limited {
    left: usize,
}

impl DecodeMemory for Limited {
    fn reserve(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[test]
fn records_hold_no_more_than_was_reserved() {
    let bytes = mixed(5000).encode(&TenantId::anonymous(), &mut RecordEncoder::new());
    let mut needed = 1 << 10;
    let record = loop {
        let (mut record, mut memory) = (Record::new(), Limited { left: needed });
        match record.decode_within(&bytes, &mut memory) {
            Ok(()) => break record,
            Err(error) => assert!(matches!(error, RecordError::NoRoom { .. }), "{error}"),
        }
        assert!(record.memory_bytes() <= needed, "{} of {needed} bytes", record.memory_bytes());
        assert!(Outline::new().decode(&bytes, &mut Limited { left: 1 << 10 }).is_err());
        needed *= 2;
    };
    assert!((needed / 2..=needed).contains(&record.memory_bytes()), "{} of {needed}", record.memory_bytes());
    // memory that the record already has is not reserved again
    let mut record = record;
    let texts = 64 << 10;
    record.decode_within(&bytes, &mut Limited { left: texts }).unwrap();
}

#[test]
fn damaged_records_never_panic() {
    let seed = 7;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut record = Record::new();
    let encode = |content: Content| content.encode(&TenantId::anonymous(), &mut RecordEncoder::new());
    let floats = [0, 1, 4, 200].map(|n| encode(mixed(n)));
    let histograms = [1, 4, 200].map(|n| encode(mixed_of(ValueKind::Histogram, n)));
    let deleted =
        RecordEncoder::new().deleted_exemplars(&TenantId::anonymous(), &deleted_exemplars()).to_vec();
    let originals = [&floats[..], &histograms, &[deleted]].concat();
    let mut accepted = 0;
    for _ in 0..30_000 {
        let mut bytes = originals[rng.below(originals.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes.truncate(at + 1),
                1 => bytes.insert(at, rng.next_u64() as u8),
                2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
                _ => bytes[at] ^= 1 << rng.below(8),
            }
        }
        accepted += usize::from(decode_anything(&bytes, &mut record));
    }
    assert!(accepted > 0, "damage to values alone must be accepted");
}

#[test]
fn every_truncation_is_refused() {
    let mut record = Record::new();
    for kind in [ValueKind::Float, ValueKind::Histogram] {
        let bytes = mixed_of(kind, 60).encode(&TenantId::anonymous(), &mut RecordEncoder::new());
        for len in 0..bytes.len() {
            assert!(record.decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(record.decode(&longer), Err(RecordError::Malformed("bytes after the end of the record")));
    }
}

#[test]
fn implausible_counts_allocate_no_memory() {
    let header = [VERSION_FLOATS, 1, b't'];
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut record = Record::new();
    let mut check = |rest: &[u8]| {
        assert!(record.decode(&[&header[..], rest].concat()).is_err(), "{rest:x?}");
        assert!(record.memory_bytes() < 1000, "{rest:x?}");
    };
    // counts that are far too large: 2^32 bytes of definitions (not packed, then packed), samples, metadata,
    // exemplars
    check(&huge);
    check(&[&huge[..], &[1, 0]].concat());
    check(&[&[0][..], &huge].concat());
    check(&[&[0, 0][..], &huge].concat());
    check(&[&[0, 0, 0][..], &huge].concat());
    // a few bytes that claim to be two million samples, but there are no bytes for the values
    check(&[0, 0x80, 0x89, 0x7a, 1, 1, 2, 0x80, 0x89, 0x7a, 1, 1, 0, 0x80, 0x89, 0x7a]);
    // a few bytes that claim to be two million histograms, but there are no bytes for them
    let many =
        [&[VERSION_HISTOGRAMS, 1, b't'][..], &[0, 0x80, 0x89, 0x7a, 1, 1, 2, 0x80, 0x89, 0x7a, 1, 1, 0]];
    assert!(Record::new().decode(&many.concat()).is_err());
    for rest in [&[0, 0, 0, 0, 0][..], &[0; 6]] {
        let sums = [&[VERSION_EXPONENTIAL, 1, b't'][..], rest, &huge].concat();
        assert!(record.decode(&sums).is_err() && record.memory_bytes() < 1000);
    }
    let selectors = [&[VERSION_DELETED_EXEMPLARS, 1, b't', 0, 0][..], &huge].concat();
    assert!(record.decode(&selectors).is_err() && record.memory_bytes() < 1000);
    assert_eq!(Record::new().decode(&[7, 1, b't']), Err(RecordError::Version(7)));
    assert_eq!(
        Record::new().decode(&[0, 1, b't']),
        Err(RecordError::Malformed("version 0, which does not exist"))
    );
    assert_eq!(Record::new().decode(&[1, 1, b'/']), Err(RecordError::Malformed("an invalid tenant name")));
}

prop_compose! {
    fn any_labels()(
        pairs in prop::collection::btree_map("[a-z_]{1,6}", "\\PC{1,8}", 0..8),
        name in "[a-z]{1,8}",
    ) -> Labels {
        let mut pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        pairs.retain(|(n, _)| *n != "__name__");
        pairs.push(("__name__", &name));
        Labels::from_pairs(&pairs)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn anything_round_trips(
        definitions in prop::collection::vec((any::<u32>(), any_labels()), 0..40),
        samples: Vec<(u32, i64, u64)>,
        is_float: bool,
    ) {
        let kind = if is_float { ValueKind::Float } else { ValueKind::Histogram };
        let content = Content { kind, definitions, samples, ..Content::default() };
        let bytes = content.encode(&TenantId::anonymous(), &mut RecordEncoder::new());
        let mut record = Record::new();
        record.decode(&bytes).unwrap();
        check_outline(&bytes, &record);
        prop_assert_eq!(Content::of(&record), content);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes: Vec<u8>) {
        decode_anything(&bytes, &mut Record::new());
        bytes.splice(0..0, [VERSION_FLOATS, 1, b't']);
        decode_anything(&bytes, &mut Record::new());
        bytes[0] = VERSION_HISTOGRAMS;
        decode_anything(&bytes, &mut Record::new());
        bytes[0] = VERSION_DELETED;
        decode_anything(&bytes, &mut Record::new());
        bytes[0] = VERSION_DELETED_EXEMPLARS;
        decode_anything(&bytes, &mut Record::new());
    }
}
