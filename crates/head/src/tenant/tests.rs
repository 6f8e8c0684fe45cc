use super::*;
use crate::select::filter::{Filter, FilterKind};
use model::Labels;
use std::collections::BTreeMap;
use stdx::rng::Rng;

fn add(head: &mut TenantHead, pairs: &[(&str, &str)]) -> SeriesRef {
    let labels = Labels::from_pairs(pairs);
    head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref())
}

fn labels(head: &TenantHead, series: SeriesRef) -> String {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    format!("{:?}", LabelsRef::from_canonical(&bytes))
}

fn three() -> TenantHead {
    let mut head = TenantHead::new(1);
    add(&mut head, &[("__name__", "up"), ("job", "a"), ("zone", "x")]);
    add(&mut head, &[("__name__", "up"), ("job", "b")]);
    add(&mut head, &[("__name__", "down"), ("job", "b"), ("zone", "y")]);
    head
}

#[test]
fn labels_round_trip() {
    let mut head = three();
    assert_eq!(labels(&head, SeriesRef(0)), r#"up{job="a", zone="x"}"#);
    assert_eq!(labels(&head, SeriesRef(2)), r#"down{job="b", zone="y"}"#);
    let again = add(&mut head, &[("__name__", "up"), ("job", "b")]);
    assert_eq!((again, head.series_count()), (SeriesRef(1), 3));
}

#[test]
fn filters_select() {
    let head = three();
    let check = |filters: &[(&'static str, FilterKind<'_>)], expected: &[u32]| {
        let filters: Vec<_> = filters.iter().map(|(name, kind)| Filter { name, kind: *kind }).collect();
        assert_eq!(head.select(&filters).iter().collect::<Vec<_>>(), expected, "{filters:?}");
    };
    use FilterKind::{Equal, OneOf, Predicate};
    check(&[], &[0, 1, 2]);
    check(&[("__name__", Equal("up"))], &[0, 1]);
    check(&[("__name__", Equal("up")), ("job", Equal("b"))], &[1]);
    check(&[("zone", Equal(""))], &[1]);
    check(&[("zone", Predicate(&|v| v != "x"))], &[1, 2]);
    check(&[("zone", Predicate(&|v| v.len() == 1))], &[0, 2]);
    check(&[("job", OneOf(&["a".into(), "b".into()])), ("zone", Equal(""))], &[1]);
    check(&[("job", OneOf(&["".into(), "b".into()]))], &[1, 2]);
    check(&[("nothing", Equal("x"))], &[]);
    check(&[("nothing", Equal(""))], &[0, 1, 2]);
    check(&[("job", Equal("nobody"))], &[]);
}

#[test]
fn names_and_values() {
    let head = three();
    let sorted = |it: &mut dyn Iterator<Item = &str>| {
        let mut v: Vec<_> = it.map(String::from).collect();
        v.sort();
        v.join(" ")
    };
    assert_eq!(sorted(&mut head.label_names(None)), "__name__ job zone");
    assert_eq!(sorted(&mut head.label_values("job", None)), "a b");
    assert_eq!(sorted(&mut head.label_values("none", None)), "");
    let second: RoaringBitmap = [1].into_iter().collect();
    assert_eq!(sorted(&mut head.label_names(Some(&second))), "__name__ job");
    assert_eq!(sorted(&mut head.label_values("__name__", Some(&second))), "up");
}

#[test]
fn many_series_of_one_pair_become_a_bitmap() {
    let mut head = TenantHead::new(1);
    for i in 0..1000 {
        add(&mut head, &[("__name__", "m"), ("i", &i.to_string())]);
    }
    let selected = head.select(&[Filter { name: "__name__", kind: FilterKind::Equal("m") }]);
    assert_eq!(selected.len(), 1000);
    let one = head.select(&[Filter { name: "i", kind: FilterKind::Equal("777") }]);
    assert_eq!(one.iter().collect::<Vec<_>>(), [777]);
}

#[test]
fn duplicates_are_silent_and_rewrites_win() {
    let mut head = three();
    let s = SeriesRef(0);
    let put = |head: &mut TenantHead, t, v| head.append(&[s], &[t], &[v], 1);
    assert_eq!(put(&mut head, 10, 1.0), AppendStats { in_order: 1, ..Default::default() });
    assert_eq!(put(&mut head, 10, 1.0), AppendStats { duplicates: 1, ..Default::default() });
    assert_eq!(put(&mut head, 10, 2.0), AppendStats { late: 1, ..Default::default() });
    assert_eq!(
        put(&mut head, 10, 1.0),
        AppendStats { late: 1, ..Default::default() },
        "the first value again"
    );
    put(&mut head, 5, 0.5);
    put(&mut head, 20, 3.0);
    let mut out = Samples::default();
    head.read(s, TimeRange::ALL, &mut out);
    assert_eq!((out.timestamps, out.values), (vec![5, 10, 20], vec![0.5, 1.0, 3.0]));
}

#[test]
fn behaves_like_a_map_of_maps() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut head = TenantHead::new(seed);
    let refs: Vec<_> = (0..20).map(|i| add(&mut head, &[("__name__", "m"), ("i", &i.to_string())])).collect();
    let mut model = vec![BTreeMap::new(); refs.len()];
    for step in 0..30_000i64 {
        let i = rng.below(20) as usize;
        let back = if rng.chance(0.05) { rng.below(2000) as i64 } else { 0 };
        let (t, v) = ((step - back).max(0), rng.below(50) as f64 / 4.0);
        head.append(&[refs[i]], &[t], &[v], 0);
        model[i].insert(t, v);
    }
    for (i, map) in model.iter().enumerate() {
        let mut out = Samples::default();
        let range = TimeRange::new(1000, 29_000);
        head.read(refs[i], range, &mut out);
        let expected: Vec<_> = map.range(1000..=29_000).map(|(t, v)| (*t, *v)).collect();
        let got: Vec<_> = out.timestamps.into_iter().zip(out.values).collect();
        assert_eq!(got, expected, "series {i}");
    }
}

#[test]
fn sample_counts_and_presence_agree_with_reading() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut head = TenantHead::new(seed);
    let series = add(&mut head, &[("__name__", "m")]);
    let mut t = 0;
    for _ in 0..3000 {
        t += if rng.chance(0.01) { 100_000 } else { 10 };
        let at = if rng.chance(0.2) { t - rng.below(50_000) as i64 } else { t };
        head.append(&[series], &[at], &[rng.below(3) as f64], 0);
    }
    for _ in 0..2000 {
        let start = rng.below(t as u64 + 1000) as i64 - 500;
        let width = if rng.chance(0.5) { 50 } else { 200_000 };
        let range = TimeRange::new(start, start + rng.below(width) as i64);
        let mut out = Samples::<f64>::default();
        head.read(series, range, &mut out);
        assert_eq!(head.has_samples(series, range), !out.is_empty(), "{range:?}");
        assert!(head.samples_at_most(series, range) >= out.len(), "{range:?}");
    }
    let nothing = TimeRange::new(t + 1, t + 1000);
    assert!(!head.has_samples(series, nothing));
    assert!(head.samples_at_most(series, nothing) <= 600, "only a few chunks are counted without decoding");
}

#[test]
fn a_tenant_takes_memory_before_its_first_series() {
    let mut partition = crate::Partition::new(1);
    for i in 0..100 {
        partition.tenant_mut(&model::TenantId::parse(&format!("t{i}")).unwrap());
    }
    assert!(partition.memory_bytes() >= 100 * 2 * size_of::<TenantHead>());
}
