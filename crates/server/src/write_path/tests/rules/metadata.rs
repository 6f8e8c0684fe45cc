//! Metadata of metrics that rules rename.

use super::*;
use crate::seal::tests::stop;

/// A remote-write message with metadata only.
fn metadata(metrics: &[(&str, &str)]) -> Vec<u8> {
    let field = |into: &mut Vec<u8>, tag: u8, bytes: &[u8]| {
        let length = bytes.len();
        assert!(length < 1 << 14);
        into.extend([tag, length as u8 | 0x80, (length >> 7) as u8]);
        into.extend(bytes);
    };
    let mut body = Vec::new();
    for (name, help) in metrics {
        let mut one = vec![0x08, 1];
        field(&mut one, 0x12, name.as_bytes());
        field(&mut one, 0x22, help.as_bytes());
        field(&mut body, 0x1a, &one);
    }
    snap::raw::Encoder::new().compress_vec(&body).unwrap()
}

impl Ruled {
    /// Returns how many entries of metadata a request would write.
    fn new_metadata(&self, tenant: &str, metrics: &[(&str, &str)]) -> usize {
        let decoders: Arc<Decoders<remote_write::Decoder>> =
            Arc::new(Decoders::new(self.node.reads().seed, self.node.writes().decoders.clone()));
        let tenant = TenantId::parse(tenant).unwrap();
        let principal = Principal::of(tenant.clone());
        let bytes = metadata(metrics).into();
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        let request = Encoded { principal, format: Version::V1, encoding: Encoding::Snappy, bytes, memory };
        let rules = self.node.writes().ingest.list_of(&tenant);
        let prepared = decoders.prepare(self.node.writes(), request, rules).unwrap();
        prepared.submissions.iter().map(|(_, submission, _)| submission.metadata.len()).sum()
    }

    async fn write_metadata(&self, tenant: &str, metrics: &[(&str, &str)]) {
        let memory = self.node.writes().inflight.reserve(10_000).unwrap();
        let tenant = TenantId::parse(tenant).unwrap();
        write(&self.node, tenant, Version::V1, metadata(metrics), memory).await.unwrap();
    }

    fn help(&self, tenant: &str, metric: &str) -> Option<String> {
        let tenant = TenantId::parse(tenant).unwrap();
        let partitions = self.node.reads().partitions.iter();
        let mut found = partitions.filter_map(|partition| {
            let head = partition.head.read();
            head.tenant(&tenant)?.metadata_of(metric).map(|found| found.help.clone())
        });
        found.next()
    }
}

/// Metadata is stored under the names that rules give, however long the rules take.
#[tokio::test(flavor = "multi_thread")]
async fn rules_for_names_of_metadata_are_applied_in_turns() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    clock.step_ms.store(50, Ordering::Relaxed);
    let all = [("m1", "one"), ("gone", "two"), ("m3", "three"), ("same", "four"), ("m5", "five")];
    let mut permits = AllPermits::take(&ruled, "b").await;
    let writing = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.write_metadata("a", &all).await }
    });
    while !writing.is_finished() {
        permits.let_pass(&ruled).await;
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    for (metric, help) in [("new1", "one"), ("new3", "three"), ("same", "four"), ("new5", "five")] {
        assert_eq!(ruled.help("a", metric).as_deref(), Some(help));
    }
    assert_eq!([ruled.help("a", "gone"), ruled.help("a", "m1")], [None, None]);
    drop(permits);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// Otherwise, each request would write the metadata of all of them to the journal.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_metrics_that_become_one_is_written_once() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    let (a, b, own) = (("a_x", "from a"), ("b_x", "from b"), ("x", "own"));
    let all = [a, b, own];
    assert_eq!(ruled.new_metadata("a", &all), 3);
    assert_eq!(ruled.new_metadata("a", &all), 3, "what is not durable is written again");
    ruled.write_metadata("a", &all).await;
    assert_eq!(ruled.help("a", "x").as_deref(), Some("own"));
    for round in [&all[..], &[a], &[b], &[own], &[own, b, a]] {
        assert_eq!(ruled.new_metadata("a", round), 0, "{round:?}");
    }
    // a change is written, and so is the change back
    for help in ["changed", "from a"] {
        let changed = [("a_x", help)];
        assert_eq!(ruled.new_metadata("a", &changed), 1, "{help}");
        ruled.write_metadata("a", &changed).await;
        assert_eq!(ruled.help("a", "x").as_deref(), Some(help));
        assert_eq!(ruled.new_metadata("a", &[changed[0], b, own]), 0, "{help}");
    }
    stop(ruled.node).await;
}

/// Their verdicts have the same keys. If it were remembered for both what one of them has written, the change of the other
/// would be left out.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_tenants_with_the_same_rules_is_told_apart() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    ruled.write_metadata("b", &[("a_x", "old")]).await;
    ruled.write_metadata("a", &[("a_x", "new")]).await;
    assert_eq!(ruled.new_metadata("b", &[("a_x", "new")]), 1);
    ruled.write_metadata("b", &[("a_x", "new")]).await;
    assert_eq!(ruled.help("b", "x").as_deref(), Some("new"));
    assert_eq!(ruled.new_metadata("b", &[("a_x", "new")]), 0);
    stop(ruled.node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_for_which_there_was_no_room_is_not_remembered_as_written() {
    let rules = "- {source_labels: [__name__], regex: '(a|b)_x', target_label: __name__, replacement: x}\n";
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    ruled.write_metadata("a", &[("a_x", "old")]).await;
    let discarded = || {
        let text = ruled.node.registry().render();
        let lines = text.lines().filter(|line| line.starts_with("floodmark_write_refused_metadata_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let long = "y".repeat(50);
    for round in 0.. {
        assert!(round < 1000, "the memory for metadata never fills");
        let names: Vec<_> = (0..100).map(|i| format!("{round}_{i}_{long}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
        ruled.write_metadata("a", &all).await;
        if discarded() > 0.0 {
            break;
        }
    }
    let long = "z".repeat(1000);
    let changed = ("a_x", long.as_str());
    for _ in 0..2 {
        ruled.write_metadata("a", &[changed]).await;
        assert_eq!(ruled.help("a", "x").as_deref(), Some("old"), "there is room for it");
    }
    assert_eq!(ruled.new_metadata("a", &[changed]), 1);
    stop(ruled.node).await;
}
