use crate::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use std::time::Duration;

/// Why one series of a request, or some of its samples, cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesRefusal {
    #[error("series has no metric name (label __name__)")]
    NoName,
    #[error("label name {0:?} is not unique")]
    DuplicateLabel(String),
    #[error("label name is empty")]
    EmptyLabelName,
    #[error("label name or value is not valid UTF-8")]
    NotUtf8,
    #[error("series has {0} labels, the limit is {SERIES_LABELS_MAX}")]
    TooManyLabels(usize),
    #[error("label name has {0} bytes, the limit is {LABEL_NAME_BYTES_MAX}")]
    LabelNameTooLong(usize),
    #[error("value of label {0:?} has {1} bytes, the limit is {LABEL_VALUE_BYTES_MAX}")]
    LabelValueTooLong(String, usize),
    #[error("labels take {0} bytes together, the limit is {SERIES_LABEL_BYTES_MAX}")]
    LabelsTooLong(usize),
    #[error("label reference {0} is outside the symbol table of {1} symbols")]
    SymbolOutOfRange(u32, usize),
    #[error("odd number of label references: {0}")]
    OddLabelRefs(usize),
    /// The number is the offset of the error, from the start of the labels.
    #[error("labels are not valid protobuf: error at byte {0} of the labels")]
    DamagedLabels(usize),
    /// A line of a line-based protocol (such as that of Graphite) cannot be read.
    #[error("line {number}: {what}")]
    Line {
        /// Counted from 1.
        number: usize,
        what: String,
    },
    /// A message of a sequence of messages (such as a frame of Graphite's pickles) cannot be read.
    #[error("message {number}: {what}")]
    Message {
        /// Counted from 1.
        number: usize,
        what: String,
    },
    /// A point in a message of a protocol without lines cannot be read.
    #[error("point {number}: {what}")]
    Point {
        /// Counted from 1, within its message.
        number: usize,
        what: String,
    },

    /// The labels in the text of a line cannot be read.
    #[error("labels cannot be read: {0}")]
    Text(String),
    /// The text is the tag of a line.
    #[error("tag {0:?} is not of the form name=value")]
    Tag(String),
    /// A rule of the server rewrites the name of the series to one that cannot be stored.
    #[error("the name is rewritten by a rule (setting graphite_rewrite), but {reason}")]
    Rewritten { reason: String },
    /// A rule of the server makes labels that cannot be stored.
    #[error("the labels are changed by rules (setting ingest_rules), but {reason}")]
    Ruled { reason: String },
    #[error("series has no samples")]
    NoSamples,
    #[error(
        "the points are deltas, but only cumulative points are stored (setting otlp_delta): let the sender export with \
         cumulative temporality"
    )]
    DeltaTemporality,
    /// An increment is a point with delta temporality.
    #[error("the delta is too late: it is not known any more whether it was added before")]
    IncrementTooLate,
    #[error(
        "the delta overlaps others that were added: probably, two senders send the same series (give each of them a \
         service.instance.id)"
    )]
    IncrementOverlaps,
    #[error("the delta or the sum of the deltas is not a finite number")]
    IncrementNotFinite,
    #[error("the delta of a monotonic sum is negative")]
    NegativeIncrement,
    #[error(
        "no memory for the sums of more series with deltas: they may take {limit_mib} MiB; raise the limit with --memory"
    )]
    NoRoomForSums {
        /// Memory that the sums of all tenants may take.
        limit_mib: u64,
    },
    #[error("the aggregation temporality {0} is neither delta (1) nor cumulative (2)")]
    UnknownTemporality(u64),
    #[error("the metric is neither a gauge, a sum, a histogram, an exponential histogram nor a summary")]
    UnknownMetricType,
    #[error("the point has no value")]
    PointWithoutValue,
    #[error("the point has no time")]
    PointWithoutTime,
    #[error("the value of an attribute takes more than {LABEL_VALUE_BYTES_MAX} bytes as text")]
    AttributeTooLarge,
    #[error("lists and maps in the value of an attribute are nested too deeply")]
    AttributeTooDeep,
    /// The number is how many native histograms the series has.
    #[error("native histograms cannot be stored yet: {0} refused")]
    NativeHistograms(usize),
    /// The time is before 1970, after 9999, or too far from the clock.
    #[error("timestamp {timestamp_ms} ms is out of bounds: {reason}")]
    Timestamp {
        /// The sample's time.
        timestamp_ms: i64,
        reason: &'static str,
    },
    #[error(
        "no memory for new series: the head holds {used_mib} MiB and takes new series up to {limit_mib} MiB; \
             raise the limit with --memory"
    )]
    NoRoom {
        /// Memory that the head holds.
        used_mib: u64,
        limit_mib: u64,
    },
    #[error(
        "no memory for new work: the process holds {used_mib} MiB and takes new series, exports and long queries up to \
             {limit_mib} MiB; raise the limit with --memory"
    )]
    NoMemory {
        /// Memory that the process holds.
        used_mib: u64,
        limit_mib: u64,
    },
    #[error(
        "no memory for new series of this tenant: it holds {used_mib} MiB, and its share of the head is \
             {share_mib} MiB; raise the limit with --memory, or the setting share_weight"
    )]
    TenantShare { used_mib: u64, share_mib: u64 },
    #[error("the tenant has reached its limit of {limit} active series (setting active_series)")]
    ActiveSeries {
        limit: u64,
        /// True if an operator has set the limit. Otherwise, it was derived from the size of the head.
        is_configured: bool,
    },
    #[error(
        "the tenant has reached its limit of {limit} active series of this metric name (setting series_per_metric)"
    )]
    SeriesPerMetric {
        limit: u64,
        /// True if an operator has set the limit. Otherwise, it was derived from the size of the head.
        is_configured: bool,
    },
    #[error(
        "the tenant creates series too fast: the limit is {per_s} a second (setting new_series_per_second)"
    )]
    NewSeriesRate {
        per_s: u64,
        /// Time until the tenant may create more series.
        wait: Duration,
    },
    #[error("the tenant has {limit} clusters of replicas, which is its limit (setting ha_clusters)")]
    TooManyClusters { limit: usize },
    #[error(
        "samples of the elected replica of this cluster are not stored at present, so those of other replicas may be needed \
         (setting ha_failover)"
    )]
    ElectedNotStored,
    #[error(
        "no memory for another cluster of replicas: the clusters of all tenants may hold {limit_kib} KiB; raise the limit with --memory"
    )]
    NoRoomForClusters { limit_kib: u64 },
    /// Out-of-order samples that are not sealed yet have a fixed share of the head's memory, which is full.
    #[error(
        "no memory for out-of-order samples: those not sealed yet may hold {limit_mib} MiB; retry later, or raise the limit \
         with --memory"
    )]
    NoRoomForLate {
        /// Memory that these samples may take.
        limit_mib: u64,
    },
}

impl SeriesRefusal {
    /// True if a part of the message cannot be read, so that it is not known which series it belongs to.
    pub const fn is_unreadable(&self) -> bool {
        matches!(self, Self::Line { .. } | Self::Message { .. } | Self::Point { .. })
    }
}
