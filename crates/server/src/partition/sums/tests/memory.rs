//! The memory of sums: its limit, the shares of tenants, and what restored sums take.

use super::*;
use crate::partition::sums::tenant::SUM_BYTES;
use stdx::rng::Rng;

#[test]
fn the_memory_of_sums_is_limited() {
    let (_, mut fixture) = Fixture::new();
    let HeadMemory { sums, pieces, .. } = &*Arc::clone(&fixture.owner.context.heads);
    let free_bytes = sums.limit_bytes() - sums.used_bytes();
    let taken = sums.reserve(free_bytes - 100 * SUM_BYTES as u64).unwrap();
    let increments: Vec<_> = (0..200).map(|i| (i, 10, 20, 1.0)).collect();
    let mut answer = fixture.submit(&increments);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    assert!(outcome.samples > 20 && outcome.samples < 100, "{} stored", outcome.samples);
    assert_eq!(outcome.samples + outcome.refused_samples, 200);
    assert_eq!(outcome.postponed, [Postponed::SeriesState], "the sender repeats it");
    let gap =
        |n: u64| increments[..10].iter().map(|(i, ..)| (*i, n * 20, n * 20 + 10, 1.0)).collect::<Vec<_>>();
    assert_eq!(fixture.add(&gap(2)), (10, vec![]), "gaps have memory of their own");
    // a little is left for what a group needs to undo its changes
    let rest = pieces.reserve(pieces.limit_bytes() - pieces.used_bytes() - 2048).unwrap();
    // without memory, gaps are closed: before and after the first increment
    assert_eq!(fixture.add(&gap(3)), (10, vec![]));
    let late = [(0, 5, 10, 1.0)];
    assert_eq!(fixture.add(&late), (0, vec![SeriesRefusal::IncrementTooLate]));
    drop((rest, taken));
    assert_eq!(fixture.add(&gap(4)), (10, vec![]));
    assert_eq!(fixture.add(&[(0, 70, 80, 1.0)]), (1, vec![]));
    let (samples, errors) = fixture.add(&increments);
    assert!(samples >= 190, "{samples} stored, {errors:?}");
    let count = fixture.owner.sums.count();
    assert_eq!(count, 200);
    check_memory(&fixture.owner.sums);
    fixture.stop();
}

/// One tenant sends as many series as it can, with gaps. Others must be able to send, too.
#[test]
fn a_tenant_cannot_take_the_memory_of_others() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let left_bytes = |account: &Account, most_bytes: u64| {
        let free_bytes = account.limit_bytes() - account.used_bytes();
        account.reserve(free_bytes - most_bytes.min(free_bytes)).unwrap()
    };
    let mut rng = Rng::announced();
    // either account may be filled first, and the first tenant may be alone
    for (sums_bytes, pieces_bytes) in [(1 << 20, 1 << 20), (1 << 20, 64 << 10), (u64::MAX, u64::MAX)] {
        let taken = [left_bytes(&heads.sums, sums_bytes), left_bytes(&heads.pieces, pieces_bytes)];
        let mut send = |name: &str, count: u32| {
            let tenant = TenantId::parse(name).unwrap();
            let mut refused = 0;
            for n in 0..count {
                let origin = Origin { submission: n + 1, weight: 1, stamp: Stamp::default() };
                let key = SeriesKey(rng.next_u64().into());
                for start in (10..60).step_by(10) {
                    let (start_ns, end_ns) = (start, start + 1);
                    let increment = Increment { start_ns, end_ns, value: 1.0, ..Increment::default() };
                    refused += u32::from(sums.add(&tenant, key, (&increment, None), origin).is_err());
                }
                sums.keep_changes();
            }
            refused
        };
        assert!(send("greedy", 20_000) > 100, "it has all that it asks for");
        assert_eq!(send("modest", 30), 0);
        assert!(send("greedy", 8000) > 100);
        assert_eq!(send("another", 10), 0);
        sums.tenants.clear();
        drop(taken);
    }
    fixture.stop();
}

/// Sums that were removed are restored first, because their records come first.
#[test]
fn restored_sums_take_the_memory_of_those_that_were_removed() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (64 << 10)).unwrap();
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let sum = |key: u32, end_ns: u64| {
        let piece = Piece { start_ns: end_ns, end_ns: end_ns + 1, sum: 1.0 };
        (SeriesKey(key.into()), Accumulator { pieces: [piece].into(), ..Accumulator::new(end_ns, 0) })
    };
    for n in 0..300 {
        let (key, sum) = sum(n, 10);
        sums.restore(&tenant, key, &sum);
    }
    sums.restore_forgotten(&tenant, 11);
    for n in 1000..1300 {
        let (key, live) = sum(n, 20);
        sums.restore(&tenant, key, &live);
        let (key, removed) = sum(n + 1000, 10);
        sums.restore(&tenant, key, &removed);
    }
    assert!((1000..1300).all(|n| sums.get(&tenant, SeriesKey(n)).is_some()));
    assert_eq!(sums.forgotten_ns(&tenant), 11);
    assert_eq!(sums.count(), sums.tenants[&tenant].of.len());
    check_memory(&sums);
    drop((sums, taken));
    fixture.stop();
}

/// Adds sums of two tenants of different weight until there is no memory for more, and restores them.
#[test]
fn restored_sums_take_as_much_memory_as_before() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut rng = Rng::announced();
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let tenants = [("light", 1), ("heavy", 8)].map(|(name, weight)| (TenantId::parse(name).unwrap(), weight));
    // only a little is left, or filling it would take long
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (2 << 20)).unwrap();
    let mut refused = [0; 2];
    for n in 0..40_000_u32 {
        let number = rng.below(2) as usize;
        let (tenant, weight) = &tenants[number];
        let origin = Origin { submission: 2 * n + 1, weight: *weight, stamp: Stamp::default() };
        let key = SeriesKey(rng.next_u64().into());
        for (start, end) in [(10, 20), (if rng.chance(0.5) { 20 } else { 30 }, 40)] {
            let increment = Increment { start_ns: start, end_ns: end, value: 1.0, ..Increment::default() };
            let added = sums.add(tenant, key, (&increment, None), origin);
            refused[number] += u32::from(added.is_err());
            if added.is_err() {
                break;
            }
        }
    }
    sums.keep_changes();
    assert!(refused.iter().all(|count| *count > 1000), "{refused:?}");
    let used_bytes = heads.sums.used_bytes();
    let bytes = |sums: &Sums| sums.tenants.values().map(TenantSums::checked_bytes).collect::<Vec<_>>();
    let (expected, count) = (bytes(&sums), sums.count());
    let all: Vec<_> = tenants
        .iter()
        .flat_map(|(tenant, _)| {
            let of = sums.tenants[tenant].of.iter();
            of.map(|(key, entry)| (tenant.clone(), *key, entry.accumulator.clone()))
        })
        .collect();
    drop(sums);
    let mut restored = Sums::new(Arc::clone(heads), Instant::now());
    let mut order: Vec<_> = (0..all.len()).collect();
    (0..order.len()).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for number in order {
        let (tenant, key, accumulator) = &all[number];
        restored.restore(tenant, *key, accumulator);
    }
    assert_eq!((bytes(&restored), restored.count()), (expected, count));
    check_memory(&restored);
    assert_eq!(heads.sums.used_bytes(), used_bytes);
    let pieces = |(tenant, key, sum): &(TenantId, SeriesKey, Accumulator)| {
        restored.get(tenant, *key).map(|found| found.pieces.len()) == Some(sum.pieces.len())
    };
    assert!(all.iter().all(pieces));
    drop((restored, taken));
    fixture.stop();
}
