//! Sums that outlive their series and their records.

use super::*;

#[test]
fn sums_are_carried_over_before_their_records_are_deleted() {
    let (journal, mut fixture) = Fixture::new();
    let count = 1200;
    let all = |n: u64| (0..count).map(|i| (i, n * 10, n * 10 + 10, i as f64)).collect::<Vec<_>>();
    fixture.add(&all(1));
    fixture.turns();
    for n in 2..5 {
        let upto = fixture.seal();
        // a change while the sums are written again
        fixture.owner.sums_turn();
        fixture.add(&all(n)[..100]);
        for _ in 0..50 {
            fixture.turns();
        }
        assert!(fixture.owner.sums.carrying.running.is_none());
        assert_eq!(fixture.owner.sums.carried(), upto);
        assert!(
            fixture.owner.journal.start() >= upto,
            "{:?} is before {upto:?}",
            fixture.owner.journal.start()
        );
    }
    let expected = sums_of(&fixture);
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(sums_of(&restarted), expected);
    assert_eq!(expected.len(), count);
    restarted.stop();
}

/// Of most tenants, it is only known what was forgotten of all of them. This must not get lost with the records that have it.
#[test]
fn what_was_forgotten_of_tenants_that_are_not_listed_is_carried_over() {
    let (journal, mut fixture) = Fixture::new();
    let tenant = |n: usize| TenantId::parse(&format!("t{n}")).unwrap();
    let other = TenantId::parse("other").unwrap();
    for n in 0..shared::TENANTS_MAX + 10 {
        fixture.owner.sums.note_forgotten(&tenant(n), 1000 + n as u64);
    }
    for round in 0..2 {
        fixture.add(&[(0, 10 * round, 10 * round + 10, 1.0)]);
        let upto = fixture.seal();
        for _ in 0..50 {
            fixture.turns();
        }
        assert!(fixture.owner.sums.carrying.running.is_none());
        assert_eq!(fixture.owner.sums.carried(), upto);
        assert!(fixture.owner.journal.start() >= upto, "{round}");
        let dir = fixture.stop();
        fixture = Fixture::over(Box::new(journal.reopen()), dir);
        assert_eq!(fixture.owner.sums.forgotten_ns(&other), 1009, "{round}");
        let shared = &fixture.owner.context.heads.shared_sums;
        assert_eq!(shared.stamp(&other, 0).forgotten_ns, 1009, "{round}");
        assert_eq!(fixture.owner.sums.count(), 1);
        // then without the tenants that are listed
        (0..shared::TENANTS_MAX + 10).for_each(|n| fixture.owner.sums.remove_tenant(&tenant(n)));
    }
    fixture.owner.sums.remove_tenant(&TenantId::anonymous());
    assert!(fixture.owner.sums.forgotten.after(None).next().is_none());
    assert!(!fixture.owner.sums.is_empty(), "the journal is truncated without the rest");
    fixture.stop();
}

fn sums_of(fixture: &Fixture) -> BTreeMap<SeriesKey, (u64, f64)> {
    let own = &fixture.owner.sums.tenants[&TenantId::anonymous()];
    let sum = |accumulator: &Accumulator| (accumulator.newest_ns(), accumulator.total());
    own.of.iter().map(|(key, entry)| (*key, sum(&entry.accumulator))).collect()
}

#[test]
fn a_sum_outlives_its_series() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0), (1, 10, 20, 1.0)]);
    fixture.seal();
    let series_count = |fixture: &Fixture| {
        let partition = fixture.owner.partition.head.read();
        partition.tenant(&TenantId::anonymous()).map_or(0, TenantHead::series_count)
    };
    for _ in 0..10 {
        fixture.clock.advance(3_600_000);
        fixture.turns();
    }
    assert_eq!((series_count(&fixture), fixture.owner.sums.count()), (0, 2));
    assert_eq!(fixture.add(&[(0, 10, 20, 1.0), (0, 20, 30, 2.0)]), (2, vec![]));
    assert_eq!(fixture.samples(0), [(30, 3.0)]);
    fixture.seal();
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!((series_count(&restarted), restarted.owner.sums.count()), (0, 2));
    assert_eq!(restarted.add(&[(0, 20, 30, 2.0), (0, 30, 40, 4.0), (1, 20, 40, 4.0)]), (3, vec![]));
    assert_eq!((restarted.samples(0), restarted.samples(1)), (vec![(40, 7.0)], vec![(40, 5.0)]));
    restarted.stop();
}
