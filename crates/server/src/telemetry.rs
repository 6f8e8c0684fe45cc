//! Counters and histograms of the server. [`gauges`] has the metrics that are computed only when they are
//! scraped.

pub(crate) mod accounts;
mod gauges;
mod process;
pub(crate) mod tables;
pub(crate) mod tenants;

#[cfg(test)]
pub(crate) use gauges::floodmark_lag_ms;
pub(crate) use gauges::register_gauges;

use crate::write_path::TurnMetrics;
use head::MetadataRefusal;
use model::SeriesRefusal;
use model::accumulator::Added;
use stdx::telemetry::{Counter, Histogram, LATENCY_BUCKETS_S, Registry};

#[derive(Debug)]
pub(crate) struct RefusedMetadata {
    families: Counter,
    bytes: Counter,
    pub(crate) head_full: Counter,
}

impl RefusedMetadata {
    fn new(r: &Registry) -> Self {
        let of = |reason| {
            let help =
                "Metric families whose metadata was left out of accepted requests or replay, by reason.";
            r.counter_with("floodmark_write_refused_metadata_total", help, &[("reason", reason)])
        };
        Self { families: of("families"), bytes: of("bytes"), head_full: of("head_full") }
    }

    pub(crate) const fn of(&self, refusal: MetadataRefusal) -> &Counter {
        match refusal {
            MetadataRefusal::Families => &self.families,
            MetadataRefusal::Bytes => &self.bytes,
        }
    }
}

/// Samples that were sent as increments, by what became of them.
#[derive(Debug)]
pub(crate) struct IncrementMetrics {
    in_order: Counter,
    late: Counter,
    repeated: Counter,
    too_late: Counter,
    overlapping: Counter,
    no_memory: Counter,
    not_finite: Counter,
}

impl IncrementMetrics {
    fn new(r: &Registry) -> Self {
        let of = |result| {
            let help =
                "Samples with delta temporality that had to be added to a sum, by what became of them.";
            r.counter_with("floodmark_delta_samples_total", help, &[("result", result)])
        };
        Self {
            in_order: of("in_order"),
            late: of("late"),
            repeated: of("repeated"),
            too_late: of("too_late"),
            overlapping: of("overlapping"),
            no_memory: of("no_memory"),
            not_finite: of("not_finite"),
        }
    }

    pub(crate) const fn of(&self, added: Added) -> &Counter {
        match added {
            Added::InOrder => &self.in_order,
            Added::Late => &self.late,
            Added::Repeated => &self.repeated,
        }
    }

    pub(crate) const fn of_refused(&self, refusal: &SeriesRefusal) -> &Counter {
        match refusal {
            SeriesRefusal::NoRoomForSums { .. } => &self.no_memory,
            SeriesRefusal::IncrementNotFinite => &self.not_finite,
            SeriesRefusal::IncrementTooLate => &self.too_late,
            _ => &self.overlapping,
        }
    }
}

#[derive(Debug)]
pub(crate) struct WriteMetrics {
    pub(crate) samples: Counter,
    pub(crate) refused_samples: Counter,
    pub(crate) converted_points: Counter,
    pub(crate) increments: IncrementMetrics,
    pub(crate) refused_exemplars: Counter,
    pub(crate) deduplicated_samples: Counter,
    pub(crate) replicas_elected: Counter,
    pub(crate) refused_metadata: RefusedMetadata,
    pub(crate) exemplars_dropped: Counter,
    pub(crate) series_created: Counter,
    pub(crate) series_evicted: Counter,
    pub(crate) late_samples: Counter,
    pub(crate) duplicate_samples: Counter,
    pub(crate) seconds_known: Histogram,
    pub(crate) seconds_new: Histogram,
    pub(crate) sync_seconds: Histogram,
    pub(crate) group_failures: Counter,
    pub(crate) replayed_samples: Counter,
    pub(crate) damaged_ranges: Counter,
    pub(crate) lost_records: Counter,
    pub(crate) torn_bytes: Counter,
    pub(crate) unreadable_records: Counter,
    pub(crate) body_bytes: Counter,
    pub(crate) turns: TurnMetrics,
}

impl WriteMetrics {
    pub(crate) fn new(r: &Registry) -> Self {
        let seconds = |path| {
            r.histogram(
                "floodmark_write_duration_seconds",
                "Time from a complete body to its answer, by whether the request created series.",
                &[("series", path)],
                LATENCY_BUCKETS_S,
            )
        };
        Self {
            turns: TurnMetrics::new(r),
            samples: r.counter("floodmark_write_samples_total", "Samples acknowledged."),
            refused_samples: r.counter(
                "floodmark_write_refused_samples_total",
                "Samples left out of requests whose rest was stored. If such a request is repeated, they count again.",
            ),
            converted_points: r.counter(
                "floodmark_otlp_converted_points_total",
                "Points of exponential histograms that were stored as classic histograms.",
            ),
            increments: IncrementMetrics::new(r),
            refused_exemplars: r.counter(
                "floodmark_write_refused_exemplars_total",
                "Exemplars left out of requests whose rest was stored: damaged, with too long labels, or of a series that was left out.",
            ),
            deduplicated_samples: r.counter(
                "floodmark_ha_deduplicated_samples_total",
                "Samples left out because another replica of their cluster is elected.",
            ),
            replicas_elected: r.counter(
                "floodmark_ha_elections_total",
                "Elections of replicas, including the first election of each cluster.",
            ),
            refused_metadata: RefusedMetadata::new(r),
            exemplars_dropped: r.counter(
                "floodmark_head_exemplars_dropped_total",
                "Exemplars dropped because the limit on their memory, or on the memory of the head, was reached.",
            ),
            body_bytes: r.counter("floodmark_write_body_bytes_total", "Bytes of write bodies, as received."),
            seconds_known: seconds("known"),
            seconds_new: seconds("new"),
            series_evicted: r.counter(
                "floodmark_head_series_evicted_total",
                "Idle series evicted from memory.",
            ),
            series_created: r.counter("floodmark_head_series_created_total", "Series created."),
            late_samples: r.counter(
                "floodmark_head_late_samples_total",
                "Stored samples that are older than the newest sample of their series in the head, or have its timestamp but a different value.",
            ),
            duplicate_samples: r
                .counter("floodmark_head_duplicate_samples_total", "Repeated samples with an unchanged value, which are not stored again."),
            sync_seconds: r.histogram(
                "floodmark_journal_sync_duration_seconds",
                "Time to make a group durable.",
                &[],
                LATENCY_BUCKETS_S,
            ),
            group_failures: r.counter(
                "floodmark_journal_group_failures_total",
                "Groups that could not be made durable; their requests were refused.",
            ),
            replayed_samples: r
                .counter("floodmark_journal_replayed_samples_total", "Samples replayed at start."),
            damaged_ranges: r
                .counter("floodmark_journal_damaged_ranges_total", "Damaged ranges of the journal found during replay."),
            lost_records: r.counter(
                "floodmark_journal_lost_records_total",
                "Records lost to damage, including unreadable records.",
            ),
            torn_bytes: r.counter(
                "floodmark_journal_torn_bytes_total",
                "Incomplete bytes that the server removed from the end of the newest journal segment when it started; kept in quarantine.",
            ),
            unreadable_records: r.counter(
                "floodmark_journal_unreadable_records_total",
                "Records in replay that cannot be decoded although their checksums match; kept in quarantine.",
            ),
        }
    }
}
