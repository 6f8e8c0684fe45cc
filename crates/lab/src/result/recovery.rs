//! Recovery time: from the end of the last disturbance until the target serves the load as it did before.
//!
//! A disturbance is a fault, a spike of the load or an outage of the senders. The target has recovered when, for
//! [`HOLD_S`] seconds, it acknowledges [`RATE_MIN`] of the required rate, and p99 is at most [`P99_FACTOR`] times
//! the median p99 before the first disturbance.
//!
//! The required rate is the lower of the scheduled rate and the median rate before the first disturbance.

use super::{EventKind, RunResult, Timeline, names};

/// Rate and latency must be as before for this number of seconds.
const HOLD_S: f64 = 5.0;

const RATE_MIN: f64 = 0.95;

/// After recovery, p99 may be at most this multiple of the median p99 before the first disturbance.
const P99_FACTOR: f64 = 2.0;

/// If p99 has risen by less than this number of seconds, the difference is considered noise.
const P99_NOISE_S: f64 = 0.01;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Recovery {
    /// Seconds from the end of the last disturbance to the recovery.
    After(f64),
    /// The target did not recover in the seconds from the end of the last disturbance to the end of the load.
    NotWithin(f64),
}

impl Recovery {
    /// Computes the recovery of a run. `None` if it had no disturbance, or if a disturbance lasted until the end.
    pub fn of(result: &RunResult) -> Option<Self> {
        let (began_s, ended_s) = disturbance(result)?;
        let timeline = &result.timeline;
        let (from, held) = ((ended_s / timeline.step_s).ceil() as usize, hold_points(timeline));
        let before = |name| median_before(timeline, name, began_s);
        let p99_max = before(names::LATENCY_P99).map(|p99| (p99 * P99_FACTOR).max(p99 + P99_NOISE_S));
        let rate_before = before(names::RATE_ACKNOWLEDGED).unwrap_or(f64::INFINITY);
        let is_as_before = |at: usize| {
            let value = |name| timeline.get(name).and_then(|values| *values.get(at)?);
            let (offered, acknowledged) = (value(names::RATE_OFFERED), value(names::RATE_ACKNOWLEDGED));
            let rate = offered.unwrap_or(f64::INFINITY).min(rate_before);
            let is_taken = acknowledged.unwrap_or(0.0) >= RATE_MIN * rate;
            is_taken && value(names::LATENCY_P99).is_none_or(|p99| p99_max.is_none_or(|max| p99 <= max))
        };
        let last = timeline.points.checked_sub(held)?;
        if from > last {
            return None;
        }
        let recovered = (from..=last).find(|first| (*first..first + held).all(is_as_before));
        Some(match recovered {
            Some(at) => Self::After((at as f64 * timeline.step_s - ended_s).max(0.0)),
            None => Self::NotWithin(timeline.points as f64 * timeline.step_s - ended_s),
        })
    }

    pub fn seconds(self) -> Option<f64> {
        match self {
            Self::After(seconds) => Some(seconds),
            Self::NotWithin(_) => None,
        }
    }
}

/// When the first disturbance began and the last one ended, in seconds since the start of the load.
fn disturbance(result: &RunResult) -> Option<(f64, f64)> {
    let faults = result.events.iter().filter(|event| event.kind == EventKind::Fault);
    let faults = faults.map(|event| (event.at_s, event.at_s));
    let is_disturbed = |name: &str| ["spike", "outage"].iter().any(|word| name.starts_with(word));
    let steps = result.steps.iter().filter(|step| is_disturbed(&step.name));
    let steps = steps.map(|step| (step.from_s, step.to_s));
    faults.chain(steps).reduce(|(a, b), (from, to)| (a.min(from), b.max(to)))
}

/// Median of the values that a series of the timeline has before `until_s`. `None` if there are too few.
fn median_before(timeline: &Timeline, name: &str, until_s: f64) -> Option<f64> {
    let count = (until_s / timeline.step_s) as usize;
    let mut values: Vec<f64> = timeline.get(name)?.iter().take(count).flatten().copied().collect();
    if values.len() < hold_points(timeline) {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    Some(values[values.len() / 2])
}

fn hold_points(timeline: &Timeline) -> usize {
    ((HOLD_S / timeline.step_s).ceil() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Event, SeriesKind, Step};

    /// Result of a run of 60 s with 100 scheduled samples per second. The function `at` returns the acknowledged rate
    /// and the p99 of each second.
    fn result(at: impl Fn(usize) -> (f64, f64)) -> RunResult {
        let mut result = RunResult::default();
        for second in 0..60 {
            result.timeline.advance(second as f64);
            let (rate, p99_s) = at(second);
            result.timeline.set(names::RATE_OFFERED, "1/s", SeriesKind::Sum, 100.0);
            result.timeline.set(names::RATE_ACKNOWLEDGED, "1/s", SeriesKind::Sum, rate);
            result.timeline.set(names::LATENCY_P99, "s", SeriesKind::Max, p99_s);
        }
        result.timeline.finish();
        result
    }

    fn fault(at_s: f64) -> Event {
        Event::new(at_s, EventKind::Fault, "network cut")
    }

    #[test]
    fn a_run_without_disturbance_has_no_recovery() {
        assert_eq!(Recovery::of(&result(|_| (100.0, 0.1))), None);
        assert_eq!(Recovery::of(&RunResult::default()), None);
    }

    #[test]
    fn recovery_waits_for_rate_and_latency() {
        // the network is cut from 20 to 30, the backlog is sent until 36, and p99 stays high until 40
        let mut run = result(|second| match second {
            20..30 => (0.0, 0.1),
            30..36 => (250.0, 8.0),
            36..40 => (100.0, 0.5),
            _ => (100.0, 0.1),
        });
        run.events = vec![fault(20.0), fault(30.0)];
        assert_eq!(Recovery::of(&run), Some(Recovery::After(10.0)));
    }

    #[test]
    fn a_closed_loop_recovers_to_its_own_rate() {
        let mut run = result(|second| (if (20..30).contains(&second) { 5.0 } else { 40.0 }, 0.1));
        run.events = vec![fault(20.0), fault(25.0)];
        assert_eq!(Recovery::of(&run), Some(Recovery::After(5.0)));
    }

    #[test]
    fn recovery_must_hold() {
        let mut run =
            result(|second| if second < 30 || second % 5 == 0 { (100.0, 0.1) } else { (50.0, 0.1) });
        run.events = vec![fault(30.0)];
        assert_eq!(Recovery::of(&run), Some(Recovery::NotWithin(30.0)));
    }

    #[test]
    fn a_spike_is_a_disturbance_until_its_end() {
        let mut run = result(|second| (100.0, if (10..25).contains(&second) { 3.0 } else { 0.1 }));
        let step = |name: &str, from_s, to_s| Step { name: name.into(), from_s, to_s, ..Step::default() };
        run.steps = vec![step("before", 0.0, 10.0), step("spike", 10.0, 20.0), step("after", 20.0, 60.0)];
        assert_eq!(Recovery::of(&run), Some(Recovery::After(5.0)));
        run.steps.truncate(2);
        run.steps[1].to_s = 58.0;
        assert_eq!(Recovery::of(&run), None, "a recovery was found although too little time was left");
    }
}
