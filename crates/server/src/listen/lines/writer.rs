//! Passes the bodies of one sender to the write path, in order. A few of them may be in flight at a time.
//!
//! Of two values for the same time, the later must win. So when a body is refused, nothing else of the sender is accepted
//! until this body is stored, and the bodies after it, which may be stored already, are stored again, in order.
//!
//! With the setting `graphite_tenant_from_path`, a body is divided by tenants first: the first part of each path names
//! the tenant, and is removed. If the rules for a tenant's points take long, its later points wait in a lane of their own, so
//! that the other tenants of the connection do not wait ([`lanes`](super::lanes)).

use super::allowance::Allowance;
use super::buffer::Body;
use super::creation::Creation;
use super::drops::{Drop, Reason};
use super::intake::{Attempts, First, Intake, Late, OF_REQUESTS, Source};
use super::lanes::Lanes;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::write_path::internal;
use crate::write_path::known::{Refused, Sent};
use model::{Principal, Rights, TenantId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Reservation;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep};

/// Memory is reserved for this many tenants at a time. Most bodies name one or a few.
const TENANTS_STEP: usize = 16;

/// Memory per tenant besides the text of its lines, which may take far less.
const TENANT_BYTES: usize = 160;

/// While they grow, the vectors of lines take up to twice the bytes of the lines.
const GROWTH: usize = 2;

/// Smallest part into which lines are divided while memory is short, because each part is a request.
const PART_BYTES_MIN: usize = 4 << 10;

/// Limit on the bodies of a sender that are not durable yet.
const BODIES_MAX: usize = 4;

/// Wait before the next attempt, if there is no memory.
pub(super) const MEMORY_WAIT: Duration = Duration::from_millis(50);

/// Budget of waits for memory and request slots that other requests of a tenant hold, of which a body uses at most half.
/// Without this wait, a short peak of load would drop points of connections with many tenants. As one tenant must not stop
/// the others, these waits take at most
/// 1/`OWN_WAIT_PART` of the time.
const OWN_WAIT: Duration = Duration::from_millis(100);
const OWN_WAIT_PART: u32 = 8;
const OWN_POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) intake: Arc<Intake>,
    pub(super) source: Source,
    /// Bodies in flight, in the order in which they were sent.
    bodies: VecDeque<Sending>,
    /// Limits the waits for queued points, for all tenants of the sender together: many may have points that cannot be stored.
    catch_up: Allowance,
    /// Limits the waits for what other requests of a tenant hold, for all tenants of the sender together.
    own_wait: Allowance,
    /// Bodies of tenants whose rules take long, if the sender's points belong to many tenants.
    lanes: Lanes,
}

#[derive(Debug)]
struct Sending {
    source: Source,
    body: Body,
    attempts: Attempts,
    settled: JoinHandle<Settled>,
}

/// Whether the points of a body are durable.
type Settled = Result<Outcome, Refused>;

/// The lines of a body that belong to one tenant.
type Lines = Vec<u8>;

impl Writer {
    pub(super) fn new(intake: &Arc<Intake>, source: Source) -> Self {
        let intake = Arc::clone(intake);
        let (catch_up, own_wait) = (Creation::catch_up_allowance(), Allowance::new(OWN_WAIT, OWN_WAIT_PART));
        let (bodies, lanes) = (VecDeque::new(), Lanes::default());
        Self { intake, source, bodies, catch_up, own_wait, lanes }
    }

    /// True if everything that was written is durable.
    pub(super) fn is_idle(&self) -> bool {
        self.bodies.is_empty() && self.lanes.are_idle()
    }

    /// True if [`Self::oldest_settled`] may be called.
    pub(super) fn has_bodies(&self) -> bool {
        !self.bodies.is_empty()
    }

    /// Waits until the oldest body is stored or refused. The result must be passed to [`Self::finish`]. There must be a
    /// body. Nothing is lost if the future is dropped.
    pub(super) async fn oldest_settled(&mut self) -> Settled {
        let oldest = self.bodies.front_mut().expect("BUG: no body is in flight");
        match (&mut oldest.settled).await {
            Ok(settled) => settled,
            Err(error) => Err(internal(format!("writing failed: {error}")).into()),
        }
    }

    /// Finishes the oldest body. If it was refused, this writes it again and waits until it is stored.
    pub(super) async fn finish(&mut self, settled: Settled) {
        let Some(Sending { source, body, mut attempts, .. }) = self.bodies.pop_front() else { return };
        let late = match settled {
            Ok(outcome) => self.intake.stored(&source, &body, outcome).await,
            Err(refused) => self.intake.retry(&source, &body, &mut attempts, refused).await,
        };
        if late > Late::None {
            self.write_all_again(&source.principal.tenant, late).await;
        }
    }

    /// Writes again those bodies of a tenant that are in flight, because points of a body before them may have been stored or queued
    /// only now. Bodies of other tenants have other series. They may be stored already, and a second attempt could be refused.
    async fn write_all_again(&mut self, tenant: &TenantId, mut late: Late) {
        let mut others = VecDeque::new();
        while let Some(sending) = self.bodies.pop_front() {
            if sending.source.principal.tenant != *tenant {
                others.push_back(sending);
                continue;
            }
            let Sending { source, body, mut attempts, settled } = sending;
            let first = settled.await; // otherwise, the first attempt could end after the second one
            if late == Late::Queued {
                attempts.forget_queued();
            }
            let again = match (self.intake.write_again(&source, &body, &mut attempts).await, first) {
                (Ok(outcome), first) => {
                    drop(first); // its memory may be needed
                    self.intake.stored(&source, &body, outcome).await
                }
                // the body is durable already, so it must not be dropped, although its points may not be in order
                (Err(again), Ok(Ok(outcome))) if source.gives_up(&again.unwritten.refusal) => {
                    self.intake.stored(&source, &body, outcome).await
                }
                (Err(mut again), first) => {
                    if let Ok(first) = first {
                        again.add_earlier(first);
                    }
                    self.intake.retry(&source, &body, &mut attempts, again).await
                }
            };
            late = late.max(again);
        }
        self.bodies = others;
    }

    /// Number of bodies that may not be durable yet, besides those in lanes.
    pub(super) fn in_flight(&self) -> usize {
        self.bodies.len()
    }

    pub(super) async fn settled_all(&mut self) {
        self.settled_bodies().await;
        self.lanes.ended().await;
    }

    /// Returns once all bodies that are not in lanes are stored or dropped.
    pub(super) async fn settled_bodies(&mut self) {
        while self.has_bodies() {
            let settled = self.oldest_settled().await;
            self.finish(settled).await;
        }
    }

    /// Submits a body. Waits while too many bodies are in flight, or while points of known series cannot be stored.
    pub(super) async fn write(&mut self, body: Body) {
        if !self.source.has_many_tenants {
            return self.write_in_order(self.source.clone(), body, Attempts::default()).await;
        }
        let Body { bytes, senders, since, arrived_ms, _memory: mut held, _of_datagrams: mut of_datagrams } =
            body;
        let senders = senders.in_any_order();
        // gives back the buffer's spare memory, which the copies of the lines may need
        drop(held.split(held.bytes().saturating_sub(bytes.capacity() as u64)));
        self.lanes.tidy();
        let (mut rest, mut wrong) = (&bytes[..], 0);
        while !rest.is_empty() {
            let (mut some, mut memory) = self.room(rest).await;
            rest = &rest[some.len()..];
            while !some.is_empty() {
                for (tenant, lines) in divide(&mut some, &mut wrong, &mut memory) {
                    // there may be thousands of tenants, and those that are refused make nothing wait
                    consume_budget().await;
                    let rights = Rights { read: false, write: self.intake.may_write(&tenant) };
                    let source = Source { principal: Principal { tenant, rights }, ..self.source.clone() };
                    let memory = memory.split(lines.len() as u64);
                    let part = of_datagrams.as_mut().map(|of| of.split(of.bytes().min(lines.len() as u64)));
                    let bytes = Arc::new(lines);
                    let senders = senders.clone();
                    let body =
                        Body { bytes, senders, since, arrived_ms, _memory: memory, _of_datagrams: part };
                    if let Some(body) = self.lanes.push(&self.intake, &source, body) {
                        self.write_for(source, body).await;
                    }
                }
            }
        }
        if wrong > 0 {
            let Source { principal: Principal { tenant, .. }, sender, .. } = &self.source;
            // not what was sent: readers of the address's tenant must not see what another one has sent
            let message = format_args!(
                "the path does not begin with the name of a tenant and a dot (setting graphite_tenant_from_path)"
            );
            let (reason, sender) = (Reason::Malformed, sender.or_else(|| senders.only()));
            self.intake.drops.add(&Drop { reason, tenant, points: wrong, message, series: "", sender });
        }
    }

    /// Submits a body of one of many tenants. If its rules take long, it is written in a lane.
    async fn write_for(&mut self, source: Source, body: Body) {
        let mut attempts = Attempts::default();
        match self.send(&source, &body, &mut attempts).await {
            // not in a lane, which may drop points: after a restart, this is the first body of each tenant
            Ok(First::Later(later)) if !later.are_of_tenant => {
                let sent = self.intake.go_on(&source, &mut attempts, later).await;
                return self.sent(source, body, attempts, sent).await;
            }
            // nothing of it may be held while other bodies are waited for: their retries may need the memory
            Ok(First::Later(later)) => drop(later),
            Ok(First::Sent(sent)) => return self.sent(source, body, attempts, Ok(*sent)).await,
            Err(refusal) => return self.sent(source, body, attempts, Err(refusal)).await,
        }
        let Some((body, memory)) = Lanes::room(&self.intake, &source, body) else { return };
        // the tenant's earlier points must be stored before those in the lane
        self.settled_bodies().await;
        let writer = Self::new(&self.intake, Source { is_in_lane: true, ..source });
        self.lanes.open(writer, body, attempts, memory);
    }

    /// Submits a body. Waits for its rules, too.
    pub(super) async fn write_in_order(&mut self, source: Source, body: Body, mut attempts: Attempts) {
        // waiting stops no other tenant, so each body may wait anew
        (self.catch_up, self.own_wait) =
            (Creation::catch_up_allowance(), Allowance::new(OWN_WAIT, OWN_WAIT_PART));
        let sent = match self.send(&source, &body, &mut attempts).await {
            Ok(First::Later(later)) => self.intake.go_on(&source, &mut attempts, later).await,
            Ok(First::Sent(sent)) => Ok(*sent),
            Err(refusal) => Err(refusal),
        };
        self.sent(source, body, attempts, sent).await;
    }

    /// Decodes a body. If requests in progress hold what it needs, tries again: first once the bodies in flight are settled,
    /// then for half of what is left of [`OWN_WAIT`]. The other half is for other tenants.
    async fn send(
        &mut self,
        source: &Source,
        body: &Body,
        attempts: &mut Attempts,
    ) -> Result<First, Refusal> {
        let rest = OWN_POLL.max(self.own_wait.left(Instant::now()) / 2);
        let mut waits_since = None;
        loop {
            let sent = self.send_once(source, body, attempts).await;
            let now = Instant::now();
            if let Some(since) = waits_since.replace(now) {
                self.own_wait.take(now.duration_since(since), now);
            }
            match &sent {
                Err(refusal) if OF_REQUESTS.contains(&refusal.reason) && refusal.is_temporary() => {
                    if self.has_bodies() {
                        self.settled_bodies().await;
                        waits_since = None;
                    } else if refusal.is_of_tenant && self.own_wait.left(now) >= rest {
                        sleep(OWN_POLL).await;
                    } else {
                        return sent;
                    }
                }
                _ => return sent,
            }
        }
    }

    /// Waits while too many bodies are in flight, then decodes one.
    async fn send_once(
        &mut self,
        source: &Source,
        body: &Body,
        attempts: &mut Attempts,
    ) -> Result<First, Refusal> {
        while self.bodies.len() >= BODIES_MAX
            || self.bodies.front().is_some_and(|oldest| oldest.settled.is_finished())
        {
            let settled = self.oldest_settled().await;
            self.finish(settled).await;
        }
        self.intake.send(source, body, attempts, &mut self.catch_up).await
    }

    async fn sent(
        &mut self,
        source: Source,
        body: Body,
        mut attempts: Attempts,
        sent: Result<Sent, Refusal>,
    ) {
        let intake = Arc::clone(&self.intake);
        match sent {
            Ok(sent) => {
                let settled = tokio::spawn(async move { intake.settle(sent).await });
                self.bodies.push_back(Sending { source, body, attempts, settled });
            }
            Err(refusal) => {
                self.settled_bodies().await;
                intake.retry(&source, &body, &mut attempts, refusal.into()).await;
            }
        }
    }

    /// Waits for memory to divide lines. Returns the lines for which there is memory, which may be the first of them only: if several
    /// senders waited for memory for all their lines, they could block each other. The memory is that of all tenants, because
    /// the sender's tenant may have used its part for bodies that wait for this.
    async fn room<'a>(&mut self, lines: &'a [u8]) -> (&'a [u8], Reservation) {
        let mut some = lines;
        loop {
            let bytes = GROWTH * some.len() + TENANTS_STEP * TENANT_BYTES;
            if let Ok(memory) = self.intake.unwritten.reserve(bytes as u64) {
                return (some, memory);
            }
            if self.has_bodies() {
                let settled = self.oldest_settled().await;
                self.finish(settled).await; // gives its memory back
            } else {
                self.intake.unfinished.close_most_overdue(Instant::now());
                sleep(MEMORY_WAIT).await;
            }
            if some.len() >= 2 * PART_BYTES_MIN {
                some = first_half(some).unwrap_or(some);
            }
        }
    }
}

/// About half of the lines, or the first one. `None` if there is only one.
fn first_half(lines: &[u8]) -> Option<&[u8]> {
    let is_end = |byte: &u8| *byte == b'\n';
    let (first, second) = lines.split_at(lines.len() / 2);
    let last = first.iter().rposition(is_end);
    let last = last.or_else(|| second.iter().position(is_end).map(|position| first.len() + position))?;
    Some(&lines[..=last]).filter(|half| half.len() < lines.len())
}

/// Divides lines by tenants. Stops early, at a line of a further tenant, only if there is no memory for more tenants. Adds the
/// number of lines without a tenant to `wrong`. `memory` must have room for the lines and for a tenant.
fn divide(rest: &mut &[u8], wrong: &mut u64, memory: &mut Reservation) -> Vec<(TenantId, Lines)> {
    let mut by_name: BTreeMap<&[u8], (TenantId, Lines)> = BTreeMap::new();
    let bytes = *rest;
    let room = memory.bytes() as usize - GROWTH * bytes.len();
    let mut tenants_max = room / TENANT_BYTES;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match split_tenant(line) {
            Some((name, text)) => match by_name.get_mut(name) {
                Some((_, lines)) => lines.extend_from_slice(text),
                None => match std::str::from_utf8(name).ok().and_then(|name| TenantId::parse(name).ok()) {
                    Some(tenant) => {
                        if by_name.len() == tenants_max {
                            let more = (TENANTS_STEP * TENANT_BYTES) as u64;
                            match memory.resize(memory.bytes() + more) {
                                Ok(()) => tenants_max += TENANTS_STEP,
                                Err(_) => break,
                            }
                        }
                        by_name.insert(name, (tenant, text.to_vec()));
                    }
                    None => *wrong += u64::from(line.ends_with(b"\n")),
                },
            },
            None => *wrong += u64::from(!line.trim_ascii().is_empty()),
        }
        *rest = &rest[line.len()..];
    }
    let mut divided: Vec<_> = by_name.into_values().collect();
    divided.iter_mut().for_each(|(_, lines)| lines.shrink_to_fit()); // only their length is reserved from now on
    divided
}

/// Splits the name of the tenant off a line.
fn split_tenant(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|byte| matches!(byte, b'.' | b';' | b' ' | b'\t'))?;
    let (name, rest) = line.split_at(end);
    Some((name, rest.strip_prefix(b".")?)).filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests;
