//! What is left to do when the server stops.
//!
//! ```text
//!   what was read is durable ─▶ what was computed from it is durable ─▶ queued series are created
//! ```
//!
//! Points of one tenant may not be storable at all, so each step has a deadline, and points are computed
//! without those that are not durable by then. Whatever is late goes on beside the next steps, until the last
//! deadline.

use super::aggregates::Aggregates;
use super::creation::Creation;
use super::drops::Drops;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time to make everything durable.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Drain {
    pub(super) aggregates: Arc<Aggregates>,
    pub(super) creation: Arc<Creation>,
    pub(super) drops: Arc<Drops>,
    /// When the server began to stop, in milliseconds since the Unix epoch.
    pub(super) stopped_ms: i64,
}

/// Deadlines of the steps, counted from the start of the shutdown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// When aggregation starts, even if some received points are not durable yet.
    pub(super) senders: Duration,
    pub(super) computed: Duration,
    pub(super) all: Duration,
}

impl Deadlines {
    /// Half of the time is for what was read. The last tenth is only for the creation of series.
    pub(super) fn within(all: Duration) -> Self {
        Self { senders: all / 2, computed: all * 9 / 10, all }
    }
}

impl Drain {
    /// Returns once everything is durable, or at the end of the time. `senders` resolves when all that was read is durable.
    pub(super) async fn run(self, senders: impl Future<Output = ()> + Send, deadlines: Deadlines) {
        let Self { aggregates, creation, drops, stopped_ms } = self;
        let (began, mut senders) = (Instant::now(), pin!(senders));
        let have_ended = timeout_at(began + deadlines.senders, &mut senders).await.is_ok();
        aggregates.finish(stopped_ms, began + deadlines.computed).await;
        let deadline = began + deadlines.all;
        if !have_ended && timeout_at(deadline, senders).await.is_err() {
            let seconds = deadlines.all.as_secs();
            tracing::warn!(seconds, "stopping before all points of known series are durable");
        }
        creation.drain(deadline).await;
        drops.log_rest();
    }
}

#[cfg(test)]
mod tests;
