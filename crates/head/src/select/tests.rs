use super::filter::FilterKind;
use super::search::TEST_STEPS;
use super::walk::{Among, SAMPLES_STEPS, Walk};
use super::*;
use model::{Labels, SeriesKey, SeriesRef, TimeRange};
use std::cell::Cell;
use std::collections::BTreeSet;

fn add(head: &mut TenantHead, pairs: &[(&str, &str)]) {
    let labels = Labels::from_pairs(pairs);
    head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
}

fn pattern(matches: &dyn Fn(&str) -> bool) -> FilterKind<'_> {
    FilterKind::Pattern { prefix: "", matches }
}

/// A head with more values than a turn visits.
fn many(count: usize) -> TenantHead {
    let mut head = TenantHead::new(1);
    for i in 0..count {
        let (number, parity) = (i.to_string(), if i % 2 == 0 { "even" } else { "odd" });
        add(
            &mut head,
            &[("__name__", "m"), ("i", &number), ("parity", parity), (&format!("l{}", i % 5000), "x")],
        );
    }
    head
}

#[test]
fn long_selections_take_turns_and_see_the_series_of_the_first_turn() {
    const COUNT: usize = 10_000;
    let mut head = many(COUNT);
    let (tested, locked) = (Cell::new(0), Cell::new(false));
    let ends_in_7 = |v: &str| {
        tested.set(tested.get() + 1);
        assert!(!locked.get(), "a pattern runs with the head locked");
        v.ends_with('7')
    };
    let not_77 = |v: &str| v != "77";
    let filters = [
        Filter { name: "i", kind: pattern(&ends_in_7) },
        Filter { name: "i", kind: FilterKind::Predicate(&not_77) },
        Filter { name: "parity", kind: FilterKind::Equal("odd") },
    ];
    let mut selection = Selection::new(&filters);
    let mut turns = 1;
    loop {
        locked.set(true);
        let last = selection.advance(&head);
        locked.set(false);
        if last {
            break;
        }
        selection.test(|| true);
        turns += 1;
        assert!(tested.replace(0) <= TURN_STEPS / TEST_STEPS + 1);
        // series created between turns are not seen
        let i = format!("late{turns}7");
        add(&mut head, &[("__name__", "m"), ("i", &i), ("parity", "odd")]);
    }
    assert!(turns > 5, "{turns} turns");
    let expected: Vec<_> = (0..COUNT as u32).filter(|i| i % 10 == 7 && *i != 77).collect();
    assert_eq!(selection.into_series().into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn filters_select_everything_or_nothing() {
    let head = many(100);
    let select = |filters: &[Filter<'_>]| head.select(filters).len();
    assert_eq!(select(&[]), 100);
    assert_eq!(select(&[Filter { name: "i", kind: FilterKind::Equal("") }]), 0);
    assert_eq!(select(&[Filter { name: "none", kind: FilterKind::Equal("") }]), 100);
    assert_eq!(select(&[Filter { name: "none", kind: FilterKind::Predicate(&|v| v == "x") }]), 0);
    assert_eq!(
        select(&[Filter { name: "i", kind: FilterKind::OneOf(&["1".into(), "7".into(), "x".into()]) }]),
        2
    );
}

#[test]
fn walks_take_turns() {
    let head = many(10_000);
    let among: RoaringBitmap = (5000..5100).collect();
    for among in [None, Some(&among)] {
        let counts = among.map_or(Among::All, Among::Series);
        let (mut walk, mut values, mut turns) = (Walk::new(), BTreeSet::new(), 1);
        while !walk.values(&head, "i", counts, |v| assert!(values.insert(v.to_string()))) {
            turns += 1;
        }
        let wanted = among.map_or(0..10_000, |_| 5000..5100).map(|i| i.to_string());
        assert_eq!(values, wanted.collect());
        assert!(turns > 4, "{turns} turns");

        let (mut walk, mut names, mut turns) = (Walk::new(), BTreeSet::new(), 1);
        while !walk.names(&head, counts, |n| assert!(names.insert(n.to_string()))) {
            turns += 1;
        }
        let wanted = among.map_or(0..5000, |_| 0..100).map(|i| format!("l{i}"));
        assert_eq!(names, wanted.chain(["__name__", "i", "parity"].map(String::from)).collect());
        assert!(among.is_none() || turns > 1, "{turns} turns");
    }
}

/// Texts are copied in a turn before anybody charges them.
#[test]
fn a_turn_takes_few_long_texts() {
    const BYTES: usize = 16_000;
    let mut head = TenantHead::new(1);
    for i in 0..100 {
        add(&mut head, &[("__name__", "m"), ("long", &format!("{i:0BYTES$}"))]);
    }
    let (mut walk, mut count, mut is_last) = (Walk::new(), 0, false);
    while !is_last {
        let before = count;
        is_last = walk.values(&head, "long", Among::All, |_| count += 1);
        assert!((count - before) * BYTES <= TURN_STEPS * 32 + BYTES, "{} texts in a turn", count - before);
    }
    assert_eq!(count, 100);
}

/// Only the last series of a value has a sample in the range, so the search takes many turns.
#[test]
fn walks_find_values_with_samples_in_a_range() {
    const SERIES: u32 = 3 * (TURN_STEPS / SAMPLES_STEPS) as u32;
    let mut head = TenantHead::new(1);
    for i in 0..2 * SERIES {
        let value = if i < SERIES { "long ago" } else { "lately" };
        add(&mut head, &[("__name__", "m"), ("i", &i.to_string()), ("when", value)]);
        let time_ms = if i + 1 == 2 * SERIES { 2_000 } else { 1_000 };
        head.append(&[SeriesRef(i)], &[time_ms], &[1.0], 2);
    }
    for (range, values, some_turns) in [
        (TimeRange::new(2_000, 3_000), vec!["lately"], 6),
        (TimeRange::new(0, 1_000), vec!["lately", "long ago"], 1),
        (TimeRange::new(3_000, 3_000), vec![], 6),
    ] {
        let (mut walk, mut found, mut turns) = (Walk::new(), BTreeSet::new(), 1);
        while !walk.values(&head, "when", Among::Range(range), |v| assert!(found.insert(v.to_string()))) {
            turns += 1;
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), values);
        assert_eq!(turns, some_turns, "{range:?}");
        let (mut walk, mut names) = (Walk::new(), Vec::new());
        while !walk.names(&head, Among::Range(range), |n| names.push(n.to_string())) {}
        assert_eq!(names.len(), if values.is_empty() { 0 } else { 3 });
    }
}

#[test]
fn filters_agree_with_a_scan_of_every_series() {
    let head = many(3_000);
    let ends_in_1 = |v: &str| v.ends_with('1');
    let empty_or_short = |v: &str| v.len() < 3;
    let from_2_to_1 = |v: &str| v.starts_with('2') && v.ends_with('1');
    let not_from_2_to_1 = |v: &str| !from_2_to_1(v);
    let values = ["", "10", "2999", "none"].map(String::from);
    let kinds = [
        FilterKind::Equal("101"),
        FilterKind::Equal(""),
        FilterKind::OneOf(&values[1..]),
        FilterKind::OneOf(&values),
        FilterKind::Predicate(&ends_in_1),
        FilterKind::Predicate(&empty_or_short),
        pattern(&ends_in_1),
        pattern(&empty_or_short),
        FilterKind::Pattern { prefix: "2", matches: &from_2_to_1 },
        FilterKind::Pattern { prefix: "2", matches: &not_from_2_to_1 },
    ];
    let passes = |filter: &Filter<'_>, i: u32| {
        let (number, label) = (i.to_string(), format!("l{}", i % 5000));
        let value = match filter.name {
            "i" => &number,
            name if name == label => "x",
            _ => "",
        };
        filter.kind.matches(value)
    };
    for first in kinds {
        for second in kinds {
            for name in ["i", "l10", "absent"] {
                let filters = [Filter { name: "i", kind: first }, Filter { name, kind: second }];
                let expected = (0..3_000).filter(|i| filters.iter().all(|filter| passes(filter, *i)));
                assert!(head.select(&filters).into_iter().eq(expected), "{filters:?}");
            }
        }
    }
}

#[test]
fn no_more_than_a_batch_of_values_is_copied() {
    let mut head = TenantHead::new(1);
    let long = "v".repeat(10_000);
    for i in 0..100 {
        add(&mut head, &[("__name__", "m"), ("long", &format!("{long}{i}")), ("short", &i.to_string())]);
    }
    for (name, at_once) in [("long", 2), ("short", 100)] {
        let tested = Cell::new(0);
        let count = |_: &str| {
            tested.set(tested.get() + 1);
            true
        };
        let matches = |v: &str| !v.is_empty() && count(v);
        let filters = [
            Filter { name, kind: pattern(&matches) },
            Filter { name: "__name__", kind: FilterKind::Equal("m") },
        ];
        let mut selection = Selection::new(&filters);
        while !selection.advance(&head) {
            selection.test(|| true);
            assert!(tested.replace(0) <= at_once, "{name}");
        }
        assert_eq!(selection.into_series().len(), 100);
    }
}

#[test]
fn a_pattern_runs_only_for_values_with_its_prefix() {
    let head = many(3_000);
    for accepts in [true, false] {
        let tested = Cell::new(0);
        let ends_in_7 = |v: &str| {
            tested.set(tested.get() + usize::from(!v.is_empty()));
            (v.starts_with("12") && v.ends_with('7')) == accepts
        };
        let filters = [Filter { name: "i", kind: FilterKind::Pattern { prefix: "12", matches: &ends_in_7 } }];
        let series = head.select(&filters).len();
        assert_eq!(
            (series, tested.get()),
            (if accepts { 11 } else { 2_989 }, 111),
            "12, 120 to 129, 1200 to 1299"
        );
    }
}

#[test]
fn matching_stops_when_interrupted() {
    let head = many(500);
    let tested = Cell::new(0);
    let count = |v: &str| {
        tested.set(tested.get() + 1);
        !v.is_empty()
    };
    let filters = [Filter { name: "i", kind: pattern(&count) }];
    let mut selection = Selection::new(&filters);
    assert!(!selection.advance(&head));
    tested.set(0);
    selection.test(|| tested.get() < 10);
    assert_eq!(tested.get(), 10);
}
