use super::open::Full;
use super::*;
use proptest::prelude::*;

fn pack(samples: &[(i64, f64)]) -> (Vec<Chunk>, OpenChunk) {
    let (mut sealed, mut open) = (Vec::new(), OpenChunk::default());
    for &(t, v) in samples {
        if open.append(t, v) == Err(Full) {
            sealed.extend(open.seal());
            open.append(t, v).expect("an empty chunk takes anything");
        }
    }
    (sealed, open)
}

fn unpack(sealed: &[Chunk], open: &OpenChunk, range: TimeRange) -> Vec<(i64, u64)> {
    let mut out = Samples::<f64>::default();
    sealed.iter().for_each(|c| c.read(range, &mut out));
    open.read(range, &mut out);
    out.timestamps.into_iter().zip(out.values.into_iter().map(f64::to_bits)).collect()
}

fn check(samples: &[(i64, f64)]) -> usize {
    let (sealed, open) = pack(samples);
    let expected: Vec<_> = samples.iter().map(|(t, v)| (*t, v.to_bits())).collect();
    assert_eq!(unpack(&sealed, &open, TimeRange::ALL), expected);
    assert_eq!(open.newest(), samples.last().map(|(_, v)| v.to_bits()));
    if samples.len() > 2 {
        let range = TimeRange::new(samples[1].0, samples[samples.len() - 2].0);
        assert_eq!(unpack(&sealed, &open, range), expected[1..expected.len() - 1]);
    }
    sealed.iter().map(Chunk::data_bytes).sum::<usize>() + open.bytes.len()
}

#[test]
fn exact_in_every_form() {
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    check(&[]);
    check(&[(0, 0.0)]);
    check(&[(1, -0.0), (2, 0.0), (3, -0.0)]);
    check(&[(1, 1.0), (2, stale), (3, 1.0), (4, 1.0), (5, stale), (6, stale)]);
    check(&[(1, stale), (2, 1.5), (3, f64::INFINITY), (4, f64::NEG_INFINITY), (5, f64::NAN)]);
    check(&[(1, f64::from_bits(0x7ff8_0000_0000_0001)), (2, f64::MIN_POSITIVE), (3, f64::MAX), (4, 5e-324)]);
    check(&[(1, 0.1), (2, 0.25), (3, 0.125), (4, 1e15), (5, 0.001)]);
    check(&[(1, 9007199254740991.0), (2, -9007199254740991.0), (3, 9007199254740993.0)]);
    check(&[(0, 1.0), (1 << 40, 2.0), (1 << 41, 3.0), ((1 << 41) + 1, 4.0), (i64::MAX, 5.0)]);
}

#[test]
fn odd_values_among_decimals_do_not_end_the_chunk() {
    let samples: Vec<_> = (0..100).map(|i| (i, if i % 10 == 9 { 1.0 / 3.0 } else { i as f64 })).collect();
    check(&samples);
    assert_eq!(pack(&samples).0.len(), 0);
}

#[test]
fn floats_get_float_chunks() {
    let samples: Vec<_> = (0..1000).map(|i| (i * 15, (i as f64 / 7.0).sin())).collect();
    let bytes = check(&samples);
    assert!(bytes < 9500, "{bytes} bytes for 1000 doubles");
}

#[test]
fn common_shapes_stay_small() {
    let per_sample = |f: &dyn Fn(i64) -> f64| {
        let samples: Vec<_> = (0..2400).map(|i| (i * 15_000, f(i))).collect();
        let mean = check(&samples) as f64 / 2400.0;
        println!("{mean} bytes a sample");
        mean
    };
    assert!(per_sample(&|_| 4095.0) < 0.11, "a constant");
    assert!(per_sample(&|i| (i * 100 + i * 7 % 13) as f64) < 2.2, "a slow counter");
    assert!(per_sample(&|i| 20.0 + (i * 31 % 100) as f64 / 100.0) < 3.1, "a gauge of two decimals");
}

#[test]
fn a_finer_value_rescales_the_chunk() {
    let samples: Vec<_> = (0..50).map(|i| (i, i as f64 / 10f64.powi(i as i32 / 10))).collect();
    check(&samples);
    assert_eq!(pack(&samples).0.len(), 0, "all in one chunk");
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-1000i64..1000, 0i32..4).prop_map(|(m, e)| m as f64 / 10f64.powi(e)),
        2 => Just(1.0),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => any::<f64>(),
        1 => (any::<i64>()).prop_map(|m| m as f64),
    ]
}

proptest! {
    #[test]
    fn random_samples_round_trip(
        values in prop::collection::vec(value(), 0..600),
        steps in prop::collection::vec(prop_oneof![3 => Just(15_000i64), 1 => 1i64..40_000, 1 => 1i64..1 << 45], 600),
        start in -1000i64..1 << 42,
    ) {
        let mut t = start;
        let samples: Vec<_> = values.into_iter().zip(steps).map(|(v, step)| { t += step; (t, v) }).collect();
        check(&samples);
    }
}
