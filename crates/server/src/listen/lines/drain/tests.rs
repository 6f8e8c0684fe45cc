use super::super::ticket::Tickets;
use super::super::{GraphiteSockets, Lines};
use super::*;
use crate::http::App;
use crate::listen::lines::new_series_queue::Expected;
use crate::node::Node;
use crate::partition::submission::NewPart;
use crate::seal::tests::stop;
use crate::write_path::known::NewSamples;
use crate::write_path::tests::small_settings;
use crate::write_path::{Decoders, Encoded, write};
use model::{Labels, Principal, SeriesKey, TenantId, ValueKind, Values};
use protocol::{Encoding, graphite};
use std::path::Path;
use stdx::clock::{Clock, ManualClock, SystemClock};

/// A node with a rule of which the output replaces its inputs, in an interval that can be complete.
fn node_with_rule(dir: &Path) -> Node {
    let file = dir.join("aggregation-rules.conf");
    std::fs::write(&file, "m (60) = sum m\n").unwrap();
    let mut settings = small_settings(&dir.join("data"));
    settings.graphite_rules.aggregator = Some(file);
    let limits = &mut settings.tenants.general.limits;
    (limits.samples_per_second, limits.rate_burst_ms) = (Some(1000), 1000);
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    clock.advance(120_000);
    node
}

fn tenants(name: &str) -> impl Iterator<Item = TenantId> {
    (0..5).map(move |number| TenantId::parse(&format!("{name}-{number}")).unwrap())
}

/// Sends a point of the output's name by HTTP. Returns how many points are stored.
async fn send(node: &Node, tenant: TenantId) -> u64 {
    let context = node.writes();
    let decoders: Arc<Decoders<graphite::Decoder>> =
        Arc::new(Decoders::new(context.seed, context.decoders.clone()));
    let bytes = format!("m 1 {}\n", context.clock.now_ms() / 1000).into_bytes();
    let request = Encoded {
        principal: Principal::of(tenant),
        format: graphite::TimeOfArrival::Refused,
        encoding: Encoding::Identity,
        memory: context.inflight.reserve(bytes.len() as u64).unwrap(),
        bytes: bytes.into(),
    };
    let outcome = write(context, &decoders, request).await.unwrap();
    assert_eq!(outcome.refused_samples, 0);
    outcome.samples
}

/// Whether the series of the output exists.
fn is_stored(node: &Node, tenant: &TenantId) -> bool {
    let context = node.writes();
    let key = SeriesKey::of(Labels::from_pairs(&[("__name__", "m")]).as_bytes(), context.seed);
    let head = context.partitions[key.partition(context.partitions.len())].head.read();
    head.tenant(tenant).is_some_and(|tenant| tenant.resolve(key.of_kind(ValueKind::Float)).is_some())
}

fn drain_of(node: &Node) -> Drain {
    drain_in(&App::new(node.clone()))
}

fn drain_in(app: &App) -> Drain {
    let (node, lines) = (&app.node, Lines::new(app, GraphiteSockets::default(), None));
    let Lines { creation, aggregates, drops, .. } = lines;
    Drain { aggregates, creation, drops, stopped_ms: node.writes().clock.now_ms() }
}

/// Brings these tenants above their rate.
fn hold_up(node: &Node, tenants: impl Iterator<Item = TenantId>) {
    let context = node.writes();
    for tenant in tenants {
        let settings = context.overrides.current();
        context.tenant(&tenant).take_samples(settings.of(&tenant), 1_000_000, context.clock.instant());
    }
}

fn dropped(node: &Node) -> Option<u64> {
    let text = node.registry().render();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("floodmark_graphite_dropped_points_total{reason=\"stopping\"} "));
    value.map(|value| value.parse().unwrap())
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited for too long: {what}");
        tokio::task::yield_now().await;
    }
}

/// If a tenant's points cannot be stored, its connections and computed points take none of the time for other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_stored_costs_others_no_computed_points() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_rule(dir.path());
    for tenant in tenants("free").chain(tenants("stuck")) {
        assert_eq!(send(&node, tenant).await, 0, "the output takes the point");
    }
    hold_up(&node, tenants("stuck"));
    let drain = drain_of(&node);
    let long = Duration::from_secs(3600);
    let deadlines = Deadlines { senders: Duration::ZERO, computed: long, all: long };
    let running = tokio::spawn(drain.run(std::future::pending(), deadlines));
    until("the points of the other tenants", || tenants("free").all(|tenant| is_stored(&node, &tenant)))
        .await;
    // requests may take longer than there is time to compute
    assert_eq!(send(&node, tenants("free").next().unwrap()).await, 1, "the output takes no more");
    assert!(!running.is_finished() && !tenants("stuck").any(|tenant| is_stored(&node, &tenant)));
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    until("the points that are dropped", || dropped(&node) == Some(5)).await;
    stop(node).await;
}

/// The time for computed points ends before the time for all: queued series are created in the rest of it.
#[tokio::test(flavor = "multi_thread")]
async fn computed_points_that_cannot_be_stored_leave_time_for_queued_series() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_rule(dir.path());
    for tenant in tenants("stuck") {
        send(&node, tenant).await;
    }
    hold_up(&node, tenants("stuck"));
    let app = App::new(node.clone());
    let (drain, queue, tenant) = (drain_in(&app), &app.new_series_queue, TenantId::anonymous());
    // nobody creates the series of this tenant
    let part = NewPart { series: vec![], timestamps: vec![], values: Values::Floats(vec![]) };
    let new = NewSamples::of(part, node.writes().inflight.reserve(0).unwrap());
    let _ =
        queue.push(&tenant, 1, (&new, Expected::New), Tickets::new().ticket(), node.writes().clock.instant());
    let long = Duration::from_secs(3600);
    let deadlines = Deadlines { senders: long, computed: Duration::ZERO, all: long };
    let draining = tokio::spawn(drain.run(std::future::ready(()), deadlines));
    until("the points that are dropped", || dropped(&node) == Some(5)).await;
    assert!(!draining.is_finished());
    assert!(queue.forget(&tenant));
    draining.await.unwrap();
    assert!(!tenants("stuck").any(|tenant| is_stored(&node, &tenant)));
    stop(node).await;
}

/// Points count as dropped if they were computed but are not durable in time, and also if there was no time to compute them.
#[tokio::test(flavor = "multi_thread")]
async fn computed_points_for_which_there_is_no_time_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_rule(dir.path());
    for tenant in tenants("a") {
        send(&node, tenant).await;
    }
    hold_up(&node, tenants("a"));
    let deadlines = Deadlines { senders: Duration::ZERO, computed: Duration::ZERO, all: Duration::ZERO };
    drain_of(&node).run(std::future::pending(), deadlines).await;
    until("the points that are dropped", || dropped(&node) == Some(5)).await;
    assert!(!tenants("a").any(|tenant| is_stored(&node, &tenant)));
    stop(node).await;
}

/// If two rounds of a tenant ran at the same time, the value that was computed first might be stored last, and win.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_round_of_a_tenant_waits_for_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_rule(dir.path());
    let [first, second] = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
    for tenant in [&first, &second] {
        send(&node, tenant.clone()).await;
    }
    let drain = drain_of(&node);
    let running = drain.aggregates.begin(&first).unwrap();
    assert!(drain.aggregates.begin(&first).is_none());
    let long = Duration::from_secs(3600);
    let deadlines = Deadlines { senders: long, computed: long, all: long };
    let draining = tokio::spawn(drain.run(std::future::ready(()), deadlines));
    until("the other tenant", || is_stored(&node, &second)).await;
    assert!(!is_stored(&node, &first));
    drop(running);
    until("the tenant", || is_stored(&node, &first)).await;
    draining.await.unwrap();
    assert_eq!(dropped(&node), Some(0));
    stop(node).await;
}
