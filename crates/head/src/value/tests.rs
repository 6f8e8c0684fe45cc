use super::*;
use crate::chunk::{Chunk, ChunkValue, Full, OpenChunk};
use crate::tenant::TenantHead;
use model::histogram::{CounterReset, Counts, HistogramParts, Layout, Span};
use model::{Labels, Samples, SeriesKey, SeriesSamples, TimeRange, ValueKind, Values};
use proptest::prelude::*;

pub(crate) fn histogram_of(sum: f64) -> Histogram {
    let seed = sum.to_bits() >> 48;
    let length = (seed % 5) as u32;
    let spans = vec![Span { offset: seed as i32 % 7, length }];
    let layout = Layout { schema: 2, positive: spans, ..Layout::default() };
    let count = length as usize + 2;
    let counts = match seed % 11 {
        0 => Counts::Doubles(vec![0.5; count]),
        _ => Counts::Whole((0..count as u64).map(|i| seed * i).collect()),
    };
    Histogram::new(&HistogramParts { reset: CounterReset::No, layout, counts, sum }).unwrap()
}

/// Histograms of a series: mostly of one layout, with growing counts.
fn histograms() -> impl Strategy<Value = Vec<Histogram>> {
    let step = (0u32..40, prop::collection::vec(0u64..1000, 8), any::<f64>());
    prop::collection::vec(step, 0..400).prop_map(|steps| {
        let (mut counts, mut length) = (vec![0u64; 4], 2);
        steps
            .into_iter()
            .map(|(event, grown, sum)| {
                match event {
                    0 => {
                        length = 1 + grown[0] as u32 % 6;
                        counts = vec![0; length as usize + 2];
                    }
                    1 => counts.fill(u64::MAX),
                    2..5 => {}
                    _ => counts
                        .iter_mut()
                        .zip(grown)
                        .for_each(|(count, grown)| *count = count.wrapping_add(grown)),
                }
                let layout =
                    Layout { schema: 1, positive: vec![Span { offset: 0, length }], ..Layout::default() };
                let counts = match event {
                    5 => Counts::Doubles(counts.iter().map(|count| *count as f64).collect()),
                    _ => Counts::Whole(counts.clone()),
                };
                let reset = if event == 0 { CounterReset::Yes } else { CounterReset::No };
                Histogram::new(&HistogramParts { reset, layout, counts, sum }).unwrap()
            })
            .collect()
    })
}

fn pack(samples: &Samples<Histogram>) -> (Vec<Chunk>, OpenChunk) {
    let (mut sealed, mut open) = (Vec::new(), OpenChunk::default());
    for (timestamp_ms, value) in samples.iter_from(0) {
        if open.append_histogram(timestamp_ms, &value) == Err(Full) {
            sealed.extend(open.seal());
            open.append_histogram(timestamp_ms, &value).expect("an empty chunk takes anything");
        }
        assert_eq!(open.newest(), Some(value.fingerprint()));
    }
    (sealed, open)
}

proptest! {
    #[test]
    fn histogram_chunks_round_trip(
        values in histograms(),
        steps in prop::collection::vec(prop_oneof![3 => Just(15_000i64), 1 => 1i64..40_000, 1 => 1i64..1 << 45], 400),
    ) {
        let mut samples = Samples::default();
        let mut now = 0;
        for (value, step) in values.into_iter().zip(steps) {
            now += step;
            samples.push(now, value);
        }
        let (mut sealed, mut open) = pack(&samples);
        let unpack = |sealed: &[Chunk], open: &OpenChunk, range| {
            let mut out = Samples::<Histogram>::default();
            sealed.iter().for_each(|chunk| chunk.read(range, &mut out));
            open.read(range, &mut out);
            out
        };
        prop_assert_eq!(&unpack(&sealed, &open, TimeRange::ALL), &samples);
        if samples.len() > 2 {
            let range = TimeRange::new(samples.timestamps[1], samples.timestamps[samples.len() - 2]);
            let inner = unpack(&sealed, &open, range);
            prop_assert_eq!(&inner.values, &samples.values[1..samples.len() - 1]);
        }
        sealed.extend(open.seal());
        prop_assert_eq!(&unpack(&sealed, &open, TimeRange::ALL), &samples);
    }
}

#[test]
fn a_scraped_histogram_takes_little_more_than_a_byte_a_bucket() {
    let length = 40;
    let mut samples = Samples::default();
    for i in 0..480u64 {
        let layout = Layout { schema: 3, positive: vec![Span { offset: -20, length }], ..Layout::default() };
        let counts =
            Counts::Whole((0..u64::from(length) + 2).map(|bucket| 1_000_000 + i * (bucket % 9)).collect());
        let parts = HistogramParts { reset: CounterReset::No, layout, counts, sum: i as f64 / 3.0 };
        samples.push(i as i64 * 15_000, Histogram::new(&parts).unwrap());
    }
    let (mut sealed, mut open) = pack(&samples);
    sealed.extend(open.seal());
    let bytes = sealed.iter().map(Chunk::data_bytes).sum::<usize>() / samples.len();
    assert!(bytes < 42 + 14, "{bytes} bytes a histogram of 42 counts");
}

#[test]
fn labels_with_both_kinds_are_two_series() {
    let mut head = TenantHead::new(1);
    let labels = Labels::from_pairs(&[("__name__", "latency")]);
    let key = SeriesKey::of(labels.as_bytes(), 1);
    let floats = head.create(key, labels.as_ref());
    let histograms = head.create_of(ValueKind::Histogram, key, labels.as_ref());
    assert_ne!(floats, histograms);
    assert_eq!(head.resolve(key), Some(floats));
    assert_eq!(head.resolve(key.of_kind(ValueKind::Histogram)), Some(histograms));
    assert_eq!(head.select(&[]).iter().collect::<Vec<_>>(), [floats.0, histograms.0]);
    let values = Values::Histograms(vec![histogram_of(1.5), histogram_of(2.5)]);
    head.append(&[floats], &[1000], &[7.0], 1);
    head.append(&[histograms; 2], &[1000, 2000], &values, 1);
    let mut out = SeriesSamples::default();
    head.read_any(histograms, TimeRange::ALL, &mut out);
    let expected =
        Samples { timestamps: vec![1000, 2000], values: vec![histogram_of(1.5), histogram_of(2.5)] };
    assert_eq!(out, SeriesSamples::Histograms(expected));
    head.read_any(floats, TimeRange::ALL, &mut out);
    assert_eq!(out, SeriesSamples::Floats(Samples { timestamps: vec![1000], values: vec![7.0] }));
}

#[test]
#[should_panic(expected = "the sample is of the wrong kind")]
fn a_series_of_floats_takes_no_histogram() {
    let mut head = TenantHead::new(1);
    let labels = Labels::from_pairs(&[("__name__", "up")]);
    let series = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
    head.append(&[series], &[1000], &Values::Histograms(vec![histogram_of(1.0)]), 1);
}
