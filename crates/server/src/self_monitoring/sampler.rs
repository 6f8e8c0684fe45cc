//! Reads all metrics of a registry into a batch of samples with the same timestamp.

use super::JOB;
use crate::settings::SelfMonitoring;
use crate::telemetry::tenants::METRICS_OF_TENANTS;
use model::labels::METRIC_NAME;
use model::{
    Batch, BatchMetadata, BatchSeries, Labels, LabelsBuilder, Metadata, MetricKind, STALE_NAN_BITS,
    SeriesKey, SeriesRefusal,
};
use std::collections::BTreeMap;
use std::ops::Range;
use stdx::telemetry::{Family, Found, Reading, Registry};

/// Prometheus adds a series `up` to each target that it scrapes. The node's own metrics have it, too.
const UP: Reading<'_> = Reading { name: "up", suffix: "", labels: &[], extra: None, value: 1.0 };

/// Reads the metrics of a registry, and remembers the series that may be missing from the next read.
#[derive(Debug)]
pub(super) struct Sampler {
    registry: Registry,
    seed: u64,
    instance: String,
    passing: BTreeMap<SeriesKey, Labels>,
}

impl Sampler {
    pub(super) const fn new(registry: Registry, seed: u64, instance: String) -> Self {
        Self { registry, seed, instance, passing: BTreeMap::new() }
    }

    /// Reads all metrics at the time `now_ms`. Each series that has disappeared since the last read ends with
    /// a stale marker. Series beyond [`SelfMonitoring::SERIES_MAX`] are left out and count as refused. Metrics of tenants
    /// are not stored, because they could be most of these series: anybody who may write can make new tenants.
    pub(super) fn sample(&mut self, now_ms: i64) -> Batch {
        let mut sample = Sample {
            instance: &self.instance,
            seed: self.seed,
            now_ms,
            batch: Batch::default(),
            builder: LabelsBuilder::new(),
            passing: BTreeMap::new(),
        };
        sample.add(UP);
        self.registry.read(&mut |found| match found {
            Found::Family(Family { name, .. }) | Found::Value(Reading { name, .. })
                if name.starts_with(METRICS_OF_TENANTS) => {}
            Found::Family(family) => sample.describe(family),
            Found::Value(reading) => sample.add(reading),
        });
        let Sample { mut batch, passing, .. } = sample;
        let gone = std::mem::replace(&mut self.passing, passing);
        for (key, labels) in gone {
            if !self.passing.contains_key(&key) {
                push(&mut batch, key, &labels, now_ms, f64::from_bits(STALE_NAN_BITS));
            }
        }
        batch
    }
}

struct Sample<'a> {
    instance: &'a str,
    seed: u64,
    now_ms: i64,
    batch: Batch,
    builder: LabelsBuilder,
    passing: BTreeMap<SeriesKey, Labels>,
}

impl Sample<'_> {
    fn describe(&mut self, Family { name, help, kind }: Family) {
        let kind = match kind {
            "counter" => MetricKind::Counter,
            "gauge" => MetricKind::Gauge,
            _ => MetricKind::Histogram,
        };
        let texts = &mut self.batch.texts;
        let mut text = |text: &str| -> Range<u32> {
            let start = texts.len() as u32;
            texts.push_str(text);
            start..texts.len() as u32
        };
        let (metric, help, unit) = (text(name), text(Metadata::cut(help)), text(""));
        self.batch.metadata.push(BatchMetadata { kind, metric, help, unit });
    }

    fn add(&mut self, reading: Reading<'_>) {
        let Ok(labels) = self.labels_of(reading) else { return self.leave_out() };
        if self.batch.floats.series.len() == SelfMonitoring::SERIES_MAX {
            return self.leave_out();
        }
        let key = SeriesKey::of(labels.as_bytes(), self.seed);
        push(&mut self.batch, key, &labels, self.now_ms, reading.value);
        // the buckets of a histogram also have an extra label, but they never disappear
        if reading.suffix.is_empty() && reading.extra.is_some() {
            self.passing.insert(key, labels);
        }
    }

    fn leave_out(&mut self) {
        self.batch.refused_samples += 1;
    }

    fn labels_of(&mut self, reading: Reading<'_>) -> Result<Labels, SeriesRefusal> {
        let Reading { name, suffix, labels, extra, .. } = reading;
        self.builder.clear();
        self.builder.push(METRIC_NAME, &[name, suffix].concat());
        self.builder.push("job", JOB);
        self.builder.push("instance", self.instance);
        let fixed = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        fixed.chain(extra).for_each(|(name, value)| self.builder.push(name, value));
        self.builder.build_series()
    }
}

fn push(batch: &mut Batch, key: SeriesKey, labels: &Labels, timestamp_ms: i64, value: f64) {
    let Batch { bytes, floats, .. } = batch;
    let (start, sample) = (bytes.len() as u32, floats.timestamps.len() as u32);
    bytes.extend_from_slice(labels.as_bytes());
    floats.series.push(BatchSeries { key, labels: start..bytes.len() as u32, samples: sample..sample + 1 });
    floats.timestamps.push(timestamp_ms);
    floats.values.push(value);
}
