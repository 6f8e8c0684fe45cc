use super::*;
use crate::limits::headroom::tests::FixedResident;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::tests::{node_with, write_of};
use crate::settings::{Given, Settings, TenantLimits, TenantSettings};
use crate::world::World;
use model::{ErrorKind, Labels, Rights, TenantId};
use protocol::encode::V1Encoder;
use protocol::remote_write::Version;
use protocol::{Encoding, remote_write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stdx::budget::Reservation;
use stdx::clock::{Clock, ManualClock, SystemClock};

mod computed;
pub(crate) mod histograms;
mod known;
mod limits;
mod replicas;
mod rules;
mod text;

pub(crate) fn small_node(dir: &std::path::Path) -> Node {
    Node::start(small_settings(dir), Arc::new(SystemClock)).unwrap()
}

pub(crate) fn small_settings(dir: &std::path::Path) -> Settings {
    let given = Given::default().flag("data_dir", dir).flag("memory", "64MiB").flag("durability", "os");
    let mut settings = Settings::resolve(&given).unwrap();
    settings.lake.flush_interval_ms = 0; // flushes of tests are not delayed
    settings.past_ms = i64::MAX; // tests choose their timestamps
    settings
}

pub(crate) async fn write(
    node: &Node,
    tenant: TenantId,
    version: Version,
    bytes: Vec<u8>,
    memory: Reservation,
) -> Result<Outcome, Unwritten> {
    let decoders: Decoders<remote_write::Decoder> =
        Decoders::new(node.reads().seed, node.writes().decoders.clone());
    let principal = Principal::of(tenant);
    let request =
        Encoded { principal, format: version, encoding: Encoding::Snappy, bytes: bytes.into(), memory };
    super::write(node.writes(), &Arc::new(decoders), request).await
}

async fn send(node: &Node, names: impl Iterator<Item = String>) -> Result<Outcome, Unwritten> {
    let mut encoder = V1Encoder::new();
    let now_ms = SystemClock.now_ms();
    for name in names {
        let labels =
            Labels::from_pairs(&[("__name__", &name), ("filler", &"x".repeat(2000)), ("series", &name)]);
        encoder.series(labels.as_ref(), &[now_ms], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    write(node, TenantId::anonymous(), Version::V1, body, memory).await
}

pub(crate) async fn write_series(node: &Node, names: impl Iterator<Item = String>) {
    let mut encoder = V1Encoder::new();
    for name in names {
        let labels = Labels::from_pairs(&[("__name__", name.as_str())]);
        encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let outcome = write(node, TenantId::anonymous(), Version::V1, body, memory).await.unwrap();
    assert_eq!((outcome.refused_samples, outcome.refused_series), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_head_keeps_known_series_flowing_and_sends_the_others_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    // sealing fails, so nothing leaves the head
    node.reads().lake.faults.die_at("frozen");
    // a different long label value for each series, so that 85 % of 38 MiB are filled quickly
    let series = |batch: u32| (0..500).map(move |i| format!("m_{batch}_{i}_{}", "y".repeat(400)));
    let mut batch = 0;
    let border = loop {
        match send(&node, series(batch)).await {
            Ok(outcome) => assert_eq!(outcome.refused_series, 0),
            Err(unwritten) => break unwritten,
        }
        batch += 1;
        assert!(batch < 10_000, "the head never fills");
    };
    assert!(border.samples < 500, "{border:?}");
    let Unwritten { refusal, samples, .. } = send(&node, series(batch + 1)).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "no_room_for_series"));
    assert!(refusal.message.contains("--memory"), "{}", refusal.message);
    assert_eq!(samples, 0);

    let known = send(&node, series(0)).await.unwrap();
    assert_eq!((known.samples, known.refused_series), (500, 0), "known series flow");

    let mixed = || send(&node, series(0).chain(["new_1".into(), "new_2".into()]));
    for _ in 0..10 {
        // the samples of known series are stored each time, although the request fails
        let Unwritten { refusal, samples, .. } = mixed().await.unwrap_err();
        assert_eq!((refusal.kind, samples), (ErrorKind::Unavailable, 500), "{refusal}");
        for part in ["500 samples stored", "2 samples of 2 series", "new_1", "--memory", "retry the request"]
        {
            assert!(refusal.message.contains(part), "{refusal}");
        }
        clock.advance(30_000);
    }
    let mixed = mixed().await.expect("the sender is not held up for longer than five minutes");
    assert_eq!((mixed.samples, mixed.refused_series, mixed.refused_samples), (500, 2, 2));
    assert!(mixed.errors[0].1.starts_with("new_"), "{:?}", mixed.errors);

    // metadata alone would also create a tenant, which takes memory
    let metadata = snap::raw::Encoder::new().compress_vec(b"\x1a\x05\x12\x03foo").unwrap();
    for (tenant, taken) in [(TenantId::anonymous(), true), (TenantId::parse("new").unwrap(), false)] {
        let memory = node.writes().inflight.reserve(1024).unwrap();
        let wrote = write(&node, tenant, Version::V1, metadata.clone(), memory).await;
        assert_eq!(wrote.as_ref().err().map(|e| e.refusal.reason), (!taken).then_some("head_full"));
    }
    assert_eq!(node.writes().inflight.used_bytes(), 0);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// Prometheus drops samples that are refused for good, so these must get a retriable error.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_costs_no_samples() {
    const HOUR_MS: i64 = 3_600_000;
    let dir = tempfile::tempdir().unwrap();
    let real_ms = SystemClock.now_ms();
    let clock = Arc::new(ManualClock::at(real_ms));
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let send = |node: Node| async move { send(&node, ["m".to_owned()].into_iter()).await };
    send(node.clone()).await.unwrap();
    clock.set(-9 * HOUR_MS / 60); // nine minutes are tolerated
    send(node.clone()).await.unwrap();
    clock.set(-HOUR_MS);
    for _ in 0..2 {
        let Unwritten { refusal, .. } = send(node.clone()).await.unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "clock"), "{refusal}");
        clock.advance(1000);
    }
    clock.set(HOUR_MS);
    send(node.clone()).await.unwrap();
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();

    // the journal's samples show that the clock was set back while the node was down
    let clock = Arc::new(ManualClock::at(real_ms - HOUR_MS));
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let Unwritten { refusal, .. } = send(node.clone()).await.unwrap_err();
    assert_eq!(refusal.reason, "clock");
    clock.set(HOUR_MS);
    send(node.clone()).await.unwrap();
    // a node without data cannot know that its own clock is behind, so samples seem to come from the future
    let clock = Arc::new(ManualClock::at(real_ms - HOUR_MS));
    let other = tempfile::tempdir().unwrap();
    let fresh = Node::start(small_settings(other.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    assert_eq!(send(fresh.clone()).await.unwrap().refused_samples, 1);
    let stop = move || [node, fresh].iter().for_each(Node::stop);
    tokio::task::spawn_blocking(stop).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_in_another_order_are_the_same_series() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let now_ms = SystemClock.now_ms();
    let mut raw = Vec::new();
    for (timestamp_ms, order) in [(now_ms, ["__name__", "zone"]), (now_ms + 1, ["zone", "__name__"])] {
        let mut labels = Vec::new();
        order.iter().for_each(|name| model::labels::put_label(&mut labels, name.as_bytes(), b"x"));
        labels.extend([0x12, 16, 0x09]);
        labels.extend(1f64.to_le_bytes());
        labels.push(0x10);
        stdx::varint::put(&mut labels, timestamp_ms as u64);
        raw.push(0x0a);
        raw.push(labels.len() as u8);
        raw.extend(labels);
    }
    let body = snap::raw::Encoder::new().compress_vec(&raw).unwrap();
    for _ in 0..2 {
        let memory = node.writes().inflight.reserve(1024).unwrap();
        let outcome = write(&node, TenantId::anonymous(), Version::V1, body.clone(), memory).await.unwrap();
        assert_eq!((outcome.samples, outcome.refused_series), (2, 0));
    }
    let count: usize = node
        .reads()
        .partitions
        .iter()
        .map(|p| p.head.read().tenant(&TenantId::anonymous()).map_or(0, head::TenantHead::series_count))
        .sum();
    assert_eq!(count, 1);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// A client that creates many tenants is slowed down, while tenants with tables are always admitted.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_begin_at_a_bounded_rate() {
    let dir = tempfile::tempdir().unwrap();
    let tenant = |name| TenantId::parse(name).unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    write_of(&node, &tenant("old"), SystemClock.now_ms()).await;
    flush(&node).await.unwrap();
    let stopped = node.clone();
    tokio::task::spawn_blocking(move || stopped.stop()).await.unwrap();
    drop(node);

    let few = |settings: &mut Settings| {
        (settings.tenant_burst, settings.tenants_per_minute, settings.tenants_max) = (2, 1, 2);
    };
    let node = node_with(dir.path(), few).await;
    while !node.reads().lake.tables.is_known(&tenant("old")) {
        tokio::task::yield_now().await; // until upkeep has listed the tenants
    }
    let reason = |name| {
        let principal = Principal::of(TenantId::parse(name).unwrap());
        check(node.writes(), &principal).map_err(|refusal| refusal.reason)
    };
    assert_eq!((reason("a"), reason("b"), reason("c")), (Ok(()), Ok(()), Err("new_tenants")));
    assert_eq!((reason("a"), reason("old")), (Ok(()), Ok(())));
    for name in ["a", "b"] {
        write_of(&node, &tenant(name), SystemClock.now_ms()).await;
    }
    assert_eq!((reason("a"), reason("c"), reason("old")), (Ok(()), Err("tenants"), Ok(())));
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn known_series_flow_while_the_process_holds_too_much() {
    let dir = tempfile::tempdir().unwrap();
    let (resident, clock) =
        (Arc::new(FixedResident::default()), Arc::new(ManualClock::at(SystemClock.now_ms())));
    let world = World::real(Arc::clone(&clock) as Arc<dyn Clock>);
    let world = World { resident: Some(Arc::clone(&resident) as _), ..world };
    let node = Node::start_in(small_settings(dir.path()), world).unwrap();
    let series = || (0..500).map(|i| format!("m_{i}"));
    assert_eq!(send(&node, series()).await.unwrap().samples, 500);

    resident.bytes.store(u64::MAX, Ordering::Relaxed);
    clock.advance(1000);
    assert_eq!(send(&node, series()).await.unwrap().samples, 500, "known series flow");
    let Unwritten { refusal, samples, .. } = send(&node, series().chain(["new".into()])).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.reason, samples), (ErrorKind::Unavailable, "process_memory", 500));
    assert!(refusal.message.contains("--memory"), "{refusal}");

    resident.bytes.store(0, Ordering::Relaxed);
    clock.advance(1000);
    assert_eq!(send(&node, ["new".into()].into_iter()).await.unwrap().samples, 1, "the shortage is over");
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_that_are_too_old_are_left_out_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let settings = Settings { past_ms: 20 * 86_400_000, ..small_settings(dir.path()) };
    let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    node.readiness().wait_for_replay().await;
    let labels = Labels::from_pairs(&[("__name__", "days")]);
    let timestamps: Vec<_> = (0..30).rev().map(|day| clock.now_ms() - day * 86_400_000).collect();
    let mut encoder = V1Encoder::new();
    encoder.series(labels.as_ref(), &timestamps, &[1.0; 30]);
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let outcome = write(&node, TenantId::anonymous(), Version::V1, body, memory).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused_samples), (21, 9));
    assert!(outcome.report().contains("too old (setting past_limit)"), "{}", outcome.report());
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_sends_too_fast_is_refused_until_it_has_paid() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let mut settings = small_settings(dir.path());
    let general = settings.tenants.general.clone();
    let limited = |samples, requests| TenantSettings {
        limits: TenantLimits {
            samples_per_second: samples,
            requests_per_second: requests,
            rate_burst_ms: 2000,
            ..general.limits.clone()
        },
        ..general.clone()
    };
    let tenant = |name| TenantId::parse(name).unwrap();
    settings.tenants.own.insert(tenant("samples"), limited(Some(100), None));
    settings.tenants.own.insert(tenant("requests"), limited(None, Some(1)));
    let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let send = async |name, samples: i64| {
        let mut encoder = V1Encoder::new();
        let labels = Labels::from_pairs(&[("__name__", "m")]);
        let timestamps: Vec<_> = (0..samples).map(|i| clock.now_ms() + i).collect();
        encoder.series(labels.as_ref(), &timestamps, &vec![1.0; timestamps.len()]);
        let body = encoder.finish().to_vec();
        let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
        let sent = write(&node, tenant(name), Version::V1, body, memory).await;
        sent.map(|outcome| outcome.samples).map_err(|unwritten| {
            let Refusal { kind, reason, message, retry_after, .. } = unwritten.refusal;
            assert_eq!(kind, ErrorKind::Limited);
            (reason, message, retry_after.unwrap().by_default())
        })
    };
    assert_eq!(send("samples", 150).await, Ok(150));
    assert_eq!(send("samples", 350).await, Ok(350), "the request that goes over the limit is stored");
    let message =
        "tenant samples sends too fast: the limit is 100 samples a second (setting samples_per_second)";
    assert_eq!(send("samples", 1).await, Err(("samples_rate", message.into(), Duration::from_secs(3))));
    assert_eq!((send("requests", 500).await, send("requests", 500).await), (Ok(500), Ok(500)));
    assert_eq!(send("requests", 1).await, Ok(1), "a burst of two, and one that goes over it");
    let message =
        "tenant requests sends too fast: the limit is 1 requests a second (setting requests_per_second)";
    assert_eq!(send("requests", 1).await, Err(("requests_rate", message.into(), Duration::from_secs(1))));
    assert_eq!(send("other", 10_000).await, Ok(10_000), "the others have no limit");
    clock.advance(3000);
    assert_eq!((send("samples", 1).await, send("requests", 1).await), (Ok(1), Ok(1)));
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_requires_the_write_right() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let all = Principal::of(TenantId::anonymous());
    let reader = Principal { rights: Rights { write: false, ..all.rights }, ..all.clone() };
    assert!(admit(node.writes(), &all, 1).await.is_ok());
    let refusal = admit(node.writes(), &reader, 1).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Forbidden, "rights"));
}
