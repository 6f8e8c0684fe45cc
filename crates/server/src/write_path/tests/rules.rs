//! Rules on what is stored.

use super::*;
use crate::ingest_rules::IngestRulesFile;
use crate::limits::fair_permits::{FairPermits, Permit};
use crate::partition::submission::StreamId;
use crate::seal::tests::stop;
use crate::write_path::known::{Begun, BodyStream, Earlier, NewSamples, WaitingSeries, send as send_body};
use model::{BatchSeries, SeriesKey};
use protocol::graphite;
use protocol::{Body, Decoder as _};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::time::Instant;

/// Each look at this clock takes some time.
#[derive(Debug)]
struct SlowClock {
    began: Instant,
    passed_ms: AtomicU64,
    step_ms: AtomicU64,
    /// By how much the time is ahead of the operating system's.
    ahead_ms: AtomicI64,
}

impl Clock for SlowClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }

    fn instant(&self) -> Instant {
        let step_ms = self.step_ms.load(Ordering::Relaxed);
        self.began + Duration::from_millis(self.passed_ms.fetch_add(step_ms, Ordering::Relaxed))
    }
}

struct Ruled {
    node: Node,
    _dir: tempfile::TempDir,
}

impl Ruled {
    fn new(rules: &str, clock: Arc<dyn Clock>, change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        std::fs::write(&path, rules).unwrap();
        let mut settings = small_settings(&dir.path().join("data"));
        settings.ingest_rules = Some(IngestRulesFile { path });
        change(&mut settings);
        Self { node: Node::start(settings, clock).unwrap(), _dir: dir }
    }

    /// Sends a sample of each series, which has this name and a number.
    async fn send(&self, tenant: &str, series: &[(&str, u32)]) -> Result<Outcome, Unwritten> {
        let mut encoder = V1Encoder::new();
        for (name, number) in series {
            let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
            encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        write(&self.node, TenantId::parse(tenant).unwrap(), Version::V1, body, memory).await
    }

    /// Sends a sample of each of these series of a replica.
    async fn send_of_replica(&self, replica: &str, series: u32) -> Result<Outcome, Unwritten> {
        self.send_of_replica_at(replica, series, SystemClock.now_ms()).await
    }

    async fn send_of_replica_at(&self, replica: &str, series: u32, at_ms: i64) -> Result<Outcome, Unwritten> {
        let mut encoder = V1Encoder::new();
        for number in 0..series {
            let number = number.to_string();
            let labels = [("__name__", "m"), ("__replica__", replica), ("cluster", "c"), ("n", &number)];
            encoder.series(Labels::from_pairs(&labels).as_ref(), &[at_ms], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        write(&self.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await
    }

    /// The value of a metric without labels, or with those in the name.
    fn metric(&self, name: &str) -> f64 {
        let text = self.node.registry().render();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    fn applied(&self) -> f64 {
        self.metric("floodmark_ingest_rules_applied_series_total")
    }
}

const RENAME: &str = "
- {source_labels: [__name__], regex: 'm(.*)', target_label: __name__, replacement: 'new$1'}
- {source_labels: [__name__], regex: bad, target_label: __name__, replacement: ''}
- {source_labels: [__name__], regex: gone, action: drop}
";

fn series(name: &str, numbers: std::ops::Range<u32>) -> Vec<(&str, u32)> {
    numbers.map(|number| (name, number)).collect()
}

/// Holds all permits to decode.
struct AllPermits {
    tenant: TenantId,
    held: Vec<Permit<TenantId>>,
}

impl AllPermits {
    async fn take(ruled: &Ruled, tenant: &str) -> Self {
        let tenant = TenantId::parse(tenant).unwrap();
        let mut held = Vec::new();
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            held.push(ruled.node.writes().gates.decoding_permit(&tenant).await);
        }
        Self { tenant, held }
    }

    /// Lets another tenant have a turn, if it waits for one.
    async fn let_pass(&mut self, ruled: &Ruled) {
        let mut next = std::pin::pin!(ruled.node.writes().gates.decoding_permit(&self.tenant));
        let is_pending = |context: &mut std::task::Context<'_>| {
            std::task::Poll::Ready(next.as_mut().poll(context).is_pending())
        };
        assert!(std::future::poll_fn(is_pending).await, "somebody else had a permit");
        self.held.pop();
        self.held.push(next.await);
    }
}

fn slow_clock() -> Arc<SlowClock> {
    let (passed_ms, step_ms, ahead_ms) = (AtomicU64::new(0), AtomicU64::new(0), AtomicI64::new(0));
    Arc::new(SlowClock { began: Instant::now(), passed_ms, step_ms, ahead_ms })
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_take_long_are_applied_in_turns_between_which_others_write() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    assert_eq!(ruled.send("a", &series("m", 0..50)).await.unwrap().samples, 50);
    let small = [series("m", 0..3), series("gone", 100..101)].concat();
    assert_eq!(ruled.send("b", &small).await.unwrap().samples, 3);

    clock.step_ms.store(50, Ordering::Relaxed); // a turn has at most two series
    let mut permits = AllPermits::take(&ruled, "b").await;
    let (began, mut turns) = (ruled.applied(), 0);
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        let all = [series("m", 0..100), series("gone", 0..20), series("bad", 0..30)].concat();
        async move { ruled.send("a", &all).await }
    });
    while ruled.applied() == began {
        tokio::task::yield_now().await;
    }
    let mut applied = ruled.applied();
    assert_eq!(applied - began, 1.0, "in place");
    loop {
        permits.let_pass(&ruled).await;
        let before = std::mem::replace(&mut applied, ruled.applied());
        assert!(applied - before <= 2.0, "{} series in a turn", applied - before);
        turns += u32::from(applied > before);
        if applied - began == 100.0 {
            break;
        }
        assert!(!sending.is_finished(), "{:?} after {} series", sending.await, applied - began);
        let of_b = ruled.send("b", &small).await.unwrap();
        assert_eq!((of_b.samples, of_b.dropped_samples), (3, 1));
        assert_eq!(ruled.applied(), applied, "rules are applied without a permit");
    }
    assert!(turns >= 49, "{turns}");
    drop(permits);
    let outcome = sending.await.unwrap().unwrap();
    assert_eq!((outcome.samples, outcome.dropped_samples, outcome.refused_samples), (100, 20, 30));
    assert!(outcome.report().contains("no metric name"), "{}", outcome.report());
    let before = ruled.applied();
    assert_eq!(ruled.send("a", &series("bad", 0..30)).await.unwrap().refused_samples, 30);
    assert_eq!(ruled.applied() - before, 1.0, "the rules tell again why, for one series");
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// Waits until this is true. The runtime's other tasks go on meanwhile.
async fn until(is_so: impl Fn() -> bool + Send + Sync) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("nothing happens");
}

const WAITING_FOR_TURN: &str = "floodmark_ingest_rules_waiting_requests{for=\"turn\"}";
const WAITING_FOR_PLACE: &str = "floodmark_ingest_rules_waiting_requests{for=\"place\"}";

/// Others need the places, and the permits of Graphite's bodies.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_holds_no_place_while_its_rules_wait() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.inflight_requests_max = 3;
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    let permits = AllPermits::take(&ruled, "b").await;
    let mut sending = Vec::new();
    for number in 0..5 {
        let sender = Arc::clone(&ruled);
        let all = series("m", number * 20..number * 20 + 20);
        sending.push(tokio::spawn(async move { sender.send("a", &all).await }));
        until(|| ruled.metric(WAITING_FOR_TURN) == f64::from(number + 1)).await;
        assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    }
    let intake = FairPermits::new(1);
    let permit = intake.acquire(&TenantId::parse("a").unwrap()).await;
    let Begun::Later(later) = ruled.begin_lines(&mut Earlier::default(), Some(permit)).await else {
        panic!("the rules do not take long")
    };
    let b = permits.tenant.clone();
    let of_b = std::pin::pin!(intake.acquire(&b));
    assert!(is_ready(of_b), "the body has its permit although it waits");
    let later = tokio::spawn(later.sent());
    until(|| ruled.metric(WAITING_FOR_TURN) == 6.0).await;
    assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    drop(permits);
    for sent in sending {
        assert_eq!(sent.await.unwrap().unwrap().samples, 20);
    }
    let (sent, new) = later.await.unwrap().unwrap();
    let stored = sent.settle(ruled.node.writes()).await.unwrap().samples;
    assert_eq!(stored + new.points(), 60);
    drop(new);
    assert_eq!([WAITING_FOR_TURN, WAITING_FOR_PLACE].map(|name| ruled.metric(name)), [0.0; 2]);
    assert!(ruled.metric("floodmark_ingest_rules_seconds_total{tenant=\"a\"}") > 0.0);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

/// To be refused would mean that the rules are applied again, and perhaps again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_rules_are_decided_waits_for_its_place() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.inflight_requests_max = 1;
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    let permits = AllPermits::take(&ruled, "b").await;
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.send("a", &series("m", 0..20)).await }
    });
    until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
    let writes = ruled.node.writes();
    let (settings, b) = (writes.overrides.current(), permits.tenant.clone());
    let place = writes.gates.enter(&b, settings.of(&b)).unwrap();
    drop(permits);
    until(|| ruled.metric(WAITING_FOR_PLACE) == 1.0).await;
    assert_eq!(ruled.applied(), 20.0);
    let again = AllPermits::take(&ruled, "b").await; // it holds no thread
    let refused = ruled.send("a", &series("m", 0..1)).await.unwrap_err();
    assert_eq!(refused.refusal.kind, ErrorKind::Unavailable);
    drop((again, place));
    assert_eq!(sending.await.unwrap().unwrap().samples, 20);
    assert_eq!(ruled.applied(), 20.0, "the rules are applied again");
    assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// If the sender of the request goes away, nobody else has the samples.
#[tokio::test(flavor = "multi_thread")]
async fn another_replica_keeps_its_samples_while_a_request_of_the_elected_one_waits() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.tenants.general.ha_dedup = true;
    }));
    let send = |replica: &'static str, series: u32| {
        let ruled = Arc::clone(&ruled);
        async move { ruled.send_of_replica(replica, series).await }
    };
    assert_eq!(send("a", 1).await.unwrap().samples, 1);
    assert_eq!(send("b", 1).await.unwrap().deduplicated_samples, 1);
    let before_ms = SystemClock.now_ms() - 1000;
    clock.step_ms.store(50, Ordering::Relaxed);
    for is_given_up in [true, false] {
        let permits = AllPermits::take(&ruled, "b").await;
        let sending = tokio::spawn(send("a", 20));
        until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
        let refused = send("b", 1).await.unwrap_err();
        assert_eq!((refused.refusal.reason, refused.samples), ("ha_failover", 0));
        // the request that waits has no sample as old as this one
        let older =
            ruled.send_of_replica_at("b", 1, before_ms).await.map(|outcome| outcome.deduplicated_samples);
        match older {
            Ok(duplicates) => assert_eq!((duplicates, is_given_up), (1, true)),
            Err(refused) => {
                assert_eq!((refused.refusal.reason, is_given_up), ("ha_failover", false), "a was not stored")
            }
        }
        if is_given_up {
            sending.abort();
            assert!(sending.await.unwrap_err().is_cancelled());
            let refused = send("b", 1).await.unwrap_err();
            assert_eq!(refused.refusal.reason, "ha_failover");
            drop(permits);
        } else {
            drop(permits);
            assert_eq!(sending.await.unwrap().unwrap().samples, 20);
            assert_eq!(send("b", 1).await.unwrap().deduplicated_samples, 1);
        }
    }
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// A sender that does not wait for the rules sends its samples again, and a body of lines is written again after a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn samples_count_once_against_the_rate_limit() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        let limits = &mut settings.tenants.general.limits;
        (limits.samples_per_second, limits.rate_burst_ms) = (Some(1), 100_000);
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    for number in 0..3 {
        let permits = AllPermits::take(&ruled, "b").await;
        let sending = tokio::spawn({
            let (ruled, all) = (Arc::clone(&ruled), series("m", number * 60..number * 60 + 60));
            async move { ruled.send("a", &all).await }
        });
        until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        drop(permits);
    }
    clock.step_ms.store(0, Ordering::Relaxed);
    let mut earlier = Earlier::default();
    for _ in 0..3 {
        let Begun::Sent(sent) = ruled.begin_lines(&mut earlier, None).await else { panic!("slow rules") };
        let (sent, new) = *sent;
        earlier.samples = true;
        drop(new);
        sent.settle(ruled.node.writes()).await.unwrap();
    }
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap().samples, 30);
    // 90 samples and a few have counted; 30 more are one request too many
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap().samples, 30);
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap_err().refusal.reason, "samples_rate");
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_goes_away_ends_its_work_and_can_go_on_later() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    clock.step_ms.store(50, Ordering::Relaxed);
    let mut permits = AllPermits::take(&ruled, "b").await;
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.send("a", &series("m", 0..40)).await }
    });
    while ruled.applied() < 10.0 {
        permits.let_pass(&ruled).await;
        tokio::task::yield_now().await;
    }
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    drop(permits);
    let is_free = async {
        while ruled.node.writes().inflight.used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_free).await.expect("the work goes on");
    let before = ruled.applied();
    assert!((10.0..=12.0).contains(&before), "{before}");
    assert_eq!(ruled.send("a", &series("m", 0..40)).await.unwrap().samples, 40);
    // those that were decided have no labels yet, so the rules make them again
    assert_eq!(ruled.applied() - before, 40.0);
    clock.step_ms.store(0, Ordering::Relaxed);
    assert_eq!(ruled.send("a", &series("m", 0..40)).await.unwrap().samples, 40);
    assert_eq!(ruled.applied() - before, 40.0);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// Statsd's points are given as a batch.
#[tokio::test(flavor = "multi_thread")]
async fn rules_for_a_batch_that_no_decoder_has_made_are_applied_in_turns() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    let mut encoder = V1Encoder::new();
    for (name, number) in [series("m", 0..30), series("gone", 0..5)].concat() {
        let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
        encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    }
    let writes = ruled.node.writes();
    let (mut batch, mut memory) = (Batch::default(), writes.unwritten.reserve(0).unwrap());
    let body = Body { encoding: Encoding::Snappy, bytes: encoder.finish() };
    let request = protocol::Request { format: Version::V1, body };
    remote_write::Decoder::new(writes.seed).decode(request, &mut batch, &mut memory).unwrap();

    clock.step_ms.store(50, Ordering::Relaxed);
    let mut permits = AllPermits::take(&ruled, "b").await;
    let writing = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        let principal = Principal::of(TenantId::parse("a").unwrap());
        async move { write_admitted(ruled.node.writes(), &principal, &mut batch, memory).await }
    });
    while ruled.applied() < 30.0 {
        permits.let_pass(&ruled).await;
        assert!(!writing.is_finished());
        tokio::task::yield_now().await;
    }
    drop(permits);
    let outcome = writing.await.unwrap().unwrap();
    assert_eq!((outcome.samples, outcome.dropped_samples, outcome.refused_samples), (30, 5, 0));
    let renamed = ruled.send("a", &[("new", 7)]).await.unwrap();
    assert_eq!((renamed.samples, renamed.has_created), (1, false));
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// All series wait from the second look on.
#[derive(Debug, Default)]
struct SoonAllWait(AtomicBool);

impl WaitingSeries for SoonAllWait {
    fn mark(&self, _: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>) {
        if self.0.swap(true, Ordering::Relaxed) {
            waiting.resize(series.len(), true);
        }
    }

    fn waits(&self, _: &TenantId, _: SeriesKey) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn labels(&self, _: &TenantId, _: SeriesKey) -> Option<Labels> {
        None
    }
}

impl Ruled {
    /// Stores a sample of each of the first of the series that [`Self::send_lines`] sends.
    async fn store_lines(&self, series: u64) {
        let mut encoder = V1Encoder::new();
        for number in 0..series {
            let labels = Labels::from_pairs(&[("__name__", &format!("m.{number}"))]);
            encoder.series(labels.as_ref(), &[SystemClock.now_ms() - 100_000], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        let written = write(&self.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await;
        assert_eq!(written.unwrap().samples, series);
    }

    /// Sends Graphite's lines: 60 points of 20 series.
    async fn send_lines(&self) -> (u64, NewSamples) {
        let (sent, new) = match self.begin_lines(&mut Earlier::default(), None).await {
            Begun::Sent(sent) => *sent,
            Begun::Later(later) => later.sent().await.unwrap(),
        };
        let outcome = sent.settle(self.node.writes()).await.unwrap();
        assert_eq!(outcome.refused_samples, 0);
        (outcome.samples, new)
    }

    async fn begin_lines(&self, earlier: &mut Earlier, permit: Option<Permit<TenantId>>) -> Begun {
        let now_s = SystemClock.now_ms() / 1000;
        let lines: String = (0..60).map(|i| format!("m.{} {i} {}\n", i % 20, now_s - 60 + i)).collect();
        self.begin_body(lines, earlier, permit).await
    }

    async fn begin_body(
        &self,
        lines: String,
        earlier: &mut Earlier,
        permit: Option<Permit<TenantId>>,
    ) -> Begun {
        let writes = self.node.writes();
        let decoders: Arc<Decoders<graphite::Decoder>> =
            Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
        let (principal, body) = (Principal::of(TenantId::parse("a").unwrap()), Arc::new(lines.into_bytes()));
        let waiting: Arc<dyn WaitingSeries> = Arc::new(SoonAllWait::default());
        let arrived_ms = writes.clock.now_ms();
        let stream = BodyStream { id: StreamId(1), origin: Origin::Sender, arrived_ms, permit, earlier };
        let format = graphite::TimeOfArrival::Refused;
        send_body(writes, &decoders, &principal, format, &body, &waiting, stream).await.unwrap()
    }

    fn expect_all(&self, new: &NewSamples) {
        assert_eq!(new.points(), 60);
        let of_name = |i: u32| Labels::from_pairs(&[("__name__", &format!("new.{i}"))]);
        let key = |i| SeriesKey::of(of_name(i).as_bytes(), self.node.writes().seed);
        assert_eq!(new.keys().collect::<HashSet<_>>(), (0..20).map(key).collect());
        let labels = new.parts.iter().flat_map(|part| &part.series).map(|series| series.labels.clone());
        assert_eq!(labels.collect::<HashSet<_>>(), (0..20).map(of_name).collect());
    }
}

/// A sender without answers cannot repeat what was not stored.
#[tokio::test(flavor = "multi_thread")]
async fn all_points_of_a_body_of_lines_are_handed_back_however_long_the_rules_take() {
    let clock = slow_clock();
    let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ());
    clock.step_ms.store(50, Ordering::Relaxed);
    let (stored, new) = ruled.send_lines().await;
    assert_eq!(stored, 0);
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// Their labels are not made in advance, because they exist then.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_series_that_begin_to_wait_after_the_rules_are_handed_back() {
    let ruled = Ruled::new(RENAME, Arc::new(SystemClock), |_| ());
    ruled.store_lines(20).await;
    let before = ruled.applied();
    let (stored, new) = ruled.send_lines().await;
    assert_eq!((stored, ruled.applied()), (0, before), "the series were known when the rules were asked");
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// The labels of the first ones are made last, when those of the others are there.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_series_of_a_body_may_begin_to_wait_between_two_turns() {
    for known in [1, 7, 19] {
        let clock = slow_clock();
        let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ());
        ruled.store_lines(known).await;
        clock.step_ms.store(50, Ordering::Relaxed);
        let (stored, new) = ruled.send_lines().await;
        assert_eq!(stored, 0);
        ruled.expect_all(&new);
        drop(new);
        stop(ruled.node).await;
    }
}

/// A lane does this, so that it holds no memory that others need to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_rules_take_long_can_be_given_up_and_written_anew() {
    let clock = slow_clock();
    let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        let limits = &mut settings.tenants.general.limits;
        (limits.requests_per_second, limits.rate_burst_ms) = (Some(1), 1000);
    });
    clock.step_ms.store(50, Ordering::Relaxed);
    let mut earlier = Earlier::default();
    for _ in 0..3 {
        let Begun::Later(later) = ruled.begin_lines(&mut earlier, None).await else {
            panic!("the rules do not take long")
        };
        assert!(ruled.node.writes().inflight.used_bytes() > 0);
        drop(later);
        assert_eq!(ruled.node.writes().inflight.used_bytes(), 0);
    }
    let Begun::Later(later) = ruled.begin_lines(&mut earlier, None).await else {
        panic!("the rules do not take long")
    };
    let (sent, new) = later.sent().await.unwrap();
    assert_eq!(sent.settle(ruled.node.writes()).await.unwrap().samples, 0);
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// They are neither in the body nor in the output, until the body is durable.
#[tokio::test(flavor = "multi_thread")]
async fn points_that_an_output_takes_are_stored_if_it_cannot_have_them_after_the_rules() {
    for has_ended in [false, true] {
        let (clock, dir) = (slow_clock(), tempfile::tempdir().unwrap());
        let file = dir.path().join("aggregation-rules.conf");
        std::fs::write(&file, "t.<n> (10) = sum t.<<n>>\n").unwrap();
        let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
            settings.graphite_rules.aggregator = Some(file);
        });
        clock.ahead_ms.store(100_000, Ordering::Relaxed); // so that the present interval is complete
        clock.step_ms.store(50, Ordering::Relaxed);
        let writes = ruled.node.writes();
        let now_s = writes.clock.now_ms() / 1000;
        let of = |i| if i < 5 { format!("t.{i} 1 {now_s}\n") } else { format!("m.{i} 1 {now_s}\n") };
        let lines: String = (0..25).map(of).collect();
        let begin = || async {
            match ruled.begin_body(lines.clone(), &mut Earlier::default(), None).await {
                Begun::Sent(_) => panic!("the rules do not take long"),
                Begun::Later(later) => later,
            }
        };
        let (_, new) = begin().await.sent().await.unwrap();
        assert_eq!(new.points(), 20, "nothing is taken");
        let later = begin().await;
        match has_ended {
            true => writes.aggregator.adopt(&Arc::default(), writes.clock.now_ms()),
            false => _ = clock.ahead_ms.fetch_add(120_000, Ordering::Relaxed),
        }
        let refusal = later.sent().await.map(|_| ()).unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "ingest_rules"));
        let (sent, again) = begin().await.sent().await.unwrap();
        assert_eq!(again.points(), 25);
        assert_eq!(sent.settle(writes).await.unwrap().refused_samples, 0);
        drop((new, again));
        stop(ruled.node).await;
    }
}

/// The body was durable, so its sender does not send them again.
#[tokio::test(flavor = "multi_thread")]
async fn points_that_an_output_cannot_have_when_the_body_is_durable_are_stored() {
    let (clock, dir) = (slow_clock(), tempfile::tempdir().unwrap());
    let file = dir.path().join("aggregation-rules.conf");
    std::fs::write(&file, "t.<n> (10) = sum t.<<n>>\n").unwrap();
    let rename = "- {source_labels: [__name__], regex: 't.4', target_label: __name__, replacement: 'u.4'}\n";
    let ruled = Ruled::new(rename, Arc::clone(&clock) as _, |settings| {
        settings.graphite_rules.aggregator = Some(file);
    });
    clock.ahead_ms.store(100_000, Ordering::Relaxed); // so that the present interval is complete
    let writes = ruled.node.writes();
    let now_s = writes.clock.now_ms() / 1000;
    let lines: String = (0..5).map(|i| format!("t.{i} {i} {now_s}\n")).collect();
    let Begun::Sent(sent) = ruled.begin_body(lines, &mut Earlier::default(), None).await else {
        panic!("the rules take long")
    };
    let (sent, new) = *sent;
    let mut outcome = sent.settle(writes).await.unwrap();
    assert_eq!((new.points(), outcome.samples), (0, 0), "the outputs have taken all points");
    clock.ahead_ms.fetch_add(120_000, Ordering::Relaxed);
    let principal = Principal::of(TenantId::parse("a").unwrap());
    let given_back = count(writes, &principal, &mut outcome).await.unwrap();
    assert_eq!((given_back.points(), given_back.lost), (5, 0));
    for has_created in [true, false] {
        let stored = given_back.store(writes, &principal).await.unwrap();
        assert_eq!((stored.samples, stored.refused_samples, stored.has_created), (5, 0, has_created));
    }
    drop(given_back);
    for name in ["t.0", "t.3", "u.4"] {
        let mut encoder = V1Encoder::new();
        encoder.series(Labels::from_pairs(&[("__name__", name)]).as_ref(), &[now_s * 1000 + 1], &[1.0]);
        let body = encoder.finish().to_vec();
        let memory = writes.inflight.reserve(body.len() as u64).unwrap();
        let again = write(&ruled.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await;
        assert!(!again.unwrap().has_created, "{name} exists");
    }
    drop(new);
    stop(ruled.node).await;
}

/// Metadata is stored under the names that rules give, however long the rules take.
#[tokio::test(flavor = "multi_thread")]
async fn rules_for_names_of_metadata_are_applied_in_turns() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    clock.step_ms.store(50, Ordering::Relaxed);
    let all = [("m1", "one"), ("gone", "two"), ("m3", "three"), ("same", "four"), ("m5", "five")];
    let mut permits = AllPermits::take(&ruled, "b").await;
    let writing = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.write_metadata("a", &all).await }
    });
    while !writing.is_finished() {
        permits.let_pass(&ruled).await;
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    for (metric, help) in [("new1", "one"), ("new3", "three"), ("same", "four"), ("new5", "five")] {
        assert_eq!(ruled.help("a", metric).as_deref(), Some(help));
    }
    assert_eq!([ruled.help("a", "gone"), ruled.help("a", "m1")], [None, None]);
    drop(permits);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// A remote-write message with metadata only.
fn metadata(metrics: &[(&str, &str)]) -> Vec<u8> {
    let field = |into: &mut Vec<u8>, tag: u8, bytes: &[u8]| {
        let length = bytes.len();
        assert!(length < 1 << 14);
        into.extend([tag, length as u8 | 0x80, (length >> 7) as u8]);
        into.extend(bytes);
    };
    let mut body = Vec::new();
    for (name, help) in metrics {
        let mut one = vec![0x08, 1];
        field(&mut one, 0x12, name.as_bytes());
        field(&mut one, 0x22, help.as_bytes());
        field(&mut body, 0x1a, &one);
    }
    snap::raw::Encoder::new().compress_vec(&body).unwrap()
}

impl Ruled {
    /// Returns how many entries of metadata a request would write.
    fn new_metadata(&self, tenant: &str, metrics: &[(&str, &str)]) -> usize {
        let decoders: Arc<Decoders<remote_write::Decoder>> =
            Arc::new(Decoders::new(self.node.reads().seed, self.node.writes().decoders.clone()));
        let tenant = TenantId::parse(tenant).unwrap();
        let principal = Principal::of(tenant.clone());
        let bytes = metadata(metrics).into();
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        let request = Encoded { principal, format: Version::V1, encoding: Encoding::Snappy, bytes, memory };
        let rules = self.node.writes().ingest.list_of(&tenant);
        let prepared = decoders.prepare(self.node.writes(), request, rules).unwrap();
        prepared.submissions.iter().map(|(_, submission, _)| submission.metadata.len()).sum()
    }

    async fn write_metadata(&self, tenant: &str, metrics: &[(&str, &str)]) {
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        let tenant = TenantId::parse(tenant).unwrap();
        write(&self.node, tenant, Version::V1, metadata(metrics), memory).await.unwrap();
    }

    fn help(&self, tenant: &str, metric: &str) -> Option<String> {
        let tenant = TenantId::parse(tenant).unwrap();
        let partitions = self.node.reads().partitions.iter();
        let mut found = partitions.filter_map(|partition| {
            let head = partition.head.read();
            head.tenant(&tenant)?.metadata_of(metric).map(|found| found.help.clone())
        });
        found.next()
    }
}

/// Otherwise, each request would write the metadata of all of them to the journal.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_metrics_that_become_one_is_written_once() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    let (a, b, own) = (("a_x", "from a"), ("b_x", "from b"), ("x", "own"));
    let all = [a, b, own];
    assert_eq!(ruled.new_metadata("a", &all), 3);
    assert_eq!(ruled.new_metadata("a", &all), 3, "what is not durable is written again");
    ruled.write_metadata("a", &all).await;
    assert_eq!(ruled.help("a", "x").as_deref(), Some("own"));
    for round in [&all[..], &[a], &[b], &[own], &[own, b, a]] {
        assert_eq!(ruled.new_metadata("a", round), 0, "{round:?}");
    }
    // a change is written, and so is the change back
    for help in ["changed", "from a"] {
        let changed = [("a_x", help)];
        assert_eq!(ruled.new_metadata("a", &changed), 1, "{help}");
        ruled.write_metadata("a", &changed).await;
        assert_eq!(ruled.help("a", "x").as_deref(), Some(help));
        assert_eq!(ruled.new_metadata("a", &[changed[0], b, own]), 0, "{help}");
    }
    stop(ruled.node).await;
}

/// Their verdicts have the same keys. If it were remembered for both what one of them has written, the change of the other
/// would be left out.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_tenants_with_the_same_rules_is_told_apart() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    ruled.write_metadata("b", &[("a_x", "old")]).await;
    ruled.write_metadata("a", &[("a_x", "new")]).await;
    assert_eq!(ruled.new_metadata("b", &[("a_x", "new")]), 1);
    ruled.write_metadata("b", &[("a_x", "new")]).await;
    assert_eq!(ruled.help("b", "x").as_deref(), Some("new"));
    assert_eq!(ruled.new_metadata("b", &[("a_x", "new")]), 0);
    stop(ruled.node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_for_which_there_was_no_room_is_not_remembered_as_written() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    ruled.write_metadata("a", &[("a_x", "old")]).await;
    let discarded = || {
        let text = ruled.node.registry().render();
        let lines = text.lines().filter(|line| line.starts_with("floodmark_write_refused_metadata_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let long = "y".repeat(50);
    for round in 0.. {
        assert!(round < 1000, "the memory for metadata never fills");
        let names: Vec<_> = (0..100).map(|i| format!("{round}_{i}_{long}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
        ruled.write_metadata("a", &all).await;
        if discarded() > 0.0 {
            break;
        }
    }
    let long = "z".repeat(1000);
    let changed = ("a_x", long.as_str());
    for _ in 0..2 {
        ruled.write_metadata("a", &[changed]).await;
        assert_eq!(ruled.help("a", "x").as_deref(), Some("old"), "there is room for it");
    }
    assert_eq!(ruled.new_metadata("a", &[changed]), 1);
    stop(ruled.node).await;
}

/// The sender repeats a request that was refused, so the samples that rules dropped from it would be counted again.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_samples_of_a_request_that_is_refused_are_not_counted() {
    let ruled = Ruled::new(RENAME, Arc::new(SystemClock), |settings| {
        settings.tenants.general.limits.active_series = Some(1);
    });
    let dropped =
        || ruled.metric("floodmark_ingest_rules_dropped_samples_total{tenant=\"a\",rule=\"default/3\"}");
    for _ in 0..3 {
        let all = [series("m", 0..2), series("gone", 0..5)].concat();
        let Unwritten { refusal, .. } = ruled.send("a", &all).await.unwrap_err();
        assert_eq!((refusal.reason, dropped()), ("active_series", 0.0));
    }
    for round in 1..=3 {
        let all = [series("m", 0..1), series("gone", 0..5)].concat();
        assert_eq!(ruled.send("a", &all).await.unwrap().dropped_samples, 5);
        assert_eq!(dropped(), f64::from(5 * round));
    }
    stop(ruled.node).await;
}

/// Two tenants have contradicting rules for the same series, and more series than verdicts can be remembered.
#[tokio::test(flavor = "multi_thread")]
async fn displaced_verdicts_are_decided_again_and_never_those_of_others() {
    let rules = "
tenants:
  a: [{source_labels: [__name__], regex: 'm(.*)', target_label: __name__, replacement: 'new$1'}]
  b: [{source_labels: [__name__], regex: 'm(.*)', action: drop}]
  c: [{source_labels: [__name__], regex: 'x(.*)', action: drop}]
";
    const OF_A: u32 = 9000;
    const OF_B: u32 = 27_000;
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    let mut applied = Vec::new();
    for round in 0..3 {
        for from in (0..OF_B).step_by(3000) {
            let all = series("m", from..from + 3000);
            let of_b = ruled.send("b", &all).await.unwrap();
            assert_eq!((of_b.samples, of_b.dropped_samples), (0, 3000), "round {round}");
            if from < OF_A {
                let of_a = ruled.send("a", &all).await.unwrap();
                assert_eq!((of_a.samples, of_a.dropped_samples), (3000, 0), "round {round}");
            }
            if from == 0 {
                let of_c = ruled.send("c", &all).await.unwrap();
                assert_eq!((of_c.samples, of_c.dropped_samples), (3000, 0), "round {round}");
            }
        }
        applied.push(ruled.applied());
    }
    let (first, last) = (applied[0], applied[2] - applied[1]);
    assert_eq!(first, f64::from(OF_A + OF_B + 3000));
    assert!(last > 1000.0, "the rules decided again on {last} series, so all were remembered");
    assert!(last < first, "the rules decided again on all {last} series");
    let seed = ruled.node.reads().seed;
    let has = |tenant: &str, name: &str, number: u32| {
        let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
        let key = SeriesKey::of(labels.as_bytes(), seed);
        let tenant = TenantId::parse(tenant).unwrap();
        let heads = ruled.node.reads().partitions.iter();
        heads
            .map(|partition| partition.head.read())
            .any(|head| head.tenant(&tenant).is_some_and(|head| head.resolve(key).is_some()))
    };
    for number in 0..OF_B {
        let found = [("a", "m"), ("a", "new"), ("b", "m"), ("b", "new"), ("c", "m"), ("c", "new")]
            .map(|(tenant, name)| has(tenant, name, number));
        assert_eq!(found, [false, number < OF_A, false, false, number < 3000, false], "series {number}");
    }
    stop(ruled.node).await;
}
