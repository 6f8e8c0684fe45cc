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
}

/// A node that stores points of the last ten minutes.
fn node(dir: &std::path::Path) -> (Node, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let settings = Settings { past_ms: 10 * MINUTE_MS, ..small_settings(dir) };
    (Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap(), clock)
}

/// Writes lines that arrived at some time. Returns also the points of new series.
async fn write_lines(node: &Node, lines: &str, arrived_ms: i64) -> (Outcome, NewSamples) {
    let writes = node.writes();
    let decoders: Arc<Decoders<graphite::Decoder>> =
        Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
    let waiting: Arc<dyn WaitingSeries> = Arc::new(NoneWaits);
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
