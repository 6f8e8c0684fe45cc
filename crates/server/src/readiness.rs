//! Readiness of a node, which serves requests from the end of replay until it is stopped.

use crate::partition::shared::Partitions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time for which a request waits for replay to end before it is refused.
const REPLAY_WAIT: Duration = Duration::from_secs(5);
const REPLAY_POLL: Duration = Duration::from_millis(10);

/// State of a node: replaying, ready or stopping.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Readiness {
    /// True if replay is done in all partitions and the node is not stopping.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_stopping() && self.partitions.is_ready()
    }

    /// True once the node is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits for replay to end, for at most [`REPLAY_WAIT`]. Replays are short. So requests that arrive meanwhile wait,
    /// instead of being refused for some seconds. The limits on requests in flight apply to them.
    pub(crate) async fn wait_for_replay(&self) {
        let began = Instant::now();
        while !self.is_ready() && !self.is_stopping() && began.elapsed() < REPLAY_WAIT {
            tokio::time::sleep(REPLAY_POLL).await;
        }
    }
}
