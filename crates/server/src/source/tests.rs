use super::*;
use crate::node::Node;
use crate::pipeline::tests::small_node;
use model::{Labels, SeriesKey};
use query::{Select, SeriesSource};

/// A node that knows one series with `count` samples, put into the head directly.
fn node_with_samples(dir: &std::path::Path, count: i64) -> Node {
    let node = small_node(dir);
    let labels = Labels::from_pairs(&[("__name__", "dense")]);
    let key = SeriesKey::of(labels.as_bytes(), node.shared().seed);
    let mut partition = node.partitions()[0].head.write();
    let head = partition.tenant_mut(&TenantId::anonymous());
    let series = head.create(key, labels.as_ref());
    (0..count).for_each(|t| _ = head.append(&[series], &[t], &[1.0], 0));
    drop(partition);
    node
}

fn all_of(source: &Source<'_>) -> Result<usize, SourceError> {
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL })?;
    let (mut samples, mut count) = (Samples::default(), 0);
    while set.next(&mut samples)? {
        count += samples.len();
    }
    Ok(count)
}

#[test]
fn a_series_with_too_many_samples_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 10_000);
    let cancelled = AtomicBool::new(false);
    let source = |samples_max| Source::new(&node, TenantId::anonymous(), samples_max, &cancelled);
    assert_eq!(all_of(&source(10_000)), Ok(10_000));
    let refused = all_of(&source(9_999)).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooLarge);
    assert!(refused.message.contains("too many samples"), "{}", refused.message);
    node.stop();
}

#[test]
fn a_cancelled_selection_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with_samples(dir.path(), 1);
    let cancelled = AtomicBool::new(true);
    let source = Source::new(&node, TenantId::anonymous(), 100, &cancelled);
    assert_eq!(all_of(&source).unwrap_err().kind, ErrorKind::Unavailable);
    node.stop();
}
