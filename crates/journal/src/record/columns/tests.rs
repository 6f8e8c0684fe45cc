use super::*;
use proptest::prelude::*;
use stdx::rng::Rng;

fn deltas_round_trip(column: &[i64]) -> usize {
    let mut out = Vec::new();
    put_deltas(&mut out, column);
    let mut back = vec![7];
    let mut cursor = Cursor::new(&out);
    deltas(&mut cursor, column.len(), &mut back, Ok).unwrap();
    assert_eq!(back, column);
    assert!(cursor.rest.is_empty());
    out.len()
}

fn values_round_trip(column: &[f64]) -> usize {
    let mut out = Vec::new();
    put_values(&mut out, column);
    let mut back = vec![7.0];
    let mut cursor = Cursor::new(&out);
    values(&mut cursor, column.len(), &mut back).unwrap();
    let bits = |c: &[f64]| c.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&back), bits(column));
    assert!(cursor.rest.is_empty());
    out.len()
}

#[test]
fn regular_columns_are_a_few_bytes() {
    let refs: Vec<i64> = (5000..7000).collect();
    assert_eq!(deltas_round_trip(&refs), 1 + 1 + 2 + 1 + 1 + 2);
    assert_eq!(deltas_round_trip(&[1_795_276_800_000; 2000]), 1 + 1 + 6 + 1 + 1 + 2);
    let times: Vec<i64> = (0..2000).map(|i| 1_795_276_800_000 + 15_000 * i).collect();
    assert!(deltas_round_trip(&times) < 16);
    assert_eq!(deltas_round_trip(&[]), 2);
    // random values have no runs, so each takes one varint
    let mut rng = Rng::new(1);
    let random: Vec<i64> = (0..1000).map(|_| rng.below(64) as i64).collect();
    assert!(deltas_round_trip(&random) <= 1001);
}

#[test]
fn extremes_of_columns() {
    deltas_round_trip(&[i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN, -1, -1]);
    deltas_round_trip(&[i64::MAX]);
}

#[test]
fn every_kind_of_value_is_exact() {
    let cases = [
        (0.0, 0),
        (1.0, 1),
        (255.0, 1),
        (256.0, 2),
        (-1.0, 0),
        (-2.0, 1),
        (-256.0, 1),
        (-257.0, 2),
        (50_000_000.0, 4),
        (9_007_199_254_740_992.0, 7),
        (72_057_594_037_927_936.0, 8), // 2^56: eight bytes either way
        (-281_474_976_710_656.0, 6),   // -2^48
        (-281_474_976_710_658.0, 8),   // below it
        (i64::MAX as f64, 8),
        (i64::MIN as f64, 8),
        (1e300, 8),
        (-0.0, 8),
        (0.5, 8),
        (f64::INFINITY, 8),
        (f64::NEG_INFINITY, 8),
        (f64::NAN, 8),
        (f64::from_bits(model::STALE_NAN_BITS), 8),
        (f64::from_bits(u64::MAX), 8),
        (f64::MIN_POSITIVE, 8),
    ];
    for (value, body) in cases {
        assert_eq!(values_round_trip(&[value]), 1 + body, "{value}");
    }
    let all: Vec<f64> = cases.iter().map(|c| c.0).collect();
    values_round_trip(&all);
    values_round_trip(&all[1..]);
}

#[test]
fn a_value_too_many_is_refused() {
    let mut cursor = Cursor::new(&[0x11, 1, 1]);
    assert!(values(&mut cursor, 1, &mut Vec::new()).is_err());
    let mut cursor = Cursor::new(&[0x01, 1]);
    assert!(values(&mut cursor, 1, &mut Vec::new()).is_ok());
}

#[test]
fn runs_must_add_up() {
    let check = |bytes: &[u8]| deltas(&mut Cursor::new(bytes), 3, &mut Vec::new(), Ok).is_ok();
    assert!(check(&[1, 1, 2, 3]));
    assert!(!check(&[1, 1, 2, 2]), "too few");
    assert!(!check(&[1, 1, 2, 4]), "too many");
    assert!(!check(&[1, 2, 2, 3, 2, 0]), "an empty run");
    assert!(!check(&[2, 1, 2, 3]), "an unknown form");
    assert!(!check(&[0, 2, 3]), "truncated");
}

proptest! {
    #[test]
    fn columns_round_trip(column: Vec<i64>, small in prop::collection::vec(0i64..3, 0..100)) {
        deltas_round_trip(&column);
        deltas_round_trip(&small);
    }

    #[test]
    fn values_of_any_bits_round_trip(bits: Vec<u64>, whole: Vec<i32>) {
        let column: Vec<f64> = bits.into_iter().map(f64::from_bits).chain(whole.into_iter().map(f64::from)).collect();
        values_round_trip(&column);
    }
}
