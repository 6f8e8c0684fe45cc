//! Limits on untrusted input. No setting can exceed them.

/// Compressed request body. Agents send up to a few MiB.
pub const BODY_COMPRESSED_BYTES_MAX: usize = 16 << 20;

/// Decompressed request body, checked before anything is allocated.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Series in one request. An empty series takes 2 bytes on the wire and 50 in memory.
pub const REQUEST_SERIES_MAX: usize = 250_000;

pub const REQUEST_SAMPLES_MAX: usize = 2_000_000;

/// Symbols in one remote-write 2.0 request.
pub const REQUEST_SYMBOLS_MAX: usize = 2_000_000;

/// Metadata entries in one request. Exemplars have the same limit.
pub const REQUEST_EXTRAS_MAX: usize = 250_000;

/// Labels of a series, including the metric name.
pub const SERIES_LABELS_MAX: usize = 128;

pub const LABEL_NAME_BYTES_MAX: usize = 1 << 10;

pub const LABEL_VALUE_BYTES_MAX: usize = 16 << 10;

/// All labels of a series, in canonical form.
pub const SERIES_LABEL_BYTES_MAX: usize = 64 << 10;

/// Buckets of a native histogram. Prometheus limits them to 160 by default.
pub const HISTOGRAM_BUCKETS_MAX: usize = 4096;

/// Encoded native histogram ([`crate::histogram`]).
pub const HISTOGRAM_BYTES_MAX: usize = 64 << 10;

/// Characters of an exemplar's labels, as in OpenMetrics.
pub const EXEMPLAR_LABEL_CHARS_MAX: usize = 128;

/// Name of a tenant, as in Mimir.
pub const TENANT_BYTES_MAX: usize = 150;

/// Tenants in one query. Each tenant takes a pass over all partitions.
pub const QUERY_TENANTS_MAX: usize = 32;

/// Longer help texts and units of metrics are cut.
pub const METADATA_TEXT_BYTES_MAX: usize = 4 << 10;

/// Start of 1970. Older samples are refused.
pub const TIMESTAMP_MS_MIN: i64 = 0;

/// End of the year 9999, the last in RFC 3339.
pub const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;

/// Points per series of one range query, as in Prometheus.
pub const QUERY_POINTS_MAX: i64 = 11_000;

pub const PARTITIONS_MAX: usize = 1024;

const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize, "bytes of a body exceed u32 indexes");
const _: () = assert!(REQUEST_SAMPLES_MAX < u32::MAX as usize, "samples exceed u32 indexes");
const _: () = assert!(SERIES_LABEL_BYTES_MAX <= BODY_BYTES_MAX);
