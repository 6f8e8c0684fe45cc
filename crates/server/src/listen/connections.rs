//! Open connections, and the choice of one to close when there are too many.
//!
//! At the limit, a new connection replaces an open one. If some tenants have more connections than their share
//! ([`admission::connections`]), only their connections are candidates. So a tenant with many senders closes its own
//! connections. Candidates are, in this order:
//!
//! 1. connections that have waited for a first request for a second, or have received a body below the minimum rate
//!    for a second, or have been answered for a second although no caller was identified: with HTTP/2, a stranger could
//!    always have a request in progress,
//! 2. connections between requests, if [`NEWEST`] has passed since the first answer,
//! 3. other connections without an answer so far, if older than [`NEWEST`],
//! 4. connections between requests of known senders, if at least half of all connections are of known senders,
//! 5. connections whose client has not read for a second.
//!
//! With protocols that create series apart from requests, a sender is *known* if points of existing series that it sent were
//! stored within [`KNOWN_FOR`]. A flood of strangers is busy while their series wait, and would otherwise replace the known
//! senders, which are idle in between. Half of the connections is left to others, so that nobody is locked out.
//!
//! Among candidates of one kind, the connection with the longest wait is closed. With very many connections, only
//! [`COMPARED`] candidates are compared, from where the last search ended. Other connections that are being answered
//! stay. If all connections of the tenants above their share are being answered, the new connection waits for up to
//! [`GRACE`] until one of them is idle. Then it replaces a connection of any tenant that has more than one, so that
//! slow requests of one tenant do not lock out the others. If there is none either, the new connection is refused.

use admission::connections::Shares;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After this time, a client that has sent no request, sends too slowly, does not read, or was only refused may have to
/// make room for others.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection is not closed so soon after it was opened, because its first request may be on its way, nor so soon after
/// its first answer: if many more senders wait than may connect, each connection then serves several requests. Otherwise,
/// almost every request would need a new connection.
pub(super) const NEWEST: Duration = Duration::from_millis(100);

/// How long a new connection waits for a connection of a tenant above its share, before it replaces a connection of
/// another tenant. Most answers take less time.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// For how long a sender is known. Most send every ten seconds or every minute.
const KNOWN_FOR: Duration = Duration::from_mins(2);

/// The rank of idle connections of known senders.
const KNOWN: u8 = 3;

/// Maximum number of candidates compared before one is closed.
const COMPARED: usize = 256;

/// Maximum number of connections visited once a candidate is found. Visiting all would cost more than serving a request.
const VISITED: usize = 1024;

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
    /// Where the next search for a connection to close begins.
    cursor: u64,
    /// The connections that searches have visited since one of them began with the first connection.
    visited: Senders,
    /// When a search last reached the last connection, and whether at least half of all were of known senders then.
    known_prevail: Option<(Instant, bool)>,
}

/// Numbers of connections.
#[derive(Debug, Default)]
struct Senders {
    known: usize,
    strangers: usize,
}

impl Senders {
    const fn count(&mut self, is_known: bool) {
        if is_known {
            self.known += 1;
        } else {
            self.strangers += 1;
        }
    }
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

/// What a search for a connection to close has found.
#[derive(Debug, Default)]
struct Search {
    /// True if there are candidates, even if none of them may be closed.
    found_any: bool,
    /// The candidate that comes first, with its rank.
    first: Option<Candidate>,
    /// The same for idle connections of known senders.
    first_known: Option<Candidate>,
    /// When the first of the candidates that are too young will be old enough.
    young_until: Option<Instant>,
}

/// The rank of a connection, since when it waits, and its number.
type Candidate = (u8, Instant, u64);

/// Place of an open connection. Dropping it makes room for another connection.
#[derive(Debug)]
pub(super) struct Place {
    all: Connections,
    number: u64,
    link: Arc<Link>,
}

#[derive(Debug)]
pub(super) struct Link {
    bytes_per_second: u64,
    state: Mutex<State>,
    /// Counts this connection until it makes room. It is locked while `state` is locked, never the other way round.
    shares: Arc<Mutex<Shares>>,
    closed: Notify,
    freed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Tenant of the latest request. `None` before the first request, and for new tenants.
    tenant: Option<TenantId>,
    since: Instant,
    /// When the first request on this connection was answered. Others may still be in progress.
    first_answered_at: Option<Instant>,
    /// True if the caller of a request was identified, or if the protocol has no callers.
    is_identified: bool,
    /// When points of existing series that this connection sent were last stored.
    stored_at: Option<Instant>,
    write_blocked_since: Option<Instant>,
    is_closed: bool,
    /// True if another connection may have this one's place.
    has_left: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No request is in progress, or its headers are still arriving.
    Idle,
    /// The request's body is arriving. `waits` is true while the server waits for the next bytes.
    Receiving {
        bytes: u64,
        waits: bool,
    },
    Answering,
}

/// The connection of a request. Each request carries it as an extension.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Link>);

/// Marks a connection as busy until it is dropped, after the whole answer was written.
#[derive(Debug)]
pub(super) struct Busy(Arc<Link>);

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
        let state = State {
            stage: Stage::Idle,
            tenant: None,
            since: now,
            first_answered_at: None,
            is_identified: false,
            stored_at: None,
            write_blocked_since: None,
            is_closed: false,
            has_left: false,
        };
        self.0.shares.lock().add(None);
        let link = Arc::new(Link {
            bytes_per_second: self.0.bytes_per_second,
            state: Mutex::new(state),
            shares: Arc::clone(&self.0.shares),
            closed: Notify::new(),
            freed: Arc::clone(&self.0.freed),
        });
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
    /// Closes the candidate that comes first by [`State::rank`].
    fn close_least_needed(&mut self, victims: Victims, now: Instant) -> Result<(), Full> {
        loop {
            let mut search = self.search(victims, now);
            if victims == Victims::AboveShare && !search.found_any {
                search = self.search(Victims::All, now);
            }
            let Some((.., number)) = search.first else {
                return Err(search.young_until.map_or(Full::Busy, Full::Until));
            };
            // if the chosen connection gets a request before it is closed, try the next one
            if self.links[&number].close(now) {
                self.links.remove(&number);
                return Ok(());
            }
        }
    }

    fn search(&mut self, victims: Victims, now: Instant) -> Search {
        let (mut search, mut compared, mut visited) = (Search::default(), 0, 0);
        let mut all = Senders::default();
        let mut is_whole = true;
        let from_cursor = self.links.range(self.cursor..).map(|(number, link)| (number, link, false));
        let from_first = self.links.range(..self.cursor).map(|(number, link)| (number, link, true));
        let mut has_wrapped = false;
        for (number, link, is_before) in from_cursor.chain(from_first) {
            if compared >= COMPARED || visited >= VISITED && search.found_any {
                (self.cursor, is_whole) = (*number, false);
                break;
            }
            visited += 1;
            let state = link.state.lock();
            let is_known = state.is_known(now);
            if is_before && !std::mem::replace(&mut has_wrapped, true) {
                let Senders { known, strangers } = std::mem::take(&mut self.visited);
                self.known_prevail = Some((now, known >= strangers));
            }
            self.visited.count(is_known);
            all.count(is_known);
            if !link.is_candidate(&state, victims) {
                continue;
            }
            search.found_any = true;
            if let Some((rank, since)) = state.rank(now, link.bytes_per_second) {
                let this = (rank, since, *number);
                let first = if rank == KNOWN { &mut search.first_known } else { &mut search.first };
                *first = Some(first.map_or(this, |other| other.min(this)));
                compared += usize::from(rank != KNOWN);
            } else if let Some(until) = state.young_until(now) {
                search.young_until = Some(search.young_until.map_or(until, |other| other.min(until)));
            }
        }
        if is_whole {
            self.known_prevail = Some((now, all.known >= all.strangers));
        }
        // a search that ended early may have visited connections of one kind only
        let lately = self.known_prevail.filter(|(at, _)| now.saturating_duration_since(*at) < KNOWN_FOR);
        if lately.is_some_and(|(_, known_prevail)| known_prevail) {
            search.first = search.first.into_iter().chain(search.first_known).min();
        }
        search
    }
}

impl Link {
    fn is_candidate(&self, state: &State, victims: Victims) -> bool {
        match victims {
            Victims::AboveShare => self.shares.lock().are_exceeded_by(&state.tenant),
            Victims::WithSeveral => self.shares.lock().has_several(&state.tenant),
            Victims::All => true,
        }
    }

    /// Closes the connection, unless a request has begun.
    fn close(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let closes = state.rank(now, self.bytes_per_second).is_some();
        if closes {
            state.is_closed = true;
            self.closed.notify_one();
            self.leave(&mut state);
        }
        closes
    }

    /// Removes this connection from the shares of its tenant.
    fn leave(&self, state: &mut State) {
        if !std::mem::replace(&mut state.has_left, true) {
            self.shares.lock().remove(state.tenant.as_ref());
        }
    }

    pub(super) fn begin(self: &Arc<Self>, has_body: bool) -> Busy {
        let stage = if has_body { Stage::Receiving { bytes: 0, waits: false } } else { Stage::Answering };
        self.state.lock().enter(stage, Instant::now());
        Busy(Arc::clone(self))
    }

    /// Records that `read` bytes of the body were read, or with `None`, that the next bytes have not arrived
    /// yet.
    pub(super) fn received(&self, read: Option<usize>) {
        if let Stage::Receiving { bytes, waits } = &mut self.state.lock().stage {
            *bytes += read.unwrap_or(0) as u64;
            *waits = read.is_none();
        }
    }

    /// Records that the body has ended, or that its remainder will not be read.
    pub(super) fn end_of_body(&self) {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Receiving { .. }) {
            state.enter(Stage::Answering, Instant::now());
        }
    }

    /// Records that a request was answered, while others may be in progress.
    pub(super) fn answered(&self) {
        self.state.lock().first_answered_at.get_or_insert_with(Instant::now);
    }

    /// Records that no request is being answered, but that the body of another one is still arriving.
    pub(super) fn receives_again(&self) {
        self.state.lock().enter(Stage::Receiving { bytes: 0, waits: true }, Instant::now());
    }

    /// Records the beginning, or the end, of a time in which a write is blocked because the client does not
    /// read.
    pub(super) fn write_blocked(&self, is_blocked: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.write_blocked_since = is_blocked.then_some(now);
        state.since = now;
    }

    /// Records that a caller was identified, or that this connection has a protocol without callers. While such a
    /// connection is busy, it stays open.
    pub(super) fn identified(&self) {
        self.state.lock().is_identified = true;
    }

    /// Records that points of existing series that this connection sent were stored.
    pub(super) fn stored(&self) {
        self.state.lock().stored_at = Some(Instant::now());
    }

    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl State {
    const fn enter(&mut self, stage: Stage, now: Instant) {
        self.stage = stage;
        self.since = now;
    }

    /// If this connection could be closed but for its age, returns when it will be old enough.
    fn young_until(&self, now: Instant) -> Option<Instant> {
        let from = match (self.stage, self.first_answered_at) {
            (Stage::Idle, Some(answered_at)) => answered_at,
            (Stage::Idle | Stage::Receiving { waits: true, .. }, None) => self.since,
            _ => return None,
        };
        let until = from + NEWEST;
        (!self.is_closed && self.write_blocked_since.is_none() && now < until).then_some(until)
    }

    fn is_known(&self, now: Instant) -> bool {
        self.stored_at.is_some_and(|at| now.saturating_duration_since(at) < KNOWN_FOR)
    }

    /// True if [`NEWEST`] has passed since the first answer.
    fn has_had_its_time(&self, now: Instant) -> bool {
        self.first_answered_at.is_some_and(|at| now.saturating_duration_since(at) >= NEWEST)
    }

    /// When the first request was answered, if that was [`PATIENCE`] ago and no caller was identified. `None` between requests,
    /// when any connection may be closed.
    fn is_strange_since(&self, now: Instant) -> Option<Instant> {
        let is_stranger = !self.is_identified && self.stage != Stage::Idle;
        let answered_at = self.first_answered_at.filter(|_| is_stranger)?;
        (now.saturating_duration_since(answered_at) >= PATIENCE).then_some(answered_at)
    }

    /// Says how soon this connection should make room: the lower its rank and the longer its wait, the
    /// sooner. `None` if it must stay open.
    fn rank(&self, now: Instant, bytes_per_second: u64) -> Option<(u8, Instant)> {
        let (since, is_first) = (self.since, self.first_answered_at.is_none());
        let waited = now.saturating_duration_since(since);
        let is_due =
            |bytes: u64| u128::from(bytes) * 1000 < waited.as_millis() * u128::from(bytes_per_second);
        if self.is_closed {
            return None;
        }
        if let Some(since) = self.is_strange_since(now) {
            return Some((0, since));
        }
        if let Some(since) = self.write_blocked_since {
            return (now.saturating_duration_since(since) >= PATIENCE).then_some((KNOWN + 1, since));
        }
        match self.stage {
            Stage::Answering | Stage::Receiving { waits: false, .. } => None,
            Stage::Receiving { bytes, .. } if waited >= PATIENCE && is_due(bytes) => Some((0, since)),
            Stage::Idle if is_first && waited >= PATIENCE => Some((0, since)),
            Stage::Idle if !is_first => {
                let rank = if self.is_known(now) { KNOWN } else { 1 };
                self.has_had_its_time(now).then_some((rank, since))
            }
            Stage::Idle | Stage::Receiving { .. } => (is_first && waited >= NEWEST).then_some((2, since)),
        }
    }
}

impl Connection {
    pub(super) const fn new(link: Arc<Link>) -> Self {
        Self(link)
    }

    /// Records the tenant of the connection's latest request, and the weight of its share. `None` if the
    /// tenant is new.
    pub(crate) fn serves(&self, tenant: Option<(TenantId, u64)>) {
        let mut state = self.0.state.lock();
        if !state.has_left {
            let mut shares = self.0.shares.lock();
            shares.remove(state.tenant.as_ref());
            shares.add(tenant.as_ref().map(|(tenant, weight)| (tenant, *weight)));
        }
        state.tenant = tenant.map(|(tenant, _)| tenant);
        state.is_identified = true;
    }

    /// Records that a caller without a tenant was identified.
    pub(crate) fn serves_operator(&self) {
        self.0.identified();
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

impl Drop for Busy {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        state.first_answered_at.get_or_insert(now);
        state.enter(Stage::Idle, now);
        let may_be_closed = state.has_had_its_time(now);
        drop(state);
        // otherwise, whoever waits would search again in vain; it also wakes up by itself
        if may_be_closed {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Victims::{AboveShare, WithSeveral};
    use super::*;

    impl Link {
        fn rank(&self, now: Instant) -> Option<(u8, Instant)> {
            self.state.lock().rank(now, self.bytes_per_second)
        }
    }

    fn connections(most: usize) -> Connections {
        Connections::new(most, 1000)
    }

    #[test]
    fn a_new_connection_has_time_to_send_a_request() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let connections = connections(2);
        let (first, second) =
            (connections.enter(AboveShare, now).unwrap(), connections.enter(AboveShare, after(5)).unwrap());
        assert_eq!(connections.enter(AboveShare, after(99)).unwrap_err(), Full::Until(after(100)));
        drop(second.share().begin(false));
        assert_eq!(
            (first.share().rank(after(110)).unwrap().0, second.share().rank(after(110)).unwrap().0),
            (2, 1)
        );
        assert_eq!(first.share().rank(after(1000)).unwrap().0, 0);
        let _third = connections.enter(AboveShare, after(110)).expect("the answered connection makes room");
        assert!(first.share().rank(after(110)).is_some() && second.share().rank(after(110)).is_none());
    }

    #[test]
    fn connections_of_a_burst_have_their_time_one_after_the_other() {
        let (connections, began) = (connections(10), Instant::now());
        let (mut now, mut places) = (began, Vec::new());
        while places.len() < 100 {
            match connections.enter(AboveShare, now) {
                Ok(place) => places.push(place),
                Err(Full::Until(at)) => now = at,
                Err(Full::Busy) => panic!("a place is free soon"),
            }
        }
        assert_eq!(now - began, NEWEST * 9);
    }

    #[test]
    fn a_tenant_with_many_connections_closes_its_own() {
        let connections = connections(10);
        let clock = std::cell::Cell::new(Instant::now());
        let enter = |tenant: &str| {
            clock.set(clock.get() + NEWEST);
            let place = connections.enter(AboveShare, clock.get()).unwrap();
            drop(place.share().begin(false));
            Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
            place
        };
        let quiet = [enter("quiet"), enter("quiet")];
        let mut flood: Vec<_> = (0..8).map(|_| enter("flood")).collect();
        flood.extend((0..100).map(|_| enter("flood")));
        assert!(quiet.iter().all(|place| !place.link.state.lock().is_closed));
        flood.extend((0..100).map(|_| enter("")));
        assert!(
            quiet.iter().all(|place| !place.link.state.lock().is_closed),
            "connections without a known tenant"
        );
        // all connections of the flood are now answering; its next connection waits, and displaces nobody
        // else
        let open: Vec<_> = flood.iter().filter(|place| !place.link.state.lock().is_closed).collect();
        let _requests: Vec<_> = open.iter().map(|place| place.share().begin(false)).collect();
        assert_eq!(connections.enter(AboveShare, clock.get() + NEWEST).unwrap_err(), Full::Busy);
    }

    /// Otherwise, almost every request of many senders would need a new connection.
    #[test]
    fn an_answered_connection_has_time_for_further_requests() {
        let (connections, now, mut until) = (connections(1), Instant::now(), None);
        let place = connections.enter(AboveShare, now).unwrap();
        for _ in 0..3 {
            let answering = place.share().begin(false);
            assert_eq!(connections.enter(AboveShare, now).unwrap_err(), Full::Busy);
            drop(answering);
            let Err(Full::Until(at)) = connections.enter(AboveShare, now) else { panic!("it has its time") };
            assert!(at >= now + NEWEST && *until.get_or_insert(at) == at, "counted from the first answer");
        }
        let _next = connections.enter(AboveShare, until.unwrap()).expect("its time is over");
    }

    #[test]
    fn slow_requests_of_one_tenant_do_not_lock_out_others() {
        let now = Instant::now();
        let connections = connections(10);
        let idle = |tenant: &str| {
            let place = connections.enter(AboveShare, now).unwrap();
            drop(place.share().begin(false));
            Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
            place
        };
        let other = [idle("other")];
        let quiet = [idle("quiet"), idle("quiet")];
        let slow: Vec<_> = (0..7).map(|_| idle("slow")).collect();
        let _answering: Vec<_> = slow.iter().map(|place| place.share().begin(false)).collect();
        assert_eq!(connections.enter(AboveShare, now).unwrap_err(), Full::Busy);
        let now = now + NEWEST * 2;
        let newcomer = connections.enter(WithSeveral, now).expect("a second connection makes room");
        let is_closed =
            |places: &[Place]| places.iter().filter(|place| place.link.state.lock().is_closed).count();
        assert_eq!((is_closed(&other), is_closed(&quiet), is_closed(&slow)), (0, 1, 0));
        let _request = newcomer.share().begin(false);
        assert_eq!(
            connections.enter(WithSeveral, now).unwrap_err(),
            Full::Busy,
            "each keeps its last connection"
        );
    }

    #[test]
    fn known_senders_are_kept_while_strangers_have_most_connections() {
        let connections = connections(4);
        let is_closed = |place: &Place| place.link.state.lock().is_closed;
        let enter = || connections.enter(AboveShare, Instant::now()).unwrap();
        let known = enter();
        drop(known.share().begin(false));
        known.share().stored();
        let strangers = [enter(), enter(), enter()];
        let mut busy: Vec<_> = strangers.iter().map(|place| place.share().begin(false)).collect();
        let soon = Instant::now() + NEWEST * 2;
        for victims in [AboveShare, WithSeveral] {
            assert_eq!(connections.enter(victims, soon).unwrap_err(), Full::Busy, "{victims:?}");
        }
        drop(busy.pop());
        let soon = Instant::now() + NEWEST * 2;
        let _next = connections.enter(AboveShare, soon).expect("the idle stranger makes room");
        assert!(is_closed(&strangers[2]) && !is_closed(&known), "the known sender has been idle for longer");
        let later = Instant::now() + KNOWN_FOR;
        let next = connections.enter(AboveShare, later).expect("a connection that never sent anything");
        let _busy = next.share().begin(false);
        let _last = connections.enter(AboveShare, later).expect("the sender is not known any more");
        assert!(is_closed(&known));
    }

    #[test]
    fn known_senders_replace_each_other() {
        let connections = connections(2);
        let enter = |at| {
            let place = connections.enter(AboveShare, at).unwrap();
            drop(place.share().begin(false));
            place.share().stored();
            place
        };
        let (first, second) = (enter(Instant::now()), enter(Instant::now()));
        let _third = enter(Instant::now() + NEWEST * 2);
        let is_closed = |place: &Place| place.link.state.lock().is_closed;
        assert!(is_closed(&first) && !is_closed(&second));
    }

    /// On a connection of HTTP/2, a request may always be in progress.
    #[test]
    fn a_busy_connection_is_protected_from_its_first_answer_on() {
        let connections = connections(1);
        let place = connections.enter(AboveShare, Instant::now()).unwrap();
        let link = place.share();
        Connection::new(place.share()).serves(TenantId::parse("a").ok().map(|tenant| (tenant, 1)));
        let _busy = link.begin(true);
        link.received(None);
        let soon = || Instant::now() + NEWEST;
        assert_eq!(link.rank(soon()).map(|(rank, _)| rank), Some(2), "no request was answered");
        link.answered();
        link.receives_again();
        assert_eq!(connections.enter(AboveShare, soon()).unwrap_err(), Full::Busy);
    }

    #[test]
    fn a_stranger_cannot_keep_its_place_with_requests_that_are_refused() {
        let connections = connections(2);
        let busy = |tenant: Option<&str>| {
            let place = connections.enter(AboveShare, Instant::now()).unwrap();
            let busy = place.share().begin(false);
            if let Some(tenant) = tenant {
                Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
            }
            place.share().answered();
            (place, busy)
        };
        let (stranger, sender) = (busy(None), busy(Some("a")));
        assert_eq!(connections.enter(AboveShare, Instant::now()).unwrap_err(), Full::Busy);
        let late = Instant::now() + PATIENCE;
        let _next = connections.enter(AboveShare, late).expect("the stranger makes room");
        assert!(stranger.0.link.state.lock().is_closed && !sender.0.link.state.lock().is_closed);
    }

    #[tokio::test]
    async fn a_connection_that_becomes_idle_wakes_who_waits_for_a_place() {
        let connections = connections(1);
        let place = connections.enter(AboveShare, Instant::now()).unwrap();
        place.link.state.lock().first_answered_at = Some(Instant::now() - NEWEST);
        let answering = place.share().begin(false);
        let far = Instant::now() + Duration::from_hours(1);
        tokio::join!(connections.wait(far), async { drop(answering) });
        connections.enter(AboveShare, Instant::now()).expect("the idle connection makes room");
    }

    #[tokio::test]
    async fn a_place_that_is_free_is_given_away_at_once() {
        let connections = connections(1);
        let place = connections.enter(AboveShare, Instant::now()).unwrap();
        let far = Instant::now() + Duration::from_hours(1);
        tokio::join!(connections.wait(far), async { drop(place) });
    }

    #[tokio::test]
    async fn the_longest_idle_makes_room_and_requests_stay() {
        let now = Instant::now();
        let at = |s| now + Duration::from_secs(s);
        let connections = connections(3);
        let busy = connections.enter(AboveShare, at(0)).unwrap();
        let request = busy.share().begin(false);
        let (older, newer) =
            (connections.enter(AboveShare, at(1)).unwrap(), connections.enter(AboveShare, at(2)).unwrap());
        let next = connections.enter(AboveShare, at(3)).expect("room is made");
        older.share().closed().await;
        assert_eq!(connections.count(), 3);
        drop(older);
        assert_eq!(connections.count(), 3, "its place was already taken over");
        let requests = [newer.share().begin(false), next.share().begin(false)];
        assert_eq!(
            connections.enter(AboveShare, at(4)).unwrap_err(),
            Full::Busy,
            "all requests are being answered"
        );
        drop(requests);
        next.share().write_blocked(true);
        newer.share().write_blocked(true);
        let soon = connections.enter(AboveShare, now + Duration::from_millis(900));
        assert_eq!(soon.unwrap_err(), Full::Busy, "both clients may continue to read soon");
        newer.share().write_blocked(false);
        let last = connections.enter(AboveShare, at(5)).expect("room is made");
        newer.share().closed().await;
        drop((request, busy, newer, next, last));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn bodies_that_do_not_come_make_room_before_connections_that_were_answered() {
        let connections = connections(3);
        let enter = || connections.enter(AboveShare, Instant::now()).unwrap();
        let (answered, stalled, steady) = (enter(), enter(), enter());
        drop(answered.share().begin(false));
        let _bodies = [stalled.share().begin(true), steady.share().begin(true)];
        let (is_late, is_later) = (Instant::now() + PATIENCE, Instant::now() + PATIENCE * 2);
        assert_eq!(stalled.share().rank(is_later), None, "the server is not reading the body");
        for body in [&stalled, &steady] {
            body.share().received(Some(1500));
            body.share().received(None);
        }
        assert_eq!(
            stalled.share().rank(is_late),
            Some((2, stalled.share().state.lock().since)),
            "1,500 bytes in a second"
        );
        steady.share().received(Some(10_000));
        steady.share().received(None);
        let rank = |place: &Place| place.share().rank(is_later).map(|(rank, _)| rank);
        assert_eq!((rank(&stalled), rank(&answered), rank(&steady)), (Some(0), Some(1), Some(2)));
        steady.share().end_of_body();
        assert_eq!(rank(&steady), None);
        let _new = connections.enter(AboveShare, is_later).unwrap();
        assert_eq!(rank(&stalled), None, "closed already");
        assert!(rank(&answered).is_some());
    }

    /// Many more connections than are compared. Each gets its turn, and only those of the tenant above its share.
    #[test]
    fn among_very_many_connections_the_search_goes_round() {
        const MOST: usize = 4 * COMPARED;
        let now = Instant::now();
        let connections = connections(MOST);
        let enter = |tenant: &str, at| {
            let place = connections.enter(AboveShare, at).unwrap();
            drop(place.share().begin(false));
            Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
            place
        };
        let is_closed = |place: &Place| place.link.state.lock().is_closed;
        let quiet: Vec<_> = (0..COMPARED).map(|_| enter("quiet", now)).collect();
        let flood: Vec<_> = (COMPARED..MOST).map(|_| enter("flood", now)).collect();
        let mut later: Vec<_> = (0..flood.len()).map(|_| enter("flood", now + NEWEST * 2)).collect();
        assert!(!quiet.iter().any(is_closed));
        let closed = flood.iter().chain(&later).filter(|place| is_closed(place)).count();
        assert_eq!((closed, connections.count()), (flood.len(), MOST));
        let shares = || connections.0.shares.lock().are_exceeded_by(&TenantId::parse("flood").ok());
        assert!(shares());
        later.clear();
        drop(flood);
        assert!(!shares() && connections.count() == COMPARED);
    }
}
