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
use crate::write_path::known::Sent;
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

/// Memory of a tenant's lines besides their text and its name, which may be much shorter.
const TENANT_BYTES: usize = 160;

/// While they grow, the vectors of lines take up to twice the bytes of the lines.
const GROWTH: usize = 2;

/// Lines that are shorter together are not divided further if there is no memory, because each part is a request.
const PART_BYTES_MIN: usize = 4 << 10;

/// Limit on the bodies of a sender that are not durable yet.
const BODIES_MAX: usize = 4;

/// Wait before the next attempt, if there is no memory.
pub(super) const MEMORY_WAIT: Duration = Duration::from_millis(50);

/// How long bodies wait, at once, for memory and places that other requests of their tenants hold. Usually, these are given back
/// sooner. Without this wait, a short peak of load would drop points of connections with many tenants. As one tenant must not stop the
/// others, these waits take at most 1/`OWN_WAIT_PART` of the time.
const OWN_WAIT: Duration = Duration::from_millis(100);
const OWN_WAIT_PART: u32 = 8;
const OWN_POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) intake: Arc<Intake>,
    pub(super) source: Source,
    /// Bodies in flight, in the order in which they were sent.
    bodies: VecDeque<Sending>,
    /// Limits the waits for queued points, for all tenants of the sender together: the points of many may be queued and not storable.
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
type Settled = Result<Outcome, Refusal>;

/// The lines of a body that belong to one tenant.
type Lines = Vec<u8>;

impl Writer {
    pub(super) fn new(intake: &Arc<Intake>, source: Source) -> Self {
        let intake = Arc::clone(intake);
        let (catch_up, own_wait) = (Creation::catch_up(), Allowance::new(OWN_WAIT, OWN_WAIT_PART));
        Self { intake, source, bodies: VecDeque::new(), catch_up, own_wait, lanes: Lanes::default() }
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
        (&mut oldest.settled).await.unwrap_or_else(|e| Err(internal(format!("writing failed: {e}"))))
    }

    /// Finishes the oldest body. If it was refused, this writes it again and waits until it is stored.
    pub(super) async fn finish(&mut self, settled: Settled) {
        let Some(Sending { source, body, mut attempts, .. }) = self.bodies.pop_front() else { return };
        let late = match settled {
            Ok(outcome) => self.intake.stored(&source, &body, outcome).await,
            Err(refusal) => self.intake.retry(&source, &body, &mut attempts, refusal).await,
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
                (Err(refusal), Ok(Ok(outcome))) if source.gives_up(&refusal) => {
                    self.intake.stored(&source, &body, outcome).await
                }
                (Err(refusal), first) => {
                    drop(first);
                    self.intake.retry(&source, &body, &mut attempts, refusal).await
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
        let Body { bytes, since, arrived_ms, _memory: mut held, _of_datagrams: mut of_datagrams } = body;
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
                    let body = Body { bytes, since, arrived_ms, _memory: memory, _of_datagrams: part };
                    if let Some(body) = self.lanes.push(&self.intake, &source, body) {
                        self.write_for(source, body).await;
                    }
                }
            }
        }
        if wrong > 0 {
            let Source { principal: Principal { tenant, .. }, sender, .. } = &self.source;
            let message = "the path does not begin with the name of a tenant and a dot (setting graphite_tenant_from_path)";
            let (reason, sender) = (Reason::Malformed, *sender);
            self.intake.drops.add(&Drop { reason, tenant, points: wrong, message, series: "", sender });
        }
    }

    /// Submits a body of one of many tenants. If its rules take long, it is written in a lane.
    async fn write_for(&mut self, source: Source, body: Body) {
        let mut attempts = Attempts::default();
        match self.send(&source, &body, &mut attempts).await {
            // nothing of the body may be held while others are waited for: their retries may need this memory
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
        (self.catch_up, self.own_wait) = (Creation::catch_up(), Allowance::new(OWN_WAIT, OWN_WAIT_PART));
        let sent = match self.send(&source, &body, &mut attempts).await {
            Ok(First::Later(later)) => self.intake.go_on(&source, &mut attempts, later).await,
            Ok(First::Sent(sent)) => Ok(*sent),
            Err(refusal) => Err(refusal),
        };
        self.sent(source, body, attempts, sent).await;
    }

    /// Decodes a body. If it lacks what requests in progress hold, tries again: first once the bodies in flight are settled, then during
    /// half of what is left of [`OWN_WAIT`]. The other half is left to other tenants.
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
                intake.retry(&source, &body, &mut attempts, refusal).await;
            }
        }
    }

    /// Waits for memory to divide lines. Returns the lines for which there is memory, which may be the first of them only: if several
    /// senders waited for memory for all their lines, they could block each other. It is memory of the whole account, because the part
    /// of the sender's tenant may be full of bodies that wait for this.
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
                self.intake.unfinished.close_longest(Instant::now());
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
mod tests {
    use super::super::{GraphiteSockets, Lines};
    use super::*;
    use crate::http::App;
    use crate::listen::lines::intake::Protocol;
    use crate::listen::lines::new_series_queue::{Expected, Most};
    use crate::listen::lines::ticket::Tickets;
    use crate::node::Node;
    use crate::partition::submission::{NewPart, NewSeries};
    use crate::seal::tests::stop;
    use crate::settings::Settings;
    use crate::write_path::Origin;
    use crate::write_path::known::NewSamples;
    use crate::write_path::tests::small_settings;
    use model::{Labels, SeriesKey, Values};
    use std::ops::RangeInclusive;
    use std::sync::atomic::{AtomicBool, Ordering};
    use stdx::budget::Account;
    use stdx::clock::{Clock, ManualClock, SystemClock};
    use tokio::task::yield_now;
    use tokio::time::timeout;

    /// Number of tenants in a body.
    const TENANTS: usize = 400;

    /// A node that serves connections of many tenants.
    struct Served {
        node: Node,
        app: App,
        intake: Arc<Intake>,
        tickets: Tickets,
        _dir: tempfile::TempDir,
    }

    impl Served {
        async fn new(change: impl FnOnce(&mut Settings)) -> Self {
            Self::with_clock(Arc::new(SystemClock), change).await
        }

        async fn with_clock(clock: Arc<dyn Clock>, change: impl FnOnce(&mut Settings)) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut settings = small_settings(dir.path());
            change(&mut settings);
            let node = Node::start(settings, clock).unwrap();
            node.readiness().wait_for_replay().await;
            let app = App::new(node.clone());
            let intake = Lines::new(&app, GraphiteSockets::default(), None).shared.intake;
            Self { node, app, intake, tickets: Tickets::new(), _dir: dir }
        }

        fn writer(&self) -> Writer {
            let source = Source {
                protocol: Protocol::Lines,
                principal: Principal::of(TenantId::parse("all").unwrap()),
                has_many_tenants: true,
                is_in_lane: false,
                sender: None,
                ticket: self.tickets.ticket().clone(),
                origin: Origin::Sender,
            };
            Writer::new(&self.intake, source)
        }

        /// A body with points of one series of each of these tenants, with the memory of a full buffer.
        fn body(&self, points: usize, tenants: usize) -> Body {
            let began_s = self.intake.now_ms() / 1000 - points as i64;
            let line = |i| format!("t{}.m 1 {}\n", i % tenants, began_s + i as i64);
            let lines: String = (0..points).map(line).collect();
            let mut bytes = lines.into_bytes();
            bytes.shrink_to_fit();
            let account = self.intake.unwritten_of(&TenantId::parse("all").unwrap());
            Body {
                _memory: account.reserve(2 * bytes.len() as u64).unwrap(),
                bytes: Arc::new(bytes),
                since: Instant::now(),
                arrived_ms: self.intake.now_ms(),
                _of_datagrams: None,
            }
        }

        fn tenant(i: usize) -> TenantId {
            TenantId::parse(&format!("t{i}")).unwrap()
        }

        async fn stop(self) {
            let Self { node, app, intake, .. } = self;
            drop((app, intake));
            stop(node).await;
        }
    }

    /// Many tenants whose series cannot be created must not delay the known series of all of them.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_waits_once_for_the_queued_points_of_all_its_tenants() {
        let served = Served::new(|settings| settings.tenant_burst = TENANTS).await;
        let labels = Labels::from_pairs(&[("__name__", "waits")]);
        let key = SeriesKey::of(labels.as_bytes(), served.node.writes().seed);
        let queue = &served.app.new_series_queue;
        let mut chunks = Vec::new();
        for tenant in (0..TENANTS).map(Served::tenant) {
            for _ in 0..2 {
                let (labels, samples) = (labels.clone(), 0..1);
                let series = vec![NewSeries { key, labels, samples, exemplars: Vec::new() }];
                let part = NewPart { series, timestamps: vec![1], values: Values::Floats(vec![1.0]) };
                let new = NewSamples::of(part, served.node.writes().inflight.reserve(0).unwrap());
                let now = std::time::Instant::now();
                let (_, dropped) =
                    queue.push(&tenant, 1, (&new, Expected::New), served.tickets.ticket(), now);
                assert!(dropped.is_none());
                // it is in creation, which does not end, and the second point waits for it
                chunks.extend(queue.take(&tenant, Most { series: 1, bytes: 1 << 20 }));
            }
        }
        assert_eq!(chunks.len(), TENANTS);
        let mut writer = served.writer();
        // a wait for each tenant would take 20 s
        timeout(Duration::from_secs(15), writer.write(served.body(TENANTS, TENANTS))).await.unwrap();
        writer.settled_all().await;
        drop((writer, chunks));
        served.stop().await;
    }

    /// Lines of invented tenants must not occupy a thread of the runtime for long.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn bodies_of_refused_tenants_let_other_tasks_run() {
        let served = Served::new(|settings| settings.tenant_burst = 1).await;
        let (mut writer, body) = (served.writer(), served.body(10 * TENANTS, 10 * TENANTS));
        // both tasks have the only worker
        let has_written = Arc::new(AtomicBool::new(false));
        let others = tokio::spawn({
            let has_written = Arc::clone(&has_written);
            async move {
                let mut turns = 0;
                while !has_written.load(Ordering::Relaxed) {
                    turns += 1;
                    yield_now().await;
                }
                turns
            }
        });
        let writing = tokio::spawn(async move {
            writer.write(body).await;
            has_written.store(true, Ordering::Relaxed);
            writer.settled_all().await;
        });
        writing.await.unwrap();
        let turns = others.await.unwrap();
        assert!(turns >= 10 * TENANTS / 128 / 2, "{turns} turns");
        served.stop().await;
    }

    /// Dividing a body copies its lines. If this needed memory for all of them at once, a few full bodies could block each other, and
    /// unfinished lines of strangers could block all bodies.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_of_many_tenants_needs_little_memory_beside_its_own() {
        const POINTS: usize = 4000;
        let served = Served::new(|_| ()).await;
        let (mut writer, body) = (served.writer(), served.body(POINTS, 8));
        let unwritten = &served.intake.unwritten;
        let (length, free) = (body.bytes.len() as u64, unwritten.limit_bytes() - unwritten.used_bytes());
        let others = unwritten.reserve(free - 4096).unwrap();
        timeout(Duration::from_secs(60), writer.write(body)).await.expect("there is memory for some lines");
        timeout(Duration::from_secs(60), writer.settled_all()).await.unwrap();
        assert!(length > 64 << 10, "{length} bytes");
        assert_eq!(unwritten.used_bytes(), others.bytes());
        let written = served.node.registry().render();
        let expected = format!("floodmark_graphite_points_total {POINTS}\n");
        assert!(written.contains(&expected), "{written}");
        drop((writer, others));
        served.stop().await;
    }

    /// A sender that is only faster than the disk must not lose points of a tenant with little memory.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_is_tried_again_when_earlier_ones_of_its_tenant_are_stored() {
        const LIMIT_BYTES: u64 = 1 << 20;
        let served = Served::new(|settings| {
            settings.tenants.general.limits.inflight_bytes = Some(LIMIT_BYTES);
        })
        .await;
        let (mut writer, tenant, context) = (served.writer(), Served::tenant(0), served.node.writes());
        let own = context.overrides.current();
        let held = context.tenant(&tenant).inflight(own.of(&tenant)).reserve(LIMIT_BYTES).unwrap();
        let (store, stored) = tokio::sync::oneshot::channel();
        writer.bodies.push_back(Sending {
            source: Source { principal: Principal::of(tenant), ..writer.source.clone() },
            body: served.body(1, 1),
            attempts: Attempts::default(),
            settled: tokio::spawn(async move {
                let _ = stored.await;
                drop(held);
                Ok(Outcome::default())
            }),
        });
        // the earlier body is stored once the later one was refused
        tokio::join!(writer.write(served.body(100, 1)), async { store.send(()).unwrap() });
        writer.settled_all().await;
        let metrics = served.node.registry().render();
        for expected in ["points_total 100\n", "dropped_points_total{reason=\"refused\"} 0\n"] {
            assert!(metrics.contains(&format!("floodmark_graphite_{expected}")), "{metrics}");
        }
        drop(writer);
        served.stop().await;
    }

    /// A relay may send a tenant's points over several connections, so a body may lack what bodies of another connection hold.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_waits_a_moment_for_other_connections_of_its_tenant() {
        const LIMIT_BYTES: u64 = 1 << 20;
        let served = Served::new(|settings| {
            settings.tenants.general.limits.inflight_bytes = Some(LIMIT_BYTES);
        })
        .await;
        let (mut writer, tenant, context) = (served.writer(), Served::tenant(0), served.node.writes());
        let own = context.overrides.current();
        let held = context.tenant(&tenant).inflight(own.of(&tenant)).reserve(LIMIT_BYTES).unwrap();
        // the body is refused before this is given back
        tokio::join!(writer.write(served.body(100, 1)), async { drop(held) });
        writer.settled_all().await;
        let metrics = served.node.registry().render();
        for expected in ["points_total 100\n", "dropped_points_total{reason=\"refused\"} 0\n"] {
            assert!(metrics.contains(&format!("floodmark_graphite_{expected}")), "{metrics}");
        }
        drop(writer);
        served.stop().await;
    }

    /// One tenant must not make the others of a connection wait for ever.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_wait_for_other_requests_of_a_tenant_ends() {
        const LIMIT_BYTES: u64 = 1 << 20;
        let served = Served::new(|settings| {
            settings.tenants.general.limits.inflight_bytes = Some(LIMIT_BYTES);
        })
        .await;
        let (mut writer, tenant, context) = (served.writer(), Served::tenant(0), served.node.writes());
        let own = context.overrides.current();
        let held = context.tenant(&tenant).inflight(own.of(&tenant)).reserve(LIMIT_BYTES).unwrap();
        timeout(Duration::from_secs(60), writer.write(served.body(100, 2))).await.unwrap();
        timeout(Duration::from_secs(60), writer.settled_all()).await.unwrap();
        let metrics = served.node.registry().render();
        for expected in ["points_total 50\n", "dropped_points_total{reason=\"refused\"} 50\n"] {
            assert!(metrics.contains(&format!("floodmark_graphite_{expected}")), "{metrics}");
        }
        drop((writer, held));
        served.stop().await;
    }

    /// The body of points that a computed series gives back is durable, so its sender does not send them again. So they must not be
    /// lost, but they must not stop other tenants either.
    #[tokio::test(flavor = "multi_thread")]
    async fn points_that_come_back_are_queued_while_their_tenant_may_not_write() {
        let rules = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(rules.path(), "m (10) = sum m\n").unwrap();
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let served = Served::with_clock(Arc::clone(&clock) as _, |settings| {
            settings.tenants.general.limits.concurrent_writes = Some(2);
            settings.graphite_rules.aggregator = Some(rules.path().to_owned());
        })
        .await;
        clock.advance(100_000); // the rule is in force since the beginning of the present interval
        let (mut writer, tenant, context) = (served.writer(), Served::tenant(0), served.node.writes());
        for _ in 0..2 {
            let source = Source { principal: Principal::of(tenant.clone()), ..served.writer().source };
            let body = served.body(5, 1);
            let lines = String::from_utf8_lossy(&body.bytes).replace("t0.", "");
            let (body, mut attempts) = (Body { bytes: Arc::new(lines.into()), ..body }, Attempts::default());
            let sent = served.intake.send(&source, &body, &mut attempts, &mut Creation::catch_up()).await;
            let Ok(First::Sent(sent)) = sent else { panic!("the rules take long") };
            writer.sent(source, body, attempts, Ok(*sent)).await;
        }
        let settled = writer.oldest_settled().await;
        assert_eq!(settled.as_ref().unwrap().samples, 0, "the computed series has taken all points");
        clock.advance(120_000); // the points are too old for the computed series
        let own = context.overrides.current();
        let other_writes = [(); 2].map(|()| context.gates.enter(&tenant, own.of(&tenant)).unwrap());
        timeout(Duration::from_secs(60), writer.finish(settled)).await.unwrap();
        assert!(!writer.has_bodies(), "the second body was written again");
        let queue = &served.app.new_series_queue;
        assert_eq!(queue.points(), [(tenant.clone(), 10)]);
        assert!(!queue.has_new(&tenant), "they do not wait for new series");
        let metrics = served.node.registry().render();
        assert!(
            metrics.contains("floodmark_graphite_dropped_points_total{reason=\"refused\"} 0\n"),
            "{metrics}"
        );
        drop((writer, other_writes));
        served.stop().await;
    }

    #[test]
    fn lines_are_halved_between_lines() {
        let halves = |lines: &str| {
            let mut lines = lines.as_bytes();
            std::iter::from_fn(move || {
                lines = first_half(lines)?;
                Some(std::str::from_utf8(lines).unwrap().to_owned())
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(halves("a\nb\nc\nd\n"), ["a\nb\n", "a\n"]);
        assert_eq!(halves("aaaaaaaaa\nb\nc\n"), ["aaaaaaaaa\n"]);
        assert_eq!(halves("a\nbbbbbbbbbbbb\n"), ["a\n"]);
        assert_eq!(halves("a\nbbbbbbbbbbbb"), ["a\n"]);
        for lines in ["", "a", "\n", "aaaa\n"] {
            assert!(halves(lines).is_empty(), "{lines:?}");
        }
    }

    /// They are stored already, so refusing them would only count them as dropped.
    #[tokio::test(flavor = "multi_thread")]
    async fn bodies_of_other_tenants_are_not_written_again() {
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let limited = |settings: &mut Settings| settings.tenants.general.limits.samples_per_second = Some(1);
        let served = Served::with_clock(clock, limited).await;
        let (mut writer, context, intake) = (served.writer(), served.node.writes(), &served.intake);
        let source = |name: &str| Source {
            principal: Principal::of(TenantId::parse(name).unwrap()),
            ..served.writer().source
        };
        for name in ["above", "same", "above"] {
            let bytes = format!("m 1 {}\n", context.clock.now_ms() / 1000).into_bytes();
            writer.bodies.push_back(Sending {
                source: source(name),
                body: Body {
                    _memory: intake.unwritten.reserve(bytes.len() as u64).unwrap(),
                    bytes: Arc::new(bytes),
                    since: Instant::now(),
                    arrived_ms: intake.now_ms(),
                    _of_datagrams: None,
                },
                attempts: Attempts::default(),
                settled: tokio::spawn(async { Ok(Outcome::default()) }),
            });
        }
        let above = TenantId::parse("above").unwrap();
        let own = context.overrides.current();
        context.tenant(&above).take_samples(own.of(&above), 1000, context.clock.instant());
        writer.write_all_again(&TenantId::parse("same").unwrap(), Late::Stored).await;
        assert!(writer.bodies.iter().all(|sending| sending.source.principal.tenant == above));
        assert_eq!(writer.bodies.len(), 2);
        writer.settled_all().await;
        let text = served.node.registry().render();
        assert!(text.contains("floodmark_graphite_dropped_points_total{reason=\"refused\"} 0"), "{text}");
        drop(writer);
        served.stop().await;
    }

    /// Lines of many tenants become one body for each, unless there is no memory for so many: a tenant takes more than a
    /// short line of it.
    #[test]
    fn lines_are_divided_at_once_if_there_is_memory() {
        let name = |i: usize| i * 7 % 1000;
        let text: String = (0..3000).map(|i| format!("t{}.{i} 1 2\n?.x 1 2\nnone 1 2\n", name(i))).collect();
        let check = |tenants_max: usize, expected_steps: RangeInclusive<usize>| {
            let bytes = GROWTH * text.len();
            let account = Account::new("test", (bytes + tenants_max * TENANT_BYTES) as u64);
            let mut memory = account.reserve((bytes + TENANTS_STEP * TENANT_BYTES) as u64).unwrap();
            let (mut rest, mut wrong, mut steps, mut bodies) = (text.as_bytes(), 0, 0, 0);
            let mut of_tenants: BTreeMap<TenantId, String> = BTreeMap::new();
            while !rest.is_empty() {
                let divided = divide(&mut rest, &mut wrong, &mut memory);
                assert!(!divided.is_empty());
                (steps, bodies) = (steps + 1, bodies + divided.len());
                for (tenant, lines) in divided {
                    assert_eq!(lines.len(), lines.capacity());
                    of_tenants.entry(tenant).or_default().push_str(std::str::from_utf8(&lines).unwrap());
                }
            }
            assert_eq!((of_tenants.len(), wrong), (1000, 6000));
            assert!(expected_steps.contains(&steps), "{tenants_max} tenants: {steps} steps, {bodies} bodies");
            assert!(account.peak_bytes() <= account.limit_bytes());
            for i in 0..1000 {
                let lines: String =
                    (0..3000).filter(|j| name(*j) == i).map(|j| format!("{j} 1 2\n")).collect();
                assert_eq!(of_tenants[&TenantId::parse(&format!("t{i}")).unwrap()], lines);
            }
        };
        check(1000 + TENANTS_STEP, 1..=1);
        check(512, 2..=3000 / 512 + 1);
        let mut memory = Account::new("test", 1000).reserve(1000).unwrap();
        let (mut rest, mut wrong) = (&b"a.b 1 2\n\n?.x"[..], 0);
        assert_eq!(divide(&mut rest, &mut wrong, &mut memory).len(), 1);
        assert_eq!((rest.len(), wrong), (0, 0));
    }

    #[test]
    fn the_first_part_of_a_path_is_a_tenant() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(tenant, rest)| (tenant.as_bytes(), rest.as_bytes()));
            assert_eq!(split_tenant(line.as_bytes()), expected, "{line:?}");
        };
        check("a.b.c 1 2\n", Some(("a", "b.c 1 2\n")));
        check("  team-1.b;x=y 1 2", Some(("team-1", "b;x=y 1 2")));
        check("a 1.5 2\n", None);
        check("a;b=c.d 1 2\n", None);
        check(".a 1 2\n", None);
        check("\n", None);
    }
}
