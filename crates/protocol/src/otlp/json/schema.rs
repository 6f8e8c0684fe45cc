//! The keys of messages in JSON.

use crate::wire::WireType;

#[derive(Debug)]
pub(crate) struct Field {
    /// The name in camel case and, if it differs, in snake case.
    pub(super) names: &'static [&'static str],
    /// The number of the field in protobuf.
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) is_list: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The fields of the message. A function, because messages can contain each other.
    Message(fn() -> &'static [Field]),
    Text,
    /// Bytes in hexadecimal digits.
    Hex,
    Base64,
    Number(Number),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Fixed64,
    Sfixed64,
    Double,
    Uint64,
    Int64,
    Sint32,
    Bool,
    Fixed32,
    /// The names of 0, 1 and so on.
    Enum(&'static [&'static str]),
}

impl Number {
    pub(super) const fn wire(self) -> u8 {
        let wire = match self {
            Self::Fixed64 | Self::Sfixed64 | Self::Double => WireType::Fixed64,
            Self::Fixed32 => WireType::Fixed32,
            _ => WireType::Varint,
        };
        crate::wire::tag(0, wire) as u8
    }
}

const fn one(number: u32, names: &'static [&'static str], kind: Kind) -> Field {
    Field { names, number, kind, is_list: false }
}

const fn list(number: u32, names: &'static [&'static str], kind: Kind) -> Field {
    Field { names, number, kind, is_list: true }
}

const FIXED64: Kind = Kind::Number(Number::Fixed64);
const SFIXED64: Kind = Kind::Number(Number::Sfixed64);
const DOUBLE: Kind = Kind::Number(Number::Double);
const UINT64: Kind = Kind::Number(Number::Uint64);
const SINT32: Kind = Kind::Number(Number::Sint32);
const BOOL: Kind = Kind::Number(Number::Bool);
const FIXED32: Kind = Kind::Number(Number::Fixed32);
const TEMPORALITY: Kind = Kind::Number(Number::Enum(&[
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
]));
const ATTRIBUTE: Kind = Kind::Message(|| KEY_VALUE);
const START: Field = one(2, &["startTimeUnixNano", "start_time_unix_nano"], FIXED64);
const TIME: Field = one(3, &["timeUnixNano", "time_unix_nano"], FIXED64);

pub(crate) static METRICS: &[Field] =
    &[list(1, &["resourceMetrics", "resource_metrics"], Kind::Message(|| RESOURCE_METRICS))];

static RESOURCE_METRICS: &[Field] = &[
    one(1, &["resource"], Kind::Message(|| RESOURCE)),
    list(2, &["scopeMetrics", "scope_metrics"], Kind::Message(|| SCOPE_METRICS)),
    one(3, &["schemaUrl", "schema_url"], Kind::Text),
];

static RESOURCE: &[Field] = &[list(1, &["attributes"], ATTRIBUTE)];

static SCOPE_METRICS: &[Field] = &[
    one(1, &["scope"], Kind::Message(|| SCOPE)),
    list(2, &["metrics"], Kind::Message(|| METRIC)),
    one(3, &["schemaUrl", "schema_url"], Kind::Text),
];

static SCOPE: &[Field] =
    &[one(1, &["name"], Kind::Text), one(2, &["version"], Kind::Text), list(3, &["attributes"], ATTRIBUTE)];

static METRIC: &[Field] = &[
    one(1, &["name"], Kind::Text),
    one(2, &["description"], Kind::Text),
    one(3, &["unit"], Kind::Text),
    one(5, &["gauge"], Kind::Message(|| GAUGE)),
    one(7, &["sum"], Kind::Message(|| SUM)),
    one(9, &["histogram"], Kind::Message(|| HISTOGRAM)),
    one(10, &["exponentialHistogram", "exponential_histogram"], Kind::Message(|| EXPONENTIAL_HISTOGRAM)),
    one(11, &["summary"], Kind::Message(|| SUMMARY)),
];

const POINTS: &[&str] = &["dataPoints", "data_points"];

const AGGREGATION: Field = one(2, &["aggregationTemporality", "aggregation_temporality"], TEMPORALITY);

static GAUGE: &[Field] = &[list(1, POINTS, Kind::Message(|| NUMBER_POINT))];

static SUM: &[Field] = &[
    list(1, POINTS, Kind::Message(|| NUMBER_POINT)),
    AGGREGATION,
    one(3, &["isMonotonic", "is_monotonic"], BOOL),
];

static HISTOGRAM: &[Field] = &[list(1, POINTS, Kind::Message(|| HISTOGRAM_POINT)), AGGREGATION];

static EXPONENTIAL_HISTOGRAM: &[Field] = &[list(1, POINTS, Kind::Message(|| EXPONENTIAL_POINT)), AGGREGATION];

static SUMMARY: &[Field] = &[list(1, POINTS, Kind::Message(|| SUMMARY_POINT))];

static NUMBER_POINT: &[Field] = &[
    list(7, &["attributes"], ATTRIBUTE),
    START,
    TIME,
    one(4, &["asDouble", "as_double"], DOUBLE),
    one(6, &["asInt", "as_int"], SFIXED64),
    list(5, &["exemplars"], Kind::Message(|| EXEMPLAR)),
    one(8, &["flags"], UINT64),
];

static HISTOGRAM_POINT: &[Field] = &[
    list(9, &["attributes"], ATTRIBUTE),
    START,
    TIME,
    one(4, &["count"], FIXED64),
    one(5, &["sum"], DOUBLE),
    list(6, &["bucketCounts", "bucket_counts"], FIXED64),
    list(7, &["explicitBounds", "explicit_bounds"], DOUBLE),
    list(8, &["exemplars"], Kind::Message(|| EXEMPLAR)),
    one(10, &["flags"], UINT64),
    one(11, &["min"], DOUBLE),
    one(12, &["max"], DOUBLE),
];

static EXPONENTIAL_POINT: &[Field] = &[
    list(1, &["attributes"], ATTRIBUTE),
    START,
    TIME,
    one(4, &["count"], FIXED64),
    one(5, &["sum"], DOUBLE),
    one(6, &["scale"], SINT32),
    one(7, &["zeroCount", "zero_count"], FIXED64),
    one(8, &["positive"], Kind::Message(|| BUCKETS)),
    one(9, &["negative"], Kind::Message(|| BUCKETS)),
    one(10, &["flags"], UINT64),
    list(11, &["exemplars"], Kind::Message(|| EXEMPLAR)),
    one(12, &["min"], DOUBLE),
    one(13, &["max"], DOUBLE),
    one(14, &["zeroThreshold", "zero_threshold"], DOUBLE),
];

static BUCKETS: &[Field] =
    &[one(1, &["offset"], SINT32), list(2, &["bucketCounts", "bucket_counts"], UINT64)];

static SUMMARY_POINT: &[Field] = &[
    list(7, &["attributes"], ATTRIBUTE),
    START,
    TIME,
    one(4, &["count"], FIXED64),
    one(5, &["sum"], DOUBLE),
    list(6, &["quantileValues", "quantile_values"], Kind::Message(|| QUANTILE)),
    one(8, &["flags"], UINT64),
];

static QUANTILE: &[Field] = &[one(1, &["quantile"], DOUBLE), one(2, &["value"], DOUBLE)];

static EXEMPLAR: &[Field] = &[
    list(7, &["filteredAttributes", "filtered_attributes"], ATTRIBUTE),
    one(2, &["timeUnixNano", "time_unix_nano"], FIXED64),
    one(3, &["asDouble", "as_double"], DOUBLE),
    one(6, &["asInt", "as_int"], SFIXED64),
    one(4, &["spanId", "span_id"], Kind::Hex),
    one(5, &["traceId", "trace_id"], Kind::Hex),
];

static KEY_VALUE: &[Field] = &[one(1, &["key"], Kind::Text), one(2, &["value"], Kind::Message(|| ANY_VALUE))];

static ANY_VALUE: &[Field] = &[
    one(1, &["stringValue", "string_value"], Kind::Text),
    one(2, &["boolValue", "bool_value"], BOOL),
    one(3, &["intValue", "int_value"], Kind::Number(Number::Int64)),
    one(4, &["doubleValue", "double_value"], DOUBLE),
    one(5, &["arrayValue", "array_value"], Kind::Message(|| LIST)),
    one(6, &["kvlistValue", "kvlist_value"], Kind::Message(|| MAP)),
    one(7, &["bytesValue", "bytes_value"], Kind::Base64),
];

static LIST: &[Field] = &[list(1, &["values"], Kind::Message(|| ANY_VALUE))];

static MAP: &[Field] = &[list(1, &["values"], ATTRIBUTE)];

const DROPPED_ATTRIBUTES: &[&str] = &["droppedAttributesCount", "dropped_attributes_count"];
const SCHEMA_URL: Field = one(3, &["schemaUrl", "schema_url"], Kind::Text);
const TRACE_ID: &[&str] = &["traceId", "trace_id"];
const SPAN_ID: &[&str] = &["spanId", "span_id"];
const TRACE_STATE: Field = one(3, &["traceState", "trace_state"], Kind::Text);

pub(crate) static LOGS: &[Field] =
    &[list(1, &["resourceLogs", "resource_logs"], Kind::Message(|| RESOURCE_LOGS))];

static RESOURCE_LOGS: &[Field] = &[
    one(1, &["resource"], Kind::Message(|| RESOURCE)),
    list(2, &["scopeLogs", "scope_logs"], Kind::Message(|| SCOPE_LOGS)),
    SCHEMA_URL,
];

static SCOPE_LOGS: &[Field] = &[
    one(1, &["scope"], Kind::Message(|| SCOPE)),
    list(2, &["logRecords", "log_records"], Kind::Message(|| LOG_RECORD)),
    SCHEMA_URL,
];

static LOG_RECORD: &[Field] = &[
    one(1, &["timeUnixNano", "time_unix_nano"], FIXED64),
    one(11, &["observedTimeUnixNano", "observed_time_unix_nano"], FIXED64),
    one(2, &["severityNumber", "severity_number"], SEVERITY),
    one(3, &["severityText", "severity_text"], Kind::Text),
    one(5, &["body"], Kind::Message(|| ANY_VALUE)),
    list(6, &["attributes"], ATTRIBUTE),
    one(7, DROPPED_ATTRIBUTES, UINT64),
    one(8, &["flags"], FIXED32),
    one(9, TRACE_ID, Kind::Hex),
    one(10, SPAN_ID, Kind::Hex),
    one(12, &["eventName", "event_name"], Kind::Text),
];

const SEVERITY: Kind = Kind::Number(Number::Enum(&[
    "SEVERITY_NUMBER_UNSPECIFIED",
    "SEVERITY_NUMBER_TRACE",
    "SEVERITY_NUMBER_TRACE2",
    "SEVERITY_NUMBER_TRACE3",
    "SEVERITY_NUMBER_TRACE4",
    "SEVERITY_NUMBER_DEBUG",
    "SEVERITY_NUMBER_DEBUG2",
    "SEVERITY_NUMBER_DEBUG3",
    "SEVERITY_NUMBER_DEBUG4",
    "SEVERITY_NUMBER_INFO",
    "SEVERITY_NUMBER_INFO2",
    "SEVERITY_NUMBER_INFO3",
    "SEVERITY_NUMBER_INFO4",
    "SEVERITY_NUMBER_WARN",
    "SEVERITY_NUMBER_WARN2",
    "SEVERITY_NUMBER_WARN3",
    "SEVERITY_NUMBER_WARN4",
    "SEVERITY_NUMBER_ERROR",
    "SEVERITY_NUMBER_ERROR2",
    "SEVERITY_NUMBER_ERROR3",
    "SEVERITY_NUMBER_ERROR4",
    "SEVERITY_NUMBER_FATAL",
    "SEVERITY_NUMBER_FATAL2",
    "SEVERITY_NUMBER_FATAL3",
    "SEVERITY_NUMBER_FATAL4",
]));

pub(crate) static TRACES: &[Field] =
    &[list(1, &["resourceSpans", "resource_spans"], Kind::Message(|| RESOURCE_SPANS))];

static RESOURCE_SPANS: &[Field] = &[
    one(1, &["resource"], Kind::Message(|| RESOURCE)),
    list(2, &["scopeSpans", "scope_spans"], Kind::Message(|| SCOPE_SPANS)),
    SCHEMA_URL,
];

static SCOPE_SPANS: &[Field] =
    &[one(1, &["scope"], Kind::Message(|| SCOPE)), list(2, &["spans"], Kind::Message(|| SPAN)), SCHEMA_URL];

static SPAN: &[Field] = &[
    one(1, TRACE_ID, Kind::Hex),
    one(2, SPAN_ID, Kind::Hex),
    TRACE_STATE,
    one(4, &["parentSpanId", "parent_span_id"], Kind::Hex),
    one(16, &["flags"], FIXED32),
    one(5, &["name"], Kind::Text),
    one(6, &["kind"], SPAN_KIND),
    one(7, &["startTimeUnixNano", "start_time_unix_nano"], FIXED64),
    one(8, &["endTimeUnixNano", "end_time_unix_nano"], FIXED64),
    list(9, &["attributes"], ATTRIBUTE),
    one(10, DROPPED_ATTRIBUTES, UINT64),
    list(11, &["events"], Kind::Message(|| EVENT)),
    one(12, &["droppedEventsCount", "dropped_events_count"], UINT64),
    list(13, &["links"], Kind::Message(|| LINK)),
    one(14, &["droppedLinksCount", "dropped_links_count"], UINT64),
    one(15, &["status"], Kind::Message(|| STATUS)),
];

const SPAN_KIND: Kind = Kind::Number(Number::Enum(&[
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
]));

static EVENT: &[Field] = &[
    one(1, &["timeUnixNano", "time_unix_nano"], FIXED64),
    one(2, &["name"], Kind::Text),
    list(3, &["attributes"], ATTRIBUTE),
    one(4, DROPPED_ATTRIBUTES, UINT64),
];

static LINK: &[Field] = &[
    one(1, TRACE_ID, Kind::Hex),
    one(2, SPAN_ID, Kind::Hex),
    TRACE_STATE,
    list(4, &["attributes"], ATTRIBUTE),
    one(5, DROPPED_ATTRIBUTES, UINT64),
    one(6, &["flags"], FIXED32),
];

static STATUS: &[Field] = &[one(2, &["message"], Kind::Text), one(3, &["code"], STATUS_CODE)];

const STATUS_CODE: Kind =
    Kind::Number(Number::Enum(&["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"]));
