//! Values at the step of an archive, computed from samples.
//!
//! ```text
//!   samples ─▶ slots of the finest step: the last sample of a slot counts
//!           ─▶ slots of the next step: the method over the finer slots, if enough of them have values
//!           ─▶ … up to the step that is asked for
//! ```
//!
//! Carbon and Whisper do this when samples arrive. Here it is done when samples are read, because they are stored as
//! they came.
//!
//! History from Whisper files has only coarse values for times that the finer archives no longer cover. They must not
//! be consolidated again. A value is *lone* if it is the only sample of a coarser slot and stands exactly at its
//! beginning. Of two lone values in a row, both are taken as they are.

use crate::{Method, Schema};

/// Computes the slots of one archive of a schema.
#[derive(Debug)]
pub struct Resampler {
    method: Method,
    x_files_factor: f64,
    /// One for each step finer than that of the archive, the finest first.
    levels: Vec<Level>,
    finest_s: i64,
    step_s: i64,
    start_s: i64,
    out: Vec<f64>,
}

/// The slots of one step that belong to the current slot of the next coarser step.
#[derive(Debug)]
struct Level {
    step_s: i64,
    coarser_s: i64,
    /// The beginning of the current coarser slot, if it has a value.
    slot_s: Option<i64>,
    values: Vec<f64>,
    /// True while the current coarser slot has no value but one at its beginning.
    is_lone: bool,
    was_lone: bool,
    /// A lone value that waits for the next coarser slot with a value.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    slot_s: i64,
    value: f64,
    /// The value if the next one is not lone.
    otherwise: Option<f64>,
}

/// A value on its way to the coarser levels.
struct Point {
    at_s: i64,
    value: f64,
}

impl Resampler {
    /// The slots begin at `start_s`, a multiple of `step_s`, and end before `end_s`. `step_s` is the step of an archive
    /// of the schema. The caller provides for the memory of the answer, 8 bytes for each slot.
    #[must_use]
    pub fn new(schema: &Schema<'_>, step_s: u32, start_s: i64, end_s: i64) -> Self {
        let step_s = i64::from(step_s).max(1);
        let steps: Vec<_> =
            schema.archives.iter().map(|a| i64::from(a.step_s)).take_while(|s| *s <= step_s).collect();
        let levels = steps.windows(2).map(|pair| Level::new(pair[0], pair[1])).collect();
        let slots = usize::try_from((end_s - start_s).div_euclid(step_s)).unwrap_or(0);
        Self {
            method: schema.method,
            x_files_factor: schema.x_files_factor,
            levels,
            finest_s: steps.first().copied().unwrap_or(step_s),
            step_s,
            start_s,
            out: vec![f64::NAN; slots],
        }
    }

    /// Takes a sample. Samples come in the order of time. They should begin one step before `start_s` and go on for
    /// one step after `end_s`, so that lone values are found.
    pub fn push(&mut self, timestamp_ms: i64, value: f64) {
        if value.is_nan() {
            return;
        }
        let at_s = timestamp_ms.div_euclid(1000 * self.finest_s) * self.finest_s;
        self.put(0, &Point { at_s, value }, timestamp_ms == 1000 * at_s);
    }

    /// Passes a value to a level. `is_exact` tells whether it stands at the beginning of its slot.
    fn put(&mut self, level: usize, point: &Point, is_exact: bool) {
        let Some(current) = self.levels.get_mut(level) else {
            let slot = usize::try_from((point.at_s - self.start_s).div_euclid(self.step_s));
            if let Some(slot) = slot.ok().and_then(|slot| self.out.get_mut(slot)) {
                *slot = point.value;
            }
            return;
        };
        let slot_s = point.at_s.div_euclid(current.coarser_s) * current.coarser_s;
        if current.slot_s == Some(slot_s) {
            current.is_lone = false;
        } else {
            self.end_slot(level);
            let current = &mut self.levels[level];
            current.slot_s = Some(slot_s);
            current.is_lone = is_exact && point.at_s == slot_s;
        }
        let current = &mut self.levels[level];
        let at = ((point.at_s - slot_s) / current.step_s) as usize;
        current.values[at] = point.value;
    }

    /// Passes the current slot of a level to the next level.
    fn end_slot(&mut self, level: usize) {
        let current = &mut self.levels[level];
        let Some(slot_s) = current.slot_s.take() else { return };
        let value = self.method.aggregate(&current.values, self.x_files_factor);
        let first = current.values[0];
        current.values.fill(f64::NAN);
        let (is_lone, was_lone) =
            (current.is_lone, std::mem::replace(&mut current.was_lone, current.is_lone));
        self.end_waiting(level, is_lone);
        if is_lone && !was_lone {
            self.levels[level].waiting = Some(Waiting { slot_s, value: first, otherwise: value });
        } else if let Some(value) = if is_lone { Some(first) } else { value } {
            self.put(level + 1, &Point { at_s: slot_s, value }, true);
        }
    }

    fn end_waiting(&mut self, level: usize, next_is_lone: bool) {
        let Some(Waiting { slot_s, value, otherwise }) = self.levels[level].waiting.take() else { return };
        if let Some(value) = if next_is_lone { Some(value) } else { otherwise } {
            self.put(level + 1, &Point { at_s: slot_s, value }, true);
        }
    }

    /// Returns the values of the slots. NaN stands for a missing value.
    #[must_use]
    pub fn finish(mut self) -> Vec<f64> {
        for level in 0..self.levels.len() {
            self.end_slot(level);
            self.end_waiting(level, false);
        }
        self.out
    }
}

impl Level {
    fn new(step_s: i64, coarser_s: i64) -> Self {
        let values = vec![f64::NAN; (coarser_s / step_s.max(1)) as usize];
        Self { step_s, coarser_s, slot_s: None, values, is_lone: false, was_lone: false, waiting: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Archive, parse_archives};

    fn check(archives: &[Archive], method: Method, step_s: u32, samples: &[(i64, f64)], expected: &[f64]) {
        let schema = Schema { section: "test", archives, method, x_files_factor: 0.5 };
        let end_s = i64::from(step_s) * expected.len() as i64;
        let mut resampler = Resampler::new(&schema, step_s, 0, end_s);
        samples.iter().for_each(|(ms, value)| resampler.push(*ms, *value));
        let found = resampler.finish();
        let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(same),
            "{samples:?} at {step_s} s: {found:?}, expected {expected:?}"
        );
    }

    const NONE: f64 = f64::NAN;

    #[test]
    fn slots_and_methods() {
        let archives = parse_archives("10s:1h,30s:1d,60s:2d").unwrap();
        let check = |method, step_s, samples: &[(i64, f64)], expected: &[f64]| {
            check(&archives, method, step_s, samples, expected);
        };
        // the last sample of a slot counts
        check(
            Method::Sum,
            10,
            &[(0, 1.0), (9_999, 2.0), (10_000, 3.0), (39_000, 4.0)],
            &[2.0, 3.0, NONE, 4.0],
        );
        // 30 s: one of three values is not enough, two are
        check(Method::Sum, 30, &[(1_000, 1.0), (30_000, 2.0), (45_000, 3.0)], &[NONE, 5.0]);
        // 60 s is computed from 30 s
        check(
            Method::Average,
            60,
            &[(0, 1.0), (10_000, 2.0), (20_000, 3.0), (30_000, 10.0), (50_000, 20.0)],
            &[8.5, NONE],
        );
        check(Method::Last, 60, &[(0, NONE), (10_000, 2.0), (20_000, 3.0)], &[3.0]);
        // samples outside of the slots are ignored
        check(Method::Last, 10, &[(-10_000, 1.0), (0, 2.0), (10_000, 3.0)], &[2.0]);
    }

    #[test]
    fn coarse_history_is_taken_as_it_is() {
        let archives = parse_archives("10s:1h,60s:1d,10m:1y").unwrap();
        let check = |method, step_s, samples: &[(i64, f64)], expected: &[f64]| {
            check(&archives, method, step_s, samples, expected);
        };
        let minutes = [(0, 1.0), (60_000, 2.0), (180_000, 3.0)];
        check(Method::Sum, 60, &minutes, &[1.0, 2.0, NONE, 3.0]);
        check(Method::AvgZero, 60, &minutes, &[1.0, 2.0, NONE, 3.0]);
        check(Method::Sum, 600, &[(0, 7.0), (600_000, 8.0)], &[7.0, 8.0]);
        // a single value in a slot is consolidated if its neighbours are
        check(Method::Sum, 60, &[(10_000, 1.0), (60_000, 2.0), (130_000, 1.0)], &[NONE, NONE, NONE]);
        // five minutes of minute values, then finer values
        let mut samples: Vec<_> = (0..5).map(|i| (60_000 * i, 60.0)).collect();
        samples.extend((30..60).map(|i| (10_000 * i, 10.0)));
        check(Method::Sum, 600, &samples, &[600.0]);
    }
}
