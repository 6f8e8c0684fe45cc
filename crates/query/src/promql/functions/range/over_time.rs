//! Sums, means, variances, quantiles and counts of windows.

use super::sliding::{Part, Sliding};
use super::window::{Spec, Window};
use crate::meter::Meter;
use crate::promql::QueryError;
use crate::promql::float::{Kahan, Mean, quantile_sorted};
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

pub(super) fn sum(
    sums: &mut Sliding<Kahan>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    out: &mut [f64],
) -> Result<(), QueryError> {
    sums.reset();
    spec.each(meter, &samples.timestamps, |w| {
        out[w.step] = sums.window(&samples.timestamps, &samples.values, &w).total();
    })
}

pub(super) fn avg(
    sums: &mut Sliding<Kahan>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    out: &mut [f64],
) -> Result<(), QueryError> {
    sums.reset();
    spec.each_costly(meter, &samples.timestamps, |w| {
        let total = sums.window(&samples.timestamps, &samples.values, &w);
        let count = w.len() as f64;
        if !total.sum.is_infinite() {
            out[w.step] = total.sum / count + total.compensation / count;
            return 0;
        }
        // the sum overflows, or a value is infinite
        let mut mean = Mean::default();
        samples.values[w.lo..w.hi].iter().for_each(|v| mean.add(*v));
        out[w.step] = mean.value();
        w.len()
    })
}

/// Count, mean, and sum of squared distances from the mean (Welford 1962; Chan, Golub, LeVeque 1979). Mean
/// and sum are compensated.
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
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    finish: impl Fn(f64) -> f64,
    out: &mut [f64],
) -> Result<(), QueryError> {
    moments.reset();
    spec.each(meter, &samples.timestamps, |w| {
        let m = moments.window(&samples.timestamps, &samples.values, &w);
        out[w.step] = finish((m.squares.sum + m.squares.compensation) / m.count);
    })
}

/// For each window, how often two consecutive samples satisfy `counts(earlier, later)`.
pub(super) fn count_pairs(
    before: &mut Vec<u32>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    counts: impl Fn(f64, f64) -> bool,
    out: &mut [f64],
) -> Result<(), QueryError> {
    before.clear();
    before.push(0);
    let mut total = 0;
    for pair in samples.values.windows(2) {
        total += u32::from(counts(pair[0], pair[1]));
        before.push(total);
    }
    spec.each(meter, &samples.timestamps, |w| out[w.step] = f64::from(before[w.hi - 1] - before[w.lo]))
}

/// Maps a float to an integer, so that integers sort as the floats do, with NaN first.
fn order_key(value: f64) -> u64 {
    let bits = value.to_bits();
    match () {
        () if value.is_nan() => 0,
        () if bits >> 63 == 1 => !bits,
        () => bits | 1 << 63,
    }
}

fn value_of(key: u64) -> f64 {
    match () {
        () if key == 0 => f64::NAN,
        () if key >> 63 == 1 => f64::from_bits(key & !(1 << 63)),
        () => f64::from_bits(!key),
    }
}

#[derive(Debug, Default)]
pub(super) struct Sorted {
    keys: Vec<u64>,
    lo: usize,
    hi: usize,
}

/// Moving this many keys takes about as long as one step of sorting.
const MOVED_PER_STEP: usize = 32;

impl Sorted {
    fn reset(&mut self) {
        self.keys.clear();
        (self.lo, self.hi) = (0, 0);
    }

    /// Moves on to a later window. Returns the number of steps taken.
    fn advance(&mut self, samples: &[f64], window: &Window) -> usize {
        let (lo, hi) = (window.lo, window.hi);
        let (changed, len) = ((lo - self.lo) + (hi - self.hi), hi - lo);
        let replacing = changed * (1 + len / MOVED_PER_STEP);
        let sorting = len * (1 + len.ilog2() as usize);
        if lo >= self.hi || changed * 4 > len || replacing > sorting {
            self.keys.clear();
            self.keys.extend(samples[lo..hi].iter().map(|v| order_key(*v)));
            self.keys.sort_unstable();
            (self.lo, self.hi) = (lo, hi);
            return sorting;
        }
        let both = (lo - self.lo).min(hi - self.hi);
        for i in 0..both {
            self.replace(order_key(samples[self.lo + i]), order_key(samples[self.hi + i]));
        }
        for value in &samples[self.lo + both..lo] {
            let at = self.position(order_key(*value));
            self.keys.remove(at);
        }
        for value in &samples[self.hi + both..hi] {
            let key = order_key(*value);
            self.keys.insert(self.position(key), key);
        }
        (self.lo, self.hi) = (lo, hi);
        replacing
    }

    fn position(&self, key: u64) -> usize {
        self.keys.partition_point(|k| *k < key)
    }

    fn replace(&mut self, out: u64, new: u64) {
        let (from, to) = (self.position(out), self.position(new));
        if from < to {
            self.keys.copy_within(from + 1..to, from);
            self.keys[to - 1] = new;
        } else {
            self.keys.copy_within(to..from, to + 1);
            self.keys[to] = new;
        }
    }

    fn quantile_of_window(&self, q: f64) -> f64 {
        quantile_sorted(q, self.keys.len(), |i| value_of(self.keys[i]))
    }

    pub(super) fn quantile(
        &mut self,
        meter: &Meter<'_>,
        samples: &Samples,
        spec: &Spec,
        q: &[f64],
        out: &mut [f64],
    ) -> Result<(), QueryError> {
        self.reset();
        spec.each_costly(meter, &samples.timestamps, |w| {
            let steps = self.advance(&samples.values, &w);
            out[w.step] = self.quantile_of_window(q[w.step]);
            steps
        })
    }

    /// Median absolute deviation from the median.
    pub(super) fn mad(
        &mut self,
        meter: &Meter<'_>,
        samples: &Samples,
        spec: &Spec,
        out: &mut [f64],
    ) -> Result<(), QueryError> {
        self.reset();
        spec.each_costly(meter, &samples.timestamps, |w| {
            let steps = self.advance(&samples.values, &w);
            if value_of(self.keys[0]).is_nan() {
                out[w.step] = f64::NAN;
                return steps;
            }
            let median = self.quantile_of_window(0.5);
            if !median.is_finite() {
                out[w.step] = self.mad_of_infinities(median);
                return steps + self.keys.len();
            }
            out[w.step] = quantile_sorted(0.5, self.keys.len(), |k| self.distance(median, k));
            steps
        })
    }

    /// The `k`-th smallest distance from a finite median.
    fn distance(&self, median: f64, k: usize) -> f64 {
        let above = self.keys.partition_point(|key| value_of(*key) < median);
        let below = |i: usize| median - value_of(self.keys[above - 1 - i]);
        let beyond = |i: usize| value_of(self.keys[above + i]) - median;
        // binary search: how many of the `k` smallest distances belong to values below the median?
        let (mut least, mut most) = (k.saturating_sub(self.keys.len() - above), k.min(above));
        while least < most {
            let middle = least + (most - least) / 2;
            match below(middle) < beyond(k - middle - 1) {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        let rest = k - least;
        let from_below = (least < above).then(|| below(least));
        let from_beyond = (above + rest < self.keys.len()).then(|| beyond(rest));
        match (from_below, from_beyond) {
            (Some(a), Some(b)) => a.min(b),
            (Some(distance), None) | (None, Some(distance)) => distance,
            (None, None) => panic!("BUG: no distance {k} among {} keys", self.keys.len()),
        }
    }

    /// Median absolute deviation if the median is infinite or NaN. The distance between equal infinities is
    /// NaN.
    fn mad_of_infinities(&self, median: f64) -> f64 {
        let nans = self.keys.iter().filter(|key| (value_of(**key) - median).is_nan()).count();
        quantile_sorted(0.5, self.keys.len(), |i| if i < nans { f64::NAN } else { f64::INFINITY })
    }
}
