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
    async fn new(rules: &str, active_series: u64) -> Self {
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
