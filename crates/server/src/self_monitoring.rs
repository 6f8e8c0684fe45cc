//! Stores the node's own metrics as series of a separate tenant.
//!
//! ```text
//!   registry ─▶ sampler: all values at one time, as a batch ─▶ write_path ─▶ journal, head, tables
//! ```
//!
//! The batch passes the same checks as a request. Refused samples are counted and not sent again. The next
//! batch is read after the last was stored.
//!
//! - [`carbon`]: carbon's metrics, for the tenant of Graphite

mod carbon;
mod sampler;
#[cfg(test)]
mod tests;

use crate::refusal::Refusal;
use crate::write_path::{self, Unwritten, write_batch};
use model::{Batch, Principal, Rights};
use sampler::Sampler;
use std::sync::Arc;
use std::time::Duration;
use stdx::telemetry::{Counter, Gauge, Registry};
use tokio::time::MissedTickBehavior;

const JOB: &str = "floodmark";

#[derive(Debug)]
struct Metrics {
    series: Gauge,
    stored: Counter,
    refused: Counter,
}

impl Metrics {
    fn new(r: &Registry) -> Self {
        Self {
            series: r.gauge(
                "floodmark_self_monitoring_series",
                "Series of the server's own metrics, when they were last read.",
            ),
            stored: r.counter(
                "floodmark_self_monitoring_samples_total",
                "Samples of the server's own metrics that were stored.",
            ),
            refused: r.counter(
                "floodmark_self_monitoring_refused_samples_total",
                "Samples of the server's own metrics that were refused, or left out because there are too many. They are not sent again.",
            ),
        }
    }
}

pub(crate) fn run(
    context: Arc<write_path::Context>,
    registry: &Registry,
    port: u16,
) -> impl Future<Output = ()> + Send + use<> {
    let carbon = carbon::run(Arc::clone(&context), registry.clone(), host_name());
    let monitor = Monitor::new(context, registry, format!("{}:{port}", host_name()));
    async move {
        let own = async {
            if let Some(interval) = monitor.context.settings.self_monitoring.interval {
                every(interval, monitor).await;
            }
        };
        tokio::join!(own, carbon);
    }
}

async fn every(interval: Duration, mut monitor: Monitor) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if monitor.context.readiness.is_stopping() {
            return;
        }
        // on another thread, because reading all metrics takes about a millisecond
        let sampled = tokio::task::spawn_blocking(move || {
            let batch = monitor.sample();
            (monitor, batch)
        });
        let Ok((sampled, mut batch)) = sampled.await else {
            return tracing::error!(
                "BUG: a metric cannot be read; the server's own metrics are no longer stored"
            );
        };
        monitor = sampled;
        monitor.store(&mut batch).await;
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// What became of a batch of the node's own metrics.
struct Stored {
    samples: u64,
    /// Why others are not stored.
    refusal: Option<String>,
}

async fn store(context: &Arc<write_path::Context>, principal: &Principal, batch: &mut Batch) -> Stored {
    let all = batch.floats.timestamps.len() as u64;
    let written = match context.inflight.reserve(batch.memory_bytes() as u64) {
        Ok(memory) => write_batch(context, principal, batch, memory).await,
        Err(exhausted) => Err(Refusal::from(exhausted).into()),
    };
    match written {
        Ok(outcome) if outcome.refused_samples == 0 => Stored { samples: all, refusal: None },
        Ok(outcome) => Stored { samples: outcome.samples, refusal: Some(outcome.report()) },
        Err(Unwritten { refusal, samples, .. }) => Stored { samples, refusal: Some(refusal.to_string()) },
    }
}

struct Monitor {
    context: Arc<write_path::Context>,
    principal: Principal,
    sampler: Sampler,
    metrics: Metrics,
    is_refused: bool,
}

impl Monitor {
    fn new(context: Arc<write_path::Context>, registry: &Registry, instance: String) -> Self {
        let tenant = context.settings.self_monitoring.tenant.clone();
        Self {
            principal: Principal { tenant, rights: Rights { read: false, write: true } },
            sampler: Sampler::new(registry.clone(), context.seed, instance),
            metrics: Metrics::new(registry),
            is_refused: false,
            context,
        }
    }

    fn sample(&mut self) -> Batch {
        let batch = self.sampler.sample(self.context.clock.now_ms());
        self.metrics.series.set(batch.floats.series.len() as f64);
        self.metrics.refused.add(batch.refused_samples);
        batch
    }

    async fn store(&mut self, batch: &mut Batch) {
        let samples = batch.floats.timestamps.len() as u64;
        let Stored { samples: stored, refusal } = store(&self.context, &self.principal, batch).await;
        self.metrics.stored.add(stored);
        self.metrics.refused.add(samples - stored.min(samples));
        let was_refused = std::mem::replace(&mut self.is_refused, refusal.is_some());
        match refusal {
            Some(reason) if !was_refused => {
                tracing::info!(
                    reason,
                    "cannot store the server's own metrics; they are dropped until they can be stored again"
                );
            }
            None if was_refused => tracing::info!("the server's own metrics are stored again"),
            _ => {}
        }
    }
}
