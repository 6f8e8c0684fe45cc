//! Collects the figures of all connections once a second.

use super::traffic::Traffic;
use crate::drive::meter::{Meter, Second, Sums, take_recent};
use crate::drive::probe::Probing;
use crate::drive::readers::Reading;
use crate::drive::send::generated::Run;
use crate::drive::send::sender::Lane;
use crate::drive::tally::{Tally, histogram};
use crate::result::Quantiles;
use crate::result::{RunResult, SeriesKind, Step, Timeline, names};
use crate::scenario::shape::LoadPhase;
use crate::scenario::{RunLimits, Scenario};
use crate::show::progress::{Observer, Phase, Progress};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Seconds {
    lanes: Vec<Arc<Lane>>,
    /// Runs of generated traffic, whose plans say what is scheduled. A replay has none.
    runs: Vec<Arc<Run>>,
    reading: Vec<Arc<Reading>>,
    probing: Arc<Probing>,
    begin: Instant,
    duration: Duration,
    /// True if the load ends after a number of rounds instead of a duration.
    counts_rounds: bool,
    phase: Phase,
    factors: Box<dyn Fn(f64) -> f64 + Send>,
    pub(crate) meter: Meter,
    /// Number of queries, and of successful queries, until the previous tick.
    reads: (u64, u64),
    phases: Vec<LoadPhase>,
    /// True if answers after the end of the load count in the last phase.
    counts_tail: bool,
    /// What was counted during each phase of the load.
    steps: Vec<StepSums>,
    pub(crate) series_active_max: f64,
    pub(crate) still: Duration,
}

/// Latencies of a phase, and the cumulative counts at its beginning and at its end.
struct StepSums {
    latency: Histogram<u64>,
    begin: Sums,
    end: Sums,
}

impl StepSums {
    fn new() -> Self {
        Self { latency: histogram(), begin: Sums::default(), end: Sums::default() }
    }
}

/// If two ticks are further apart than this, the generator was suspended.
const STILL_MIN: Duration = Duration::from_secs(4);

fn tallies(lanes: &[Arc<Lane>]) -> impl Iterator<Item = &Tally> + Clone {
    lanes.iter().map(|lane| &lane.tally)
}

impl Seconds {
    pub(crate) fn new(
        scenario: &Scenario,
        traffic: &Traffic,
        reading: &[Arc<Reading>],
        probing: &Arc<Probing>,
        begin: Instant,
    ) -> Self {
        let course = scenario.course();
        let phases = match scenario.burst_interval_s() {
            Some(interval_s) => course.measured(interval_s),
            None => course.phases(),
        };
        let counts_tail = phases.last().is_some_and(|last| last.to_s >= scenario.length_s() - 1e-3);
        Self {
            lanes: traffic.lanes.clone(),
            runs: traffic.runs.clone(),
            phase: if traffic.replay.is_some() { Phase::Replaying } else { Phase::Writing },
            reading: reading.to_vec(),
            probing: Arc::clone(probing),
            begin,
            duration: traffic.length(scenario),
            counts_rounds: scenario.load.rounds.is_some(),
            factors: Box::new(move |at_s| course.factor(at_s)),
            meter: Meter::new(begin),
            reads: (0, 0),
            steps: phases.iter().map(|_| StepSums::new()).collect(),
            phases,
            counts_tail,
            series_active_max: 0.0,
            still: Duration::ZERO,
        }
    }

    /// Returns the time since the previous tick if it shows that the generator was suspended. Called before each tick.
    pub(crate) fn stood_still(&mut self) -> Option<Duration> {
        let gap = self.meter.elapsed();
        (gap >= STILL_MIN).then(|| {
            self.still += gap;
            gap
        })
    }

    pub(crate) fn tick(&mut self, timeline: &mut Timeline, observer: &dyn Observer) {
        let second = self.meter.second(tallies(&self.lanes), timeline);
        let at_s = second.at_s;
        if self.runs.is_empty() {
            timeline.set(names::RATE_OFFERED, "1/s", SeriesKind::Sum, second.offered_per_s);
        } else if at_s < self.duration.as_secs_f64() + 1.0 {
            let (series, offered) = self.active(at_s - 0.5);
            self.series_active_max = self.series_active_max.max(series);
            timeline.set(names::SERIES_ACTIVE, "", SeriesKind::Sum, series);
            timeline.set(names::RATE_OFFERED, "1/s", SeriesKind::Sum, offered);
        }
        timeline.set(names::SERIES_DISTINCT, "", SeriesKind::Sum, second.sums.distinct as f64);
        self.tick_probes(timeline);
        self.tick_reads(timeline, second.seconds);
        self.tick_steps(&second);
        observer.progress(&Progress {
            phase: self.phase,
            part: if self.counts_rounds { self.part_sent() } else { at_s / self.duration.as_secs_f64() },
            elapsed: Duration::from_secs_f64(at_s),
            samples: second.sums.acknowledged,
            samples_per_s: second.acknowledged_per_s,
            p99_s: second.p99_s(),
            refused: second.sums.refused,
            broken: second.sums.broken,
        });
    }

    fn tick_probes(&self, timeline: &mut Timeline) {
        let mut seen = self.probing.lock();
        if !seen.recent.is_empty() {
            let p99_s = seen.recent.value_at_quantile(0.99) as f64 / 1e6;
            timeline.set(names::FRESHNESS_P99, "s", SeriesKind::Max, p99_s);
            seen.recent.reset();
        }
    }

    fn tick_reads(&mut self, timeline: &mut Timeline, seconds: f64) {
        if self.reading.is_empty() {
            return;
        }
        let (mut queries, mut succeeded) = (0, 0);
        let mut slowest: Option<f64> = None;
        for reading in &self.reading {
            let mut counts = reading.lock();
            queries += counts.totals.queries;
            succeeded += counts.totals.succeeded;
            if !counts.recent.is_empty() {
                let p99_s = counts.recent.value_at_quantile(0.99) as f64 / 1e6;
                slowest = Some(slowest.map_or(p99_s, |s| s.max(p99_s)));
                counts.recent.reset();
            }
        }
        let (queries_before, succeeded_before) = std::mem::replace(&mut self.reads, (queries, succeeded));
        let (asked, answered) = (queries - queries_before, succeeded - succeeded_before);
        timeline.set(names::READS, "1/s", SeriesKind::Sum, answered as f64 / seconds);
        let failed = asked.saturating_sub(answered);
        timeline.set(names::READS_FAILED, "1/s", SeriesKind::Sum, failed as f64 / seconds);
        if let Some(p99_s) = slowest {
            timeline.set(names::READS_P99, "s", SeriesKind::Max, p99_s);
        }
    }

    fn tick_steps(&mut self, second: &Second) {
        // if the phase changes within a second, the second belongs to the phase that takes up most of it
        let middle = second.at_s - 0.5;
        let last = self.phases.len().saturating_sub(1);
        let counts_tail = self.counts_tail;
        for (number, (phase, step)) in self.phases.iter().zip(&mut self.steps).enumerate() {
            if phase.from_s > middle {
                step.begin = second.sums.clone();
            } else if middle < phase.to_s || (number == last && counts_tail) {
                step.latency.add(&second.latency).expect("BUG: the histograms have different bounds");
                step.end = second.sums.clone();
            }
        }
    }

    /// Number of series that should be active at `at_s`, and number of samples that should then be sent per second.
    fn active(&self, at_s: f64) -> (f64, f64) {
        let mut all = (0.0, 0.0);
        for run in &self.runs {
            let plan = &run.plan;
            let series = match &run.time_share {
                Some(time_share) => time_share.series_at(plan, at_s.max(0.0)),
                None => plan.series() as f64,
            };
            all.0 += series;
            all.1 += series * run.rounds_per_s();
        }
        all
    }

    fn part_sent(&self) -> f64 {
        let (mut sent, mut all) = (0.0, 0.0);
        for run in &self.runs {
            sent += run.lane.tally.lock().totals.requests as f64;
            all += run.plan.slots_count() as f64 * f64::from(run.plan.rounds_max);
        }
        sent / all
    }

    /// Returns the reason to end the run, if it has sent more than the scenario's limits allow.
    pub(crate) fn beyond(&self, limits: &RunLimits) -> Option<String> {
        let sums = self.meter.sums();
        if sums.sent as f64 > limits.samples.0 {
            return Some(format!(
                "{} samples were sent, the limit is {} (limits.samples)",
                sums.sent, limits.samples.0
            ));
        }
        let bytes = limits.bytes.0;
        (sums.bytes > bytes)
            .then(|| format!("{} bytes were sent, the limit is {bytes} (limits.bytes)", sums.bytes))
    }

    /// Adds the figures of each phase to the result. Called once, at the end.
    pub(crate) fn finish(&mut self, result: &mut RunResult) {
        let (rest, _) = take_recent(tallies(&self.lanes));
        let reached_s = (Instant::now() - self.begin).as_secs_f64();
        // what came after the last whole second belongs to the step in which the run has ended
        let (last, counts_tail) = (self.phases.len().saturating_sub(1), self.counts_tail);
        let reached = self.phases.iter().zip(&mut self.steps).enumerate().find(|(number, (phase, _))| {
            phase.from_s < reached_s && (reached_s <= phase.to_s || (*number == last && counts_tail))
        });
        if let Some((_, (_, step))) = reached {
            step.latency.add(&rest).expect("BUG: the histograms have different bounds");
            step.end = Sums::of(tallies(&self.lanes));
        }
        for (phase, StepSums { latency, begin, end }) in self.phases.iter().zip(&self.steps) {
            if phase.from_s >= reached_s {
                break;
            }
            let seconds = (phase.to_s.min(reached_s) - phase.from_s).max(1e-3);
            let middle = phase.from_s.midpoint(phase.to_s);
            let refused = |sums: &Sums| sums.refused + sums.broken;
            result.steps.push(Step {
                name: phase.name.clone(),
                from_s: phase.from_s,
                to_s: phase.to_s,
                factor: (self.factors)(middle),
                offered_samples_per_s: match self.runs.is_empty() {
                    true => end.offered.saturating_sub(begin.offered) as f64 / seconds,
                    false => self.active(middle).1,
                },
                samples_per_s: end.acknowledged.saturating_sub(begin.acknowledged) as f64 / seconds,
                latency: Quantiles::of_micros(latency),
                refused: refused(end).saturating_sub(refused(begin)),
                ..Step::default()
            });
        }
    }
}
