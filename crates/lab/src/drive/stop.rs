//! Ends a run early, with a report.

use std::sync::Arc;
use tokio::sync::watch;

/// Stop signal, which can be set once. Clones share the signal.
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

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    pub async fn wait(&self) {
        let mut receiver = self.0.subscribe();
        receiver.wait_for(|thrown| *thrown).await.expect("BUG: the sender of the stop signal is gone");
    }
}
