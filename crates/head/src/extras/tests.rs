use super::*;
use model::{Labels, LabelsRef, MetricKind, SeriesKey};

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn series(partition: &mut Partition, tenant: &TenantId) -> SeriesRef {
    let labels = Labels::from_pairs(&[("__name__", "m")]);
    let key = SeriesKey::of(labels.as_bytes(), 1);
    partition.tenant_mut(tenant).create(key, LabelsRef::from_canonical(labels.as_bytes()))
}

/// `count` exemplars numbered from `first`, each of the same size.
fn exemplars(series: SeriesRef, first: u32, count: u32) -> impl Iterator<Item = (SeriesRef, Exemplar)> {
    (first..first + count).map(move |i| {
        let labels = Labels::from_pairs(&[("trace_id", &format!("{i:0100}"))]);
        (series, Exemplar { labels, timestamp_ms: 1, value: f64::from(i) })
    })
}

fn values(partition: &Partition, tenant: &TenantId) -> Vec<u32> {
    partition.tenant(tenant).unwrap().exemplars().map(|(_, e)| e.value as u32).collect()
}

fn held(partition: &Partition) -> usize {
    partition.tenants().map(|(_, head)| head.exemplars.memory_bytes()).sum()
}

#[test]
fn a_tenant_cannot_push_out_exemplars_of_another() {
    const LIMIT: usize = 100_000;
    let (small, large) = (tenant("small"), tenant("large"));
    let mut partition = Partition::new(1);
    let [of_small, of_large] = [&small, &large].map(|tenant| series(&mut partition, tenant));
    partition.put_exemplars(&small, exemplars(of_small, 0, 100), 1);
    assert_eq!(partition.trim_exemplars(LIMIT), 0);
    let before = partition.memory_bytes() as isize;
    partition.take_change();
    let (mut dropped, mut trims, mut grown) = (0, 0, 0);
    for i in 0..5000 {
        let had = partition.memory_bytes_of(&large) as isize;
        partition.put_exemplars(&large, exemplars(of_large, i, 1), 1);
        grown += partition.memory_bytes_of(&large) as isize - had;
        let now = partition.trim_exemplars(LIMIT);
        trims += u32::from(now > 0);
        dropped += now;
        assert!(partition.exemplar_bytes() <= LIMIT && partition.exemplar_bytes() == held(&partition));
    }
    grown += partition.take_change();
    assert_eq!(before + grown, partition.memory_bytes() as isize);
    assert_eq!(values(&partition, &small), (0..100).collect::<Vec<_>>());
    let kept = values(&partition, &large);
    assert!(
        kept.len() > 200 && kept.iter().copied().eq(5000 - kept.len() as u32..5000),
        "the newest are kept"
    );
    assert_eq!(kept.len() as u64 + dropped, 5000);
    assert!(trims < 50, "{trims} trims");
    // once both tenants hold many exemplars, a trim leaves both the same number
    partition.put_exemplars(&small, exemplars(of_small, 100, 5000), 1);
    partition.trim_exemplars(LIMIT);
    let [a, b] = [&small, &large].map(|tenant| values(&partition, tenant).len());
    assert!(a.abs_diff(b) <= 1 && a > 100, "{a} and {b}");
    partition.trim_exemplars(0);
    assert_eq!((partition.exemplar_bytes(), held(&partition)), (0, 0));
}

fn metadata(metric: &str, help_bytes: usize) -> Metadata {
    let help = "h".repeat(help_bytes);
    Metadata { metric: metric.into(), kind: MetricKind::Gauge, help, unit: String::new() }
}

/// Puts metadata of new families until it is refused. Returns the number of stored families.
fn fill(partition: &mut Partition, tenant: &TenantId, limit: usize) -> usize {
    let mut count = 0;
    let put = |i: usize| metadata(&format!("m{i}"), 1000);
    while partition.put_metadata(tenant, put(count), limit).is_ok() {
        count += 1;
    }
    assert_eq!(partition.check_metadata(tenant, &put(count), limit, 0), Err(MetadataRefusal::Bytes));
    count
}

#[test]
fn metadata_leaves_room_for_other_tenants() {
    const LIMIT: usize = 1 << 20;
    let (a, b) = (tenant("a"), tenant("b"));
    let mut partition = Partition::new(1);
    let [first, second] = [&a, &b].map(|tenant| fill(&mut partition, tenant, LIMIT));
    assert!(first > 400 && second > 200, "{first} and {second} families");
    assert!(partition.metadata_bytes() < LIMIT);
    let held = partition.tenants().map(|(_, head)| head.metadata_bytes).sum::<usize>();
    assert_eq!(partition.metadata_bytes(), held);
    // a known family is updated, unless it grows
    partition.put_metadata(&a, metadata("m0", 900), LIMIT).unwrap();
    assert_eq!(partition.put_metadata(&a, metadata("m0", 4000), LIMIT), Err(MetadataRefusal::Bytes));
    assert_eq!(partition.tenant(&a).unwrap().metadata_of("m0").unwrap().help.len(), 900);
    assert_eq!(
        partition.put_metadata(&b, metadata("m0", 900), 0),
        Ok(()),
        "a smaller entry is always accepted"
    );
}

#[test]
fn metadata_that_was_kept_fits_again_in_any_order() {
    const LIMIT: usize = 1 << 20;
    let (a, b) = (tenant("a"), tenant("b"));
    let mut partition = Partition::new(1);
    for tenant in [&a, &b] {
        fill(&mut partition, tenant, LIMIT);
    }
    let mut again = Partition::new(1);
    for tenant in [&b, &a] {
        for metadata in partition.tenant(tenant).unwrap().metadata().cloned() {
            again.restore_metadata(tenant, metadata, LIMIT, 1).unwrap();
        }
    }
    assert_eq!(again.metadata_bytes(), partition.metadata_bytes());
    let more = (0..).map(|i| metadata(&format!("more{i}"), 1000));
    let refused = more.map(|m| again.restore_metadata(&a, m, LIMIT, 1)).find_map(Result::err);
    assert_eq!(refused, Some(MetadataRefusal::Bytes), "metadata beyond the bound was restored");
    assert!(again.metadata_bytes() <= LIMIT);
}

#[test]
fn families_are_counted_for_each_tenant() {
    let a = tenant("a");
    let mut partition = Partition::new(1);
    for i in 0..METADATA_MAX {
        partition.put_metadata(&a, metadata(&i.to_string(), 0), 1 << 30).unwrap();
    }
    let refused = partition.put_metadata(&a, metadata("one more", 0), 1 << 30);
    assert_eq!(refused, Err(MetadataRefusal::Families));
    partition.put_metadata(&a, metadata("0", 9), 1 << 30).unwrap();
    partition.put_metadata(&tenant("b"), metadata("one more", 0), 1 << 30).unwrap();
}

#[test]
fn extras_of_one_tenant_are_taken_out_and_counted() {
    let (gone, stays) = (tenant("gone"), tenant("stays"));
    let mut partition = Partition::new(1);
    for tenant in [&gone, &stays] {
        let of = series(&mut partition, tenant);
        partition.put_exemplars(tenant, exemplars(of, 0, 50), 1);
        partition.put_metadata(tenant, metadata("m", 100), 1 << 20).unwrap();
    }
    partition.take_change();
    let before = partition.memory_bytes() as isize;
    drop(partition.take_extras(&gone));
    assert_eq!(before + partition.take_change(), partition.memory_bytes() as isize);
    assert_eq!(partition.exemplar_bytes(), held(&partition));
    assert_eq!(partition.metadata_bytes(), bytes_of(&metadata("m", 100)));
    assert_eq!((values(&partition, &gone).len(), values(&partition, &stays).len()), (0, 50));
    let head = |partition: &Partition, tenant| partition.tenant(tenant).unwrap().metadata().count();
    assert_eq!((head(&partition, &gone), head(&partition, &stays)), (0, 1));
    // later exemplars continue the numbering that readers know
    let of = series(&mut partition, &gone);
    partition.put_exemplars(&gone, exemplars(of, 7, 1), 1);
    assert_eq!(partition.tenant(&gone).unwrap().exemplars_from(0).next().unwrap().0, 50);
}

#[test]
fn exemplars_of_some_series_and_a_range_are_deleted() {
    let (some, other) = (tenant("some"), tenant("other"));
    let mut partition = Partition::new(1);
    let exemplar = |i: i64| Exemplar { labels: Labels::empty(), timestamp_ms: i, value: i as f64 };
    for tenant in [&some, &other] {
        let head = partition.tenant_mut(tenant);
        let series: Vec<_> = (0..3)
            .map(|i| {
                let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
                head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref())
            })
            .collect();
        partition.put_exemplars(tenant, (0..90).map(|i| (series[i as usize % 3], exemplar(i))), 1);
    }
    let before = partition.memory_bytes() as isize;
    partition.take_change();
    // the first series, and the second in the range only
    let of = |series: &[u32]| series.iter().copied().collect::<RoaringBitmap>();
    partition.delete_exemplars(&some, &of(&[0]), TimeRange::ALL);
    partition.delete_exemplars(&some, &of(&[0, 1]), TimeRange::new(10, 80));
    partition.delete_exemplars(&tenant("absent"), &of(&[0]), TimeRange::ALL);
    assert_eq!(before + partition.take_change(), partition.memory_bytes() as isize);
    assert_eq!(partition.exemplar_bytes(), held(&partition));
    let expected: Vec<_> = (0..90).filter(|i| i % 3 == 2 || (i % 3 == 1 && !(10..=80).contains(i))).collect();
    assert_eq!(values(&partition, &some), expected);
    assert_eq!(values(&partition, &other), (0..90).collect::<Vec<_>>());
}

#[test]
fn a_tenant_is_removed_as_a_whole_unless_it_has_samples() {
    let (gone, stays, absent) = (tenant("gone"), tenant("stays"), tenant("absent"));
    let mut partition = Partition::new(1);
    for tenant in [&gone, &stays] {
        let of = series(&mut partition, tenant);
        partition.tenant_mut(tenant).append(&[of], &[5], &[1.0][..], 1);
        partition.put_exemplars(tenant, exemplars(of, 0, 50), 1);
    }
    assert!(![&gone, &stays, &absent].iter().any(|tenant| partition.remove_without_samples(tenant)));
    partition.freeze(|tenant| *tenant == gone);
    assert!(!partition.remove_without_samples(&gone), "its samples are being sealed");
    while !partition.release_turn(|_| true) {}
    partition.take_change();
    let before = partition.memory_bytes() as isize;
    assert!(partition.remove_without_samples(&gone) && !partition.remove_without_samples(&stays));
    assert_eq!(before + partition.take_change(), partition.memory_bytes() as isize);
    assert_eq!((partition.tenant_count(), partition.exemplar_bytes()), (1, held(&partition)));
}
