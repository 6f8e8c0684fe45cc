//! Sums, means, variances, quantiles and counts of windows.

use super::sliding::{Part, Sliding};
use super::{Spec, Window};
use crate::promql::float::{Kahan, Mean, nan_first, quantile_sorted};
use model::Samples;

impl Part for Kahan {
    const EMPTY: Self = Self { sum: 0.0, compensation: 0.0 };

    #[inline]
    fn push(&mut self, _: i64, value: f64) {
        self.add(value);
    }

    #[inline]
    fn join(self, later: Self) -> Self {
        self.merge(later)
    }
}

pub(super) fn sum(sums: &mut Sliding<Kahan>, samples: &Samples, spec: &Spec, out: &mut [f64]) {
    sums.reset();
    spec.each(&samples.timestamps, |w| {
        out[w.step] = sums.window(&samples.timestamps, &samples.values, &w).total();
    });
}

pub(super) fn avg(sums: &mut Sliding<Kahan>, samples: &Samples, spec: &Spec, out: &mut [f64]) {
    sums.reset();
    spec.each(&samples.timestamps, |w| {
        let total = sums.window(&samples.timestamps, &samples.values, &w);
        let count = w.len() as f64;
        out[w.step] = if total.sum.is_infinite() {
            // An overflow, or a real infinity: the mean must be carried along instead.
            let mut mean = Mean::default();
            samples.values[w.lo..w.hi].iter().for_each(|v| mean.add(*v));
            mean.value()
        } else {
            total.sum / count + total.compensation / count
        };
    });
}

/// Count, mean and sum of squared distances from it (Welford 1962; put together as in Chan, Golub,
/// LeVeque 1979), the latter two compensated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    count: f64,
    mean: Kahan,
    squares: Kahan,
}

impl Part for Moments {
    const EMPTY: Self = Self { count: 0.0, mean: Kahan::EMPTY, squares: Kahan::EMPTY };

    #[inline]
    fn push(&mut self, _: i64, value: f64) {
        self.count += 1.0;
        let delta = value - (self.mean.sum + self.mean.compensation);
        self.mean.add(delta / self.count);
        self.squares.add(delta * (value - (self.mean.sum + self.mean.compensation)));
    }

    fn join(self, later: Self) -> Self {
        if later.count == 0.0 {
            return self;
        }
        let count = self.count + later.count;
        let delta = (later.mean.sum + later.mean.compensation) - (self.mean.sum + self.mean.compensation);
        let mut mean = self.mean;
        mean.add(delta * (later.count / count));
        let mut squares = self.squares.merge(later.squares);
        squares.add(delta * delta * (self.count * later.count / count));
        Self { count, mean, squares }
    }
}

pub(super) fn variance(
    moments: &mut Sliding<Moments>,
    samples: &Samples,
    spec: &Spec,
    finish: impl Fn(f64) -> f64,
    out: &mut [f64],
) {
    moments.reset();
    spec.each(&samples.timestamps, |w| {
        let m = moments.window(&samples.timestamps, &samples.values, &w);
        out[w.step] = finish((m.squares.sum + m.squares.compensation) / m.count);
    });
}

/// How many neighbours in the window satisfy `counts(earlier, later)`.
pub(super) fn count_pairs(
    before: &mut Vec<u32>,
    samples: &Samples,
    spec: &Spec,
    counts: impl Fn(f64, f64) -> bool,
    out: &mut [f64],
) {
    before.clear();
    before.push(0);
    let mut total = 0;
    for pair in samples.values.windows(2) {
        total += u32::from(counts(pair[0], pair[1]));
        before.push(total);
    }
    spec.each(&samples.timestamps, |w| out[w.step] = f64::from(before[w.hi - 1] - before[w.lo]));
}

/// The values of a window in order.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    values: Vec<f64>,
    lo: usize,
    hi: usize,
    distances: Vec<f64>,
}

impl Sorted {
    fn reset(&mut self) {
        self.values.clear();
        (self.lo, self.hi) = (0, 0);
    }

    /// Moves on to a later window: by sorting anew where little is shared, else by replacing the values
    /// that differ.
    fn advance(&mut self, samples: &[f64], window: &Window) {
        let (lo, hi) = (window.lo, window.hi);
        let changed = (lo - self.lo) + (hi - self.hi);
        if lo >= self.hi || changed * 8 > hi - lo {
            self.values.clear();
            self.values.extend_from_slice(&samples[lo..hi]);
            self.values.sort_unstable_by(nan_first);
        } else {
            for value in &samples[self.lo..lo] {
                let at = self.position(*value);
                self.values.remove(at);
            }
            for value in &samples[self.hi..hi] {
                let at = self.position(*value);
                self.values.insert(at, *value);
            }
        }
        (self.lo, self.hi) = (lo, hi);
    }

    fn position(&self, value: f64) -> usize {
        self.values.partition_point(|v| nan_first(v, &value).is_lt())
    }

    pub(super) fn quantile(&mut self, samples: &Samples, spec: &Spec, q: &[f64], out: &mut [f64]) {
        self.reset();
        spec.each(&samples.timestamps, |w| {
            self.advance(&samples.values, &w);
            out[w.step] = quantile_sorted(q[w.step], &self.values);
        });
    }

    /// The median distance from the median.
    pub(super) fn mad(&mut self, samples: &Samples, spec: &Spec, out: &mut [f64]) {
        self.reset();
        spec.each(&samples.timestamps, |w| {
            self.advance(&samples.values, &w);
            if self.values[0].is_nan() {
                out[w.step] = f64::NAN;
                return;
            }
            let median = quantile_sorted(0.5, &self.values);
            self.distances.clear();
            self.distances.extend(self.values.iter().map(|v| (v - median).abs()));
            self.distances.sort_unstable_by(nan_first);
            out[w.step] = quantile_sorted(0.5, &self.distances);
        });
    }
}
