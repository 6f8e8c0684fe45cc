use super::super::replicas::deduplicate;
use super::histograms::histogram;
use super::*;
use crate::query_source::Source;
use admission::election::CLUSTER_BYTES;
use journal::Disk;
use journal::disk::{Access, DiskFile, Listed, Mode, Os};
use model::{Batch, BatchSeries, Exemplar, SeriesBatch, SeriesHasher, SeriesKey, SeriesSamples, TimeRange};
use query::{Select, SeriesSource};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn tenant() -> TenantId {
    TenantId::parse("pairs").unwrap()
}

/// Starts a node that removes duplicates for one tenant. Also returns the node's clock.
fn start(dir: &Path, adjust: impl FnOnce(&mut TenantSettings)) -> (Node, Arc<ManualClock>) {
    start_on(Arc::new(Os), dir, adjust)
}

fn start_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    adjust: impl FnOnce(&mut TenantSettings),
) -> (Node, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms() / 1000 * 1000));
    let mut settings = small_settings(dir);
    let mut own = TenantSettings { ha_dedup: true, ..settings.tenants.general.clone() };
    adjust(&mut own);
    settings.tenants.own.insert(tenant(), own);
    let world = World { disk, ..World::real(Arc::clone(&clock) as Arc<dyn Clock>) };
    (Node::start_in(settings, world).unwrap(), clock)
}

async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

async fn send(node: &Node, to: &TenantId, series: &[Pairs<'_>], times: &[i64]) -> Result<Outcome, Unwritten> {
    let mut encoder = V1Encoder::new();
    for labels in series {
        encoder.series(Labels::from_pairs(labels).as_ref(), times, &vec![1.0; times.len()]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    write(node, to.clone(), Version::V1, body, memory).await
}

/// Sends a sample of each of these replicas in one request, as a proxy may do.
async fn send_of_replicas(node: &Node, samples: &[(&str, i64)]) -> Result<Outcome, Unwritten> {
    let mut encoder = V1Encoder::new();
    for &(replica, time_ms) in samples {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("__replica__", replica), ("cluster", "c")]);
        encoder.series(labels.as_ref(), &[time_ms], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    write(node, tenant(), Version::V1, body, memory).await
}

/// Checks that nothing was stored, for this reason, and that the sender is asked for a retry.
fn check_kept(outcome: Result<Outcome, Unwritten>, reason: &str) {
    let Unwritten { refusal, samples, .. } = outcome.unwrap_err();
    assert_eq!((refusal.kind, refusal.reason, samples), (ErrorKind::Unavailable, reason, 0), "{refusal}");
}

/// Returns how many samples were stored, and how many were left out because another replica is elected.
fn counts(outcome: Result<Outcome, Unwritten>) -> (u64, u64) {
    let outcome = outcome.unwrap();
    assert_eq!((outcome.refused_samples, outcome.refused_series), (0, 0), "{}", outcome.report());
    (outcome.samples, outcome.deduplicated_samples)
}

fn content(node: &Node, of: &TenantId) -> BTreeMap<String, Vec<i64>> {
    tokio::task::block_in_place(|| {
        let source = Source::new(node.reads(), of.clone(), 10_000, Arc::new(AtomicBool::new(false)));
        let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
        let (mut samples, mut all) = (SeriesSamples::default(), BTreeMap::new());
        while set.next(&mut samples).unwrap() {
            all.insert(set.labels().to_owned().to_string(), samples.floats().unwrap().timestamps.clone());
        }
        all
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_is_stored_until_another_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |_| ());
    let began_ms = clock.now_ms();
    let (mut seconds, mut sent) = (0, BTreeMap::from([("a", 0), ("b", 0)]));
    let mut send_at = async |at_s: u64, replica: &'static str, expected| {
        clock.advance((at_s - seconds) * 1000);
        seconds = at_s;
        // a replica sends everything that it has scraped since it last sent, and b scrapes half a second later than a
        let offset_ms = if replica == "a" { 0 } else { 500 };
        let from = sent.insert(replica, at_s).unwrap();
        let times: Vec<_> = (from..at_s).map(|s| began_ms + s as i64 * 1000 + offset_ms).collect();
        let labels: Pairs<'_> = &[("__name__", "m"), ("__replica__", replica), ("cluster", "c")];
        assert_eq!(
            counts(send(&node, &tenant(), &[labels], &times).await),
            expected,
            "{replica} at {at_s} s"
        );
    };
    send_at(5, "a", (5, 0)).await;
    send_at(6, "b", (0, 6)).await;
    send_at(10, "a", (5, 0)).await;
    send_at(39, "b", (0, 33)).await;
    send_at(40, "b", (1, 0)).await;
    // a reconnects and sends its backlog
    send_at(45, "a", (0, 35)).await;
    send_at(50, "b", (10, 0)).await;
    // b stops and a sends its backlog, in which samples older than the last sample of b are duplicates
    send_at(90, "a", (40, 5)).await;
    let second = |s: i64| began_ms + s * 1000;
    let expected: Vec<_> =
        (0..10).map(second).chain((39..50).map(|s| second(s) + 500)).chain((50..90).map(second)).collect();
    assert_eq!(content(&node, &tenant()), BTreeMap::from([("m{cluster=\"c\"}".to_owned(), expected)]));
    let metrics = &node.writes().metrics;
    assert_eq!((metrics.deduplicated_samples.get(), metrics.replicas_elected.get()), (6 + 33 + 35 + 5, 3));
    let text = node.registry().render();
    assert!(text.contains("floodmark_ha_clusters 1\n"));
    let used = "floodmark_budget_part_used_bytes{account=\"head\",part=\"replicas\"}";
    assert!(text.contains(&format!("{used} {CLUSTER_BYTES}\n")), "{text}");
    stop(node).await;
}

/// The clock of the elected replica is too far ahead, so all its samples are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_cannot_be_stored_does_not_keep_another_out() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |_| ());
    let began_ms = clock.now_ms();
    let ahead_ms = began_ms + 3_600_000;
    for second in 0..30 {
        let ahead = send_of_replicas(&node, &[("a", ahead_ms)]).await.unwrap();
        assert_eq!((ahead.samples, ahead.refused_samples), (0, 1), "{}", ahead.report());
        check_kept(send_of_replicas(&node, &[("b", clock.now_ms())]).await, "ha_failover");
        let both = [("a", ahead_ms), ("b", clock.now_ms())];
        check_kept(send_of_replicas(&node, &both).await, "ha_failover");
        clock.advance(1000);
        assert_eq!(node.writes().metrics.replicas_elected.get(), 1, "after {second} s");
    }
    // b takes over with the samples that it had to keep
    let times: Vec<_> = (0..=30).map(|second| began_ms + second * 1000).collect();
    let of_b: Pairs<'_> = &[("__name__", "m"), ("__replica__", "b"), ("cluster", "c")];
    assert_eq!(counts(send(&node, &tenant(), &[of_b], &times).await), (31, 0));
    assert_eq!(counts(send_of_replicas(&node, &[("a", ahead_ms)]).await), (0, 1));
    assert_eq!(content(&node, &tenant()), BTreeMap::from([("m{cluster=\"c\"}".to_owned(), times)]));
    assert_eq!(node.writes().metrics.replicas_elected.get(), 2);
    stop(node).await;
}

/// A proxy mixes the replicas in each of its requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_from_one_that_cannot_be_stored_in_the_same_request() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |_| ());
    let both = |ms| [("a", ms + 3_600_000), ("b", ms)];
    check_kept(send_of_replicas(&node, &both(clock.now_ms())).await, "ha_failover");
    clock.advance(30_000);
    for stored in 1..=3 {
        let outcome = send_of_replicas(&node, &both(clock.now_ms())).await.unwrap();
        assert_eq!(outcome.samples, 1, "{}", outcome.report());
        assert_eq!(node.writes().metrics.replicas_elected.get(), 2);
        assert_eq!(content(&node, &tenant())["m{cluster=\"c\"}"].len(), stored);
        clock.advance(10_000);
    }
    stop(node).await;
}

/// A disk that may be full.
#[derive(Debug, Clone, Default)]
struct SmallDisk {
    is_full: Arc<AtomicBool>,
}

impl SmallDisk {
    fn check(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for SmallDisk {
    fn create_dir(&self, dir: &Path, access: Access) -> io::Result<()> {
        Os.create_dir(dir, access)
    }

    fn list(&self, dir: &Path, most: usize) -> io::Result<Vec<Listed>> {
        Os.list(dir, most)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        if mode == Mode::Create {
            self.check()?;
        }
        Ok(Box::new(SmallFile { disk: self.clone(), file: Os.open(path, mode)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Os.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Os.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Os.lock(path)
    }
}

#[derive(Debug)]
struct SmallFile {
    disk: SmallDisk,
    file: Box<dyn DiskFile>,
}

impl DiskFile for SmallFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.check()?;
        self.file.write_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.check()?;
        self.file.allocate(at, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Both replicas keep their samples. If the elected replica dies before the disk has room, the other one's samples are
/// stored, without a gap.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_a_pair_no_samples() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), SmallDisk::default());
    let (node, clock) = start_on(Arc::new(disk.clone()), dir.path(), |_| ());
    let began_ms = clock.now_ms();
    assert_eq!(counts(send_of_replicas(&node, &[("a", began_ms)]).await), (1, 0));
    assert_eq!(counts(send_of_replicas(&node, &[("b", began_ms)]).await), (0, 1));
    disk.is_full.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        clock.advance(5000);
        let of_a = send_of_replicas(&node, &[("a", clock.now_ms())]).await.unwrap_err();
        assert_eq!((of_a.refusal.kind, of_a.samples), (ErrorKind::Unavailable, 0), "{}", of_a.refusal);
        check_kept(send_of_replicas(&node, &[("b", clock.now_ms())]).await, "ha_failover");
    }
    assert_eq!(node.writes().metrics.replicas_elected.get(), 1, "a is elected while it sends");
    disk.is_full.store(false, Ordering::Relaxed);
    clock.advance(29_999);
    check_kept(send_of_replicas(&node, &[("b", clock.now_ms())]).await, "ha_failover");
    clock.advance(1);
    let times: Vec<_> = (1..=26).map(|number| began_ms + number * 5000).collect();
    let of_b: Pairs<'_> = &[("__name__", "m"), ("__replica__", "b"), ("cluster", "c")];
    assert_eq!(counts(send(&node, &tenant(), &[of_b], &times).await), (26, 0));
    let stored = content(&node, &tenant()).remove("m{cluster=\"c\"}").unwrap();
    assert_eq!(stored, (0..=26).map(|number| began_ms + number * 5000).collect::<Vec<_>>());
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn series_without_replica_labels_are_stored_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |_| ());
    let now_ms = clock.now_ms();
    let long = "x".repeat(300);
    let series: [Pairs<'_>; 5] = [
        &[("__name__", "no_cluster"), ("__replica__", "a")],
        &[("__name__", "no_replica"), ("cluster", "c")],
        &[("__name__", "neither")],
        &[("__name__", "long_cluster"), ("__replica__", "a"), ("cluster", &long)],
        &[("__name__", "long_replica"), ("__replica__", &long), ("cluster", "c")],
    ];
    let stored = |series: &[Pairs<'_>]| {
        let of = |pairs: &Pairs<'_>| (Labels::from_pairs(pairs).to_string(), vec![now_ms]);
        series.iter().map(of).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(counts(send(&node, &tenant(), &series, &[now_ms]).await), (5, 0));
    assert_eq!(content(&node, &tenant()), stored(&series));
    // only tenants with the setting are de-duplicated
    let other = TenantId::anonymous();
    let both: [Pairs<'_>; 2] = [
        &[("__name__", "m"), ("__replica__", "a"), ("cluster", "c")],
        &[("__name__", "m"), ("__replica__", "b"), ("cluster", "c")],
    ];
    assert_eq!(counts(send(&node, &other, &both, &[now_ms]).await), (2, 0));
    assert_eq!(content(&node, &other), stored(&both));
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_beyond_the_limit_are_refused_and_the_rest_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let two = |own: &mut TenantSettings| {
        (own.limits.ha_clusters, own.limits.ha_clusters_is_given) = (2, true);
    };
    let (node, clock) = start(dir.path(), two);
    let of = |cluster| [("__name__", "m"), ("__replica__", "a"), ("cluster", cluster)];
    let series = ["c", "d", "e", "c"].map(of);
    let series: Vec<Pairs<'_>> = series.iter().map(<[_; 3]>::as_slice).collect();
    let unwritten = send(&node, &tenant(), &series, &[clock.now_ms()]).await.unwrap_err();
    let Unwritten { refusal, samples, .. } = unwritten;
    assert_eq!((refusal.kind, refusal.reason, samples), (ErrorKind::Limited, "ha_clusters", 3));
    for part in ["2 clusters of replicas", "ha_clusters", "m{__replica__=\"a\", cluster=\"e\"}"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    // clusters are forgotten after an hour
    clock.advance(3_600_000);
    assert_eq!(counts(send(&node, &tenant(), &series[2..3], &[clock.now_ms()]).await), (1, 0));
    assert_eq!(node.writes().heads.replicas.used_bytes(), CLUSTER_BYTES);
    stop(node).await;
    // a limit that nobody has set is answered with an error that every sender retries
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |own| own.limits.ha_clusters = 2);
    let Unwritten { refusal, .. } = send(&node, &tenant(), &series, &[clock.now_ms()]).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "ha_clusters"));
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_silent_clusters_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |own| own.limits.ha_clusters = 10_000);
    let most = node.writes().heads.replicas.limit_bytes() / CLUSTER_BYTES;
    let of =
        |cluster: &str| Labels::from_pairs(&[("__name__", "m"), ("__replica__", "a"), ("cluster", cluster)]);
    let mut encoder = V1Encoder::new();
    for number in 0..=most {
        encoder.series(of(&number.to_string()).as_ref(), &[clock.now_ms()], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let refused = write(&node, tenant(), Version::V1, body, memory).await.unwrap_err();
    assert_eq!((refused.refusal.kind, refused.samples), (ErrorKind::Unavailable, most));
    assert!(refused.refusal.message.contains("no memory for another cluster"), "{}", refused.refusal);
    clock.advance(3_600_000);
    let own = node.writes().settings.tenants.of(&tenant()).clone();
    let other = node.writes().tenant(&TenantId::anonymous());
    let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
    push(&mut batch, &[("__name__", "m"), ("__replica__", "a"), ("cluster", "c")], &[1]);
    let mut memory = node.writes().inflight.reserve(0).unwrap();
    deduplicate(node.writes(), &other, &own, 0, &mut batch, &mut outcome, &mut memory).unwrap();
    assert_eq!((outcome.refused_series, other.replicas.lock().clusters()), (0, 1));
    assert_eq!(node.writes().heads.replicas.used_bytes(), CLUSTER_BYTES);
    drop(memory);
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_do_not_count_against_the_rate_of_samples() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |own: &mut TenantSettings| {
        (own.limits.samples_per_second, own.limits.rate_burst_ms) = (Some(100), 1000);
    };
    let (node, clock) = start(dir.path(), limited);
    let now_ms = clock.now_ms();
    let times: Vec<_> = (0..100).map(|i| now_ms - i).rev().collect();
    let of = |replica| [("__name__", "m"), ("__replica__", replica), ("cluster", "c")];
    assert_eq!(counts(send(&node, &tenant(), &[&of("a")[..]], &times).await), (100, 0));
    for _ in 0..10 {
        assert_eq!(counts(send(&node, &tenant(), &[&of("b")[..]], &times).await), (0, 100));
    }
    assert_eq!(counts(send(&node, &tenant(), &[&of("a")[..]], &[now_ms + 1]).await), (1, 0));
    assert_eq!(node.writes().inflight.used_bytes(), 0);
    stop(node).await;
}

fn push(batch: &mut Batch, labels: Pairs<'_>, times: &[i64]) {
    let start = batch.bytes.len() as u32;
    batch.bytes.extend_from_slice(Labels::from_pairs(labels).as_bytes());
    let labels = start..batch.bytes.len() as u32;
    fn add<V: model::Value>(
        batch: &mut SeriesBatch<V>,
        labels: std::ops::Range<u32>,
        times: &[i64],
        value: V,
    ) {
        let (position, first) = (batch.series.len() as u32, batch.timestamps.len() as u32);
        let exemplar = |t: &i64| Exemplar { labels: Labels::empty(), timestamp_ms: *t, value: 0.0 };
        batch.exemplars.extend(times.iter().map(|t| (position, exemplar(t))));
        batch.timestamps.extend_from_slice(times);
        batch.values.resize(batch.timestamps.len(), value);
        let samples = first..batch.timestamps.len() as u32;
        batch.series.push(BatchSeries { key: SeriesKey(0), labels, samples });
    }
    add(&mut batch.floats, labels.clone(), times, 1.0);
    add(&mut batch.histograms, labels, times, histogram(1.0));
}

fn listed<V>(bytes: &[u8], batch: &SeriesBatch<V>) -> Vec<(String, SeriesKey, Vec<i64>, Vec<i64>)> {
    assert_eq!(batch.timestamps.len(), batch.values.len());
    let of = |(position, series): (usize, &BatchSeries)| {
        let labels = &bytes[series.labels.start as usize..series.labels.end as usize];
        let times = batch.timestamps[series.samples.start as usize..series.samples.end as usize].to_vec();
        let exemplars = batch.exemplars.iter().filter(|(of, _)| *of as usize == position);
        let exemplars = exemplars.map(|(_, exemplar)| exemplar.timestamp_ms).collect();
        (LabelsRef::from_canonical(labels).to_owned().to_string(), series.key, times, exemplars)
    };
    batch.series.iter().enumerate().map(of).collect()
}

/// A proxy may put series of several replicas into one request.
#[test]
fn each_series_of_a_request_is_decided_by_its_own_labels() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = start(dir.path(), |_| ());
    let writes = node.writes();
    let own = writes.settings.tenants.of(&tenant()).clone();
    let state = writes.tenant(&tenant());
    let pass = |series: &[(&str, &str, &str, &[i64])]| {
        let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
        for (name, cluster, replica, times) in series {
            push(
                &mut batch,
                &[("__name__", name), ("cluster", cluster), ("__replica__", replica), ("z", "1")],
                times,
            );
        }
        let mut memory = writes.inflight.reserve(0).unwrap();
        let now_ms = clock.now_ms();
        deduplicate(writes, &state, &own, now_ms, &mut batch, &mut outcome, &mut memory).unwrap();
        if let Some(elected) = outcome.elected.take() {
            elected.answered(&Outcome { samples: 1, ..Outcome::default() }, None, false);
        }
        let (floats, histograms) =
            (listed(&batch.bytes, &batch.floats), listed(&batch.bytes, &batch.histograms));
        assert_eq!(floats, histograms);
        assert_eq!(outcome.deduplicated_samples, outcome.deduplicated_exemplars);
        let hasher = SeriesHasher::new(writes.seed);
        let mut kept = Vec::new();
        for (text, key, times, exemplars) in floats {
            assert_eq!(times, exemplars);
            let name = text.split_once('{').unwrap().0.to_owned();
            if name != "none" {
                assert!(!text.contains("__replica__"), "{text}");
                let cluster = text.split_once("cluster=\"").unwrap().1.split_once('"').unwrap().0;
                let labels = Labels::from_pairs(&[("__name__", &name), ("cluster", cluster), ("z", "1")]);
                assert_eq!(key, hasher.key(labels.as_bytes()));
            } else {
                assert_eq!(key, SeriesKey(0), "{text}");
            }
            kept.push((name, times));
        }
        (kept, outcome.deduplicated_samples / 2)
    };
    let now_ms = clock.now_ms();
    let times = [now_ms - 2, now_ms - 1, now_ms];
    let (kept, lost) = pass(&[
        ("a1", "x", "a", &times),
        ("b1", "x", "b", &times[..2]),
        ("a2", "y", "a", &times[1..]),
        ("none", "x", "", &times),
        ("b2", "x", "b", &times),
        ("b3", "z", "b", &times[2..]),
        ("empty", "x", "a", &[]),
        ("a3", "x", "a", &times[..1]),
    ]);
    let expected = [
        ("a1", &times[..]),
        ("a2", &times[1..]),
        ("none", &times),
        ("b3", &times[2..]),
        ("empty", &[]),
        ("a3", &times[..1]),
    ];
    assert_eq!(kept, expected.map(|(name, times)| (name.to_owned(), times.to_vec())));
    assert_eq!(lost, 5);
    // after another replica was elected, only samples newer than those stored before are accepted
    clock.advance(30_000);
    let times = [now_ms - 1, now_ms, now_ms + 1, now_ms + 2];
    let (kept, lost) =
        pass(&[("b1", "x", "b", &times), ("a1", "x", "a", &times), ("b2", "x", "b", &times[..2])]);
    assert_eq!(kept, [("b1".to_owned(), times[2..].to_vec()), ("b2".to_owned(), vec![])]);
    assert_eq!(lost, 2 + 4 + 2);
    assert_eq!(writes.inflight.used_bytes(), 0);
    node.stop();
}

/// The election is not stored, so it starts anew after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_first_that_is_heard_is_elected() {
    let dir = tempfile::tempdir().unwrap();
    let of = |replica| [("__name__", "m"), ("__replica__", replica), ("cluster", "c")];
    let (node, clock) = start(dir.path(), |_| ());
    let now_ms = clock.now_ms();
    assert_eq!(counts(send(&node, &tenant(), &[&of("a")[..]], &[now_ms]).await), (1, 0));
    assert_eq!(counts(send(&node, &tenant(), &[&of("b")[..]], &[now_ms]).await), (0, 1));
    stop(node).await;
    let (node, _) = start(dir.path(), |_| ());
    assert_eq!(counts(send(&node, &tenant(), &[&of("b")[..]], &[now_ms + 1000]).await), (1, 0));
    assert_eq!(counts(send(&node, &tenant(), &[&of("a")[..]], &[now_ms + 1000]).await), (0, 1));
    let expected = ("m{cluster=\"c\"}".to_owned(), vec![now_ms, now_ms + 1000]);
    assert_eq!(content(&node, &tenant()), BTreeMap::from([expected]));
    stop(node).await;
}
