use crate::refusal::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::telemetry::{Counter, Histogram, LATENCY_BUCKETS_S, Registry};

/// Metrics of the protocols without answers.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) points: Counter,
    pub(super) bytes: Counter,
    pub(super) created_points: Counter,
    pub(super) rejected_connections: Counter,
    pub(super) replaced_connections: Counter,
    /// Connections that were reset because it was not known yet whether their points would be stored.
    pub(super) uncertain_connections: Counter,
    pub(super) unread_datagrams: Counter,
    pub(super) overflowed_datagrams: Counter,
    pub(super) commit_seconds: Histogram,
    paused: Arc<AtomicU64>,
    pauses: Counter,
}

impl Metrics {
    pub(super) fn new(r: &Registry) -> Self {
        let paused = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&paused);
        r.gauge_fn(
            "floodmark_graphite_paused_bodies",
            "Bodies that wait because points of known series cannot be stored. Their senders are not read.",
            &[],
            move || read.load(Ordering::Relaxed) as f64,
        );
        Self {
            points: r.counter(
                "floodmark_graphite_points_total",
                "Points received by Graphite's protocols or computed by aggregation rules that are durable or wait for the creation of their series.",
            ),
            bytes: r.counter("floodmark_graphite_bytes_total", "Bytes received by Graphite's protocols."),
            created_points: r.counter(
                "floodmark_graphite_created_points_total",
                "Points that were stored after the creation of their series.",
            ),
            rejected_connections: r.counter(
                "floodmark_graphite_rejected_connections_total",
                "Connections closed without being served: too many were open and none of them was idle, there was no memory, or over TLS the handshake failed or the sender may not write.",
            ),
            replaced_connections: r.counter(
                "floodmark_graphite_replaced_connections_total",
                "Connections closed because there were too many, or because their unfinished messages took memory that others needed.",
            ),
            uncertain_connections: r.counter(
                "floodmark_graphite_uncertain_connections_total",
                "Connections that were reset because the creation of series took too long. Their points were not dropped.",
            ),
            unread_datagrams: r.counter(
                "floodmark_graphite_unread_datagrams_total",
                "Datagrams dropped without being decoded, because there was no memory for them.",
            ),
            overflowed_datagrams: r.counter(
                "floodmark_graphite_overflowed_datagrams_total",
                "Datagrams that the kernel dropped, because the buffer of the socket was full.",
            ),
            commit_seconds: r.histogram(
                "floodmark_graphite_commit_seconds",
                "Time from the first new byte of a body until its points of known series were durable. Bytes of a message that was unfinished before are not new.",
                &[],
                LATENCY_BUCKETS_S,
            ),
            paused,
            pauses: r.counter(
                "floodmark_graphite_pauses_total",
                "Refusals of points of known series, which are stored later.",
            ),
        }
    }

    /// Counts a body as waiting until the result is dropped.
    pub(super) fn pause(&self, refusal: &Refusal) -> Paused {
        self.pauses.inc();
        tracing::debug!(reason = refusal.reason, message = refusal.message, "points must wait");
        self.paused.fetch_add(1, Ordering::Relaxed);
        Paused(Arc::clone(&self.paused))
    }
}

#[derive(Debug)]
pub(super) struct Paused(Arc<AtomicU64>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
