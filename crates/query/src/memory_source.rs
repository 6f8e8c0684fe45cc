//! A source in memory, for tests and benchmarks. It has no index.

use crate::matcher::matches_all;
use crate::source::{Select, SeriesSet, SeriesSource, SourceError};
use model::{Labels, LabelsRef, Samples, SeriesSamples, TimeRange, ValueKind};

#[derive(Debug, Default)]
pub struct MemorySource {
    series: Vec<(Labels, SeriesSamples)>,
}

impl MemorySource {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a series. Its samples must be in ascending order of time.
    pub fn add(&mut self, labels: Labels, samples: impl Into<SeriesSamples>) {
        let samples = samples.into();
        assert!(samples.timestamps().is_sorted(), "BUG: samples are not in order of time");
        self.series.push((labels, samples));
    }

    /// Adds one sample to a series, or replaces the sample at the same time. Creates the series if absent.
    pub fn push(&mut self, labels: &Labels, timestamp_ms: i64, value: f64) {
        let is_wanted = |(l, samples): &(Labels, SeriesSamples)| l == labels && samples.floats().is_some();
        let at = self.series.iter().position(is_wanted).unwrap_or_else(|| {
            self.series.push((labels.clone(), SeriesSamples::default()));
            self.series.len() - 1
        });
        let SeriesSamples::Floats(samples) = &mut self.series[at].1 else {
            unreachable!("BUG: the series has no floats")
        };
        match samples.timestamps.binary_search(&timestamp_ms) {
            Ok(i) => samples.values[i] = value,
            Err(i) => {
                samples.timestamps.insert(i, timestamp_ms);
                samples.values.insert(i, value);
            }
        }
    }

    pub fn clear(&mut self) {
        self.series.clear();
    }

    pub fn len(&self) -> usize {
        self.series.len()
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl SeriesSource for MemorySource {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let found = self.series.iter().filter(|(labels, _)| matches_all(select.matchers, labels.as_ref()));
        let found: Vec<_> = found.collect();
        Ok(Box::new(MemorySet { rest: found.into_iter(), current: None, range: select.range }))
    }
}

struct MemorySet<'a> {
    rest: std::vec::IntoIter<&'a (Labels, SeriesSamples)>,
    current: Option<&'a Labels>,
    range: TimeRange,
}

impl SeriesSet for MemorySet<'_> {
    fn next(&mut self, out: &mut SeriesSamples) -> Result<bool, SourceError> {
        out.clear_for(ValueKind::Float);
        let Some((labels, samples)) = self.rest.next() else { return Ok(false) };
        self.current = Some(labels);
        out.clear_for(samples.kind());
        match (samples, out) {
            (SeriesSamples::Floats(samples), SeriesSamples::Floats(out)) => copy(samples, self.range, out),
            (SeriesSamples::Histograms(samples), SeriesSamples::Histograms(out)) => {
                copy(samples, self.range, out);
            }
            _ => unreachable!("BUG: the output and the samples are of different kinds"),
        }
        Ok(true)
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.current.expect("BUG: labels() was called before next()").as_ref()
    }

    fn len_hint(&self) -> usize {
        self.rest.len()
    }
}

fn copy<V: Clone>(samples: &Samples<V>, range: TimeRange, out: &mut Samples<V>) {
    let from = samples.timestamps.partition_point(|t| *t < range.start_ms);
    let to = samples.timestamps.partition_point(|t| *t <= range.end_ms);
    if from < to {
        out.timestamps.extend_from_slice(&samples.timestamps[from..to]);
        out.values.extend_from_slice(&samples.values[from..to]);
    }
}
