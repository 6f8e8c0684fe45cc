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

/// A remote-write message with metadata only.
fn metadata(metrics: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, help) in metrics {
        let mut one = vec![0x08, 1, 0x12, name.len() as u8];
        one.extend(name.as_bytes());
        one.extend([0x22, help.len() as u8]);
        one.extend(help.as_bytes());
        body.extend([0x1a, one.len() as u8]);
        body.extend(one);
    }
    snap::raw::Encoder::new().compress_vec(&body).unwrap()
}

impl Ruled {
    /// Returns how many entries of metadata a request would write.
    fn new_metadata(&self, metrics: &[(&str, &str)]) -> usize {
        let decoders: Decoders<remote_write::Decoder> =
            Decoders::new(self.node.reads().seed, self.node.writes().decoders.clone());
        let principal = Principal::of(TenantId::anonymous());
        let bytes = metadata(metrics).into();
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        let request = Encoded { principal, format: Version::V1, encoding: Encoding::Snappy, bytes, memory };
        let rules = self.node.writes().ingest.list_of(&TenantId::anonymous());
        let prepared = decoders.prepare(self.node.writes(), request, rules.as_ref()).unwrap();
        prepared.submissions.iter().map(|(_, submission, _)| submission.metadata.len()).sum()
    }

    async fn write_metadata(&self, metrics: &[(&str, &str)]) {
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        write(&self.node, TenantId::anonymous(), Version::V1, metadata(metrics), memory).await.unwrap();
    }

    fn help(&self, metric: &str) -> Option<String> {
        let partitions = self.node.reads().partitions.iter();
        let mut found = partitions.filter_map(|partition| {
            let head = partition.head.read();
            head.tenant(&TenantId::anonymous())?.metadata_of(metric).map(|found| found.help.clone())
        });
        found.next()
    }
}

/// Otherwise, each request would write the metadata of all of them to the journal.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_metrics_that_become_one_is_written_once() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    let (a, b, own) = (("a_x", "from a"), ("b_x", "from b"), ("x", "own"));
    let all = [a, b, own];
    assert_eq!(ruled.new_metadata(&all), 3);
    assert_eq!(ruled.new_metadata(&all), 3, "what is not durable is written again");
    ruled.write_metadata(&all).await;
    assert_eq!(ruled.help("x").as_deref(), Some("own"));
    for round in [&all[..], &[a], &[b], &[own], &[own, b, a]] {
        assert_eq!(ruled.new_metadata(round), 0, "{round:?}");
    }
    // a change is written, and so is the change back
    for help in ["changed", "from a"] {
        let changed = [("a_x", help)];
        assert_eq!(ruled.new_metadata(&changed), 1, "{help}");
        ruled.write_metadata(&changed).await;
        assert_eq!(ruled.help("x").as_deref(), Some(help));
        assert_eq!(ruled.new_metadata(&[changed[0], b, own]), 0, "{help}");
    }
    stop(ruled.node).await;
}

/// The sender repeats a request that was refused, so the samples that rules dropped from it would be counted again.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_samples_of_a_request_that_is_refused_are_not_counted() {
    let ruled = Ruled::new(RENAME, Arc::new(SystemClock), |settings| {
        settings.tenants.general.limits.active_series = Some(1);
    });
    let dropped =
        || ruled.metric("floodmark_ingest_rules_dropped_samples_total{tenant=\"a\",rule=\"default/3\"}");
    for _ in 0..3 {
        let all = [series("m", 0..2), series("gone", 0..5)].concat();
        let Unwritten { refusal, .. } = ruled.send("a", &all).await.unwrap_err();
        assert_eq!((refusal.reason, dropped()), ("active_series", 0.0));
    }
    for round in 1..=3 {
        let all = [series("m", 0..1), series("gone", 0..5)].concat();
        assert_eq!(ruled.send("a", &all).await.unwrap().dropped_samples, 5);
        assert_eq!(dropped(), f64::from(5 * round));
    }
    stop(ruled.node).await;
}

/// Two tenants have contradicting rules for the same series, and more series than verdicts can be remembered.
#[tokio::test(flavor = "multi_thread")]
async fn displaced_verdicts_are_decided_again_and_never_those_of_others() {
    let rules = "
tenants:
  a: [{source_labels: [__name__], regex: 'm(.*)', target_label: __name__, replacement: 'new$1'}]
  b: [{source_labels: [__name__], regex: 'm(.*)', action: drop}]
  c: [{source_labels: [__name__], regex: 'x(.*)', action: drop}]
";
    const OF_A: u32 = 9000;
    const OF_B: u32 = 27_000;
    // it stands still, so that rules have all the time that they need
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let ruled = Ruled::new(rules, clock, |_| ());
    let mut applied = Vec::new();
    for round in 0..3 {
        for from in (0..OF_B).step_by(3000) {
            let all = series("m", from..from + 3000);
            let of_b = ruled.send("b", &all).await.unwrap();
            assert_eq!((of_b.samples, of_b.dropped_samples), (0, 3000), "round {round}");
            if from < OF_A {
                let of_a = ruled.send("a", &all).await.unwrap();
                assert_eq!((of_a.samples, of_a.dropped_samples), (3000, 0), "round {round}");
            }
            if from == 0 {
                let of_c = ruled.send("c", &all).await.unwrap();
                assert_eq!((of_c.samples, of_c.dropped_samples), (3000, 0), "round {round}");
            }
        }
        applied.push(ruled.applied());
    }
    let (first, last) = (applied[0], applied[2] - applied[1]);
    assert_eq!(first, f64::from(OF_A + OF_B + 3000));
    assert!(last > 1000.0, "the rules decided again on {last} series, so all were remembered");
    assert!(last < first, "the rules decided again on all {last} series");
    let seed = ruled.node.reads().seed;
    let has = |tenant: &str, name: &str, number: u32| {
        let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
        let key = model::SeriesKey::of(labels.as_bytes(), seed);
        let tenant = TenantId::parse(tenant).unwrap();
        let heads = ruled.node.reads().partitions.iter();
        heads
            .map(|partition| partition.head.read())
            .any(|head| head.tenant(&tenant).is_some_and(|head| head.resolve(key).is_some()))
    };
    for number in 0..OF_B {
        let found = [("a", "m"), ("a", "new"), ("b", "m"), ("b", "new"), ("c", "m"), ("c", "new")]
            .map(|(tenant, name)| has(tenant, name, number));
        assert_eq!(found, [false, number < OF_A, false, false, number < 3000, false], "series {number}");
    }
    stop(ruled.node).await;
}
