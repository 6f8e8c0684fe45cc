use super::*;
use crate::limits::budget::Budget;
use crate::node::Node;
use crate::partition::Commands;
use crate::partition::tests::{only_owner, only_owner_with, owner_of, series_count};
use crate::seal::Mark;
use crate::seal::tests::node_with;
use crate::settings::Settings;
use crate::write_path::tests::{small_node, small_settings};
use journal::record::{Condition, DeletedExemplars, Operator};
use journal::{Journal, JournalId, Memory, RecordEncoder};
use model::{Exemplar, Labels, Metadata, MetricKind, SeriesRef, TimeRange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stdx::clock::{Clock, ManualClock, SystemClock};

mod deleted_exemplars;

struct Writer {
    journal: Memory,
    encoder: RecordEncoder,
    tenant: TenantId,
}

impl Writer {
    fn new() -> Self {
        let mut journal = Memory::new(JournalId::default(), 1_000_000);
        journal.begin().unwrap();
        Self { journal, encoder: RecordEncoder::new(), tenant: TenantId::anonymous() }
    }

    fn record(&mut self, fill: impl FnOnce(&mut RecordEncoder)) -> u64 {
        self.encoder.begin(&self.tenant);
        fill(&mut self.encoder);
        let offset = self.journal.append(self.encoder.finish()).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
        offset.0 + 1
    }

    fn new_series(&mut self, given: u32, name: &str, timestamp_ms: i64) -> u64 {
        self.record(|encoder| {
            encoder.define(SeriesRef(given), labels(name).as_ref());
            encoder.sample(SeriesRef(given), timestamp_ms, 1.0);
        })
    }

    fn deleted(&mut self) {
        self.journal.append(self.encoder.deleted(&self.tenant)).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
    }

    fn deleted_exemplars(&mut self, deleted: &DeletedExemplars) {
        self.journal.append(self.encoder.deleted_exemplars(&self.tenant, deleted)).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
    }

    fn sample(&mut self, given: u32, timestamp_ms: i64) -> u64 {
        self.record(|encoder| encoder.sample(SeriesRef(given), timestamp_ms, 1.0))
    }
}

fn labels(name: &str) -> Labels {
    Labels::from_pairs(&[("__name__", "m"), ("i", name)])
}

fn sealed_upto(node: &Node, upto: u64) {
    let change = |(_, mark): (usize, &mut Mark)| (mark.upto, mark.attempt) = (upto, None);
    node.reads().lake.change_marks(change).unwrap();
}

fn content(owner: &Owner, tenant: &TenantId) -> Vec<(String, usize)> {
    let partition = owner.partition.head.read();
    let Some(head) = partition.tenant(tenant) else { return Vec::new() };
    let mut all = Vec::new();
    for series in head.select(&[]) {
        let mut bytes = Vec::new();
        head.write_labels(SeriesRef(series), &mut bytes);
        let labels = model::LabelsRef::from_canonical(&bytes).to_owned();
        let name = labels.iter().find(|(name, _)| *name == "i").map(|(_, value)| value.to_owned()).unwrap();
        all.push((name, head.samples_at_most(SeriesRef(series), TimeRange::ALL)));
    }
    all.sort();
    all
}

fn replayed(node: &Node, writer: &Writer) -> Owner {
    let (mut owner, _commands) = owner_of(node, writer.journal.reopen());
    assert_eq!(owner.replay().unwrap(), End::Complete);
    let counted = owner.partition.head_bytes.load(Ordering::Relaxed);
    assert_eq!(counted, owner.partition.head.read().memory_bytes() as u64);
    assert_eq!(node.owning().replay.used_bytes(), 0, "all memory is returned");
    owner
}

#[test]
fn only_series_that_unsealed_samples_need_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    for i in 0..100 {
        writer.new_series(i, &i.to_string(), 1000);
    }
    // the references of series 7 and 8 are given to new series, in records below and beyond the floodmark
    writer.new_series(7, "7 again", 2000);
    let upto = writer.new_series(8, "8 again", 2000);
    writer.sample(5, 3000);
    writer.sample(7, 3000);
    writer.new_series(9, "9 again", 3000);
    writer.sample(9, 4000);
    writer.new_series(200, "new", 4000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let expected = [("5", 1), ("7 again", 1), ("9 again", 2), ("new", 1)];
    assert_eq!(content(&owner, &writer.tenant), expected.map(|(name, samples)| (name.to_owned(), samples)));
    node.stop();
}

fn record_with_extras(encoder: &mut RecordEncoder, given: u32, name: &str) {
    encoder.define(SeriesRef(given), labels(name).as_ref());
    encoder.sample(SeriesRef(given), 1000, 1.0);
    let exemplar = Exemplar { labels: labels("trace"), timestamp_ms: 1000, value: 1.0 };
    encoder.exemplar(SeriesRef(given), &exemplar);
    let (help, unit) = ("Help.".to_string(), String::new());
    encoder.metadata(&Metadata { metric: name.into(), kind: MetricKind::Gauge, help, unit });
}

fn check_deleted(comes_meanwhile: bool, in_next_dictionary: bool, expected: &[(&str, usize)]) {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.record(|encoder| record_with_extras(encoder, 0, "old"));
    let upto = writer.record(|encoder| record_with_extras(encoder, 1, "older"));
    if comes_meanwhile {
        writer.sample(0, 2000);
    }
    if in_next_dictionary {
        writer.journal.end_dictionary();
        writer.journal.begin().unwrap();
    }
    writer.deleted();
    writer.new_series(1, "new", 3000);
    writer.sample(1, 4000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let expected: Vec<_> = expected.iter().map(|(name, samples)| ((*name).to_owned(), *samples)).collect();
    assert_eq!(content(&owner, &writer.tenant), expected);
    let partition = owner.partition.head.read();
    let head = partition.tenant(&writer.tenant).unwrap();
    assert_eq!((head.metadata().count(), head.exemplars().count()), (0, 0));
    drop(partition);
    node.stop();
}

#[test]
fn what_a_tenant_had_before_it_was_deleted_does_not_come_back() {
    for in_next_dictionary in [false, true] {
        check_deleted(false, in_next_dictionary, &[("new", 2)]);
    }
    // samples that were sent during the delete remain, with their series
    check_deleted(true, false, &[("new", 2), ("old", 1)]);
    // a series that was needed only by an exemplar which is dropped stays until it is evicted
    check_deleted(true, true, &[("new", 2), ("old", 1), ("older", 0)]);
}

fn owner_at(dir: &std::path::Path, writer: &Writer, clock: Arc<dyn Clock>) -> (Node, Owner, Commands) {
    let settings = Settings { partitions: 1, ..small_settings(dir) };
    only_owner_with(settings, writer.journal.reopen(), clock)
}

#[test]
fn replay_of_sealed_churn_takes_hardly_any_memory() {
    const SERIES: u32 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let mut upto = 0;
    for batch in 0..SERIES / 1000 {
        upto = writer.record(|encoder| {
            for i in 0..1000 {
                let given = SeriesRef(batch * 1000 + i);
                encoder.define(given, labels(&format!("{batch}-{i}")).as_ref());
                encoder.sample(given, 1000, 1.0);
            }
        });
    }
    for given in 0..10 {
        writer.sample(given * 1000, 2000);
    }
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(series_count(&owner), 10);
    let (head_bytes, peak_bytes) =
        (owner.partition.head_bytes.load(Ordering::Relaxed), node.owning().replay.peak_bytes());
    assert!(head_bytes < 1 << 20, "{head_bytes} bytes in the head");
    assert!(peak_bytes < 2 << 20, "{peak_bytes} bytes outside of the head, for {} references", SERIES);
    node.stop();
}

#[test]
fn metadata_and_exemplars_of_sealed_records_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let exemplar = |value| Exemplar { labels: labels("trace"), timestamp_ms: 5, value };
    writer.new_series(0, "with an exemplar", 1000);
    writer.new_series(1, "without", 1000);
    writer.new_series(2, "gone with its exemplar", 1000);
    writer.record(|encoder| {
        encoder.exemplar(SeriesRef(0), &exemplar(0.5));
        encoder.exemplar(SeriesRef(2), &exemplar(1.5));
        let (help, unit) = ("Help.".to_string(), String::new());
        encoder.metadata(&Metadata { metric: "m".into(), kind: MetricKind::Gauge, help, unit });
    });
    let upto = writer.new_series(2, "after it", 2000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &writer.tenant), [("with an exemplar".to_owned(), 0)]);
    let partition = owner.partition.head.read();
    let head = partition.tenant(&writer.tenant).unwrap();
    assert_eq!(head.metadata_of("m").map(|m| m.help.as_str()), Some("Help."));
    assert_eq!(head.exemplars().map(|(_, e)| e.value).collect::<Vec<_>>(), [0.5]);
    drop(partition);
    node.stop();
}

#[test]
fn exemplars_of_sealed_churn_are_the_newest_ones() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let mut upto = 0;
    let count = head::EXEMPLARS_MAX as u32 + 3000;
    for batch in 0..count / 1000 {
        upto = writer.record(|encoder| {
            for i in batch * 1000..(batch + 1) * 1000 {
                encoder.define(SeriesRef(i), labels(&i.to_string()).as_ref());
                let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: f64::from(i) };
                encoder.exemplar(SeriesRef(i), &exemplar);
            }
        });
    }
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(series_count(&owner), head::EXEMPLARS_MAX);
    let partition = owner.partition.head.read();
    let values: Vec<_> =
        partition.tenant(&writer.tenant).unwrap().exemplars().map(|(_, e)| e.value).collect();
    assert!(values.into_iter().eq((3000..count).map(f64::from)));
    drop(partition);
    node.stop();
}

fn replay_at_once(mut owner: Owner) -> Owner {
    let partition = Arc::clone(&owner.partition);
    let replay = std::thread::spawn(move || {
        assert_eq!(owner.replay().unwrap(), End::Complete);
        owner
    });
    while !replay.is_finished() {
        let trouble = partition.trouble.lock().clone();
        assert!(trouble.is_empty(), "{trouble}");
        std::thread::yield_now();
    }
    replay.join().unwrap()
}

/// The exemplars come from an earlier version, which did not limit their labels.
#[test]
fn replay_keeps_the_newest_exemplars_that_fit() {
    const COUNT: u32 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    for i in 0..COUNT {
        let labels = Labels::from_pairs(&[("trace", &"x".repeat(15 << 10))]);
        let exemplar = Exemplar { labels, timestamp_ms: 5, value: f64::from(i) };
        writer.record(|encoder| encoder.exemplar(SeriesRef(0), &exemplar));
    }
    let (node, owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    assert!(u64::from(COUNT) * (15 << 10) > node.budget().head_bytes);
    let owner = replay_at_once(owner);
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 1)]);
    let partition = owner.partition.head.read();
    assert!(partition.exemplar_bytes() as u64 <= node.budget().exemplars_bytes());
    assert_eq!(node.writes().heads.bytes(), partition.memory_bytes() as u64);
    let values = partition.tenant(&writer.tenant).unwrap().exemplars().map(|(_, e)| e.value as u32);
    let kept: Vec<_> = values.collect();
    assert!(kept.len() > 50 && kept.iter().copied().eq(COUNT - kept.len() as u32..COUNT), "{kept:?}");
    assert_eq!(node.writes().metrics.exemplars_dropped.get(), u64::from(COUNT) - kept.len() as u64);
}

/// Exemplars may need series with large labels. Sealing would not free their memory, so replay must not wait for it.
#[test]
fn replay_does_not_wait_for_series_that_only_exemplars_need() {
    const COUNT: u32 = 2500;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    let mut upto = 0;
    for i in 0..COUNT {
        let long = format!("{i}-{}", "x".repeat(15 << 10));
        upto = writer.record(|encoder| {
            encoder.define(SeriesRef(i), labels(&long).as_ref());
            let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: f64::from(i) };
            encoder.exemplar(SeriesRef(i), &exemplar);
        });
    }
    writer.sample(COUNT - 1, 2000);
    let (node, owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    sealed_upto(&node, upto);
    assert!(u64::from(COUNT) * (15 << 10) > node.budget().head_bytes);
    let owner = replay_at_once(owner);
    assert!((2..COUNT as usize).contains(&series_count(&owner)));
    let partition = owner.partition.head.read();
    let newest = partition.tenant(&writer.tenant).unwrap().exemplars().last().map(|(_, e)| e.value as u32);
    assert_eq!(newest, Some(COUNT - 1));
    assert_eq!(node.writes().heads.bytes(), partition.memory_bytes() as u64);
}

#[test]
fn sealing_during_replay_keeps_exemplars_and_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    let (tenant, only_metadata) = (TenantId::anonymous(), TenantId::parse("only-metadata").unwrap());
    writer.new_series(0, "with an exemplar", 1000);
    writer.record(|encoder| {
        encoder.exemplar(SeriesRef(0), &Exemplar { labels: labels("trace"), timestamp_ms: 5, value: 1.0 });
        encoder.define(SeriesRef(1), labels("without").as_ref());
    });
    writer.tenant = only_metadata.clone();
    let end = writer.record(|encoder| {
        let (help, unit) = ("Help.".to_string(), String::new());
        encoder.metadata(&Metadata { metric: "m".into(), kind: MetricKind::Gauge, help, unit });
    });
    let (node, mut owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    let mut replay = owner.replay_all().unwrap();
    let frozen = owner.freeze_upto(Offset(end), &Default::default());
    let (reply, _answer) = std::sync::mpsc::sync_channel(1);
    let what = crate::partition::SealedSamples::All { upto: frozen.upto, except: Default::default() };
    owner.let_go(&mut replay, Offset(end), crate::partition::Sealed { what, reply }).unwrap();
    let has_metadata = |owner: &Owner| {
        let partition = owner.partition.head.read();
        partition.tenant(&only_metadata).is_some_and(|head| head.metadata_of("m").is_some())
    };
    assert_eq!(content(&owner, &tenant), [("with an exemplar".to_owned(), 0)]);
    assert!(has_metadata(&owner));
    // under memory pressure, the exemplar is dropped with its series
    owner.partition.grew((node.budget().head_bytes / 100 * 80) as isize);
    owner.make_room(&mut replay, Offset(end)).unwrap();
    assert_eq!(content(&owner, &tenant), []);
    assert!(has_metadata(&owner));
}

#[test]
fn each_tenant_is_replayed_from_its_own_floodmark() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let behind = TenantId::parse("behind").unwrap();
    for tenant in [TenantId::anonymous(), behind.clone()] {
        writer.tenant = tenant;
        writer.new_series(0, "0", 1000);
        writer.new_series(1, "1", 1000);
    }
    let upto = writer.sample(0, 2000);
    sealed_upto(&node, upto);
    let own = |(_, mark): (usize, &mut Mark)| {
        let own =
            crate::seal::TenantMark { source: mark.source.clone(), upto: 3, attempt: None, passes: None };
        mark.tenants.insert(behind.as_str().into(), own);
    };
    node.reads().lake.change_marks(own).unwrap();
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &behind), [("0".to_owned(), 1), ("1".to_owned(), 1)]);
    assert_eq!(content(&owner, &TenantId::anonymous()), []);
    node.stop();
}

#[test]
fn a_record_of_a_later_version_closes_the_partition() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    writer.journal.append(&[RECORD_VERSION + 1, 1, b't']).unwrap();
    writer.journal.sync().unwrap();
    let (mut owner, _commands) = owner_of(&node, writer.journal.reopen());
    let refusal = owner.begin().unwrap_err();
    let found = format!("version {}", RECORD_VERSION + 1);
    let known = format!("up to {RECORD_VERSION}");
    for part in ["offset 1", &found, &known, "start that version again"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert!(!owner.partition.ready.load(Ordering::Relaxed));
    node.stop();
}

#[test]
fn a_malformed_record_is_counted_and_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    for malformed in [&b""[..], &[0, 0, 0, 0], &[RECORD_VERSION, 200, b't']] {
        writer.journal.append(malformed).unwrap();
    }
    writer.journal.sync().unwrap();
    writer.sample(0, 2000);
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 2)]);
    assert_eq!(node.writes().metrics.unreadable_records.get(), 3);
    node.stop();
}

#[test]
fn records_wait_for_the_memory_of_other_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.record(|encoder| {
        encoder.define(SeriesRef(0), labels("0").as_ref());
        (0..90_000).for_each(|i| encoder.sample(SeriesRef(0), i, 0.5));
    });
    let account = node.owning().replay.clone();
    let others = account.reserve(account.limit_bytes() - (1 << 20)).unwrap();
    let (mut owner, _commands) = owner_of(&node, writer.journal.reopen());
    let partition = Arc::clone(&owner.partition);
    let replay = std::thread::spawn(move || {
        assert_eq!(owner.replay().unwrap(), End::Complete);
        owner
    });
    while partition.trouble.lock().is_empty() {
        std::thread::yield_now();
    }
    assert!(
        partition.trouble.lock().contains("the replay of other partitions"),
        "{}",
        partition.trouble.lock()
    );
    drop(others);
    let owner = replay.join().unwrap();
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 90_000)]);
    assert!(partition.trouble.lock().is_empty());
    node.stop();
}

/// Others may give memory back between the failed attempt to take it and the wait. Each attempt may read a dictionary.
#[test]
fn waits_for_memory_end_even_if_nobody_gives_back_any_and_become_longer() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let (_node, mut owner, _commands) =
        owner_at(dir.path(), &Writer::new(), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut replay = owner.replay_all().unwrap();
    let mut attempts = Vec::new();
    let began_ms = clock.passed_ms();
    while clock.passed_ms() - began_ms < 600_000 {
        let before_ms = clock.passed_ms();
        owner.wait_for_memory(&mut replay, Offset(0)).unwrap();
        attempts.push(clock.passed_ms() - before_ms);
        assert!(owner.partition.trouble.lock().is_empty());
    }
    assert!(attempts.is_sorted() && attempts.len() < 40, "{attempts:?}");
    assert_eq!((attempts.first(), attempts.last()), (Some(&1000), Some(&30_000)));
}

/// Writes more samples to a data directory than a node with 64 MiB can hold. None of them is sealed.
async fn fill_beyond_a_small_head(dir: &std::path::Path) -> crate::seal::tests::Content {
    let node = node_with(dir, |settings| {
        settings.budget = Budget::of(512 << 20).unwrap();
        settings.lake.seal_after_ms = i64::MAX;
        settings.lake.seal_bytes = u64::MAX;
    })
    .await;
    let (now_ms, mut content) = (SystemClock.now_ms(), BTreeMap::new());
    let small = Budget::of(64 << 20).unwrap();
    for batch in 0.. {
        let mut encoder = protocol::encode::V1Encoder::new();
        for i in 0..200 {
            let name = format!("m_{batch}_{i}");
            let labels = Labels::from_pairs(&[("__name__", &name), ("own", &name.repeat(100))]);
            encoder.series(labels.as_ref(), &[now_ms], &[f64::from(i)]);
            content.insert((labels.to_string(), now_ms), f64::from(i).to_bits());
        }
        let body = encoder.finish().to_vec();
        let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
        let version = protocol::remote_write::Version::V1;
        crate::write_path::tests::write(&node, TenantId::anonymous(), version, body, memory).await.unwrap();
        if node.writes().heads.bytes() > small.head_bytes * 3 / 2 {
            break;
        }
    }
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    content
}

/// Waits until `is_over`, and checks meanwhile that the heads stay within their limit.
async fn watch(node: &Node, is_over: impl Fn(&Node) -> bool) {
    while !is_over(node) {
        let (held, limit) = (node.writes().heads.bytes(), node.budget().head_bytes);
        // a record is applied as a whole, so the limit may be exceeded by one record
        assert!(held <= limit + (1 << 20), "{held} bytes of {limit}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn trouble(node: &Node) -> bool {
    node.reads().partitions.iter().any(|partition| !partition.trouble.lock().is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_seals_as_it_goes_where_memory_is_less_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let content = fill_beyond_a_small_head(dir.path()).await;
    let node = small_node(dir.path());
    watch(&node, Node::is_ready).await;
    assert!(node.reads().lake.sealing.rounds.get() > 0, "samples that did not fit were sealed");
    let reader = node.clone();
    let found =
        tokio::task::spawn_blocking(move || crate::seal::tests::read_of(&reader, &TenantId::anonymous()));
    assert!(found.await.unwrap() == content, "every sample is there once");
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_waits_for_tables_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let content = fill_beyond_a_small_head(dir.path()).await;
    let tables = dir.path().join("tables");
    let _ = std::fs::remove_dir_all(&tables); // the directory may not exist yet
    std::fs::write(&tables, "in the way").unwrap();
    let node = small_node(dir.path());
    watch(&node, trouble).await;
    let refusal = node.reads().partitions.replaying();
    for part in ["replay waits", "MiB", "--memory"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert!(!node.is_ready());
    std::fs::remove_file(&tables).unwrap();
    watch(&node, Node::is_ready).await;
    assert!(!trouble(&node));
    let reader = node.clone();
    let found =
        tokio::task::spawn_blocking(move || crate::seal::tests::read_of(&reader, &TenantId::anonymous()));
    assert!(found.await.unwrap() == content, "every sample is there once");
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
