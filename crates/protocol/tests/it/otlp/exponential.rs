//! Exponential histograms become classic ones.

use super::proto::*;
use super::{NOW, decode_with, request_of, translated};
use prost::Message;
use protocol::Decoder as _;
use protocol::otlp::{Decoder, Media, Translation};
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
