use super::*;
use crate::date::DAY_MS;
use model::Labels;

#[test]
fn stretches_are_cut_at_midnight() {
    let labels = Labels::from_pairs(&[("__name__", "up")]);
    let timestamps = [DAY_MS - 2, DAY_MS - 1, DAY_MS, 5 * DAY_MS];
    let whole = Stretch {
        labels: labels.as_ref(),
        key: SeriesKey(1),
        timestamps: &timestamps,
        values: &[1.0, 2.0, 3.0, 4.0],
    };
    let days: Vec<_> = whole.days().map(|(d, s)| (d.0, s.values.to_vec())).collect();
    assert_eq!(days, [(0, vec![1.0, 2.0]), (1, vec![3.0]), (5, vec![4.0])]);
}

#[test]
fn values_are_cut_into_few_rows() {
    let check = |values: &[f64], expected: &[(Range<usize>, Form)]| {
        let mut mantissas = Vec::new();
        let mut out = Vec::new();
        rows(values, &mut mantissas, |range, form, _| out.push((range, form)));
        assert_eq!(out, expected, "{values:?}");
    };
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    check(&[1.0, 2.5], &[(0..2, Form::Decimal(1))]);
    check(&[1.0, 2.0, stale], &[(0..2, Form::Decimal(0)), (2..3, Form::Floats)]);
    check(&[stale, 1.0, stale], &[(0..1, Form::Floats), (1..2, Form::Decimal(0)), (2..3, Form::Floats)]);
    check(&[stale, 1.0, stale, 1.0], &[(0..4, Form::Floats)]);
    check(&[1e14, 0.0001, stale], &[(0..2, Form::Floats), (2..3, Form::Floats)]);
    check(&[stale, stale], &[(0..2, Form::Floats)]);
}
