//! Points of senders that get no answer.

use super::*;
use crate::partition::submission::StreamId;
use crate::seal::tests::stop;
use crate::write_path::known::{Begun, BodyStream, Earlier, NewSamples, WaitingSeries, send as send_body};
use model::{BatchSeries, SeriesKey};
use protocol::graphite;

const MINUTE_MS: i64 = 60_000;

/// No series waits.
#[derive(Debug)]
struct NoneWaits;

impl WaitingSeries for NoneWaits {
    fn mark(&self, _: &TenantId, _: &[BatchSeries], _: &mut Vec<bool>) {}

    fn waits(&self, _: &TenantId, _: SeriesKey) -> bool {
        false
    }

    fn labels(&self, _: &TenantId, _: SeriesKey) -> Option<Labels> {
        None
    }
}

/// The series with these labels waits.
#[derive(Debug)]
struct OneWaits(SeriesKey, Labels);

impl WaitingSeries for OneWaits {
    fn mark(&self, _: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>) {
        waiting.extend(series.iter().map(|series| series.key == self.0));
    }

    fn waits(&self, _: &TenantId, key: SeriesKey) -> bool {
        key == self.0
    }

    fn labels(&self, _: &TenantId, key: SeriesKey) -> Option<Labels> {
        (key == self.0).then(|| self.1.clone())
    }
}

/// A node that stores points of the last ten minutes.
fn node(dir: &std::path::Path) -> (Node, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let settings = Settings { past_ms: 10 * MINUTE_MS, ..small_settings(dir) };
    (Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap(), clock)
}

/// Writes lines that arrived at some time. Returns also the points of new series.
async fn write_lines(node: &Node, lines: &str, arrived_ms: i64) -> (Outcome, NewSamples) {
    write_lines_beside(node, lines, arrived_ms, Arc::new(NoneWaits)).await
}

async fn write_lines_beside(
    node: &Node,
    lines: &str,
    arrived_ms: i64,
    waiting: Arc<dyn WaitingSeries>,
) -> (Outcome, NewSamples) {
    attempt_lines(node, lines, arrived_ms, waiting, &mut Earlier::default()).await
}

async fn attempt_lines(
    node: &Node,
    lines: &str,
    arrived_ms: i64,
    waiting: Arc<dyn WaitingSeries>,
    earlier: &mut Earlier,
) -> (Outcome, NewSamples) {
    let writes = node.writes();
    let decoders: Arc<Decoders<graphite::Decoder>> =
        Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
    let stream = BodyStream { id: StreamId(1), origin: Origin::Sender, arrived_ms, permit: None, earlier };
    let (principal, body) = (Principal::of(TenantId::anonymous()), Arc::new(lines.as_bytes().to_vec()));
    let format = graphite::TimeOfArrival::Refused;
    let begun = send_body(writes, &decoders, &principal, format, &body, &waiting, stream).await.unwrap();
    let Begun::Sent(sent) = begun else { panic!("there are no rules") };
    earlier.samples = true;
    let (sent, new) = *sent;
    (sent.settle(writes).await.unwrap(), new)
}

/// What a body may store does not depend on how long it could not be stored.
#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_points_is_judged_when_their_body_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = node(dir.path());
    let arrived_ms = clock.now_ms();
    let at = |minutes: i64| (arrived_ms + minutes * MINUTE_MS) / 1000;
    let lines = format!("old 1 {}\nnow 1 {}\ntoo.old 1 {}\nahead 1 {}\n", at(-9), at(0), at(-11), at(11));
    for waits_ms in [0, 15 * MINUTE_MS as u64] {
        clock.advance(waits_ms);
        let (outcome, new) = write_lines(&node, &lines, arrived_ms).await;
        assert_eq!((new.points(), outcome.refused_samples), (2, 2), "after {waits_ms} ms");
    }
    stop(node).await;
}

/// A body that is tried again for hours must not keep several times the memory that it needs: each attempt takes as much again.
#[tokio::test(flavor = "multi_thread")]
async fn new_samples_keep_only_their_own_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = node(dir.path());
    let (now_ms, inflight) = (clock.now_ms(), &node.writes().inflight);
    write_series(&node, (0..2000).map(|i| format!("m{i}"))).await;
    let lines = |name: &str| -> String {
        (0..2000).map(|i| format!("{name}{i} 1 {}\n", now_ms / 1000 + 1)).collect()
    };
    let known = lines("m");
    let (outcome, new) = write_lines(&node, &format!("{known}one 1 {}\n", now_ms / 1000), now_ms).await;
    assert_eq!((outcome.samples, new.points()), (2000, 1));
    let held_bytes = inflight.used_bytes();
    assert!((1..4096).contains(&held_bytes), "{held_bytes} bytes for one sample");
    drop(new);
    let (_, new) = write_lines(&node, &lines("new"), now_ms).await;
    assert_eq!(new.points(), 2000);
    let all_bytes = inflight.used_bytes();
    let times = new.into_times();
    let times_bytes = inflight.used_bytes();
    assert!((1..all_bytes / 3 * 2).contains(&times_bytes), "{times_bytes} of {all_bytes} bytes");
    drop(times);
    assert_eq!(inflight.used_bytes(), 0);
    stop(node).await;
}

/// A series may wait for hours, and there may be a thousand rules.
#[tokio::test(flavor = "multi_thread")]
async fn rules_on_names_are_not_applied_to_each_point_of_a_series_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rewrite-rules.conf");
    std::fs::write(&file, "[pre]\n^old\\. = new.\n").unwrap();
    let mut settings = small_settings(&dir.path().join("data"));
    settings.graphite_rules.rewrite = Some(file);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    let now_ms = SystemClock.now_ms();
    for (sent, stored) in [("old.m", "new.m"), ("other.m", "other.m")] {
        let line = format!("{sent} 1 {}\n", now_ms / 1000);
        let (_, new) = write_lines(&node, &line, now_ms).await;
        let labels = new.parts[0].series[0].labels.clone();
        assert_eq!(labels, Labels::from_pairs(&[("__name__", stored)]));
        let key = SeriesKey::of(labels.as_bytes(), node.writes().seed);
        let (waiting, mut is_shared) = (Arc::new(OneWaits(key, labels.clone())), false);
        for _ in 0..3 {
            let (_, again) = write_lines_beside(&node, &line, now_ms, Arc::clone(&waiting) as _).await;
            assert_eq!((again.points(), again.keys().collect::<Vec<_>>()), (1, vec![key]));
            let found = &again.parts[0].series[0].labels;
            is_shared = std::ptr::eq(found.as_bytes(), labels.as_bytes());
        }
        assert!(is_shared, "the labels of {sent} were made once more");
    }
    stop(node).await;
}

/// Stores a sample of a series through another protocol, to which the rules do not apply.
async fn make_known(node: &Node, name: &str) {
    let mut encoder = V1Encoder::new();
    let labels = Labels::from_pairs(&[("__name__", name)]);
    encoder.series(labels.as_ref(), &[SystemClock.now_ms() - 100_000], &[1.0]);
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    let written = write(node, TenantId::anonymous(), Version::V1, body, memory).await;
    assert_eq!(written.unwrap().samples, 1);
}

/// A part of the body may be stored already. With other rules, it could be stored once more under another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_written_again_keeps_its_rules() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rewrite-rules.conf");
    let first = "[pre]\n^x\\. = y.\n";
    std::fs::write(&file, first).unwrap();
    let mut settings = small_settings(&dir.path().join("data"));
    settings.graphite_rules.rewrite = Some(file.clone());
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    make_known(&node, "a.m").await;
    let now_ms = SystemClock.now_ms();
    let line = format!("a.m 2 {}\n", now_ms / 1000);
    let mut earlier = Earlier::default();
    let (outcome, new) = attempt_lines(&node, &line, now_ms, Arc::new(NoneWaits), &mut earlier).await;
    assert_eq!((outcome.samples, new.points()), (1, 0));
    std::fs::write(&file, "[pre]\n^a\\. = b.\n").unwrap();
    node.writes().rules.reload();
    for _ in 0..2 {
        let (_, new) = attempt_lines(&node, &line, now_ms, Arc::new(NoneWaits), &mut earlier).await;
        assert_eq!(new.points(), 0, "the second attempt");
        let (_, new) = write_lines(&node, &line, now_ms).await;
        assert_eq!(new.parts[0].series[0].labels, Labels::from_pairs(&[("__name__", "b.m")]));
    }
    std::fs::write(&file, first).unwrap();
    node.writes().rules.reload();
    for _ in 0..2 {
        let (_, new) = write_lines(&node, &line, now_ms).await;
        assert_eq!(new.points(), 0, "the series is known under its own name again");
    }
    stop(node).await;
}

/// The rules are asked once about each known series, and again after they have changed, but not after other files have.
#[tokio::test(flavor = "multi_thread")]
async fn known_series_are_judged_once_by_each_version_of_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    let mut settings = small_settings(&path("data"));
    write("deny", "^never$\n");
    write("schemas", "[a]\npattern = ^a\nretentions = 10:10\n");
    settings.graphite_rules.deny = Some(path("deny"));
    settings.graphite_rules.schemas = Some(path("schemas"));
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    for name in ["a.m", "b.m"] {
        make_known(&node, name).await;
    }
    let now_ms = SystemClock.now_ms();
    let vetted = || {
        let context = node.writes();
        let version = context.rules.current().names_version.get().copied();
        let is_vetted = |name: &str| {
            let labels = Labels::from_pairs(&[("__name__", name)]);
            let key = SeriesKey::of(labels.as_bytes(), context.seed);
            let partitions = &context.partitions;
            let head = partitions[key.partition(partitions.len())].head.read();
            let head = head.tenant(&TenantId::anonymous()).unwrap();
            version.is_some_and(|version| head.is_vetted(head.resolve(key).unwrap(), version))
        };
        ["a.m", "b.m"].map(is_vetted)
    };
    assert_eq!(vetted(), [false, false]);
    let send = async |name: &str, stored: u64| {
        let (outcome, new) = write_lines(&node, &format!("{name} 2 {}\n", now_ms / 1000), now_ms).await;
        assert_eq!((outcome.samples, new.points()), (stored, 0), "{name}");
    };
    send("a.m", 1).await;
    assert_eq!(vetted(), [true, false]);
    send("b.m", 1).await;
    write("schemas", "[a]\npattern = ^a\nretentions = 20:10\n");
    node.writes().rules.reload();
    send("b.m", 1).await;
    assert_eq!(vetted(), [true, true], "the rules on names are the same");
    write("deny", "^a\n");
    node.writes().rules.reload();
    send("a.m", 0).await;
    assert_eq!(vetted(), [false, false], "the rules on names have changed");
    send("b.m", 1).await;
    assert_eq!(vetted(), [false, true]);
    stop(node).await;
}

/// Their age was judged before they began to wait. An attempt to store them that is refused removes none of them.
#[tokio::test(flavor = "multi_thread")]
async fn points_that_wait_for_their_series_do_not_become_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let (node, clock) = node(dir.path());
    let mut batch = Batch::default();
    let labels = Labels::from_pairs(&[("__name__", "m")]);
    batch.bytes.extend_from_slice(labels.as_bytes());
    let key = SeriesKey::of(labels.as_bytes(), node.writes().seed);
    batch.floats.series.push(BatchSeries { key, labels: 0..batch.bytes.len() as u32, samples: 0..1 });
    batch.floats.timestamps.push(clock.now_ms() - 9 * MINUTE_MS);
    batch.floats.values.push(1.0);
    clock.advance(15 * MINUTE_MS as u64);
    let memory = node.writes().inflight.reserve(0).unwrap();
    let principal = Principal::of(TenantId::anonymous());
    let outcome = write_counted(node.writes(), &principal, &mut batch, memory).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused_samples, batch.floats.values.len()), (1, 0, 1));
    stop(node).await;
}
