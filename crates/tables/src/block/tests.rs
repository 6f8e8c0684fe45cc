use super::*;
use model::Labels;

#[test]
fn dates() {
    let check = |ms: i64, text: &str| {
        assert_eq!(Date::of(ms).to_string(), text);
        assert_eq!(Date::parse(text), Some(Date::of(ms)));
    };
    check(0, "1970-01-01");
    check(DAY_MS - 1, "1970-01-01");
    check(DAY_MS, "1970-01-02");
    check(951_782_400_000, "2000-02-29");
    check(1_795_276_800_000, "2026-11-21");
    check(model::caps::TIMESTAMP_MS_MAX, "9999-12-31");
    for day in (0..2_932_896).step_by(61) {
        assert_eq!(Date::parse(&Date(day).to_string()), Some(Date(day)));
    }
    for bad in
        ["", "2026", "2026-13-01", "2026-02-30", "2026-2-03", "-026-02-03", "2026-02-03x", "99999999999-1-1"]
    {
        assert_eq!(Date::parse(bad), None, "{bad}");
    }
}

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
