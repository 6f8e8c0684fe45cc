//! Every limit on what a stranger may send, with its reason. Defaults of settings live with the
//! settings; these are the hard bounds that no setting exceeds.

/// A compressed request body. Prometheus sends a few 100 KiB; agents that batch send up to some MiB.
pub const BODY_COMPRESSED_BYTES_MAX: usize = 16 << 20;

/// A decompressed request body; checked against the declared length before anything is allocated.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Time series in one request: an empty one costs two bytes on the wire and some 50 in memory.
pub const REQUEST_SERIES_MAX: usize = 250_000;

pub const REQUEST_SAMPLES_MAX: usize = 2_000_000;

/// Symbols in one remote-write 2.0 request: names and values of all its series, and metadata texts.
pub const REQUEST_SYMBOLS_MAX: usize = 2_000_000;

/// Metadata entries, and likewise exemplars, in one request.
pub const REQUEST_EXTRAS_MAX: usize = 250_000;

/// Labels of a series, its name included.
pub const SERIES_LABELS_MAX: usize = 128;

/// A label's name.
pub const LABEL_NAME_BYTES_MAX: usize = 1 << 10;

/// A label's value.
pub const LABEL_VALUE_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of all labels of a series, in canonical form.
pub const SERIES_LABEL_BYTES_MAX: usize = 64 << 10;

/// Buckets of a native histogram. Prometheus' exponential histograms have 160 by default.
pub const HISTOGRAM_BUCKETS_MAX: usize = 4096;

/// A native histogram in its encoded form (see [`crate::histogram`]).
pub const HISTOGRAM_BYTES_MAX: usize = 64 << 10;

/// Characters in the names and values of an exemplar's labels, as in OpenMetrics and Prometheus.
pub const EXEMPLAR_LABEL_CHARS_MAX: usize = 128;

/// A tenant's name (Mimir's limit, so that tenants can move).
pub const TENANT_BYTES_MAX: usize = 150;

/// Tenants that one query may read: each takes a pass over all partitions. Their names fit into a header.
pub const QUERY_TENANTS_MAX: usize = 32;

/// Texts (help, unit) of a metric's metadata; longer ones are cut.
pub const METADATA_TEXT_BYTES_MAX: usize = 4 << 10;

/// Samples before 1970 are refused.
pub const TIMESTAMP_MS_MIN: i64 = 0;

/// Year 9999, the last that RFC 3339 can write.
pub const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;

/// Points of one range query for each series, as in Prometheus.
pub const QUERY_POINTS_MAX: i64 = 11_000;

/// Partitions of a journal.
pub const PARTITIONS_MAX: usize = 1024;

const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize, "batches index their bytes with u32");
const _: () = assert!(REQUEST_SAMPLES_MAX < u32::MAX as usize, "batches index their samples with u32");
const _: () = assert!(SERIES_LABEL_BYTES_MAX <= BODY_BYTES_MAX);
