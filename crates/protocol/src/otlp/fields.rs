//! The fields of the messages, from `opentelemetry/proto` 1.x.
//!
//! ```text
//!   ExportMetricsServiceRequest   1 ResourceMetrics*
//!   ResourceMetrics               1 Resource   2 ScopeMetrics*   3 schema_url
//!   ScopeMetrics                  1 InstrumentationScope   2 Metric*   3 schema_url
//!   Metric                        1 name   2 description   3 unit
//!                                 5 Gauge | 7 Sum | 9 Histogram | 10 ExponentialHistogram | 11 Summary
//!   Gauge, Sum, …                 1 points*   2 aggregation_temporality   3 is_monotonic (only Sum)
//! ```

use crate::wire::{Tag, WireType, tag};

pub(super) const RESOURCE_METRICS: Tag = tag(1, WireType::Len);

pub(super) mod resource_metrics {
    use super::*;

    pub(in crate::otlp) const RESOURCE: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const SCOPE_METRICS: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const SCHEMA_URL: Tag = tag(3, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod resource {
    use super::*;

    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1];
}

pub(super) mod scope_metrics {
    use super::*;

    pub(in crate::otlp) const SCOPE: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const METRIC: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const SCHEMA_URL: Tag = tag(3, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod scope {
    use super::*;

    pub(in crate::otlp) const NAME: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const VERSION: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(3, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod metric {
    use super::*;

    pub(in crate::otlp) const NAME: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const DESCRIPTION: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const UNIT: Tag = tag(3, WireType::Len);
    pub(in crate::otlp) const GAUGE: Tag = tag(5, WireType::Len);
    pub(in crate::otlp) const SUM: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const HISTOGRAM: Tag = tag(9, WireType::Len);
    pub(in crate::otlp) const EXPONENTIAL_HISTOGRAM: Tag = tag(10, WireType::Len);
    pub(in crate::otlp) const SUMMARY: Tag = tag(11, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3, 5, 7, 9, 10, 11];
}

/// The message with the points of a metric.
pub(super) mod data {
    use super::*;

    pub(in crate::otlp) const POINT: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const TEMPORALITY: Tag = tag(2, WireType::Varint);
    pub(in crate::otlp) const IS_MONOTONIC: Tag = tag(3, WireType::Varint);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3];
}

pub(super) mod number {
    use super::*;

    pub(in crate::otlp) const START: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const TIME: Tag = tag(3, WireType::Fixed64);
    pub(in crate::otlp) const AS_DOUBLE: Tag = tag(4, WireType::Fixed64);
    pub(in crate::otlp) const EXEMPLAR: Tag = tag(5, WireType::Len);
    pub(in crate::otlp) const AS_INT: Tag = tag(6, WireType::Fixed64);
    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const FLAGS: Tag = tag(8, WireType::Varint);
    pub(in crate::otlp) const KNOWN: &[u32] = &[2, 3, 4, 5, 6, 7, 8];
}

pub(super) mod histogram {
    use super::*;

    pub(in crate::otlp) const START: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const TIME: Tag = tag(3, WireType::Fixed64);
    pub(in crate::otlp) const COUNT: Tag = tag(4, WireType::Fixed64);
    pub(in crate::otlp) const SUM: Tag = tag(5, WireType::Fixed64);
    /// Usually packed: one field with all numbers.
    pub(in crate::otlp) const BUCKET_COUNTS: Tag = tag(6, WireType::Len);
    pub(in crate::otlp) const BUCKET_COUNT: Tag = tag(6, WireType::Fixed64);
    pub(in crate::otlp) const BOUNDS: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const BOUND: Tag = tag(7, WireType::Fixed64);
    pub(in crate::otlp) const EXEMPLAR: Tag = tag(8, WireType::Len);
    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(9, WireType::Len);
    pub(in crate::otlp) const FLAGS: Tag = tag(10, WireType::Varint);
    pub(in crate::otlp) const MIN: Tag = tag(11, WireType::Fixed64);
    pub(in crate::otlp) const MAX: Tag = tag(12, WireType::Fixed64);
    pub(in crate::otlp) const KNOWN: &[u32] = &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
}

pub(super) mod exponential {
    use super::*;

    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const START: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const TIME: Tag = tag(3, WireType::Fixed64);
    pub(in crate::otlp) const COUNT: Tag = tag(4, WireType::Fixed64);
    pub(in crate::otlp) const SUM: Tag = tag(5, WireType::Fixed64);
    pub(in crate::otlp) const SCALE: Tag = tag(6, WireType::Varint);
    pub(in crate::otlp) const ZERO_COUNT: Tag = tag(7, WireType::Fixed64);
    pub(in crate::otlp) const POSITIVE: Tag = tag(8, WireType::Len);
    pub(in crate::otlp) const NEGATIVE: Tag = tag(9, WireType::Len);
    pub(in crate::otlp) const FLAGS: Tag = tag(10, WireType::Varint);
    pub(in crate::otlp) const EXEMPLAR: Tag = tag(11, WireType::Len);
    pub(in crate::otlp) const MIN: Tag = tag(12, WireType::Fixed64);
    pub(in crate::otlp) const MAX: Tag = tag(13, WireType::Fixed64);
    pub(in crate::otlp) const ZERO_THRESHOLD: Tag = tag(14, WireType::Fixed64);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
}

/// Buckets of one sign.
pub(super) mod buckets {
    use super::*;

    pub(in crate::otlp) const OFFSET: Tag = tag(1, WireType::Varint);
    pub(in crate::otlp) const COUNTS: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const COUNT: Tag = tag(2, WireType::Varint);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2];
}

pub(super) mod summary {
    use super::*;

    pub(in crate::otlp) const START: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const TIME: Tag = tag(3, WireType::Fixed64);
    pub(in crate::otlp) const COUNT: Tag = tag(4, WireType::Fixed64);
    pub(in crate::otlp) const SUM: Tag = tag(5, WireType::Fixed64);
    pub(in crate::otlp) const QUANTILE: Tag = tag(6, WireType::Len);
    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const FLAGS: Tag = tag(8, WireType::Varint);
    pub(in crate::otlp) const KNOWN: &[u32] = &[2, 3, 4, 5, 6, 7, 8];
}

pub(super) mod quantile {
    use super::*;

    pub(in crate::otlp) const QUANTILE: Tag = tag(1, WireType::Fixed64);
    pub(in crate::otlp) const VALUE: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2];
}

pub(super) mod exemplar {
    use super::*;

    pub(in crate::otlp) const TIME: Tag = tag(2, WireType::Fixed64);
    pub(in crate::otlp) const AS_DOUBLE: Tag = tag(3, WireType::Fixed64);
    pub(in crate::otlp) const SPAN_ID: Tag = tag(4, WireType::Len);
    pub(in crate::otlp) const TRACE_ID: Tag = tag(5, WireType::Len);
    pub(in crate::otlp) const AS_INT: Tag = tag(6, WireType::Fixed64);
    pub(in crate::otlp) const ATTRIBUTE: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[2, 3, 4, 5, 6, 7];
}

pub(super) mod key_value {
    use super::*;

    pub(in crate::otlp) const KEY: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const VALUE: Tag = tag(2, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2];
}

pub(super) mod any_value {
    use super::*;

    pub(in crate::otlp) const STRING: Tag = tag(1, WireType::Len);
    pub(in crate::otlp) const BOOL: Tag = tag(2, WireType::Varint);
    pub(in crate::otlp) const INT: Tag = tag(3, WireType::Varint);
    pub(in crate::otlp) const DOUBLE: Tag = tag(4, WireType::Fixed64);
    pub(in crate::otlp) const ARRAY: Tag = tag(5, WireType::Len);
    pub(in crate::otlp) const KEY_VALUES: Tag = tag(6, WireType::Len);
    pub(in crate::otlp) const BYTES: Tag = tag(7, WireType::Len);
    pub(in crate::otlp) const KNOWN: &[u32] = &[1, 2, 3, 4, 5, 6, 7];
}

/// The values of a list or of a map.
pub(super) const VALUES: Tag = tag(1, WireType::Len);

/// Value of the field `aggregation_temporality`.
pub(super) const TEMPORALITY_DELTA: u64 = 1;
pub(super) const TEMPORALITY_CUMULATIVE: u64 = 2;

/// Bit of the field `flags`: the series ends, and the point has no value.
pub(super) const NO_RECORDED_VALUE: u64 = 1;

/// A tag as it is in a message. It must take one byte.
pub(super) const fn byte(tag: Tag) -> u8 {
    assert!(tag < 0x80, "BUG: the tag takes more than one byte");
    tag as u8
}
