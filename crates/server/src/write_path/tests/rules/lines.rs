//! Bodies of lines, whose points are handed back if they cannot be stored at once.

use super::*;
use crate::partition::submission::StreamId;
use crate::seal::tests::stop;
use crate::write_path::known::{Begun, BodyStream, Earlier, NewSamples, WaitingSeries, send as send_body};
use model::{BatchSeries, SeriesKey};
use protocol::graphite;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

/// All series wait from the second look on.
#[derive(Debug, Default)]
struct SoonAllWait(AtomicBool);

impl WaitingSeries for SoonAllWait {
    fn mark(&self, _: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>) {
        if self.0.swap(true, Ordering::Relaxed) {
            waiting.resize(series.len(), true);
        }
    }

    fn waits(&self, _: &TenantId, _: SeriesKey) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn labels(&self, _: &TenantId, _: SeriesKey) -> Option<Labels> {
        None
    }
}

impl Ruled {
    /// Stores a sample of each of the first of the series that [`Self::send_lines`] sends.
    async fn store_lines(&self, series: u64) {
        let mut encoder = V1Encoder::new();
        for number in 0..series {
            let labels = Labels::from_pairs(&[("__name__", &format!("m.{number}"))]);
            encoder.series(labels.as_ref(), &[SystemClock.now_ms() - 100_000], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        let written = write(&self.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await;
        assert_eq!(written.unwrap().samples, series);
    }

    /// Sends Graphite's lines: 60 points of 20 series.
    async fn send_lines(&self) -> (u64, NewSamples) {
        let (sent, new) = match self.begin_lines(&mut Earlier::default(), None).await {
            Begun::Sent(sent) => *sent,
            Begun::Later(later) => later.sent().await.unwrap(),
        };
        let outcome = sent.settle(self.node.writes()).await.unwrap();
        assert_eq!(outcome.refused_samples, 0);
        (outcome.samples, new)
    }

    pub(super) async fn begin_lines(&self, earlier: &mut Earlier, permit: Option<Permit<TenantId>>) -> Begun {
        let now_s = SystemClock.now_ms() / 1000;
        let lines: String = (0..60).map(|i| format!("m.{} {i} {}\n", i % 20, now_s - 60 + i)).collect();
        self.begin_body(lines, earlier, permit).await
    }

    async fn begin_body(
        &self,
        lines: String,
        earlier: &mut Earlier,
        permit: Option<Permit<TenantId>>,
    ) -> Begun {
        let writes = self.node.writes();
        let decoders: Arc<Decoders<graphite::Decoder>> =
            Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
        let (principal, body) = (Principal::of(TenantId::parse("a").unwrap()), Arc::new(lines.into_bytes()));
        let waiting: Arc<dyn WaitingSeries> = Arc::new(SoonAllWait::default());
        let arrived_ms = writes.clock.now_ms();
        let stream = BodyStream { id: StreamId(1), origin: Origin::Sender, arrived_ms, permit, earlier };
        let format = graphite::TimeOfArrival::Refused;
        send_body(writes, &decoders, &principal, format, &body, &waiting, stream).await.unwrap()
    }

    fn expect_all(&self, new: &NewSamples) {
        assert_eq!(new.points(), 60);
        let of_name = |i: u32| Labels::from_pairs(&[("__name__", &format!("new.{i}"))]);
        let key = |i| SeriesKey::of(of_name(i).as_bytes(), self.node.writes().seed);
        assert_eq!(new.keys().collect::<HashSet<_>>(), (0..20).map(key).collect());
        let labels = new.parts.iter().flat_map(|part| &part.series).map(|series| series.labels.clone());
        assert_eq!(labels.collect::<HashSet<_>>(), (0..20).map(of_name).collect());
    }
}

/// A sender without answers cannot repeat what was not stored.
#[tokio::test(flavor = "multi_thread")]
async fn all_points_of_a_body_of_lines_are_handed_back_however_long_the_rules_take() {
    let clock = slow_clock();
    let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ());
    clock.step_ms.store(50, Ordering::Relaxed);
    let (stored, new) = ruled.send_lines().await;
    assert_eq!(stored, 0);
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// Their labels are not made in advance, because they exist then.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_series_that_begin_to_wait_after_the_rules_are_handed_back() {
    let ruled = Ruled::new(RENAME, Arc::new(SystemClock), |_| ());
    ruled.store_lines(20).await;
    let before = ruled.applied();
    let (stored, new) = ruled.send_lines().await;
    assert_eq!((stored, ruled.applied()), (0, before), "the series were known when the rules were asked");
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// The labels of the first ones are made last, when those of the others are there.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_series_of_a_body_may_begin_to_wait_between_two_turns() {
    for known in [1, 7, 19] {
        let clock = slow_clock();
        let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ());
        ruled.store_lines(known).await;
        clock.step_ms.store(50, Ordering::Relaxed);
        let (stored, new) = ruled.send_lines().await;
        assert_eq!(stored, 0);
        ruled.expect_all(&new);
        drop(new);
        stop(ruled.node).await;
    }
}

/// A lane does this, so that it holds no memory that others need to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_rules_take_long_can_be_given_up_and_written_anew() {
    let clock = slow_clock();
    let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        let limits = &mut settings.tenants.general.limits;
        (limits.requests_per_second, limits.rate_burst_ms) = (Some(1), 1000);
    });
    clock.step_ms.store(50, Ordering::Relaxed);
    let mut earlier = Earlier::default();
    for _ in 0..3 {
        let Begun::Later(later) = ruled.begin_lines(&mut earlier, None).await else {
            panic!("the rules do not take long")
        };
        assert!(ruled.node.writes().inflight.used_bytes() > 0);
        drop(later);
        assert_eq!(ruled.node.writes().inflight.used_bytes(), 0);
    }
    let Begun::Later(later) = ruled.begin_lines(&mut earlier, None).await else {
        panic!("the rules do not take long")
    };
    let (sent, new) = later.sent().await.unwrap();
    assert_eq!(sent.settle(ruled.node.writes()).await.unwrap().samples, 0);
    ruled.expect_all(&new);
    drop(new);
    stop(ruled.node).await;
}

/// They are neither in the body nor in the output, until the body is durable.
#[tokio::test(flavor = "multi_thread")]
async fn points_that_an_output_takes_are_stored_if_it_cannot_have_them_after_the_rules() {
    for has_ended in [false, true] {
        let (clock, dir) = (slow_clock(), tempfile::tempdir().unwrap());
        let file = dir.path().join("aggregation-rules.conf");
        std::fs::write(&file, "t.<n> (10) = sum t.<<n>>\n").unwrap();
        let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
            settings.graphite_rules.aggregator = Some(file);
        });
        clock.ahead_ms.store(100_000, Ordering::Relaxed); // so that the present interval is complete
        clock.step_ms.store(50, Ordering::Relaxed);
        let writes = ruled.node.writes();
        let now_s = writes.clock.now_ms() / 1000;
        let of = |i| if i < 5 { format!("t.{i} 1 {now_s}\n") } else { format!("m.{i} 1 {now_s}\n") };
        let lines: String = (0..25).map(of).collect();
        let begin = || async {
            match ruled.begin_body(lines.clone(), &mut Earlier::default(), None).await {
                Begun::Sent(_) => panic!("the rules do not take long"),
                Begun::Later(later) => later,
            }
        };
        let (_, new) = begin().await.sent().await.unwrap();
        assert_eq!(new.points(), 20, "nothing is taken");
        let later = begin().await;
        match has_ended {
            true => writes.aggregator.adopt(&Arc::default(), writes.clock.now_ms()),
            false => _ = clock.ahead_ms.fetch_add(120_000, Ordering::Relaxed),
        }
        let refusal = later.sent().await.map(|_| ()).unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "ingest_rules"));
        let (sent, again) = begin().await.sent().await.unwrap();
        assert_eq!(again.points(), 25);
        assert_eq!(sent.settle(writes).await.unwrap().refused_samples, 0);
        drop((new, again));
        stop(ruled.node).await;
    }
}

/// The body was durable, so its sender does not send them again.
#[tokio::test(flavor = "multi_thread")]
async fn points_that_an_output_cannot_have_when_the_body_is_durable_are_stored() {
    let (clock, dir) = (slow_clock(), tempfile::tempdir().unwrap());
    let file = dir.path().join("aggregation-rules.conf");
    std::fs::write(&file, "t.<n> (10) = sum t.<<n>>\n").unwrap();
    let rename = "- {source_labels: [__name__], regex: 't.4', target_label: __name__, replacement: 'u.4'}\n";
    let ruled = Ruled::new(rename, Arc::clone(&clock) as _, |settings| {
        settings.graphite_rules.aggregator = Some(file);
    });
    clock.ahead_ms.store(100_000, Ordering::Relaxed); // so that the present interval is complete
    let writes = ruled.node.writes();
    let now_s = writes.clock.now_ms() / 1000;
    let lines: String = (0..5).map(|i| format!("t.{i} {i} {now_s}\n")).collect();
    let Begun::Sent(sent) = ruled.begin_body(lines, &mut Earlier::default(), None).await else {
        panic!("the rules take long")
    };
    let (sent, new) = *sent;
    let mut outcome = sent.settle(writes).await.unwrap();
    assert_eq!((new.points(), outcome.samples), (0, 0), "the outputs have taken all points");
    clock.ahead_ms.fetch_add(120_000, Ordering::Relaxed);
    let principal = Principal::of(TenantId::parse("a").unwrap());
    let given_back = count(writes, &principal, &mut outcome).await.unwrap();
    assert_eq!((given_back.points(), given_back.lost), (5, 0));
    for has_created in [true, false] {
        let stored = given_back.store(writes, &principal).await.unwrap();
        assert_eq!((stored.samples, stored.refused_samples, stored.has_created), (5, 0, has_created));
    }
    drop(given_back);
    for name in ["t.0", "t.3", "u.4"] {
        let mut encoder = V1Encoder::new();
        encoder.series(Labels::from_pairs(&[("__name__", name)]).as_ref(), &[now_s * 1000 + 1], &[1.0]);
        let body = encoder.finish().to_vec();
        let memory = writes.inflight.reserve(body.len() as u64).unwrap();
        let again = write(&ruled.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await;
        assert!(!again.unwrap().has_created, "{name} exists");
    }
    drop(new);
    stop(ruled.node).await;
}
