//! Limits on untrusted input, which no setting can exceed.

/// Limit on the compressed body of a request. Agents usually send up to a few MiB.
pub const BODY_COMPRESSED_BYTES_MAX: usize = 16 << 20;

/// Limit on the decompressed body of a request. It is checked before memory is allocated for the body.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Limit on the series in one request. A series without labels takes only 2 bytes in the request, but 50 in
/// memory.
pub const REQUEST_SERIES_MAX: usize = 250_000;

pub const REQUEST_SAMPLES_MAX: usize = 2_000_000;

/// Limit on the symbols in one request of remote write 2.0.
pub const REQUEST_SYMBOLS_MAX: usize = 2_000_000;

/// Limit on the metadata entries in one request, and also on its exemplars.
pub const REQUEST_EXTRAS_MAX: usize = 250_000;

/// Limit on the labels of a series. The metric name counts as one of them.
pub const SERIES_LABELS_MAX: usize = 128;

pub const LABEL_NAME_BYTES_MAX: usize = 1 << 10;

pub const LABEL_VALUE_BYTES_MAX: usize = 16 << 10;

/// Limit on the total size of a series' labels, in canonical form.
pub const SERIES_LABEL_BYTES_MAX: usize = 64 << 10;

/// Limit on the buckets of a native histogram. In Prometheus, it is 160 by default.
pub const HISTOGRAM_BUCKETS_MAX: usize = 4096;

/// Limit on the size of a native histogram, as encoded by [`crate::histogram`].
pub const HISTOGRAM_BYTES_MAX: usize = 64 << 10;

/// Limit on the characters in the labels of an exemplar. OpenMetrics has the same limit.
pub const EXEMPLAR_LABEL_CHARS_MAX: usize = 128;

/// Limit on the name of a tenant. Mimir has the same limit.
pub const TENANT_BYTES_MAX: usize = 150;

/// Limit on the name of a datastream.
pub const STREAM_BYTES_MAX: usize = 100;

/// Limit on the different attributes in one request with records. Paths with values of several types count once for each.
pub const BATCH_ATTRIBUTES_MAX: usize = 2_000;

/// Limit on the path of an attribute of a record.
pub const ATTRIBUTE_PATH_BYTES_MAX: usize = 1 << 10;

/// Limit on the records in one request.
pub const REQUEST_RECORDS_MAX: usize = 1_000_000;

/// Limit on the tenants that a query reads. For each of them, the query goes through all partitions.
pub const QUERY_TENANTS_MAX: usize = 32;

/// Longer help texts and units of metrics are cut.
pub const METADATA_TEXT_BYTES_MAX: usize = 4 << 10;

/// Samples from before 1970 are refused.
pub const TIMESTAMP_MS_MIN: i64 = 0;

/// Samples from after the year 9999 are refused, because RFC 3339 cannot write their time.
pub const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;

/// Limit on the points that a range query returns per series. Prometheus has the same limit.
pub const QUERY_POINTS_MAX: i64 = 11_000;

pub const PARTITIONS_MAX: usize = 1024;

const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize, "bytes of a body exceed u32 indexes");
const _: () = assert!(REQUEST_SAMPLES_MAX < u32::MAX as usize, "samples exceed u32 indexes");
const _: () = assert!(SERIES_LABEL_BYTES_MAX <= BODY_BYTES_MAX);
