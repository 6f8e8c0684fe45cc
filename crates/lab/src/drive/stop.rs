//! Ends a run early, with a report: for Ctrl-C and for programs that watch a run.

use std::sync::Arc;
use tokio::sync::watch;

/// A switch that can be thrown once; clones are the same switch.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// True where it was thrown.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is thrown.
    pub async fn wait(&self) {
        let mut receiver = self.0.subscribe();
        receiver.wait_for(|thrown| *thrown).await.expect("BUG: the sender lives in self");
    }
}
