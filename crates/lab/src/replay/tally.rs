//! What became of the requests, counted by all writers together.

use crate::http::{Answer, Failure};
use crate::report::Quantiles;
use crate::result::{SeriesKind, Timeline, Totals, names};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer latencies count as this long.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Refused for good, and nothing taken ever: the target does not want this at all.
const REJECTED_MAX: u64 = 20;

#[derive(Debug)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    totals: Totals,
    latency: Histogram<u64>,
    service: Histogram<u64>,
    refusal: Histogram<u64>,
    lag: Histogram<u64>,
    last_success: Option<Instant>,
    begun: Instant,
    silence: Duration,
    recent: Recent,
}

/// Since the last second.
#[derive(Debug)]
struct Recent {
    since: Instant,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
    sent: u64,
    acknowledged: u64,
    offered: u64,
    by_reason: BTreeMap<String, u64>,
    /// All that ever were, so that a status that stops goes to 0.
    reasons: BTreeSet<String>,
    cpu_s: Option<f64>,
}

/// The figures of a second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Now {
    pub(super) samples: u64,
    pub(super) samples_per_s: f64,
    pub(super) p99_s: Option<f64>,
    pub(super) refused: u64,
    pub(super) broken: u64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("BUG: constant bounds are valid")
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

impl Tally {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Counts {
            totals: Totals::default(),
            latency: histogram(),
            service: histogram(),
            refusal: histogram(),
            lag: histogram(),
            last_success: None,
            begun: now,
            silence: Duration::ZERO,
            recent: Recent {
                since: now,
                latency: histogram(),
                lag: histogram(),
                sent: 0,
                acknowledged: 0,
                offered: 0,
                by_reason: BTreeMap::new(),
                reasons: BTreeSet::new(),
                cpu_s: crate::procfs::Process::Own.cpu_seconds(),
            },
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("BUG: a writer panicked while counting")
    }

    pub(super) fn request(&self, samples: usize) {
        let mut counts = self.lock();
        counts.totals.requests += 1;
        counts.totals.samples_offered += samples as u64;
        counts.recent.offered += samples as u64;
    }

    pub(super) fn unsent(&self, samples: usize) {
        let mut counts = self.lock();
        counts.totals.unsent += 1;
        counts.totals.samples_offered += samples as u64;
    }

    pub(super) fn sent(&self, samples: u64, bytes: u64) {
        let mut counts = self.lock();
        counts.totals.bytes += bytes;
        counts.recent.sent += samples;
    }

    pub(super) fn lag(&self, lag: Duration) {
        let mut counts = self.lock();
        record(&mut counts.lag, lag);
        record(&mut counts.recent.lag, lag);
    }

    pub(super) fn success(&self, status: u16, latency: Duration, service: Duration, samples: u64) {
        let mut counts = self.lock();
        counts.reason(status.to_string());
        counts.totals.succeeded += 1;
        counts.totals.samples_acknowledged += samples;
        counts.recent.acknowledged += samples;
        record(&mut counts.latency, latency);
        record(&mut counts.recent.latency, latency);
        record(&mut counts.service, service);
        counts.end_silence();
        counts.last_success = Some(Instant::now());
    }

    pub(super) fn refused(&self, answer: &Answer, took: Duration) {
        let mut counts = self.lock();
        record(&mut counts.refusal, took);
        let status = answer.status.as_u16();
        if (status == 429 || status >= 500) && answer.retry_after().is_none() {
            counts.totals.without_retry_after += 1;
        }
        counts.totals.said.entry(status.to_string()).or_insert_with(|| answer.text());
        counts.reason(status.to_string());
    }

    pub(super) fn failed(&self, failure: &Failure) {
        let kind = match failure {
            Failure::Connect(_) => "connect",
            Failure::Broken(_) => "broken",
            Failure::Timeout(_) => "timeout",
        };
        let mut counts = self.lock();
        counts.totals.said.entry(kind.to_owned()).or_insert_with(|| failure.to_string());
        counts.reason(kind.to_owned());
    }

    /// False where this target takes nothing at all.
    pub(super) fn rejected(&self) -> bool {
        let totals = &mut self.lock().totals;
        totals.rejected += 1;
        totals.samples_acknowledged > 0 || totals.rejected < REJECTED_MAX
    }

    /// False where no other request got through for as long either.
    pub(super) fn give_up(&self, after: Duration) -> bool {
        let mut counts = self.lock();
        counts.totals.given_up += 1;
        counts.last_success.is_some_and(|at| at.elapsed() < after)
    }

    /// Adds the last second to the timeline.
    pub(super) fn second(&self, timeline: &mut Timeline) -> Now {
        let mut counts = self.lock();
        let elapsed_s = counts.recent.since.elapsed().as_secs_f64().max(1e-3);
        let begun = counts.begun;
        let cpu_s = crate::procfs::Process::Own.cpu_seconds();
        let recent = &mut counts.recent;
        // the middle of what was measured says which point it is
        timeline.advance((begun.elapsed().as_secs_f64() - elapsed_s / 2.0).max(0.0));
        let rate = |count: u64| count as f64 / elapsed_s;
        for (name, count) in [
            (names::RATE_OFFERED, recent.offered),
            (names::RATE_SENT, recent.sent),
            (names::RATE_ACKNOWLEDGED, recent.acknowledged),
        ] {
            timeline.set(name, "1/s", SeriesKind::Sum, rate(count));
        }
        for reason in &recent.reasons {
            let count = recent.by_reason.get(reason).copied().unwrap_or(0);
            timeline.set(&format!("{}{reason}", names::STATUS_PREFIX), "1/s", SeriesKind::Sum, rate(count));
        }
        let mut p99_s = None;
        if !recent.latency.is_empty() {
            let q = Quantiles::of_micros(&recent.latency);
            timeline.set(names::LATENCY_P50, "s", SeriesKind::Max, q.p50_s);
            timeline.set(names::LATENCY_P90, "s", SeriesKind::Max, q.p90_s);
            timeline.set(names::LATENCY_P99, "s", SeriesKind::Max, q.p99_s);
            p99_s = Some(q.p99_s);
        }
        if !recent.lag.is_empty() {
            let lag = Quantiles::of_micros(&recent.lag);
            timeline.set(names::GENERATOR_LAG, "s", SeriesKind::Max, lag.p99_s);
        }
        if let Some((now, before)) = cpu_s.zip(recent.cpu_s) {
            timeline.set(names::GENERATOR_CPU, "cores", SeriesKind::Sum, (now - before) / elapsed_s);
        }
        if let Some(rss) = crate::procfs::Process::Own.rss_bytes() {
            timeline.set(names::GENERATOR_RSS, "bytes", SeriesKind::Sum, rss as f64);
        }
        let samples_per_s = rate(recent.acknowledged);
        recent.latency.reset();
        recent.lag.reset();
        (recent.sent, recent.acknowledged, recent.offered, recent.cpu_s) = (0, 0, 0, cpu_s);
        recent.by_reason.clear();
        recent.since = Instant::now();
        let totals = &counts.totals;
        let answered = |reason: &str| reason.starts_with(|c: char| c.is_ascii_digit());
        let count = |what: &dyn Fn(&str) -> bool| {
            totals.by_reason.iter().filter(|(reason, _)| what(reason)).map(|(_, n)| n).sum()
        };
        Now {
            samples: totals.samples_acknowledged,
            samples_per_s,
            p99_s,
            refused: count(&|reason| answered(reason) && !reason.starts_with('2')),
            broken: count(&|reason| !answered(reason)),
        }
    }

    /// Everything so far.
    pub(super) fn totals(&self, wall_s: f64) -> Totals {
        let mut counts = self.lock();
        counts.end_silence();
        let mut totals = counts.totals.clone();
        totals.samples_per_s = totals.samples_acknowledged as f64 / wall_s;
        totals.latency = Quantiles::of_micros(&counts.latency);
        totals.service = Quantiles::of_micros(&counts.service);
        totals.refusal = Quantiles::of_micros(&counts.refusal);
        totals.lag = Quantiles::of_micros(&counts.lag);
        totals.silence_s = counts.silence.as_secs_f64();
        totals
    }
}

impl Counts {
    fn reason(&mut self, reason: String) {
        self.totals.attempts += 1;
        *self.recent.by_reason.entry(reason.clone()).or_default() += 1;
        self.recent.reasons.insert(reason.clone());
        *self.totals.by_reason.entry(reason).or_default() += 1;
    }

    fn end_silence(&mut self) {
        self.silence = self.silence.max(self.last_success.unwrap_or(self.begun).elapsed());
    }
}
