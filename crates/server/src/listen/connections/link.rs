//! What is known of an open connection, and how soon it should make room.

use super::Victims;
use admission::connections::Shares;
use model::TenantId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After this time, a client that has sent no request, sends too slowly, does not read, or was only refused may have to
/// make room for others.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A connection is not closed so soon after it was opened, because its first request may be on its way, nor so soon after
/// its first answer: if many more senders wait than may connect, each connection then serves several requests. Otherwise,
/// almost every request would need a new connection.
pub(in super::super) const NEWEST: Duration = Duration::from_millis(100);

/// For how long a sender is known. Most send every ten seconds or every minute.
pub(super) const KNOWN_FOR: Duration = Duration::from_mins(2);

/// The rank of idle connections of known senders.
pub(super) const KNOWN: u8 = 3;

#[derive(Debug)]
pub(in super::super) struct Link {
    pub(super) bytes_per_second: u64,
    pub(super) state: Mutex<State>,
    /// Counts this connection until it makes room. It is locked while `state` is locked, never the other way round.
    shares: Arc<Mutex<Shares>>,
    closed: Notify,
    freed: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    stage: Stage,
    /// Tenant of the latest request. `None` before the first request, and for new tenants.
    tenant: Option<TenantId>,
    pub(super) since: Instant,
    /// When the first request on this connection was answered. Others may still be in progress.
    pub(super) first_answered_at: Option<Instant>,
    /// True if the caller of a request was identified, or if the protocol has no callers.
    is_identified: bool,
    /// When points of existing series that this connection sent were last stored.
    stored_at: Option<Instant>,
    write_blocked_since: Option<Instant>,
    pub(super) is_closed: bool,
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
pub(in super::super) struct Busy(Arc<Link>);

impl Link {
    pub(super) fn new(
        bytes_per_second: u64,
        shares: &Arc<Mutex<Shares>>,
        freed: &Arc<Notify>,
        now: Instant,
    ) -> Self {
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
        Self {
            bytes_per_second,
            state: Mutex::new(state),
            shares: Arc::clone(shares),
            closed: Notify::new(),
            freed: Arc::clone(freed),
        }
    }

    pub(super) fn is_candidate(&self, state: &State, victims: Victims) -> bool {
        match victims {
            Victims::AboveShare => self.shares.lock().are_exceeded_by(&state.tenant),
            Victims::WithSeveral => self.shares.lock().has_several(&state.tenant),
            Victims::All => true,
        }
    }

    /// Closes the connection unless it must stay open.
    pub(super) fn close(&self, now: Instant) -> bool {
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
    pub(super) fn leave(&self, state: &mut State) {
        if !std::mem::replace(&mut state.has_left, true) {
            self.shares.lock().remove(state.tenant.as_ref());
        }
    }

    pub(in super::super) fn begin(self: &Arc<Self>, has_body: bool) -> Busy {
        let stage = if has_body { Stage::Receiving { bytes: 0, waits: false } } else { Stage::Answering };
        self.state.lock().enter(stage, Instant::now());
        Busy(Arc::clone(self))
    }

    /// Records that `read` bytes of the body were read, or with `None`, that the next bytes have not arrived
    /// yet.
    pub(in super::super) fn received(&self, read: Option<usize>) {
        if let Stage::Receiving { bytes, waits } = &mut self.state.lock().stage {
            *bytes += read.unwrap_or(0) as u64;
            *waits = read.is_none();
        }
    }

    /// Records that the body has ended, or that its remainder will not be read.
    pub(in super::super) fn end_of_body(&self) {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Receiving { .. }) {
            state.enter(Stage::Answering, Instant::now());
        }
    }

    /// Records that a request was answered, while others may be in progress.
    pub(in super::super) fn answered(&self) {
        self.state.lock().first_answered_at.get_or_insert_with(Instant::now);
    }

    /// Records that no request is being answered, but that the body of another one is still arriving.
    pub(in super::super) fn receives_again(&self) {
        self.state.lock().enter(Stage::Receiving { bytes: 0, waits: true }, Instant::now());
    }

    /// Records the beginning, or the end, of a time in which a write is blocked because the client does not
    /// read.
    pub(in super::super) fn write_blocked(&self, is_blocked: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.write_blocked_since = is_blocked.then_some(now);
        state.since = now;
    }

    /// Records that a caller was identified, or that the protocol has no callers. Otherwise, requests in progress may be
    /// cut off.
    pub(in super::super) fn identified(&self) {
        self.state.lock().is_identified = true;
    }

    /// Records that points of existing series that this connection sent were stored.
    pub(in super::super) fn stored(&self) {
        self.state.lock().stored_at = Some(Instant::now());
    }

    pub(in super::super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl State {
    const fn enter(&mut self, stage: Stage, now: Instant) {
        self.stage = stage;
        self.since = now;
    }

    /// If this connection could be closed but for its age, returns when it will be old enough.
    pub(super) fn young_until(&self, now: Instant) -> Option<Instant> {
        let from = match (self.stage, self.first_answered_at) {
            (Stage::Idle, Some(answered_at)) => answered_at,
            (Stage::Idle | Stage::Receiving { waits: true, .. }, None) => self.since,
            _ => return None,
        };
        let until = from + NEWEST;
        (!self.is_closed && self.write_blocked_since.is_none() && now < until).then_some(until)
    }

    pub(super) fn is_known(&self, now: Instant) -> bool {
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
    pub(super) fn rank(&self, now: Instant, bytes_per_second: u64) -> Option<(u8, Instant)> {
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
    pub(in super::super) const fn new(link: Arc<Link>) -> Self {
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
