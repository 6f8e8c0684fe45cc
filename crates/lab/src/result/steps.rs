//! What the target's machine did during each step of a load: the columns of iostat, and CPU and memory of the target.

use super::{AccountFigure, RunResult, Step, Timeline};

/// Series of the timeline with the mean of which a step is described.
const DISK_AWAIT: &str = "disk/await";
const DISK_UTIL: &str = "disk/util";
const TARGET_CPU: &str = "target/cpu";
const TARGET_MEMORY: &str = "target/memory";

impl Timeline {
    /// Values that were measured between two times.
    fn between(&self, name: &str, from_s: f64, to_s: f64) -> impl Iterator<Item = f64> {
        let at = move |point: usize| (point as f64 + 0.5) * self.step_s;
        let values = self.get(name).unwrap_or_default().iter().enumerate();
        values.filter(move |(point, _)| (from_s..to_s).contains(&at(*point))).filter_map(|(_, value)| *value)
    }

    fn mean(&self, name: &str, from_s: f64, to_s: f64) -> Option<f64> {
        let count = self.between(name, from_s, to_s).count();
        (count > 0).then(|| self.between(name, from_s, to_s).sum::<f64>() / count as f64)
    }
}

impl Step {
    /// Takes the figures of the target from the timeline.
    fn observe(&mut self, timeline: &Timeline) {
        let mean = |name| timeline.mean(name, self.from_s, self.to_s);
        (self.disk_await_s, self.disk_util) = (mean(DISK_AWAIT), mean(DISK_UTIL));
        self.cpu_cores = mean(TARGET_CPU);
        self.memory_bytes = timeline.between(TARGET_MEMORY, self.from_s, self.to_s).reduce(f64::max);
    }

    /// Looks up a figure by the name of its key. Rates are also known per minute.
    pub fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "samples_per_s" => Some(self.samples_per_s),
            "samples_per_min" => Some(self.samples_per_s * 60.0),
            "offered_samples_per_s" => Some(self.offered_samples_per_s),
            "p99_s" => (self.latency.count > 0).then_some(self.latency.p99_s),
            "disk_await_s" => self.disk_await_s,
            "disk_util" => self.disk_util,
            "cpu_cores" => self.cpu_cores,
            "memory_bytes" => self.memory_bytes,
            _ => None,
        }
    }
}

impl RunResult {
    /// Adds what was observed during each step. Called once, at the end of a run.
    pub(crate) fn observe_steps(&mut self) {
        for step in &mut self.steps {
            step.observe(&self.timeline);
        }
    }

    /// Our figure for a published one.
    pub fn ours(&self, account: &AccountFigure) -> Option<f64> {
        let name = account.ours.as_deref()?;
        match account.step {
            None => self.figure(name),
            Some(step) => self.steps.get((step as usize).checked_sub(1)?)?.figure(name),
        }
    }

    /// Highest mean share of time for which the disk was busy during a step. Each step is looked at twice, over the seconds of
    /// its figures and as a whole, because the figures may leave out its rise.
    pub(crate) fn disk_util_max(&self) -> Option<f64> {
        let measured = self.steps.iter().filter_map(|step| step.disk_util);
        let begins = std::iter::once(0.0).chain(self.steps.iter().map(|step| step.to_s));
        let whole = begins.zip(&self.steps);
        let whole = whole.filter_map(|(from_s, step)| self.timeline.mean(DISK_UTIL, from_s, step.to_s));
        measured.chain(whole).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SeriesKind;

    #[test]
    fn a_step_has_the_figures_of_its_seconds() {
        let mut timeline = Timeline::default();
        for second in 0..6u32 {
            timeline.advance(f64::from(second));
            timeline.set(DISK_UTIL, "part", SeriesKind::Max, f64::from(second) / 10.0);
            timeline.set(TARGET_MEMORY, "bytes", SeriesKind::Max, f64::from(10 - second));
            if second < 2 {
                timeline.set(DISK_AWAIT, "s", SeriesKind::Max, 0.25);
            }
        }
        let step = |from_s, to_s| Step { from_s, to_s, samples_per_s: 2.0, ..Step::default() };
        let mut result =
            RunResult { timeline, steps: vec![step(0.0, 2.0), step(2.0, 6.0)], ..RunResult::default() };
        result.observe_steps();
        let of = |step: u32, ours: &str| {
            result.ours(&AccountFigure {
                step: Some(step),
                ours: Some(ours.into()),
                ..AccountFigure::default()
            })
        };
        assert_eq!([of(1, "disk_util"), of(2, "disk_util")], [Some(0.05), Some(0.35)]);
        assert_eq!([of(1, "disk_await_s"), of(2, "disk_await_s")], [Some(0.25), None]);
        assert_eq!([of(1, "memory_bytes"), of(2, "memory_bytes")], [Some(10.0), Some(8.0)]);
        assert_eq!(
            [of(1, "samples_per_min"), of(2, "cpu_cores"), of(3, "disk_util")],
            [Some(120.0), None, None]
        );
        assert_eq!(result.disk_util_max(), Some(0.35));
        // the disk is busier in the rise of the last step than in the rest of it
        let mut rising = Timeline::default();
        for (second, util) in (0u32..).zip([0.0, 0.9, 0.1, 0.1]) {
            rising.advance(f64::from(second));
            rising.set(DISK_UTIL, "part", SeriesKind::Max, util);
        }
        (result.timeline, result.steps) = (rising, vec![step(0.0, 1.0), step(2.0, 4.0)]);
        result.observe_steps();
        assert_eq!(result.steps[1].disk_util, Some(0.1));
        assert!((result.disk_util_max().unwrap() - 1.1 / 3.0).abs() < 1e-9);
    }
}
