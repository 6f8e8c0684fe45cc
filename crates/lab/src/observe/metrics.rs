//! Translates the metrics that different systems expose about themselves into common names.
//!
//! Metrics that have no common name take no memory.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Floodmark,
    Cortex,
    VictoriaMetrics,
    /// carbon, whose metrics come from graphite_exporter, or go-carbon.
    Carbon,
    Prometheus,
    Other,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floodmark => "Floodmark",
            Self::Prometheus => "Prometheus",
            Self::Cortex => "Cortex or Mimir",
            Self::VictoriaMetrics => "VictoriaMetrics",
            Self::Carbon => "carbon",
            Self::Other => "unknown",
        }
    }
}

/// What one scrape says about the target. Each figure has the same name for all systems, for example `own/memory`,
/// `own/series` or `own/samples_in`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapedFigures {
    pub kind: Kind,
    pub version: Option<String>,
    /// Figures by common name. Counters have their current count, not a rate.
    pub values: BTreeMap<&'static str, f64>,
    /// When the target's process started, in seconds since 1970.
    pub started_s: Option<f64>,
}

/// Says how a figure is computed: as the sum over all series of `metric` whose labels contain the text `label`.
#[derive(Debug)]
struct Source {
    name: &'static str,
    metric: Metric,
    label: &'static str,
}

#[derive(Debug)]
enum Metric {
    Is(&'static str),
    /// The metric's name ends like this. The names of carbon's metrics begin with the name of the host.
    EndsWith(&'static str),
}

/// Figures that are counters. The timeline shows how fast they grow.
pub(super) const COUNTERS: [&str; 5] =
    ["own/samples_in", "own/series_created", "own/compactions", "own/flushes", "own/refused"];

pub(super) fn unit(name: &str) -> &'static str {
    match name {
        "own/memory" | "own/journal" => "bytes",
        name if COUNTERS.contains(&name) => "1/s",
        _ => "",
    }
}

const fn is(name: &'static str, metric: &'static str) -> Source {
    Source { name, metric: Metric::Is(metric), label: "" }
}

const fn labelled(name: &'static str, metric: &'static str, label: &'static str) -> Source {
    Source { name, metric: Metric::Is(metric), label }
}

const fn ends_with(name: &'static str, metric: &'static str) -> Source {
    Source { name, metric: Metric::EndsWith(metric), label: "" }
}

const MEMORY: Source = is("own/memory", "process_resident_memory_bytes");

static FLOODMARK: [Source; 11] = [
    MEMORY,
    is("own/series", "floodmark_head_series"),
    is("own/series_active", "floodmark_head_active_series"),
    is("own/samples_in", "floodmark_write_samples_total"),
    is("own/series_created", "floodmark_head_series_created_total"),
    is("own/inflight", "floodmark_write_inflight_requests"),
    is("own/queue", "floodmark_head_creating_requests"),
    is("own/journal", "floodmark_journal_bytes"),
    labelled("own/refused", "floodmark_http_write_answers_total", "status=\"503\""),
    is("own/flushes", "floodmark_seal_rounds_total"),
    is("own/compactions", "floodmark_compact_merges_total"),
];

static PROMETHEUS: [Source; 7] = [
    MEMORY,
    is("own/series", "prometheus_tsdb_head_series"),
    is("own/samples_in", "prometheus_tsdb_head_samples_appended_total"),
    is("own/series_created", "prometheus_tsdb_head_series_created_total"),
    is("own/compactions", "prometheus_tsdb_compactions_total"),
    is("own/journal", "prometheus_tsdb_wal_storage_size_bytes"),
    is("own/refused", "prometheus_tsdb_out_of_order_samples_total"),
];

static CORTEX: [Source; 9] = [
    MEMORY,
    is("own/series", "cortex_ingester_memory_series"),
    is("own/series_active", "cortex_ingester_active_series"),
    is("own/samples_in", "cortex_ingester_ingested_samples_total"),
    is("own/series_created", "cortex_ingester_memory_series_created_total"),
    is("own/inflight", "cortex_ingester_inflight_push_requests"),
    is("own/compactions", "cortex_ingester_tsdb_compactions_total"),
    is("own/flushes", "cortex_ingester_shipper_uploads_total"),
    is("own/refused", "cortex_discarded_samples_total"),
];

static VICTORIA_METRICS: [Source; 8] = [
    MEMORY,
    labelled("own/series_active", "vm_cache_entries", "type=\"storage/hour_metric_ids\""),
    is("own/samples_in", "vm_rows_inserted_total"),
    is("own/series_created", "vm_new_timeseries_created_total"),
    is("own/queue", "vm_pending_rows"),
    is("own/inflight", "vm_concurrent_insert_current"),
    is("own/compactions", "vm_merges_total"),
    is("own/refused", "vm_rows_ignored_total"),
];

static CARBON: [Source; 7] = [
    ends_with("own/memory", "_memUsage"),
    ends_with("own/series", "_cache_queues"),
    ends_with("own/queue", "_cache_size"),
    ends_with("own/received", "_metricsReceived"),
    ends_with("own/created", "_creates"),
    ends_with("own/points_per_update", "_pointsPerUpdate"),
    ends_with("own/updates", "_updateOperations"),
];

static OTHER: [Source; 1] = [MEMORY];

/// Prefixes of metric names by which a system is recognised. These metrics exist as soon as the system runs.
const MARKS: [(&str, Kind); 9] = [
    ("floodmark_", Kind::Floodmark),
    ("cortex_", Kind::Cortex),
    ("mimir_", Kind::Cortex),
    ("vm_app_version", Kind::VictoriaMetrics),
    ("vm_rows_inserted_total", Kind::VictoriaMetrics),
    ("vm_cache_entries", Kind::VictoriaMetrics),
    ("prometheus_tsdb_head_series", Kind::Prometheus),
    ("carbon_", Kind::Carbon),
    ("go_carbon_", Kind::Carbon),
];

/// Recognises the system that exposes these metrics, and extracts its figures. Lines that cannot be parsed are
/// skipped.
pub fn recognise(text: &str) -> ScrapedFigures {
    // Cortex and Mimir also have metrics of Prometheus, so the system that comes first in `Kind` is chosen
    let marked = |line: &str| MARKS.iter().find(|(mark, _)| line.starts_with(mark)).map(|(_, kind)| *kind);
    let kind = text.lines().filter_map(marked).min().unwrap_or(Kind::Other);
    let sources: &[Source] = match kind {
        Kind::Floodmark => &FLOODMARK,
        Kind::Prometheus => &PROMETHEUS,
        Kind::Cortex => &CORTEX,
        Kind::VictoriaMetrics => &VICTORIA_METRICS,
        Kind::Carbon => &CARBON,
        Kind::Other => &OTHER,
    };
    let mut own = ScrapedFigures { kind, version: None, values: BTreeMap::new(), started_s: None };
    for line in text.lines() {
        let Some((name, labels, value)) = split(line) else { continue };
        if name == "process_start_time_seconds" {
            own.started_s = Some(value);
        }
        if name == "vm_app_version" || name.ends_with("_build_info") {
            let version = label(labels, "short_version").or_else(|| label(labels, "version"));
            own.version = version.filter(|v| !v.is_empty()).map(str::to_owned).or(own.version);
        }
        for source in sources {
            let found = match source.metric {
                Metric::Is(metric) => name == metric,
                Metric::EndsWith(metric) => name.ends_with(metric),
            };
            if found && labels.contains(source.label) && value.is_finite() {
                *own.values.entry(source.name).or_default() += value;
            }
        }
    }
    own
}

/// Splits a line into name, text between the braces, and value.
fn split(line: &str) -> Option<(&str, &str, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let name_end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        None => ("", rest),
        Some(rest) => rest.split_at(closing_brace(rest)?),
    };
    let value = rest.trim_start_matches('}').split_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

fn closing_brace(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return true,
            _ => {}
        }
        false
    })
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let at = rest.find(name)?;
        let before = rest[..at].bytes().next_back();
        rest = &rest[at + name.len()..];
        if matches!(before, None | Some(b',' | b' '))
            && let Some(value) = rest.strip_prefix("=\"")
        {
            return value.split('"').next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_metrics_are_called_what_the_reference_calls_them() {
        let reference = include_str!("../../../../docs/reference/metrics.md");
        for source in &FLOODMARK {
            let Metric::Is(name) = source.metric else { panic!("the source has only a suffix of the name") };
            let known = reference.contains(&format!("`{name}`")) || reference.contains(&format!("`{name}{{"));
            assert!(known || !name.starts_with("floodmark_"), "{name}");
        }
    }
}
