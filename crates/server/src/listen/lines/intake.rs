//! Passes bodies to the write path, and retries until their points of known series are durable.
//!
//! ```text
//!   body ─▶ send ─┬─ new series ───▶ queue ─▶ creation
//!             ▲   └─ known series ─▶ settle ─┬─ stored
//!             │                              ├─ try later ──▶ wait ─┐
//!             └──────────────────────────────┼──────────────────────┘
//!                                            └─ never ──────▶ dropped, counted
//! ```

use super::allowance::Allowance;
use super::buffer::{BODY_BYTES, Body};
use super::creation::Creation;
use super::drops::{Drop, Drops, Reason};
use super::new_series_queue::Expected;
use super::telemetry::Metrics;
use super::ticket::Ticket;
use super::unfinished::Unfinished;
use super::writer::MEMORY_WAIT;
use crate::limits::fair_permits::FairPermits;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::write_path::aggregator::{Contributions, GivenBack};
use crate::write_path::known::{Begun, BodyStream, Earlier, Later, NewSamples, Refused, Sent, Times, send};
use crate::write_path::{self, Decoders, Origin, Unwritten};
use model::{ErrorKind, Principal, SeriesRefusal, TenantId};
use protocol::graphite::{self, Format, LINE_BYTES_MAX, TimeOfArrival};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Account;

/// Pause after a refusal without `retry_after`.
const RETRY_WAIT: Duration = Duration::from_secs(3);

/// Bodies of lines may take 1/`PERMITS_PART` of the write requests that may be in progress.
const PERMITS_PART: usize = 2;

#[derive(Debug)]
pub(super) struct Intake {
    context: Arc<write_path::Context>,
    /// Account of bytes that were read and are not durable yet.
    pub(super) unwritten: Account,
    pub(super) unfinished: Arc<Unfinished>,
    lines: Arc<Decoders<graphite::Decoder>>,
    pickles: Arc<Decoders<graphite::pickle::Decoder>>,
    protobufs: Arc<Decoders<graphite::protobuf::Decoder>>,
    /// Bodies beyond this number wait for their turn, instead of being refused.
    permits: FairPermits<TenantId>,
    creation: Arc<Creation>,
    pub(super) drops: Arc<Drops>,
    pub(super) metrics: Arc<Metrics>,
}

/// How the points of a body are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Lines,
    /// Length-prefixed pickles.
    Pickles,
    /// Length-prefixed messages `Payload`.
    Protobufs,
}

/// Number of messages in a body: its lines, or its frames.
pub(super) fn messages(protocol: Protocol, bytes: &[u8]) -> u64 {
    match protocol {
        Protocol::Lines => bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
        Protocol::Pickles | Protocol::Protobufs => graphite::count_frames(bytes) as u64,
    }
}

/// What earlier attempts to write a body have done.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Points of new series that each attempt has queued, or dropped because there was no room.
    queued: Vec<Times>,
    earlier: Earlier,
    /// True if computed series have no value of the body's intervals.
    is_left_out: bool,
}

/// A body that was decoded.
pub(super) enum First {
    /// Its points of known series are on their way, the others are queued.
    Sent(Box<Sent>),
    /// Its rules take long.
    Later(Later),
}

/// Where points come from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) protocol: Protocol,
    pub(super) principal: Principal,
    /// True if the sender's points belong to many tenants, of which `principal` is one.
    pub(super) has_many_tenants: bool,
    /// True in a lane, where waiting stops only the points of `principal`.
    pub(super) is_in_lane: bool,
    pub(super) sender: Option<IpAddr>,
    pub(super) ticket: Ticket,
    pub(super) origin: Origin,
}

/// Reasons of refusals that last until requests in progress end, which may be other bodies of the same sender.
pub(super) const OF_REQUESTS: [&str; 3] = ["concurrent_writes", "inflight_requests", "memory"];

/// Whether points of a body may have been stored after those of later bodies. If so, the later bodies are
/// written again, so that their values win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Late {
    None,
    /// They may have been stored only now.
    Stored,
    /// They wait in the queue of new series.
    Queued,
}

/// What to do after a refusal.
enum Next {
    Retry(Duration),
    GiveUp,
}

impl Source {
    /// True if a body is dropped after this refusal, instead of being kept until it can be stored.
    pub(super) fn gives_up(&self, refusal: &Refusal) -> bool {
        matches!(next(refusal, self.has_many_tenants, self.is_in_lane), Next::GiveUp)
    }
}

impl Attempts {
    /// Makes the next attempt queue all points of new series again, behind those queued meanwhile.
    pub(super) fn forget_queued(&mut self) {
        self.queued.clear();
    }

    fn leave_out_queued(&self, new: &mut NewSamples) {
        if !self.queued.is_empty() {
            new.leave_out(|key, time_ms| self.queued.iter().any(|queued| queued.contain(key, time_ms)));
        }
    }
}

impl Intake {
    pub(super) fn new(
        context: Arc<write_path::Context>,
        creation: Arc<Creation>,
        drops: Arc<Drops>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (seed, account) = (context.seed, &context.decoders);
        let lines = Arc::new(Decoders::new(seed, account.clone()));
        let pickles = Arc::new(Decoders::new(seed, account.clone()));
        let protobufs = Arc::new(Decoders::new(seed, account.clone()));
        let permits = FairPermits::new((context.settings.inflight_requests_max / PERMITS_PART).max(1));
        let unwritten = context.unwritten.clone();
        let unfinished = Arc::default();
        Self { context, unwritten, unfinished, lines, pickles, protobufs, permits, creation, drops, metrics }
    }

    /// False for the tenant to which only the server writes.
    pub(super) fn may_write(&self, tenant: &TenantId) -> bool {
        *tenant != self.context.settings.self_monitoring.tenant
    }

    /// Length at which a body of this tenant is passed on. Decoded, a body takes up to twelve times its length, which must
    /// fit into the memory of the tenant's requests.
    pub(super) fn body_bytes(&self, tenant: &TenantId) -> usize {
        const PART: u64 = 64;
        let settings = self.context.overrides.current();
        let own_bytes = settings.of(tenant).limits.inflight_bytes.unwrap_or(u64::MAX);
        let bytes = own_bytes.min(self.context.inflight.limit_bytes()) / PART;
        usize::try_from(bytes).unwrap_or(BODY_BYTES).clamp(LINE_BYTES_MAX + 1024, BODY_BYTES)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.context.clock.now_ms()
    }

    /// The account for the bytes of a tenant that are not durable yet.
    pub(super) fn unwritten_of(&self, tenant: &TenantId) -> Account {
        let settings = self.context.overrides.current();
        self.context.tenant(tenant).unwritten(settings.of(tenant)).clone()
    }

    /// Decodes a body, submits its points of known series, and queues the others. Bodies of a sender must be sent one
    /// after the other, so that the points of each series stay in order. `catch_up` is how long the sender may still wait for earlier
    /// points of new series.
    pub(super) async fn send(
        &self,
        source: &Source,
        body: &Body,
        attempts: &mut Attempts,
        catch_up: &mut Allowance,
    ) -> Result<First, Refusal> {
        self.creation.let_known_catch_up(&source.principal.tenant, catch_up).await;
        self.begin(source, body, attempts).await
    }

    /// Waits for the rules of a body that [`Self::send`] has decoded.
    pub(super) async fn go_on(
        &self,
        source: &Source,
        attempts: &mut Attempts,
        later: Later,
    ) -> Result<Sent, Refusal> {
        let (sent, new) = later.sent().await?;
        Ok(self.queue(source, attempts, sent, new))
    }

    /// Queues points of new series, except those that an earlier attempt queued, which have their place in the order. Further
    /// points of the same series are queued: a computed series may have taken them in the earlier attempt.
    fn queue(&self, source: &Source, attempts: &mut Attempts, sent: Sent, mut new: NewSamples) -> Sent {
        attempts.earlier.samples = true;
        attempts.leave_out_queued(&mut new);
        if !new.is_empty() {
            self.metrics.points.add(new.points());
            self.creation.queue(source, &new, Expected::New);
            attempts.queued.push(new.into_times());
        }
        sent
    }

    async fn begin(&self, source: &Source, body: &Body, attempts: &mut Attempts) -> Result<First, Refusal> {
        let permit = Some(self.permits.acquire(&source.principal.tenant).await);
        let (context, principal, bytes) = (&self.context, &source.principal, &body.bytes);
        let (arrival, waiting) = (TimeOfArrival::Is(body.arrived_ms), &self.creation.waiting());
        let format = Format { has_frames: true, arrival };
        let (id, origin, earlier) = (source.ticket.stream(), source.origin, &mut attempts.earlier);
        let stream = BodyStream { id, origin, arrived_ms: body.arrived_ms, permit, earlier };
        let begun = match source.protocol {
            Protocol::Lines => send(context, &self.lines, principal, arrival, bytes, waiting, stream).await?,
            Protocol::Pickles => {
                send(context, &self.pickles, principal, format, bytes, waiting, stream).await?
            }
            Protocol::Protobufs => {
                send(context, &self.protobufs, principal, format, bytes, waiting, stream).await?
            }
        };
        Ok(match begun {
            Begun::Sent(sent) => {
                let (sent, new) = *sent;
                First::Sent(Box::new(self.queue(source, attempts, sent, new)))
            }
            Begun::Later(later) => First::Later(later),
        })
    }

    /// Returns once the points of known series are durable or refused.
    pub(super) async fn settle(&self, sent: Sent) -> Result<Outcome, Refused> {
        sent.settle(&self.context).await
    }

    /// Retries a body after a refusal, until its points are durable or can never be stored.
    pub(super) async fn retry(
        &self,
        source: &Source,
        body: &Body,
        attempts: &mut Attempts,
        mut refused: Refused,
    ) -> Late {
        let mut late = Late::None;
        loop {
            let Refused { unwritten, contributions } = refused;
            let Unwritten { refusal, samples, is_partial, may_be_durable, .. } = unwritten;
            let left_out = contributions.filter(|_| may_be_durable || !attempts.queued.is_empty());
            match next(&refusal, source.has_many_tenants, source.is_in_lane) {
                Next::Retry(wait) => {
                    // the intervals may be computed before the body is stored; what they took from it will come again
                    if left_out.is_some() && !attempts.is_left_out {
                        attempts.is_left_out = true;
                        self.leave_out(source, left_out).await;
                    }
                    self.pause(source, body.senders.only(), &refusal, wait).await;
                }
                Next::GiveUp => {
                    let durable = if is_partial { samples } else { 0 };
                    let points = messages(source.protocol, &body.bytes).saturating_sub(durable).max(1);
                    self.refused(source, body.senders.only(), points, &refusal);
                    return match self.leave_out(source, left_out).await.filter(|_| is_partial) {
                        Some(given_back) => late.max(self.store_given_back(source, &given_back).await),
                        None => late,
                    };
                }
            }
            late = Late::Stored;
            match self.write_again(source, body, attempts).await {
                Ok(outcome) => {
                    return late.max(self.stored(source, body, outcome).await);
                }
                Err(again) => refused = again,
            }
        }
    }

    /// Leaves the intervals of a refused body out of computed series. Returns the points that such a series took from the body.
    async fn leave_out(
        &self,
        source: &Source,
        contributions: Option<Box<Contributions>>,
    ) -> Option<GivenBack> {
        write_path::leave_out(&self.context, &source.principal.tenant, contributions?).await
    }

    /// Waits until points that were refused may be written again.
    async fn pause(&self, source: &Source, of_body: Option<IpAddr>, refusal: &Refusal, wait: Duration) {
        self.drops.paused(&source.principal.tenant, source.sender.or(of_body), refusal);
        let _paused = self.metrics.pause(refusal);
        tokio::time::sleep(wait).await;
    }

    /// Writes a body again, and waits until its points of known series are durable.
    pub(super) async fn write_again(
        &self,
        source: &Source,
        body: &Body,
        attempts: &mut Attempts,
    ) -> Result<Outcome, Refused> {
        let sent = match self.begin(source, body, attempts).await? {
            First::Sent(sent) => *sent,
            First::Later(later) => self.go_on(source, attempts, later).await?,
        };
        self.settle(sent).await
    }

    /// Counts the points of a body that is durable, and stores those that computed series give back. Returns whether these came late.
    pub(super) async fn stored(&self, source: &Source, body: &Body, mut outcome: Outcome) -> Late {
        self.metrics.commit_seconds.observe(body.since.elapsed().as_secs_f64());
        self.metrics.points.add(outcome.samples);
        if outcome.samples > 0 {
            source.ticket.stored();
        }
        let given_back = write_path::count(&self.context, &source.principal, &mut outcome).await;
        self.left_out(source, Some(body), &outcome);
        match given_back {
            Some(given_back) => self.store_given_back(source, &given_back).await,
            None => Late::None,
        }
    }

    /// Stores points that a computed series took from a body and cannot have any more. They are few and rare, so the sender waits,
    /// also for the creation of their series. If this would stop other tenants, they are queued, or else dropped like other points of
    /// a tenant above its limits.
    async fn store_given_back(&self, source: &Source, given_back: &GivenBack) -> Late {
        if given_back.lost > 0 {
            self.refused(source, None, given_back.lost, &given_back.refusal());
        }
        let refusal = loop {
            match given_back.store(&self.context, &source.principal).await {
                Ok(outcome) => {
                    self.metrics.points.add(outcome.samples);
                    if outcome.refused_samples > 0 {
                        source.ticket.lost();
                        self.left_out(source, None, &outcome);
                    }
                    return Late::Stored;
                }
                Err(Unwritten { refusal, .. }) => {
                    // some of the series may be new, and `next` would wait for their creation, even if it is never allowed
                    if refusal.is_lasting() {
                        break refusal;
                    }
                    if self.queue_given_back(source, given_back, &refusal) {
                        return Late::Queued;
                    }
                    match next(&refusal, source.has_many_tenants, source.is_in_lane) {
                        Next::Retry(wait) => self.pause(source, None, &refusal, wait).await,
                        Next::GiveUp => break refusal,
                    }
                }
            }
        };
        self.refused(source, None, given_back.points(), &refusal);
        Late::Stored // perhaps some of them
    }

    /// Passes points that were refused for now to the queue. Later points of their series wait behind them. A
    /// full queue drops them. Returns false if they were not passed to it: because the sender can wait
    /// without stopping other tenants, because they can never be stored, because rules may still change the
    /// series, or because there is no memory to copy them.
    fn queue_given_back(&self, source: &Source, given_back: &GivenBack, refusal: &Refusal) -> bool {
        if !source.has_many_tenants || source.is_in_lane || !refusal.is_temporary() {
            return false;
        }
        let Some(new) = given_back.to_new(&self.context, &source.principal.tenant) else { return false };
        self.metrics.points.add(new.points());
        // what a computed series replaces usually exists, because it has the name of the output
        self.creation.queue(source, &new, Expected::Known);
        true
    }

    /// Counts points that cannot be stored because of what they are. `body` had these points.
    fn left_out(&self, source: &Source, body: Option<&Body>, outcome: &Outcome) {
        let Source { principal: Principal { tenant, .. }, sender, .. } = source;
        let other = outcome.refused_samples - outcome.unreadable_samples;
        let reason = if outcome.postponed.is_empty() { Reason::Invalid } else { Reason::NewSeriesLimit };
        for (reason, points) in [(Reason::Malformed, outcome.unreadable_samples), (reason, other)] {
            if points == 0 {
                continue;
            }
            if reason == Reason::NewSeriesLimit {
                source.ticket.lost();
            }
            let example =
                outcome.errors.iter().find(|(e, _)| e.is_unreadable() == (reason == Reason::Malformed));
            let (message, series) = match example {
                Some((error, series)) => (error as &dyn Display, series.as_str()),
                None => (&"" as &dyn Display, ""),
            };
            let of_body = || match (body?, example) {
                (body, Some((SeriesRefusal::Line { number, .. }, _))) => {
                    body.senders.of_line(*number, &body.bytes)
                }
                (body, _) => body.senders.only(),
            };
            let (message, sender) = (format_args!("{message}"), sender.or_else(of_body));
            self.drops.add(&Drop { reason, tenant, points, message, series, sender });
        }
    }

    fn refused(&self, source: &Source, of_body: Option<IpAddr>, points: u64, refusal: &Refusal) {
        source.ticket.lost();
        let reason = if refusal.reason == "stopping" { Reason::Stopping } else { Reason::Refused };
        let (tenant, sender) = (&source.principal.tenant, source.sender.or(of_body));
        let series = refusal.series.as_deref().unwrap_or_default();
        let message = format_args!("{}", refusal.cause());
        self.drops.add(&Drop { reason, tenant, points, message, series, sender });
    }
}

/// Only points of known series are refused here. They are kept until they can be stored, unless this can never happen.
fn next(refusal: &Refusal, has_many_tenants: bool, is_in_lane: bool) -> Next {
    match refusal.kind {
        _ if is_in_lane && OF_REQUESTS.contains(&refusal.reason) && refusal.is_temporary() => {
            Next::Retry(refusal.pause().unwrap_or(RETRY_WAIT))
        }
        // one tenant must not stop the others
        _ if has_many_tenants && refusal.is_of_tenant => Next::GiveUp,
        // the body only has to be decoded again
        _ if refusal.reason == "ingest_rules" => Next::Retry(MEMORY_WAIT),
        // timestamps are out of bounds, unless the clock is wrong: waiting would stop the sender's other points
        _ if refusal.reason == "clock" || refusal.reason == "stopping" => Next::GiveUp,
        // the limit may last for days, and everything else of the body is stored
        _ if refusal.reason == "ha_clusters" => Next::GiveUp,
        // the estimate is for senders that wait for an answer
        _ if refusal.reason == "ha_failover" => Next::Retry(RETRY_WAIT),
        ErrorKind::Unavailable | ErrorKind::Limited | ErrorKind::Internal | ErrorKind::Data => {
            Next::Retry(refusal.pause().unwrap_or(RETRY_WAIT))
        }
        ErrorKind::Invalid
        | ErrorKind::TooLarge
        | ErrorKind::Unauthenticated
        | ErrorKind::Forbidden
        | ErrorKind::Unsupported => Next::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::submission::{NewPart, NewSeries};
    use admission::{Postponed, RateLimited, WriteRefusal};
    use model::{Labels, SeriesKey, Values};
    use stdx::budget::Exhausted;

    fn new_samples(samples: &[(u64, &[i64])]) -> NewSamples {
        let mut part = NewPart { series: vec![], timestamps: vec![], values: Values::Floats(vec![]) };
        for (key, times) in samples {
            let start = part.timestamps.len() as u32;
            part.timestamps.extend_from_slice(times);
            let samples = start..part.timestamps.len() as u32;
            let key = SeriesKey((*key).into());
            part.series.push(NewSeries { key, labels: Labels::empty(), samples, exemplars: vec![] });
        }
        part.values = Values::Floats(part.timestamps.iter().map(|time_ms| *time_ms as f64).collect());
        NewSamples::of(part, Account::new("inflight", 0).reserve(0).unwrap())
    }

    /// The times of what is left, in order.
    fn left(new: &NewSamples) -> Vec<(u128, Vec<i64>)> {
        let of_part = |part: &NewPart| {
            let Values::Floats(values) = &part.values else { panic!("no floats") };
            let of_series = part.series.iter().map(|series| {
                let samples = series.samples.start as usize..series.samples.end as usize;
                let times = part.timestamps[samples.clone()].to_vec();
                assert!(values[samples].iter().zip(&times).all(|(value, time)| *value == *time as f64));
                (series.key.0, times)
            });
            of_series.collect::<Vec<_>>()
        };
        new.parts.iter().flat_map(of_part).collect()
    }

    /// One tenant must not be able to stop the others of a connection: by a new name in its paths while the head is rather full, or by
    /// what it sends over HTTP.
    #[test]
    fn a_connection_of_many_tenants_waits_only_for_what_concerns_all() {
        let tenant = || TenantId::parse("a").unwrap();
        let full = SeriesRefusal::NoRoom { used_mib: 85, limit_mib: 85 };
        let process = SeriesRefusal::NoMemory { used_mib: 95, limit_mib: 95 };
        let memory = |share_bytes| Exhausted {
            account: "inflight",
            asked_bytes: 2,
            used_bytes: 8,
            limit_bytes: 9,
            share_bytes,
        };
        let (limit, per_s, wait) = (RateLimited::Samples, 1, Duration::from_secs(1));
        let partly = |what| WriteRefusal::Postponed { what, report: String::new() };
        let check = |refusal: Refusal, is_of_tenant: bool| {
            for has_many_tenants in [false, true] {
                let waits =
                    |is_in_lane| matches!(next(&refusal, has_many_tenants, is_in_lane), Next::Retry(_));
                assert_eq!(waits(false), !(is_of_tenant && has_many_tenants), "{refusal:?}");
                assert_eq!(waits(true), waits(false) || OF_REQUESTS.contains(&refusal.reason), "{refusal:?}");
            }
        };
        check(WriteRefusal::NoRoomForTenant(full).into(), true);
        check(WriteRefusal::NoRoomForTenant(process).into(), true);
        check(WriteRefusal::ShareOfRequests { tenant: tenant(), inside: 8, limit: 9 }.into(), true);
        check(WriteRefusal::Rate { tenant: tenant(), limit, per_s, wait }.into(), true);
        check(memory(Some(8)).into(), true);
        check(partly(Postponed::TenantShare).into(), true);
        check(WriteRefusal::HeadFull { used_mib: 9, limit_mib: 9 }.into(), false);
        check(WriteRefusal::InflightRequests { limit: 9 }.into(), false);
        check(WriteRefusal::QueueFull { limit: 9 }.into(), false);
        check(memory(None).into(), false);
        check(partly(Postponed::LateSamples).into(), false);
    }

    #[test]
    fn a_later_attempt_queues_points_that_no_earlier_one_has_queued() {
        let mut attempts = Attempts::default();
        let mut attempt = |samples: &[(u64, &[i64])]| {
            let mut new = new_samples(samples);
            attempts.leave_out_queued(&mut new);
            let left = left(&new);
            attempts.queued.push(new.into_times());
            left
        };
        let all: [(u64, &[i64]); 4] = [(7, &[5, 3]), (2, &[9]), (7, &[1]), (5, &[1, 2, 3])];
        let expected: Vec<_> = all.iter().map(|(key, times)| (u128::from(*key), times.to_vec())).collect();
        assert_eq!(attempt(&all), expected);
        assert_eq!(attempt(&all), []);
        assert_eq!(
            attempt(&[(2, &[8, 9]), (7, &[1, 2, 3, 4, 5]), (5, &[3]), (3, &[6])]),
            [(2, vec![8]), (7, vec![2, 4]), (3, vec![6])]
        );
        assert_eq!(attempt(&[(7, &[4, 2, 6]), (3, &[6])]), [(7, vec![6])]);
    }
}
