//! Connections with an unfinished message. When memory runs short, those that have waited longest are closed.
//!
//! An unfinished message takes memory until it is complete or its time is over. Without this, a few senders that never
//! finish their messages would keep everybody else from sending for that long, and again and again.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection is not closed before its message has been unfinished for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// At most one entry for each open connection.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// In the order in which they are closed: by when the message began.
    connections: BTreeMap<(Instant, u64), Arc<Notify>>,
}

/// A connection, which may have an unfinished message. Dropping it removes the connection.
#[derive(Debug)]
pub(super) struct Holder {
    all: Arc<Unfinished>,
    number: u64,
    since: Option<Instant>,
    closed: Arc<Notify>,
}

impl Unfinished {
    pub(super) fn holder(self: &Arc<Self>) -> Holder {
        let mut waiting = self.0.lock();
        waiting.next += 1;
        Holder { all: Arc::clone(self), number: waiting.next, since: None, closed: Arc::default() }
    }

    /// Closes the connection whose message began first. False if no message has been unfinished for long enough.
    pub(super) fn close_longest(&self, now: Instant) -> bool {
        let mut waiting = self.0.lock();
        let Some(first) = waiting.connections.first_entry() else { return false };
        let is_due = first.key().0 + PATIENCE <= now;
        if is_due {
            first.remove().notify_one();
        }
        is_due
    }
}

impl Holder {
    /// Records when the connection's unfinished message began. `None` if it has none, or if it is the server that makes it
    /// wait.
    pub(super) fn set(&mut self, since: Option<Instant>) {
        if since == self.since {
            return;
        }
        let connections = &mut self.all.0.lock().connections;
        if let Some(before) = self.since {
            connections.remove(&(before, self.number));
        }
        if let Some(since) = since {
            connections.insert((since, self.number), Arc::clone(&self.closed));
        }
        self.since = since;
    }

    /// Returns when the connection has to be closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn the_longest_unfinished_message_is_closed_first() {
        let all = Arc::new(Unfinished::default());
        let [mut first, mut second, mut third] = [(); 3].map(|()| all.holder());
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        second.set(Some(at(0)));
        first.set(Some(at(10)));
        third.set(Some(at(5)));
        third.set(None);
        assert!(!all.close_longest(at(999)), "none is old enough");
        assert!(all.close_longest(at(1000)) && !all.close_longest(at(1009)));
        assert!(all.close_longest(at(1010)) && !all.close_longest(at(9999)));
        for (holder, is_closed) in [(&first, true), (&second, true), (&third, false)] {
            let closed = timeout(Duration::ZERO, holder.closed()).await;
            assert_eq!(closed.is_ok(), is_closed);
        }
        third.set(Some(at(0)));
        drop(third);
        assert!(!all.close_longest(at(9999)) && all.0.lock().connections.is_empty());
    }
}
