//! Limits on the memory and the number of results of listings.

use super::*;
use crate::node::Node;
use crate::query_source::Source;
use crate::seal::flush::flush;
use crate::seal::tests::{node_with, write_days};
use crate::write_path::tests::{write, write_series};
use model::{ErrorKind, SeriesKey};
use protocol::encode::V1Encoder;
use protocol::remote_write::Version;
use query::MatchOp;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use stdx::clock::{Clock, SystemClock};

/// Runs `list` on a blocking thread. It may use `memory_bytes`, which is checked.
async fn listed<R: Send + 'static>(
    node: &Node,
    memory_bytes: u64,
    list: impl FnOnce(&LabelQueries<'_>) -> R + Send + 'static,
) -> R {
    counted(node, memory_bytes, move |queries| list(&queries.0[0])).await
}

/// Like [`listed`], for what is counted across tenants.
async fn counted<R: Send + 'static>(
    node: &Node,
    memory_bytes: u64,
    count: impl FnOnce(&LabelsAcross<'_>) -> R + Send + 'static,
) -> R {
    across(node, &[TenantId::anonymous()], memory_bytes, count).await
}

async fn across<R: Send + 'static>(
    node: &Node,
    tenants: &[TenantId],
    memory_bytes: u64,
    count: impl FnOnce(&LabelsAcross<'_>) -> R + Send + 'static,
) -> R {
    let (node, tenants) = (node.clone(), tenants.to_vec());
    let task = tokio::task::spawn_blocking(move || {
        let (canceled, usage) = (Arc::new(AtomicBool::new(false)), Usage::default());
        let queries = |tenant| LabelQueries {
            context: node.reads(),
            tenant,
            canceled: Arc::clone(&canceled) as _,
            memory_bytes,
            usage: &usage,
        };
        let found = count(&LabelsAcross(tenants.iter().map(queries).collect()));
        assert!(usage.peak_memory_bytes() <= memory_bytes);
        found
    });
    task.await.unwrap()
}

async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

const fn all(limit: usize) -> LabelRequest<'static> {
    LabelRequest { selectors: &[], range: TimeRange::ALL, limit }
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
    // reading samples would take 1 KiB for each file
    listed(&node, 50 << 10, |label_queries| {
        assert_eq!(texts(&label_queries.label_names(&all(usize::MAX)).unwrap()), ["__name__"]);
        assert_eq!(texts(&label_queries.label_values("__name__", &all(usize::MAX)).unwrap()), ["scattered"]);
        let selectors = [query::parse_selector("scattered").unwrap()];
        let series =
            label_queries.series(&LabelRequest { selectors: &selectors, ..all(usize::MAX) }).unwrap();
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
    listed(&node, memory_bytes, move |label_queries| {
        let refused = label_queries.label_values("__name__", &all(usize::MAX)).unwrap_err();
        assert_eq!((refused.kind, refused.reason), (ErrorKind::TooLarge, "answer_size"));
        assert!(label_queries.usage.peak_memory_bytes() > memory_bytes / 2, "what was held is reported");
        let few = label_queries.label_values("__name__", &all(3)).unwrap();
        assert_eq!(texts(&few), ["m_0000", "m_0001", "m_0002"], "the first in order");
        assert!(few.cut);
        let selectors = [query::parse_selector("{__name__=~\"m_.*\"}").unwrap()];
        let refused =
            label_queries.series(&LabelRequest { selectors: &selectors, ..all(usize::MAX) }).unwrap_err();
        assert_eq!(refused.reason, "answer_size");
        let few = label_queries.series(&LabelRequest { selectors: &selectors, ..all(3) }).unwrap();
        assert_eq!((few.all.iter().count(), few.cut), (3, true));
        let pattern = paths::Pattern::parse("*").unwrap();
        let refused = label_queries.details(&pattern, "", usize::MAX).unwrap_err();
        assert_eq!(refused.reason, "answer_size");
        let few = label_queries.details(&pattern, "m_2000", 3).unwrap();
        assert!(few.iter().map(|detail| detail.path).eq(["m_2001", "m_2002", "m_2003"]));
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

/// Writes `count` series of a metric. Each has its own value of the label `own` and one of three zones.
async fn write_metric(node: &Node, metric: &str, own: &str, count: usize) {
    write_metric_of(node, &TenantId::anonymous(), metric, own, count).await;
}

async fn write_metric_of(node: &Node, tenant: &TenantId, metric: &str, own: &str, count: usize) {
    let mut encoder = V1Encoder::new();
    for i in 0..count {
        let (value, zone) = (format!("v{i}"), format!("z{}", i % 3));
        let labels = Labels::from_pairs(&[("__name__", metric), (own, &value), ("zone", &zone)]);
        encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    write(node, tenant.clone(), Version::V1, body, memory).await.unwrap();
}

fn counts(list: &[(String, u64)]) -> Vec<(&str, u64)> {
    list.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cardinality_is_that_of_all_partitions_together() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.partitions = 3).await;
    write_metric(&node, "large", "instance", 150).await;
    write_metric(&node, "middle", "instance", 60).await;
    write_metric(&node, "small", "job", 2).await;
    counted(&node, 1 << 20, |queries| {
        let found = queries.cardinality(3).unwrap();
        // the label pairs are 3 metrics, 150 instances, 2 jobs and 3 zones
        assert_eq!((found.series, found.label_pairs), (212, 158));
        let check = |list: &[(String, u64)], expected: [(&str, u64); 3]| assert_eq!(counts(list), expected);
        check(&found.series_by_metric, [("large", 150), ("middle", 60), ("small", 2)]);
        check(&found.series_by_pair, [("__name__=large", 150), ("zone=z0", 71), ("zone=z1", 71)]);
        check(&found.values_by_name, [("instance", 150), ("__name__", 3), ("zone", 3)]);
        assert_eq!(found.value_bytes_by_name[0].0, "instance");
        assert_eq!(counts(&queries.cardinality(1).unwrap().series_by_metric), [("large", 150)]);
        let names = queries.label_names_cardinality(2).unwrap();
        assert_eq!((names.names, names.values), (4, 158));
        assert_eq!(counts(&names.values_by_name), [("instance", 150), ("__name__", 3)]);
        let zones = queries.label_values_cardinality("zone", 2).unwrap();
        assert_eq!((zones.values, zones.series), (3, 212));
        assert_eq!(counts(&zones.series_by_value), [("z0", 71), ("z1", 71)]);
        let jobs = queries.label_values_cardinality("job", 5).unwrap();
        assert_eq!((jobs.series, counts(&jobs.series_by_value)), (2, vec![("v0", 1), ("v1", 1)]));
    })
    .await;
    let refused = counted(&node, 1_000, |queries| queries.cardinality(3).unwrap_err()).await;
    assert_eq!((refused.kind, refused.reason), (ErrorKind::TooLarge, "answer_size"));
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn growth_is_that_of_all_partitions_together_since_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.partitions = 3).await;
    write_metric(&node, "large", "instance", 150).await;
    for _ in 0..2 {
        write_metric(&node, "middle", "instance", 60).await;
    }
    let now_s = node.reads().steady_s();
    let names = |top: &Top| -> Vec<(String, u64, u64)> {
        let name = |grown: &Grown| format!("{}={}", grown.name, grown.value);
        assert!(top.top.iter().all(|grown| grown.least <= grown.most && grown.least <= grown.series));
        top.top.iter().map(|grown| (name(grown), grown.least, grown.most)).collect()
    };
    counted(&node, 1 << 20, move |queries| {
        let Growth { created, metrics, pairs } = queries.growth(3, now_s).unwrap();
        assert_eq!((created, metrics.others_max), (210, 0));
        let metric = |name: &str, count| (format!("__name__={name}"), count, count);
        assert_eq!(names(&metrics), [metric("large", 150), metric("middle", 60)]);
        // the 150 instances compete for 64 counters in each partition, but each zone has so many series that it keeps
        // its counter
        let zones = names(&pairs);
        for (zone, (name, least, most)) in ["z0", "z1", "z2"].iter().zip(&zones) {
            assert_eq!(name, &format!("zone={zone}"));
            assert!((70 - 20..=70).contains(least) && (70..=70 + 20).contains(most), "{zones:?}");
        }
        // an hour later, the series are no longer new
        assert_eq!(queries.growth(3, now_s + 4_200).unwrap(), Growth::default());
    })
    .await;
    let refused = counted(&node, 1_000, move |queries| queries.growth(3, now_s).unwrap_err()).await;
    assert_eq!((refused.kind, refused.reason), (ErrorKind::TooLarge, "answer_size"));
    stop(node).await;
    // series that were restored from the journal do not count as new
    let again = node_with(dir.path(), |settings| settings.partitions = 3).await;
    let now_s = again.reads().steady_s();
    counted(&again, 1 << 20, move |queries| {
        assert_eq!(queries.series_count().unwrap(), 210);
        assert_eq!(queries.growth(3, now_s).unwrap(), Growth::default());
    })
    .await;
    stop(again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_queries_select_are_queried_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.partitions = 3).await;
    for (metric, own, count) in [("a", "x", 30), ("b", "x", 20), ("c", "y", 10), ("d", "y", 5)] {
        write_metric(&node, metric, own, count).await;
    }
    let now_s = node.reads().steady_s();
    let select = |matchers: &[Matcher], is_noted: bool| {
        tokio::task::block_in_place(|| {
            let wanted = Arc::new(AtomicBool::new(false));
            let source = Source::new(node.reads(), TenantId::anonymous(), 1_000, wanted);
            let source = if is_noted { source.recording() } else { source };
            let select = query::Select { matchers, range: TimeRange::ALL };
            let mut set = query::SeriesSource::select(&source, &select).unwrap();
            while set.next(&mut model::SeriesSamples::default()).unwrap() {}
        });
    };
    let check = async |since_s: u32, expected: &'static [(&'static str, u64)]| {
        let series = expected.iter().map(|(_, series)| series).sum::<u64>();
        counted(&node, 1 << 20, move |queries| {
            let found = queries.unqueried(10, since_s).unwrap();
            assert_eq!((counts(&found.series_by_metric), found.series), (expected.to_vec(), series));
            assert!(found.is_complete);
        })
        .await;
    };
    let matcher = |name: &str, op, value: &str| Matcher::new(name, op, value).unwrap();
    check(now_s, &[("a", 30), ("b", 20), ("c", 10), ("d", 5)]).await;
    select(&[matcher("__name__", MatchOp::Equal, "a")], false);
    check(now_s, &[("a", 30), ("b", 20), ("c", 10), ("d", 5)]).await;
    select(&[matcher("__name__", MatchOp::Equal, "a")], true);
    check(now_s, &[("b", 20), ("c", 10), ("d", 5)]).await;
    select(&[matcher("__name__", MatchOp::Regex, "b|e")], true);
    check(now_s, &[("c", 10), ("d", 5)]).await;
    // now the series are in tables and in memory, and the selector has no metric name
    flush(&node).await.unwrap();
    select(&[matcher("y", MatchOp::Equal, "v7")], true);
    check(now_s, &[("d", 5)]).await;
    select(&[matcher("__name__", MatchOp::Regex, ".*")], true);
    check(now_s, &[]).await;
    check(node.reads().steady_s() + 10, &[("a", 30), ("b", 20), ("c", 10), ("d", 5)]).await;
    let limited = counted(&node, 1 << 20, move |queries| queries.unqueried(1, now_s + 100).unwrap());
    assert_eq!(limited.await.series_by_metric, [("a".into(), 30)]);
    stop(node).await;
}

/// 1,000 values are in both partitions and 4,000 in only one, so the estimate must weigh them. Its standard error is
/// at most 3 %.
#[tokio::test(flavor = "multi_thread")]
async fn distinct_values_are_estimated_where_there_are_many() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.partitions = 2).await;
    for metric in 0..12 {
        write_metric(&node, &format!("m{metric}"), "shared", 1_000).await;
    }
    write_metric(&node, "unique", "own", 4_000).await;
    counted(&node, 1 << 20, |queries| {
        let found = queries.cardinality(10).unwrap();
        let (shared, own) =
            (found.values_by_name.iter().find(|n| n.0 == "shared").unwrap().1, &found.values_by_name[0]);
        assert_eq!(own, &("own".into(), 4_000), "each value of one partition counts as one");
        assert!((900..=1_100).contains(&shared), "{shared} of 1,000");
        let pairs = found.label_pairs;
        assert!((4_500..=5_600).contains(&pairs), "{pairs} of 5,016");
        assert_eq!(found.series_by_metric[..2], [("unique".into(), 4_000), ("m0".into(), 1_000)]);
    })
    .await;
    stop(node).await;
}

/// Tenants `a` and `b` have the metric `m`, `b` also the metric `n`.
#[tokio::test(flavor = "multi_thread")]
async fn several_tenants_are_counted_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.partitions = 3).await;
    let tenants = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
    write_metric_of(&node, &tenants[0], "m", "instance", 6).await;
    write_metric_of(&node, &tenants[1], "m", "instance", 3).await;
    write_metric_of(&node, &tenants[1], "n", "job", 2).await;
    let now_s = node.reads().steady_s();
    across(&node, &tenants, 1 << 20, move |queries| {
        assert_eq!(queries.series_count().unwrap(), 11);
        // the label pairs are 2 metrics, 6 instances, 2 jobs, 3 zones and 2 tenants
        let found = queries.cardinality(3).unwrap();
        assert_eq!((found.series, found.label_pairs), (11, 15));
        assert_eq!(counts(&found.series_by_metric), [("m", 9), ("n", 2)]);
        let pairs = [("__name__=m", 9), ("__tenant_id__=a", 6), ("__tenant_id__=b", 5)];
        assert_eq!(counts(&found.series_by_pair), pairs);
        assert_eq!(counts(&found.values_by_name), [("instance", 6), ("zone", 3), ("__name__", 2)]);
        let names = queries.label_names_cardinality(9).unwrap();
        assert_eq!((names.names, names.values, names.values_by_name.len()), (5, 15, 5));
        let of_tenants = queries.label_values_cardinality("__tenant_id__", 1).unwrap();
        assert_eq!((of_tenants.values, of_tenants.series), (2, 11));
        assert_eq!(counts(&of_tenants.series_by_value), [("a", 6)]);
        let zones = queries.label_values_cardinality("zone", 2).unwrap();
        assert_eq!((zones.values, zones.series), (3, 11));
        assert_eq!(counts(&zones.series_by_value), [("z0", 4), ("z1", 4)]);
        let Growth { created, metrics, pairs } = queries.growth(2, now_s).unwrap();
        let names =
            |top: &Top| -> Vec<_> { top.top.iter().map(|g| (g.value.clone(), g.least, g.series)).collect() };
        assert_eq!((created, names(&metrics)), (11, vec![("m".into(), 9, 9), ("n".into(), 2, 2)]));
        assert_eq!(names(&pairs), [("a".into(), 6, 6), ("b".into(), 5, 5)]);
        assert_eq!(counts(&queries.unqueried(9, now_s).unwrap().series_by_metric), [("m", 9), ("n", 2)]);
    })
    .await;
    tokio::task::block_in_place(|| {
        let wanted = Arc::new(AtomicBool::new(false));
        let source = Source::new(node.reads(), tenants[0].clone(), 1_000, wanted).recording();
        let select = query::Select { matchers: &[Matcher::equal("__name__", "m")], range: TimeRange::ALL };
        let mut set = query::SeriesSource::select(&source, &select).unwrap();
        while set.next(&mut model::SeriesSamples::default()).unwrap() {}
    });
    across(&node, &tenants, 1 << 20, move |queries| {
        let found = queries.unqueried(9, now_s).unwrap();
        assert_eq!((counts(&found.series_by_metric), found.series), (vec![("m", 3), ("n", 2)], 5));
    })
    .await;
    let only_b = [TenantId::parse("c").unwrap(), tenants[1].clone()];
    across(&node, &only_b, 1 << 20, move |queries| {
        let found = queries.label_values_cardinality("__tenant_id__", 9).unwrap();
        assert_eq!(counts(&found.series_by_value), [("b", 5)], "a tenant without series has no label");
    })
    .await;
    stop(node).await;
}

/// Samples are written in any order of time, sealed in between, and lost by the head at a restart.
#[tokio::test(flavor = "multi_thread")]
async fn details_have_the_times_of_the_newest_samples_wherever_they_are() {
    let mut rng = stdx::rng::Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let mut node = node_with(dir.path(), |_| ()).await;
    let mut written = BTreeMap::new();
    for round in 0..12 {
        for _ in 0..8 {
            let name = format!("a.n{}", rng.below(40));
            let days: BTreeSet<i64> = (0..1 + rng.below(3)).map(|_| 20_000 + rng.below(40) as i64).collect();
            write_days(&node, &name, days.into_iter(), &mut written).await;
        }
        if rng.chance(0.4) {
            flush(&node).await.unwrap();
        }
        if round == 7 {
            stop(node).await;
            node = node_with(dir.path(), |_| ()).await;
        }
        let mut newest = BTreeMap::new();
        for (series, at_ms) in written.keys() {
            let name = series.split('{').next().unwrap_or_default();
            newest.insert(name.to_owned(), Some(*at_ms)); // in the order of times
        }
        let after = format!("a.n{}", rng.below(40));
        let count = 1 + rng.below(5) as usize;
        listed(&node, 1 << 20, move |label_queries| {
            let details = |after: &str, limit| -> Vec<(String, Option<i64>)> {
                let found =
                    label_queries.details(&paths::Pattern::parse("a.*").unwrap(), after, limit).unwrap();
                assert!(found.left_out.is_empty(), "{:?}", found.left_out);
                found.iter().map(|detail| (detail.path.to_owned(), detail.newest_ms)).collect()
            };
            assert!(newest.iter().map(|(name, at_ms)| (name.clone(), *at_ms)).eq(details("", usize::MAX)));
            let page = newest.into_iter().filter(|(name, _)| *name > after).take(count);
            assert_eq!(details(&after, count), page.collect::<Vec<_>>());
        })
        .await;
    }
    stop(node).await;
}

fn delete_exemplars(node: &Node, series: &[SeriesRef]) {
    let mut head = node.reads().partitions[0].head.write();
    let series = series.iter().map(|series| series.0).collect();
    head.delete_exemplars(&TenantId::anonymous(), &series, TimeRange::ALL);
    head.take_change(); // the test does not count memory
}

/// Deletes the exemplars of a series when it is asked for the given time, between the turns of a reader.
#[derive(Debug)]
struct Deletes {
    node: Node,
    series: SeriesRef,
    left: AtomicU64,
}

impl Interrupt for Deletes {
    fn is_set(&self) -> bool {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            delete_exemplars(&self.node, &[self.series]);
        }
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exemplars_are_listed_during_a_delete_of_others() {
    const COUNT: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let (tenant, usage) = (TenantId::anonymous(), Usage::default());
    let [gone, stays] = ["gone", "stays"].map(|name| {
        let labels = Labels::from_pairs(&[("__name__", name)]);
        let mut partition = node.reads().partitions[0].head.write();
        let key = SeriesKey::of(labels.as_bytes(), node.reads().seed);
        partition.tenant_mut(&tenant).create(key, labels.as_ref())
    });
    let put = |series: SeriesRef| {
        let exemplar = |at_ms| Exemplar { labels: Labels::empty(), timestamp_ms: at_ms, value: 1.0 };
        let all = (0..COUNT).map(|at_ms| (series, exemplar(at_ms)));
        node.reads().partitions[0].head.write().put_exemplars(&tenant, all, node.reads().steady_s());
    };
    for question in 1..12 {
        delete_exemplars(&node, &[gone, stays]);
        put(gone);
        put(stays);
        let canceled = Arc::new(Deletes { node: node.clone(), series: gone, left: AtomicU64::new(question) });
        let label_queries = LabelQueries {
            context: node.reads(),
            tenant: &tenant,
            canceled,
            memory_bytes: 1 << 20,
            usage: &usage,
        };
        let selectors = [query::parse_selector("{__name__=~\"gone|stays\"}").unwrap()];
        let request = LabelRequest { selectors: &selectors, ..all(usize::MAX) };
        let found = label_queries.exemplars(&request).unwrap();
        let of_stays = &found[&Labels::from_pairs(&[("__name__", "stays")])];
        assert!(of_stays.iter().map(|e| e.timestamp_ms).eq(0..COUNT), "question {question}");
    }
    stop(node).await;
}
