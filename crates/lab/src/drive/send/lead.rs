//! Keeps the connections of a closed loop together.
//!
//! Each runs through the series' time as fast as its answers come. A target that sees one half of a fleet
//! an hour before the other may refuse the late half, and no real fleet is like that.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Progress of each connection.
#[derive(Debug)]
pub(crate) struct Lead {
    rounds: Vec<AtomicU32>,
    rounds_max: u32,
    moved: Notify,
}

/// Round of a connection that has ended, so that the others do not wait for it.
const GONE: u32 = u32::MAX;

impl Lead {
    /// Coordinates `connections` connections, of which none shall be more than `rounds_max` rounds ahead of
    /// another.
    pub(crate) fn new(connections: usize, rounds_max: u32) -> Self {
        let rounds = (0..connections).map(|_| AtomicU32::new(0)).collect();
        Self { rounds, rounds_max, moved: Notify::new() }
    }

    /// Connection number `connection` is about to begin `round`, and waits for the others if it must.
    pub(crate) async fn enter(&self, connection: usize, round: u32) {
        self.rounds[connection].store(round, Ordering::Release);
        self.moved.notify_waiters();
        while round > self.slowest().saturating_add(self.rounds_max) {
            // the timeout is for the moment between looking and waiting, in which the slowest may move
            tokio::time::timeout(Duration::from_millis(5), self.moved.notified()).await.ok();
        }
    }

    /// Connection number `connection` has ended.
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
    async fn the_fast_wait_for_the_slow_but_not_for_the_dead() {
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
