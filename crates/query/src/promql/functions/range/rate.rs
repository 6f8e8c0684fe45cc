//! rate, increase, delta, irate, idelta.

use super::window::Spec;
use crate::meter::Meter;
use crate::promql::QueryError;
use model::Samples;

/// If a window has at most this many resets, their corrections are added one by one in Prometheus' order, for
/// the same result. Otherwise, their sum is the difference of two running totals, which takes constant time.
const RESETS_ADDED_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Positions of the samples that are smaller than the one before, because the counter was reset.
    resets: Vec<usize>,
    /// `totals[k]` is the sum of the first `k` corrections, each of which is the value before a reset.
    totals: Vec<f64>,
}

impl Scratch {
    fn find(&mut self, values: &[f64]) {
        self.resets.clear();
        self.totals.clear();
        let mut total = 0.0;
        for (i, pair) in values.windows(2).enumerate() {
            if pair[1] < pair[0] {
                self.resets.push(i + 1);
                self.totals.push(total);
                total += pair[0];
            }
        }
        self.totals.push(total);
    }
}

/// `rate`, `increase` (of a `COUNTER`) and `delta`: the change in the window, corrected for resets and
/// extrapolated.
pub(super) fn extrapolated<const COUNTER: bool>(
    scratch: &mut Scratch,
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    per_second: bool,
    out: &mut [f64],
) -> Result<(), QueryError> {
    let values = samples.values.as_slice();
    if COUNTER {
        scratch.find(values);
    }
    // the resets inside the window are `from..to`
    let (mut from, mut to) = (0, 0);
    spec.each_costly(meter, &samples.timestamps, |w| {
        if w.len() < 2 {
            return 0;
        }
        let mut change = values[w.hi - 1] - values[w.lo];
        if COUNTER {
            let resets = scratch.resets.as_slice();
            while to < resets.len() && resets[to] < w.hi {
                to += 1;
            }
            while from < to && resets[from] <= w.lo {
                from += 1;
            }
            let all = scratch.totals[to] - scratch.totals[from];
            if to - from <= RESETS_ADDED_MAX || !all.is_finite() {
                resets[from..to].iter().for_each(|i| change += values[i - 1]);
            } else {
                change += all;
            }
        }
        let (first_ms, last_ms) = (samples.timestamps[w.lo], samples.timestamps[w.hi - 1]);
        let known = Known { first_ms, last_ms, count: w.len() as f64, first: values[w.lo], change };
        out[w.step] = known.stretched::<COUNTER>(w.end_ms, spec.range_ms, per_second);
        to - from
    })
}

pub(super) struct Known {
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: f64,
    pub(super) first: f64,
    /// Change from the first to the last sample, corrected for resets.
    pub(super) change: f64,
}

impl Known {
    /// The change extrapolated to the whole window, or its rate per second.
    #[inline]
    pub(super) fn stretched<const COUNTER: bool>(&self, end_ms: i64, range_ms: i64, per_second: bool) -> f64 {
        let mut factor = self.extrapolation::<COUNTER>(end_ms, range_ms);
        if per_second {
            factor /= range_ms as f64 / 1000.0;
        }
        self.change * factor
    }

    /// Factor of the extrapolation to the whole window (`extrapolatedRate` in Prometheus'
    /// `promql/functions.go`).
    #[inline]
    fn extrapolation<const COUNTER: bool>(&self, end_ms: i64, range_ms: i64) -> f64 {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let mut to_start = seconds(self.first_ms - (end_ms - range_ms));
        let mut to_end = seconds(end_ms - self.last_ms);
        let sampled = seconds(self.last_ms - self.first_ms);
        let spacing = sampled / (self.count - 1.0);
        // after a larger gap, the series begins (or ends) inside the window: assume half of the usual spacing
        let threshold = spacing * 1.1;
        if to_start >= threshold {
            to_start = spacing / 2.0;
        }
        if COUNTER {
            // the counter cannot have been negative, so it began no earlier than where it would be zero
            let mut to_zero = to_start;
            if self.change > 0.0 && self.first >= 0.0 {
                to_zero = sampled * (self.first / self.change);
            }
            if to_zero < to_start {
                to_start = to_zero;
            }
        }
        if to_end >= threshold {
            to_end = spacing / 2.0;
        }
        (sampled + to_start + to_end) / sampled
    }
}

/// `irate` and `idelta`: change between the last two samples.
pub(super) fn instant(
    meter: &Meter<'_>,
    samples: &Samples,
    spec: &Spec,
    rate: bool,
    out: &mut [f64],
) -> Result<(), QueryError> {
    let (times, values) = (samples.timestamps.as_slice(), samples.values.as_slice());
    spec.each(meter, times, |w| {
        if w.len() < 2 {
            return;
        }
        let (before, last) = (values[w.hi - 2], values[w.hi - 1]);
        let mut change = if rate && last < before { last } else { last - before };
        if rate {
            change /= (times[w.hi - 1] - times[w.hi - 2]) as f64 / 1000.0;
        }
        out[w.step] = change;
    })
}
