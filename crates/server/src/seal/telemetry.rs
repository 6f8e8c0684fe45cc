use stdx::telemetry::{Counter, Gauge, Histogram, Registry};

const ROUND_BUCKETS_S: &[f64] = &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

#[derive(Debug)]
pub(crate) struct SealMetrics {
    pub(crate) rounds: Counter,
    pub(crate) failures: Counter,
    pub(crate) round_seconds: Histogram,
    pub(crate) stage_seconds: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) samples: Counter,
    pub(crate) rows: Counter,
    pub(crate) files: Counter,
    pub(crate) bytes: Counter,
    pub(crate) commits: Counter,
    pub(crate) expired_readers: Counter,
    pub(crate) relocations: Counter,
    pub(crate) frozen_samples: Gauge,
}

impl SealMetrics {
    pub(crate) fn new(r: &Registry) -> Self {
        let seconds = |part| {
            r.histogram(
                "floodmark_seal_duration_seconds",
                "Time of one round of sealing, and of its parts.",
                &[("part", part)],
                ROUND_BUCKETS_S,
            )
        };
        Self {
            rounds: r.counter("floodmark_seal_rounds_total", "Rounds of sealing that were completed."),
            failures: r.counter(
                "floodmark_seal_failures_total",
                "Failed attempts at a round of sealing. Each is retried.",
            ),
            round_seconds: seconds("all"),
            stage_seconds: seconds("stage"),
            commit_seconds: seconds("commit"),
            samples: r.counter("floodmark_seal_samples_total", "Samples committed to tables."),
            rows: r.counter("floodmark_seal_rows_total", "Rows committed to tables."),
            files: r.counter("floodmark_seal_files_total", "Files committed to tables."),
            bytes: r.counter("floodmark_seal_bytes_total", "Bytes of files committed to tables."),
            commits: r.counter("floodmark_seal_commits_total", "Commits to tables, by sealing."),
            expired_readers: r.counter(
                "floodmark_seal_outlived_queries_total",
                "Times that sealed samples left the head while older queries still ran. These queries were restarted.",
            ),
            relocations: r.counter(
                "floodmark_journal_relocations_total",
                "Relocations of samples of blocked tenants to the end of a journal.",
            ),
            frozen_samples: r.gauge(
                "floodmark_seal_frozen_samples",
                "Frozen samples in the heads, which wait to be committed.",
            ),
        }
    }
}
