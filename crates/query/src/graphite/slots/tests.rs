use super::*;

const NONE: f64 = f64::NAN;

/// Checks the values from second 0 at the step of an archive.
fn check(steps_s: &[i64], aggregation: Aggregate, samples: &[(i64, f64)], expected: &[f64]) {
    let archive = |(number, step_s): (usize, &i64)| Archive {
        step_s: *step_s,
        retention_s: 1_000_000 * (1 + number as i64),
    };
    let archives = steps_s.iter().enumerate().map(archive).collect();
    let schema = Schema { archives, aggregation, x_files_factor: 0.5 };
    let step_s = steps_s[steps_s.len() - 1];
    let end_s = step_s * expected.len() as i64;
    let layout = Layout { start_s: 0, end_s, step_s, archive: steps_s.len() - 1 };
    let mut values = Vec::new();
    let mut slots = Slots::new(&schema, layout, &mut values);
    samples.iter().for_each(|(ms, value)| slots.push(*ms, *value));
    slots.finish();
    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    let equal = values.len() == expected.len() && values.iter().zip(expected).all(same);
    assert!(equal, "{samples:?} at {steps_s:?} s: {values:?}, expected {expected:?}");
}

#[test]
fn the_last_sample_of_a_slot_counts() {
    let samples = [(-1, 9.0), (0, 1.0), (9_999, 2.0), (10_000, 3.0), (39_000, 4.0), (40_000, 9.0)];
    check(&[10], Aggregate::Sum, &samples, &[2.0, 3.0, NONE, 4.0]);
    check(&[10], Aggregate::Sum, &[(0, 1.0), (1_000, NONE)], &[1.0]);
}

#[test]
fn slots_are_consolidated_level_by_level() {
    // one of three values is not enough, two are
    check(&[10, 30], Aggregate::Sum, &[(1_000, 1.0), (30_000, 2.0), (45_000, 3.0)], &[NONE, 5.0]);
    let samples = [(0, 1.0), (10_000, 2.0), (20_000, 3.0), (30_000, 10.0), (50_000, 20.0)];
    check(&[10, 30, 60], Aggregate::Average, &samples, &[8.5, NONE]);
    check(&[10, 30, 60], Aggregate::Last, &[(10_000, 2.0), (20_000, 3.0)], &[3.0]);
    check(&[10, 20], Aggregate::AvgZero, &[(10_000, 4.0)], &[2.0]);
}

#[test]
fn coarse_history_is_taken_as_it_is() {
    let minutes = [(0, 1.0), (60_000, 2.0), (180_000, 3.0)];
    check(&[10, 60], Aggregate::Sum, &minutes, &[1.0, 2.0, NONE, 3.0]);
    check(&[10, 60], Aggregate::AvgZero, &minutes, &[1.0, 2.0, NONE, 3.0]);
    check(&[10, 60, 600], Aggregate::Sum, &[(0, 7.0), (600_000, 8.0)], &[7.0, 8.0]);
    check(&[10, 60], Aggregate::Sum, &[(60_000, 8.0)], &[NONE, 8.0, NONE]);
    // a single value in a slot is consolidated if its neighbours are
    check(&[10, 60], Aggregate::Sum, &[(10_000, 1.0), (60_000, 2.0), (130_000, 1.0)], &[NONE, NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(0, 2.0), (61_000, 1.0)], &[2.0, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(1, 2.0), (60_000, 1.0)], &[NONE, NONE]);
    // five minutes of minute values, then finer values
    let mut samples: Vec<_> = (0..5).map(|i| (60_000 * i, 60.0)).collect();
    samples.extend((30..60).map(|i| (10_000 * i, 10.0)));
    check(&[10, 60, 600], Aggregate::Sum, &samples, &[600.0]);
}
