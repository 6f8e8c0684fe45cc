//! Memory limits and result limits of listings.

use super::*;
use crate::ingest::tests::write_series;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::tests::{node_with, write_days};
use model::ErrorKind;
use std::sync::atomic::AtomicBool;

/// Lists on a thread that may block, with a memory limit.
async fn listed<R: Send + 'static>(
    node: &Node,
    memory_bytes: u64,
    list: impl FnOnce(&LabelQueries<'_>) -> R + Send + 'static,
) -> R {
    let node = node.clone();
    let task = tokio::task::spawn_blocking(move || {
        let cancelled = Arc::new(AtomicBool::new(false));
        list(&LabelQueries { context: node.reads(), tenant: &TenantId::anonymous(), cancelled, memory_bytes })
    });
    task.await.unwrap()
}

async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

const fn all(limit: usize) -> Ask<'static> {
    Ask { selectors: &[], range: TimeRange::ALL, limit }
}

fn texts(found: &Limited) -> Vec<&str> {
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    found.all.iter().map(|text| std::str::from_utf8(text).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_more_files_than_a_query_may_open_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    write_days(&node, "scattered", 20_000..20_100, &mut BTreeMap::new()).await;
    flush(&node).await.unwrap();
    // a scan of samples would need 1 KiB per file
    listed(&node, 50 << 10, |label_queries| {
        assert_eq!(texts(&label_queries.label_names(&all(usize::MAX)).unwrap()), ["__name__"]);
        assert_eq!(texts(&label_queries.label_values("__name__", &all(usize::MAX)).unwrap()), ["scattered"]);
        let selectors = [query::parse_selector("scattered").unwrap()];
        let series = label_queries.series(&Ask { selectors: &selectors, ..all(usize::MAX) }).unwrap();
        assert_eq!((series.all.iter().count(), series.cut, series.left_out.len()), (1, false, 0));
    })
    .await;
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_bounds_what_a_listing_holds() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    write_series(&node, (0..5000).map(|n| format!("m_{n:04}"))).await;
    let memory_bytes = 60_000; // for fewer than 2,000 texts
    listed(&node, memory_bytes, |label_queries| {
        let refused = label_queries.label_values("__name__", &all(usize::MAX)).unwrap_err();
        assert_eq!((refused.kind, refused.reason), (ErrorKind::TooLarge, "answer_size"));
        let few = label_queries.label_values("__name__", &all(3)).unwrap();
        assert_eq!(texts(&few), ["m_0000", "m_0001", "m_0002"], "the first in order");
        assert!(few.cut);
        let selectors = [query::parse_selector("{__name__=~\"m_.*\"}").unwrap()];
        let refused = label_queries.series(&Ask { selectors: &selectors, ..all(usize::MAX) }).unwrap_err();
        assert_eq!(refused.reason, "answer_size");
        let few = label_queries.series(&Ask { selectors: &selectors, ..all(3) }).unwrap();
        assert_eq!((few.all.iter().count(), few.cut), (3, true));
    })
    .await;
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_not_read_where_memory_has_as_many_as_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    write_series(&node, ["sealed".into()].into_iter()).await;
    flush(&node).await.unwrap();
    write_series(&node, ["fresh".into(), "new".into()].into_iter()).await;
    let read = |node: &Node| node.reads().lake.cache.stats().fetched_bytes;
    let before = read(&node);
    listed(&node, 1 << 20, |label_queries| {
        let few = label_queries.label_values("__name__", &all(1)).unwrap();
        assert_eq!((texts(&few).len(), few.cut), (1, true));
    })
    .await;
    assert_eq!(read(&node), before);
    listed(&node, 1 << 20, |label_queries| {
        let whole = label_queries.label_values("__name__", &all(3)).unwrap();
        assert_eq!((texts(&whole), whole.cut), (vec!["fresh", "new", "sealed"], false));
    })
    .await;
    assert!(read(&node) > before);
    stop(node).await;
}
