//! Shape of a load over time: a function from seconds to a factor of the base load.
//!
//! The factor changes the number of series, and never the interval between samples, because real systems grow by
//! adding pods.

use super::error::KeyFault;
use super::units::Span;
use serde::Deserialize;

pub(super) const FACTOR_MAX: f64 = 1_000.0;

const STEPS_MAX: usize = 1_000;

/// A load that changes continuously is divided into this number of phases for the report.
const PHASES: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    #[default]
    Constant,
    /// Constant load for a long time. The report compares the last third of the run with the first.
    Endurance,
    /// Steps of equal height, which grow from the factor `from` to the factor `to`.
    Ladder,
    /// Steady growth from the factor `from` to the factor `to`.
    Ramp,
    /// Base load, with spikes in which the load is multiplied by `factor`.
    Spike,
    /// Constant load, which is the base load multiplied by `factor`.
    Stress,
    /// Sine wave around the base load.
    Diurnal,
    /// Base load. At each time in `at`, all series are replaced by new ones.
    RelabelAll,
    /// Base load. At each time in `at`, the senders pause, and then send everything that they have held back.
    Outage,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    pub kind: Kind,
    /// Factor from which a ladder or ramp grows.
    pub from: f64,
    /// Factor that a ladder or ramp reaches at its end.
    pub to: f64,
    pub steps: u32,
    /// Factors of a ladder, which replace `from`, `to` and `steps`.
    pub factors: Vec<f64>,
    /// Share of each step of a ladder in which the load grows to the step's factor. The report leaves this time out.
    pub rise: f64,
    /// When each spike, relabelling or outage begins. By default, there is one in the middle of the duration.
    pub at: Vec<Span>,
    /// How long each spike or outage lasts.
    #[serde(rename = "for")]
    pub lasts: Span,
    /// Factor of a spike or a stress load.
    pub factor: f64,
    /// Factors of the individual spikes, which replace `factor`.
    pub spike_factors: Vec<f64>,
    /// Length of a day in a diurnal load.
    pub period: Option<Span>,
    pub amplitude: f64,
    /// Says whether the load grows by more writers or by more tenants.
    pub grow: Grow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grow {
    /// The tenants stay the same and get more writers.
    #[default]
    Writers,
    Tenants,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            kind: Kind::Constant,
            from: 0.0,
            to: 1.0,
            steps: 5,
            factors: Vec::new(),
            rise: 0.0,
            at: Vec::new(),
            lasts: Span::seconds(30.0),
            factor: 2.0,
            spike_factors: Vec::new(),
            period: None,
            amplitude: 1.0 / 3.0,
            grow: Grow::Writers,
        }
    }
}

/// A shape for a run of a certain duration. All defaults are filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    shape: Shape,
    duration_s: f64,
    at_s: Vec<f64>,
    lasts_s: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoadPhase {
    pub name: String,
    pub from_s: f64,
    pub to_s: f64,
}

impl Shape {
    /// Applies the shape to a run of `duration_s`. All times of the shape are divided by `compress`.
    pub fn over(&self, duration_s: f64, compress: f64) -> Course {
        let mut at_s: Vec<f64> = self.at.iter().map(|at| at.s() / compress).collect();
        if at_s.is_empty() {
            at_s.push(duration_s / 2.0);
        }
        at_s.sort_by(f64::total_cmp);
        let lasts_s = self.lasts.s() / compress;
        Course { shape: self.clone(), duration_s, at_s, lasts_s }
    }

    fn ladder(&self) -> Vec<f64> {
        if !self.factors.is_empty() {
            return self.factors.clone();
        }
        let steps = self.steps.max(1);
        // the first step is already above `from`, because `from` may be 0, and a step without load shows nothing
        let up = (self.to - self.from) / f64::from(steps);
        (1..=steps).map(|step| self.from + up * f64::from(step)).collect()
    }

    pub(super) fn check(&self) -> Result<(), KeyFault> {
        let fault = |path, message: String| Err(KeyFault { path, message });
        let factors = [("shape.from", self.from), ("shape.to", self.to), ("shape.factor", self.factor)];
        for (path, factor) in factors {
            if !(0.0..=FACTOR_MAX).contains(&factor) {
                return fault(path, format!("{factor} is not between 0 and {FACTOR_MAX}"));
            }
        }
        for (path, list) in [("shape.factors", &self.factors), ("shape.spike_factors", &self.spike_factors)] {
            if let Some(bad) = list.iter().find(|f| !(0.0..=FACTOR_MAX).contains(*f)) {
                return fault(path, format!("{bad} is not between 0 and {FACTOR_MAX}"));
            }
        }
        if self.steps == 0 || self.steps as usize > STEPS_MAX || self.factors.len() > STEPS_MAX {
            return fault("shape.steps", format!("the number of steps is not between 1 and {STEPS_MAX}"));
        }
        if !(0.0..1.0).contains(&self.rise) {
            return fault("shape.rise", format!("{} is not at least 0 and below 1", self.rise));
        }
        if self.at.len() > STEPS_MAX {
            return fault("shape.at", format!("there are more than {STEPS_MAX} times"));
        }
        if !self.spike_factors.is_empty() && self.spike_factors.len() != self.at.len() {
            return fault(
                "shape.spike_factors",
                format!("there must be one factor for each of the {} times", self.at.len()),
            );
        }
        if !(0.0..=1.0).contains(&self.amplitude) {
            return fault("shape.amplitude", format!("{} is not between 0 and 1", self.amplitude));
        }
        if self.period.is_some_and(|period| period.0.is_zero()) {
            return fault("shape.period", "the period must be longer than 0".into());
        }
        Ok(())
    }
}

impl Course {
    /// Factor of the base load at `at_s` seconds since the start.
    pub fn factor(&self, at_s: f64) -> f64 {
        let Shape { kind, from, to, factor, amplitude, .. } = self.shape;
        match kind {
            Kind::Constant | Kind::Endurance | Kind::RelabelAll | Kind::Outage => 1.0,
            Kind::Stress => factor,
            Kind::Ramp => from + (to - from) * (at_s / self.duration_s).clamp(0.0, 1.0),
            Kind::Ladder => {
                let steps = self.shape.ladder();
                let at = at_s / self.duration_s * steps.len() as f64;
                let step = (at as usize).min(steps.len() - 1);
                let before = step.checked_sub(1).map_or(0.0, |before| steps[before]);
                let risen = ((at - step as f64) / self.shape.rise).clamp(0.0, 1.0);
                if self.shape.rise > 0.0 { before + (steps[step] - before) * risen } else { steps[step] }
            }
            Kind::Spike => self.spike_at(at_s).map_or(1.0, |spike| self.spike_factor(spike)),
            Kind::Diurnal => {
                let period_s = self.shape.period.map_or(self.duration_s, Span::s);
                1.0 + amplitude * (std::f64::consts::TAU * at_s / period_s).sin()
            }
        }
    }

    pub fn factor_max(&self) -> f64 {
        let Shape { kind, from, to, factor, amplitude, .. } = &self.shape;
        match kind {
            Kind::Constant | Kind::Endurance | Kind::RelabelAll | Kind::Outage => 1.0,
            Kind::Stress => *factor,
            Kind::Ramp => from.max(*to),
            Kind::Ladder => self.shape.ladder().into_iter().fold(0.0, f64::max),
            Kind::Spike => (0..self.at_s.len()).map(|n| self.spike_factor(n)).fold(1.0, f64::max),
            Kind::Diurnal => 1.0 + amplitude,
        }
    }

    pub fn outages(&self) -> Vec<(f64, f64)> {
        if self.shape.kind != Kind::Outage {
            return Vec::new();
        }
        self.at_s.iter().map(|at| (*at, at + self.lasts_s)).collect()
    }

    /// Times at which all series are replaced by new ones, in seconds since the start.
    pub fn relabels(&self) -> &[f64] {
        if self.shape.kind == Kind::RelabelAll { &self.at_s } else { &[] }
    }

    /// True if this is an endurance run, whose report compares the last third of the run with the first.
    pub fn is_endurance(&self) -> bool {
        self.shape.kind == Kind::Endurance
    }

    /// Divides the duration into phases, each of which gets figures of its own in the report. Only the rises of a ladder
    /// belong to no phase.
    pub fn phases(&self) -> Vec<LoadPhase> {
        let mut cuts: Vec<(f64, String)> = match self.shape.kind {
            Kind::Constant | Kind::Stress => vec![(0.0, "all".into())],
            Kind::Ladder => self.even(self.shape.ladder().len() as u32, "step"),
            Kind::Endurance => self.even(3, "third"),
            Kind::Ramp | Kind::Diurnal => self.even(PHASES, "part"),
            Kind::Spike => self.around("before", "spike", "after"),
            Kind::Outage => self.around("before", "outage", "return"),
            Kind::RelabelAll => {
                let mut cuts = vec![(0.0, "before".to_owned())];
                cuts.extend(self.at_s.iter().map(|at| (*at, "relabelled".to_owned())));
                cuts
            }
        };
        cuts.retain(|(from, _)| *from < self.duration_s);
        let ends: Vec<f64> = cuts.iter().skip(1).map(|(from, _)| *from).chain([self.duration_s]).collect();
        let phases = cuts.into_iter().zip(ends);
        phases
            .filter(|((from, _), to)| from < to)
            .map(|((from_s, name), to_s)| {
                let rise = if self.shape.kind == Kind::Ladder { self.shape.rise } else { 0.0 };
                LoadPhase { name, from_s: from_s + (to_s - from_s) * rise, to_s }
            })
            .collect()
    }

    /// The phases over which figures are measured if all requests of an interval come in a burst. The steps of a ladder are
    /// cut to whole intervals, because otherwise their rates would depend on where the bursts fall. A step that has no whole
    /// interval, but is as long as one, begins later instead. A shorter step stays as it is.
    pub fn measured(&self, interval_s: f64) -> Vec<LoadPhase> {
        let mut phases = self.phases();
        if self.shape.kind != Kind::Ladder {
            return phases;
        }
        for phase in &mut phases {
            // without this tolerance, a rounding error could cost an interval
            let tolerance = 1e-6;
            let first = (phase.from_s / interval_s - tolerance).ceil();
            let end = (phase.to_s / interval_s + tolerance).floor();
            if end > first {
                (phase.from_s, phase.to_s) = (first * interval_s, end * interval_s);
            } else if phase.to_s - phase.from_s >= interval_s {
                phase.from_s = phase.to_s - interval_s;
            }
        }
        phases
    }

    fn even(&self, parts: u32, word: &str) -> Vec<(f64, String)> {
        let begin = |part: u32| self.duration_s * f64::from(part) / f64::from(parts);
        (0..parts).map(|part| (begin(part), format!("{word} {} of {parts}", part + 1))).collect()
    }

    fn around(&self, before: &str, word: &str, after: &str) -> Vec<(f64, String)> {
        let mut cuts = vec![(0.0, before.to_owned())];
        for (n, at) in self.at_s.iter().enumerate() {
            let number = if self.at_s.len() > 1 { format!(" {}", n + 1) } else { String::new() };
            cuts.push((*at, format!("{word}{number}")));
            if self.at_s.get(n + 1).is_none_or(|next| *next > at + self.lasts_s) {
                cuts.push((at + self.lasts_s, format!("{after}{number}")));
            }
        }
        cuts
    }

    fn spike_at(&self, at_s: f64) -> Option<usize> {
        self.at_s.iter().rposition(|at| (*at..at + self.lasts_s).contains(&at_s))
    }

    fn spike_factor(&self, spike: usize) -> f64 {
        self.shape.spike_factors.get(spike).copied().unwrap_or(self.shape.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(text: &str) -> Course {
        let shape: Shape = toml::from_str(text).unwrap();
        shape.check().unwrap();
        shape.over(100.0, 2.0)
    }

    #[test]
    fn factors_over_time() {
        let check = |text: &str, expected: &[(f64, f64)]| {
            let course = course(text);
            for (at, factor) in expected {
                assert!((course.factor(*at) - factor).abs() < 1e-9, "{text} at {at}: {}", course.factor(*at));
                assert!(course.factor_max() >= *factor);
            }
        };
        check("", &[(0.0, 1.0), (99.0, 1.0)]);
        check("kind = 'ladder'", &[(0.0, 0.2), (19.9, 0.2), (20.1, 0.4), (99.0, 1.0), (200.0, 1.0)]);
        check("kind = 'ladder'\nfactors = [1, 3]", &[(10.0, 1.0), (60.0, 3.0)]);
        check(
            "kind = 'ladder'\nfactors = [1, 3]\nrise = 0.4",
            &[(0.0, 0.0), (10.0, 0.5), (20.0, 1.0), (49.9, 1.0), (60.0, 2.0), (70.0, 3.0), (100.0, 3.0)],
        );
        check("kind = 'ramp'\nto = 4", &[(0.0, 0.0), (50.0, 2.0), (100.0, 4.0)]);
        check("kind = 'stress'", &[(0.0, 2.0)]);
        check(
            "kind = 'spike'\nat = ['20s', '60s']\nfor = '20s'\nspike_factors = [1.1, 1.2]",
            &[(9.0, 1.0), (10.0, 1.1), (21.0, 1.0), (35.0, 1.2), (41.0, 1.0)],
        );
        check("kind = 'diurnal'\nperiod = '100s'", &[(0.0, 1.0), (25.0, 4.0 / 3.0), (75.0, 2.0 / 3.0)]);
    }

    #[test]
    fn outages_and_relabels_have_their_times_compressed() {
        assert_eq!(course("kind = 'outage'\nat = ['60s']\nfor = '10s'").outages(), [(30.0, 35.0)]);
        assert_eq!(course("kind = 'relabel-all'").relabels(), [50.0]);
        assert!(course("").outages().is_empty() && course("").relabels().is_empty());
    }

    #[test]
    fn phases_cover_the_run() {
        for text in [
            "",
            "kind = 'ladder'\nsteps = 7",
            "kind = 'ramp'",
            "kind = 'endurance'",
            "kind = 'spike'\nat = ['20s', '60s']\nfor = '20s'",
            "kind = 'spike'\nat = ['0s', '190s']",
            "kind = 'outage'",
            "kind = 'relabel-all'\nat = ['1h', '10s']",
            "kind = 'diurnal'",
        ] {
            let phases = course(text).phases();
            assert_eq!(phases[0].from_s, 0.0, "{text}");
            assert_eq!(phases.last().unwrap().to_s, 100.0, "{text}");
            assert!(phases.windows(2).all(|w| w[0].to_s == w[1].from_s), "{text}: {phases:?}");
        }
    }

    #[test]
    fn the_steps_of_a_ladder_begin_after_their_rise() {
        let phases = course("kind = 'ladder'\nsteps = 2\nrise = 0.4").phases();
        let times: Vec<_> = phases.iter().map(|phase| (phase.from_s, phase.to_s)).collect();
        assert_eq!(times, [(20.0, 50.0), (70.0, 100.0)]);
    }

    #[test]
    fn steps_of_bursts_are_measured_over_whole_intervals() {
        let times = |text: &str, interval_s| {
            let phases = course(&format!("kind = 'ladder'\n{text}")).measured(interval_s);
            phases.iter().map(|phase| (phase.from_s, phase.to_s)).collect::<Vec<_>>()
        };
        assert_eq!(times("steps = 2", 10.0), [(0.0, 50.0), (50.0, 100.0)]);
        assert_eq!(times("steps = 4", 10.0), [(0.0, 20.0), (30.0, 50.0), (50.0, 70.0), (80.0, 100.0)]);
        assert_eq!(times("steps = 2\nrise = 0.5", 10.0), [(30.0, 50.0), (80.0, 100.0)]);
        assert_eq!(times("steps = 4\nrise = 0.5", 10.0)[..2], [(15.0, 25.0), (40.0, 50.0)]);
        assert_eq!(times("steps = 10\nrise = 0.5", 10.0)[..2], [(5.0, 10.0), (15.0, 20.0)], "too short");
        assert_eq!(times("steps = 3", 0.25)[1], (33.5, 66.5));
        let spike = course("kind = 'spike'\nat = ['25s']\nfor = '25s'");
        assert_eq!(spike.measured(10.0), spike.phases());
    }

    #[test]
    fn bounds() {
        for bad in [
            "to = -1",
            "rise = 1",
            "rise = -0.1",
            "factor = 1e9",
            "steps = 0",
            "amplitude = 2",
            "period = 0",
            "factors = [nan]",
        ] {
            assert!(toml::from_str::<Shape>(bad).unwrap().check().is_err(), "{bad}");
        }
        assert!(toml::from_str::<Shape>("kind = 'nonsense'").is_err());
    }
}
