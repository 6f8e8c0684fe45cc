//! Computes the timestamps of a load: its interval, number of rounds, and first timestamp.

use super::{Model, Scenario, Span, notation};
use anyhow::{Context, Result, ensure};

const INTERVAL_MS_DEFAULT: u64 = 15_000;

/// A closed loop begins this long in the past, because its timestamps advance faster than the clock.
const HORIZON_MS: u64 = 3_600_000;

/// Assumed maximum rate of a closed loop, more than any target accepts. The interval is chosen so that the timestamps
/// last even at this rate.
const CLOSED_SAMPLES_PER_S_MAX: f64 = 8e6;

/// Maximum time by which the timestamps of samples may be ahead of the clock.
pub(crate) const FUTURE_MS_MAX: i64 = 60_000;

const ROUNDS_MAX: f64 = 100e6;

/// Timestamps of a load. Every series has one sample in each round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) interval_ms: u32,
    /// Timestamp of the first round, as a number of intervals since 1970.
    pub(crate) first_tick: u64,
    pub(crate) rounds_max: u32,
    /// `None` for a closed loop.
    pub(crate) rounds_per_s: Option<f64>,
}

impl Scenario {
    /// Duration of the load in seconds, after division by `compress`.
    pub fn length_s(&self) -> f64 {
        self.duration.s() / self.compress
    }

    /// Number of series of all tenants together at base load.
    pub(super) fn series(&self) -> f64 {
        let load = self.scaled();
        f64::from(load.tenants) * f64::from(load.writers) * load.metrics.0 * load.series_per_metric.0
    }

    /// Time between two samples of a series. It is a multiple of the resolution of timestamps.
    pub fn interval_ms(&self) -> u64 {
        let resolution_ms = u64::from(self.protocol().resolution_ms());
        let interval_ms = self.interval_any_ms();
        (interval_ms - interval_ms % resolution_ms).max(resolution_ms)
    }

    fn interval_any_ms(&self) -> u64 {
        let load = &self.load;
        if let Some(interval) = load.interval {
            return interval.ms();
        }
        if let Some(rate) = load.rate {
            // rounded down, so that timestamps never overtake the clock
            return ((self.series() * 1000.0 / rate.0) as u64).max(1);
        }
        if load.model == Model::Open {
            return INTERVAL_MS_DEFAULT;
        }
        let rounds =
            load.rounds.map_or(self.length_s() * CLOSED_SAMPLES_PER_S_MAX / self.series(), f64::from);
        match (HORIZON_MS as f64 / rounds.max(1.0)) as u64 {
            INTERVAL_MS_DEFAULT.. => INTERVAL_MS_DEFAULT,
            fits @ 1_000.. => fits / 1_000 * 1_000,
            fits => fits.max(1),
        }
    }

    /// Rounds per second at base load. `None` for a closed loop.
    pub(crate) fn rounds_per_s(&self) -> Option<f64> {
        let by_interval = || 1000.0 / self.interval_ms() as f64;
        let open = self.load.model == Model::Open;
        open.then(|| self.load.rate.map_or_else(by_interval, |rate| rate.0 / self.series()))
    }

    /// Time between two bursts in seconds. `None` if the requests of a round are spread over it.
    pub(crate) fn burst_interval_s(&self) -> Option<f64> {
        self.rounds_per_s().filter(|_| self.load.burst && self.replay.is_none()).map(f64::recip)
    }

    pub(crate) fn schedule(&self, now_ms: i64) -> Result<Schedule> {
        let interval_ms = u32::try_from(self.interval_ms()).context("the interval is too long")?.max(1);
        let rounds_per_s = self.rounds_per_s();
        let rounds = match (self.load.rounds, rounds_per_s) {
            (Some(rounds), _) => f64::from(rounds),
            (None, Some(per_s)) => (self.length_s() * per_s).ceil(),
            (None, None) => (HORIZON_MS / u64::from(interval_ms)) as f64,
        };
        ensure!(rounds <= ROUNDS_MAX, "the load has {rounds} rounds, the limit is {ROUNDS_MAX}");
        let rounds_max = (rounds as u32).max(1);
        let first_tick = self.first_tick(i64::from(interval_ms), rounds_max, rounds_per_s, now_ms)?;
        Ok(Schedule { interval_ms, first_tick, rounds_max, rounds_per_s })
    }

    /// Chooses the first tick so that the timestamps end at the current time for a closed loop, or at the end of the
    /// load for an open loop.
    fn first_tick(
        &self,
        interval_ms: i64,
        rounds_max: u32,
        rounds_per_s: Option<f64>,
        now_ms: i64,
    ) -> Result<u64> {
        let span_ms = i64::from(rounds_max).saturating_mul(interval_ms);
        let takes_s = rounds_per_s.map_or(0.0, |per_s| (f64::from(rounds_max) / per_s).min(self.length_s()));
        let ends_ms = now_ms.saturating_add((takes_s * 1000.0) as i64);
        let first_ms = match &self.load.start {
            Some(start) => {
                notation::time(start, now_ms).context("load.start")?.saturating_add(interval_ms - 1)
            }
            // the first round must be over by now, even if the interval is very long
            None => ends_ms.saturating_sub(span_ms).min(now_ms.saturating_sub(interval_ms)),
        };
        let tick = first_ms.div_euclid(interval_ms);
        let end_ms = (tick * interval_ms).saturating_add(span_ms);
        if rounds_per_s.is_some() || self.load.rounds.is_some() {
            ensure!(
                end_ms <= ends_ms.saturating_add(FUTURE_MS_MAX),
                "the last samples would be {} s in the future: start earlier, or use a shorter interval or fewer \
                 rounds",
                (end_ms - ends_ms) / 1000
            );
        }
        u64::try_from(tick).context("the first samples would be before 1970")
    }

    pub(crate) fn ticks(&self, every: Option<Span>) -> Option<u64> {
        every.map(|every| (every.ms() / self.interval_ms().max(1)).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Count;

    const NOW_MS: i64 = 1_795_284_007_123;

    fn scenario(text: &str) -> Scenario {
        let text = format!("[load]\nmetrics = 100\nseries_per_metric = 10\nwriters = 2\n{text}");
        Scenario::parse(&text).unwrap()
    }

    fn closed(text: &str) -> Scenario {
        scenario(&format!("model = 'closed'\n{text}"))
    }

    /// Returns the timestamps of the first and of the last possible sample relative to now, and the interval, all in
    /// ms.
    fn times(scenario: &Scenario) -> (i64, i64, i64) {
        let Schedule { interval_ms, first_tick, rounds_max, .. } = scenario.schedule(NOW_MS).unwrap();
        let interval = i64::from(interval_ms);
        let first = first_tick as i64 * interval - NOW_MS;
        (first, first + i64::from(rounds_max) * interval, interval)
    }

    #[test]
    fn rounds_in_a_closed_loop_end_now() {
        let (first, end, interval) = times(&closed("rounds = 20"));
        assert_eq!(interval, 15_000);
        assert_eq!(end - first, 20 * 15_000);
        assert!((-15_000..=0).contains(&end), "{end}");
        let (first, end, interval) = times(&closed("rounds = 1_000_000"));
        assert_eq!(interval, 3);
        assert!(first >= -(HORIZON_MS as i64) && end <= 0);
    }

    #[test]
    fn a_closed_loop_has_room_for_the_fastest_target() {
        for (metrics, seconds) in [(1, 20), (100, 20), (100_000, 20), (100, 3600)] {
            let mut scenario = closed("");
            scenario.load.metrics = Count(f64::from(metrics));
            scenario.duration = Span::seconds(f64::from(seconds));
            let (first, end, interval) = times(&scenario);
            let rounds = (end - first) / interval;
            let samples = rounds as f64 * f64::from(metrics) * 20.0;
            let enough = samples / f64::from(seconds) >= 0.5 * CLOSED_SAMPLES_PER_S_MAX || interval == 1;
            assert!(enough, "{metrics} metrics: {samples} samples in {seconds} s");
            assert!(first >= -(HORIZON_MS as i64) - interval && end <= 0, "{first} to {end}");
        }
    }

    #[test]
    fn an_open_schedule_goes_with_the_clock() {
        let with = |rate: f64| {
            let mut scenario = scenario("");
            (scenario.load.rate, scenario.duration) = (Some(Count(rate)), Span::seconds(30.0));
            scenario
        };
        let (first, end, interval) = times(&with(1_000.0));
        assert_eq!(interval, 2_000, "2,000 series at 1,000 a second");
        assert!((-4_000..=-2_000).contains(&first), "{first}");
        assert!(end <= 30_000);
        // at this rate, there is more than one round per millisecond
        let (first, end, interval) = times(&with(1e7));
        assert_eq!(interval, 1);
        assert!(first < -100_000 && end <= 30_000, "{first} {end}");
    }

    #[test]
    fn an_explicit_start_is_rounded_up_and_may_not_end_in_the_future() {
        let at = |start: &str| closed(&format!("rounds = 4\nstart = '{start}'")).schedule(NOW_MS);
        let schedule = at("1795280000001").unwrap();
        assert_eq!(schedule.first_tick * 15_000, 1_795_280_010_000);
        let said = at(&(NOW_MS + 60_000).to_string()).unwrap_err().to_string();
        assert!(said.contains("in the future"), "{said}");
        assert!(at("-100000w").is_err());
    }

    #[test]
    fn churn_counts_in_ticks() {
        let minute = Some(Span::seconds(60.0));
        assert_eq!(closed("rounds = 9").ticks(minute), Some(4));
        let text = "[load]\nmodel = 'closed'\nrounds = 9\nseries_interval = '1s'";
        assert!(Scenario::parse(text).unwrap_err().to_string().contains("shorter than the interval"));
    }
}
