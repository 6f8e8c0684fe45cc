use super::*;
use proptest::prelude::*;

fn check(input: &[f64], expected: Option<(u8, &[i64])>) {
    let mut out = vec![7];
    let exponent = mantissas(input, &mut out);
    assert_eq!(exponent.map(|e| (e, &out[1..])), expected, "{input:?}");
    assert_eq!(out[0], 7, "the earlier contents must stay");
}

#[test]
fn finds_the_smallest_exponent() {
    check(&[], Some((0, &[])));
    check(&[1.0, -2.0, 0.0], Some((0, &[1, -2, 0])));
    check(&[1.5, 2.0], Some((1, &[15, 20])));
    check(&[1.0, 0.25, 0.125], Some((3, &[1000, 250, 125])));
    check(&[0.1, 0.2, 0.3], Some((1, &[1, 2, 3])));
    check(&[1e15], Some((0, &[1_000_000_000_000_000])));
    check(&[1e-15], Some((15, &[1])));
    check(&[9_007_199_254_740_994.0], Some((0, &[9_007_199_254_740_994])));
}

#[test]
fn inexact_values_have_no_decimal_form() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1 + 0.2, 1.0 / 3.0, 1e300, 5e-324] {
        check(&[bad], None);
        check(&[1.0, 2.5, bad], None);
        assert!(!is_decimal(bad));
    }
    check(&[f64::from_bits(model::STALE_NAN_BITS)], None);
    check(&[1e14, 0.0001], None);
}

#[test]
fn a_late_fraction_changes_the_mantissas_before_it() {
    let mut input = vec![3.0; 200];
    input.push(0.5);
    input.push(0.25);
    let mut out = Vec::new();
    assert_eq!(mantissas(&input, &mut out), Some(2));
    assert_eq!((out[0], out[199], out[200], out[201]), (300, 300, 50, 25));
}

proptest! {
    #[test]
    fn accepted_values_round_trip_to_the_bit(input in prop::collection::vec(any::<f64>(), 0..200)) {
        let mut out = Vec::new();
        if let Some(exponent) = mantissas(&input, &mut out) {
            for (m, v) in out.iter().zip(&input) {
                prop_assert_eq!(value(*m, exponent).unwrap().to_bits(), v.to_bits());
            }
        }
    }

    #[test]
    fn rounded_values_are_decimal(
        input in prop::collection::vec(-1_000_000_000_000i64..1_000_000_000_000, 1..300),
        digits in 0u8..4,
    ) {
        let input: Vec<f64> = input.iter().map(|m| *m as f64 / 10f64.powi(digits.into())).collect();
        let mut out = Vec::new();
        let exponent = mantissas(&input, &mut out);
        prop_assert!(exponent.is_some_and(|e| e <= digits));
        for (m, v) in out.iter().zip(&input) {
            prop_assert_eq!(value(*m, exponent.unwrap()).unwrap().to_bits(), v.to_bits());
        }
    }
}
