//! Keeps the connections of a closed loop at similar timestamps.
//!
//! The timestamps of a connection advance as fast as the target answers it. Without this limit, a fast connection
//! could get so far ahead that the target refuses the older samples of a slow one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Lead {
    rounds: Vec<AtomicU32>,
    rounds_max: u32,
    moved: Notify,
}

const GONE: u32 = u32::MAX;

impl Lead {
    /// Lets no connection get more than `rounds_max` rounds ahead of another.
    pub(crate) fn new(connections: usize, rounds_max: u32) -> Self {
        let rounds = (0..connections).map(|_| AtomicU32::new(0)).collect();
        Self { rounds, rounds_max, moved: Notify::new() }
    }

    /// Waits until the slowest connection is close enough for this connection to begin `round`.
    pub(crate) async fn enter(&self, connection: usize, round: u32) {
        self.rounds[connection].store(round, Ordering::Release);
        self.moved.notify_waiters();
        while round > self.slowest().saturating_add(self.rounds_max) {
            // the timeout is needed because the slowest connection may move between the check and the wait
            tokio::time::timeout(Duration::from_millis(5), self.moved.notified()).await.ok();
        }
    }

    pub(crate) fn leave(&self, connection: usize) {
        self.rounds[connection].store(GONE, Ordering::Release);
        self.moved.notify_waiters();
    }

    fn slowest(&self) -> u32 {
        self.rounds.iter().map(|round| round.load(Ordering::Acquire)).min().unwrap_or(GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[tokio::test]
    async fn fast_connections_wait_for_slow_but_not_for_closed_ones() {
        let lead = Lead::new(3, 2);
        lead.enter(0, 2).await;
        let mut blocked = pin!(lead.enter(0, 3));
        let mut poll = || blocked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        lead.enter(1, 1).await;
        assert_eq!(poll(), Poll::Pending, "connection 2 has not begun");
        lead.leave(2);
        blocked.await;
    }
}
