//! Interrupts rounds of sealing at each fault point, and checks that no sample is lost or stored twice.

use super::fault::PLACES;
use super::flush::flush;
use crate::node::Node;
use crate::query_source::Source;
use crate::settings::Settings;
use crate::sim::{Outside, Simulated};
use crate::write_path::tests::{small_node, small_settings};
use journal::disk::Os;
use model::{Labels, SeriesKey, SeriesSamples, TenantId, TimeRange};
use protocol::encode::V1Encoder;
use protocol::remote_write::Version;
use query::{Select, SeriesSource};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use stdx::clock::{Clock, ManualClock, SystemClock};
use tables::delta::Sweeper;
use tables::read::Footer;

pub(crate) type Content = BTreeMap<(String, i64), u64>;

async fn write(node: &Node, base_ms: i64, round: i64, content: &mut Content) {
    content.extend(write_of(node, &TenantId::anonymous(), base_ms + round).await);
}

/// Writes one sample to each of 50 series of a tenant, and returns what was written.
pub(crate) async fn write_of(node: &Node, tenant: &TenantId, timestamp_ms: i64) -> Content {
    let (body, content) = request_of(timestamp_ms);
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let outcome =
        crate::write_path::tests::write(node, tenant.clone(), Version::V1, body, memory).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused_series), (50, 0));
    content
}

/// Returns a request with one sample for each of 50 series, and what it contains.
pub(crate) fn request_of(timestamp_ms: i64) -> (Vec<u8>, Content) {
    let (mut encoder, mut content) = (V1Encoder::new(), Content::new());
    for i in 0..50 {
        let name = format!("m{i}");
        let labels = Labels::from_pairs(&[("__name__", name.as_str()), ("zone", "z")]);
        let value = (timestamp_ms % 1000 * 100 + i) as f64;
        encoder.series(labels.as_ref(), &[timestamp_ms], &[value]);
        content.insert((labels.to_string(), timestamp_ms), value.to_bits());
    }
    (encoder.finish().to_vec(), content)
}

pub(crate) async fn node_with(dir: &Path, change: impl FnOnce(&mut Settings)) -> Node {
    let mut settings = small_settings(dir);
    change(&mut settings);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    node.readiness().wait_for_replay().await;
    node
}

fn read(node: &Node) -> Content {
    read_of(node, &TenantId::anonymous())
}

pub(crate) fn read_of(node: &Node, tenant: &TenantId) -> Content {
    let canceled = Arc::new(AtomicBool::new(false));
    let source = Source::new(node.reads(), tenant.clone(), 1_000_000, canceled);
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
    let (mut samples, mut content) = (SeriesSamples::default(), Content::new());
    let mut seen = BTreeSet::new();
    while set.next(&mut samples).unwrap() {
        let labels = set.labels().to_owned().to_string();
        assert!(seen.insert(labels.clone()), "{labels} comes twice");
        let floats = samples.floats().expect("the tests write floats");
        for (timestamp_ms, value) in floats.timestamps.iter().zip(&floats.values) {
            let twice = content.insert((labels.clone(), *timestamp_ms), value.to_bits());
            assert_eq!(twice, None, "{labels} at {timestamp_ms} twice");
        }
    }
    content
}

fn rows_in_tables(node: &Node) -> u64 {
    rows_of(node, &TenantId::anonymous())
}

pub(crate) fn rows_of(node: &Node, tenant: &TenantId) -> u64 {
    let table = node.reads().lake.existing(tenant).unwrap().unwrap();
    table.refresh().unwrap();
    table.files().unwrap().all().iter().map(|f| f.rows).sum()
}

/// Number of samples in the files of a tenant's table. If a sample was sealed twice, it counts twice.
pub(crate) fn samples_of(node: &Node, tenant: &TenantId) -> u64 {
    let table = node.reads().lake.existing(tenant).unwrap().unwrap();
    table.refresh().unwrap();
    let footer = |file| Footer::read(table.kind(), &table.file(file).unwrap()).unwrap();
    table.files().unwrap().all().iter().map(|file| footer(file).samples()).sum()
}

pub(crate) async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

async fn start(dir: &Path) -> Node {
    node_with(dir, |_| ()).await
}

fn fail_at(node: &Node, place: &'static str) {
    *node.reads().lake.faults.at.lock() = Some(place);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_resumes_after_a_failure_at_any_step() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    for (round, place) in PLACES.into_iter().enumerate() {
        write(&node, base_ms, round as i64, &mut content).await;
        fail_at(&node, place);
        flush(&node).await.unwrap();
        assert_eq!(*node.reads().lake.faults.at.lock(), None, "{place} is never reached");
        let (node, content) = (node.clone(), content.clone());
        let check = move || {
            assert_eq!(read(&node), content, "after {place}");
            assert_eq!(rows_in_tables(&node), content.len() as u64, "after {place}");
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    }
    stop(node).await;
}

/// The store is unavailable for so long that a sweep deletes the staged files before they can be committed.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_swept_before_their_commit_are_staged_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    write(&node, base_ms, 0, &mut content).await;
    let (there, root) = (node.clone(), dir.path().to_path_buf());
    // called after staging and before the commit
    *node.reads().lake.faults.hook.lock() = Some((
        "before_commit",
        Box::new(move || {
            let table = there.reads().lake.existing(&TenantId::anonymous()).unwrap().unwrap();
            let swept = Sweeper::default().sweep(&table, 0, 0).unwrap();
            assert!(swept.files > 0, "nothing was staged under {}", root.display());
        }),
    ));
    flush(&node).await.unwrap();
    let there = node.clone();
    let check = move || {
        assert_eq!(read(&there), content);
        assert_eq!(rows_in_tables(&there), content.len() as u64);
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    stop(node).await;
}

/// After samples are sealed, another engine deletes them from the table. Then the same request is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn samples_that_were_deleted_from_the_table_can_be_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    write(&node, base_ms, 0, &mut content).await;
    flush(&node).await.unwrap();
    let there = node.clone();
    let delete = move || {
        let table = there.reads().lake.existing(&TenantId::anonymous()).unwrap().unwrap();
        let other = tables::Table::open(table.kind(), table.location().clone()).unwrap().unwrap();
        assert!(other.expire(i64::MAX).unwrap() > 0);
        table.refresh().unwrap();
        assert_eq!(read(&there), Content::new());
    };
    tokio::task::spawn_blocking(delete).await.unwrap();
    write(&node, base_ms, 0, &mut content).await;
    for is_sealed in [false, true] {
        let (there, content) = (node.clone(), content.clone());
        tokio::task::spawn_blocking(move || assert_eq!(read(&there), content, "sealed: {is_sealed}"))
            .await
            .unwrap();
        flush(&node).await.unwrap();
    }
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_anywhere_in_a_round_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    for (round, place) in PLACES.into_iter().enumerate() {
        let node = start(dir.path()).await;
        write(&node, base_ms, round as i64, &mut content).await;
        // the node behaves as if the process died at this fault point
        node.reads().lake.faults.die_at(place);
        let flushed = flush(&node).await;
        // a flush is answered when its commit is recorded, before the samples leave the head
        let is_answered = place == "floodmark_noted" || place == "released";
        assert_eq!(flushed.is_ok(), is_answered, "{place} is never reached");
        stop(node).await;
        let node = start(dir.path()).await;
        let expected = content.clone();
        let there = node.clone();
        tokio::task::spawn_blocking(move || assert_eq!(read(&there), expected, "after {place}"))
            .await
            .unwrap();
        flush(&node).await.unwrap();
        let (there, expected) = (node.clone(), content.clone());
        let check = move || {
            assert_eq!(read(&there), expected, "after {place} and a flush");
            assert_eq!(rows_in_tables(&there), expected.len() as u64, "after {place} and a flush");
        };
        tokio::task::spawn_blocking(check).await.unwrap();
        stop(node).await;
    }
}

/// The journal was deleted, so a new one begins. The tables still have the floodmarks of the old journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_journal_is_not_taken_for_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    for round in 0..3 {
        let node = start(dir.path()).await;
        for part in 0..3 - round {
            write(&node, base_ms, round * 10 + part, &mut content).await;
        }
        flush(&node).await.unwrap();
        let (there, expected) = (node.clone(), content.clone());
        tokio::task::spawn_blocking(move || assert_eq!(read(&there), expected)).await.unwrap();
        stop(node).await;
        std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
    }
}

/// A query has chosen its series before a commit. The samples must stay in the head until it ends.
#[test]
fn frozen_samples_stay_in_the_head_until_older_queries_end() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let (mut node, mut content) = stepped_node(dir.path(), &clock);
    let tenant = TenantId::anonymous();
    let head_samples = |node: &Simulated| node.node().head_samples(&tenant);
    let canceled: Arc<dyn query::Interrupt> = Arc::new(AtomicBool::new(false));

    let reader = node.node().clone();
    let source = Source::new(reader.node.reads(), tenant.clone(), 1_000_000, Arc::clone(&canceled));
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
    let mut flush = node.flush();
    node.seal();
    assert_eq!(flush.samples(), Some(50), "a flush waits for the commit, and not for the query");
    node.seal();
    assert_eq!(head_samples(&node), 50, "the query reads the samples in the head");
    let (mut samples, mut count) = (SeriesSamples::default(), 0);
    while set.next(&mut samples).unwrap() {
        count += samples.len();
    }
    assert_eq!(count, 50);
    drop(set);
    drop(source);
    node.seal();
    assert_eq!(head_samples(&node), 0, "no query needs the samples any more");

    // A query that takes too long expires, because samples that it needs could be missing then.
    content.extend(write_stepped(&node, clock.now_ms() + 1));
    let source = Source::new(reader.node.reads(), tenant.clone(), 1_000_000, Arc::clone(&canceled));
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
    let mut flush = node.flush();
    node.seal();
    assert_eq!(flush.samples(), Some(50));
    assert_eq!(head_samples(&node), 50);
    clock.advance(60_000);
    node.seal();
    assert_eq!(head_samples(&node), 0);
    let told = loop {
        match set.next(&mut samples) {
            Ok(true) => {}
            Ok(false) => panic!("an expired query looks complete"),
            Err(error) => break error,
        }
    };
    assert!(told.message.contains("long"), "{told:?}");
    drop(set);
    drop(source);
    assert_eq!(read(&reader.node), content);
}

#[test]
fn flushes_in_a_loop_share_rounds_and_abort_no_query() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let (mut node, mut content) = stepped_node_with(dir.path(), &clock, |s| s.lake.flush_interval_ms = 2_000);
    let tenant = TenantId::anonymous();
    let reader = node.node().clone();
    // a flush every 50 ms for five seconds
    for n in 1..=100 {
        content.extend(write_stepped(&node, clock.now_ms() + n));
        let mut flushes: Vec<_> = (0..3).map(|_| node.flush()).collect();
        node.seal();
        node.seal();
        clock.advance(50);
        assert!(
            n > 10 || flushes.iter_mut().all(|flush| flush.samples().is_some()),
            "flush {n} is slowed down"
        );
    }
    let commits = reader.node.reads().lake.sealing.commits.get();
    assert!((11..=13).contains(&commits), "{commits} commits");

    clock.advance(60_000);
    let mut last = node.flush();
    node.seal();
    node.seal();
    assert!(last.samples().is_some());
    content.extend(write_stepped(&node, clock.now_ms()));
    let canceled = Arc::new(AtomicBool::new(false));
    let source = Source::new(reader.node.reads(), tenant.clone(), 1_000_000, canceled);
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
    let mut first = node.flush();
    node.seal();
    assert_eq!(first.samples(), Some(50));
    // another flush waits for the next round; meanwhile, the pin of the running query must not expire
    let mut second = node.flush();
    for _ in 0..3 {
        clock.advance(3_000);
        node.seal();
        assert!(!source.is_expired() && second.samples().is_none());
    }
    let (mut samples, mut count) = (SeriesSamples::default(), 0);
    while set.next(&mut samples).unwrap() {
        count += samples.len();
    }
    assert_eq!(count, content.len());
    drop(set);
    drop(source);
    node.seal();
    node.seal();
    assert_eq!(second.samples(), Some(0));
    assert_eq!(read(&reader.node), content);
}

/// Starts a node whose owners and sealer run step by step. It has one sample of each of 50 series.
fn stepped_node(dir: &Path, clock: &Arc<ManualClock>) -> (Simulated, Content) {
    stepped_node_with(dir, clock, |_| ())
}

fn stepped_node_with(
    dir: &Path,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut Settings),
) -> (Simulated, Content) {
    let node = start_stepped(dir, clock, change);
    let content = write_stepped(&node, clock.now_ms());
    (node, content)
}

pub(crate) fn start_stepped(
    dir: &Path,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut Settings),
) -> Simulated {
    let mut settings = small_settings(dir);
    change(&mut settings);
    // a different seed for each start, so that file names do not repeat after a restart
    let seed = clock.now_ms().unsigned_abs();
    let outside = Outside { clock: Arc::clone(clock) as _, disk: Arc::new(Os), store: None, seed };
    let mut node = Simulated::start(settings, outside, Rc::new(|_, _| {})).unwrap();
    assert!(node.replay(|_| false).unwrap());
    node
}

fn write_stepped(node: &Simulated, timestamp_ms: i64) -> Content {
    write_stepped_of(node, &TenantId::anonymous(), timestamp_ms)
}

pub(crate) fn write_stepped_of(node: &Simulated, tenant: &TenantId, timestamp_ms: i64) -> Content {
    let (body, content) = request_of(timestamp_ms);
    assert_eq!(send_stepped(node, tenant, body), 50);
    content
}

pub(crate) fn seal_times(node: &mut Simulated, turns: usize) {
    for _ in 0..turns {
        node.seal();
    }
}

/// Runs turns of the sealer, and advances the clock in between, until a flush is done and no tenant is blocked.
pub(crate) fn flush_stepped(node: &mut Simulated, clock: &ManualClock) {
    let mut flush = node.flush();
    for _ in 0..200 {
        clock.advance(1000);
        node.seal();
        if let Some(answer) = flush.answer() {
            return assert_eq!(answer.blocked, 0);
        }
    }
    panic!("after 200 turns a flush is not done");
}

/// Sends a request, and lets each owner run one turn. Returns the number of samples that were stored.
pub(crate) fn send_stepped(node: &Simulated, tenant: &TenantId, body: Vec<u8>) -> u64 {
    let mut written = node.node().write(tenant, body).unwrap();
    (0..node.node().partitions()).for_each(|partition| node.node().turn(partition));
    written.answers().into_iter().map(|(_, answer)| answer.unwrap().samples).sum()
}

/// While a series is about to be evicted, it gets a sample from a request that has looked it up before.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_about_to_be_evicted_comes_once_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
    write(&node, base_ms, 0, &mut content).await;
    flush(&node).await.unwrap();
    let there = node.clone();
    let check = move || {
        let labels = Labels::from_pairs(&[("__name__", "m7"), ("zone", "z")]);
        let key = SeriesKey::of(labels.as_bytes(), there.reads().seed);
        let number = key.partition(there.reads().partitions.len());
        let mut partition = there.reads().partitions[number].head.write();
        let _pin = partition.pin();
        let series = partition.tenant_mut(&TenantId::anonymous()).find(key).unwrap();
        while partition.tenant(&TenantId::anonymous()).unwrap().resolve(key).is_some() {
            partition.evict_turn(head::Idle::before(u32::MAX), |_, series| panic!("{series:?} was pinned"));
        }
        drop(partition);
        assert_eq!(read(&there), content, "with nothing new");
        let mut partition = there.reads().partitions[number].head.write();
        let head = partition.tenant_mut(&TenantId::anonymous());
        head.append(&[series], &[base_ms + 1], &[7.5], u32::MAX);
        drop(partition);
        content.insert((labels.to_string(), base_ms + 1), 7.5f64.to_bits());
        assert_eq!(read(&there), content, "with a sample through an old reference");
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    stop(node).await;
}

#[test]
fn nodes_can_be_dropped_by_tasks() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(small_node(dir.path()));
    runtime.block_on(async move {
        let stopping = Arc::clone(&node);
        tokio::task::spawn_blocking(move || stopping.stop()).await.unwrap();
        drop(node);
    });
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// An old copy of the journal is restored, while the tables have later commits of this journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_put_back_loses_nothing_new_even_if_the_first_round_is_cut_short() {
    for place in PLACES {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (base_ms, mut content) = (SystemClock.now_ms() - 60_000, Content::new());
        let mut round = 0..;
        let mut next = async |node: &Node| write(node, base_ms, round.next().unwrap(), &mut content).await;
        let node = start(dir.path()).await;
        next(&node).await;
        flush(&node).await.unwrap();
        stop(node).await;
        copy_dir(&dir.path().join("journal"), &copy.path().join("journal"));
        std::fs::copy(dir.path().join("floodmarks.json"), copy.path().join("floodmarks.json")).unwrap();
        let node = start(dir.path()).await;
        next(&node).await;
        flush(&node).await.unwrap();
        stop(node).await;
        std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
        copy_dir(copy.path(), dir.path());
        // writes more than was lost, so that the journal's offsets exceed those in the tables
        let node = start(dir.path()).await;
        for _ in 0..4 {
            next(&node).await;
        }
        node.reads().lake.faults.die_at(place);
        let _ = flush(&node).await;
        stop(node).await;
        let node = start(dir.path()).await;
        let (there, expected) = (node.clone(), content.clone());
        let check = move || assert_eq!(read(&there), expected, "after {place}");
        tokio::task::spawn_blocking(check).await.unwrap();
        flush(&node).await.unwrap();
        let (there, expected) = (node.clone(), content.clone());
        let check = move || assert_eq!(read(&there), expected, "after {place} and a flush");
        tokio::task::spawn_blocking(check).await.unwrap();
        stop(node).await;
    }
}

/// In one round, the samples of one tenant are committed, and the table of another tenant has offsets that a
/// different journal with the same name has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_in_the_middle_of_a_round_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
    let base_ms = SystemClock.now_ms() - 60_000;
    let node = start(dir.path()).await;
    let (in_a, mut in_b) = (write_of(&node, &a, base_ms).await, write_of(&node, &b, base_ms).await);
    // the round fails after the commit of one of the two tenants
    node.reads().lake.faults.die_at_the(2, "before_commit");
    assert!(flush(&node).await.is_err());
    let there = (node.clone(), b.clone());
    let is_b_first = tokio::task::spawn_blocking(move || rows_of(&there.0, &there.1) > 0).await.unwrap();
    let (a, b) = if is_b_first { (b, a) } else { (a, b) };
    stop(node).await;
    let node = start(dir.path()).await;
    let there = (node.clone(), b.clone());
    let puzzle = move || {
        let (node, tenant) = there;
        let lake = &node.reads().lake;
        let table = lake.table(&tenant).unwrap();
        for number in 0..node.reads().partitions.len() {
            let source = lake.mark(number).source;
            let after = lake.settled_floodmark(&tenant, &source).unwrap().map(|floodmark| floodmark.upto);
            let block =
                tables::StagedBlock { source, after, upto: 1_000_000, through: None, files: Vec::new() };
            table.commit(&[block], 0).unwrap();
        }
    };
    tokio::task::spawn_blocking(puzzle).await.unwrap();
    in_b.extend(write_of(&node, &b, base_ms + 1).await);
    node.reads().lake.faults.die_at("before_commit");
    assert!(flush(&node).await.is_err());
    stop(node).await;
    let node = start(dir.path()).await;
    flush(&node).await.unwrap();
    let there = node.clone();
    let check = move || {
        assert_eq!((read_of(&there, &a), rows_of(&there, &a)), (in_a, 50));
        assert_eq!((read_of(&there, &b), rows_of(&there, &b)), (in_b, 50));
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    stop(node).await;
}

const DAY_MS: i64 = 86_400_000;

/// Returns a request with one sample of a series on each of `days` since 1970, and what it contains.
pub(crate) fn days_of(name: &str, days: impl Iterator<Item = i64>) -> (Vec<u8>, Content) {
    let labels = Labels::from_pairs(&[("__name__", name)]);
    let timestamps: Vec<_> = days.map(|day| day * DAY_MS).collect();
    let values: Vec<_> = (0..timestamps.len()).map(|i| i as f64).collect();
    let mut encoder = V1Encoder::new();
    encoder.series(labels.as_ref(), &timestamps, &values);
    let samples = timestamps.iter().zip(&values);
    let content = samples.map(|(t, v)| ((labels.to_string(), *t), v.to_bits())).collect();
    (encoder.finish().to_vec(), content)
}

pub(crate) async fn write_days(
    node: &Node,
    name: &str,
    days: impl Iterator<Item = i64>,
    content: &mut Content,
) {
    let (body, written) = days_of(name, days);
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let tenant = TenantId::anonymous();
    let outcome = crate::write_path::tests::write(node, tenant, Version::V1, body, memory).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused_series), (written.len() as u64, 0));
    content.extend(written);
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_any_number_of_days_are_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let mut content = Content::new();
    write_days(&node, "scattered", 10_000..11_001, &mut content).await;
    let flushed = flush(&node).await.unwrap();
    assert_eq!(flushed.samples, 1001);
    assert!(flushed.commits > 1, "one pass for each of {} commits", flushed.commits);
    let (there, expected) = (node.clone(), content.clone());
    let check = move || {
        assert_eq!(read(&there), expected);
        assert_eq!(rows_in_tables(&there), expected.len() as u64);
        let partitions = there.reads().partitions.iter();
        let frozen = partitions.filter(|p| p.head.read().tenants().any(|(_, head)| head.is_frozen()));
        assert_eq!(frozen.count(), 0, "sealed samples have left the head");
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    stop(node).await;
    let node = start(dir.path()).await;
    assert_eq!(node.writes().metrics.replayed_samples.get(), 0);
    stop(node).await;
}

/// Each time it runs, the node completes some passes. In between, samples of earlier days are written again.
#[tokio::test(flavor = "multi_thread")]
async fn passes_that_are_cut_short_again_and_again_lose_and_double_nothing() {
    let places = ["staging", "attempt_noted", "before_commit", "after_commit"];
    let dir = tempfile::tempdir().unwrap();
    let mut content = Content::new();
    let lives = places.into_iter().flat_map(|place| [3, 1, 2].map(|times| (place, times)));
    for (life, (place, times)) in lives.enumerate() {
        let node = start(dir.path()).await;
        write_days(&node, &format!("scattered_{life}"), 10_000..10_250, &mut content).await;
        node.reads().lake.faults.die_at_the(times, place);
        assert!(flush(&node).await.is_err(), "{place} is not reached {times} times");
        stop(node).await;
        if life % 3 == 0 {
            // without this file, the floodmarks are only in the tables
            std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
        }
        let node = start(dir.path()).await;
        let (there, expected) = (node.clone(), content.clone());
        let check = move || assert_eq!(read(&there), expected, "life {life}: after {place}");
        tokio::task::spawn_blocking(check).await.unwrap();
        stop(node).await;
    }
    let node = start(dir.path()).await;
    flush(&node).await.unwrap();
    let check = move || {
        assert_eq!(read(&node), content);
        assert_eq!(rows_in_tables(&node), content.len() as u64, "samples are stored twice");
        node.stop();
    };
    tokio::task::spawn_blocking(check).await.unwrap();
}

/// The metric must be computed without the sealer's thread, which hangs.
#[tokio::test(flavor = "multi_thread")]
async fn the_lag_grows_while_the_sealer_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let node = Node::start(small_settings(dir.path()), Arc::<ManualClock>::clone(&clock)).unwrap();
    node.readiness().wait_for_replay().await;
    let mut content = Content::new();
    for place in ["frozen", "attempt_noted"] {
        write(&node, clock.now_ms(), 0, &mut content).await;
        let (arrives, arrived) = sync_channel(0);
        let (go_on, goes_on) = sync_channel::<()>(0);
        let hang = move || {
            arrives.send(()).unwrap();
            let _ = goes_on.recv(); // until the other end is dropped
        };
        *node.reads().lake.faults.hook.lock() = Some((place, Box::new(hang)));
        let there = node.clone();
        let flushing = tokio::spawn(async move { flush(&there).await });
        tokio::task::spawn_blocking(move || arrived.recv().unwrap()).await.unwrap();
        clock.advance(3_600_000);
        assert_eq!(crate::telemetry::floodmark_lag_ms(node.reads()), 3_600_000, "{place}");
        let line = "floodmark_seal_floodmark_lag_seconds 3600";
        assert!(node.registry().render().lines().any(|l| l == line), "{place}");
        drop(go_on);
        flushing.await.unwrap().unwrap();
    }
    stop(node).await;
}

const PANICS: &str = "FLOODMARK_TEST_SEALER_PANICS";

#[tokio::test(flavor = "multi_thread")]
async fn child_process_whose_sealer_panics() {
    if std::env::var_os(PANICS).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    *node.reads().lake.faults.hook.lock() =
        Some(("frozen", Box::new(|| panic!("the test requests a panic"))));
    let flushed = flush(&node).await;
    std::thread::sleep(Duration::from_secs(30)); // the process ends meanwhile
    panic!("the process continues: {flushed:?}");
}

#[test]
fn a_panic_of_the_sealer_ends_the_process() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "seal::tests::child_process_whose_sealer_panics"])
        .env(PANICS, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(6), "{said}");
    assert!(said.contains("the test requests a panic"), "{said}");
}
