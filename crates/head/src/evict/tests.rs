use crate::{Among, Evicted, Filter, FilterKind, Idle, Partition, Pin, Selection, TenantHead, Walk};
use model::{Exemplar, Labels, LabelsRef, Metadata, Samples, SeriesKey, SeriesRef, TenantId, TimeRange};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stdx::rng::Rng;

/// Labels of series `i`. The pods are new in each generation.
fn labels_of(i: u64, generation: u64) -> Labels {
    let (metric, pod, zone) =
        (format!("m{}", i % 5), format!("pod-{generation}-{}", i / 5), format!("z{}", i % 3));
    let mut pairs = vec![("__name__", metric.as_str()), ("pod", &pod), ("zone", &zone)];
    let own = format!("own{}", i % 7);
    if i.is_multiple_of(4) {
        pairs.push((&own, "x"));
    }
    Labels::from_pairs(&pairs)
}

fn key_of(labels: &Labels) -> SeriesKey {
    SeriesKey::of(labels.as_bytes(), 1)
}

fn create(head: &mut TenantHead, labels: &Labels) -> SeriesRef {
    head.create(key_of(labels), labels.as_ref())
}

fn text(head: &TenantHead, series: SeriesRef) -> Labels {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    LabelsRef::from_canonical(&bytes).to_owned()
}

/// Runs a whole eviction, without pins. Returns the number of evicted series.
fn evict(partition: &mut Partition, idle_before_s: u32) -> u64 {
    loop {
        let before = partition.memory_bytes() as isize;
        partition.take_change();
        let evicted = partition.evict_turn(Idle::before(idle_before_s), |_, _| {});
        assert_eq!(partition.take_change(), partition.memory_bytes() as isize - before);
        if let Evicted::Done(count) = evicted {
            return count;
        }
    }
}

fn release(partition: &mut Partition) {
    partition.freeze(|_| true);
    while !partition.release_turn(|_| true) {}
}

/// A reader or writer that keeps references to series after it has released the lock.
struct Holder {
    _pin: Pin,
    /// Known series, with their labels at that time.
    known: Vec<(SeriesRef, Labels)>,
    /// True if the holder appends to its series later.
    writes: bool,
}

#[test]
fn pinned_references_keep_their_series() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    for life in 0..3 {
        one_life(&mut Rng::new(seed + life));
    }
}

fn one_life(rng: &mut Rng) {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let mut holders: Vec<Holder> = Vec::new();
    // for each label set, the samples that the head must hold
    let mut model: HashMap<Labels, BTreeMap<i64, f64>> = HashMap::new();
    let mut owners: HashMap<SeriesRef, Labels> = HashMap::new();
    let (mut now_s, mut evicted, mut reused, mut done) = (10u32, 0, 0, 0);
    for _ in 0..2000 {
        now_s += u32::from(rng.chance(0.2));
        match rng.below(12) {
            0..3 => {
                let head = partition.tenant_mut(&tenant);
                for _ in 0..rng.below(40) {
                    let labels = labels_of(rng.below(60), u64::from(now_s / 20));
                    let series = create(head, &labels);
                    assert_eq!(text(head, series), labels);
                    let before = owners.insert(series, labels.clone());
                    reused += u32::from(before.as_ref().is_some_and(|b| *b != labels));
                    if rng.chance(0.8) {
                        append(head, &mut model, series, &labels, now_s, rng);
                    }
                }
            }
            3..6 if holders.len() < 3 => holders.push(hold(&partition, &tenant, rng)),
            3..8 if !holders.is_empty() => {
                let holder = holders.swap_remove(rng.below(holders.len() as u64) as usize);
                let head = partition.tenant_mut(&tenant);
                for (series, labels) in &holder.known {
                    assert_eq!(text(head, *series), *labels, "a pinned reference changed its meaning");
                    if holder.writes {
                        append(head, &mut model, *series, labels, now_s, rng);
                        owners.insert(*series, labels.clone());
                    }
                }
            }
            8 => {
                release(&mut partition);
                model.values_mut().for_each(BTreeMap::clear);
            }
            _ => {
                let turn = partition.evict_turn(Idle::before(now_s.saturating_sub(15)), |_, series| {
                    evicted += 1;
                    let labels = owners.remove(&series).expect("a series is freed once");
                    // a newer series may have the same labels
                    let again = owners.values().any(|l| *l == labels);
                    assert!(again || model.get(&labels).is_none_or(BTreeMap::is_empty), "{labels}");
                });
                done += u32::from(matches!(turn, Evicted::Done(_)));
            }
        }
        if rng.chance(0.02) {
            check(&partition, &tenant, &model);
        }
    }
    assert!(evicted > 50 && done > 10, "{evicted} evicted in {done} rounds");
    assert_eq!(reused, 0, "a reference was reused before it was free");
}

fn append(
    head: &mut TenantHead,
    model: &mut HashMap<Labels, BTreeMap<i64, f64>>,
    series: SeriesRef,
    labels: &Labels,
    now_s: u32,
    rng: &mut Rng,
) {
    let (t, v) = (i64::from(now_s) * 1000 + rng.below(1000) as i64, rng.below(1 << 40) as f64);
    head.append(&[series], &[t], &[v], now_s);
    model.entry(labels.clone()).or_default().insert(t, v);
}

/// Pins the head and takes references, like a query or a submission.
fn hold(partition: &Partition, tenant: &TenantId, rng: &mut Rng) -> Holder {
    let pin = partition.pin();
    let mut known = Vec::new();
    let writes = rng.chance(0.5);
    if let Some(head) = partition.tenant(tenant) {
        let zone = format!("z{}", rng.below(3));
        for series in head.select(&[Filter { name: "zone", kind: FilterKind::Equal(&zone) }]) {
            let labels = text(head, SeriesRef(series));
            // a writer looks series up by key, so it does not find those that are unlinked
            if !writes || head.resolve(key_of(&labels)) == Some(SeriesRef(series)) {
                known.push((SeriesRef(series), labels));
            }
        }
    }
    Holder { _pin: pin, known, writes }
}

/// Checks that the head holds the model's samples, and that each lookup finds the series.
fn check(partition: &Partition, tenant: &TenantId, model: &HashMap<Labels, BTreeMap<i64, f64>>) {
    let Some(head) = partition.tenant(tenant) else { return };
    let mut names = BTreeSet::new();
    for (labels, samples) in model.iter().filter(|(_, samples)| !samples.is_empty()) {
        let series = head.find(key_of(labels)).expect("a series with samples is there");
        let mut out = Samples::default();
        head.read(series, TimeRange::ALL, &mut out);
        assert!(
            out.timestamps
                .iter()
                .copied()
                .zip(out.values.iter().copied())
                .eq(samples.iter().map(|(t, v)| (*t, *v)))
        );
        let pod = Filter { name: "pod", kind: FilterKind::Equal(labels.get("pod").unwrap()) };
        assert!(head.select(&[pod]).contains(series.0));
        names.extend(labels.iter().map(|(name, _)| name.to_string()));
    }
    let found: BTreeSet<_> = head.label_names(None).map(String::from).collect();
    assert!(found.is_superset(&names));
    for series in head.select(&[]) {
        let labels = text(head, SeriesRef(series));
        let no_pod =
            Filter { name: "pod", kind: FilterKind::Predicate(&|v| v != labels.get("pod").unwrap()) };
        assert!(!head.select(&[no_pod]).contains(series));
    }
}

#[test]
fn evicting_churned_series_frees_their_memory() {
    const LIVE: u64 = 3000;
    let tenant = TenantId::anonymous();
    let alone = {
        let mut partition = Partition::new(1);
        live(&mut partition, &tenant, 10, 10);
        partition.memory_bytes()
    };
    // first evicts each generation as soon as the next one exists, then evicts all old generations at once
    for at_once in [false, true] {
        let mut partition = Partition::new(1);
        for generation in 0..=10 {
            live(&mut partition, &tenant, generation, generation as u32);
            if !at_once {
                release(&mut partition);
                let count = evict(&mut partition, generation as u32);
                assert_eq!(count, if generation == 0 { 0 } else { LIVE });
            }
        }
        let peak = partition.memory_bytes();
        if at_once {
            release(&mut partition);
            assert_eq!(evict(&mut partition, 10), 10 * LIVE);
            live(&mut partition, &tenant, 10, 11);
        }
        let head = partition.tenant(&tenant).unwrap();
        assert_eq!(head.series_count(), LIVE as usize);
        let left = partition.memory_bytes();
        println!("{left} bytes, {alone} alone, {peak} before; {:?}", head.memory_parts());
        assert!(left * 10 <= alone * 13, "{left} bytes where the live set alone takes {alone}");
        assert_eq!(head.label_values("pod", None).count(), LIVE as usize / 5);
    }

    fn live(partition: &mut Partition, tenant: &TenantId, generation: u64, now_s: u32) {
        let head = partition.tenant_mut(tenant);
        for i in 0..LIVE {
            let series = create(head, &labels_of(i, generation));
            head.append(&[series], &[i64::from(now_s)], &[i as f64], now_s);
        }
    }
}

#[test]
fn series_defined_by_replay_without_samples_are_evicted_first() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let head = partition.tenant_mut(&tenant);
    let refs: Vec<_> = (0..1000).map(|i| create(head, &labels_of(i, 0))).collect();
    head.append(&refs[..10], &[1; 10], &[1.0; 10], 500);
    assert_eq!(evict(&mut partition, 1), 990);
    assert_eq!(evict(&mut partition, 501), 0, "a series with samples stays");
    release(&mut partition);
    assert_eq!(evict(&mut partition, 500), 0, "seen lately");
    assert_eq!(evict(&mut partition, 501), 10);
    let mut removed = Vec::new();
    partition.remove_empty(Idle::before(501), |tenant| removed.push(tenant.clone()));
    assert_eq!((removed, partition.tenant_count(), partition.memory_bytes()), (vec![tenant], 0, 0));
}

#[test]
fn unseen_series_leave_the_active_set_and_return() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let head = partition.tenant_mut(&tenant);
    let refs: Vec<_> = (0..3).map(|i| create(head, &labels_of(i, 0))).collect();
    head.append(&refs[..2], &[1; 2], &[1.0; 2], 100);
    head.append(&refs[..1], &[2], &[1.0], 200);
    assert_eq!(head.active_count(), 2);
    let idle = Idle { retire_before_s: 150, ..Idle::evict_before(0) };
    assert_eq!(partition.evict_turn(idle, |_, _| {}), Evicted::Done(0));
    let head = partition.tenant_mut(&tenant);
    assert_eq!((head.active_count(), head.series_count()), (1, 3));
    head.append(&refs[1..2], &[3], &[1.0], 300);
    assert_eq!(head.active_count(), 2);
}

/// Not those of a flood, of which each gets one sample, or several at once, perhaps with a request that is repeated.
#[test]
fn series_with_newer_samples_in_different_seconds_stay_longer() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let head = partition.tenant_mut(&tenant);
    let refs: Vec<_> = (0..6).map(|i| create(head, &labels_of(i, 0))).collect();
    head.append(&refs, &[1; 6], &[1.0; 6], 100);
    head.append(&refs[..1], &[2], &[1.0], 100);
    head.append(&refs[1..3], &[2; 2], &[1.0; 2], 105);
    head.append(&refs[3..4], &[1], &[1.0], 105);
    // the last two end, the one after a second sample
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    head.append(&refs[5..], &[2], &[1.0], 102);
    head.append(&refs[4..], &[3; 2], &[stale; 2], 104);
    assert_eq!(partition.freeze(|_| true), 12);
    while !partition.release_turn(|_| true) {}
    partition.tenant_mut(&tenant).append(&refs[3..4], &[1], &[1.0], 106);
    partition.freeze(|_| true);
    while !partition.release_turn(|_| true) {}
    let idle = |lasting_s| Idle { evict_lasting_before_s: lasting_s, ..Idle::evict_before(110) };
    let mut evict = |lasting_s, expected| {
        let mut freed = Vec::new();
        while !matches!(
            partition.evict_turn(idle(lasting_s), |_, series| freed.push(series)),
            Evicted::Done(_)
        ) {}
        freed.sort_unstable();
        assert_eq!(freed, expected);
    };
    evict(105, vec![refs[0], refs[3], refs[4], refs[5]]);
    evict(106, vec![refs[1], refs[2]]);
}

#[test]
fn turns_are_short_however_many_tenants_there_are() {
    const TENANTS: usize = 3000;
    let mut partition = Partition::new(1);
    for i in 0..TENANTS {
        let tenant = TenantId::parse(&format!("t{i}")).unwrap();
        let head = partition.tenant_mut(&tenant);
        let series = [create(head, &labels_of(0, 0)), create(head, &labels_of(1, 0))];
        head.append(&series, &[1; 2], &[1.0; 2], 1);
    }
    assert_eq!(partition.freeze(|_| true), 2 * TENANTS as u64);
    let except = TenantId::parse("t7").unwrap();
    let mut turns = 1;
    while !partition.release_turn(|tenant| *tenant != except) {
        turns += 1;
    }
    // only two series are released; all other steps search for them
    assert!(turns > TENANTS / 50, "{turns} turns");
    let left = |p: &Partition| p.tenants().filter(|(_, head)| head.is_frozen()).count();
    assert_eq!(left(&partition), 1);
    assert!(partition.release_turn(|_| true) && left(&partition) == 0);
    let mut turns = 1;
    while !matches!(partition.evict_turn(Idle::before(9), |_, _| {}), Evicted::Done(6000)) {
        turns += 1;
    }
    assert!(turns > 3 * TENANTS / 50, "{turns} turns");
    partition.remove_empty(Idle::before(9), |_| {});
    assert_eq!((partition.tenant_count(), partition.memory_bytes()), (0, 0));
}

fn metadata() -> Metadata {
    let (help, unit) = (String::new(), String::new());
    Metadata { metric: "m".into(), kind: model::MetricKind::Gauge, help, unit }
}

#[test]
fn a_tenant_that_has_only_metadata_stays() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    partition.put_metadata(&tenant, metadata(), 1 << 20).unwrap();
    partition.remove_empty(Idle::before(u32::MAX), |_| panic!("a tenant with metadata was removed"));
    assert_eq!(partition.tenant_count(), 1);
}

#[test]
fn restored_metadata_without_series_leaves_when_it_is_idle() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    partition.restore_metadata(&tenant, metadata(), 1 << 20, 100).unwrap();
    partition.remove_empty(Idle::before(100), |_| panic!("restored metadata was removed before it was idle"));
    partition.remove_empty(Idle::before(101), |_| {});
    assert_eq!(partition.tenant_count(), 0);
}

#[test]
fn a_series_used_during_eviction_is_kept() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let all: Vec<_> = (0..4).map(|i| labels_of(i, 0)).collect();
    let head = partition.tenant_mut(&tenant);
    let refs: Vec<_> = all.iter().map(|labels| create(head, labels)).collect();
    let pin = partition.pin();
    assert_eq!(partition.evict_turn(Idle::before(9), |_, _| {}), Evicted::WaitsForPins);
    let head = partition.tenant_mut(&tenant);
    assert!(refs.iter().zip(&all).all(|(_, labels)| head.resolve(key_of(labels)).is_none()));
    // series 1 is created again, and a writer appends to series 2
    assert_eq!(create(head, &all[1]), refs[1]);
    assert_eq!(head.resolve(key_of(&all[1])), Some(refs[1]));
    head.append(&[refs[2]], &[1], &[1.0], 9);
    assert_eq!(
        partition.evict_turn(Idle::before(9), |_, _| {}),
        Evicted::WaitsForPins,
        "a pin still protects them"
    );
    drop(pin);
    let pin = partition.pin();
    assert_eq!(partition.evict_turn(Idle::before(9), |_, _| {}), Evicted::WaitsForPins);
    let head = partition.tenant(&tenant).unwrap();
    assert_eq!(head.select(&[]).iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(text(head, refs[3]), all[3], "a reader that selected it before can still read its labels");
    assert_eq!([1, 2].map(|i| head.resolve(key_of(&all[i]))), [Some(refs[1]), Some(refs[2])]);
    drop(pin);
    let mut freed = Vec::new();
    assert_eq!(partition.evict_turn(Idle::before(9), |_, series| freed.push(series.0)), Evicted::Done(2));
    freed.sort_unstable();
    assert_eq!(freed, [0, 3]);
    let head = partition.tenant_mut(&tenant);
    assert_eq!(create(head, &labels_of(77, 1)), SeriesRef(0), "the lowest number is reused");
    assert_eq!(text(head, SeriesRef(0)), labels_of(77, 1));
}

#[test]
fn exemplars_go_with_their_series() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let head = partition.tenant_mut(&tenant);
    let refs: Vec<_> = (0..100).map(|i| create(head, &labels_of(i, 0))).collect();
    let exemplar = |trace| {
        let labels = Labels::from_pairs(&[("trace", trace)]);
        Exemplar { labels, timestamp_ms: 1, value: 1.0 }
    };
    partition.put_exemplars(&tenant, refs.iter().map(|series| (*series, exemplar("x"))), 1);
    partition.tenant_mut(&tenant).append(&refs[..50], &[1; 50], &[1.0; 50], 9);
    // an exemplar marks its series as seen; this series has no sample
    partition.put_exemplars(&tenant, [(refs[50], exemplar("y"))].into_iter(), 9);
    evict(&mut partition, 9);
    let held = partition.tenant(&tenant).unwrap().exemplars.memory_bytes();
    assert_eq!(partition.exemplar_bytes(), held);
    let head = partition.tenant(&tenant).unwrap();
    let kept = refs[..51].iter().chain([&refs[50]]).copied();
    assert!(head.exemplars().map(|(series, _)| *series).eq(kept));
    assert_eq!(partition.evicted_exemplars(), 49);
}

#[test]
fn searches_in_turns_are_correct_during_churn() {
    const COUNT: u64 = 12_000;
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    // every third series stays throughout
    let stays = |i: u64| i.is_multiple_of(3);
    let labels = |i: u64, kind: &str| {
        Labels::from_pairs(&[
            ("__name__", "m"),
            ("i", &format!("{kind}{i}")),
            ("kind", kind),
            (&format!("l{}", i % 4000), "x"),
        ])
    };
    let head = partition.tenant_mut(&tenant);
    for i in 0..COUNT {
        let series = create(head, &labels(i, if stays(i) { "stays" } else { "goes" }));
        if stays(i) {
            head.append(&[series], &[1], &[1.0], 9);
        }
    }
    // the first phase of an eviction ends before the searches begin
    while partition.evict_turn(Idle::before(9), |_, _| {}) == Evicted::More {}
    let pin = partition.pin();
    let (mut walk, mut values, mut turns) = (Walk::new(), Vec::new(), 0);
    let (mut names_walk, mut names) = (Walk::new(), BTreeSet::new());
    let stays_filter = |v: &str| v.starts_with("stays");
    let not_new = |v: &str| v != "new";
    let filters = [
        Filter { name: "i", kind: FilterKind::Predicate(&stays_filter) },
        Filter { name: "kind", kind: FilterKind::Predicate(&not_new) },
    ];
    let all_filters = [Filter { name: "i", kind: FilterKind::Predicate(&|v| !v.starts_with("new")) }];
    let (mut selection, mut everything) = (Selection::new(&filters), Selection::new(&all_filters));
    let mut done = [false; 4];
    while done != [true; 4] {
        let head = partition.tenant_mut(&tenant);
        done[0] = done[0] || walk.values(head, "i", Among::All, |v| values.push(v.to_string()));
        done[1] = done[1]
            || names_walk.names(head, Among::All, |n| {
                names.insert(n.to_string());
            });
        done[2] = done[2] || selection.advance(head);
        done[3] = done[3] || everything.advance(head);
        for i in 0..500 {
            create(head, &labels(COUNT + turns * 500 + i, "new"));
        }
        for _ in 0..3 {
            partition.evict_turn(Idle::before(9), |_, _| {});
        }
        turns += 1;
    }
    assert!(turns > 3, "{turns} turns");
    drop(pin);
    let unique: BTreeSet<_> = values.iter().collect();
    assert_eq!(unique.len(), values.len(), "a value was listed twice");
    assert!((0..COUNT).filter(|i| stays(*i)).all(|i| unique.contains(&format!("stays{i}"))));
    assert!((0..COUNT).filter(|i| stays(*i)).all(|i| names.contains(&format!("l{}", i % 4000))));
    let stay: RoaringBitmap = (0..COUNT as u32).filter(|i| stays(u64::from(*i))).collect();
    assert_eq!(selection.into_series(), stay);
    let everything = everything.into_series();
    assert!(stay.is_subset(&everything) && everything.max() < Some(COUNT as u32));
    let head = partition.tenant(&tenant).unwrap();
    assert!(everything.iter().all(|s| !text(head, SeriesRef(s)).get("i").unwrap().starts_with("new")));
    while !matches!(partition.evict_turn(Idle::before(9), |_, _| {}), Evicted::Done(_)) {}
    evict(&mut partition, 9);
    assert_eq!(partition.tenant(&tenant).unwrap().select(&[]), stay);
}

/// An exemplar may come with an entry of its own, without samples.
#[test]
fn an_exemplar_between_the_phases_keeps_its_series() {
    let tenant = TenantId::anonymous();
    let mut partition = Partition::new(1);
    let labels = [labels_of(0, 0), labels_of(1, 0)];
    let [kept, gone] = labels.each_ref().map(|labels| create(partition.tenant_mut(&tenant), labels));
    let pin = partition.pin();
    while partition.evict_turn(Idle::before(5), |_, _| {}) != Evicted::WaitsForPins {}
    let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: 1.0 };
    partition.put_exemplars(&tenant, [(kept, exemplar)].into_iter(), 9);
    drop(pin);
    let mut freed = Vec::new();
    while !matches!(partition.evict_turn(Idle::before(5), |_, series| freed.push(series)), Evicted::Done(_)) {
    }
    assert_eq!(freed, [gone]);
    let head = partition.tenant(&tenant).unwrap();
    assert_eq!(head.exemplars().count(), 1);
    assert_eq!(head.resolve(key_of(&labels[0])), Some(kept));
}
