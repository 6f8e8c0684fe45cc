//! Points of senders that get no answer.

use super::*;
use crate::partition::submission::StreamId;
use crate::seal::tests::stop;
use crate::write_path::known::{Begun, BodyStream, Counted, NewSamples, WaitingSeries, send as send_body};
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
    let writes = node.writes();
    let decoders: Arc<Decoders<graphite::Decoder>> =
        Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
    let counted = &mut Counted::default();
    let stream = BodyStream { id: StreamId(1), origin: Origin::Sender, arrived_ms, permit: None, counted };
    let (principal, body) = (Principal::of(TenantId::anonymous()), Arc::new(lines.as_bytes().to_vec()));
    let format = graphite::TimeOfArrival::Refused;
    let begun = send_body(writes, &decoders, &principal, format, &body, &waiting, stream).await.unwrap();
    let Begun::Sent(sent) = begun else { panic!("there are no rules") };
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
        let waiting = Arc::new(OneWaits(key, labels.clone()));
        let (_, again) = write_lines_beside(&node, &line, now_ms, waiting).await;
        assert_eq!((again.points(), again.keys().collect::<Vec<_>>()), (1, vec![key]));
        let found = &again.parts[0].series[0].labels;
        assert!(std::ptr::eq(found.as_bytes(), labels.as_bytes()), "the labels were made once more");
    }
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
