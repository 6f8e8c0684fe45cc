//! Groups of submissions: what they add, refuse and write.

use super::*;
use journal::faulty::{Faults, Faulty};
use stdx::rng::Rng;

/// Two scopes of a request may have one series, and deltas of the same size.
#[test]
fn equal_increments_of_one_request_are_not_taken_for_a_repetition() {
    let (_journal, mut fixture) = Fixture::new();
    let twice = [(0, 10, 20, 1.0), (0, 10, 20, 1.0)];
    assert_eq!(fixture.add(&twice), (1, vec![SeriesRefusal::IncrementOverlaps]));
    // a request that is repeated is a repetition
    assert_eq!(fixture.add(&[(0, 20, 30, 1.0), (0, 30, 40, 1.0)]), (2, vec![]));
    assert_eq!(fixture.add(&[(0, 20, 30, 1.0), (0, 30, 40, 1.0)]), (2, vec![]));
    assert_eq!(fixture.samples(0), [(20, 1.0), (30, 2.0), (40, 3.0)]);
    fixture.stop();
}

#[test]
fn submissions_of_one_group_see_each_other() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0)]);
    let answers = [
        fixture.submit(&[(0, 20, 30, 2.0), (1, 20, 30, 1.0)]),
        fixture.submit(&[(0, 20, 30, 2.0), (0, 30, 40, 4.0)]),
        fixture.submit(&[(0, 30, 40, 4.0)]),
    ];
    fixture.turns();
    for (mut answer, samples) in answers.into_iter().zip([2, 2, 1]) {
        let outcome = answer.try_recv().unwrap().unwrap();
        assert_eq!((outcome.samples, outcome.refused_samples), (samples, 0));
    }
    let expected = [(20, 1.0), (30, 3.0), (40, 7.0)];
    assert_eq!(fixture.samples(0), expected);
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.samples(0), expected);
    assert_eq!(restarted.add(&[(0, 30, 40, 4.0), (0, 40, 50, 8.0), (1, 20, 30, 1.0)]), (3, vec![]));
    assert_eq!(restarted.samples(0), [(20, 1.0), (30, 3.0), (40, 7.0), (50, 15.0)]);
    assert_eq!(restarted.samples(1), [(30, 1.0)]);
    restarted.stop();
}

#[test]
fn a_group_that_cannot_be_written_changes_nothing() {
    let journal = Memory::new(JournalId::default(), 1000);
    let mut rng = Rng::announced();
    let faults = Faults { append_error: 0.2, sync_error: 0.3, ..Faults::default() };
    let faulty = Faulty::new(Box::new(journal), faults, rng.next_u64());
    let mut fixture = Fixture::over(Box::new(faulty), tempfile::tempdir().unwrap());
    let (mut sums, mut failures) = ([0.0; 3], 0);
    for n in 1..=200 {
        let increments: Vec<_> = (0..3).map(|i| (i, n * 10, n * 10 + 10, (n + i as u64) as f64)).collect();
        loop {
            let mut answer = fixture.submit(&increments);
            fixture.turns();
            match answer.try_recv().expect("an answer") {
                Ok(outcome) => {
                    assert_eq!((outcome.samples, outcome.refused_samples), (3, 0));
                    break;
                }
                Err(_) => failures += 1,
            }
        }
        for (i, _, end_ms, value) in increments {
            sums[i] += value;
            assert_eq!(fixture.samples(i).last(), Some(&(end_ms as i64, sums[i])));
        }
    }
    assert!(failures > 20, "{failures} failures");
    fixture.stop();
}

#[test]
fn refused_increments_are_named_and_the_others_stored() {
    let (_, mut fixture) = Fixture::new();
    assert_eq!(fixture.add(&[(0, 10, 20, 1.0), (1, 10, 20, 1.0)]), (2, vec![]));
    let (samples, errors) = fixture.add(&[(0, 15, 30, 1.0), (1, 20, 30, 1.0), (0, 20, 30, f64::INFINITY)]);
    assert_eq!(samples, 1);
    assert_eq!(errors, [SeriesRefusal::IncrementOverlaps, SeriesRefusal::IncrementNotFinite]);
    assert_eq!((fixture.samples(0), fixture.samples(1)), (vec![(20, 1.0)], vec![(20, 1.0), (30, 2.0)]));
    fixture.stop();
}

/// Increments in slices, of which some are late and some are refused.
#[test]
fn large_submissions_are_added_in_slices() {
    let (_, mut fixture) = Fixture::new();
    fixture.add(&[(0, 1, 2, 1.0)]);
    let count = 100_000_u64;
    let increments: Vec<_> = (1..=count).map(|n| (0, n * 2, n * 2 + 2, 1.0)).collect();
    let mut answer = fixture.submit(&increments);
    let outcome = loop {
        fixture.turns();
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert_eq!((outcome.samples, outcome.refused_samples), (count, 0));
    let samples = fixture.samples(0);
    assert_eq!(samples.len() as u64, count + 1);
    assert_eq!(samples.last(), Some(&((count * 2 + 2) as i64, (count + 1) as f64)));
    fixture.stop();
}

/// A crash may keep only the first records of a group.
#[test]
fn each_record_has_the_sums_as_of_its_last_samples() {
    const COUNT: u64 = 25_000;
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 0, 1, 1.0), (1, 0, 1, 1.0)]);
    let from = journal.durable_end();
    // more increments of two series than a record has sums, some of them behind gaps
    let mut increments = Vec::new();
    for n in 1..=COUNT {
        let gap = u64::from(n % 5000 == 0);
        increments.push(((n % 2) as usize, n + gap, n + 1, if gap > 0 { 0.0 } else { 1.0 }));
    }
    let mut answer = fixture.submit(&increments);
    let outcome = loop {
        fixture.turns();
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert_eq!((outcome.samples, outcome.refused_samples), (COUNT, 0));
    let mut reader = journal.read(from).unwrap();
    let (mut record, mut records, mut newest) = (journal::Record::new(), 0, BTreeMap::new());
    while let Some(item) = reader.next().unwrap() {
        let journal::Item::Entry(entry) = item else { panic!("{item:?}") };
        record.decode(entry.payload).unwrap();
        let ValuesRef::Floats(values) = record.values.as_ref() else { panic!("histograms") };
        for ((series, time_ms), sum) in record.refs.iter().zip(&record.timestamps).zip(values) {
            newest.insert(*series, (*time_ms as u64 * MS, *sum));
        }
        let found: BTreeMap<_, _> = record.sums.iter().map(|(key, sum)| (*key, sum)).collect();
        let mut found: Vec<_> = found.values().map(|sum| (sum.newest_ns(), sum.total())).collect();
        let mut expected: Vec<_> = newest.values().copied().collect();
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(found, expected, "record {records}");
        records += 1;
    }
    assert!(records > 1, "all of it is in one record");
    fixture.stop();
}

/// Late increments become up to nine samples each, and the sums before them are kept until the group is durable.
#[test]
fn the_work_of_late_increments_is_counted() {
    let (_, mut fixture) = Fixture::new();
    let account = fixture.owner.context.heads.pieces.clone();
    let mut next = Vec::new();
    // seven gaps in each series
    for n in 1..=8 {
        next = (0..1000).map(|i| (i, n * 20, n * 20 + 10, 1.0)).collect();
        assert_eq!(fixture.add(&next), (1000, vec![]));
    }
    let before_bytes = account.used_bytes();
    let late: Vec<_> = next.iter().map(|(i, ..)| (*i, 30, 31, 1.0)).collect();
    let mut answer = fixture.submit(&late);
    let mut most = 0;
    let outcome = loop {
        // a turn writes one slice
        fixture.owner.turn(None);
        fixture.clock.advance(5);
        let samples: usize = (0..1000).map(|i| fixture.samples(i).len()).sum();
        most = most.max(samples.saturating_sub(8000));
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
        assert!(samples - 8000 < 1000, "all of them are in one group");
    };
    assert_eq!((outcome.samples, most), (1000, 1000));
    check_memory(&fixture.owner.sums);
    assert!(account.peak_bytes() > before_bytes + 300 * 7 * SAMPLE_BYTES as u64);
    fixture.stop();
}
