//! Metrics of tables: their upkeep, compaction, rollups and deletes.

use stdx::telemetry::{Counter, Gauge, Registry};
use tables::rollup::Resolution;

#[derive(Debug)]
pub(crate) struct TableMetrics {
    pub(crate) deletes: Counter,
    pub(crate) tombstones: Gauge,
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
    pub(crate) interrupted_jobs: Counter,
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

impl TableMetrics {
    pub(crate) fn rollup_days(&self, resolution: Resolution) -> &Counter {
        &self.rollup_days[resolution as usize]
    }

    pub(crate) fn new(r: &Registry) -> Self {
        Self {
            deletes: r.counter("floodmark_deletes_total", "Deletes of samples, counted when they are committed to a table."),
            tombstones: r.gauge(
                "floodmark_tombstones",
                "Deletes whose samples are still in some files: number in all tables at the last check.",
            ),
            left_out_files: r.counter(
                "floodmark_query_left_out_files_total",
                "Damaged table files that were left out of answers, counted for each answer.",
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
            interrupted_jobs: r.counter(
                "floodmark_upkeep_interrupted_jobs_total",
                "Merges and rollups interrupted because they took too long while other tenants waited. Each is retried.",
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
