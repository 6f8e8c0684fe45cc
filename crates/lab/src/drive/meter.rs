//! Figures of each second for the timeline, and the totals of a whole run.

use super::tally::{Tally, histogram};
use crate::observe::procfs::Process;
use crate::result::Quantiles;
use crate::result::merge::add_by_reason;
use crate::result::{SeriesKind, Timeline, Totals, names};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    pub(crate) offered: u64,
    pub(crate) sent: u64,
    pub(crate) acknowledged: u64,
    pub(crate) bytes: u64,
    pub(crate) distinct: u64,
    pub(crate) refused: u64,
    pub(crate) broken: u64,
    pub(crate) by_reason: BTreeMap<String, u64>,
}

impl Sums {
    pub(crate) fn of<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Self {
        let mut sums = Self::default();
        for tally in tallies {
            let counts = tally.lock();
            sums.offered += counts.totals.samples_offered;
            sums.sent += counts.samples_sent;
            sums.acknowledged += counts.totals.samples_acknowledged;
            sums.bytes += counts.totals.bytes;
            sums.distinct += counts.totals.series_distinct;
            sums.refused += counts.refused_total();
            sums.broken += counts.broken;
            add_by_reason(&mut sums.by_reason, &counts.totals.by_reason);
        }
        sums
    }
}

#[derive(Debug)]
pub(crate) struct Meter {
    begin: Instant,
    last: (Instant, Sums),
    last_cpu_s: f64,
    begin_cpu_s: f64,
    last_success: Instant,
    silence: Duration,
}

#[derive(Debug)]
pub(crate) struct Second {
    /// End of the second, in seconds from the start of the run.
    pub(crate) at_s: f64,
    pub(crate) seconds: f64,
    pub(crate) sums: Sums,
    pub(crate) offered_per_s: f64,
    pub(crate) acknowledged_per_s: f64,
    pub(crate) latency: Histogram<u64>,
}

impl Second {
    pub(crate) fn p99_s(&self) -> Option<f64> {
        (!self.latency.is_empty()).then(|| self.latency.value_at_quantile(0.99) as f64 / 1e6)
    }
}

impl Meter {
    pub(crate) fn new(begin: Instant) -> Self {
        let cpu_s = Process::Own.cpu_seconds().unwrap_or(0.0);
        Self {
            begin,
            last: (begin, Sums::default()),
            last_cpu_s: cpu_s,
            begin_cpu_s: cpu_s,
            last_success: begin,
            silence: Duration::ZERO,
        }
    }

    pub(crate) fn second<'a>(
        &mut self,
        tallies: impl Iterator<Item = &'a Tally> + Clone,
        timeline: &mut Timeline,
    ) -> Second {
        let now = Instant::now();
        let at_s = (now - self.begin).as_secs_f64();
        let (latency, lag_s) = take_recent(tallies.clone());
        let sums = Sums::of(tallies);
        let (then, before) = std::mem::replace(&mut self.last, (now, sums.clone()));
        let seconds = (now - then).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        timeline.advance((at_s - seconds.min(1.0)).max(0.0));
        let acknowledged_per_s = rate(sums.acknowledged, before.acknowledged);
        timeline.set(names::RATE_SENT, "1/s", SeriesKind::Sum, rate(sums.sent, before.sent));
        timeline.set(names::RATE_ACKNOWLEDGED, "1/s", SeriesKind::Sum, acknowledged_per_s);
        for (reason, count) in &sums.by_reason {
            let count = rate(*count, before.by_reason.get(reason).copied().unwrap_or(0));
            timeline.set(&format!("{}{reason}", names::STATUS_PREFIX), "1/s", SeriesKind::Sum, count);
        }
        for (name, q) in [(names::LATENCY_P50, 0.5), (names::LATENCY_P90, 0.9), (names::LATENCY_P99, 0.99)] {
            if !latency.is_empty() {
                timeline.set(name, "s", SeriesKind::Max, latency.value_at_quantile(q) as f64 / 1e6);
            }
        }
        self.generator(timeline, seconds, lag_s);
        if sums.acknowledged > before.acknowledged {
            self.last_success = now;
        }
        self.silence = self.silence.max(now - self.last_success);
        let offered_per_s = rate(sums.offered, before.offered);
        Second { at_s, seconds, sums, offered_per_s, acknowledged_per_s, latency }
    }

    fn generator(&mut self, timeline: &mut Timeline, seconds: f64, lag_s: Option<f64>) {
        if let Some(lag_s) = lag_s {
            timeline.set(names::GENERATOR_LAG, "s", SeriesKind::Max, lag_s);
        }
        if let Some(cpu_s) = Process::Own.cpu_seconds() {
            let cores = (cpu_s - self.last_cpu_s) / seconds;
            timeline.set(names::GENERATOR_CPU, "cores", SeriesKind::Sum, cores);
            self.last_cpu_s = cpu_s;
        }
        if let Some(bytes) = Process::Own.rss_bytes() {
            timeline.set(names::GENERATOR_RSS, "bytes", SeriesKind::Sum, bytes as f64);
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.last.0.elapsed()
    }

    pub(crate) fn sums(&self) -> &Sums {
        &self.last.1
    }

    /// When the target last acknowledged samples, in seconds since the start of the run.
    pub(crate) fn last_success_s(&self) -> f64 {
        (self.last_success - self.begin).as_secs_f64()
    }

    pub(crate) fn silence_s(&self) -> f64 {
        self.silence.as_secs_f64()
    }

    pub(crate) fn own_cpu_s(&self) -> Option<f64> {
        Some(Process::Own.cpu_seconds()? - self.begin_cpu_s)
    }
}

/// Returns the latencies since the previous call, and the p99 of the generator lag in seconds.
pub(crate) fn take_recent<'a>(tallies: impl Iterator<Item = &'a Tally>) -> (Histogram<u64>, Option<f64>) {
    let mut all = histogram();
    let mut lag: Option<f64> = None;
    for tally in tallies {
        let mut counts = tally.lock();
        all.add(&counts.recent).expect("BUG: the histograms have different bounds");
        counts.recent.reset();
        if !counts.lag_recent.is_empty() {
            let p99_s = counts.lag_recent.value_at_quantile(0.99) as f64 / 1e6;
            lag = Some(lag.map_or(p99_s, |l| l.max(p99_s)));
            counts.lag_recent.reset();
        }
    }
    (all, lag)
}

pub(crate) fn totals<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Totals {
    let [mut latency, mut new, mut service, mut refusal, mut lag] = [0; 5].map(|_: u8| histogram());
    let mut totals = Totals::default();
    for tally in tallies {
        let counts = tally.lock();
        for (sum, part) in [
            (&mut latency, &counts.latency),
            (&mut new, &counts.latency_new),
            (&mut service, &counts.service),
            (&mut refusal, &counts.refusal),
            (&mut lag, &counts.lag),
        ] {
            sum.add(part).expect("BUG: the histograms have different bounds");
        }
        totals.add_counts(&counts.totals);
    }
    totals.succeeded = latency.len();
    let mut known = latency.clone();
    known.subtract(&new).expect("BUG: requests with new series are not among all requests");
    totals.latency = Quantiles::of_micros(&latency);
    totals.latency_new = Quantiles::of_micros(&new);
    totals.latency_known = Quantiles::of_micros(&known);
    totals.service = Quantiles::of_micros(&service);
    totals.refusal = Quantiles::of_micros(&refusal);
    totals.lag = Quantiles::of_micros(&lag);
    totals
}
