//! One request of one tenant, decoded but not resolved to series.

use crate::series::SeriesKey;
use crate::{Histogram, SeriesRefusal, Value, caps};
use std::ops::Range;

/// Samples of one request in columns, with the label bytes of their series. Decoders do not parse labels.
/// Label bytes are protobuf `Label` messages in any order ([`crate::labels`] has the canonical form).
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes that `BatchSeries::labels` refers to. For remote write 1.0, they are the decompressed body.
    pub bytes: Vec<u8>,
    pub floats: SeriesBatch<f64>,
    /// Series of native histograms.
    pub histograms: SeriesBatch<Histogram>,
    pub metadata: Vec<BatchMetadata>,
    pub texts: String,
    /// Errors of refused series, with their label bytes as sent. Only the first [`Batch::REFUSED_KEPT_MAX`]
    /// are listed.
    pub refused: Vec<(SeriesRefusal, Range<u32>)>,
    /// Number of wholly or partly refused series.
    pub refused_series: u64,
    pub refused_samples: u64,
    pub refused_histograms: u64,
    pub refused_exemplars: u64,
}

/// All series with values of one kind, and their samples in columns.
#[derive(Debug)]
pub struct SeriesBatch<V> {
    /// Series in order of arrival. A series may occur twice.
    pub series: Vec<BatchSeries>,
    /// Milliseconds since the Unix epoch.
    pub timestamps: Vec<i64>,
    pub values: Vec<V>,
    /// Exemplars, each with the index of its series in `series`.
    pub exemplars: Vec<(u32, Exemplar)>,
}

impl<V> Default for SeriesBatch<V> {
    fn default() -> Self {
        Self { series: Vec::new(), timestamps: Vec::new(), values: Vec::new(), exemplars: Vec::new() }
    }
}

impl<V: Value> SeriesBatch<V> {
    fn clear(&mut self) {
        self.series.clear();
        self.timestamps.clear();
        self.values.clear();
        self.exemplars.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.series.capacity() * size_of::<BatchSeries>()
            + self.timestamps.capacity() * size_of::<i64>()
            + self.values.capacity() * size_of::<V>()
            + self.values.iter().map(Value::heap_bytes).sum::<usize>()
            + self.exemplars.capacity() * size_of::<(u32, Exemplar)>()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSeries {
    /// Hash of the label bytes. The hash of canonical bytes is the key of the series.
    pub key: SeriesKey,
    /// Label bytes in `Batch::bytes`.
    pub labels: Range<u32>,
    /// Samples of this series.
    pub samples: Range<u32>,
}

/// Metadata of a metric family. The texts are ranges of [`Batch::texts`], so entries need no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMetadata {
    pub kind: MetricKind,
    pub metric: Range<u32>,
    pub help: Range<u32>,
    pub unit: Range<u32>,
}

/// Borrowed form of [`Metadata`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRef<'a> {
    pub metric: &'a str,
    pub kind: MetricKind,
    pub help: &'a str,
    pub unit: &'a str,
}

impl MetadataRef<'_> {
    pub fn to_owned(self) -> Metadata {
        let Self { metric, kind, help, unit } = self;
        Metadata { metric: metric.into(), kind, help: help.into(), unit: unit.into() }
    }

    /// True if `other` has the same content.
    pub fn is(self, other: &Metadata) -> bool {
        let Self { metric, kind, help, unit } = self;
        metric == other.metric && kind == other.kind && help == other.help && unit == other.unit
    }
}

impl Batch {
    /// Maximum number of entries in `refused`.
    pub const REFUSED_KEPT_MAX: usize = 10;

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.floats.clear();
        self.histograms.clear();
        self.metadata.clear();
        self.texts.clear();
        self.refused.clear();
        self.refused_series = 0;
        self.refused_samples = 0;
        self.refused_histograms = 0;
        self.refused_exemplars = 0;
    }

    /// Label bytes of a series as sent, canonical or not.
    #[inline]
    pub fn label_bytes(&self, series: &BatchSeries) -> &[u8] {
        &self.bytes[series.labels.start as usize..series.labels.end as usize]
    }

    pub fn metadata(&self) -> impl Iterator<Item = MetadataRef<'_>> {
        let text = |range: &Range<u32>| &self.texts[range.start as usize..range.end as usize];
        self.metadata.iter().map(move |m| MetadataRef {
            metric: text(&m.metric),
            kind: m.kind,
            help: text(&m.help),
            unit: text(&m.unit),
        })
    }

    /// Counts a refused series with `samples` samples.
    pub fn refuse(&mut self, error: SeriesRefusal, labels: Range<u32>, samples: usize) {
        self.refused_series += 1;
        self.refused_samples += samples as u64;
        if self.refused.len() < Self::REFUSED_KEPT_MAX {
            self.refused.push((error, labels));
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.floats.memory_bytes()
            + self.histograms.memory_bytes()
            + self.metadata.capacity() * size_of::<BatchMetadata>()
            + self.texts.capacity()
    }
}

/// Kinds of metrics, numbered as in remote write 2.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum MetricKind {
    /// The sender named no type.
    #[default]
    Unknown = 0,
    /// A value that only increases, except for resets.
    Counter = 1,
    Gauge = 2,
    Histogram = 3,
    GaugeHistogram = 4,
    Summary = 5,
    /// Information in labels. The value is always 1.
    Info = 6,
    /// A set of states, one of which is 1.
    StateSet = 7,
}

impl MetricKind {
    /// Converts a number of remote write. Both versions have the same numbers.
    pub const fn from_wire(n: u64) -> Self {
        match n {
            1 => Self::Counter,
            2 => Self::Gauge,
            3 => Self::Histogram,
            4 => Self::GaugeHistogram,
            5 => Self::Summary,
            6 => Self::Info,
            7 => Self::StateSet,
            _ => Self::Unknown,
        }
    }

    /// Prometheus' name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    pub metric: String,
    pub kind: MetricKind,
    /// Help text, at most [`caps::METADATA_TEXT_BYTES_MAX`] bytes.
    pub help: String,
    /// Unit, at most [`caps::METADATA_TEXT_BYTES_MAX`] bytes.
    pub unit: String,
}

impl Metadata {
    /// Cuts `text` to [`caps::METADATA_TEXT_BYTES_MAX`] bytes at a character boundary.
    pub fn cut(text: &str) -> &str {
        let mut end = text.len().min(caps::METADATA_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        &text[..end]
    }
}

/// Example of a counted event, usually with a trace ID.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels of the exemplar, not of its series. May be empty.
    pub labels: crate::Labels,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    pub value: f64,
}
