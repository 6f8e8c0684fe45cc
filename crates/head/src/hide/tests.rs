use crate::{Columns, Evicted, Hiding, Idle, Partition, TenantHead, UntaggedWalk};
use model::{Exemplar, Labels, LabelsRef, SeriesKey, SeriesRef, TenantId, TimeRange};
use std::collections::BTreeSet;
use stdx::rng::Rng;

const DELETED: TimeRange = TimeRange::new(0, 50);

/// A third of the series have no label besides the metric name. The others have a label name of their own.
fn labels_of(i: u64) -> Labels {
    let (own, pod) = (format!("own{i}"), format!("pod{i}"));
    match i % 3 {
        0 => Labels::from_pairs(&[("__name__", &pod)]),
        _ => Labels::from_pairs(&[("__name__", "m"), (&own, "x"), ("pod", &pod), ("zone", "z")]),
    }
}

fn create(partition: &mut Partition, tenant: &TenantId, i: u64) -> SeriesRef {
    let labels = labels_of(i);
    partition.tenant_mut(tenant).create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref())
}

fn append(partition: &mut Partition, tenant: &TenantId, series: SeriesRef, at_ms: i64) {
    partition.tenant_mut(tenant).append(&[series], &[at_ms], &[1.0][..], 7);
}

fn put_exemplar(partition: &mut Partition, tenant: &TenantId, series: SeriesRef, at_ms: i64) {
    let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: at_ms, value: 1.0 };
    partition.put_exemplars(tenant, [(series, exemplar)].into_iter(), 7);
}

/// Series whose samples, at the given time, have left the head.
fn sealed(
    partition: &mut Partition,
    tenant: &TenantId,
    numbers: std::ops::Range<u64>,
    at_ms: i64,
) -> Vec<SeriesRef> {
    let series: Vec<_> = numbers.map(|i| create(partition, tenant, i)).collect();
    for of in &series {
        append(partition, tenant, *of, at_ms);
    }
    release(partition);
    series
}

fn release(partition: &mut Partition) {
    partition.freeze(|_| true);
    while !partition.release_turn(|_| true) {}
}

fn hide(partition: &mut Partition, tenant: &TenantId, series: &[SeriesRef], deleted: TimeRange) {
    let mut hiding = Hiding::new(series.iter().map(|series| series.0).collect(), deleted);
    let mut is_done = false;
    while !is_done {
        let before = partition.memory_bytes() as isize;
        partition.take_change();
        is_done = partition.hide_turn(tenant, &mut hiding);
        assert_eq!(partition.take_change(), partition.memory_bytes() as isize - before);
    }
}

fn evict(partition: &mut Partition) -> Vec<SeriesRef> {
    let mut freed = Vec::new();
    loop {
        let before = partition.memory_bytes() as isize;
        partition.take_change();
        let evicted = partition.evict_turn(Idle::before(0), |_, series| freed.push(series));
        assert_eq!(partition.take_change(), partition.memory_bytes() as isize - before);
        if let Evicted::Done(_) = evicted {
            freed.sort();
            return freed;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Lists {
    series: BTreeSet<String>,
    names: BTreeSet<String>,
    untagged: BTreeSet<String>,
    pairs: BTreeSet<(String, String, usize)>,
    values_of_names: BTreeSet<(String, usize, usize)>,
    counts: [usize; 4],
}

fn lists(partition: &Partition, tenant: &TenantId) -> Lists {
    let head = partition.tenant(tenant).unwrap();
    let text = |series| {
        let mut bytes = Vec::new();
        head.write_labels(SeriesRef(series), &mut bytes);
        LabelsRef::from_canonical(&bytes).to_owned().to_string()
    };
    let mut untagged = BTreeSet::new();
    let mut walk = UntaggedWalk::since(0);
    while !walk.names(head, |name| _ = untagged.insert(name.to_owned())) {}
    let numbers = 0..head.names_count().1;
    Lists {
        series: head.select(&[]).into_iter().map(text).collect(),
        names: head.label_names(None).map(str::to_owned).collect(),
        untagged,
        pairs: (0..head.pairs_end())
            .filter_map(|number| head.pair(number))
            .map(|pair| (pair.name.to_owned(), pair.value.to_owned(), pair.series))
            .collect(),
        values_of_names: numbers
            .filter_map(|number| head.name(number))
            .map(|name| (name.name.to_owned(), name.values, name.bytes))
            .collect(),
        counts: [head.listed_count(), head.pair_count(), head.names_count().0, head.largest_metric().0],
    }
}

/// Hides series, writes some of them again, and evicts, in any order. Lists must be those of a head that never had the hidden
/// ones.
#[test]
fn lists_are_those_of_a_head_without_the_hidden_series() {
    let mut rng = Rng::announced();
    let [tenant, model] = ["some", "model"].map(|name| TenantId::parse(name).unwrap());
    let mut partition = Partition::new(1);
    const COUNT: u64 = 200;
    let mut listed = BTreeSet::new();
    for step in 0..60 {
        let some: BTreeSet<u64> = (0..rng.below(40)).map(|_| rng.below(COUNT)).collect();
        match rng.below(4) {
            0 | 1 => {
                let series: Vec<_> = some.iter().map(|i| create(&mut partition, &tenant, *i)).collect();
                for of in &series {
                    append(&mut partition, &tenant, *of, 10);
                }
                listed.extend(some);
                release(&mut partition);
            }
            2 => {
                let known = |i: &u64| {
                    let labels = labels_of(*i);
                    partition.tenant(&tenant)?.find(SeriesKey::of(labels.as_bytes(), 1))
                };
                let series: Vec<_> = some.iter().filter_map(known).collect();
                let text = |of: &SeriesRef| {
                    let mut bytes = Vec::new();
                    partition.tenant(&tenant).unwrap().write_labels(*of, &mut bytes);
                    bytes
                };
                let before: Vec<_> = series.iter().map(text).collect();
                let pin = partition.pin();
                hide(&mut partition, &tenant, &series, DELETED);
                listed.retain(|i| !some.contains(i));
                let text = |of: &SeriesRef| {
                    let mut bytes = Vec::new();
                    partition.tenant(&tenant).unwrap().write_labels(*of, &mut bytes);
                    bytes
                };
                let after: Vec<_> = series.iter().map(text).collect();
                assert_eq!(before, after, "references stay valid");
                drop(pin);
            }
            _ => drop(evict(&mut partition)),
        }
        partition.remove_without_samples(&model);
        partition.tenant_mut(&model);
        partition.tenant_mut(&tenant);
        for i in &listed {
            create(&mut partition, &model, *i);
        }
        assert_eq!(lists(&partition, &tenant), lists(&partition, &model), "step {step}");
        let head = partition.tenant(&tenant).unwrap();
        assert!(listed.iter().all(|i| head.resolve(SeriesKey::of(labels_of(*i).as_bytes(), 1)).is_some()));
    }
}

#[test]
fn only_series_of_which_nothing_is_left_are_hidden() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..5, 10);
    let [newer, restored] = [5, 6].map(|i| create(&mut partition, &tenant, i));
    append(&mut partition, &tenant, newer, 100);
    release(&mut partition);
    // written during the delete: a sample, an exemplar
    append(&mut partition, &tenant, series[1], 20);
    put_exemplar(&mut partition, &tenant, series[2], 20);
    let absent = TenantId::parse("absent").unwrap();
    hide(&mut partition, &absent, &series, DELETED);
    let all: Vec<_> = series[..4].iter().copied().chain([newer, restored]).collect();
    hide(&mut partition, &tenant, &all, DELETED);
    assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), 4);
    // written after the delete
    append(&mut partition, &tenant, series[0], 30);
    let births = partition.births_of(&tenant);
    put_exemplar(&mut partition, &tenant, series[3], 30);
    assert_eq!(partition.births_of(&tenant), births + 1, "indexes learn of it");
    assert_eq!(evict(&mut partition), [restored]);
    assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), 6);
}

#[test]
fn exemplars_between_turns_keep_their_series() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..1000, 10);
    let mut hiding = Hiding::new(series.iter().map(|series| series.0).collect(), DELETED);
    assert!(!partition.hide_turn(&tenant, &mut hiding));
    for of in [series[0], series[999]] {
        put_exemplar(&mut partition, &tenant, of, 10);
    }
    while !partition.hide_turn(&tenant, &mut hiding) {}
    assert_eq!(lists(&partition, &tenant).series.len(), 2);
    assert_eq!(evict(&mut partition).len(), 998);
    assert_eq!(partition.tenant(&tenant).unwrap().exemplars().count(), 2);
}

/// Listing a series takes much longer than storing a sample.
#[test]
fn many_hidden_series_are_listed_again_in_turns() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..1000, 10);
    hide(&mut partition, &tenant, &series, DELETED);
    let (timestamps, values) = (vec![20; series.len()], vec![1.0; series.len()]);
    let mut columns = Columns::new(&series, &timestamps, values.as_slice().into());
    let mut stored = 0;
    while !columns.is_empty() {
        let turn = partition.tenant_mut(&tenant).append_some(&mut columns, 7);
        assert!((1..=50).contains(&turn.in_order), "{turn:?}");
        stored += turn.in_order;
    }
    assert_eq!((stored, partition.tenant(&tenant).unwrap().listed_count()), (1000, 1000));
    release(&mut partition);
    hide(&mut partition, &tenant, &series, DELETED);
    let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 30, value: 1.0 };
    let mut exemplars = series.iter().map(|series| (*series, exemplar.clone()));
    let (mut is_done, mut listed) = (false, 0);
    while !is_done {
        is_done = partition.put_some_exemplars(&tenant, &mut exemplars, 7);
        let now = partition.tenant(&tenant).unwrap().listed_count();
        assert!((listed..=listed + 50).contains(&now), "{now} after {listed}");
        listed = now;
    }
    assert_eq!((listed, partition.tenant(&tenant).unwrap().exemplars().count()), (1000, 1000));
}

/// The first delete has the newest sample. The second one, of another range, has what kept the series.
#[test]
fn two_deletes_hide_what_neither_would_hide_alone() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..1, 10);
    put_exemplar(&mut partition, &tenant, series[0], 90);
    hide(&mut partition, &tenant, &series, DELETED);
    assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), 1);
    partition.delete_exemplars(&tenant, &[series[0].0].into(), TimeRange::new(80, 100));
    hide(&mut partition, &tenant, &series, TimeRange::new(80, 100));
    assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), 0);
    assert_eq!(evict(&mut partition), series);
}

/// The late sample is written during the first delete. The second one has it, but not the newest sample.
#[test]
fn a_late_sample_that_a_delete_leaves_is_the_newest_one() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..1, 40);
    append(&mut partition, &tenant, series[0], 5);
    let check = |partition: &mut Partition, deleted, listed| {
        hide(partition, &tenant, &series, deleted);
        assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), listed, "{deleted:?}");
    };
    check(&mut partition, TimeRange::new(30, 50), 1);
    let head = partition.tenant(&tenant).unwrap();
    assert_eq!((head.newest_ms(series[0]), head.samples_at_most(series[0], TimeRange::ALL)), (5, 1));
    // before and after the sample has left the head
    check(&mut partition, TimeRange::new(0, 9), 1);
    release(&mut partition);
    check(&mut partition, TimeRange::new(30, 50), 1);
    check(&mut partition, TimeRange::new(0, 9), 0);
    append(&mut partition, &tenant, series[0], 5);
    let mut samples = model::Samples::<f64>::default();
    partition.tenant(&tenant).unwrap().read(series[0], TimeRange::ALL, &mut samples);
    assert_eq!(samples.timestamps, [5], "a sample that is sent again after the delete is stored");
}

#[test]
fn a_hidden_series_forgets_its_newest_sample() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..1, 40);
    let check = |partition: &mut Partition, deleted, listed| {
        hide(partition, &tenant, &series, deleted);
        assert_eq!(partition.tenant(&tenant).unwrap().listed_count(), listed, "{deleted:?}");
    };
    check(&mut partition, DELETED, 0);
    append(&mut partition, &tenant, series[0], 20);
    assert_eq!(partition.tenant(&tenant).unwrap().newest_ms(series[0]), 20);
    release(&mut partition);
    check(&mut partition, TimeRange::new(30, 50), 1);
    check(&mut partition, TimeRange::new(10, 30), 0);
}

/// An eviction that is in progress may have unlinked a series when it is hidden, or hidden series when they are written.
#[test]
fn series_are_hidden_and_shown_during_an_eviction() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let series = sealed(&mut partition, &tenant, 0..4, 10);
    let idle = |head: &mut TenantHead, of: &[SeriesRef]| of.iter().for_each(|of| head.set_seen(*of, 1));
    idle(partition.tenant_mut(&tenant), &series[..2]);
    hide(&mut partition, &tenant, &series[2..], DELETED);
    let pin = partition.pin();
    while partition.evict_turn(Idle::before(5), |_, _| {}) != Evicted::WaitsForPins {}
    hide(&mut partition, &tenant, &series[..1], DELETED);
    append(&mut partition, &tenant, series[2], 20);
    assert!(!partition.tenant(&tenant).unwrap().is_unlisting());
    drop(pin);
    let mut freed = Vec::new();
    while !matches!(partition.evict_turn(Idle::before(5), |_, series| freed.push(series)), Evicted::Done(_)) {
    }
    freed.sort();
    assert_eq!(freed, [series[0], series[1], series[3]]);
    let head = partition.tenant(&tenant).unwrap();
    assert_eq!((head.listed_count(), head.series_count(), head.is_unlisting()), (1, 1, false));
    assert_eq!(head.select(&[]).into_iter().collect::<Vec<_>>(), [series[2].0]);
}
