//! Figures second by second, put together from all tallies.

use super::probe::Probing;
use super::readers::Reading;
use crate::observer::{Observer, Phase, Progress};
use crate::procfs::Process;
use crate::report::Quantiles;
use crate::result::{RunResult, SeriesKind, Step, Timeline, names};
use crate::scenario::shape::Stretch;
use crate::scenario::{RunLimits, Scenario};
use crate::write::sender::Run;
use crate::write::tally::LATENCY_US_MAX;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sums over all tenants since the begin.
#[derive(Debug, Clone, Default)]
struct Sums {
    sent: u64,
    acknowledged: u64,
    offered: u64,
    bytes: u64,
    distinct: u64,
    refused: u64,
    broken: u64,
    by_reason: BTreeMap<String, u64>,
    reads: u64,
    reads_succeeded: u64,
}

/// Looks at all tallies once a second.
pub(super) struct Seconds {
    runs: Vec<Arc<Run>>,
    reading: Vec<Arc<Reading>>,
    probing: Arc<Probing>,
    begin: Instant,
    duration: Duration,
    factors: Box<dyn Fn(f64) -> f64 + Send>,
    last: (Instant, Sums),
    last_cpu_s: f64,
    begin_cpu_s: f64,
    stretches: Vec<Stretch>,
    /// For each stretch: latencies, and the sums when it began.
    steps: Vec<(Histogram<u64>, Sums)>,
    /// When samples were last acknowledged, and the longest stretch without.
    last_success: Instant,
    silence: Duration,
    pub(super) series_active_max: f64,
    /// How long the generator itself stood still.
    pub(super) still: Duration,
}

/// Ticks that are further apart than this were held up by nothing that a target can do.
const STILL_MIN: Duration = Duration::from_secs(4);

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("BUG: constant bounds are valid")
}

impl Seconds {
    pub(super) fn new(
        scenario: &Scenario,
        runs: &[Arc<Run>],
        reading: &[Arc<Reading>],
        probing: &Arc<Probing>,
        begin: Instant,
    ) -> Self {
        let course = scenario.course();
        let cpu_s = Process::Own.cpu_seconds().unwrap_or(0.0);
        let stretches = course.stretches();
        Self {
            runs: runs.to_vec(),
            reading: reading.to_vec(),
            probing: Arc::clone(probing),
            begin,
            duration: Duration::from_secs_f64(scenario.duration.s() / scenario.compress),
            factors: Box::new(move |at_s| course.factor(at_s)),
            last: (begin, Sums::default()),
            last_cpu_s: cpu_s,
            begin_cpu_s: cpu_s,
            steps: stretches.iter().map(|_| (histogram(), Sums::default())).collect(),
            stretches,
            last_success: begin,
            silence: Duration::ZERO,
            series_active_max: 0.0,
            still: Duration::ZERO,
        }
    }

    /// How long the generator stood still just before, if it did; asked before each tick.
    pub(super) fn stood_still(&mut self) -> Option<Duration> {
        let gap = self.last.0.elapsed();
        (gap >= STILL_MIN).then(|| {
            self.still += gap;
            gap
        })
    }

    /// Adds a point.
    pub(super) fn tick(&mut self, timeline: &mut Timeline, observer: &dyn Observer) {
        let now = Instant::now();
        let at_s = (now - self.begin).as_secs_f64();
        let (recent, lag_s) = self.take_recent();
        let sums = self.sums();
        let (then, before) = std::mem::replace(&mut self.last, (now, sums.clone()));
        let seconds = (now - then).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        // the point is about the second that has just passed
        timeline.advance((at_s - 1.0).max(0.0));
        let acknowledged = rate(sums.acknowledged, before.acknowledged);
        if at_s < self.duration.as_secs_f64() + 1.0 {
            let (series, offered) = self.active(at_s - 0.5);
            self.series_active_max = self.series_active_max.max(series);
            timeline.set(names::SERIES_ACTIVE, "", SeriesKind::Sum, series);
            timeline.set(names::RATE_OFFERED, "1/s", SeriesKind::Sum, offered);
        }
        timeline.set(names::RATE_SENT, "1/s", SeriesKind::Sum, rate(sums.sent, before.sent));
        timeline.set(names::RATE_ACKNOWLEDGED, "1/s", SeriesKind::Sum, acknowledged);
        timeline.set(names::SERIES_DISTINCT, "", SeriesKind::Sum, sums.distinct as f64);
        for (reason, count) in &sums.by_reason {
            let count = rate(*count, before.by_reason.get(reason).copied().unwrap_or(0));
            timeline.set(&format!("{}{reason}", names::STATUS_PREFIX), "1/s", SeriesKind::Sum, count);
        }
        let p99_s = (!recent.is_empty()).then(|| recent.value_at_quantile(0.99) as f64 / 1e6);
        for (name, q) in [(names::LATENCY_P50, 0.5), (names::LATENCY_P90, 0.9), (names::LATENCY_P99, 0.99)] {
            if !recent.is_empty() {
                timeline.set(name, "s", SeriesKind::Max, recent.value_at_quantile(q) as f64 / 1e6);
            }
        }
        self.tick_others(timeline, &sums, &before, seconds, lag_s);
        self.tick_steps(at_s, &recent, &sums);
        if sums.acknowledged > before.acknowledged {
            self.last_success = now;
        }
        self.silence = self.silence.max(now - self.last_success);
        observer.progress(&Progress {
            phase: Phase::Writing,
            part: at_s / self.duration.as_secs_f64(),
            elapsed: now - self.begin,
            samples: sums.acknowledged,
            samples_per_s: acknowledged,
            p99_s,
            refused: sums.refused,
            broken: sums.broken,
        });
    }

    fn tick_others(
        &mut self,
        timeline: &mut Timeline,
        sums: &Sums,
        before: &Sums,
        seconds: f64,
        lag_s: Option<f64>,
    ) {
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
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
        let mut seen = self.probing.lock();
        if !seen.recent.is_empty() {
            let p99_s = seen.recent.value_at_quantile(0.99) as f64 / 1e6;
            timeline.set(names::FRESHNESS_P99, "s", SeriesKind::Max, p99_s);
            seen.recent.reset();
        }
        drop(seen);
        if self.reading.is_empty() {
            return;
        }
        let failed = |sums: &Sums| sums.reads - sums.reads_succeeded;
        timeline.set(
            names::READS,
            "1/s",
            SeriesKind::Sum,
            rate(sums.reads_succeeded, before.reads_succeeded),
        );
        timeline.set(names::READS_FAILED, "1/s", SeriesKind::Sum, rate(failed(sums), failed(before)));
        let mut slowest: Option<f64> = None;
        for reading in &self.reading {
            let mut counts = reading.lock();
            if !counts.recent.is_empty() {
                let p99_s = counts.recent.value_at_quantile(0.99) as f64 / 1e6;
                slowest = Some(slowest.map_or(p99_s, |s| s.max(p99_s)));
                counts.recent.reset();
            }
        }
        if let Some(p99_s) = slowest {
            timeline.set(names::READS_P99, "s", SeriesKind::Max, p99_s);
        }
    }

    fn tick_steps(&mut self, at_s: f64, recent: &Histogram<u64>, sums: &Sums) {
        // what was counted in the last second belongs to the stretch in which most of it lay
        let middle = at_s - 0.5;
        let at = self.stretches.iter().rposition(|s| s.from_s <= middle).unwrap_or(0);
        if let Some((latency, _)) = self.steps.get_mut(at) {
            latency.add(recent).expect("BUG: equal bounds");
        }
        for (stretch, (_, begin)) in self.stretches.iter().zip(&mut self.steps) {
            if stretch.from_s > middle {
                *begin = sums.clone();
            }
        }
    }

    /// Series and samples a second that the schedule has at `at_s`.
    fn active(&self, at_s: f64) -> (f64, f64) {
        let mut all = (0.0, 0.0);
        for run in &self.runs {
            let plan = &run.plan;
            let series = match &run.duty {
                Some(duty) => duty.series_at(plan, at_s.max(0.0)),
                None => plan.series() as f64,
            };
            all.0 += series;
            all.1 += series * 1000.0 / f64::from(plan.interval_ms);
        }
        all
    }

    fn take_recent(&self) -> (Histogram<u64>, Option<f64>) {
        let mut all = histogram();
        let mut lag: Option<f64> = None;
        for run in &self.runs {
            let mut counts = run.tally.lock();
            all.add(&counts.recent).expect("BUG: equal bounds");
            counts.recent.reset();
            if !counts.lag_recent.is_empty() {
                let p99_s = counts.lag_recent.value_at_quantile(0.99) as f64 / 1e6;
                lag = Some(lag.map_or(p99_s, |l| l.max(p99_s)));
                counts.lag_recent.reset();
            }
        }
        (all, lag)
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for run in &self.runs {
            let counts = run.tally.lock();
            sums.sent += counts.samples_sent;
            sums.acknowledged += counts.samples_acknowledged;
            sums.offered += counts.samples_offered;
            sums.bytes += counts.bytes;
            sums.distinct += counts.series_new;
            sums.refused += counts.refused_total();
            sums.broken += counts.failures_total();
            for (reason, count) in counts.by_reason() {
                *sums.by_reason.entry(reason).or_default() += count;
            }
        }
        for reading in &self.reading {
            let counts = reading.lock();
            sums.reads += counts.queries;
            sums.reads_succeeded += counts.succeeded;
        }
        sums
    }

    /// Why the run must end, if it is beyond its bounds.
    pub(super) fn beyond(&self, limits: &RunLimits) -> Option<String> {
        let sums = &self.last.1;
        if sums.sent as f64 > limits.samples.0 {
            return Some(format!(
                "{} samples were sent, and limits.samples allows {}",
                sums.sent, limits.samples.0
            ));
        }
        let bytes = limits.bytes.0;
        (sums.bytes > bytes)
            .then(|| format!("{} bytes were sent, and limits.bytes allows {bytes}", sums.bytes))
    }

    /// When samples were last acknowledged, in seconds since the begin.
    pub(super) fn last_success_s(&self) -> f64 {
        (self.last_success - self.begin).as_secs_f64()
    }

    pub(super) fn silence_s(&self) -> f64 {
        self.silence.as_secs_f64()
    }

    pub(super) fn own_cpu_s(&self) -> Option<f64> {
        Some(Process::Own.cpu_seconds()? - self.begin_cpu_s)
    }

    /// Adds the steps; called once, at the end.
    pub(super) fn finish(&mut self, result: &mut RunResult) {
        let (rest, _) = self.take_recent();
        if let Some((latency, _)) = self.steps.last_mut() {
            latency.add(&rest).expect("BUG: equal bounds");
        }
        let end = self.sums();
        let ends: Vec<Sums> = self.steps.iter().skip(1).map(|(_, sums)| sums.clone()).chain([end]).collect();
        let reached_s = (Instant::now() - self.begin).as_secs_f64();
        for ((stretch, (latency, begin)), end) in self.stretches.iter().zip(&self.steps).zip(ends) {
            if stretch.from_s >= reached_s {
                break;
            }
            let seconds = (stretch.to_s.min(reached_s) - stretch.from_s).max(1e-3);
            let middle = stretch.from_s.midpoint(stretch.to_s);
            let refused = |sums: &Sums| sums.refused + sums.broken;
            result.steps.push(Step {
                name: stretch.name.clone(),
                from_s: stretch.from_s,
                to_s: stretch.to_s,
                factor: (self.factors)(middle),
                offered_samples_per_s: self.active(middle).1,
                samples_per_s: end.acknowledged.saturating_sub(begin.acknowledged) as f64 / seconds,
                latency: Quantiles::of_micros(latency),
                refused: refused(&end).saturating_sub(refused(begin)),
            });
        }
    }
}
