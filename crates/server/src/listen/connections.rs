//! Open connections, and the choice of one to close when there are too many.
//!
//! At the limit, a new connection replaces an open one. If some tenants have more connections than their share
//! ([`admission::connections`]), only their connections are candidates. So a tenant with many senders closes its own
//! connections. Candidates are, in this order:
//!
//! 1. connections that have waited a second for a first request, or have sent a body too slowly for a second, or are busy
//!    a second after their first answer although no caller was identified: with HTTP/2, a stranger could always have a
//!    request in progress,
//! 2. connections between requests, if [`NEWEST`] has passed since the first answer,
//! 3. other connections without an answer so far, if older than [`NEWEST`],
//! 4. known senders' connections between requests, if these senders have at least half of all connections,
//! 5. connections whose client has not read for a second.
//!
//! With protocols that create series apart from requests, a sender is *known* if points of existing series that it sent were
//! stored within [`KNOWN_FOR`]. A flood of strangers is busy while their series wait, and would otherwise replace the known
//! senders, which are idle in between. Half of the connections is left to others, so that nobody is locked out.
//!
//! Among candidates of one kind, the connection with the longest wait is closed. With very many connections, only
//! [`search::COMPARED`] candidates are compared, from where the last search ended. Other connections that are being answered
//! stay. If all connections of the tenants above their share are being answered, the new connection waits for up to
//! [`GRACE`] until one of them is idle. Then it replaces a connection of any tenant that has more than one, so that
//! slow requests of one tenant do not lock out the others. If there is none either, the new connection is refused.

mod link;
mod search;

pub(crate) use link::Connection;
pub(super) use link::{Busy, Link, NEWEST};

use admission::connections::Shares;
use parking_lot::Mutex;
use search::Searches;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a new connection waits for a connection of a tenant above its share, before it replaces a connection of
/// another tenant. Most answers take less time.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The open connections of a listener. Clones share one list.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<All>);

#[derive(Debug)]
struct All {
    most: usize,
    shares: Arc<Mutex<Shares>>,
    /// Notified when a connection is closed or becomes idle.
    freed: Arc<Notify>,
    bytes_per_second: u64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    links: BTreeMap<u64, Arc<Link>>,
    /// The largest number of open connections.
    peak: usize,
    searches: Searches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// No connection may be closed yet, because the candidates are too young. This is when the first of them
    /// will be old enough.
    Until(Instant),
    Busy,
}

/// Whose connections may be closed to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victims {
    /// Tenants above their share, or all tenants if none is above its share.
    AboveShare,
    /// Tenants with more than one connection.
    WithSeveral,
    All,
}

/// Place of an open connection. Dropping it makes room for another connection.
#[derive(Debug)]
pub(super) struct Place {
    all: Connections,
    number: u64,
    link: Arc<Link>,
}

impl Connections {
    /// `most` is the limit on connections. Request bodies should arrive with at least `bytes_per_second`.
    pub(super) fn new(most: usize, bytes_per_second: u64) -> Self {
        let (shares, freed) = (Arc::new(Mutex::new(Shares::new(most))), Arc::default());
        Self(Arc::new(All { most, shares, freed, bytes_per_second, open: Mutex::default() }))
    }

    /// Returns a place for a new connection. At the limit, a connection of `victims` is closed for it.
    pub(super) fn enter(&self, victims: Victims, now: Instant) -> Result<Place, Full> {
        let mut open = self.0.open.lock();
        if open.links.len() >= self.0.most {
            open.close_least_needed(victims, now)?;
        }
        let number = open.next;
        open.next += 1;
        self.0.shares.lock().add(None);
        let link = Arc::new(Link::new(self.0.bytes_per_second, &self.0.shares, &self.0.freed, now));
        open.links.insert(number, Arc::clone(&link));
        open.peak = open.peak.max(open.links.len());
        Ok(Place { all: self.clone(), number, link })
    }

    /// Waits until a connection is closed or becomes idle, but not longer than `until`.
    pub(super) async fn wait(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until, self.0.freed.notified()).await;
    }

    pub(crate) fn count(&self) -> usize {
        self.0.open.lock().links.len()
    }

    /// The largest number of connections that were open at a time.
    pub(crate) fn peak(&self) -> usize {
        self.0.open.lock().peak
    }
}

impl Open {
    /// Closes the candidate that comes first by [`rank`](link::State::rank).
    fn close_least_needed(&mut self, victims: Victims, now: Instant) -> Result<(), Full> {
        loop {
            let mut found = self.searches.search(&self.links, victims, now);
            if victims == Victims::AboveShare && !found.any {
                found = self.searches.search(&self.links, Victims::All, now);
            }
            let Some((.., number)) = found.first else {
                return Err(found.young_until.map_or(Full::Busy, Full::Until));
            };
            // if the chosen connection gets a request before it is closed, try the next one
            if self.links[&number].close(now) {
                self.links.remove(&number);
                return Ok(());
            }
        }
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
        self.link.leave(&mut self.link.state.lock());
        self.all.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
