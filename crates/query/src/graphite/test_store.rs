//! A source in memory, for tests of functions.

use super::{LabelSource, Options, Schema, Series, parse, render};
use crate::allowance::Allowance;
use crate::memory_source::MemorySource;
use crate::{Interrupt, QueryError, Select, SelectGlob, SeriesSet, SeriesSource, SourceError};
use jiff::tz::TimeZone;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsRef, Samples, SeriesSamples};
use std::sync::atomic::AtomicBool;

/// No value.
pub(super) const NONE: f64 = f64::NAN;

/// Series whose first value is at the time 60, and an evaluation of the values up to the time `until_s`.
#[derive(Debug)]
pub(super) struct Store {
    source: MemorySource,
    step_s: i64,
    pub(super) from_s: i64,
    pub(super) until_s: i64,
    pub(super) now_s: i64,
    pub(super) samples_max: u64,
    pub(super) kept_free: u64,
    /// Maximum of `list_bytes`.
    pub(super) listed_bytes: u64,
    /// Memory of the list of paths that a glob with wildcards matches, and what each series adds to it.
    pub(super) list_bytes: u64,
    pub(super) growth_bytes: u64,
    /// Memory for parsing a target.
    pub(super) targets_bytes: u64,
}

impl Store {
    /// Steps of a minute.
    pub(super) fn new() -> Self {
        Self::of_step(60)
    }

    pub(super) fn of_step(step_s: i64) -> Self {
        let (from_s, until_s) = (0, 0);
        Self {
            source: MemorySource::new(),
            step_s,
            from_s,
            until_s,
            now_s: 1_000_000,
            samples_max: 100_000,
            kept_free: 0,
            listed_bytes: 0,
            list_bytes: 0,
            growth_bytes: 0,
            targets_bytes: 1 << 20,
        }
    }

    /// Adds a series with these values at 60, 60 + step and so on. `name` is a path or a full tagged name. The range
    /// of the evaluation grows to the values.
    pub(super) fn with(mut self, name: &str, values: &[f64]) -> Self {
        let labels = labels_of(name);
        let mut samples = Samples::default();
        for (i, value) in values.iter().enumerate() {
            let time_s = 60 + i as i64 * self.step_s;
            self.until_s = self.until_s.max(time_s);
            if !value.is_nan() {
                samples.push(time_s * 1000, *value);
            }
        }
        self.source.add(labels, samples);
        self
    }

    /// Sets the range of the evaluation: values after `from_s`, up to the slot of `until_s`.
    pub(super) fn between(mut self, from_s: i64, until_s: i64) -> Self {
        (self.from_s, self.until_s) = (from_s, until_s);
        self
    }

    pub(super) fn try_render(&self, target: &str) -> Result<Vec<Series>, QueryError> {
        self.try_render_until(target, &AtomicBool::new(false))
    }

    pub(super) fn try_render_until(
        &self,
        target: &str,
        canceled: &dyn Interrupt,
    ) -> Result<Vec<Series>, QueryError> {
        self.try_render_all(&[target], canceled)
    }

    pub(super) fn try_render_all(
        &self,
        targets: &[&str],
        canceled: &dyn Interrupt,
    ) -> Result<Vec<Series>, QueryError> {
        let parse = |target: &&str| parse(target, &[], &mut Allowance::new(self.targets_bytes));
        let targets = targets.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let options = Options {
            from_s: self.from_s,
            until_s: self.until_s,
            now_s: self.now_s,
            time_zone: &TimeZone::UTC,
            x_files_factor: None,
            max_data_points: None,
            variables: &[],
            samples_max: self.samples_max,
            kept_free: self.kept_free,
            listed_bytes: self.listed_bytes,
            built: &Allowance::new(self.targets_bytes),
            canceled,
            usage: None,
        };
        let schema = Schema::every(self.step_s);
        render(&targets, &LabelSource::new(self as &dyn SeriesSource, &schema), &options)
    }

    pub(super) fn render(&self, target: &str) -> Vec<Series> {
        self.try_render(target).unwrap_or_else(|error| panic!("{target}: {error}"))
    }

    /// Checks names and values of the series of a target, in their order.
    #[track_caller]
    pub(super) fn check(&self, target: &str, expected: &[(&str, &[f64])]) {
        let all = self.render(target);
        let names: Vec<_> = all.iter().map(|series| series.name.as_str()).collect();
        let expected_names: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected_names, "{target}");
        for (series, (name, values)) in all.iter().zip(expected) {
            let is_same = |(a, b): (&f64, &f64)| {
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
            };
            let is_equal =
                series.values.len() == values.len() && series.values.iter().zip(*values).all(is_same);
            assert!(is_equal, "{target}: {name} has {:?}, expected {values:?}", series.values);
        }
    }

    /// Checks that a target fails with a message that has this text.
    #[track_caller]
    pub(super) fn check_error(&self, target: &str, part: &str) {
        let error = self.try_render(target).expect_err(target).to_string();
        assert!(error.contains(part), "{target}: {error}");
    }
}

impl SeriesSource for Store {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        self.source.select(select)
    }

    fn select_glob(&self, select: &SelectGlob<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let set = self.source.select_glob(select)?;
        let names_bytes = if self.list_bytes <= select.list_bytes_max { self.list_bytes } else { 0 };
        Ok(Box::new(Listed { set, names_bytes, growth_bytes: self.growth_bytes }))
    }
}

struct Listed<'a> {
    set: Box<dyn SeriesSet + 'a>,
    names_bytes: u64,
    growth_bytes: u64,
}

impl SeriesSet for Listed<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        self.names_bytes += self.growth_bytes;
        self.set.next(samples)
    }

    fn limit(&mut self, samples_max: u64) {
        self.set.limit(samples_max);
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.set.labels()
    }

    fn len_hint(&self) -> usize {
        self.set.len_hint()
    }

    fn names_bytes(&self) -> u64 {
        self.names_bytes
    }
}

fn labels_of(name: &str) -> Labels {
    let mut parts = name.split(';');
    let mut pairs = vec![(METRIC_NAME, parts.next().unwrap_or_default())];
    pairs.extend(parts.map(|part| part.split_once('=').expect("a tag has a value")));
    Labels::from_pairs(&pairs)
}
