//! Sums of exponential histograms.

use super::*;
use crate::partition::slicing::EXPONENTIALS_MAX;
use journal::faulty::{Faults, Faulty};
use model::exponential::Side;
use stdx::rng::Rng;

/// A histogram with `count` values in each of some buckets.
fn counted(scale: i64, first: i64, buckets: usize, count: u64) -> Arc<Exponential> {
    let (positive, count) = (Side::new(first, &vec![count; buckets]), count * buckets as u64);
    Arc::new(Exponential { scale, positive, count, sum: Some(count as f64), ..Exponential::default() })
}

/// The sums of histograms are as durable as others, and a group that fails does not change them.
#[test]
fn sums_of_histograms_are_durable() {
    let mut rng = Rng::announced();
    let journal = Memory::new(JournalId::default(), 1000);
    let mut faulty = {
        let (journal, mut seeds) = (journal.reopen(), Rng::new(rng.next_u64()));
        move || {
            let faults = Faults { append_error: 0.1, sync_error: 0.2, ..Faults::default() };
            Box::new(Faulty::new(Box::new(journal.reopen()), faults, seeds.next_u64()))
        }
    };
    let mut fixture = Fixture::over(faulty(), tempfile::tempdir().unwrap());
    let (mut sums, mut failures): (BTreeMap<u128, Exponential>, _) = (BTreeMap::new(), 0);
    for n in 1..=150 {
        // of two histograms, each with the point before the last one again
        let points: Vec<_> = [1, 2]
            .into_iter()
            .map(|key| {
                let (scale, first) = (rng.below(4) as i64 - 1, rng.below(30) as i64 - 15);
                (
                    key,
                    n * 10,
                    n * 10 + 10,
                    counted(scale, first, 1 + rng.below(40) as usize, 1 + rng.below(3)),
                )
            })
            .collect();
        for is_repeated in [false, true] {
            let outcome = loop {
                let mut answer = fixture.submit_histograms(&points);
                fixture.turns();
                match answer.try_recv().expect("an answer") {
                    Ok(outcome) => break outcome,
                    Err(_) => failures += 1,
                }
                check_memory(&fixture.owner.sums);
            };
            assert_eq!((outcome.samples, outcome.refused_samples), (0, 0));
            for ((key, _, end_ms, counts), (_, total)) in points.iter().zip(&outcome.totals) {
                let sum = sums.entry(*key).or_default();
                if !is_repeated {
                    *sum = sum.plus(counts);
                }
                let found = total.as_ref().unwrap().read_out(end_ms * MS);
                // if buckets are gone, there are others before it
                let expected = Some(&(end_ms * MS, sum.clone()));
                assert_eq!(found.sums.last(), expected, "{n}, repeated: {is_repeated}");
            }
        }
        if n % 20 == 0 {
            fixture.seal();
            (0..20).for_each(|_| fixture.turns());
        }
        if n % 30 == 0 {
            let dir = fixture.stop();
            fixture = Fixture::over(faulty(), dir);
            check_memory(&fixture.owner.sums);
        }
    }
    assert!(failures > 20 && fixture.owner.sums.count() == 2, "{failures} failures");
    fixture.stop();
}

/// Others must not wait for a request with many points of one histogram.
#[test]
fn many_increments_of_a_histogram_are_added_in_slices() {
    const COUNT: u64 = 1000;
    let (journal, mut fixture) = Fixture::new();
    let one = counted(0, 0, 1, 1);
    let all: Vec<_> = (1..=COUNT).map(|n| (7, n * 10, n * 10 + 10, Arc::clone(&one))).collect();
    let mut answer = fixture.submit_histograms(&all);
    let total = |fixture: &Fixture| {
        fixture.owner.sums.get(&TenantId::anonymous(), SeriesKey(7)).map_or(0.0, Accumulator::total)
    };
    let (mut before, mut most) = (0.0, 0.0_f64);
    let outcome = loop {
        fixture.owner.turn(None);
        fixture.clock.advance(5);
        most = most.max(total(&fixture) - before);
        before = total(&fixture);
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert!(most > 0.0 && most <= EXPONENTIALS_MAX as f64, "{most} in one group");
    assert_eq!((outcome.totals.len() as u64, before), (COUNT, COUNT as f64));
    for (number, total) in &outcome.totals {
        let sum = total.as_ref().unwrap();
        let end_ns = (u64::from(*number) + 2) * 10 * MS;
        assert_eq!(sum.read_out(end_ns).sums.last().unwrap().1.count, u64::from(*number) + 1);
    }
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(total(&restarted), COUNT as f64);
    restarted.stop();
}

#[test]
fn the_memory_of_histograms_is_limited() {
    let (journal, mut fixture) = Fixture::new();
    let heads = Arc::clone(&fixture.owner.context.heads);
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (200 << 10)).unwrap();
    let all: Vec<_> = (0..400).map(|key| (key, 10, 20, counted(3, key as i64, BUCKETS_MAX, 1))).collect();
    let mut answer = fixture.submit_histograms(&all);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    let added = outcome.totals.iter().filter(|(_, total)| total.is_ok()).count();
    assert!((30..200).contains(&added), "{added} added");
    assert_eq!((outcome.totals.len(), outcome.postponed), (400, vec![Postponed::SeriesState]));
    check_memory(&fixture.owner.sums);
    drop(taken);
    let mut answer = fixture.submit_histograms(&all);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    assert!(outcome.totals.iter().all(|(_, total)| total.is_ok()) && outcome.postponed.is_empty());
    let used_bytes = heads.sums.used_bytes();
    // large sums are carried over in several records
    fixture.seal();
    (0..50).for_each(|_| fixture.turns());
    assert!(fixture.owner.sums.carrying.running.is_none());
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.count(), 400);
    assert_eq!(restarted.owner.context.heads.sums.used_bytes(), used_bytes);
    check_memory(&restarted.owner.sums);
    restarted.stop();
}
