//! Text whose labels are not encoded: Influx' lines.

use super::*;
use crate::seal::tests::stop;
use model::{SeriesKey, TenantId};
use protocol::influx::{self, Format, NameRule, Names, Precision};

struct Sender {
    node: Node,
    decoders: Arc<Decoders<influx::Decoder>>,
}

impl Sender {
    fn new(node: &Node) -> Self {
        let decoders = Decoders::new(node.reads().seed, node.writes().decoders.clone());
        Self { node: node.clone(), decoders: Arc::new(decoders) }
    }

    async fn send_as(&self, tenant: &str, names: Names, text: &str) -> Result<Outcome, Unwritten> {
        let principal = Principal::of(TenantId::parse(tenant).unwrap());
        let names = Arc::new(names);
        let format = Format { precision: Precision::Milliseconds, arrival_ms: SystemClock.now_ms(), names };
        let memory = self.node.writes().inflight.reserve(text.len() as u64).unwrap();
        let bytes = text.as_bytes().to_vec().into();
        let request = Encoded { principal, format, encoding: Encoding::Identity, bytes, memory };
        super::super::write(self.node.writes(), &self.decoders, request).await
    }

    async fn send(&self, text: &str) -> Outcome {
        self.send_as("a", Names::default(), text).await.unwrap()
    }

    /// Returns whether a tenant has a series in memory.
    fn has(&self, tenant: &str, labels: &[(&str, &str)]) -> bool {
        let tenant = TenantId::parse(tenant).unwrap();
        let reads = self.node.reads();
        let key = SeriesKey::of(Labels::from_pairs(labels).as_bytes(), reads.seed);
        reads
            .partitions
            .iter()
            .any(|p| p.head.read().tenant(&tenant).is_some_and(|h| h.resolve(key).is_some()))
    }

    fn parsed(&self) -> f64 {
        let text = self.node.registry().render();
        let line = text.lines().find_map(|line| line.strip_prefix("floodmark_write_parsed_lines_total "));
        line.unwrap().parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_parsed_once_whatever_the_order_of_the_tags() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let sender = Sender::new(&node);
    let now_ms = SystemClock.now_ms();
    let one = |i: i64| format!("cpu,a=1,b=2 x={i},y=2 {}\nmem z={i} {}", now_ms + i, now_ms + i);
    assert_eq!(sender.send(&one(0)).await.samples, 3);
    assert_eq!(sender.parsed(), 3.0);
    for i in 1..5 {
        let outcome = sender.send(&one(i)).await;
        assert_eq!((outcome.samples, outcome.refused_series), (3, 0));
    }
    assert_eq!(sender.parsed(), 3.0);
    // in another order, with other escapes, and a new field
    sender.send(&format!("cpu,b=2,a=1 x=9 {}\ncp\\u,a=1 x=9\ncpu,a=1,b=2 y=1,new=1,x=7", now_ms + 9)).await;
    assert_eq!(sender.parsed(), 6.0);
    assert!(sender.has("a", &[("__name__", "cpu_x"), ("a", "1"), ("b", "2")]));
    assert!(sender.has("a", &[("__name__", "cp\\u_x"), ("a", "1")]));
    let series: usize = node
        .reads()
        .partitions
        .iter()
        .map(|p| {
            p.head.read().tenant(&TenantId::parse("a").unwrap()).map_or(0, head::TenantHead::series_count)
        })
        .sum();
    assert_eq!(series, 5);
    // the same lines of another tenant, and with another rule, are other series
    sender.send_as("b", Names::default(), &one(0)).await.unwrap();
    assert_eq!(sender.parsed(), 6.0);
    assert!(sender.has("b", &[("__name__", "mem_z")]));
    sender.send_as("b", Names::new(NameRule::FieldAsLabel, Some(("db", "d"))), &one(0)).await.unwrap();
    assert_eq!(sender.parsed(), 9.0);
    assert!(sender.has("b", &[("__name__", "mem"), ("db", "d"), ("field", "z")]));
    assert_eq!(node.writes().inflight.used_bytes(), 0);
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_labels_are_refused_each_time_and_the_others_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let sender = Sender::new(&node);
    for _ in 0..3 {
        let outcome = sender.send("cpu,a=1,a=2 x=1\ncpu,a x=1\ngood x=1\nold x=1 -7\n").await;
        assert_eq!((outcome.samples, outcome.refused_series, outcome.refused_samples), (1, 3, 3));
        let report = outcome.report();
        for mention in ["\"a\" is not unique", "cpu,a=1,a=2 x", "tag \"a\"", "before 1970: old_x{}"] {
            assert!(report.contains(mention), "{report}");
        }
    }
    stop(node).await;
}

/// Replicas are told apart by labels, so these are needed before the series are looked up.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_send_text_are_deduplicated() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = small_settings(dir.path());
    settings.tenants.general.ha_dedup = true;
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    let sender = Sender::new(&node);
    let line = |replica: &str| format!("cpu,cluster=c,__replica__={replica},a=1 x=1\nbad,a=1,a=2 x=1\n");
    for _ in 0..2 {
        let first = sender.send(&line("r1")).await;
        assert_eq!((first.samples, first.deduplicated_samples, first.refused_series), (1, 0, 1));
        let second = sender.send(&line("r2")).await;
        assert_eq!((second.samples, second.deduplicated_samples, second.refused_series), (0, 1, 1));
        assert!(second.report().contains("\"a\" is not unique"), "{}", second.report());
    }
    assert!(sender.has("a", &[("__name__", "cpu_x"), ("a", "1"), ("cluster", "c")]));
    stop(node).await;
}
