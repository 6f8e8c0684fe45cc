use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

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
    // six of ten 1 s values make a 10 s value, but one of six 10 s values makes no 60 s value
    let samples: Vec<_> = (0..6).map(|i| (1_000 * i, 2.0)).collect();
    check(&[1, 10], Aggregate::Sum, &samples, &[12.0]);
    check(&[1, 10, 60], Aggregate::Sum, &samples, &[NONE]);
}

/// The values of the coarsest slots as Whisper makes them, by their beginning.
fn whisper(schema: &Schema, samples: &[(i64, f64)]) -> BTreeMap<i64, f64> {
    let mut finer_s = schema.archives[0].step_s;
    let begin = |at_s: i64, step_s: i64| at_s - at_s.rem_euclid(step_s);
    let mut values: BTreeMap<_, _> =
        samples.iter().map(|(ms, value)| (begin(ms / 1000, finer_s), *value)).collect();
    for Archive { step_s, .. } in &schema.archives[1..] {
        let mut known: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        values.iter().for_each(|(at_s, value)| known.entry(begin(*at_s, *step_s)).or_default().push(*value));
        let slots = (step_s / finer_s) as f64;
        known.retain(|_, known| known.len() as f64 / slots >= schema.x_files_factor);
        values = known.into_iter().map(|(at_s, known)| (at_s, schema.aggregation.of(&known))).collect();
        finer_s = *step_s;
    }
    values
}

#[test]
fn samples_that_are_not_history_are_consolidated_like_whisper() {
    let mut rng = Rng::announced();
    for _ in 0..2_000 {
        let mut step_s = 1 + rng.below(3) as i64;
        let mut archives = Vec::new();
        for number in 0..2 + rng.below(3) as i64 {
            archives.push(Archive { step_s, retention_s: 1_000_000 * (1 + number) });
            step_s *= 2 + rng.below(4) as i64;
        }
        let methods = [Aggregate::Sum, Aggregate::Average, Aggregate::Last, Aggregate::Max];
        let aggregation = methods[rng.below(4) as usize];
        let x_files_factor = [0.0, 0.3, 0.5, 1.0][rng.below(4) as usize];
        let last = archives.len() - 1;
        let step_s = archives[last].step_s;
        let schema = Schema { archives, aggregation, x_files_factor };
        let part = rng.unit();
        // no sample is at the beginning of a slot
        let seconds = (0..20 * step_s).filter(|_| rng.chance(part)).collect::<Vec<_>>();
        let samples: Vec<_> =
            seconds.iter().map(|at_s| (1_000 * at_s + 1, rng.below(1_000) as f64)).collect();
        let layout = Layout { start_s: 0, end_s: 20 * step_s, step_s, archive: last };
        let mut values = Vec::new();
        let mut slots = Slots::new(&schema, layout, &mut values);
        samples.iter().for_each(|(ms, value)| slots.push(*ms, *value));
        slots.finish();
        let found = (0..).map(|slot| slot * step_s).zip(values).filter(|(_, value)| !value.is_nan());
        assert_eq!(found.collect::<BTreeMap<_, _>>(), whisper(&schema, &samples), "{schema:?} {samples:?}");
    }
}

#[test]
fn coarse_history_is_taken_as_it_is() {
    let minutes = [(0, 1.0), (60_000, 2.0), (180_000, 3.0), (240_000, 4.0)];
    check(&[10, 60], Aggregate::Sum, &minutes, &[1.0, 2.0, NONE, 3.0, 4.0]);
    check(&[10, 60, 600], Aggregate::Sum, &[(0, 7.0), (600_000, 8.0)], &[7.0, 8.0]);
    // a single value in a slot is consolidated if there is none in the slots beside it, or if it was consolidated
    check(&[10, 60], Aggregate::Sum, &[(60_000, 8.0)], &[NONE, NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(0, 8.0), (120_000, 8.0)], &[NONE, NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(10_000, 1.0), (60_000, 2.0), (130_000, 1.0)], &[NONE, NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(0, 2.0), (61_000, 1.0)], &[NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(1, 2.0), (60_000, 1.0)], &[NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(0, 2.0), (60_000, 1.0), (119_999, 1.0)], &[NONE, NONE]);
    // five minutes of minute values, then finer values
    let mut samples: Vec<_> = (0..5).map(|i| (60_000 * i, 60.0)).collect();
    samples.extend((30..60).map(|i| (10_000 * i, 10.0)));
    check(&[10, 60, 600], Aggregate::Sum, &samples, &[600.0]);
}

#[test]
fn marked_values_are_history_of_their_archive() {
    let mark = |at_s: i64, step_s| (mark_ms(at_s, step_s), f64::from_bits(model::STALE_NAN_BITS));
    check(&[10, 60], Aggregate::Sum, &[mark(60, 60), (60_000, 8.0)], &[NONE, 8.0, NONE]);
    check(&[10, 60, 600], Aggregate::Sum, &[mark(600, 600), (600_000, 8.0)], &[NONE, 8.0, NONE]);
    // without marks, samples that arrive once a minute are one of six values
    check(&[10, 60], Aggregate::AvgZero, &[(0, 6.0), (60_000, 12.0)], &[NONE, NONE]);
    check(
        &[10, 60],
        Aggregate::AvgZero,
        &[mark(0, 60), (0, 6.0), mark(60, 60), (60_000, 12.0)],
        &[6.0, 12.0],
    );
    // one of ten values of the finer archive
    check(&[10, 60, 600], Aggregate::Sum, &[mark(600, 60), (600_000, 8.0)], &[NONE, NONE, NONE]);
    // the file had other steps than the schema: one of 60, or of 300 seconds, and one of an hour
    check(&[10, 600], Aggregate::Sum, &[mark(600, 60), (600_000, 8.0)], &[NONE, NONE, NONE]);
    check(&[10, 600], Aggregate::Sum, &[mark(600, 300), (600_000, 8.0)], &[NONE, NONE, NONE]);
    check(&[10, 60, 600], Aggregate::Sum, &[mark(600, 3600), (600_000, 8.0)], &[NONE, 8.0, NONE]);
    // finer values count, whatever was marked
    check(&[10, 60], Aggregate::Sum, &[mark(60, 60), (60_000, 8.0), (80_000, 1.0)], &[NONE, NONE]);
    // a mark is for the value at its time only, and other NaNs are no marks
    check(&[10, 60], Aggregate::Sum, &[mark(60, 60), (120_000, 8.0)], &[NONE, NONE, NONE]);
    check(&[10, 60], Aggregate::Sum, &[(59_999, NONE), (60_000, 8.0)], &[NONE, NONE, NONE]);
    let mut last_ms = 0;
    for doublings in 0..31 {
        let (at_ms, value) = mark(-7_200, 1 << doublings);
        let (announced_ms, lead_ms) = marked(at_ms, value).unwrap();
        assert_eq!((announced_ms, lead_ms > last_ms), (-7_200_000, doublings < 30), "{lead_ms} ms");
        last_ms = lead_ms;
    }
}

#[test]
fn values_do_not_depend_on_the_range() {
    let mut rng = Rng::announced();
    let archives = [(10, 1 << 30), (60, 1 << 31), (300, 1 << 32)];
    let archives = archives.map(|(step_s, retention_s)| Archive { step_s, retention_s }).to_vec();
    for _ in 0..2_000 {
        let methods = [Aggregate::Sum, Aggregate::Average, Aggregate::Last];
        let aggregation = methods[rng.below(3) as usize];
        let schema = Schema { archives: archives.clone(), aggregation, x_files_factor: 0.5 };
        // mostly at the beginnings of slots
        let mut samples = BTreeMap::new();
        for _ in 0..rng.below(40) {
            let step_s = [10, 60, 300, 300][rng.below(4) as usize];
            let at_s = rng.below(6_000 / step_s) as i64 * step_s as i64;
            samples.insert(1_000 * at_s, rng.below(1_000) as f64);
            if rng.chance(0.2) {
                let marked_s = [60, 300][rng.below(2) as usize];
                samples.insert(mark_ms(at_s, marked_s), f64::from_bits(model::STALE_NAN_BITS));
            }
        }
        let archive = 1 + rng.below(2) as usize;
        let step_s = archives[archive].step_s;
        let values_of = |slots: std::ops::Range<i64>| {
            let layout = Layout { start_s: slots.start * step_s, end_s: slots.end * step_s, step_s, archive };
            let around_s = layout.around_s();
            let read = 1_000 * (layout.start_s - around_s)..1_000 * (layout.end_s + around_s);
            let mut values = Vec::new();
            let mut slots = Slots::new(&schema, layout, &mut values);
            samples.range(read).for_each(|(ms, value)| slots.push(*ms, *value));
            slots.finish();
            values.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let count = 6_000 / step_s;
        let all = values_of(0..count);
        for _ in 0..20 {
            let start = rng.below(count as u64) as i64;
            let end = start + 1 + rng.below((count - start) as u64) as i64;
            let part = &all[start as usize..end as usize];
            assert_eq!(values_of(start..end), part, "{start} to {end} of {samples:?}");
        }
    }
}
