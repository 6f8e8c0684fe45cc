//! Exponential histograms become classic ones.

use super::proto::*;
use super::{NOW, decode_with, gauge, request_of, translated};
use crate::plenty;
use model::{
    Accumulator, Batch, BatchExponential, ExponentialTotals, SeriesRefusal, TotalsPart, TotalsPlace,
    TotalsRoom,
};
use prost::Message;
use protocol::otlp::{Decoder, Format, Media, Translation};
use protocol::{Body, Decoder as _, Encoding};
use std::sync::Arc;
use stdx::rng::Rng;

fn request(point: ExponentialPoint) -> Request {
    let data = Some(Data::Exponential(Exponential { points: vec![point], temporality: 2 }));
    request_of(vec![], vec![Metric { name: "took".into(), data, ..Metric::default() }])
}

/// Returns bounds and values of the buckets.
fn buckets(point: ExponentialPoint, scale: i32) -> Vec<(f64, f64)> {
    let translation = Translation { scale, ..Translation::default() };
    let bytes = request(point).encode_to_vec();
    let batch = decode_with(&mut Decoder::new(1), Media::Protobuf, &translation, &bytes).unwrap();
    let found = translated(&batch);
    assert_eq!((found.points, found.refused, found.converted), (1, 0, 1));
    let bucket = |(series, samples): (&String, &Vec<(i64, u64)>)| {
        let bound = series.strip_prefix("took_bucket{le=\"")?.strip_suffix("\"}")?;
        Some((bound.parse().unwrap(), f64::from_bits(samples[0].1)))
    };
    let mut buckets: Vec<(f64, f64)> = found.series.iter().filter_map(bucket).collect();
    buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    buckets
}

fn side(offset: i32, counts: &[u64]) -> Option<Buckets> {
    Some(Buckets { offset, counts: counts.to_vec() })
}

const INFINITY: f64 = f64::INFINITY;

#[test]
fn buckets_have_bounds_of_a_fixed_scale() {
    let point = ExponentialPoint { time: NOW, count: 20, ..ExponentialPoint::default() };
    let check = |point: ExponentialPoint, scale, expected: &[(f64, f64)]| {
        assert_eq!(buckets(point, scale), expected);
    };
    check(point.clone(), 0, &[(INFINITY, 20.0)]);
    // (1, 2], (2, 4], nothing in (4, 8], (8, 16]
    let positive = side(0, &[1, 2, 0, 3, 0]);
    let simple = ExponentialPoint { positive: positive.clone(), ..point.clone() };
    let expected = [(1.0, 0.0), (2.0, 1.0), (4.0, 3.0), (8.0, 3.0), (16.0, 6.0), (INFINITY, 20.0)];
    check(simple.clone(), 0, &expected);
    // a scale that is not reached changes nothing
    check(simple, 3, &expected);
    let zeros = ExponentialPoint { positive: positive.clone(), zero_count: 5, ..point.clone() };
    let with_zeros =
        [(0.0, 5.0), (1.0, 5.0), (2.0, 6.0), (4.0, 8.0), (8.0, 8.0), (16.0, 11.0), (INFINITY, 20.0)];
    check(zeros.clone(), 0, &with_zeros);
    let near_zero = ExponentialPoint { zero_threshold: 0.5, ..zeros.clone() };
    check(near_zero, 0, &[&[(0.5, 5.0)], &with_zeros[1..]].concat());
    // a threshold that reaches into the first bucket
    let wide_zero = ExponentialPoint { zero_threshold: 1.5, ..zeros.clone() };
    check(wide_zero, 0, &[&[(1.5, 5.0)], &with_zeros[2..]].concat());
    let negative = ExponentialPoint { negative: side(-1, &[1, 0, 2]), ..zeros };
    let expected = [(-2.0, 2.0), (-1.0, 2.0), (-0.5, 3.0), (0.0, 8.0), (1.0, 8.0), (2.0, 9.0), (4.0, 11.0)];
    check(negative, 0, &[&expected[..], &[(8.0, 11.0), (16.0, 14.0), (INFINITY, 20.0)]].concat());
    // buckets of a higher scale are added up: indexes 5 to 12 at scale 2 are 1 to 3 at scale 0
    let fine =
        ExponentialPoint { scale: 2, positive: side(5, &[1, 2, 4, 8, 16, 32, 64, 128]), ..point.clone() };
    check(fine, 0, &[(2.0, 0.0), (4.0, 7.0), (8.0, 127.0), (16.0, 255.0), (INFINITY, 20.0)]);
    // too many buckets: 200 powers of two, so the bounds are powers of four
    let counts = [1; 200];
    let many = ExponentialPoint { positive: side(-100, &counts), ..point.clone() };
    let found = buckets(many, 3);
    assert_eq!((found.len(), found[0], found[1]), (102, (0.25_f64.powi(50), 0.0), (0.25_f64.powi(49), 2.0)));
    // beyond all doubles
    let extreme = ExponentialPoint { scale: -20, positive: side(-1, &[3, 4]), ..point };
    check(extreme, 0, &[(0.0, 0.0), (1.0, 3.0), (INFINITY, 20.0)]);
}

#[test]
fn staleness_concerns_all_series() {
    let point = ExponentialPoint { time: NOW, flags: 1, ..ExponentialPoint::default() };
    let found = buckets(ExponentialPoint { positive: side(0, &[1]), ..point }, 0);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|(_, value)| value.to_bits() == model::STALE_NAN_BITS));
}

/// A request with increments is decoded again when it is known what they have added up to.
#[test]
fn increments_are_decoded_twice() {
    let point = |time, scale, offset, counts: &[u64]| ExponentialPoint {
        start: time - 1000,
        time,
        count: counts.iter().sum::<u64>(),
        sum: Some(1.5),
        scale,
        positive: side(offset, counts),
        ..ExponentialPoint::default()
    };
    let exemplar = Exemplar { time: NOW, value: Some(ExemplarNumber::Double(3.0)), ..Exemplar::default() };
    let late = ExponentialPoint { exemplars: vec![exemplar], ..point(NOW, -1, 0, &[4, 1]) };
    let refused = ExponentialPoint { sum: Some(f64::NAN), ..point(NOW, 0, 0, &[1]) };
    let later = NOW + 1_000_000_000;
    let points = vec![point(later, 0, 0, &[1, 0, 2]), refused, late, point(NOW, 0, 0, &[7])];
    let data = |points, temporality| Some(Data::Exponential(Exponential { points, temporality }));
    let metrics = vec![
        gauge("other", vec![], 1.0),
        Metric { name: "took".into(), data: data(points.clone(), 1), ..Metric::default() },
        Metric { name: "whole".into(), data: data(points[..1].to_vec(), 2), ..Metric::default() },
    ];
    let bytes = request_of(vec![], metrics).encode_to_vec();
    let mut decoder = Decoder::new(1);
    let first = decode_with(&mut decoder, Media::Protobuf, &Translation::default(), &bytes).unwrap();
    let increments = &first.exponentials;
    assert_eq!(increments.iter().map(|one| one.counts.count).collect::<Vec<_>>(), [3, 5, 7]);
    assert!(increments.iter().all(|one| one.key == increments[0].key && one.increment.value > 0.0));

    let mut sum = Accumulator::new(0, 0);
    let mut add = |one: &BatchExponential| {
        Some(sum.add_exponential(&one.increment, &one.counts, true).map(|(_, total)| total))
    };
    let totals: ExponentialTotals = increments.iter().map(&mut add).collect();
    let offsets: Arc<[u32]> = increments.iter().map(|one| one.offset).collect();
    assert!(first.message.is_none(), "the body is the message");
    // everything else is there the first time
    assert_eq!((first.points, first.refused_samples, first.converted_points), (6, 1, 1));
    let mut decode = |totals: &ExponentialTotals, from, series| {
        let room = TotalsRoom { series, label_bytes: 1 << 20 };
        let (totals, offsets) = (Arc::clone(totals), Arc::clone(&offsets));
        let part = TotalsPart { totals, offsets, from, room };
        let format = Decoder::with_totals(Format::new(Media::Protobuf, Arc::default()), part);
        let mut batch = Batch::default();
        let body = Body { encoding: Encoding::Identity, bytes: &bytes };
        decoder.decode(protocol::Request { format, body }, &mut batch, &mut plenty()).unwrap();
        assert!(batch.exponentials.is_empty() && batch.metadata.is_empty() && batch.points == 0);
        batch
    };
    let start = TotalsPlace::default();
    let batch = decode(&totals, start, 1000);
    assert_eq!(batch.left, None);
    // in parts with one time each: the point in order, and the late one at two times
    let (mut next, mut parts) = (Some(start), Vec::new());
    while let Some(from) = next {
        let part = decode(&totals, from, 1);
        next = part.left;
        parts.push(part);
    }
    assert_eq!(parts.len(), 3);
    let sum = |of: fn(&Batch) -> u64| parts.iter().map(of).sum::<u64>();
    assert_eq!(sum(|part| part.converted_points), batch.converted_points);
    assert_eq!(sum(|part| part.refused_samples), batch.refused_samples);
    assert_eq!(sum(|part| part.floats.series.len() as u64), batch.floats.series.len() as u64);
    assert_eq!(sum(|part| part.floats.exemplars.len() as u64), 1);
    assert_eq!(parts[2].floats.exemplars.len(), 1, "not with the series of the point's own time");
    // in a section for each increment
    for of in 0..totals.len() {
        let one = totals.iter().enumerate().map(|(number, total)| total.clone().filter(|_| number == of));
        let section = decode(&one.collect(), start, 1000);
        assert_eq!(section.left, None);
        let converted = u64::from(totals[of].as_ref().is_some_and(Result::is_ok));
        assert_eq!((section.converted_points, section.refused_samples), (converted, 1 - converted));
        let series = parts.iter().enumerate().filter(|(number, _)| [0, 1, 1][*number] == of);
        let series = series.map(|(_, part)| part.floats.series.len()).sum::<usize>();
        assert_eq!(section.floats.series.len(), series);
    }
    let found = translated(&batch);
    // the last has the interval of another
    assert_eq!((found.points, found.refused, found.converted), (0, 1, 2));
    assert_eq!(batch.refused[0].0, SeriesRefusal::IncrementOverlaps);
    let samples = |series: &str| {
        let of = |(ms, bits): &(i64, u64)| ((*ms as u64) * 1_000_000 - NOW, f64::from_bits(*bits));
        found.series[series].iter().map(of).collect::<Vec<_>>()
    };
    const LATER: u64 = 1_000_000_000;
    assert_eq!(samples("took_count{}"), [(LATER, 3.0), (LATER, 8.0), (0, 5.0)]);
    assert_eq!(samples("took_sum{}"), [(LATER, 1.5), (LATER, 3.0), (0, 1.5)]);
    assert_eq!(samples("took_bucket{le=\"+Inf\"}"), [(LATER, 3.0), (LATER, 8.0), (0, 5.0)]);
    assert_eq!(samples("took_bucket{le=\"4\"}"), [(LATER, 1.0), (LATER, 5.0), (0, 4.0)]);
    assert_eq!(samples("took_bucket{le=\"16\"}"), [(LATER, 8.0), (0, 5.0)]);
    // of these bounds, the late point with the lower scale does not know the counts
    for gone in ["2", "8"] {
        let samples = samples(&format!("took_bucket{{le=\"{gone}\"}}"));
        assert_eq!(samples.iter().map(|(ns, _)| *ns).collect::<Vec<_>>(), [LATER, LATER, 0]);
        assert!(samples[1..].iter().all(|(_, value)| value.to_bits() == model::STALE_NAN_BITS));
    }
    assert_eq!(found.exemplars.keys().collect::<Vec<_>>(), ["took_bucket{le=\"4\"}"]);
    let before = translated(&first).series;
    assert!(before.contains_key("other{}") && before.contains_key("whole_bucket{le=\"8\"}"), "{before:?}");
    assert!(before.keys().all(|series| !series.starts_with("took")), "{before:?}");
}

/// Once increments were added, their request must not be refused any more.
#[test]
fn what_cannot_be_decoded_again_is_refused_before_anything_is_added() {
    const TIME: u64 = 0x0102_0304_0506_0708;
    let exemplar = Exemplar { time: TIME, value: Some(ExemplarNumber::Double(3.0)), ..Exemplar::default() };
    let point = |attributes| {
        let exemplars = vec![exemplar.clone()];
        ExponentialPoint { time: NOW, count: 1, attributes, exemplars, ..ExponentialPoint::default() }
    };
    let request = |point| {
        let data = Some(Data::Exponential(Exponential { points: vec![point], temporality: 1 }));
        request_of(vec![], vec![Metric { name: "took".into(), data, ..Metric::default() }]).encode_to_vec()
    };
    let decode =
        |bytes: &[u8]| decode_with(&mut Decoder::new(1), Media::Protobuf, &Translation::default(), bytes);
    let mut damaged = request(point(vec![]));
    assert_eq!(decode(&damaged).unwrap().exponentials.len(), 1);
    // an exemplar with a field that has no type
    let field = [&[0x11][..], &TIME.to_le_bytes()].concat();
    let at = damaged.windows(field.len()).position(|bytes| bytes == field).unwrap();
    damaged[at] = 0x17;
    assert_eq!(decode(&damaged).unwrap_err().kind(), model::ErrorKind::Invalid);
    // the labels of `_count` are short enough, but not those of buckets
    let long = (0..4).map(|n| text(&format!("k{n}"), &"v".repeat(16_300))).collect();
    let refused = decode(&request(point(long))).unwrap();
    assert!(refused.exponentials.is_empty());
    let (SeriesRefusal::LabelsTooLong(bytes), _) = &refused.refused[0] else { panic!("{refused:?}") };
    assert!(*bytes < model::caps::SERIES_LABEL_BYTES_MAX + 360, "{bytes}");
}

/// Each value counts in the bucket to which it belongs, whatever the scale.
#[test]
fn values_are_in_the_buckets_of_their_bounds() {
    let mut rng = Rng::announced();
    for round in 0..500 {
        let scale = rng.below(7) as i32 - 2;
        let values: Vec<f64> =
            (0..rng.below(50)).map(|_| (rng.below(4000) as f64 / 100.0 - 20.0).exp2()).collect();
        let base = (-scale as f64).exp2().exp2();
        let index = |value: f64| (value.ln() / base.ln()).ceil() as i32 - 1;
        let mut counts = vec![0; 400];
        let offset = values.iter().map(|value| index(*value)).min().unwrap_or(0);
        for value in &values {
            let at = (index(*value) - offset) as usize;
            counts.resize(counts.len().max(at + 1), 0);
            counts[at] += 1;
        }
        let count = values.len() as u64;
        let positive = side(offset, &counts);
        let point = ExponentialPoint { time: NOW, count, scale, positive, ..ExponentialPoint::default() };
        for (bound, below) in buckets(point, 1) {
            // a value at a bound may be in either bucket, because its index is not computed exactly
            let least = values.iter().filter(|value| **value < bound * (1.0 - 1e-9)).count() as f64;
            let most = values.iter().filter(|value| **value <= bound * (1.0 + 1e-9)).count() as f64;
            assert!(
                (least..=most).contains(&below),
                "round {round} scale {scale}: {below} values up to {bound}"
            );
        }
    }
}
