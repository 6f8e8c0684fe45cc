use super::*;
use crate::query_source::Source;
use crate::query_source::label_queries::{LabelQueries, NodeOrder};
use crate::refusal::Refusal;
use crate::seal::tests::node_with;
use ::paths::Pattern;
use model::{Labels, SeriesKey, SeriesSamples, TimeRange};
use query::{SelectGlob, SeriesSource, Silent, Usage};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use stdx::rng::Rng;

/// Creates series as a write does, each with a sample.
fn create(node: &crate::Node, tenant: &TenantId, names: impl Iterator<Item = String>) {
    let reads = node.reads();
    for name in names {
        let labels = Labels::from_pairs(&[("__name__", &*name)]);
        let key = SeriesKey::of(labels.as_bytes(), reads.seed);
        let partition = &reads.partitions[key.partition(reads.partitions.len())];
        let mut head = partition.head.write();
        let head = head.tenant_mut(tenant);
        let series = head.create(key, labels.as_ref());
        head.append(&[series], &[1_000], [1.0].as_slice(), reads.steady_s());
    }
}

fn found(node: &crate::Node, tenant: &TenantId, pattern: &str) -> BTreeSet<String> {
    let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
    let usage = Usage::default();
    let queries =
        LabelQueries { context: node.reads(), tenant, canceled, memory_bytes: 64 << 20, usage: &usage };
    let mut patterns = std::iter::once(Ok::<_, Refusal>(Pattern::parse(pattern).unwrap()));
    let nodes = queries.nodes(&mut patterns, NodeOrder::ByPath).unwrap();
    nodes.iter().map(|node| format!("{}{}", node.path, if node.is_leaf { "" } else { "." })).collect()
}

/// The paths that a target's glob selects, by way of the index and without it.
fn selected(node: &crate::Node, tenant: &TenantId, list_bytes_max: u64, glob: &str) -> [BTreeSet<String>; 2] {
    let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
    let source = Source::new(node.reads(), tenant.clone(), 1_000_000, Arc::clone(&canceled));
    let wait = BuildWait::default();
    let globs = GlobSource::new(&source, node.reads(), tenant, canceled, &wait);
    let glob = query::graphite::Glob::parse(glob, &mut query::Allowance::new(1 << 20)).unwrap();
    [&globs as &dyn SeriesSource, &source].map(|source| {
        let select =
            SelectGlob { glob: &glob, range: TimeRange::ALL, list_bytes_max, silent: Silent::Needed };
        let mut set = source.select_glob(&select).unwrap();
        assert!(set.names_bytes() <= list_bytes_max);
        let (mut samples, mut names) = (SeriesSamples::default(), BTreeSet::new());
        while set.next(&mut samples).unwrap() {
            names.extend(set.labels().get("__name__").map(str::to_owned));
        }
        names
    })
}

#[test]
fn targets_select_the_same_series_with_and_without_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let keeper = Keeper::new(Arc::clone(node.reads()), Arc::new(AtomicBool::new(false)));
    let tenant = TenantId::anonymous();
    create(&node, &tenant, (0..12_000).map(|i| format!("servers.web-{}.metric-{i}", i % 50)));
    for has_index in [false, true] {
        for (glob, count) in [
            ("servers.*.metric-7", 1),
            ("servers.{web-1,web-2,none}.*", 480),
            ("servers.web-?.metric-*[05]", 480),
            ("servers.web-7", 0),
            ("servers.none.*", 0),
            ("**.metric-11", 1),
            ("servers.*.*", 12_000),
            ("servers.we\\b-*.metric-7", 0),
        ] {
            // a list that does not fit into the memory is not made
            for list_bytes_max in [4 << 20, 4_000] {
                let [listed, tested] = selected(&node, &tenant, list_bytes_max, glob);
                assert_eq!(listed, tested, "{glob}");
                assert!(listed.len() == count || glob.contains('\\'), "{glob}: {}", listed.len());
            }
        }
        if !has_index {
            keeper.visit_all();
        }
    }
    assert!(node.reads().paths.builds.get() > 0);
    node.stop();
}

#[test]
fn lists_of_names_take_a_part_of_the_memory_of_a_query() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let keeper = Keeper::new(Arc::clone(node.reads()), Arc::new(AtomicBool::new(false)));
    let tenant = TenantId::anonymous();
    create(&node, &tenant, (0..1_000).map(|i| format!("servers.web-{i:03}")));
    let canceled: Arc<dyn Interrupt> = Arc::new(AtomicBool::new(false));
    let source = Source::new(node.reads(), tenant.clone(), 1_000_000, Arc::clone(&canceled));
    let glob = query::graphite::Glob::parse("servers.*", &mut query::Allowance::new(1 << 20)).unwrap();
    let wait = BuildWait::default();
    let globs = GlobSource::new(&source, node.reads(), &tenant, Arc::clone(&canceled), &wait);
    let listed = |list_bytes_max: u64| {
        let select =
            SelectGlob { glob: &glob, range: TimeRange::ALL, list_bytes_max, silent: Silent::Needed };
        let mut set = globs.select_glob(&select).unwrap();
        let (bytes, mut samples) = (set.names_bytes(), SeriesSamples::default());
        assert_eq!(std::iter::from_fn(|| set.next(&mut samples).unwrap().then_some(())).count(), 1_000);
        bytes
    };
    let account = &node.reads().paths.account;
    let taken = account.reserve(account.limit_bytes() - account.used_bytes()).unwrap();
    assert_eq!(listed(1 << 20), 0, "there is no index");
    drop(taken);
    found(&node, &tenant, "none"); // the first search makes the tenant's entry
    keeper.visit_all();
    // 1,000 names of 24 + 16 bytes, in 4 copies
    assert_eq!(listed(1 << 20), 160_000);
    assert_eq!(listed(160_000), 160_000);
    assert_eq!(listed(159_999), 0);
    assert_eq!(GlobSource::listed_bytes(1 << 20), 64 << 10);
    assert_eq!(GlobSource::listed_bytes(1 << 30), 4 << 20);
    node.stop();
}

/// An index answers as a scan of all names does, while names come and go.
#[test]
fn indexes_find_what_scans_find() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let (stopping, mut rng) = (Arc::new(AtomicBool::new(false)), Rng::announced());
    // not on a thread, so that the test decides when it works
    let keeper = Keeper::new(Arc::clone(node.reads()), stopping);
    let (tenant, other) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
    let paths = &node.reads().paths;
    let mut all: BTreeSet<String> = BTreeSet::new();
    for round in 0..40 {
        let new: Vec<_> = (0..=rng.below(if round % 20 == 3 { 4_000 } else { 20 }))
            .map(|_| format!("x.{}.{}", rng.below(7), rng.below(100_000)))
            .collect();
        create(&node, &tenant, new.iter().cloned());
        all.extend(new);
        create(&node, &other, std::iter::once(format!("x.other-{round}")));
        let scans = paths.scans.get();
        assert_eq!(found(&node, &tenant, "x.*.*"), all);
        if round > 0 {
            assert_eq!(paths.scans.get(), scans, "the index is used");
        }
        let branch = format!("x.{}.*", rng.below(7));
        let below = |name: &&String| name.starts_with(branch.trim_end_matches('*'));
        assert_eq!(found(&node, &tenant, &branch), all.iter().filter(below).cloned().collect());
        assert!(found(&node, &tenant, "x.other*").is_empty());
        if round == 0 || rng.chance(0.2) {
            keeper.visit_all();
        }
        if round == 30 {
            paths.forget(&tenant);
            assert_eq!(found(&node, &tenant, "x.*.*"), all);
            keeper.visit_all();
        }
    }
    assert!(paths.builds.get() >= 2);
    assert!(paths.len() >= all.len());
    node.stop();
}

#[test]
fn without_memory_for_an_index_all_names_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let keeper = Keeper::new(Arc::clone(node.reads()), Arc::new(AtomicBool::new(false)));
    let (tenant, paths) = (TenantId::anonymous(), &node.reads().paths);
    let names: BTreeSet<String> = (0..1000).map(|i| format!("a.{i}")).collect();
    create(&node, &tenant, names.iter().cloned());
    let account = &paths.account;
    let taken = account.reserve(account.limit_bytes() - account.used_bytes()).unwrap();
    for _ in 0..3 {
        assert_eq!(found(&node, &tenant, "a.*"), names);
        keeper.visit_all();
    }
    drop(taken);
    paths.forget(&tenant); // otherwise it would be tried again after some minutes
    assert_eq!(found(&node, &tenant, "a.*"), names);
    keeper.visit_all();
    let scans = paths.scans.get();
    assert_eq!(
        (found(&node, &tenant, "a.*"), paths.scans.get()),
        (names.clone(), scans),
        "there is room now"
    );
    // no room for new names: the index is given up, and nothing is missed
    let taken = account.reserve(account.limit_bytes() - account.used_bytes()).unwrap();
    create(&node, &tenant, std::iter::once("a.new".to_owned()));
    let more: BTreeSet<String> = names.iter().cloned().chain(["a.new".to_owned()]).collect();
    assert_eq!(found(&node, &tenant, "a.*"), more);
    assert_eq!(paths.scans.get(), scans + 1);
    drop(taken);
    node.stop();
}

/// Both kinds of patterns select the same names, or the glob has no pattern of the index.
#[test]
fn globs_mean_the_same_in_the_index() {
    let mut rng = Rng::announced();
    let names = |rng: &mut Rng| {
        let node = |rng: &mut Rng| -> String {
            (0..rng.below(3)).map(|_| ["a", "b", "*", "-"][rng.below(4) as usize]).collect()
        };
        (0..=rng.below(4)).map(|_| node(rng)).collect::<Vec<_>>().join(".")
    };
    let parts = [
        "a", "b", "*", "**", "?", "[ab]", "[!a]", "[a-b]", "{a,b}", "{a*,b}", "{**}", "{*}", "{**,a}", "{",
        "]",
    ];
    let fixed =
        ["a.{**}", "a.*{*}", "{**,**}.a", "**.{**}", "a.{**,b}", "a.**", "a.**b", "**", "a.[.b]", "a\\b"];
    let mut same = 0;
    for round in 0..4_000 {
        let text = match fixed.get(round) {
            Some(fixed) => (*fixed).to_owned(),
            None => {
                let node = |rng: &mut Rng| -> String {
                    (0..=rng.below(2)).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect()
                };
                (0..=rng.below(3)).map(|_| node(&mut rng)).collect::<Vec<_>>().join(".")
            }
        };
        let Ok(glob) = query::graphite::Glob::parse(&text, &mut query::Allowance::new(1 << 20)) else {
            continue;
        };
        let Some(pattern) = GlobSource::pattern_of(&glob) else { continue };
        same += 1;
        for _ in 0..20 {
            let name = names(&mut rng);
            let mut is_selected = false;
            let select = |_, is_leaf| is_selected |= is_leaf;
            pattern.nodes_of(&name, &mut ::paths::Steps::new(&mut || true), select).unwrap();
            assert_eq!(is_selected, glob.matches(&name), "{text:?} and {name:?}");
        }
    }
    assert!(same > 1_000, "{same} of the globs have patterns");
}

/// Anybody can invent the name of a tenant.
#[test]
fn tenants_without_data_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let paths = &node.reads().paths;
    let before = (paths.account.used_bytes(), paths.scans.get());
    for i in 0..100 {
        let tenant = TenantId::parse(&format!("invented-{i}")).unwrap();
        assert!(found(&node, &tenant, "**").is_empty());
        assert_eq!(selected(&node, &tenant, 1 << 20, "a.*"), [BTreeSet::new(), BTreeSet::new()]);
        assert_eq!(selected(&node, &tenant, 1 << 20, "a.b"), [BTreeSet::new(), BTreeSet::new()]);
    }
    assert_eq!((paths.account.used_bytes(), paths.scans.get()), before);
    assert!(paths.all().is_empty());
    node.stop();
}

/// An index that is only old is not given up for a new one that cannot be built.
#[test]
fn old_indexes_are_used_until_there_are_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(node_with(dir.path(), |_| ()));
    let (keeper, tenant) =
        (Keeper::new(Arc::clone(node.reads()), Arc::new(AtomicBool::new(false))), TenantId::anonymous());
    create(&node, &tenant, (0..1_000).map(|i| format!("a.{i}")));
    let paths = &node.reads().paths;
    let age = || {
        let entry = Arc::clone(&paths.tenants.lock()[&tenant]);
        let mut state = entry.state.lock();
        let State::Ready(ready) = &mut *state else { panic!("there is no index") };
        ready.postpone(0);
    };
    found(&node, &tenant, "none");
    keeper.visit_all();
    let scans = paths.scans.get();
    let account = &paths.account;
    let taken = account.reserve(account.limit_bytes() - account.used_bytes()).unwrap();
    age();
    keeper.visit_all();
    assert_eq!(found(&node, &tenant, "a.*").len(), 1_000);
    assert_eq!(paths.scans.get(), scans, "the old one");
    let builds = paths.builds.get();
    drop(taken);
    age();
    keeper.visit_all();
    assert_eq!(found(&node, &tenant, "a.*").len(), 1_000);
    assert_eq!(paths.scans.get(), scans);
    assert!(paths.builds.get() > builds, "a new one");
    node.stop();
}

/// The first index after a delete is built at once, and others after a pause, if building takes long.
#[test]
fn rebuilds_after_deletes_have_pauses() {
    let account = Account::new("test", 1 << 20);
    let first = TenantPaths::new(account.reserve(1024).unwrap());
    let hour = Duration::from_secs(3600);
    assert!(!first.is_due(10), "nobody has searched");
    first.note_search(10);
    assert!(first.is_due(10));
    first.note_build(10, hour);
    let second = first.emptied();
    second.note_search(11);
    assert!(second.is_due(11), "at once");
    second.note_build(11 + 3600, hour);
    let third = second.emptied();
    third.note_search(4_000);
    assert!(!third.is_due(4_000) && !third.is_due(3_610 + 36_000));
    assert!(third.is_due(3_611 + 36_000));
    third.note_build(50_000, Duration::from_millis(99));
    let fourth = third.emptied();
    fourth.note_search(50_000);
    assert!(fourth.is_due(50_000), "the pause is a part of the time");
    drop((first, second, third));
    assert_eq!(account.used_bytes(), 1024);
    assert!(!fourth.has_searches());
    *fourth.stale.lock() = Some(Runs::default());
    let snapshot = fourth.stale().unwrap();
    assert!(fourth.has_searches());
    drop(snapshot);
    assert!(!fourth.has_searches());
}
