use super::test_store::{NONE, Store};
use crate::QueryError;
use std::sync::atomic::AtomicBool;

#[test]
fn series_flow_through_functions() {
    let store = Store::new().with("a.b", &[1.0, 2.0, NONE, 4.0]).with("a.c", &[10.0, NONE, NONE, 40.0]);
    store.check("a.b", &[("a.b", &[1.0, 2.0, NONE, 4.0])]);
    store.check("a.*", &[("a.b", &[1.0, 2.0, NONE, 4.0]), ("a.c", &[10.0, NONE, NONE, 40.0])]);
    store.check("scale(a.b, 2.5)", &[("scale(a.b,2.5)", &[2.5, 5.0, NONE, 10.0])]);
    store.check(
        "a.{c,b} | scale(0.1) | alias('x y')",
        &[("x y", &[0.1, 0.2, NONE, 0.4]), ("x y", &[1.0, NONE, NONE, 4.0])],
    );
    store.check("sumSeries(a.*)", &[("sumSeries(a.*)", &[11.0, 2.0, NONE, 44.0])]);
    store.check(
        "sum(scale(a.*,2),a.b)",
        &[("sumSeries(scale(a.b,2),scale(a.c,2),a.b)", &[23.0, 6.0, NONE, 92.0])],
    );
    store.check("missing.*", &[]);
    store.check("sumSeries(missing.*)", &[]);
}

#[test]
fn names_that_a_glob_lists_are_charged() {
    let mut store = Store::new().with("a.7", &[1.0]);
    let numbers: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    let glob = format!("a.{{{}}}", numbers.join(","));
    store.check(&glob, &[("a.7", &[1.0])]);
    store.samples_max = 1000;
    store.check_error(&glob, "too many samples");
    store.check("a.{7,8}", &[("a.7", &[1.0])]);
}

/// Nobody knows how many names a glob with wildcards matches before they are listed.
#[test]
fn names_that_match_wildcards_are_charged_as_far_as_they_are_listed() {
    let mut store = Store::new().with("a.7", &[1.0; 900]);
    // the series takes about 1,800 of these 2,000 values of 16 bytes
    (store.samples_max, store.listed_bytes) = (2_000, 1 << 20);
    let check = |store: &Store, target| assert_eq!(store.render(target).len(), 1, "{target}");
    check(&store, "a.?");
    store.list_bytes = 1_000;
    check(&store, "a.?");
    store.list_bytes = 8_000;
    store.check_error("a.?", "too many samples");
    check(&store, "a.7");
    // a list leaves half of the memory, and is not made if this is not enough for it
    store.list_bytes = 17_000;
    check(&store, "a.?");
    (store.listed_bytes, store.list_bytes) = (7_000, 8_000);
    check(&store, "a.?");
    // memory that names take later counts, too
    (store.listed_bytes, store.list_bytes, store.growth_bytes) = (7_000, 0, 1_000);
    check(&store, "a.?");
    store.growth_bytes = 8_000;
    store.check_error("a.?", "too many samples");
}

/// Whatever the order of the targets, paths without values leave half of the memory to others. If a function counts them, they are
/// series like all others.
#[test]
fn paths_without_values_leave_memory_to_others() {
    let mut store = Store::new();
    let mut live = vec![NONE; 10];
    live.resize(1_010, 1.0);
    for i in 0..8 {
        store = store.with(&format!("dead.{i}"), &[1.0]);
    }
    for i in 0..2 {
        store = store.with(&format!("live.{i}"), &live);
    }
    // 1,000 slots: a silent series takes about 520 values of 16 bytes, and another one 1,500 while it is read
    store = store.between(600, 60_600);
    (store.samples_max, store.kept_free) = (6_000, 3_000);
    let count = |store: &Store, targets: &[&str]| {
        let all = store.try_render_all(targets, &AtomicBool::new(false)).unwrap();
        let count = |kind: &str| all.iter().filter(|series| series.name.contains(kind)).count();
        (count("dead"), count("live"))
    };
    for targets in [["dead.*", "live.*"], ["live.*", "dead.*"], ["scale(dead.*,2)", "live.*"]] {
        let (dead, live) = count(&store, &targets);
        assert!((1..8).contains(&dead) && live == 2, "{targets:?}: {dead}, {live}");
    }
    for kept_free in [3_000, u64::MAX] {
        store.kept_free = kept_free;
        for target in [
            "countSeries(dead.*)",
            "countSeries(sortByName(dead.*))",
            "countSeries(limit(scale(dead.*,2),99))",
            "applyByNode(live.0,0,'countSeries(dead.*)')",
            "groupByNode(dead.*,0,'countSeries')",
            "groupByNodes(dead.*,'countSeries',0)",
            "template(groupByNode(dead.*,0,$how),how='countSeries')",
        ] {
            assert_eq!(store.render(target)[0].values[0], 8.0, "{target}");
        }
    }
    assert_eq!(count(&store, &["dead.*", "live.*"]), (0, 2));
    store.samples_max = 3_000;
    let refused = store.try_render("countSeries(sortByName(dead.*))");
    assert!(matches!(refused, Err(QueryError::TooLarge | QueryError::Source(_))), "{refused:?}");
}
