//! Rules on what is stored.

mod lines;
mod metadata;
mod turns;
mod verdicts;

use super::*;
use crate::ingest_rules::IngestRulesFile;
use crate::limits::fair_permits::Permit;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Instant;

/// Each look at this clock takes some time.
#[derive(Debug)]
struct SlowClock {
    began: Instant,
    passed_ms: AtomicU64,
    step_ms: AtomicU64,
    /// By how much the time is ahead of the operating system's.
    ahead_ms: AtomicI64,
}

impl Clock for SlowClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }

    fn instant(&self) -> Instant {
        let step_ms = self.step_ms.load(Ordering::Relaxed);
        self.began + Duration::from_millis(self.passed_ms.fetch_add(step_ms, Ordering::Relaxed))
    }
}

struct Ruled {
    node: Node,
    _dir: tempfile::TempDir,
}

impl Ruled {
    fn new(rules: &str, clock: Arc<dyn Clock>, change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        std::fs::write(&path, rules).unwrap();
        let mut settings = small_settings(&dir.path().join("data"));
        settings.ingest_rules = Some(IngestRulesFile { path });
        change(&mut settings);
        Self { node: Node::start(settings, clock).unwrap(), _dir: dir }
    }

    /// Sends a sample of each series, which has this name and a number.
    async fn send(&self, tenant: &str, series: &[(&str, u32)]) -> Result<Outcome, Unwritten> {
        let mut encoder = V1Encoder::new();
        for (name, number) in series {
            let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
            encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        write(&self.node, TenantId::parse(tenant).unwrap(), Version::V1, body, memory).await
    }

    /// Sends a sample of each of these series of a replica.
    async fn send_of_replica(&self, replica: &str, series: u32) -> Result<Outcome, Unwritten> {
        self.send_of_replica_at(replica, series, SystemClock.now_ms()).await
    }

    async fn send_of_replica_at(&self, replica: &str, series: u32, at_ms: i64) -> Result<Outcome, Unwritten> {
        let mut encoder = V1Encoder::new();
        for number in 0..series {
            let number = number.to_string();
            let labels = [("__name__", "m"), ("__replica__", replica), ("cluster", "c"), ("n", &number)];
            encoder.series(Labels::from_pairs(&labels).as_ref(), &[at_ms], &[1.0]);
        }
        let body = encoder.finish().to_vec();
        let memory = self.node.writes().inflight.reserve(body.len() as u64).unwrap();
        write(&self.node, TenantId::parse("a").unwrap(), Version::V1, body, memory).await
    }

    /// The value of a metric without labels, or with those in the name.
    fn metric(&self, name: &str) -> f64 {
        let text = self.node.registry().render();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    fn applied(&self) -> f64 {
        self.metric("floodmark_ingest_rules_applied_series_total")
    }
}

const RENAME: &str = "
- {source_labels: [__name__], regex: 'm(.*)', target_label: __name__, replacement: 'new$1'}
- {source_labels: [__name__], regex: bad, target_label: __name__, replacement: ''}
- {source_labels: [__name__], regex: gone, action: drop}
";

fn series(name: &str, numbers: std::ops::Range<u32>) -> Vec<(&str, u32)> {
    numbers.map(|number| (name, number)).collect()
}

/// Holds all permits to decode.
struct AllPermits {
    tenant: TenantId,
    held: Vec<Permit<TenantId>>,
}

impl AllPermits {
    async fn take(ruled: &Ruled, tenant: &str) -> Self {
        let tenant = TenantId::parse(tenant).unwrap();
        let mut held = Vec::new();
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            held.push(ruled.node.writes().gates.decoding_permit(&tenant).await);
        }
        Self { tenant, held }
    }

    /// Lets another tenant have a turn, if it waits for one.
    async fn let_pass(&mut self, ruled: &Ruled) {
        let mut next = std::pin::pin!(ruled.node.writes().gates.decoding_permit(&self.tenant));
        let is_pending = |context: &mut std::task::Context<'_>| {
            std::task::Poll::Ready(next.as_mut().poll(context).is_pending())
        };
        assert!(std::future::poll_fn(is_pending).await, "somebody else had a permit");
        self.held.pop();
        self.held.push(next.await);
    }
}

fn slow_clock() -> Arc<SlowClock> {
    let (passed_ms, step_ms, ahead_ms) = (AtomicU64::new(0), AtomicU64::new(0), AtomicI64::new(0));
    Arc::new(SlowClock { began: Instant::now(), passed_ms, step_ms, ahead_ms })
}
