use super::*;
use crate::evict::Idle;
use crate::partition::{Evicted, Partition};
use model::labels::METRIC_NAME;
use model::{Labels, SeriesKey, TenantId, ValueKind};
use std::collections::BTreeSet;
use stdx::rng::Rng;

type Exact = BTreeMap<(u32, String, String), u64>;

fn check(gained: &Gained<'_>, exact: &Exact, now_s: u32) {
    let wanted = Growth::since_s(now_s) / BUCKET_S..=now_s / BUCKET_S;
    for (is_metric, Gains { gains, others_max }, counters) in
        [(true, &gained.metrics, METRICS as u64), (false, &gained.pairs, PAIRS as u64)]
    {
        let (mut sums, mut all) = (BTreeMap::<(&str, &str), u64>::new(), 0);
        for ((bucket, name, value), count) in exact {
            if wanted.contains(bucket) && (name == METRIC_NAME) == is_metric {
                *sums.entry((name, value)).or_default() += count;
                all += count;
            }
        }
        if is_metric {
            assert_eq!(gained.created, all);
        }
        let error_max = all / counters;
        assert!(*others_max <= error_max, "{others_max} of {all}");
        let mut named = BTreeSet::new();
        for Gain { name, value, least, most } in gains {
            let count = sums.get(&(name, value)).copied().unwrap_or_default();
            assert!((*least..=*most).contains(&count), "{name}={value}: {least} <= {count} <= {most}");
            assert!(most - least <= error_max, "{name}={value}: {least} to {most} of {all}");
            assert!(named.insert((*name, *value)), "{name}={value} is there twice");
        }
        for (pair, count) in sums {
            assert!(named.contains(&pair) || count <= *others_max, "{pair:?} is not named: {count}");
        }
    }
}

/// Labels for which a few values occur in many series, while most values occur in few.
fn labels(rng: &mut Rng, number: u64) -> Labels {
    let mut skewed = |most: u64| most / (1 + rng.below(most));
    let (metric, pod) = (format!("m{}", skewed(2_000)), format!("p{}", skewed(500)));
    let pairs = [("__name__", metric.as_str()), ("id", &number.to_string()), ("job", "a"), ("pod", &pod)];
    Labels::from_pairs(&pairs)
}

fn create(head: &mut crate::TenantHead, labels: &Labels, now_s: u32) {
    head.create_sent(ValueKind::Float, SeriesKey::of(labels.as_bytes(), 1), labels.as_ref(), now_s);
}

#[test]
fn counts_are_within_their_bounds_as_time_goes_on() {
    let mut rng = Rng::announced();
    let (mut head, mut exact) = (crate::TenantHead::new(1), Exact::new());
    let mut now_s = rng.below(100_000) as u32;
    for number in 0..40_000 {
        if rng.chance(0.001) {
            now_s += rng.below(2_000) as u32;
        }
        let labels = labels(&mut rng, number);
        create(&mut head, &labels, now_s);
        for (name, value) in labels.iter() {
            *exact.entry((now_s / BUCKET_S, name.into(), value.into())).or_default() += 1;
        }
        if number % 1_000 == 0 {
            check(&head.gained(now_s), &exact, now_s);
        }
    }
    check(&head.gained(now_s), &exact, now_s);
    let bytes = head.growth_bytes();
    assert!(bytes < 28 << 10, "{bytes} bytes");
    assert_eq!(head.gained(now_s + 3_600 + BUCKET_S).created, 0, "after an hour");
}

#[test]
fn churned_series_are_counted_and_removed_pairs_are_not_named() {
    let (mut partition, tenant, mut exact) = (Partition::new(1), TenantId::anonymous(), Exact::new());
    for round in 1..30 {
        for number in 0..200 {
            // each round has the same metrics, but other pods with reused numbers
            let (metric, pod) = (format!("m{}", number % 10), format!("p{round}-{}", number % 7));
            let id = number.to_string();
            let labels = Labels::from_pairs(&[("__name__", &metric), ("pod", &pod), ("id", &id)]);
            create(partition.tenant_mut(&tenant), &labels, 100);
            create(partition.tenant_mut(&tenant), &labels, 100); // already known
            for (name, value) in labels.iter() {
                *exact.entry((0, name.into(), value.into())).or_default() += 1;
            }
        }
        let head = partition.tenant_mut(&tenant);
        let gained = head.gained(100);
        assert_eq!(gained.created, 200 * round);
        for Gain { name, value, least, most } in gained.metrics.gains.iter().chain(&gained.pairs.gains) {
            let count = exact[&(0, (*name).to_owned(), (*value).to_owned())];
            assert!((*least..=*most).contains(&count), "{name}={value}: {least} <= {count} <= {most}");
            let is_of_this_round = value.starts_with(&format!("p{round}-"));
            assert!(*name != "pod" || is_of_this_round, "{value} is gone, round {round}");
        }
        assert_eq!(gained.metrics.gains.len(), 10);
        assert!(gained.metrics.gains.iter().all(|gain| gain.least == 20 * round && gain.most == gain.least));
        while !matches!(partition.evict_turn(Idle::before(u32::MAX), |_, _| {}), Evicted::Done(_)) {}
        let head = partition.tenant(&tenant).expect("a tenant stays until it is removed");
        assert_eq!((head.series_count(), head.gained(100).metrics.gains.len()), (0, 0));
    }
}

#[test]
fn replayed_series_do_not_count_as_created() {
    let mut head = crate::TenantHead::new(1);
    let labels = Labels::from_pairs(&[("__name__", "up")]);
    head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
    create(&mut head, &labels, 5);
    assert_eq!(head.gained(5).created, 0);
}
