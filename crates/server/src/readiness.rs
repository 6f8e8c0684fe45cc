use crate::partition::shared::Partitions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REPLAY_WAIT: Duration = Duration::from_secs(5);
const REPLAY_POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Readiness {
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_stopping() && self.partitions.is_ready()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until replay has ended, for at most [`REPLAY_WAIT`]. Replay is usually short, so it is better to
    /// let clients wait than to refuse their requests.
    pub(crate) async fn wait_for_replay(&self) {
        let began = Instant::now();
        while !self.is_ready() && !self.is_stopping() && began.elapsed() < REPLAY_WAIT {
            tokio::time::sleep(REPLAY_POLL).await;
        }
    }
}
