use crate::Node;
use crate::query_source::Source;
use crate::query_source::paths::{BuildWait, GlobSource};
use crate::seal::flush::flush;
use crate::seal::tests::{node_with, stop, write_days, write_of};
use model::{ErrorKind, SeriesSamples, TenantId, TimeRange};
use query::graphite::Glob;
use query::{Interrupt, SelectGlob, SeriesSource, Silent, SourceError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stdx::rng::Rng;

const DAY_MS: i64 = 86_400_000;

/// For each name, the times of its samples in the range.
type Selected = BTreeMap<String, Vec<i64>>;

/// Reads what a glob selects of the untagged metrics, with at most `samples_max` samples left before each series, and whether metrics
/// may be missing.
fn select(
    node: &Node,
    glob: &str,
    range: TimeRange,
    list_bytes_max: u64,
    samples_max: u64,
    silent: Silent,
) -> Result<(Selected, bool), SourceError> {
    let (canceled, tenant): (Arc<dyn Interrupt>, _) =
        (Arc::new(AtomicBool::new(false)), TenantId::anonymous());
    let source = Source::new(node.reads(), tenant.clone(), 1_000_000, Arc::clone(&canceled));
    let wait = BuildWait::default();
    let globs = GlobSource::new(&source, node.reads(), &tenant, canceled, &wait);
    let glob = Glob::parse(glob, &mut query::Allowance::new(1 << 20)).unwrap();
    let mut set = globs.select_glob(&SelectGlob { glob: &glob, range, list_bytes_max, silent })?;
    let (mut samples, mut selected, mut held_bytes) = (SeriesSamples::default(), Selected::new(), 0);
    loop {
        set.limit(samples_max);
        if !set.next(&mut samples)? {
            return Ok((selected, globs.left_out().is_some()));
        }
        assert!(set.names_bytes() <= u64::max(held_bytes, list_bytes_max) + 8 * samples_max);
        held_bytes = set.names_bytes();
        let labels = set.labels();
        if labels.iter().count() == 1 {
            let name = labels.get("__name__").unwrap().to_owned();
            assert!(selected.insert(name, samples.timestamps().to_vec()).is_none(), "a name came twice");
        }
    }
}

/// Metrics are written, sealed, and forgotten by the head at a restart. With the index, a glob selects all of them in any range,
/// and without it at least those with samples in the range.
#[tokio::test(flavor = "multi_thread")]
async fn globs_select_metrics_without_samples_in_the_range() {
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let mut node = node_with(dir.path(), |_| ()).await;
    let (mut written, mut silent, mut missing) = (BTreeMap::new(), 0, 0);
    for round in 0..32 {
        for _ in 0..4 {
            let name = format!("a.n{}{}", if rng.chance(0.2) { "\\" } else { "" }, rng.below(40));
            let days: BTreeSet<_> = (0..1 + rng.below(3)).map(|_| 20_000 + rng.below(40) as i64).collect();
            write_days(&node, &name, days.into_iter(), &mut written).await;
        }
        if round % 6 == 1 {
            write_of(&node, &TenantId::anonymous(), 20_000 * DAY_MS + round).await; // tagged
        }
        if rng.chance(0.5) {
            flush(&node).await.unwrap();
        }
        if round % 8 == 5 {
            stop(node).await;
            node = node_with(dir.path(), |_| ()).await;
        }
        let first = 19_995 + rng.below(45) as i64;
        let range = TimeRange::new(first * DAY_MS, (first + rng.below(10) as i64) * DAY_MS);
        let globs = ["a.*", "a.n1?", "a.{n1,n2,n1,none}", "a.n7", "a.n\\[3-5]*", "a.n[.3-5]*", "m*"];
        let glob = globs[rng.below(globs.len() as u64) as usize];
        let pattern = Glob::parse(glob, &mut query::Allowance::new(1 << 20)).unwrap();
        let mut expected = Selected::new();
        for (series, at_ms) in written.keys() {
            let name = series.split('{').next().unwrap_or_default();
            if pattern.matches(name) {
                let times = expected.entry(name.to_owned()).or_default();
                times.extend(range.contains(*at_ms).then_some(*at_ms));
            }
        }
        silent += expected.values().filter(|times| times.is_empty()).count();
        let list_bytes_max = if rng.chance(0.5) { 1 << 20 } else { 100 };
        let has_index = rng.chance(0.7);
        let forgets = !has_index || rng.chance(0.3);
        let there = node.clone();
        let check = move || {
            let paths = &there.reads().paths;
            if forgets {
                paths.remove(&TenantId::anonymous()); // as after a start
            }
            // without memory, there is no index
            let free_bytes = paths.account.limit_bytes() - paths.account.used_bytes();
            let _taken = (!has_index).then(|| paths.account.reserve(free_bytes).unwrap());
            let ask = || select(&there, glob, range, list_bytes_max, 100_000, Silent::Needed).unwrap();
            let (mut selected, mut may_miss) = ask();
            // on a busy machine, building the index may take longer than a query waits for it
            let mut attempts = 1;
            while may_miss && has_index && attempts < 20 {
                (selected, may_miss) = ask();
                attempts += 1;
            }
            if !may_miss {
                assert_eq!(selected, expected, "{glob} {range:?}");
                return 0;
            }
            assert!(!has_index, "there is an index");
            let with_samples = expected.iter().filter(|(_, times)| !times.is_empty());
            assert!(
                with_samples.eq(selected.iter().filter(|(_, times)| !times.is_empty())),
                "{glob} {range:?}"
            );
            assert!(selected.keys().all(|name| expected.contains_key(name)));
            1
        };
        missing += tokio::task::spawn_blocking(check).await.unwrap();
    }
    assert!(silent > 20 && missing > 0, "{silent} silent, {missing} without an index");
    stop(node).await;
}

/// The names are charged to the query that asks for them, which fails before they take more than is left.
#[tokio::test(flavor = "multi_thread")]
async fn names_without_samples_take_memory_of_the_query() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = node_with(dir.path(), |_| ()).await;
    for i in 0..200 {
        write_days(&node, &format!("a.n{i:03}"), 20_000..20_001, &mut BTreeMap::new()).await;
        write_days(&node, &format!("b.n{i:03}"), 20_001..20_002, &mut BTreeMap::new()).await;
    }
    flush(&node).await.unwrap();
    stop(node).await;
    node = node_with(dir.path(), |_| ()).await;
    let there = node.clone();
    let check = move || {
        let later = TimeRange::new(20_001 * DAY_MS, 20_002 * DAY_MS);
        let select = |glob, list_bytes_max, samples_max, silent| {
            let selected = select(&there, glob, later, list_bytes_max, samples_max, silent)?;
            Ok::<_, SourceError>((selected.0.len(), selected.1))
        };
        // the names of those with samples have to be remembered, and some of the others are held at a time
        let little = Silent::KeepFree(0);
        for silent in [Silent::Needed, little, Silent::KeepFree(5_000)] {
            assert_eq!(select("*.*", 100, 6_000, silent), Ok((400, false)), "{silent:?}");
            assert_eq!(select("a.*", 100, 5_050, silent), Ok((200, false)), "{silent:?}");
            assert_eq!(select("a.*", 1 << 20, 1, silent), Ok((200, false)), "{silent:?}");
            assert_eq!(select("a.n007", 0, 1, silent), Ok((1, false)), "{silent:?}");
        }
        assert_eq!(select("*.*", 100, 100, little), Ok((200, true)), "no memory for the names");
        assert_eq!(select("a.*", 100, 1, little), Ok((0, true)), "no memory for one of them");
        assert_eq!(select("*.*", 100, 6_000, Silent::KeepFree(6_000)), Ok((200, true)), "nothing is free");
        for (glob, samples_max) in [("*.*", 100), ("a.*", 1)] {
            let error = select(glob, 100, samples_max, Silent::Needed).unwrap_err();
            assert_eq!(error.kind, ErrorKind::TooLarge);
            assert!(error.message.contains("raise the setting query_memory"), "{error}");
        }
        assert!(there.reads().paths.builds.get() > 0);
    };
    tokio::task::spawn_blocking(check).await.unwrap();
    stop(node).await;
}
