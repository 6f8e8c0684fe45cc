//! Compares each function with a second implementation that computes each window on its own.

use super::*;
use crate::promql::float::{almost_equal, is_absent, nan_first, quantile_sorted};
use crate::promql::grid::{Grid, Shift};
use std::sync::atomic::AtomicBool;
use stdx::rng::Rng;

static FOR_EVER: AtomicBool = AtomicBool::new(false);

fn meter() -> Meter<'static> {
    Meter::new(u64::MAX, &FOR_EVER, None)
}

fn plainly(function: Function, times: &[i64], values: &[f64], end_ms: i64, param: f64) -> f64 {
    use Function as F;
    let n = values.len();
    if n == 0 {
        return ABSENT;
    }
    let sum = values.iter().sum::<f64>();
    let mean = sum / n as f64;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
    let pairs = |f: fn(f64, f64) -> bool| values.windows(2).filter(|p| f(p[0], p[1])).count() as f64;
    let mut sorted = values.to_vec();
    sorted.sort_by(nan_first);
    let line = |at_ms: i64| {
        let x = |t: i64| (t - at_ms) as f64 / 1000.0;
        let mean_x = times.iter().map(|t| x(*t)).sum::<f64>() / n as f64;
        let xy = times.iter().zip(values).map(|(t, v)| (x(*t) - mean_x) * (v - mean)).sum::<f64>();
        let xx = times.iter().map(|t| (x(*t) - mean_x).powi(2)).sum::<f64>();
        (xy / xx, mean - xy / xx * mean_x)
    };
    match function {
        F::SumOverTime => sum,
        F::AvgOverTime => mean,
        F::CountOverTime => n as f64,
        F::MaxOverTime => sorted[n - 1],
        F::MinOverTime => *sorted.iter().find(|v| !v.is_nan()).unwrap_or(&f64::NAN),
        F::StddevOverTime => variance.sqrt(),
        F::StdvarOverTime => variance,
        F::QuantileOverTime => quantile_sorted(param, n, |i| sorted[i]),
        F::MadOverTime if values.iter().any(|v| v.is_nan()) => f64::NAN,
        F::MadOverTime => {
            let median = quantile_sorted(0.5, n, |i| sorted[i]);
            let mut distances: Vec<_> = values.iter().map(|v| (v - median).abs()).collect();
            distances.sort_by(nan_first);
            quantile_sorted(0.5, n, |i| distances[i])
        }
        F::LastOverTime => values[n - 1],
        F::FirstOverTime => values[0],
        F::Resets => pairs(|a, b| b < a),
        F::Changes => pairs(|a, b| a != b && !(a.is_nan() && b.is_nan())),
        _ if n < 2 => ABSENT,
        F::Idelta => values[n - 1] - values[n - 2],
        F::Deriv => line(times[0]).0,
        F::PredictLinear => {
            let (slope, value) = line(end_ms);
            slope * param + value
        }
        other => panic!("no second implementation of {other:?}"),
    }
}

#[test]
fn windows_agree_with_a_plain_implementation() {
    use Function as F;
    let functions = [
        F::SumOverTime,
        F::AvgOverTime,
        F::CountOverTime,
        F::MaxOverTime,
        F::MinOverTime,
        F::StddevOverTime,
        F::StdvarOverTime,
        F::QuantileOverTime,
        F::MadOverTime,
        F::LastOverTime,
        F::FirstOverTime,
        F::Resets,
        F::Changes,
        F::Idelta,
        F::Deriv,
        F::PredictLinear,
    ];
    let (mut rng, meter) = (Rng::announced(), meter());
    for round in 0..400 {
        let samples = random_samples(&mut rng, round % 4 == 0);
        let spec = Spec {
            grid: Grid {
                start_ms: rng.below(200) as i64 - 100,
                step_ms: 1 + rng.below(80) as i64,
                count: 40,
            },
            shift: Shift::default(),
            range_ms: 1 + rng.below(400) as i64,
        };
        let params = vec![rng.unit(); spec.grid.count];
        for function in functions {
            let mut windows = Windows::new(function, vec![&params], &meter);
            let mut out = vec![0.0; spec.grid.count];
            windows.compute(&Samples::default(), &spec, &mut out).unwrap();
            windows.compute(&samples, &spec, &mut out).unwrap();
            for (step, got) in out.iter().enumerate() {
                let end_ms = spec.grid.time_ms(step);
                let start_ms = end_ms - spec.range_ms;
                let lo = samples.timestamps.partition_point(|t| *t <= start_ms);
                let hi = samples.timestamps.partition_point(|t| *t <= end_ms);
                let (times, values) = (&samples.timestamps[lo..hi], &samples.values[lo..hi]);
                let expected = plainly(function, times, values, end_ms, params[step]);
                let same = almost_equal(expected, *got, 1e-9)
                    || is_absent(expected) == is_absent(*got) && (expected - got).abs() < 1e-6;
                assert!(same, "{function:?} step {step}: {expected} {got} of {values:?}");
            }
        }
    }
}

fn random_samples(rng: &mut Rng, with_nan: bool) -> Samples {
    let mut samples = Samples::default();
    let mut time_ms = rng.below(50) as i64;
    for _ in 0..rng.below(200) {
        time_ms += 1 + rng.below(20) as i64;
        let value = if with_nan && rng.chance(0.05) { f64::NAN } else { rng.below(100) as f64 - 20.0 };
        samples.push(time_ms, value);
    }
    samples
}

#[test]
fn many_resets_give_what_few_give() {
    let mut samples = Samples::default();
    for i in 0..500i64 {
        samples.push(i * 1000, ((i * 37) % 11) as f64);
    }
    let spec = Spec {
        grid: Grid { start_ms: 0, step_ms: 7000, count: 71 },
        shift: Shift::default(),
        range_ms: 60_000,
    };
    let mut out = vec![0.0; spec.grid.count];
    let meter = meter();
    Windows::new(Function::Increase, Vec::new(), &meter).compute(&samples, &spec, &mut out).unwrap();
    let mut checked = 0;
    spec.each(&meter, &samples.timestamps, |w| {
        if w.len() == 60 {
            let values = &samples.values[w.lo..w.hi];
            let plain = values.windows(2).map(|p| if p[1] < p[0] { p[1] } else { p[1] - p[0] }).sum::<f64>();
            // samples span 59 of 60 seconds; extrapolation stops where the counter would be zero
            let seconds = 59.0 + f64::min(1.0, 59.0 * values[0] / plain);
            assert!(almost_equal(plain * seconds / 59.0, out[w.step], 1e-12), "{plain} {}", out[w.step]);
            checked += 1;
        }
    })
    .unwrap();
    assert!(checked > 50, "{checked}");
}

#[test]
fn infinities_leave_a_window_again() {
    let mut samples = Samples::default();
    for i in 0..20i64 {
        samples.push(i * 1000, if i == 5 { f64::INFINITY } else { 1e308 });
    }
    let spec = Spec {
        grid: Grid { start_ms: 2000, step_ms: 1000, count: 18 },
        shift: Shift::default(),
        range_ms: 3000,
    };
    let mut out = vec![0.0; spec.grid.count];
    let meter = meter();
    Windows::new(Function::AvgOverTime, Vec::new(), &meter).compute(&samples, &spec, &mut out).unwrap();
    for (step, value) in out.iter().enumerate() {
        let sees_it = (3..=5).contains(&step);
        assert_eq!(*value == f64::INFINITY, sees_it, "{step}: {value}");
        assert!(sees_it || almost_equal(*value, 1e308, 1e-12), "{step}: {value}");
    }
}

#[test]
fn deviations_around_infinities_are_those_of_the_definition() {
    const INF: f64 = f64::INFINITY;
    let meter = meter();
    for values in [
        vec![INF],
        vec![-INF, INF],
        vec![1.0, INF],
        vec![1.0, INF, INF],
        vec![-INF, 1.0, 2.0, INF],
        vec![-INF, -INF, -INF, 5.0, INF],
        vec![1.0, 1.0, 1.0, 7.0],
    ] {
        let samples = Samples { timestamps: (1..=values.len() as i64).collect(), values: values.clone() };
        let spec = Spec { grid: Grid::single(10), shift: Shift::default(), range_ms: 10 };
        let mut out = [0.0];
        Windows::new(Function::MadOverTime, Vec::new(), &meter).compute(&samples, &spec, &mut out).unwrap();
        let expected = plainly(Function::MadOverTime, &samples.timestamps, &values, 10, 0.0);
        assert!(almost_equal(expected, out[0], 1e-12), "{values:?}: {expected} {}", out[0]);
    }
}
