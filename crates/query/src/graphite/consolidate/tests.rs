use super::*;

const NONE: f64 = f64::NAN;

#[track_caller]
fn same(found: &[f64], expected: &[f64]) {
    let equal = found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12 || a.is_nan() && b.is_nan());
    assert!(equal, "{found:?}, expected {expected:?}");
}

#[test]
fn aggregations_by_name() {
    let values = [4.0, NONE, -6.0, 2.0];
    for (names, expected) in [
        (&["average", "avg"][..], 0.0),
        (&["avg_zero"], 0.0),
        (&["sum", "total"], 0.0),
        (&["min", "absmax"], -6.0),
        (&["max"], 4.0),
        (&["first"], 4.0),
        (&["last", "current", "absmin", "median"], 2.0),
        (&["count"], 3.0),
        (&["diff"], 8.0),
        (&["range", "rangeOf"], 10.0),
        (&["multiply"], NONE),
        (&["stddev"], (56.0f64 / 3.0).sqrt()),
        (&["p50", "p500"], 2.0),
        (&["p99", "p99.9", "p999", "p100"], 4.0),
    ] {
        for name in names {
            same(&[Aggregate::parse(name).unwrap().of(&values)], &[expected]);
        }
    }
    for name in ["", "p", "px", "p-1", "mean", "Sum", "p1234567890"] {
        assert_eq!(Aggregate::parse(name), None, "{name}");
    }
    for method in
        ["average", "sum", "min", "max", "first", "last", "median", "diff", "range", "stddev", "p50"]
    {
        same(&[Aggregate::parse(method).unwrap().of(&[NONE, NONE])], &[NONE]);
    }
    assert_eq!(Aggregate::of_function("maxSeries"), Some(Aggregate::Max));
    assert_eq!(Aggregate::of_function("p50"), None);
}

#[test]
fn runs_are_consolidated_if_enough_is_present() {
    let values = [1.0, 2.0, NONE, 4.0, NONE, NONE, 7.0];
    let check = |per_point, method, factor, expected: &[f64]| {
        same(&consolidated(&values, per_point, method, factor).collect::<Vec<_>>(), expected);
    };
    check(1, Aggregate::Sum, 1.0, &values);
    check(2, Aggregate::Sum, 0.0, &[3.0, 4.0, NONE, 7.0]);
    check(2, Aggregate::Average, 0.6, &[1.5, NONE, NONE, NONE]);
    check(3, Aggregate::AvgZero, 0.0, &[1.0, 4.0 / 3.0, 7.0]);
    check(100, Aggregate::Last, 0.0, &[7.0]);
}

#[test]
fn percentiles_interpolate_between_ranks() {
    let check = |percent, interpolate, expected| {
        let found = percentile(&mut [4.0, 1.0, 3.0, 2.0], percent, interpolate);
        same(&[found], &[expected]);
    };
    check(50.0, false, 3.0);
    check(50.0, true, 2.5);
    check(1.0, false, 1.0);
    check(100.0, false, 4.0);
    check(100.0, true, 4.0);
    same(&[percentile(&mut [], 50.0, false)], &[NONE]);
}

fn series(start_s: i64, step_s: i64, count: i64) -> Series {
    let values = (0..count).map(|i| i as f64).collect();
    Series::computed("a".into(), start_s, start_s + step_s * count, step_s, values)
}

/// The same points are shown if the graph is drawn a little later.
#[test]
fn points_are_aligned() {
    let points = |start_s: i64| {
        let mut all = [series(start_s, 10, 60)];
        fit(&mut all, 10);
        all[0].points().take(3).collect::<Vec<_>>()
    };
    assert_eq!(points(1000), [(1020, 3.5), (1080, 9.5), (1140, 15.5)]);
    assert_eq!(points(1010), [(1020, 2.5), (1080, 8.5), (1140, 14.5)]);
    let mut all = [series(0, 10, 6), series(0, 60, 1)];
    fit(&mut all, 1);
    assert_eq!(all[0].points().collect::<Vec<_>>(), [(0, 2.5)]);
    fit(&mut [], 5);
    let mut empty = [Series::computed("a".into(), 0, 60, 60, Vec::new())];
    fit(&mut empty, 1);
    assert_eq!(empty[0].points().count(), 0);
}

/// As in Python, where a sum begins with the whole number 0.
#[test]
fn a_sum_of_negative_zeros_is_no_negative_zero() {
    for method in [Aggregate::Sum, Aggregate::Average, Aggregate::AvgZero] {
        assert!(method.of(&[-0.0, -0.0]).is_sign_positive(), "{method:?}");
    }
}
