//! Writes the points that aggregation rules compute: one task for each tenant with outputs that are due.
//!
//! A computed point takes the same way as a received one, so all limits apply: points of known outputs are written again
//! until they are durable, those of new outputs wait for the creation of their series. While a tenant's points cannot be
//! stored, only its own outputs wait.

use super::buffer::Body;
use super::connection::stopped;
use super::drops::{Drop, Drops, Reason};
use super::intake::{Intake, Protocol, Source};
use super::ticket::Tickets;
use super::writer::{MEMORY_WAIT, Writer};
use crate::write_path::aggregator::Ended;
use crate::write_path::{self, Origin};
use model::{Principal, Rights, TenantId};
use protocol::encode::graphite::PickleEncoder;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Reservation;
use tokio::sync::watch;
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
}

impl Aggregates {
    pub(super) const fn new(context: Arc<write_path::Context>, intake: Arc<Intake>) -> Self {
        Self { context, intake }
    }

    /// Writes computed points until the server stops, then waits until points in flight are durable.
    pub(super) async fn serve(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut rounds = JoinSet::new();
        let mut busy = HashMap::new();
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(ended) = rounds.join_next_with_id(), if !rounds.is_empty() => {
                    busy.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
                    continue;
                }
                () = stopped(&mut stopping) => break,
            }
            let now_ms = self.now_ms();
            self.context.aggregator.adopt(&self.context.rules.current(), now_ms);
            let running: HashSet<TenantId> = busy.values().cloned().collect();
            for tenant in self.context.aggregator.due(now_ms) {
                if !running.contains(&tenant) {
                    let round = Arc::clone(&self).round(tenant.clone(), now_ms, false);
                    busy.insert(rounds.spawn(round).id(), tenant);
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
            rounds.spawn(Arc::clone(&self).round(tenant, stopped_ms, true));
        }
        let all = async { while rounds.join_next().await.is_some() {} };
        if timeout_at(deadline, all).await.is_ok() {
            return;
        }
        tracing::warn!(tenants = rounds.len(), "stopping before all computed points are durable");
        rounds.shutdown().await;
        for tenant in self.context.aggregator.tenants() {
            let points = self.context.aggregator.left(&tenant);
            dropped(&self.intake.drops, &tenant, points);
        }
    }

    /// Computes the outputs of a tenant that are due, and writes their points. Returns once they are durable, or wait for the
    /// creation of their series.
    async fn round(self: Arc<Self>, tenant: TenantId, now_ms: i64, at_once: bool) {
        let tickets = Tickets::new();
        let rights = Rights { read: false, write: true };
        let source = Source {
            protocol: Protocol::Pickles,
            principal: Principal { tenant: tenant.clone(), rights },
            has_many_tenants: false,
            sender: None,
            ticket: tickets.ticket().clone(),
            origin: Origin::Aggregator,
        };
        let mut writer = Writer::new(&self.intake, source);
        let drops = Arc::clone(&self.intake.drops);
        let mut unwritten = Unwritten { drops, tenant: tenant.clone(), points: 0 };
        let round = Round { tenant: tenant.clone(), now_ms, at_once, position: 0, next: None };
        let Some((_, mut round)) = self.compute(round, Round::compute_next).await else { return };
        while let Some(first) = &round.next {
            let (mut gathering, bytes_max) = self.memory(&tenant, least_bytes(first)).await;
            let gathered = self.compute(round, move |round, context| {
                round.gather(|round| round.compute_next(context), bytes_max)
            });
            let gathered = gathered.await;
            let Some(((encoded, points), rest)) = gathered else { break };
            round = rest;
            if encoded.is_empty() {
                continue;
            }
            let memory = gathering.split(encoded.capacity() as u64);
            drop(gathering); // the body may have to wait for long
            let (since, arrived_ms) = (Instant::now(), self.intake.now_ms());
            let body =
                Body { bytes: Arc::new(encoded), since, arrived_ms, _memory: memory, _of_datagrams: None };
            unwritten.points += points;
            writer.write(body).await;
            if writer.is_idle() {
                unwritten.points = 0;
            }
        }
        writer.settled_all().await;
        unwritten.points = 0;
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

/// The outputs of a tenant that are due, one after the other.
struct Round {
    tenant: TenantId,
    now_ms: i64,
    at_once: bool,
    position: usize,
    /// Computed points that are in no body yet. `None` if nothing more is due.
    next: Option<Ended>,
}

impl Round {
    fn compute_next(&mut self, context: &write_path::Context) {
        self.next =
            context.aggregator.next_ended(&self.tenant, &mut self.position, self.now_ms, self.at_once);
    }

    /// Computes the points of a body, and encodes them. Also returns their number. The body has at least one point, even if it is
    /// longer than `bytes_max`.
    fn gather(&mut self, compute_next: impl Fn(&mut Self), bytes_max: usize) -> (Vec<u8>, u64) {
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
        let points = gathered.iter().map(|ended| ended.points.len() as u64).sum();
        (encode(&gathered, bytes), points)
    }
}

/// Computed points of a round that may not be durable yet. When the round ends before they are, because the server stops, they
/// are counted as dropped.
struct Unwritten {
    drops: Arc<Drops>,
    tenant: TenantId,
    points: u64,
}

impl std::ops::Drop for Unwritten {
    fn drop(&mut self) {
        dropped(&self.drops, &self.tenant, self.points);
    }
}

/// Counts computed points that are lost because the server stops.
fn dropped(drops: &Drops, tenant: &TenantId, points: u64) {
    if points > 0 {
        let (reason, message) =
            (Reason::Stopping, "the server stopped before these computed points were durable");
        drops.add(&Drop { reason, tenant, points, message, series: "", sender: None });
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
        let mut round =
            Round { tenant: TenantId::anonymous(), now_ms: 0, at_once: true, position: 0, next: None };
        let least = least_bytes(&long);
        round.next = Some(long);
        let (encoded, points) = round.gather(|_| panic!("the first output has points left"), least);
        assert!(!encoded.is_empty() && encoded.capacity() <= least && points == 1);
        assert_eq!(round.next.map(|rest| rest.points.len()), Some(8));
    }
}
