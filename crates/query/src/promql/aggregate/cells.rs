//! State of an aggregation for one group at one step.

use crate::promql::float::{ABSENT, Kahan, Mean, is_absent};

pub(super) trait Cell: Copy {
    const EMPTY: Self;

    fn push(&mut self, value: f64);

    fn finish(&self) -> f64;
}

#[derive(Clone, Copy)]
pub(super) struct SumCell(Kahan);

impl Cell for SumCell {
    const EMPTY: Self = Self(Kahan::of(ABSENT));

    #[inline]
    fn push(&mut self, value: f64) {
        if is_absent(self.0.sum) {
            self.0 = Kahan::of(value);
        } else {
            self.0.add(value);
        }
    }

    fn finish(&self) -> f64 {
        if is_absent(self.0.sum) { ABSENT } else { self.0.sum + self.0.compensation }
    }
}

#[derive(Clone, Copy)]
pub(super) struct AvgCell(Mean);

impl Cell for AvgCell {
    const EMPTY: Self = Self(Mean::EMPTY);

    #[inline]
    fn push(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(&self) -> f64 {
        if self.0.count() == 0.0 { ABSENT } else { self.0.value() }
    }
}

#[derive(Clone, Copy)]
pub(super) struct CountCell(u64);

impl Cell for CountCell {
    const EMPTY: Self = Self(0);

    #[inline]
    fn push(&mut self, _: f64) {
        self.0 += 1;
    }

    fn finish(&self) -> f64 {
        if self.0 == 0 { ABSENT } else { self.0 as f64 }
    }
}

#[derive(Clone, Copy)]
pub(super) struct GroupCell(f64);

impl Cell for GroupCell {
    const EMPTY: Self = Self(ABSENT);

    #[inline]
    fn push(&mut self, _: f64) {
        self.0 = 1.0;
    }

    fn finish(&self) -> f64 {
        self.0
    }
}

/// Minimum of the values. It is NaN only if all values are NaN.
#[derive(Clone, Copy)]
pub(super) struct MinCell(f64);

impl Cell for MinCell {
    const EMPTY: Self = Self(ABSENT);

    #[inline]
    fn push(&mut self, value: f64) {
        if self.0 > value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(&self) -> f64 {
        self.0
    }
}

#[derive(Clone, Copy)]
pub(super) struct MaxCell(f64);

impl Cell for MaxCell {
    const EMPTY: Self = Self(ABSENT);

    #[inline]
    fn push(&mut self, value: f64) {
        if self.0 < value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(&self) -> f64 {
        self.0
    }
}

/// Welford's method, without compensation, as in Prometheus.
#[derive(Clone, Copy)]
pub(super) struct StdvarCell {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Cell for StdvarCell {
    const EMPTY: Self = Self { count: 0.0, mean: 0.0, squares: 0.0 };

    #[inline]
    fn push(&mut self, value: f64) {
        self.count += 1.0;
        if self.count == 1.0 {
            self.mean = value;
            self.squares = if value.is_finite() { 0.0 } else { f64::NAN };
            return;
        }
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }

    fn finish(&self) -> f64 {
        if self.count == 0.0 { ABSENT } else { self.squares / self.count }
    }
}

#[derive(Clone, Copy)]
pub(super) struct StddevCell(StdvarCell);

impl Cell for StddevCell {
    const EMPTY: Self = Self(StdvarCell::EMPTY);

    #[inline]
    fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn finish(&self) -> f64 {
        let variance = self.0.finish();
        if is_absent(variance) { ABSENT } else { variance.sqrt() }
    }
}
