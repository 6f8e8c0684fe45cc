//! Open connections, and which one goes when there are too many.
//!
//! A connection is *idle* while none of its requests is being answered: also before its first request, and while headers
//! are still arriving. At the limit a new connection replaces an idle one, the longest idle first: of those without a
//! request for a second after connecting, then of those that have had an answer, then of the rest except those younger
//! than [`NEWEST`], whose request may be on its way. If there is none, the new connection is refused.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection that sends no request for this long after connecting is the first to be closed.
const SILENT: Duration = Duration::from_secs(1);

/// A new connection is not closed before this age: its first request may be on its way.
const NEWEST: Duration = Duration::from_millis(100);

/// All open connections. Cloning gives another handle.
#[derive(Debug, Clone)]
pub(super) struct Connections(Arc<All>);

#[derive(Debug)]
struct All {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    links: HashMap<u64, Arc<Link>>,
}

/// An open connection's place; dropping it makes room.
#[derive(Debug)]
pub(super) struct Place {
    all: Connections,
    number: u64,
    link: Arc<Link>,
}

/// What others see of a connection.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    closed: Notify,
}

#[derive(Debug)]
struct State {
    idle_since: Instant,
    /// A request is being answered.
    is_busy: bool,
    /// One was answered before.
    was_busy: bool,
    /// Something written waits for its reader.
    writes: bool,
    is_closed: bool,
}

/// A request that is being answered, until its last byte was written.
#[derive(Debug)]
pub(super) struct Busy(Arc<Link>);

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(All { most, open: Mutex::default() }))
    }

    /// A place for a new connection, if need be that of one that is idle: it is told to close.
    pub(super) fn enter(&self, now: Instant) -> Option<Place> {
        let mut open = self.0.open.lock();
        if open.links.len() >= self.0.most && !open.close_idlest(now) {
            return None;
        }
        let number = open.next;
        open.next += 1;
        let state =
            State { idle_since: now, is_busy: false, was_busy: false, writes: false, is_closed: false };
        let link = Arc::new(Link { state: Mutex::new(state), closed: Notify::new() });
        open.links.insert(number, Arc::clone(&link));
        Some(Place { all: self.clone(), number, link })
    }

    /// How many there are, those left out that were told to close.
    pub(super) fn count(&self) -> usize {
        self.0.open.lock().links.len()
    }
}

impl Open {
    /// Closes the idle connection of the lowest [`Link::need`]; false if there is none.
    fn close_idlest(&mut self, now: Instant) -> bool {
        // a connection may begin a request between `need` and `close_if_idle`; then try the next
        loop {
            let idle = self.links.iter().filter_map(|(number, link)| Some((link.need(now)?, *number)));
            let Some((_, number)) = idle.min() else { return false };
            if self.links[&number].close_if_idle() {
                self.links.remove(&number);
                return true;
            }
        }
    }
}

impl Link {
    /// Eviction order of an idle connection, smallest first; `None` if it must stay.
    fn need(&self, now: Instant) -> Option<(u8, Instant)> {
        let state = self.state.lock();
        let idle = now.saturating_duration_since(state.idle_since);
        let rank = match state.was_busy {
            false if idle >= SILENT => 0,
            true => 1,
            false if idle >= NEWEST => 2,
            false => return None,
        };
        state.is_idle().then_some((rank, state.idle_since))
    }

    fn close_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let closes = state.is_idle();
        if closes {
            state.is_closed = true;
            self.closed.notify_one();
        }
        closes
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.state.lock().is_busy = true;
        Busy(Arc::clone(self))
    }

    /// Sets whether a write is blocked because the client does not read.
    pub(super) fn writes(&self, waits: bool) {
        let mut state = self.state.lock();
        state.writes = waits;
        state.idle_since = Instant::now();
    }

    /// Ends when the connection is to be closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl State {
    const fn is_idle(&self) -> bool {
        !(self.is_busy || self.writes || self.is_closed)
    }
}

impl Place {
    pub(super) fn share(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.open.lock().links.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        (state.is_busy, state.was_busy) = (false, true);
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_has_time_to_ask() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let connections = Connections::new(2);
        let (first, second) = (connections.enter(now).unwrap(), connections.enter(after(20)).unwrap());
        assert!(connections.enter(after(99)).is_none());
        drop(second.share().begin());
        assert_eq!(
            (first.share().need(after(110)).unwrap().0, second.share().need(after(110)).unwrap().0),
            (2, 1)
        );
        assert_eq!(first.share().need(after(1000)).unwrap().0, 0);
        let _third = connections.enter(after(110)).expect("who was answered goes first");
        assert!(first.share().need(after(110)).is_some() && second.share().need(after(110)).is_none());
    }

    #[tokio::test]
    async fn the_longest_idle_makes_room_and_who_is_served_stays() {
        let now = Instant::now();
        let at = |s| now + Duration::from_secs(s);
        let connections = Connections::new(3);
        let busy = connections.enter(at(0)).unwrap();
        let request = busy.share().begin();
        let (older, newer) = (connections.enter(at(1)).unwrap(), connections.enter(at(2)).unwrap());
        let next = connections.enter(at(3)).expect("room is made");
        older.share().closed().await;
        assert_eq!(connections.count(), 3);
        drop(older);
        assert_eq!(connections.count(), 3, "its place was given away before");
        let requests = [newer.share().begin(), next.share().begin()];
        assert!(connections.enter(at(4)).is_none(), "all are served");
        drop(requests);
        next.share().writes(true);
        newer.share().writes(true);
        assert!(connections.enter(at(4)).is_none(), "two are written to");
        newer.share().writes(false);
        let last = connections.enter(at(5)).expect("room is made");
        newer.share().closed().await;
        drop((request, busy, newer, next, last));
        assert_eq!(connections.count(), 0);
    }
}
