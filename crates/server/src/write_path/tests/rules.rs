//! Rules on what is stored.

use super::*;
use crate::ingest_rules::IngestRulesFile;
use crate::seal::tests::stop;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Each look at this clock takes some time.
#[derive(Debug)]
struct SlowClock {
    began: Instant,
    passed_ms: AtomicU64,
    step_ms: AtomicU64,
}

impl Clock for SlowClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms()
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

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_take_long_go_on_with_a_retry_and_known_series_are_stored() {
    let (passed_ms, step_ms) = (AtomicU64::new(0), AtomicU64::new(0));
    let clock = Arc::new(SlowClock { began: Instant::now(), passed_ms, step_ms });
    let ruled = Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ());
    let known = series("m", 0..50);
    assert_eq!(ruled.send("a", &known).await.unwrap().samples, 50);

    // at most 20 series can be decided in a second
    clock.step_ms.store(50, Ordering::Relaxed);
    let all = [known.clone(), series("m", 50..150), series("gone", 0..20)].concat();
    let (mut attempts, mut stored, mut applied) = (0, 50, ruled.applied());
    let outcome = loop {
        let Unwritten { refusal, samples, .. } = match ruled.send("a", &all).await {
            Ok(outcome) => break outcome,
            Err(unwritten) => unwritten,
        };
        attempts += 1;
        assert!(attempts <= 120, "there is no progress");
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "rule_time"), "{refusal}");
        assert!(refusal.retry_after.is_some());
        for part in ["setting ingest_rules", "1000 ms", "retry the request", "{n="] {
            assert!(refusal.message.contains(part), "{refusal}");
        }
        let before = std::mem::replace(&mut applied, ruled.applied());
        assert!((1.0..=20.0).contains(&(applied - before)), "decided {before} before, now {applied}");
        assert!(samples >= stored, "{samples} samples are stored after {stored}");
        stored = samples;
    };
    assert!(attempts >= 5, "{attempts}");
    assert_eq!((outcome.samples, outcome.dropped_samples, outcome.refused_samples), (150, 20, 0));

    // series that are refused for good do not make the sender repeat its request for ever
    let bad = series("bad", 0..60);
    let outcome = loop {
        match ruled.send("a", &bad).await {
            Ok(outcome) => break outcome,
            Err(unwritten) => assert_eq!(unwritten.refusal.reason, "rule_time"),
        }
        attempts += 1;
        assert!(attempts <= 200, "there is no progress");
    };
    assert_eq!((outcome.refused_samples, outcome.refused_series), (60, 60));
    assert!(outcome.report().contains("no metric name"), "{}", outcome.report());
    let before = ruled.applied();
    assert_eq!(ruled.send("a", &bad).await.unwrap().refused_samples, 60);
    assert_eq!(ruled.applied() - before, 1.0, "the rules tell again why, for one series");
    stop(ruled.node).await;
}
