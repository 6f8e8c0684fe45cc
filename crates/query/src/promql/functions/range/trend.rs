//! deriv, predict_linear, double_exponential_smoothing.

use super::sliding::{Part, Sliding};
use super::window::{Spec, Window};
use crate::meter::Meter;
use crate::promql::QueryError;
use model::Samples;

/// Sums for a least-squares line: the mean of the points, and sums of products of distances from the mean
/// (Chan, Golub, LeVeque 1979).
#[derive(Debug, Clone, Copy)]
pub(super) struct Regression {
    count: f64,
    /// Time of the first point. Times of points are seconds since then.
    origin_ms: i64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    /// Smallest and largest value. If they are equal, the line is exact: it has this value and no slope.
    low: f64,
    high: f64,
}

impl Part for Regression {
    const EMPTY: Self = Self {
        count: 0.0,
        origin_ms: 0,
        mean_x: 0.0,
        mean_y: 0.0,
        xx: 0.0,
        xy: 0.0,
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
    };

    fn push(&mut self, time_ms: i64, value: f64) {
        let one =
            Self { count: 1.0, origin_ms: time_ms, mean_y: value, low: value, high: value, ..Self::EMPTY };
        *self = self.join(one);
    }

    fn join(self, later: Self) -> Self {
        if self.count == 0.0 {
            return later;
        }
        if later.count == 0.0 {
            return self;
        }
        let count = self.count + later.count;
        let later_mean_x = later.mean_x + (later.origin_ms - self.origin_ms) as f64 / 1000.0;
        let (dx, dy) = (later_mean_x - self.mean_x, later.mean_y - self.mean_y);
        let weight = self.count * later.count / count;
        Self {
            count,
            origin_ms: self.origin_ms,
            mean_x: self.mean_x + dx * (later.count / count),
            mean_y: self.mean_y + dy * (later.count / count),
            xx: self.xx + later.xx + dx * dx * weight,
            xy: self.xy + later.xy + dx * dy * weight,
            low: self.low.min(later.low),
            high: self.high.max(later.high),
        }
    }
}

impl Regression {
    /// Slope of the line, and its value at `time_ms`.
    fn line(&self, time_ms: i64) -> (f64, f64) {
        // the mean of infinite values or NaN is not finite
        if !self.mean_y.is_finite() {
            return (f64::NAN, f64::NAN);
        }
        if self.low == self.high {
            return (0.0, self.low);
        }
        let slope = self.xy / self.xx;
        let x = (time_ms - self.origin_ms) as f64 / 1000.0;
        (slope, self.mean_y + slope * (x - self.mean_x))
    }
}

fn each_line(
    sliding: &mut Sliding<Regression>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    mut visit: impl FnMut(&Window, &Regression),
) -> Result<(), QueryError> {
    sliding.reset();
    spec.each(meter, &samples.timestamps, |w| {
        let regression = sliding.window(&samples.timestamps, &samples.values, &w);
        if w.len() >= 2 {
            visit(&w, &regression);
        }
    })
}

pub(super) fn deriv(
    sliding: &mut Sliding<Regression>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    out: &mut [f64],
) -> Result<(), QueryError> {
    each_line(sliding, meter, samples, spec, |w, r| out[w.step] = r.line(samples.timestamps[w.lo]).0)
}

pub(super) fn predict(
    sliding: &mut Sliding<Regression>,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    ahead_seconds: &[f64],
    out: &mut [f64],
) -> Result<(), QueryError> {
    each_line(sliding, meter, samples, spec, |w, r| {
        let (slope, value) = r.line(w.time_ms);
        out[w.step] = slope * ahead_seconds[w.step] + value;
    })
}

/// `double_exponential_smoothing`. Each step visits all samples of its window.
pub(super) fn smooth(
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    smoothing: &[f64],
    trend: &[f64],
    out: &mut [f64],
) -> Result<(), QueryError> {
    spec.each_costly(meter, &samples.timestamps, |w| {
        if w.len() < 2 {
            return 0;
        }
        let values = &samples.values[w.lo..w.hi];
        let (sf, tf) = (smoothing[w.step], trend[w.step]);
        let (mut previous, mut level) = (0.0, values[0]);
        let mut slope = values[1] - values[0];
        for (i, value) in values.iter().enumerate().skip(1) {
            if i > 1 {
                slope = tf * (level - previous) + (1.0 - tf) * slope;
            }
            let next = sf * value + (1.0 - sf) * (level + slope);
            (previous, level) = (level, next);
        }
        out[w.step] = level;
        w.len()
    })
}
