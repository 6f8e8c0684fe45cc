//! Lets a run end early and still report what it measured.

use std::sync::Arc;
use tokio::sync::watch;

/// Signal that a run should stop. Once set, it stays set. Clones share the signal.
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
