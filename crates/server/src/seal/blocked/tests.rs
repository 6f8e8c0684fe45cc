//! One tenant has a broken table. Other tenants must not suffer.

use super::BlockedTenants;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::flushed::Flushed;
use crate::seal::sealer::Message;
use crate::seal::tests::{Content, node_with, read_of, samples_of, write_of};
use crate::write_path::tests::small_settings;
use model::TenantId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};
use tokio::sync::oneshot;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

#[test]
fn senders_wait_for_the_next_attempt_to_seal_their_tenant() {
    let (blocked, a, now) = (BlockedTenants::default(), tenant("a"), Instant::now());
    let after = |seconds| now + Duration::from_secs(seconds);
    let until = |second| blocked.until_retry(&a, after(second)).map(|time| time.as_secs());
    blocked.retries_at(&a, after(10));
    assert_eq!(until(0), None, "it is not blocked");
    blocked.add(&a, 7);
    assert_eq!(until(0), None, "nothing has failed yet");
    blocked.retries_at(&a, after(10));
    assert_eq!([0, 4, 11].map(until), [Some(10), Some(6), Some(0)]);
    blocked.remove(&a);
    assert_eq!(until(4), None);
}

/// Breaks a table with an empty log entry, which a power loss can cause.
pub(crate) struct Broken {
    entry: PathBuf,
}

impl Broken {
    pub(crate) fn new(dir: &Path, tenant: &str) -> Self {
        let log = dir.join("tables").join(tenant).join("metrics/_delta_log");
        let versions = std::fs::read_dir(&log).unwrap().flatten().map(|entry| entry.path());
        let entry = versions.filter(|path| path.extension().is_some_and(|e| e == "json")).max().unwrap();
        let broken = log.join(format!("{:020}.json", version(&entry) + 1));
        std::fs::write(&broken, "").unwrap();
        Self { entry: broken }
    }

    pub(crate) fn mend(&self) {
        std::fs::remove_file(&self.entry).unwrap();
    }
}

fn version(entry: &Path) -> u64 {
    entry.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn ask(node: &Node) -> oneshot::Receiver<Flushed> {
    let (answer, flushed) = oneshot::channel();
    node.sealer().try_send(Message::Flush(answer)).unwrap();
    flushed
}

async fn wait_for(node: &Node, line: &str) {
    for _ in 0..600 {
        if node.registry().render().lines().any(|l| l.starts_with(line)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{line} is not among the metrics: {}", node.registry().render());
}

/// Checks that a tenant has exactly the expected samples, and that its table has none of them twice.
async fn check(node: &Node, name: &str, expected: &Content) {
    let (node, tenant, expected) = (node.clone(), tenant(name), expected.clone());
    let check = move || {
        assert_eq!(read_of(&node, &tenant), expected);
        assert_eq!(samples_of(&node, &tenant), expected.len() as u64, "samples in tables");
    };
    tokio::task::spawn_blocking(check).await.unwrap();
}

async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_sealed_while_one_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let (base_ms, mut a, mut b) = (SystemClock.now_ms() - 60_000, Content::new(), Content::new());
    let write = async |name: &str, round: i64| write_of(&node, &tenant(name), base_ms + round).await;
    a.extend(write("a", 0).await);
    b.extend(write("b", 0).await);
    flush(&node).await.unwrap();
    let broken = Broken::new(dir.path(), "a");
    let needed_from = || -> Vec<u64> {
        (0..node.reads().partitions.len())
            .map(|number| node.reads().lake.mark(number).needed_from())
            .collect()
    };
    let before = needed_from();
    for round in 1..4 {
        a.extend(write("a", round).await);
        b.extend(write("b", round).await);
        let waits = ask(&node);
        wait_for(&node, "floodmark_seal_tenant_behind_seconds{tenant=\"a\"}").await;
        wait_for(&node, &format!("floodmark_seal_rounds_total {}", round + 1)).await;
        check(&node, "b", &b).await;
        drop(waits);
    }
    assert_eq!(needed_from(), before, "samples that cannot be sealed stay in the journal");
    let waits = ask(&node);
    broken.mend();
    assert_eq!(waits.await.unwrap().blocked, 0);
    wait_for(&node, "floodmark_seal_tenants_behind 0").await;
    check(&node, "a", &a).await;
    check(&node, "b", &b).await;
    let moved = needed_from().into_iter().zip(before).all(|(now, before)| now > before);
    assert!(moved, "sealed samples leave the journal");
    stop(node).await;
}

#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms()
    }

    fn instant(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_table_keeps_nobody_elses_samples_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Ahead::default());
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as _).unwrap();
    node.readiness().wait_for_replay().await;
    let base_ms = SystemClock.now_ms() - 60_000;
    let mut contents = BTreeMap::new();
    for name in ["a", "b", "c"] {
        contents.insert(name, write_of(&node, &tenant(name), base_ms).await);
    }
    // the first commit exceeds the sealer's time limit for one table
    let (go_on, goes_on) = sync_channel::<()>(0);
    let hook = move || {
        clock.0.store(15_000, Ordering::Relaxed);
        let _ = goes_on.recv();
    };
    *node.reads().lake.faults.hook.lock() = Some(("before_commit", Box::new(hook)));
    let flushed = ask(&node);
    wait_for(&node, "floodmark_seal_rounds_total 1").await;
    wait_for(&node, "floodmark_seal_tenants_behind 1").await;
    let [(slow, _)] = <[_; 1]>::try_from(node.reads().lake.blocked.all()).unwrap();
    for (name, content) in contents.iter().filter(|(name, _)| **name != slow.as_str()) {
        check(&node, name, content).await;
    }
    let frozen = || -> u64 {
        let of = |head: &head::Partition| {
            let frozen =
                head.tenants().filter(|(_, head)| head.is_frozen()).map(|(tenant, _)| tenant.clone());
            assert!(frozen.into_iter().all(|tenant| tenant == slow));
            u64::from(head.tenant(&slow).is_some_and(|head| head.is_frozen()))
        };
        node.reads().partitions.iter().map(|partition| of(&partition.head.read())).sum()
    };
    assert!(frozen() > 0, "samples that are in no table stay in the head");
    go_on.send(()).unwrap();
    assert_eq!(flushed.await.unwrap().blocked, 0);
    wait_for(&node, "floodmark_seal_tenants_behind 0").await;
    // the waiting flush is answered before the samples leave the head
    wait_for(&node, "floodmark_seal_frozen_samples 0").await;
    for (name, content) in &contents {
        check(&node, name, content).await;
    }
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_while_one_cannot_be_sealed_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let (base_ms, mut a, mut b) = (SystemClock.now_ms() - 60_000, Content::new(), Content::new());
    for name in ["a", "b"] {
        let content = if name == "a" { &mut a } else { &mut b };
        content.extend(write_of(&node, &tenant(name), base_ms).await);
    }
    flush(&node).await.unwrap();
    let broken = Broken::new(dir.path(), "a");
    for round in 1..3 {
        a.extend(write_of(&node, &tenant("a"), base_ms + 2 * round).await);
        b.extend(write_of(&node, &tenant("b"), base_ms + 2 * round).await);
        let _waits = ask(&node);
        wait_for(&node, &format!("floodmark_seal_rounds_total {}", round + 1)).await;
    }
    stop(node).await;
    let node = node_with(dir.path(), |_| ()).await;
    check(&node, "b", &b).await;
    let _waits = ask(&node);
    b.extend(write_of(&node, &tenant("b"), base_ms + 9).await);
    wait_for(&node, "floodmark_seal_tenants_behind 1").await;
    broken.mend();
    wait_for(&node, "floodmark_seal_tenants_behind 0").await;
    stop(node).await;
    let node = node_with(dir.path(), |_| ()).await;
    flush(&node).await.unwrap();
    check(&node, "a", &a).await;
    check(&node, "b", &b).await;
    stop(node).await;
}

async fn wait_until_open(node: &Node, name: &str) {
    for _ in 0..600 {
        if node.reads().lake.closed.check(&tenant(name)).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} stays closed");
}

async fn refused(node: &Node, name: &str) -> String {
    let body = crate::seal::tests::request_of(1).0;
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let version = protocol::remote_write::Version::V1;
    let written = crate::write_path::tests::write(node, tenant(name), version, body, memory).await;
    let refusal = written.expect_err("the tenant's table is broken").refusal;
    assert_eq!((refusal.kind, refusal.reason), (model::ErrorKind::Unavailable, "table_unreadable"));
    refusal.message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_table_and_lost_floodmarks_close_one_tenant_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let (base_ms, mut a, mut b) = (SystemClock.now_ms() - 60_000, Content::new(), Content::new());
    // the samples of two rounds are in tables, and those of two more rounds are only in the journal
    for round in 0..4 {
        a.extend(write_of(&node, &tenant("a"), base_ms + round).await);
        b.extend(write_of(&node, &tenant("b"), base_ms + round).await);
        if round < 2 {
            flush(&node).await.unwrap();
        }
    }
    stop(node).await;
    let broken = Broken::new(dir.path(), "a");
    // the tenant stays closed over restarts with and without floodmarks.json
    for (restart, loses_marks) in [true, false, true].into_iter().enumerate() {
        if loses_marks {
            std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
        }
        let node = node_with(dir.path(), |_| ()).await;
        assert!(node.is_ready(), "a closed tenant does not delay the node");
        let message = refused(&node, "a").await;
        assert!(message.contains("tenant a") && message.contains("table"), "{message}");
        b.extend(write_of(&node, &tenant("b"), base_ms + 10 + restart as i64).await);
        let _waits = ask(&node);
        wait_for(&node, "floodmark_seal_rounds_total 1").await;
        check(&node, "b", &b).await;
        stop(node).await;
    }
    std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    refused(&node, "a").await;
    broken.mend();
    wait_until_open(&node, "a").await;
    let in_a = node.clone();
    let expected = a.clone();
    tokio::task::spawn_blocking(move || assert_eq!(read_of(&in_a, &tenant("a")), expected)).await.unwrap();
    a.extend(write_of(&node, &tenant("a"), base_ms + 20).await);
    flush(&node).await.unwrap();
    check(&node, "a", &a).await;
    stop(node).await;
    // the outcome of each of the tenant's commits is known again
    let node = node_with(dir.path(), |_| ()).await;
    assert_eq!(node.writes().metrics.replayed_samples.get(), 0);
    check(&node, "a", &a).await;
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_table_of_a_closed_tenant_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let (base_ms, mut a, mut b) = (SystemClock.now_ms() - 60_000, Content::new(), Content::new());
    for round in 0..2 {
        a.extend(write_of(&node, &tenant("a"), base_ms + round).await);
        b.extend(write_of(&node, &tenant("b"), base_ms + round).await);
        if round == 0 {
            flush(&node).await.unwrap();
        }
    }
    stop(node).await;
    let broken = Broken::new(dir.path(), "a");
    std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
    let clock = Arc::new(Ahead::default());
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as _).unwrap();
    node.readiness().wait_for_replay().await;
    let (hangs, hanging) = sync_channel::<()>(1);
    let (go_on, goes_on) = sync_channel::<()>(0);
    let hook = move || {
        clock.0.store(15_000, Ordering::Relaxed);
        hangs.send(()).unwrap();
        let _ = goes_on.recv(); // until the other end is dropped
    };
    *node.reads().lake.faults.hook.lock() = Some(("asked", Box::new(hook)));
    tokio::task::spawn_blocking(move || hanging.recv().unwrap()).await.unwrap();
    b.extend(write_of(&node, &tenant("b"), base_ms + 2).await);
    assert_eq!(ask(&node).await.unwrap().blocked, 1);
    check(&node, "b", &b).await;
    refused(&node, "a").await;
    drop(go_on);
    broken.mend();
    wait_until_open(&node, "a").await;
    flush(&node).await.unwrap();
    check(&node, "a", &a).await;
    stop(node).await;
}
