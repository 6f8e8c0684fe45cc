//! Arithmetic with the same results as in Prometheus.

use model::{STALE_NAN_BITS, Samples, sample::is_stale};

/// A missing value of a series at a step: the bits of the staleness marker. Arithmetic never produces these
/// bits.
pub(super) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

#[inline]
pub(super) const fn is_absent(value: f64) -> bool {
    is_stale(value)
}

#[inline]
pub(super) const fn is_present(value: f64) -> bool {
    !is_stale(value)
}

pub(super) fn drop_stale(samples: &mut Samples) {
    // without branches, the compiler uses vector instructions
    let has_absent = |block: &[f64]| block.iter().fold(false, |found, value| found | is_absent(*value));
    if !samples.values.chunks(64).any(has_absent) {
        return;
    }
    let mut kept = 0;
    for i in 0..samples.values.len() {
        if is_present(samples.values[i]) {
            samples.values[kept] = samples.values[i];
            samples.timestamps[kept] = samples.timestamps[i];
            kept += 1;
        }
    }
    samples.values.truncate(kept);
    samples.timestamps.truncate(kept);
}

/// A sum with its compensation (Neumaier 1974).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kahan {
    pub(super) sum: f64,
    pub(super) compensation: f64,
}

impl Kahan {
    #[inline]
    pub(super) const fn of(value: f64) -> Self {
        Self { sum: value, compensation: 0.0 }
    }

    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        let total = self.sum + value;
        if total.is_infinite() {
            self.compensation = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.compensation += (self.sum - total) + value;
        } else {
            self.compensation += (value - total) + self.sum;
        }
        self.sum = total;
    }

    #[inline]
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.add(other.sum);
        self.compensation += other.compensation;
        self
    }

    #[inline]
    pub(super) fn total(self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.compensation }
    }
}

/// Mean as in Prometheus: a compensated sum, divided at the end. When the sum would overflow, it is replaced
/// by the mean, which is then updated with each value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    count: f64,
    sum: Kahan,
    incremental: bool,
}

impl Mean {
    pub(super) const EMPTY: Self = Self { count: 0.0, sum: Kahan::of(0.0), incremental: false };

    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.count == 1.0 {
            self.sum = Kahan::of(value);
            return;
        }
        if !self.incremental {
            let mut next = self.sum;
            next.add(value);
            if !next.sum.is_infinite() {
                self.sum = next;
                return;
            }
            self.incremental = true;
            self.sum.sum /= self.count - 1.0;
            self.sum.compensation /= self.count - 1.0;
        }
        let weight = (self.count - 1.0) / self.count;
        self.sum.sum *= weight;
        self.sum.compensation *= weight;
        self.sum.add(value / self.count);
    }

    pub(super) const fn count(&self) -> f64 {
        self.count
    }

    pub(super) fn value(&self) -> f64 {
        if self.incremental {
            self.sum.sum + self.sum.compensation
        } else {
            self.sum.sum / self.count + self.sum.compensation / self.count
        }
    }
}

pub(super) fn nan_first(a: &f64, b: &f64) -> std::cmp::Ordering {
    b.is_nan().cmp(&a.is_nan()).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
}

/// The `q`-quantile of `len` values that are sorted by [`nan_first`].
pub(super) fn quantile_sorted(q: f64, len: usize, sorted: impl Fn(usize) -> f64) -> f64 {
    if len == 0 || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let last = (len - 1) as f64;
    let rank = q * last;
    let lower = rank.floor().max(0.0);
    let upper = (lower + 1.0).min(last);
    let weight = rank - rank.floor();
    sorted(lower as usize) * (1.0 - weight) + sorted(upper as usize) * weight
}

/// True if the relative difference is less than `epsilon` (https://floating-point-gui.de/errors/comparison/).
pub(super) fn almost_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

/// The larger or smaller value, by the rules of Go's `math.Max` and `math.Min`.
pub(super) fn extreme(a: f64, b: f64, larger: bool) -> f64 {
    let winner = if larger { f64::INFINITY } else { f64::NEG_INFINITY };
    if a == winner || b == winner {
        winner
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        // Rust's own functions may return either of 0 and -0
        if a.is_sign_negative() == larger { b } else { a }
    } else if larger {
        a.max(b)
    } else {
        a.min(b)
    }
}

/// Formats a float as Go's `%g`: shortest, with an exponent from 1e21 on and below 1e-4.
pub(super) fn to_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').expect("BUG: a float in exponent form has no exponent");
        let exponent: i32 = exponent.parse().expect("BUG: the exponent of a float is not an integer");
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    value.to_string()
}
