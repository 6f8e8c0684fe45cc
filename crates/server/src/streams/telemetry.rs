use stdx::telemetry::{Counter, Gauge, Histogram, LATENCY_BUCKETS_S, Registry};

#[derive(Debug)]
pub(crate) struct StreamMetrics {
    pub(crate) records: Counter,
    pub(crate) refused_records: Counter,
    pub(crate) body_bytes: Counter,
    pub(crate) payload_bytes: Counter,
    pub(crate) repeated: Counter,
    pub(crate) group_failures: Counter,
    pub(crate) sync_seconds: Histogram,
    pub(crate) journal_bytes: Gauge,
    pub(crate) damaged: Counter,
    pub(crate) ids: Gauge,
    pub(crate) ids_forgotten: Counter,
    pub(crate) loaded_records: Counter,
    pub(crate) loaded_files: Counter,
    pub(crate) loaded_bytes: Counter,
    pub(crate) load_failures: Counter,
    pub(crate) commit_seconds: Histogram,
    pub(crate) upkeep_failures: Counter,
    pub(crate) expired_files: Counter,
}

impl StreamMetrics {
    pub(crate) fn new(r: &Registry) -> Self {
        Self {
            records: r.counter("floodmark_records_total", "Records of streams that became durable."),
            refused_records: r.counter(
                "floodmark_records_refused_total",
                "Records of streams that were refused, while others of the same request were stored.",
            ),
            body_bytes: r.counter(
                "floodmark_records_body_bytes_total",
                "Bytes of requests with records, as they were sent.",
            ),
            payload_bytes: r.counter(
                "floodmark_records_journal_payload_bytes_total",
                "Bytes of records in the form in which the journal has them.",
            ),
            repeated: r.counter(
                "floodmark_records_repeated_batches_total",
                "Requests with records that were already stored, as their Idempotency-Key says.",
            ),
            group_failures: r.counter(
                "floodmark_records_group_failures_total",
                "Groups of requests with records that could not be made durable.",
            ),
            sync_seconds: r.histogram(
                "floodmark_records_sync_seconds",
                "Time to make a group of requests with records durable.",
                &[],
                LATENCY_BUCKETS_S,
            ),
            journal_bytes: r.gauge("floodmark_records_journal_bytes", "Size of the journal of records."),
            damaged: r.counter(
                "floodmark_records_journal_damaged_total",
                "Damaged places in the journal of records.",
            ),
            ids: r.gauge("floodmark_records_ids", "Idempotency keys that are remembered."),
            ids_forgotten: r.counter(
                "floodmark_records_ids_forgotten_total",
                "Idempotency keys that were forgotten early, because memory was short.",
            ),
            loaded_records: r
                .counter("floodmark_records_loaded_total", "Records that were committed to tables."),
            loaded_files: r
                .counter("floodmark_records_loaded_files_total", "Files of records that were committed."),
            loaded_bytes: r.counter(
                "floodmark_records_loaded_file_bytes_total",
                "Bytes of the files of records that were committed.",
            ),
            load_failures: r.counter(
                "floodmark_records_load_failures_total",
                "Attempts to load records into a table that failed, and are repeated.",
            ),
            upkeep_failures: r.counter(
                "floodmark_records_upkeep_failures_total",
                "Attempts to keep up the table of a stream that failed.",
            ),
            expired_files: r.counter(
                "floodmark_records_expired_files_total",
                "Files of streams that were dropped because they are older than the stream_retention.",
            ),
            commit_seconds: r.histogram(
                "floodmark_records_commit_seconds",
                "Time to commit records to a table.",
                &[],
                LATENCY_BUCKETS_S,
            ),
        }
    }
}
