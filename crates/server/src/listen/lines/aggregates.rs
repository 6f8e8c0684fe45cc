//! Writes the points that aggregation rules compute: one task for each tenant with outputs that are due.
//!
//! Computed points go through the same write path as received ones, so all limits apply: points of known
//! outputs are written again until they are durable, those of new outputs wait for the creation of their
//! series. While a tenant's points cannot be stored, only its own outputs wait.

use super::buffer::Body;
use super::connection::stopped;
use super::drops::{Drop, Drops, Reason};
use super::intake::{Intake, Protocol, Source};
use super::senders::Senders;
use super::ticket::Tickets;
use super::writer::{MEMORY_WAIT, Writer};
use crate::write_path::aggregator::Ended;
use crate::write_path::{self, Origin};
use model::{Principal, Rights, TenantId};
use parking_lot::Mutex;
use protocol::encode::graphite::PickleEncoder;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Reservation;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

/// Interval between checks for outputs that are due.
const POLL: Duration = Duration::from_millis(500);

/// Upper bound on the bytes of a pickled point besides its name, and of the pickle itself.
const POINT_BYTES: usize = 32;

/// Lower bound on the size limit of a body. Even with little memory, a body holds one point.
const BODY_BYTES_MIN: usize = 1 << 10;

/// Memory of gathered and encoded points, as a multiple of the length of a body.
const MEMORY_FACTOR: usize = 3;

#[derive(Debug)]
pub(super) struct Aggregates {
    context: Arc<write_path::Context>,
    intake: Arc<Intake>,
    /// Tenants whose outputs are being computed and written.
    running: Mutex<HashSet<TenantId>>,
    /// Notified when a round has ended.
    ended: Notify,
}

/// Guard of a tenant's round. At most one exists for each tenant: of two values for the same interval, the
/// one that was computed later must win.
pub(super) struct Running {
    aggregates: Arc<Aggregates>,
    tenant: TenantId,
}

impl std::ops::Drop for Running {
    fn drop(&mut self) {
        self.aggregates.running.lock().remove(&self.tenant);
        self.aggregates.ended.notify_waiters();
    }
}

impl Aggregates {
    pub(super) fn new(context: Arc<write_path::Context>, intake: Arc<Intake>) -> Self {
        let (running, ended) = (Mutex::default(), Notify::new());
        Self { context, intake, running, ended }
    }

    /// `None` if a round of the tenant is running.
    pub(super) fn begin(self: &Arc<Self>, tenant: &TenantId) -> Option<Running> {
        let is_first = self.running.lock().insert(tenant.clone());
        is_first.then(|| Running { aggregates: Arc::clone(self), tenant: tenant.clone() })
    }

    /// Waits until no other round of the tenant is running.
    async fn begin_after(self: &Arc<Self>, tenant: &TenantId) -> Running {
        loop {
            let ended = self.ended.notified(); // before looking, so that no notification is missed
            if let Some(running) = self.begin(tenant) {
                return running;
            }
            ended.await;
        }
    }

    /// Writes computed points until the server stops, then waits until points in flight are durable.
    pub(super) async fn serve(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut rounds = JoinSet::new();
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(_) = rounds.join_next(), if !rounds.is_empty() => continue,
                () = stopped(&mut stopping) => break,
            }
            self.intake.drops.log_due();
            let now_ms = self.now_ms();
            self.context.aggregator.adopt(&self.context.rules.current(), now_ms);
            for tenant in self.context.aggregator.due(now_ms) {
                if let Some(running) = self.begin(&tenant) {
                    let (this, round) = (Arc::clone(&self), self.new_round(tenant, now_ms, false));
                    rounds.spawn(async move {
                        this.write(round).await;
                        drop(running);
                    });
                }
            }
        }
        while rounds.join_next().await.is_some() {}
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.context.clock.now_ms()
    }

    /// Writes what had ended when the server began to stop, of all tenants side by side, because the points of some may have to
    /// wait. Later points were not read, so later intervals lack some. Counts what is not durable at `deadline` as dropped.
    pub(super) async fn finish(self: Arc<Self>, stopped_ms: i64, deadline: Instant) {
        self.context.aggregator.take_no_more();
        let mut rounds = JoinSet::new();
        for tenant in self.context.aggregator.tenants() {
            let (this, round) = (Arc::clone(&self), self.new_round(tenant, stopped_ms, true));
            rounds.spawn(async move {
                let running = this.begin_after(&round.tenant).await;
                this.write(round).await;
                drop(running);
            });
        }
        let all = async { while rounds.join_next().await.is_some() {} };
        if timeout_at(deadline, all).await.is_err() {
            tracing::warn!(tenants = rounds.len(), "stopping before all computed points are durable");
            rounds.shutdown().await;
        }
    }

    fn new_round(&self, tenant: TenantId, now_ms: i64, at_once: bool) -> Round {
        let mut round = Round::new(tenant, now_ms, at_once);
        round.lost = Some((Arc::clone(&self.context), Arc::clone(&self.intake.drops)));
        round
    }

    /// Computes the outputs of a tenant that are due, and writes their points. Returns once they are durable, or wait for the
    /// creation of their series.
    async fn write(&self, round: Round) {
        let (tickets, tenant) = (Tickets::new(), round.tenant.clone());
        let rights = Rights { read: false, write: true };
        let source = Source {
            protocol: Protocol::Pickles,
            principal: Principal { tenant: tenant.clone(), rights },
            has_many_tenants: false,
            is_in_lane: false,
            sender: None,
            ticket: tickets.ticket().clone(),
            origin: Origin::Aggregator,
        };
        let mut writer = Writer::new(&self.intake, source);
        let Some((_, mut round)) = self.compute(round, Round::compute_next).await else { return };
        while let Some(first) = &round.next {
            let (mut gathering, bytes_max) = self.memory(&tenant, least_bytes(first)).await;
            let gathered = self.compute(round, move |round, context| {
                round.gather(|round| round.compute_next(context), bytes_max)
            });
            let gathered = gathered.await;
            let Some((encoded, rest)) = gathered else { return };
            round = rest;
            if encoded.is_empty() {
                continue;
            }
            let memory = gathering.split(encoded.capacity() as u64);
            drop(gathering); // the body may have to wait for long
            let (since, arrived_ms) = (Instant::now(), self.intake.now_ms());
            let (bytes, senders) = (Arc::new(encoded), Senders::unknown());
            let body = Body { bytes, senders, since, arrived_ms, _memory: memory, _of_datagrams: None };
            round.passed_on();
            writer.write(body).await;
            round.are_in_flight(writer.in_flight());
        }
        writer.settled_all().await;
        round.are_in_flight(0);
    }

    /// Waits for the memory of a body, and returns it with the length that the body may have. The memory is of the
    /// tenant's part, because while the tenant is above a rate limit, its points wait, and their memory with them. The
    /// tenant's senders want the same memory, so the length is halved, down to `least_bytes`, as long as there is not
    /// enough.
    async fn memory(&self, tenant: &TenantId, least_bytes: usize) -> (Reservation, usize) {
        let least_bytes = least_bytes.max(BODY_BYTES_MIN);
        let mut bytes_max = self.intake.body_bytes(tenant).max(least_bytes);
        loop {
            match self.intake.unwritten_of(tenant).reserve((MEMORY_FACTOR * bytes_max) as u64) {
                Ok(memory) => return (memory, bytes_max),
                Err(refused) => {
                    self.intake.unfinished.make_room(tenant, &refused, Instant::now());
                    bytes_max = (bytes_max / 2).max(least_bytes);
                    sleep(MEMORY_WAIT).await;
                }
            }
        }
    }

    /// Computes on a blocking thread, because quantiles of many values take long. `None` if this panics.
    async fn compute<T: Send + 'static>(
        &self,
        mut round: Round,
        work: impl FnOnce(&mut Round, &write_path::Context) -> T + Send + 'static,
    ) -> Option<(T, Round)> {
        let context = Arc::clone(&self.context);
        let computed = tokio::task::spawn_blocking(move || (work(&mut round, &context), round));
        computed.await.inspect_err(|error| tracing::error!("computing series failed: {error}")).ok()
    }
}

/// Progress of one pass over the outputs of a tenant that are due.
struct Round {
    tenant: TenantId,
    now_ms: i64,
    at_once: bool,
    position: usize,
    /// Computed points that are in no body yet. `None` if nothing more is due.
    next: Option<Ended>,
    /// Number of points in the body that was gathered last, until it is passed on.
    gathered: u64,
    /// Numbers of points in the bodies that may not be durable yet.
    in_flight: VecDeque<u64>,
    /// What is lost is counted here when the round ends early.
    lost: Option<(Arc<write_path::Context>, Arc<Drops>)>,
}

impl Round {
    const fn new(tenant: TenantId, now_ms: i64, at_once: bool) -> Self {
        Self {
            tenant,
            now_ms,
            at_once,
            position: 0,
            next: None,
            gathered: 0,
            in_flight: VecDeque::new(),
            lost: None,
        }
    }

    /// The body that was gathered last belongs to the writer from now on.
    fn passed_on(&mut self) {
        self.in_flight.push_back(std::mem::take(&mut self.gathered));
    }

    /// All but the last `bodies` of those passed on are durable.
    fn are_in_flight(&mut self, bodies: usize) {
        self.in_flight.drain(..self.in_flight.len().saturating_sub(bodies));
    }

    fn compute_next(&mut self, context: &write_path::Context) {
        self.next =
            context.aggregator.next_ended(&self.tenant, &mut self.position, self.now_ms, self.at_once);
    }

    /// Computes the points of a body, and encodes them. The body has at least one point, even if it is longer than `bytes_max`.
    fn gather(&mut self, compute_next: impl Fn(&mut Self), bytes_max: usize) -> Vec<u8> {
        let (mut gathered, mut bytes) = (Vec::new(), 2 * POINT_BYTES);
        while let Some(mut ended) = self.next.take() {
            let point_bytes = ended.name.len() + POINT_BYTES;
            let room = bytes_max.saturating_sub(bytes) / point_bytes;
            let room = room.max(usize::from(gathered.is_empty())); // a body has at least one point
            let rest = ended.points.split_off(room.min(ended.points.len()));
            bytes += ended.points.len() * point_bytes;
            if !rest.is_empty() {
                self.next = Some(Ended { name: ended.name.clone(), points: rest });
                gathered.push(ended);
                break;
            }
            gathered.push(ended);
            compute_next(self);
        }
        self.gathered = gathered.iter().map(|ended| ended.points.len() as u64).sum();
        encode(&gathered, bytes)
    }
}

/// A round ends early because the server stops. Then its points are lost, and if it is the last one of the tenant, also those that it
/// has not computed.
impl std::ops::Drop for Round {
    fn drop(&mut self) {
        let Some((context, drops)) = &self.lost else { return };
        let next = self.next.as_ref().map_or(0, |next| next.points.len() as u64);
        let left = if self.at_once { context.aggregator.left(&self.tenant) } else { 0 };
        let points = next + self.gathered + self.in_flight.iter().sum::<u64>() + left;
        if points > 0 && !std::thread::panicking() {
            let (reason, tenant) = (Reason::Stopping, &self.tenant);
            let message = format_args!("the server stopped before these computed points were durable");
            drops.add(&Drop { reason, tenant, points, message, series: "", sender: None });
        }
    }
}

/// Bytes of a body with only the first point.
const fn least_bytes(ended: &Ended) -> usize {
    ended.name.len() + 3 * POINT_BYTES
}

fn encode(gathered: &[Ended], bytes: usize) -> Vec<u8> {
    if gathered.iter().all(|ended| ended.points.is_empty()) {
        return Vec::new();
    }
    let mut encoded = Vec::with_capacity(bytes);
    let mut pickle = PickleEncoder::new(&mut encoded);
    for Ended { name, points } in gathered {
        for (at_ms, value) in points {
            pickle.point(&[name], *value, at_ms / 1000);
        }
    }
    pickle.finish();
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_bytes_that_were_computed_for_it() {
        let ended = |name: &str, points: usize| Ended {
            name: name.into(),
            points: (0..points).map(|i| (i as i64 * 60_000, i as f64)).collect(),
        };
        for gathered in [vec![ended("a", 1)], vec![ended("a.b;c=d", 300), ended(&"x".repeat(9999), 7)]] {
            let points =
                gathered.iter().map(|e| e.points.len() * (e.name.len() + POINT_BYTES)).sum::<usize>();
            let bytes = 2 * POINT_BYTES + points;
            let encoded = encode(&gathered, bytes);
            assert!(encoded.len() <= bytes, "{} of {bytes}", encoded.len());
            assert_eq!(protocol::graphite::count_frames(&encoded), 1);
        }
        assert!(encode(&[ended("a", 0)], 64).is_empty());
        // whatever memory there is, a body has at least one point
        let long = ended(&"x".repeat(60_000), 9);
        let mut round = Round::new(TenantId::anonymous(), 0, true);
        let least = least_bytes(&long);
        round.next = Some(long);
        let encoded = round.gather(|_| panic!("the first output has points left"), least);
        assert!(!encoded.is_empty() && encoded.capacity() <= least && round.gathered == 1);
        assert_eq!(round.next.as_ref().map(|rest| rest.points.len()), Some(8));
    }
}
