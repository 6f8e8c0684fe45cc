//! Timeline of figures, with a point per second. Times are in seconds.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names of series that the lab writes. Observation adds other series.
pub mod names {
    pub const RATE_OFFERED: &str = "rate/offered";
    /// Includes retries.
    pub const RATE_SENT: &str = "rate/sent";
    pub const RATE_ACKNOWLEDGED: &str = "rate/acknowledged";
    pub const LATENCY_P50: &str = "latency/p50";
    pub const LATENCY_P90: &str = "latency/p90";
    pub const LATENCY_P99: &str = "latency/p99";
    pub const FRESHNESS_P99: &str = "freshness/p99";
    pub const SERIES_ACTIVE: &str = "series/active";
    pub const SERIES_DISTINCT: &str = "series/distinct";
    /// Attempts per second by outcome: `status/204`, `status/timeout`.
    pub const STATUS_PREFIX: &str = "status/";
    pub const READS: &str = "reads/rate";
    pub const READS_FAILED: &str = "reads/failed";
    pub const READS_P99: &str = "reads/p99";
    pub const GENERATOR_CPU: &str = "generator/cpu";
    pub const GENERATOR_RSS: &str = "generator/rss";
    pub const GENERATOR_LAG: &str = "generator/lag";
}

/// Maximum number of points. In longer runs, neighbouring points are joined.
pub const POINTS_MAX: usize = 4_000;

pub const SERIES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// Point `i` covers the seconds from `i × step_s` to `(i + 1) × step_s`.
    pub step_s: f64,
    pub points: usize,
    /// By name, `group/what`. Each group becomes a chart.
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
    /// For example `s`, `1/s`, `bytes`, `cores`.
    pub unit: String,
    pub kind: SeriesKind,
    /// Value of each point. `None` if nothing was measured.
    pub values: Vec<Option<f64>>,
    #[serde(skip)]
    joined: u32,
}

/// How to join values of neighbouring points or of several generators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesKind {
    /// Mean over time, sum over generators.
    #[default]
    Sum,
    Max,
}

impl Timeline {
    /// Advances to the point at `at_s` seconds since the start.
    pub fn advance(&mut self, at_s: f64) {
        while (at_s / self.step_s) as usize >= POINTS_MAX {
            self.thin();
        }
        self.points = self.points.max((at_s / self.step_s) as usize + 1);
    }

    /// Sets a value of the latest point. Ignored before the first point, and for series beyond [`SERIES_MAX`].
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

    /// Makes all series equally long. Called once, at the end.
    pub fn finish(&mut self) {
        for series in self.series.values_mut() {
            series.values.resize(self.points, None);
            series.joined = 0;
        }
    }

    /// Adds another generator's figures of the same time and target.
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

    /// Joins each pair of neighbouring points.
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

    /// Checks a timeline that was read from a file.
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
    /// Joins `value` with the value of point `at`.
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
