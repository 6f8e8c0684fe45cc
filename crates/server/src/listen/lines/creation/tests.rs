use super::super::ticket::Tickets;
use super::super::{GraphiteSockets, Lines, Protocol};
use super::*;
use crate::http::App;
use crate::node::Node;
use crate::partition::submission::{NewPart, NewSeries};
use crate::seal::tests::stop;
use crate::write_path::Origin;
use crate::write_path::tests::small_settings;
use model::{Labels, SeriesKey, ValueKind, Values};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use stdx::clock::{Clock, ManualClock, SystemClock};

/// A clock that panics once when a thread asks for the time.
#[derive(Debug)]
struct Faulty {
    clock: ManualClock,
    thread: ThreadId,
    panics: AtomicBool,
}

impl Clock for Faulty {
    fn now_ms(&self) -> i64 {
        let is_of_test = std::thread::current().id() == self.thread;
        assert!(!is_of_test || !self.panics.swap(false, Ordering::Relaxed), "as the test wants it");
        self.clock.now_ms()
    }

    fn instant(&self) -> std::time::Instant {
        self.clock.instant()
    }

    fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

fn source_of(tenant: &TenantId, tickets: &Tickets) -> Source {
    Source {
        protocol: Protocol::Lines,
        principal: Principal::of(tenant.clone()),
        has_many_tenants: false,
        is_in_lane: false,
        sender: None,
        ticket: tickets.ticket().clone(),
        origin: Origin::Sender,
    }
}

/// A point of each of some series.
fn points_of(context: &write_path::Context, series: std::ops::Range<u32>) -> NewSamples {
    let (count, timestamp_ms) = (series.len(), context.clock.now_ms());
    let new = |(number, i): (u32, u32)| {
        let labels = Labels::from_pairs(&[("__name__", &format!("m{number}"))]);
        let key = SeriesKey::of(labels.as_bytes(), context.seed);
        NewSeries { key, labels, samples: i..i + 1, exemplars: vec![] }
    };
    let (series, values) = (series.zip(0..).map(new).collect(), Values::Floats(vec![1.0; count]));
    let part = NewPart { series, timestamps: vec![timestamp_ms; count], values };
    NewSamples::of(part, context.inflight.reserve(0).unwrap())
}

/// The server stops while most series wait, because the tenant may create only ten.
#[tokio::test]
async fn points_that_are_left_at_the_end_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = small_settings(dir.path());
    settings.tenants.general.limits.new_series_per_second = Some(10);
    settings.tenants.general.limits.rate_burst_ms = 1000;
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let node = Node::start(settings, clock as Arc<dyn Clock>).unwrap();
    let context = Arc::clone(node.writes());
    let creation = Lines::new(&App::new(node.clone()), GraphiteSockets::default(), None).creation;
    let (tickets, tenant) = (Tickets::new(), TenantId::anonymous());
    let source = source_of(&tenant, &tickets);
    let registry = node.registry().clone();
    let count = |metric: &str| {
        let text = registry.render();
        text.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let dropped = || count("floodmark_graphite_dropped_points_total{reason=\"stopping\"}");
    creation.queue(&source, &points_of(&context, 0..40), Expected::New);
    while creation.queue.of(&tenant).series > 30 {
        tokio::task::yield_now().await;
    }
    creation.drain(Instant::now()).await;
    let left = dropped();
    assert!((20..=30).contains(&left), "{left}");
    creation.queue(&source, &points_of(&context, 40..43), Expected::New);
    assert_eq!(dropped(), left + 3);
    stop(node).await;
    assert_eq!(dropped(), left + 3);
}

/// Only one task stores what a tenant has queued. If a panic ended it, all later points of the queued series would wait for ever.
#[tokio::test]
async fn a_panic_costs_a_tenant_one_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let (thread, panics) = (std::thread::current().id(), AtomicBool::new(false));
    let clock = Arc::new(Faulty { clock: ManualClock::at(SystemClock.now_ms()), thread, panics });
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let context = Arc::clone(node.writes());
    let creation = Lines::new(&App::new(node.clone()), GraphiteSockets::default(), None).creation;
    let (tickets, tenant) = (Tickets::new(), TenantId::anonymous());
    let source = source_of(&tenant, &tickets);
    let key = |name: &str| {
        let labels = Labels::from_pairs(&[("__name__", name)]);
        (SeriesKey::of(labels.as_bytes(), context.seed), labels)
    };
    let queue = |name: &str| {
        let (key, labels) = key(name);
        let series = vec![NewSeries { key, labels, samples: 0..1, exemplars: vec![] }];
        let values = Values::Floats(vec![1.0]);
        let part = NewPart { series, timestamps: vec![context.clock.now_ms()], values };
        creation.queue(&source, &NewSamples::of(part, context.inflight.reserve(0).unwrap()), Expected::New);
    };
    let is_stored = |name: &str| {
        let key = key(name).0;
        let head = context.partitions[key.partition(context.partitions.len())].head.read();
        head.tenant(&tenant).is_some_and(|tenant| tenant.resolve(key.of_kind(ValueKind::Float)).is_some())
    };
    queue("lost");
    clock.panics.store(true, Ordering::Relaxed);
    while clock.panics.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    queue("later");
    creation.drain(Instant::now() + Duration::from_secs(60)).await;
    assert_eq!((is_stored("lost"), is_stored("later")), (false, true));
    let text = node.registry().render();
    assert!(text.contains("floodmark_graphite_dropped_points_total{reason=\"refused\"} 1\n"), "{text}");
    stop(node).await;
}
