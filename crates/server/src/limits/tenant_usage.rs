//! A tenant's use of limits that neither accounts nor gates count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::telemetry::Counter;

/// The largest value since the tenant was loaded.
#[derive(Debug, Default)]
pub(crate) struct Peak(AtomicU64);

impl Peak {
    pub(crate) fn note(&self, value: u64) {
        if value > self.get() {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) head_bytes: Peak,
    /// Write requests in the gate of known series.
    pub(crate) writes: Peak,
    /// Write requests in the gate of requests that create series.
    pub(crate) creating: Peak,
    pub(crate) queries: Peak,
    /// Memory of one query.
    pub(crate) query_bytes: Peak,
    /// Queries, exports and deletes that have a place at their gates. Queries there may still wait.
    pub(crate) queries_inside: Peak,
    pub(crate) exports: Peak,
    pub(crate) deletes: Peak,
    /// Series of one metric name, as of the last look.
    pub(crate) series_of_metric: Peak,
}

/// Samples since the tenant was loaded.
#[derive(Debug, Default)]
pub(crate) struct SampleCounts {
    /// Acknowledged samples, including repeated ones.
    pub(crate) stored: Counter,
    /// Samples left out of requests whose rest was stored.
    pub(crate) refused: Counter,
}

/// A rate per second and its peak.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Mean {
    pub(crate) per_s: f64,
    pub(crate) peak: f64,
}

/// Mean rates of several counts over the last minute.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeanRates<const N: usize> {
    means: [Mean; N],
    at: Option<Instant>,
}

const MEAN_RATE_S: f64 = 60.0;

impl<const N: usize> Default for MeanRates<N> {
    fn default() -> Self {
        Self { means: [Mean::default(); N], at: None }
    }
}

impl<const N: usize> MeanRates<N> {
    pub(super) fn add(&mut self, counts: [u64; N], now: Instant) {
        let rest = self.rest(now);
        for (mean, count) in self.means.iter_mut().zip(counts) {
            mean.per_s = mean.per_s * rest + count as f64 / MEAN_RATE_S;
            mean.peak = mean.peak.max(mean.per_s);
        }
        self.at = Some(now);
    }

    pub(super) fn at(&self, now: Instant) -> [Mean; N] {
        let rest = self.rest(now);
        self.means.map(|mean| Mean { per_s: mean.per_s * rest, ..mean })
    }

    fn rest(&self, now: Instant) -> f64 {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (-passed.as_secs_f64() / MEAN_RATE_S).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fade_and_peaks_stay() {
        let began = Instant::now();
        let mut rates = MeanRates::<2>::default();
        for second in 0..600 {
            rates.add([100, second % 2], began + Duration::from_secs(second));
        }
        let is_about = |value: f64, expected: f64| (expected * 0.98..=expected * 1.02).contains(&value);
        let [many, few] = rates.at(began + Duration::from_secs(599));
        assert!(
            is_about(many.per_s, 100.0) && is_about(many.peak, 100.0) && is_about(few.per_s, 0.5),
            "{many:?} {few:?}"
        );
        let [many, _] = rates.at(began + Duration::from_secs(599 + 600));
        assert!(many.per_s < 0.01 && is_about(many.peak, 100.0), "{many:?}");
    }
}
