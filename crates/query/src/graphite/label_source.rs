//! Series with labels as Graphite's paths and tagged series.

use super::slots::{Schema, Slots};
use super::source::{Pick, Select, Selection, Source, Stored};
use super::tag::write_full_name;
use crate::source::{Select as SelectLabels, SelectGlob, SeriesSet, SeriesSource, Silent, SourceError};
use model::labels::METRIC_NAME;
use model::{ErrorKind, LabelsRef, SeriesSamples, TimeRange};

/// Decides how the values of a metric are stored.
pub trait Schemas {
    /// `name` is the path, or the full tagged name.
    fn schema_of(&self, name: &str) -> &Schema;

    /// The longest step of all schemas.
    fn step_max_s(&self) -> i64;

    /// The longest [`Schema::around_s`] of all schemas. More is allowed: then more samples are read than needed.
    fn around_s(&self, from_s: i64, until_s: i64, now_s: i64) -> i64;
}

/// The same schema for all metrics.
impl Schemas for Schema {
    fn schema_of(&self, _name: &str) -> &Schema {
        self
    }

    fn step_max_s(&self) -> i64 {
        Self::step_max_s(self)
    }

    fn around_s(&self, from_s: i64, until_s: i64, now_s: i64) -> i64 {
        Self::around_s(self, from_s, until_s, now_s)
    }
}

/// A source of series with labels, seen as one of paths and tagged series.
pub struct LabelSource<'a> {
    series: &'a dyn SeriesSource,
    schemas: &'a dyn Schemas,
}

impl std::fmt::Debug for LabelSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabelSource").finish_non_exhaustive()
    }
}

impl<'a> LabelSource<'a> {
    pub fn new(series: &'a dyn SeriesSource, schemas: &'a dyn Schemas) -> Self {
        Self { series, schemas }
    }
}

impl Source for LabelSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn Selection + '_>, SourceError> {
        // no slot that begins after `from_s` has an earlier sample, and none ends later than two steps after `until_s`
        let around_s = self.schemas.around_s(select.from_s, select.until_s, select.now_s);
        let start_ms = select.from_s.saturating_add(1).saturating_sub(around_s).saturating_mul(1000);
        let after_s = self.schemas.step_max_s().saturating_mul(2).saturating_add(around_s);
        let end_s = select.until_s.saturating_add(after_s);
        let range = TimeRange::new(start_ms, end_s.saturating_mul(1000) - 1);
        let select_labels = |matchers| self.series.select(&SelectLabels { matchers, range });
        let (list_bytes_max, mut silent) = (select.list_bytes_max, Silent::Needed);
        let (set, form) = match select.pick {
            Pick::Paths(glob) => {
                silent = select.silent;
                (self.series.select_glob(&SelectGlob { glob, range, list_bytes_max, silent })?, Form::Path)
            }
            Pick::Tagged(matchers) => (select_labels(matchers)?, Form::Tagged),
            Pick::Named(matchers) => (select_labels(matchers)?, Form::Labels(matchers.len())),
        };
        let (from_s, until_s, now_s) = (select.from_s, select.until_s, select.now_s);
        let samples = SeriesSamples::default();
        let schemas = self.schemas;
        Ok(Box::new(LabelSelection {
            set,
            samples,
            schemas,
            form,
            from_s,
            until_s,
            now_s,
            values_max: 0,
            silent,
        }))
    }
}

/// Which of the series that have matching labels are selected.
enum Form {
    Path,
    Tagged,
    /// Exactly this number of labels.
    Labels(usize),
}

impl Form {
    fn accepts(&self, labels: LabelsRef<'_>) -> bool {
        match self {
            Self::Path => labels.iter().count() == 1,
            Self::Tagged => labels.iter().any(|(name, _)| name != METRIC_NAME),
            Self::Labels(count) => labels.iter().count() == *count,
        }
    }
}

struct LabelSelection<'a> {
    set: Box<dyn SeriesSet + 'a>,
    samples: SeriesSamples,
    schemas: &'a dyn Schemas,
    form: Form,
    from_s: i64,
    until_s: i64,
    now_s: i64,
    values_max: u64,
    silent: Silent,
}

impl Selection for LabelSelection<'_> {
    fn next(&mut self, stored: &mut Stored) -> Result<bool, SourceError> {
        while self.set.next(&mut self.samples)? {
            let labels = self.set.labels();
            if !self.form.accepts(labels) {
                continue;
            }
            let SeriesSamples::Floats(samples) = &self.samples else { continue };
            stored.name.clear();
            write_name(&mut stored.name, labels);
            let schema = self.schemas.schema_of(&stored.name);
            let Some(layout) = schema.layout(self.from_s, self.until_s, self.now_s) else { continue };
            let needed = samples.len() as u64 + layout.len() as u64 / 2;
            // more samples are read than the schema of this series needs
            let is_silent =
                samples.timestamps.first().is_none_or(|first| *first >= layout.end_s.saturating_mul(1000));
            if let Silent::KeepFree(kept_free) = self.silent
                && is_silent
                && needed + 1 > self.values_max.saturating_sub(kept_free)
            {
                self.set.leave_out_silent();
                continue;
            }
            if is_silent && !samples.is_empty() {
                self.set.note_silent();
            }
            if needed > self.values_max {
                let message = format!(
                    "one series has {} samples and {} values in the range, the limit is {} \
                     (settings query_samples and query_memory, or memory, on which both depend)",
                    samples.len(),
                    layout.len(),
                    self.values_max
                );
                return Err(SourceError { kind: ErrorKind::TooLarge, message });
            }
            (stored.start_s, stored.end_s, stored.step_s) = (layout.start_s, layout.end_s, layout.step_s);
            stored.samples = samples.len() as u64;
            let mut slots = Slots::new(schema, layout, &mut stored.values);
            for (timestamp_ms, value) in samples.timestamps.iter().zip(&samples.values) {
                slots.push(*timestamp_ms, *value);
            }
            slots.finish();
            return Ok(true);
        }
        Ok(false)
    }

    fn names_bytes(&self) -> u64 {
        self.set.names_bytes()
    }

    fn limit(&mut self, values_max: u64) {
        self.values_max = values_max;
        self.set.limit(values_max);
    }
}

/// Writes the path of a series, or its full tagged name.
pub fn write_name(name: &mut String, labels: LabelsRef<'_>) {
    let tags = labels.iter().filter(|(label, _)| *label != METRIC_NAME);
    write_full_name(name, labels.get(METRIC_NAME).unwrap_or_default(), tags);
}
