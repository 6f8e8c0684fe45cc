//! Figures over the time of a run, usually with one point per second. Times are in seconds.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names of the series that the lab itself measures. Observation of the target adds others.
pub mod names {
    pub const RATE_OFFERED: &str = "rate/offered";
    /// Includes samples that were sent again in a retry.
    pub const RATE_SENT: &str = "rate/sent";
    pub const RATE_ACKNOWLEDGED: &str = "rate/acknowledged";
    pub const LATENCY_P50: &str = "latency/p50";
    pub const LATENCY_P90: &str = "latency/p90";
    pub const LATENCY_P99: &str = "latency/p99";
    pub const FRESHNESS_P99: &str = "freshness/p99";
    pub const SERIES_ACTIVE: &str = "series/active";
    pub const SERIES_DISTINCT: &str = "series/distinct";
    /// Followed by an outcome, for example `status/204` or `status/timeout`. The value is the number of attempts per
    /// second.
    pub const STATUS_PREFIX: &str = "status/";
    pub const READS: &str = "reads/rate";
    pub const READS_FAILED: &str = "reads/failed";
    pub const READS_P99: &str = "reads/p99";
    pub const GENERATOR_CPU: &str = "generator/cpu";
    pub const GENERATOR_RSS: &str = "generator/rss";
    pub const GENERATOR_LAG: &str = "generator/lag";
}

/// If a run has more points, neighbouring points are joined, and `step_s` is doubled.
pub const POINTS_MAX: usize = 4_000;

pub const SERIES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// Point `i` covers the seconds from `i × step_s` to `(i + 1) × step_s`.
    pub step_s: f64,
    pub points: usize,
    /// Series by name. The part before the slash, as in `latency/p99`, is the group.
    pub series: BTreeMap<String, TimelineSeries>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { step_s: 1.0, points: 0, series: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineSeries {
    pub unit: String,
    pub kind: SeriesKind,
    /// Value at each point. `None` if nothing was measured there.
    pub values: Vec<Option<f64>>,
    #[serde(skip)]
    joined: u32,
}

/// Says how values are joined when points are joined, or when the results of several generators are merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesKind {
    /// Points are joined to their mean, and the values of several generators are added.
    #[default]
    Sum,
    Max,
}

impl Timeline {
    /// Begins the point that contains the time `at_s`. Values that are set from now on belong to this point.
    pub fn advance(&mut self, at_s: f64) {
        while (at_s / self.step_s) as usize >= POINTS_MAX {
            self.thin();
        }
        self.points = self.points.max((at_s / self.step_s) as usize + 1);
    }

    /// Sets a value of the latest point. It is ignored if there is no point yet, or if there are already
    /// [`SERIES_MAX`] series.
    pub fn set(&mut self, name: &str, unit: &str, kind: SeriesKind, value: f64) {
        let Some(at) = self.points.checked_sub(1) else { return };
        if !value.is_finite() {
            return;
        }
        if !self.series.contains_key(name) {
            if self.series.len() >= SERIES_MAX {
                return;
            }
            let series = TimelineSeries { unit: unit.to_owned(), kind, ..TimelineSeries::default() };
            self.series.insert(name.to_owned(), series);
        }
        let series = self.series.get_mut(name).expect("BUG: the series was not inserted");
        series.put(at, value);
    }

    pub fn get(&self, name: &str) -> Option<&[Option<f64>]> {
        self.series.get(name).map(|series| series.values.as_slice())
    }

    pub fn max(&self, name: &str) -> Option<f64> {
        self.get(name)?.iter().flatten().copied().reduce(f64::max)
    }

    /// Extends all series to the same length. Called once, at the end of a run.
    pub fn finish(&mut self) {
        for series in self.series.values_mut() {
            series.values.resize(self.points, None);
            series.joined = 0;
        }
    }

    /// Adds the figures that another generator measured at the same time with the same target.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while other.step_s < self.step_s {
            other.thin();
        }
        while self.step_s < other.step_s {
            self.thin();
        }
        self.points = self.points.max(other.points);
        for (name, theirs) in other.series {
            let Some(ours) = self.series.get_mut(&name) else {
                self.series.insert(name, theirs);
                continue;
            };
            let len = ours.values.len().max(theirs.values.len());
            ours.values.resize(len, None);
            for (mine, other) in ours.values.iter_mut().zip(theirs.values) {
                *mine = match (*mine, other) {
                    (Some(a), Some(b)) if ours.kind == SeriesKind::Sum => Some(a + b),
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (one, other) => one.or(other),
                };
            }
        }
        self.finish();
    }

    /// Joins each pair of neighbouring points, to halve their number.
    fn thin(&mut self) {
        self.step_s *= 2.0;
        self.points = self.points.div_ceil(2);
        for TimelineSeries { kind, values, .. } in self.series.values_mut() {
            let pairs = values.chunks(2).map(|pair| {
                let known: Vec<f64> = pair.iter().flatten().copied().collect();
                match kind {
                    _ if known.is_empty() => None,
                    SeriesKind::Sum => Some(known.iter().sum::<f64>() / known.len() as f64),
                    SeriesKind::Max => known.into_iter().reduce(f64::max),
                }
            });
            *values = pairs.collect();
        }
    }

    /// Refuses a timeline from a file if it exceeds a limit or contradicts itself.
    pub(super) fn check(&self) -> Result<()> {
        let Self { step_s, points, series } = self;
        ensure!(step_s.is_finite() && *step_s > 0.0, "the timeline has an invalid step of {step_s} s");
        ensure!(
            *points <= POINTS_MAX && series.len() <= SERIES_MAX,
            "the timeline has {points} points and {} series, the limits are {POINTS_MAX} and {SERIES_MAX}",
            series.len()
        );
        ensure!(series.values().all(|s| s.values.len() <= *points), "a series is longer than its timeline");
        Ok(())
    }
}

impl TimelineSeries {
    /// Sets the value of point `at`, or joins it with the value that the point already has.
    fn put(&mut self, at: usize, value: f64) {
        if self.values.len() <= at {
            self.values.resize(at, None);
            self.values.push(None);
            self.joined = 0;
        }
        self.joined += 1;
        let Some(Some(before)) = self.values.get(at).copied() else {
            self.values[at] = Some(value);
            return;
        };
        self.values[at] = Some(match self.kind {
            SeriesKind::Sum => before + (value - before) / f64::from(self.joined.max(2)),
            SeriesKind::Max => before.max(value),
        });
    }
}
