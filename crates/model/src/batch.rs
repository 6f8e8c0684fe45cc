//! One request of one tenant, after decoding and before its label sets are looked up as series.

use crate::series::SeriesKey;
use crate::{Exponential, ExponentialSum, Histogram, Increment, SeriesRefusal, Value, caps};
use std::ops::Range;
use std::sync::Arc;

/// The samples of one request, in columns, together with the label bytes of each series. Decoders
/// do not parse the labels: they are protobuf `Label` messages in any order ([`crate::labels`] has
/// the canonical form).
#[derive(Debug, Default)]
pub struct Batch {
    /// `BatchSeries::labels` are positions in these bytes. With remote write 1.0, they are the decompressed
    /// body of the request.
    pub bytes: Vec<u8>,
    pub floats: SeriesBatch<f64>,
    pub histograms: SeriesBatch<Histogram>,
    /// Increments of exponential histograms. The caller adds them to their sums, and decodes the request again with the
    /// [`ExponentialTotals`], because only the sums say which series there are. All other points of the request are in this batch.
    pub exponentials: Vec<BatchExponential>,
    /// The request's message, if there are such points and the body is not the message itself.
    pub message: Option<Vec<u8>>,
    /// If the request was decoded with totals: the first of them that is not in this batch. From there on, it must be decoded again.
    pub left: Option<TotalsPlace>,
    pub metadata: Vec<BatchMetadata>,
    pub texts: String,
    /// The first [`Batch::REFUSED_KEPT_MAX`] refused series: why each was refused, and where its
    /// labels are in `bytes`.
    pub refused: Vec<(SeriesRefusal, Range<u32>)>,
    /// Number of series that were refused, even if only some of their samples were.
    pub refused_series: u64,
    pub refused_samples: u64,
    pub refused_histograms: u64,
    pub refused_exemplars: u64,
    /// Number of points, in protocols in which a point may become several series. Includes refused points, each of which
    /// counts as one refused sample.
    pub points: u64,
    /// Number of points that were converted, because they cannot be stored as they were sent.
    pub converted_points: u64,
}

/// All series of a request whose values are floats, or all whose values are histograms.
#[derive(Debug)]
pub struct SeriesBatch<V> {
    /// In the order in which they arrived. A series may occur more than once.
    pub series: Vec<BatchSeries>,
    /// Milliseconds since the Unix epoch.
    pub timestamps: Vec<i64>,
    pub values: Vec<V>,
    /// Those series whose samples are not values, but have to be added to a sum. Each has one sample. Sorted by series.
    pub increments: Vec<BatchIncrement>,
    /// Each exemplar has the index of its series in `series`.
    pub exemplars: Vec<(u32, Exemplar)>,
}

impl<V> Default for SeriesBatch<V> {
    fn default() -> Self {
        Self {
            series: Vec::new(),
            timestamps: Vec::new(),
            values: Vec::new(),
            increments: Vec::new(),
            exemplars: Vec::new(),
        }
    }
}

impl<V: Value> SeriesBatch<V> {
    fn clear(&mut self) {
        self.series.clear();
        self.timestamps.clear();
        self.values.clear();
        self.increments.clear();
        self.exemplars.clear();
    }

    /// The increment that the sample of a series is. `None` if it is a value.
    #[inline]
    pub fn increment_of(&self, series: u32) -> Option<&Increment> {
        let at = self.increments.binary_search_by_key(&series, |increment| increment.series).ok()?;
        Some(&self.increments[at].increment)
    }

    fn memory_bytes(&self) -> usize {
        self.series.capacity() * size_of::<BatchSeries>()
            + self.timestamps.capacity() * size_of::<i64>()
            + self.values.capacity() * size_of::<V>()
            + self.values.iter().map(Value::heap_bytes).sum::<usize>()
            + self.increments.capacity() * size_of::<BatchIncrement>()
            + self.exemplars.capacity() * size_of::<(u32, Exemplar)>()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSeries {
    /// Hash of the label bytes as sent. It identifies the series only if the bytes are canonical.
    pub key: SeriesKey,
    /// Position of the labels in `Batch::bytes`.
    pub labels: Range<u32>,
    pub samples: Range<u32>,
}

/// Says that the sample of a series is an increment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchIncrement {
    /// Index in [`SeriesBatch::series`].
    pub series: u32,
    /// Index of the first series of the point, as it was decoded. So all series of a point have the same.
    pub point: u32,
    pub increment: Increment,
}

/// A point of an exponential histogram that has to be added to a sum.
#[derive(Debug, Clone)]
pub struct BatchExponential {
    /// Identifies the histogram. It is not the key of a series.
    pub key: SeriesKey,
    /// Interval of the point. `value` is the number of values that the point has counted.
    pub increment: Increment,
    pub counts: Arc<Exponential>,
    /// Upper bound on the labels of each of its series.
    pub label_bytes: usize,
    /// Where the point begins in the request's message. Later points have greater offsets.
    pub offset: u32,
}

impl BatchExponential {
    pub fn heap_bytes(&self) -> usize {
        size_of::<Exponential>() + self.counts.heap_bytes()
    }
}

/// For each of [`Batch::exponentials`]: the sum to which it was added, or why it was not. `None` if it is in another section of the
/// request.
pub type ExponentialTotals = Arc<[Option<Result<ExponentialSum, SeriesRefusal>>]>;

/// A part of a request with increments of exponential histograms, for decoding it again. Only what they have added up to is then in the
/// batch.
///
/// If there are many increments, they are added up in sections, one after the other. What a section adds up to may have far more series
/// than a request may have, and this is only known when it was added. So it is divided into as many parts as it takes, and is never
/// refused for that.
#[derive(Debug, Clone)]
pub struct TotalsPart {
    /// Sums to which the increments of the request were added. `None` for increments of other sections.
    pub totals: ExponentialTotals,
    /// [`BatchExponential::offset`] of each increment. All other points are skipped.
    pub offsets: Arc<[u32]>,
    pub from: TotalsPlace,
    /// The part ends when its totals have this many series, or bytes of labels. Neither is 0.
    pub room: TotalsRoom,
}

impl TotalsPart {
    /// The first total from `number` on that belongs to the section.
    pub fn wanted(&self, number: usize) -> Option<usize> {
        let rest = self.totals.get(number..)?;
        rest.iter().position(Option::is_some).map(|at| number + at)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TotalsRoom {
    pub series: usize,
    pub label_bytes: usize,
}

/// A place among all that a request has added up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TotalsPlace {
    /// Index of the total.
    pub number: usize,
    /// Which of the times at which its series must be stored, from 0.
    pub time: usize,
}

/// Type, help text and unit of a metric. The strings are ranges of [`Batch::texts`], so that an
/// entry needs no allocation of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMetadata {
    pub kind: MetricKind,
    pub metric: Range<u32>,
    pub help: Range<u32>,
    pub unit: Range<u32>,
}

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

    pub fn is(self, other: &Metadata) -> bool {
        let Self { metric, kind, help, unit } = self;
        metric == other.metric && kind == other.kind && help == other.help && unit == other.unit
    }
}

impl Batch {
    pub const REFUSED_KEPT_MAX: usize = 10;

    /// Empties the batch, but keeps its buffers allocated for the next request.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.floats.clear();
        self.histograms.clear();
        self.exponentials.clear();
        self.message = None;
        self.left = None;
        self.metadata.clear();
        self.texts.clear();
        self.refused.clear();
        self.refused_series = 0;
        self.refused_samples = 0;
        self.refused_histograms = 0;
        self.refused_exemplars = 0;
        self.points = 0;
        self.converted_points = 0;
    }

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

    /// False if further errors are only counted.
    pub const fn keeps_errors(&self) -> bool {
        self.refused.len() < Self::REFUSED_KEPT_MAX
    }

    pub fn refuse(&mut self, error: SeriesRefusal, labels: Range<u32>, samples: usize) {
        self.refused_series += 1;
        self.refused_samples += samples as u64;
        if self.keeps_errors() {
            self.refused.push((error, labels));
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.floats.memory_bytes()
            + self.histograms.memory_bytes()
            + self.exponentials.capacity() * size_of::<BatchExponential>()
            + self.exponentials.iter().map(BatchExponential::heap_bytes).sum::<usize>()
            + self.message.as_ref().map_or(0, Vec::capacity)
            + self.metadata.capacity() * size_of::<BatchMetadata>()
            + self.texts.capacity()
    }
}

/// The types of metrics. They have the same numbers as in remote write 2.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum MetricKind {
    /// The sender did not say which type the metric has.
    #[default]
    Unknown = 0,
    Counter = 1,
    Gauge = 2,
    Histogram = 3,
    GaugeHistogram = 4,
    Summary = 5,
    /// The labels have the information, and the value is always 1.
    Info = 6,
    /// A series for each state. The present state has the value 1, and the others 0.
    StateSet = 7,
}

impl MetricKind {
    /// Converts the number that a remote-write request has for the type. It is the same in versions
    /// 1.0 and 2.0.
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
    /// At most [`caps::METADATA_TEXT_BYTES_MAX`] bytes.
    pub help: String,
    /// At most [`caps::METADATA_TEXT_BYTES_MAX`] bytes.
    pub unit: String,
}

impl Metadata {
    /// Cuts a text that is longer than [`caps::METADATA_TEXT_BYTES_MAX`] bytes, but not in the middle of a
    /// character.
    pub fn cut(text: &str) -> &str {
        let mut end = text.len().min(caps::METADATA_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        &text[..end]
    }
}

/// One event that a metric counted, given as an example. It usually has a trace ID.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels of the exemplar itself, in addition to those of the series. They may be empty.
    pub labels: crate::Labels,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    pub value: f64,
}
