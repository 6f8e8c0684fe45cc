//! Carbon's own metrics, `carbon.agents.HOST-a.*`, for dashboards that know carbon. With aggregation rules, there are also
//! those of carbon-aggregator, `carbon.aggregator.HOST-a.*`.
//!
//! They are computed from the node's metrics: counters are the increase since the last time, as in carbon.

use super::{Stored, store};
use crate::write_path;
use model::labels::METRIC_NAME;
use model::{Batch, BatchSeries, LabelsBuilder, Principal, Rights, SeriesKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::telemetry::{Found, Registry};
use tokio::time::MissedTickBehavior;

/// Stores the metrics until the node stops.
pub(super) async fn run(context: Arc<write_path::Context>, registry: Registry, host: String) {
    let settings = &context.settings;
    let Some(interval) = settings.self_monitoring.carbon_interval else { return };
    if !settings.graphite.is_served() {
        return;
    }
    let rights = Rights { read: false, write: true };
    let principal = Principal { tenant: settings.graphite.tenant.clone(), rights };
    let host = host.replace('.', "_");
    let mut is_refused = false;
    let mut before = Readings::of(&registry, context.clock.instant());
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks.tick().await; // the first tick is now
    loop {
        ticks.tick().await;
        if context.readiness.is_stopping() {
            return;
        }
        // reading all metrics takes about a millisecond
        let (registry, instant) = (registry.clone(), context.clock.instant());
        let read = tokio::task::spawn_blocking(move || Readings::of(&registry, instant)).await;
        let Ok(now) = read else { return tracing::error!("BUG: a metric cannot be read") };
        let mut found: Vec<_> = now
            .since(&before)
            .map(|(name, value)| (format!("carbon.agents.{host}-a.{name}"), value))
            .collect();
        if !context.rules.current().aggregations.is_empty() {
            let aggregator = now.aggregator_since(&before);
            found.extend(
                aggregator.map(|(name, value)| (format!("carbon.aggregator.{host}-a.{name}"), value)),
            );
        }
        let mut batch = batch(&found, context.clock.now_ms(), context.seed);
        let Stored { samples, refusal } = store(&context, &principal, &mut batch).await;
        if samples > 0 {
            before = now; // otherwise, the counts of this interval belong to the next one
        }
        let was_refused = std::mem::replace(&mut is_refused, refusal.is_some());
        if let Some(reason) = refusal.filter(|_| !was_refused) {
            tracing::info!(reason, stored = samples, "cannot store all of carbon's metrics");
        }
    }
}

/// The node's metrics at one time.
#[derive(Debug)]
struct Readings {
    at: Instant,
    /// Sums over the labels that are not part of the key: metric name, and the label `reason` or `list`.
    values: BTreeMap<(String, String), f64>,
}

impl Readings {
    fn of(registry: &Registry, at: Instant) -> Self {
        let mut values = BTreeMap::new();
        registry.read(&mut |found| {
            let Found::Value(reading) = found else { return };
            if reading.suffix == "_bucket" {
                return;
            }
            let label = reading.labels.iter().find(|(name, _)| name == "reason" || name == "list");
            let label = label.map_or_else(String::new, |(_, value)| value.clone());
            *values.entry(([reading.name, reading.suffix].concat(), label)).or_default() += reading.value;
        });
        Self { at, values }
    }

    fn get(&self, name: &str, label: &str) -> f64 {
        self.values.get(&(name.to_owned(), label.to_owned())).copied().unwrap_or(0.0)
    }

    /// Sum of a metric over all reasons.
    fn sum(&self, name: &str) -> f64 {
        self.values.iter().filter(|((found, _), _)| found == name).map(|(_, value)| value).sum()
    }

    /// The metrics of carbon-aggregator for the time since an earlier reading.
    fn aggregator_since(&self, before: &Self) -> impl Iterator<Item = (&'static str, f64)> {
        const COMPUTED: &str = "floodmark_graphite_aggregator_computed_points_total";
        let sent = (self.get(COMPUTED, "") - before.get(COMPUTED, "")).max(0.0);
        let found = [
            ("allocatedBuffers", self.get("floodmark_graphite_aggregator_outputs", "")),
            ("bufferedDatapoints", self.get("floodmark_graphite_aggregator_values", "")),
            ("aggregateDatapointsSent", sent),
        ];
        found.into_iter()
    }

    /// Carbon's metrics for the time since an earlier reading.
    fn since(&self, before: &Self) -> impl Iterator<Item = (&'static str, f64)> {
        const DROPPED: &str = "floodmark_graphite_dropped_points_total";
        const DENIED: &str = "floodmark_graphite_denied_points_total";
        const QUEUED: &str = "floodmark_graphite_queued_points";
        let seconds =
            self.at.saturating_duration_since(before.at).max(Duration::from_millis(1)).as_secs_f64();
        let increase = |name: &str, label: &str| (self.get(name, label) - before.get(name, label)).max(0.0);
        let increase_of_all = |name: &str| (self.sum(name) - before.sum(name)).max(0.0);
        let taken = increase("floodmark_graphite_points_total", "");
        let (dropped, overflow) = (increase_of_all(DROPPED), increase(DROPPED, "new_series_queue"));
        let dropped_creates = overflow + increase(DROPPED, "new_series_limit");
        let (queued, denied) = (self.get(QUEUED, ""), increase_of_all(DENIED));
        let late = overflow + increase(DROPPED, "new_series_limit") + increase(DROPPED, "stopping");
        // points that waited at the last reading became durable, unless they still wait or were dropped
        let committed = (taken + before.get(QUEUED, "") - queued - late).max(0.0);
        let updates = increase("floodmark_graphite_commit_seconds_count", "");
        let update_seconds = increase("floodmark_graphite_commit_seconds_sum", "");
        let mut found = vec![
            ("metricsReceived", taken + denied + dropped - late),
            ("committedPoints", committed),
            ("updateOperations", updates),
            ("creates", increase("floodmark_head_series_created_total", "")),
            ("droppedCreates", dropped_creates),
            ("errors", (dropped - dropped_creates).max(0.0)),
            ("blacklistMatches", increase(DENIED, "deny")),
            ("whitelistRejects", increase(DENIED, "allow")),
            ("activeConnections", self.get("floodmark_graphite_connections", "")),
            ("cache.size", queued),
            ("cache.queues", self.get("floodmark_graphite_queued_series", "")),
            ("cache.overflow", overflow),
            ("cpuUsage", 100.0 * increase("process_cpu_seconds_total", "") / seconds),
            ("memUsage", self.get("process_resident_memory_bytes", "")),
        ];
        if updates > 0.0 {
            found.push(("pointsPerUpdate", committed / updates));
            found.push(("avgUpdateTime", update_seconds / updates));
        }
        found.into_iter()
    }
}

fn batch(metrics: &[(String, f64)], now_ms: i64, seed: u64) -> Batch {
    let (mut batch, mut builder) = (Batch::default(), LabelsBuilder::new());
    for (name, value) in metrics {
        builder.clear();
        builder.push(METRIC_NAME, name);
        let Ok(labels) = builder.build_series() else { continue };
        let key = SeriesKey::of(labels.as_bytes(), seed);
        let Batch { bytes, floats, .. } = &mut batch;
        let (start, sample) = (bytes.len() as u32, floats.timestamps.len() as u32);
        bytes.extend_from_slice(labels.as_bytes());
        let labels = start..bytes.len() as u32;
        floats.series.push(BatchSeries { key, labels, samples: sample..sample + 1 });
        floats.timestamps.push(now_ms);
        floats.values.push(*value);
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_increases_and_gauges_are_values() {
        let registry = Registry::new();
        let points = registry.counter("floodmark_graphite_points_total", "");
        let dropped = |reason| {
            registry.counter_with("floodmark_graphite_dropped_points_total", "", &[("reason", reason)])
        };
        let (overflow, malformed) = (dropped("new_series_queue"), dropped("malformed"));
        let queued = registry.gauge("floodmark_graphite_queued_points", "");
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        points.add(1000);
        queued.set(30.0);
        let before = Readings::of(&registry, began);
        points.add(100);
        overflow.add(7);
        malformed.add(2);
        queued.set(50.0);
        let computed = registry.counter("floodmark_graphite_aggregator_computed_points_total", "");
        computed.add(3);
        let after = Readings::of(&registry, began + second);
        let aggregator: Vec<_> = after.aggregator_since(&before).collect();
        assert_eq!(aggregator[2], ("aggregateDatapointsSent", 3.0));
        let found: Vec<_> = after.since(&before).collect();
        let check = |name: &str, expected: f64| {
            let value = found.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
            assert_eq!(value, Some(expected), "{name}");
        };
        check("metricsReceived", 102.0);
        check("committedPoints", 100.0 + 30.0 - 50.0 - 7.0);
        check("droppedCreates", 7.0);
        check("cache.overflow", 7.0);
        check("errors", 2.0);
        check("cache.size", 50.0);
        assert!(found.iter().all(|(name, _)| *name != "pointsPerUpdate"), "nothing was written");
        let found: Vec<_> = found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let batch = batch(&found, 5, 1);
        assert_eq!((batch.floats.values.len(), batch.floats.timestamps[0]), (found.len(), 5));
    }
}
