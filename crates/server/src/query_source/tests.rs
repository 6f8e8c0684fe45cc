use super::*;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::tests::{node_with, write_of};
use crate::write_path::tests::small_node;
use model::{Labels, SeriesKey};
use query::{Select, SeriesSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stdx::clock::{Clock, SystemClock};

fn node_with_samples(dir: &std::path::Path, count: i64) -> Node {
    let node = small_node(dir);
    let labels = Labels::from_pairs(&[("__name__", "dense")]);
    let key = SeriesKey::of(labels.as_bytes(), node.reads().seed);
    let mut partition = node.reads().partitions[0].head.write();
    let head = partition.tenant_mut(&TenantId::anonymous());
    let series = head.create(key, labels.as_ref());
    (0..count).for_each(|t| _ = head.append(&[series], &[t], &[1.0], 0));
    drop(partition);
    node
}

fn all_of(source: &Source<'_>) -> Result<usize, SourceError> {
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL })?;
    let (mut samples, mut count) = (SeriesSamples::default(), 0);
    while set.next(&mut samples)? {
        count += samples.len();
    }
    Ok(count)
}

#[test]
fn a_series_with_too_many_samples_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 10_000);
    let wanted = || Arc::new(AtomicBool::new(false));
    let source = |samples_max| Source::new(node.reads(), TenantId::anonymous(), samples_max, wanted());
    assert_eq!(all_of(&source(10_000)), Ok(10_000));
    let refused = all_of(&source(9_999)).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooLarge);
    assert!(refused.message.contains("too many samples"), "{}", refused.message);
    node.stop();
}

#[test]
fn a_canceled_selection_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 1);
    let canceled = Arc::new(AtomicBool::new(true));
    let source = Source::new(node.reads(), TenantId::anonymous(), 100, canceled);
    assert_eq!(all_of(&source).unwrap_err().kind, ErrorKind::Unavailable);
    node.stop();
}

/// Fails if the head is locked while a query checks whether it is canceled, because a client's pattern is matched at
/// that time. If other threads hold the lock, waits for them.
#[derive(Debug)]
struct Unlocked {
    node: Node,
    asked: AtomicU64,
}

impl Interrupt for Unlocked {
    fn is_set(&self) -> bool {
        for partition in self.node.reads().partitions.iter() {
            let lock = partition.head.try_write_for(Duration::from_secs(30));
            assert!(lock.is_some(), "a pattern would run with the head locked");
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        false
    }
}

#[test]
fn no_lock_is_held_while_a_pattern_runs() {
    const SERIES: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 1);
    let mut partition = node.reads().partitions[0].head.write();
    let head = partition.tenant_mut(&TenantId::anonymous());
    for i in 0..SERIES {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
        head.create(SeriesKey::of(labels.as_bytes(), node.reads().seed), labels.as_ref());
    }
    drop(partition);
    let unlocked = Unlocked { node: node.clone(), asked: AtomicU64::new(0) };
    let check = |selector: &str, count: u64| {
        unlocked.asked.store(0, Ordering::Relaxed);
        let matchers = query::parse_selector(selector).unwrap();
        let tenant = TenantId::anonymous();
        let turns = Turns::new(&node.reads().partitions[0], &tenant, &unlocked);
        assert_eq!(turns.select(&matchers).unwrap().len(), count, "{selector}");
        let asked = unlocked.asked.load(Ordering::Relaxed);
        assert!(asked > SERIES as u64, "{selector}: asked {asked} times, for each value and each turn");
    };
    check(r#"{i=~"[0-9]*7"}"#, SERIES as u64 / 10);
    check(r#"{__name__="m", i!~"[0-9]*7"}"#, SERIES as u64 / 10 * 9);
    node.stop();
}

#[derive(Debug)]
struct EndAt {
    last: u64,
    asked: AtomicU64,
}

impl Interrupt for EndAt {
    fn is_set(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1 >= self.last
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_of_sealed_values_end_at_each_interrupt_check() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    write_of(&node, &TenantId::anonymous(), SystemClock.now_ms() - 60_000).await;
    flush(&node).await.unwrap();
    let there = node.clone();
    let search = move |last: u64| {
        let end = Arc::new(EndAt { last, asked: AtomicU64::new(0) });
        let source = Source::new(there.reads(), TenantId::anonymous(), 1_000_000, Arc::clone(&end) as _);
        let matchers = query::parse_selector(r#"{__name__=~".+such"}"#).unwrap();
        let heads = source.select_heads(&matchers).map(|_| end.asked.swap(0, Ordering::Relaxed));
        let select = Select { matchers: &matchers, range: TimeRange::ALL };
        let found = source.select(&select).and_then(|mut set| set.next(&mut SeriesSamples::default()));
        (heads, found, end.asked.load(Ordering::Relaxed))
    };
    let check = move || {
        let (heads, found, all) = search(u64::MAX);
        assert_eq!(found, Ok(false));
        let heads = heads.unwrap();
        assert!(all > heads + 2, "asked {all} times, {heads} of them in the heads");
        for last in heads + 1..=all {
            let (_, found, _) = search(last);
            assert!(found.unwrap_err().message.contains("canceled"), "question {last} of {all}");
        }
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// The limit is checked for each series when it is read, and must hold for each of the tenants.
#[test]
fn the_limit_of_a_query_holds_for_each_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 100);
    let labels = Labels::from_pairs(&[("__name__", "dense")]);
    let key = SeriesKey::of(labels.as_bytes(), node.reads().seed);
    {
        let mut partition = node.reads().partitions[0].head.write();
        let head = partition.tenant_mut(&TenantId::parse("zz").unwrap());
        let series = head.create(key, labels.as_ref());
        (0..200).for_each(|t| _ = head.append(&[series], &[t], &[1.0], 0));
    }
    let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
    let tenants = model::TenantSet::parse("zz|nobody|anonymous").unwrap();
    let read = |samples_max, limit| {
        let source = Across::new(node.reads(), &tenants, samples_max, &canceled);
        let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL })?;
        let (mut samples, mut found) = (SeriesSamples::default(), Vec::new());
        set.limit(limit);
        while set.next(&mut samples)? {
            found.push((set.labels().get("__tenant_id__").map(str::to_owned), samples.len()));
        }
        Ok(found)
    };
    let all = [(Some("anonymous".to_owned()), 100), (Some("zz".to_owned()), 200)];
    assert_eq!(read(200, 200), Ok(all.to_vec()));
    for (samples_max, limit) in [(199, 1_000), (1_000, 199)] {
        let refused: SourceError = read(samples_max, limit).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::TooLarge);
    }
    node.stop();
}
