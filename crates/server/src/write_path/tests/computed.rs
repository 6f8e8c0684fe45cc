//! Requests with points from which series are computed.

use super::*;
use crate::seal::tests::stop;
use protocol::graphite;
use std::future::poll_fn;
use std::task::Poll;
use tokio::task::yield_now;

/// A node with aggregation rules, and its clock.
struct Computing {
    node: Node,
    clock: Arc<ManualClock>,
    _dir: tempfile::TempDir,
}

impl Computing {
    /// The present interval is complete.
    async fn new(rules: &str, active_series: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("aggregation-rules.conf");
        std::fs::write(&file, rules).unwrap();
        let mut settings = Settings { partitions: 1, ..small_settings(&dir.path().join("data")) };
        settings.graphite_rules.aggregator = Some(file);
        let limits = &mut settings.tenants.general.limits;
        (limits.active_series, limits.active_series_is_given) = (Some(active_series), true);
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        node.readiness().wait_for_replay().await;
        clock.advance(100_000);
        Self { node, clock, _dir: dir }
    }

    /// The beginning of the present interval of ten seconds.
    fn interval_s(&self) -> i64 {
        self.clock.now_ms() / 10_000 * 10
    }

    /// Sends a request by HTTP.
    async fn send(&self, lines: String) -> Result<Outcome, Unwritten> {
        let writes = self.node.writes();
        let decoders: Arc<Decoders<graphite::Decoder>> =
            Arc::new(Decoders::new(writes.seed, writes.decoders.clone()));
        let request = Encoded {
            principal: Principal::of(TenantId::anonymous()),
            format: graphite::TimeOfArrival::Refused,
            encoding: Encoding::Identity,
            memory: writes.inflight.reserve(lines.len() as u64).unwrap(),
            bytes: lines.into_bytes().into(),
        };
        crate::write_path::write(writes, &decoders, request).await
    }

    /// What is computed now: names, times in seconds, and values.
    fn computed(&self) -> Vec<(String, i64, f64)> {
        let (aggregator, now_ms) = (&self.node.writes().aggregator, self.clock.now_ms());
        let (tenant, mut position, mut found) = (TenantId::anonymous(), 0, Vec::new());
        while let Some(ended) = aggregator.next_ended(&tenant, &mut position, now_ms, false) {
            found.extend(ended.points.iter().map(|(ms, value)| (ended.name.clone(), ms / 1000, *value)));
        }
        found
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.node.registry().render();
        let prefix = format!("floodmark_graphite_aggregator_{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// A point for each of the series `name.0`, `name.1`, ….
fn lines(name: &str, series: u32, value: u32, at_s: i64) -> String {
    (0..series).map(|i| format!("{name}.{i} {value} {at_s}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_a_sender_that_does_not_wait_for_the_answer_count() {
    let computing = Computing::new("all (10) = count in.*\n", 1000).await;
    let at_s = computing.interval_s();
    for i in 0..20 {
        let mut sending = Box::pin(computing.send(format!("in.{i} 1 {at_s}\n")));
        // this submits the point
        poll_fn(|context| {
            let _ = sending.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
    while computing.metric("points_total") < 20.0 {
        yield_now().await;
    }
    stop(computing.node).await;
}

/// The sender may repeat it or not, and more than once.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_refused_in_part_is_a_gap_in_computed_series() {
    let computing = Computing::new("out.count (10) = count in.*\n", 6).await;
    let at_s = computing.interval_s();
    let too_late = lines("in", 5, 1, at_s - 100);
    assert_eq!(computing.send(too_late).await.unwrap().samples, 5);
    for _ in 0..2 {
        let seven = lines("in", 7, 1, at_s);
        let Unwritten { refusal, samples, .. } = computing.send(seven).await.unwrap_err();
        assert_eq!((refusal.reason, samples), ("active_series", 6));
        let report = "partial write: 6 samples stored; 1 samples of 1 series refused";
        assert!(refusal.message.starts_with(report), "{refusal}");
    }
    assert_eq!(computing.send(lines("in", 2, 1, at_s)).await.unwrap().samples, 2);
    computing.clock.advance(10_000);
    assert_eq!(computing.send(lines("in", 5, 1, at_s + 10)).await.unwrap().samples, 5);
    computing.clock.advance(12_000);
    assert_eq!(computing.computed(), [("out.count".to_owned(), at_s + 10, 5.0)]);
    assert_eq!(computing.metric("incomplete_total"), 1.0);
    assert_eq!(computing.metric("missed_total{reason=\"refused\"}"), 14.0);
    assert_eq!(computing.metric("missed_total{reason=\"incomplete\"}"), 2.0);
    stop(computing.node).await;
}

/// As long as a series is refused, the request is refused in part, however often it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_points_of_a_request_that_is_refused_in_part_are_stored() {
    let computing = Computing::new("r.<m> (10) = sum r.<<m>>\n", 4).await;
    let at_s = computing.interval_s();
    let known = |value, at_s| lines("r", 3, value, at_s) + &lines("q", 1, value, at_s);
    assert_eq!(computing.send(known(1, at_s - 100)).await.unwrap().samples, 4);
    let refused_in_part = async |value, at_s| {
        let with_new = known(value, at_s) + &lines("new", 1, value, at_s);
        let Unwritten { refusal, samples, is_partial, .. } = computing.send(with_new).await.unwrap_err();
        assert_eq!((refusal.reason, samples, is_partial), ("active_series", 4, true));
        let report = "partial write: 4 samples stored; 1 samples of 1 series refused";
        assert!(refusal.message.starts_with(report), "{refusal}");
    };
    for _ in 0..3 {
        refused_in_part(7, at_s).await;
    }
    let replaced = computing.send(lines("r", 3, 1, at_s)).await.unwrap();
    assert_eq!(replaced.samples, 3, "the interval is not computed, so its points are stored");
    // an interval that has replaced points of another sender goes on to replace points
    computing.clock.advance(10_000);
    for _ in 0..2 {
        assert_eq!(computing.send(lines("r", 1, 2, at_s + 10)).await.unwrap().samples, 0);
        refused_in_part(7, at_s + 10).await;
    }
    computing.clock.advance(12_000);
    assert_eq!(computing.computed(), [("r.0".to_owned(), at_s + 10, 4.0)]);
    stop(computing.node).await;
}
