use super::super::{GraphiteSockets, Lines};
use super::*;
use crate::http::App;
use crate::listen::lines::intake::Protocol;
use crate::listen::lines::new_series_queue::{ChunkLimits, Expected};
use crate::listen::lines::senders::Senders;
use crate::listen::lines::ticket::Tickets;
use crate::node::Node;
use crate::partition::submission::{NewPart, NewSeries};
use crate::seal::tests::stop;
use crate::settings::Settings;
use crate::write_path::known::NewSamples;
use crate::write_path::tests::small_settings;
use crate::write_path::{Origin, Unwritten};
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

    /// Requests of a tenant have this much memory.
    async fn with_inflight_bytes(bytes: u64) -> Self {
        Self::new(|settings| settings.tenants.general.limits.inflight_bytes = Some(bytes)).await
    }

    /// Takes all memory of a tenant's requests.
    fn hold(&self, tenant: &TenantId) -> Reservation {
        let (context, own) = (self.node.writes(), self.node.writes().overrides.current());
        let account = context.tenant(tenant).inflight(own.of(tenant)).clone();
        account.reserve(account.limit_bytes()).unwrap()
    }

    #[track_caller]
    fn check_points(&self, stored: u64, refused: u64) {
        let metrics = self.node.registry().render();
        let refused = format!("dropped_points_total{{reason=\"refused\"}} {refused}\n");
        for expected in [format!("points_total {stored}\n"), refused] {
            assert!(metrics.contains(&format!("floodmark_graphite_{expected}")), "{metrics}");
        }
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
            senders: Senders::unknown(),
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
            let (_, dropped) = queue.push(&tenant, 1, (&new, Expected::New), served.tickets.ticket(), now);
            assert!(dropped.is_none());
            // it is in creation, which does not end, and the second point waits for it
            chunks.extend(queue.take(&tenant, ChunkLimits { series: 1, bytes: 1 << 20 }));
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
    let served = Served::with_inflight_bytes(1 << 20).await;
    let (mut writer, tenant) = (served.writer(), Served::tenant(0));
    let held = served.hold(&tenant);
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
    served.check_points(100, 0);
    drop(writer);
    served.stop().await;
}

/// A relay may send a tenant's points over several connections, so a body may lack what bodies of another connection hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_waits_a_moment_for_other_connections_of_its_tenant() {
    let served = Served::with_inflight_bytes(1 << 20).await;
    let (mut writer, tenant) = (served.writer(), Served::tenant(0));
    let held = served.hold(&tenant);
    // the body is refused before this is given back
    tokio::join!(writer.write(served.body(100, 1)), async { drop(held) });
    writer.settled_all().await;
    served.check_points(100, 0);
    drop(writer);
    served.stop().await;
}

/// One tenant must not make the others of a connection wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_other_requests_of_a_tenant_ends() {
    let served = Served::with_inflight_bytes(1 << 20).await;
    let (mut writer, tenant) = (served.writer(), Served::tenant(0));
    let held = served.hold(&tenant);
    timeout(Duration::from_secs(60), writer.write(served.body(100, 2))).await.unwrap();
    timeout(Duration::from_secs(60), writer.settled_all()).await.unwrap();
    served.check_points(50, 50);
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
        let sent =
            served.intake.send(&source, &body, &mut attempts, &mut Creation::catch_up_allowance()).await;
        let Ok(First::Sent(sent)) = sent else { panic!("the rules take long") };
        writer.sent(source, body, attempts, Ok(*sent)).await;
    }
    let settled = writer.oldest_settled().await;
    assert_eq!(settled.as_ref().unwrap().samples, 0, "the computed series has taken all points");
    clock.advance(120_000); // the points are too old for the computed series
    let own = context.overrides.current();
    let enter = async || loop {
        match context.gates.enter(&tenant, own.of(&tenant)) {
            Ok(place) => break place,
            Err(_) => yield_now().await, // the second body may still be inside
        }
    };
    let other_writes =
        timeout(Duration::from_secs(60), async { [enter().await, enter().await] }).await.unwrap();
    timeout(Duration::from_secs(60), writer.finish(settled)).await.unwrap();
    assert!(!writer.has_bodies(), "the second body was written again");
    let queue = &served.app.new_series_queue;
    assert_eq!(queue.points(), [(tenant.clone(), 10)]);
    assert!(!queue.has_new(&tenant), "they do not wait for new series");
    let metrics = served.node.registry().render();
    assert!(metrics.contains("floodmark_graphite_dropped_points_total{reason=\"refused\"} 0\n"), "{metrics}");
    drop((writer, other_writes));
    served.stop().await;
}

/// Some of its points may be durable since an earlier attempt, so the value of their interval would be too low.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_given_up_later_is_a_gap_in_computed_series() {
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rules.path(), "out (10) = sum m\n").unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let served = Served::with_clock(Arc::clone(&clock) as _, |settings| {
        settings.tenants.general.limits.concurrent_writes = Some(1);
        settings.graphite_rules.aggregator = Some(rules.path().to_owned());
    })
    .await;
    let (mut writer, tenant, context) = (served.writer(), Served::tenant(0), served.node.writes());
    let send = async || {
        let source = Source { principal: Principal::of(tenant.clone()), ..served.writer().source };
        let body = served.body(5, 1);
        let lines = String::from_utf8_lossy(&body.bytes).replace("t0.", "");
        let (body, mut attempts) = (Body { bytes: Arc::new(lines.into()), ..body }, Attempts::default());
        let mut allowance = Creation::catch_up_allowance();
        let sent = served.intake.send(&source, &body, &mut attempts, &mut allowance).await;
        let Ok(First::Sent(sent)) = sent else { panic!("the rules take long") };
        (source, body, attempts, sent)
    };
    // the rule is in force from the beginning of an interval on, and the points are within one
    clock.advance(100_000 + 7_000 + (10_000 - clock.now_ms().unsigned_abs() % 10_000));
    let next_ended = || context.aggregator.next_ended(&tenant, &mut 0, clock.now_ms(), true);
    let (source, body, attempts, sent) = send().await;
    writer.sent(source, body, attempts, Ok(*sent)).await;
    writer.settled_all().await;
    clock.advance(10_000);
    assert!(next_ended().is_some(), "without a body that is given up, there is a value");
    let (source, body, attempts, sent) = send().await;
    writer.sent(source, body, attempts, Ok(*sent)).await;
    writer.settled_all().await;
    let (source, body, attempts, sent) = send().await;
    let contributions = served.intake.settle(*sent).await.unwrap().contributions;
    assert!(contributions.is_some());
    // the first attempt, of which points may be durable, is refused for now, and the second one for good
    let refusal = Refusal::busy("ingest_rules", "the rules have changed".to_owned());
    let unwritten = Unwritten { may_be_durable: true, ..refusal.into() };
    let settled = tokio::spawn(async { Err(Refused { unwritten, contributions }) });
    writer.bodies.push_back(Sending { source, body, attempts, settled });
    let own = context.overrides.current();
    let other_write = context.gates.enter(&tenant, own.of(&tenant)).unwrap();
    writer.settled_all().await;
    drop(other_write);
    let metrics = served.node.registry().render();
    for expected in
        ["dropped_points_total{reason=\"refused\"} 5", "aggregator_missed_total{reason=\"refused\"} 5"]
    {
        assert!(metrics.contains(&format!("floodmark_graphite_{expected}\n")), "{metrics}");
    }
    clock.advance(20_000);
    let ended = next_ended();
    assert!(ended.is_none(), "{ended:?} lacks points");
    drop(writer);
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
                senders: Senders::unknown(),
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
            let lines: String = (0..3000).filter(|j| name(*j) == i).map(|j| format!("{j} 1 2\n")).collect();
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
