//! Metrics of sealing and upkeep.

use stdx::telemetry::{Counter, Gauge, Histogram, Registry};
use tables::rollup::Resolution;

/// Upper bounds in seconds for rounds of sealing.
const ROUND_BUCKETS_S: &[f64] = &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Metrics of sealing and upkeep of tables.
#[derive(Debug)]
pub(crate) struct LakeMetrics {
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
    pub(crate) deletes: Counter,
    pub(crate) tombstones: Gauge,
    pub(crate) relocations: Counter,
    pub(crate) frozen_samples: Gauge,
    pub(crate) left_out_files: Counter,
    pub(crate) merges: Counter,
    pub(crate) merged_files: Counter,
    pub(crate) merged_bytes: Counter,
    pub(crate) merged_samples: Counter,
    pub(crate) merge_jobs_waiting: Gauge,
    rollup_days: [Counter; 2],
    pub(crate) rollup_samples: Counter,
    pub(crate) rollup_days_waiting: Gauge,
    pub(crate) upkeep_failures: Counter,
    pub(crate) failing_tables: Gauge,
    pub(crate) damaged_files: Gauge,
    pub(crate) open_tables: Gauge,
    pub(crate) open_tables_bytes: Gauge,
    pub(crate) expired_files: Counter,
    pub(crate) vacuumed_files: Counter,
    pub(crate) vacuumed_bytes: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) log_repairs: Counter,
}

impl LakeMetrics {
    /// Counter of rolled up days of a resolution.
    pub(crate) fn rollup_days(&self, resolution: Resolution) -> &Counter {
        &self.rollup_days[resolution as usize]
    }

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
                "Times that sealed samples left the head while queries that began before the commit were running.",
            ),
            deletes: r.counter("floodmark_deletes_total", "Deletes of samples that were committed to a table."),
            tombstones: r.gauge(
                "floodmark_tombstones",
                "Deletes whose samples are not removed from every file yet, in all tables at the last check.",
            ),
            relocations: r.counter(
                "floodmark_journal_relocations_total",
                "Relocations of samples of blocked tenants to the end of a journal.",
            ),
            frozen_samples: r.gauge(
                "floodmark_seal_frozen_samples",
                "Frozen samples in the heads, which wait to be committed.",
            ),
            left_out_files: r.counter(
                "floodmark_query_left_out_files_total",
                "Damaged files of tables that answers left out, counted for each answer.",
            ),
            merges: r.counter("floodmark_compact_merges_total", "Completed merges of files."),
            merged_files: r.counter("floodmark_compact_files_total", "Files that were merged into others."),
            merged_bytes: r
                .counter("floodmark_compact_bytes_total", "Bytes of files that were merged into others."),
            merge_jobs_waiting: r
                .gauge("floodmark_compact_jobs_waiting", "Merges that are planned but not done yet."),
            merged_samples: r
                .counter("floodmark_compact_samples_total", "Samples that merges have written, counted while they run."),
            rollup_days: Resolution::ALL.map(|resolution| {
                r.counter_with(
                    "floodmark_rollup_days_total",
                    "Days rolled up.",
                    &[("table", resolution.folder())],
                )
            }),
            rollup_samples: r.counter(
                "floodmark_rollup_samples_total",
                "Samples read by rollups, counted while they run.",
            ),
            rollup_days_waiting: r
                .gauge("floodmark_rollup_days_waiting", "Days whose rollup is planned but not done yet."),
            failing_tables: r.gauge(
                "floodmark_upkeep_failing_tables",
                "Tables whose upkeep fails; the log says why.",
            ),
            damaged_files: r.gauge(
                "floodmark_upkeep_damaged_files",
                "Damaged files that compaction skips.",
            ),
            open_tables: r.gauge("floodmark_tables_open", "Tables that are open."),
            open_tables_bytes: r
                .gauge("floodmark_tables_open_bytes", "Memory of the file lists of open tables."),
            upkeep_failures: r.counter(
                "floodmark_upkeep_failures_total",
                "Failed jobs of upkeep. Each is retried.",
            ),
            expired_files: r.counter("floodmark_retention_files_total", "Files dropped because they are older than the retention."),
            vacuumed_files: r
                .counter("floodmark_vacuum_files_total", "Deleted files that no table needed any more."),
            vacuumed_bytes: r.counter("floodmark_vacuum_bytes_total", "Bytes of deleted files that no table needed any more."),
            checkpoints: r.counter("floodmark_upkeep_checkpoints_total", "Checkpoints of tables' logs."),
            log_repairs: r.counter(
                "floodmark_tables_log_repairs_total",
                "Times that a table's log was opened without its checkpoint, because the checkpoint is damaged.",
            ),
        }
    }
}
