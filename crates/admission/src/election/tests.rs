use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

const FAILOVER: Duration = Duration::from_secs(30);

fn at(began: Instant, ms: u64) -> Arrival {
    Arrival { now: began + Duration::from_millis(ms), now_ms: ms as i64, failover: FAILOVER }
}

#[test]
fn another_replica_takes_over_exactly_after_the_failover_time() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    let mut vote = |replica, ms| {
        let vote = elections.vote("c", replica, at(began, ms));
        if vote != Vote::Duplicate {
            elections.accepted("c", ms as i64);
        }
        vote
    };
    assert_eq!(vote("a", 0), Vote::Elected(i64::MIN));
    assert_eq!(vote("b", 1), Vote::Duplicate);
    assert_eq!(vote("a", 10_000), Vote::After(i64::MIN));
    assert_eq!(vote("b", 39_999), Vote::Duplicate);
    assert_eq!(vote("b", 40_000), Vote::Elected(10_000));
    assert_eq!(vote("a", 40_001), Vote::Duplicate, "a is not elected again while b sends");
    assert_eq!(vote("b", 50_000), Vote::After(10_000));
    assert_eq!(vote("a", 80_000), Vote::Elected(50_000));
    let (cluster, election) = elections.iter().next().unwrap();
    assert_eq!((cluster, &*election.replica, election.failovers), ("c", "a", 2));
    assert_eq!(election.since, began + Duration::from_secs(80));
}

#[test]
fn an_elected_replica_may_pause_if_no_other_is_heard() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    assert_eq!(elections.vote("c", "a", at(began, 0)), Vote::Elected(i64::MIN));
    elections.accepted("c", 0);
    // after a long pause, the same replica sends what it has collected
    assert_eq!(elections.vote("c", "a", at(began, 1_000_000)), Vote::After(i64::MIN));
    assert_eq!(elections.vote("c", "b", at(began, 1_000_001)), Vote::Duplicate);
    assert_eq!(elections.vote("d", "b", at(began, 1_000_001)), Vote::Elected(i64::MIN), "another cluster");
    assert_eq!(elections.len(), 2);
}

#[test]
fn neither_a_sample_from_the_future_nor_a_clock_set_back_holds_up_a_failover() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    elections.vote("c", "a", at(began, 0));
    elections.accepted("c", 600_000);
    assert_eq!(elections.vote("c", "b", at(began, 30_000)), Vote::Elected(0));
    elections.accepted("c", 31_000);
    let set_back = Arrival { now_ms: -3_600_000, ..at(began, 60_000) };
    assert_eq!(elections.vote("c", "a", set_back), Vote::Elected(-3_630_000));
    let overflow = Arrival { now_ms: i64::MIN, now: began + Duration::from_secs(1 << 40), ..set_back };
    assert_eq!(elections.vote("c", "b", overflow), Vote::Elected(i64::MIN));
}

#[test]
fn clusters_are_forgotten_when_nothing_was_heard_for_an_hour() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    elections.vote("old", "a", at(began, 0));
    elections.vote("new", "a", at(began, 1000));
    let after = |seconds| began + Duration::from_secs(seconds);
    elections.forget_silent(after(3599), FAILOVER);
    assert_eq!(elections.len(), 2);
    elections.forget_silent(after(3600), Duration::from_secs(7200));
    assert_eq!(elections.len(), 2, "clusters are kept for at least the failover time");
    elections.forget_silent(after(3600), FAILOVER);
    assert!(elections.contains("new") && !elections.contains("old"));
    elections.forget_silent(after(3601), FAILOVER);
    assert!(elections.is_empty());
}

/// The time after which the replica's samples are accepted. `None` if none of them are.
fn after(vote: Vote) -> Option<i64> {
    match vote {
        Vote::Elected(after_ms) | Vote::After(after_ms) => Some(after_ms),
        Vote::Duplicate => None,
    }
}

/// Three replicas send at random times, with pauses. The samples accepted from one must never overlap with
/// those of another.
#[test]
fn replicas_never_mix() {
    let mut rng = Rng::announced();
    let began = Instant::now();
    let mut failovers = 0;
    for _ in 0..300 {
        let mut elections = Elections::default();
        let (mut now_ms, mut elected) = (1_000_000, None);
        let mut next_ms = BTreeMap::from(["a", "b", "c"].map(|replica| (replica, now_ms)));
        let mut newest_of_others_ms = i64::MIN;
        let mut newest_ms = i64::MIN;
        for _ in 0..200 {
            now_ms += if rng.chance(0.05) { rng.below(60_000) } else { rng.below(8000) };
            let replica = ["a", "b", "c"][rng.below(3) as usize];
            // each replica has one sample per second, and sends some of those it has not sent yet
            let first_ms = next_ms[replica];
            let until_ms = first_ms + rng.below(now_ms - first_ms + 1);
            next_ms.insert(replica, until_ms);
            let vote = elections.vote("c", replica, at(began, now_ms));
            let accepted: Vec<_> = (first_ms as i64..until_ms as i64)
                .step_by(1000)
                .filter(|sample_ms| after(vote).is_some_and(|after_ms| *sample_ms > after_ms))
                .collect();
            match (vote, elected) {
                (Vote::Duplicate, Some((last, heard_ms))) => {
                    assert!(last != replica && now_ms < heard_ms + 30_000);
                    continue;
                }
                (Vote::Duplicate, None) => panic!("the first replica is a duplicate"),
                (Vote::Elected(_), Some((last, heard_ms))) => {
                    assert!(last != replica);
                    assert!(now_ms >= heard_ms + 30_000, "{replica} after {last}");
                    newest_of_others_ms = newest_ms;
                    failovers += 1;
                }
                (Vote::Elected(_), None) => {}
                (Vote::After(_), last) => assert_eq!(last.map(|(last, _)| last), Some(replica)),
            }
            elected = Some((replica, now_ms));
            if let (Some(oldest_ms), Some(last_ms)) = (accepted.first(), accepted.last()) {
                assert!(*oldest_ms > newest_of_others_ms, "{replica} at {now_ms}");
                newest_ms = newest_ms.max(*last_ms);
                elections.accepted("c", *last_ms);
            }
            // samples that no other replica can have sent are not treated as duplicates
            assert!(after(vote).is_some_and(|after_ms| after_ms <= newest_of_others_ms));
        }
    }
    assert!(failovers > 100, "{failovers}");
}
