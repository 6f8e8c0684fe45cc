use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

const FAILOVER: Duration = Duration::from_secs(30);

fn at(began: Instant, ms: u64) -> Arrival {
    Arrival { now: began + Duration::from_millis(ms), now_ms: ms as i64, failover: FAILOVER }
}

/// Votes, and ends the request at the same time if the replica is elected.
fn request(elections: &mut Elections, replica: &str, arrival: Arrival, end: End) -> Vote {
    let vote = elections.vote("c", replica, arrival);
    if after(vote).is_some() {
        elections.ended("c", replica, end, arrival.now);
    }
    vote
}

#[test]
fn another_replica_takes_over_exactly_after_the_failover_time() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    let mut vote = |replica, ms| request(&mut elections, replica, at(began, ms), End::Stored(ms as i64));
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
fn the_time_until_a_failover_is_known_between_requests() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    let until =
        |elections: &Elections, ms| elections.until_failover("c", at(began, ms)).map(|time| time.as_secs());
    assert_eq!(until(&elections, 0), None, "the cluster is not known");
    assert_eq!(elections.vote("c", "a", at(began, 0)), Vote::Elected(i64::MIN));
    assert_eq!(until(&elections, 1_000), None, "a request is in progress");
    elections.ended("c", "a", End::Repeated, began + Duration::from_secs(2));
    assert_eq!([2_000, 12_000, 99_000].map(|ms| until(&elections, ms)), [Some(30), Some(20), Some(0)]);
}

#[test]
fn an_elected_replica_may_pause_if_no_other_is_heard() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    assert_eq!(request(&mut elections, "a", at(began, 0), End::Stored(0)), Vote::Elected(i64::MIN));
    // after a long pause, the same replica sends what it has collected
    let late = at(began, 1_000_000);
    assert_eq!(request(&mut elections, "a", late, End::Stored(1_000_000)), Vote::After(i64::MIN));
    assert_eq!(elections.vote("c", "b", at(began, 1_000_001)), Vote::Duplicate);
    assert_eq!(elections.vote("d", "b", at(began, 1_000_001)), Vote::Elected(i64::MIN), "another cluster");
    assert_eq!(elections.len(), 2);
}

#[test]
fn neither_a_sample_from_the_future_nor_a_clock_set_back_holds_up_a_failover() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(600_000));
    assert_eq!(request(&mut elections, "b", at(began, 30_000), End::Stored(31_000)), Vote::Elected(0));
    let set_back = Arrival { now_ms: -3_600_000, ..at(began, 60_000) };
    assert_eq!(request(&mut elections, "a", set_back, End::Nothing), Vote::Elected(-3_630_000));
    let overflow = Arrival { now_ms: i64::MIN, now: began + Duration::from_secs(1 << 40), ..set_back };
    assert_eq!(elections.vote("c", "b", overflow), Vote::Elected(i64::MIN));
}

/// If the sender goes away meanwhile, nobody else has the samples.
#[test]
fn samples_may_be_needed_while_a_request_of_the_elected_replica_waits() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    let (a, b) =
        (|ms| at(began, ms), |elections: &mut Elections, ms| elections.vote("c", "b", at(began, ms)));
    request(&mut elections, "a", a(0), End::Stored(0));
    for (ms, before) in [(1000, Vote::Duplicate), (2000, Vote::UndecidedFrom(1))] {
        elections.vote("c", "a", a(ms));
        assert_eq!(b(&mut elections, ms), before);
        elections.waits("c", "a", ms as i64 - 500);
        assert_eq!(b(&mut elections, ms), Vote::UndecidedFrom(1), "nothing newer than 0 is stored");
    }
    // another request, and one of the two
    request(&mut elections, "a", a(3000), End::Stored(3000));
    assert_eq!(b(&mut elections, 3000), Vote::UndecidedFrom(500));
    elections.waited("c", "a", 500);
    elections.ended("c", "a", End::Stored(1000), a(4000).now);
    assert_eq!(b(&mut elections, 100_000), Vote::UndecidedFrom(1500), "no failover while it waits");
    elections.waited("c", "a", 1500);
    elections.ended("c", "a", End::Repeated, a(100_000).now);
    assert_eq!(b(&mut elections, 100_001), Vote::Undecided, "its sender has gone");
    assert_eq!(b(&mut elections, 130_000), Vote::Elected(3000));
    // of a replica that is not elected
    elections.waits("c", "a", 0);
    elections.waited("d", "a", 0);
    elections.ended("c", "b", End::Stored(4000), a(130_000).now);
    assert_eq!(elections.vote("c", "a", a(130_001)), Vote::Duplicate);
}

/// Otherwise, the sender of the other replica would repeat its request for ever.
#[test]
fn older_samples_are_decided_although_there_is_always_a_request_that_waits() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(0));
    for ms in (0..100_000_u32).step_by(1000) {
        // each request has the samples of a second, and waits until after the next one has begun to wait
        elections.vote("c", "a", at(began, ms.into()));
        elections.waits("c", "a", ms.into());
        if ms >= 1000 {
            let before_ms = i64::from(ms - 1000);
            let expected = (before_ms - 999).max(0);
            assert_eq!(elections.vote("c", "b", at(began, ms.into())), Vote::UndecidedFrom(expected));
            elections.waited("c", "a", before_ms);
            elections.ended("c", "a", End::Stored(before_ms), at(began, ms.into()).now);
        }
        // everything up to what is stored is decided
        let expected = (i64::from(ms) - 999).max(0);
        assert_eq!(elections.vote("c", "b", at(began, ms.into())), Vote::UndecidedFrom(expected));
    }
}

/// The other replica scrapes between the elected one's requests, so its samples are newer than what is stored, and older than what
/// waits. They may be the only ones if the request that waits is never stored.
#[test]
fn samples_between_those_stored_and_those_that_wait_may_be_needed() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(480));
    elections.vote("c", "a", at(began, 1));
    elections.waits("c", "a", 540);
    elections.vote("c", "a", at(began, 2));
    elections.waits("c", "a", 600);
    elections.waited("c", "a", 540);
    elections.ended("c", "a", End::Stored(540), at(began, 3).now);
    // 540 and older are duplicates, 570 is not
    assert_eq!(elections.vote("c", "b", at(began, 4)), Vote::UndecidedFrom(541));
    elections.vote("c", "a", at(began, 5));
    elections.waits("c", "a", 660);
    elections.waited("c", "a", 600);
    elections.ended("c", "a", End::Stored(600), at(began, 6).now);
    assert_eq!(elections.vote("c", "b", at(began, 7)), Vote::UndecidedFrom(601), "570 is a duplicate now");
    elections.waited("c", "a", 660);
    elections.ended("c", "a", End::Unknown(660), at(began, 8).now);
    assert_eq!(elections.vote("c", "b", at(began, 9)), Vote::Undecided);
}

#[test]
fn a_replica_of_which_nothing_is_stored_does_not_stay_elected() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(0));
    let refused = |elections: &mut Elections, ms| request(elections, "a", at(began, ms), End::Refused);
    assert_eq!(elections.vote("c", "b", at(began, 1)), Vote::Duplicate);
    for ms in (5000..30_000).step_by(5000) {
        assert_eq!(refused(&mut elections, ms), Vote::After(i64::MIN));
        assert_eq!(elections.vote("c", "b", at(began, ms)), Vote::Undecided, "its samples may be needed");
    }
    assert_eq!(request(&mut elections, "b", at(began, 30_000), End::Stored(29_000)), Vote::Elected(0));
    assert_eq!(elections.vote("c", "a", at(began, 30_001)), Vote::Duplicate);
}

/// The replica has its samples and sends them again, so a failover would only lose what the other does not have any more.
#[test]
fn a_replica_that_is_refused_for_now_stays_elected_while_it_sends() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(0));
    for ms in (5000..600_000).step_by(5000) {
        assert_eq!(request(&mut elections, "a", at(began, ms), End::Repeated), Vote::After(i64::MIN));
        assert_eq!(elections.vote("c", "b", at(began, ms + 1)), Vote::Undecided);
    }
    let mut other = Elections(elections.0.clone());
    assert_eq!(request(&mut elections, "a", at(began, 600_000), End::Stored(600_000)), Vote::After(i64::MIN));
    assert_eq!(elections.vote("c", "b", at(began, 600_001)), Vote::Duplicate);
    // if it stops instead, the other takes over, from the last sample that was stored
    assert_eq!(other.vote("c", "b", at(began, 624_999)), Vote::Undecided);
    assert_eq!(other.vote("c", "b", at(began, 625_000)), Vote::Elected(0));
}

/// Its clock may be behind, so that all its samples are older than those of the replica from which it took over.
#[test]
fn a_replica_that_only_sends_duplicates_does_not_stay_elected() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    request(&mut elections, "a", at(began, 0), End::Stored(0));
    assert_eq!(request(&mut elections, "b", at(began, 30_000), End::Nothing), Vote::Elected(0));
    for ms in (35_000..60_000).step_by(5000) {
        assert_eq!(request(&mut elections, "b", at(began, ms), End::Nothing), Vote::After(0));
        assert_eq!(elections.vote("c", "a", at(began, ms)), Vote::Undecided);
    }
    assert!(matches!(elections.vote("c", "a", at(began, 60_000)), Vote::Elected(_)));
}

#[test]
fn a_replica_is_not_silent_while_its_request_is_being_stored() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    assert_eq!(elections.vote("c", "a", at(began, 0)), Vote::Elected(i64::MIN));
    assert_eq!(elections.vote("c", "b", at(began, 1)), Vote::Undecided, "nothing of a is stored yet");
    assert_eq!(elections.vote("c", "a", at(began, 2)), Vote::After(i64::MIN));
    elections.ended("c", "a", End::Stored(5), began);
    assert_eq!(
        elections.vote("c", "b", at(began, 90_000)),
        Vote::Duplicate,
        "a second request has not ended"
    );
    // its sender has gone, but the samples may be durable
    elections.ended("c", "a", End::Unknown(7), began + Duration::from_secs(100));
    assert_eq!(elections.vote("c", "b", at(began, 129_999)), Vote::Undecided);
    assert_eq!(elections.vote("c", "b", at(began, 130_000)), Vote::Elected(7));
    // this has no effect on the election of another replica
    elections.ended("c", "a", End::Stored(200_000), began + Duration::from_secs(150));
    elections.ended("c", "b", End::Refused, began + Duration::from_secs(150));
    assert_eq!(elections.vote("c", "a", at(began, 160_000)), Vote::Elected(7));
}

#[test]
fn clusters_are_forgotten_when_nothing_was_heard_for_an_hour() {
    let (began, mut elections) = (Instant::now(), Elections::default());
    let after = |seconds| began + Duration::from_secs(seconds);
    for (cluster, seconds) in [("old", 0), ("new", 1)] {
        elections.vote(cluster, "a", at(began, seconds * 1000));
        elections.ended(cluster, "a", End::Stored(0), after(seconds));
    }
    elections.vote("busy", "a", at(began, 0));
    elections.forget_silent(after(3599), FAILOVER);
    assert_eq!(elections.len(), 3);
    elections.forget_silent(after(3600), Duration::from_secs(7200));
    assert_eq!(elections.len(), 3, "clusters are kept for at least the failover time");
    elections.forget_silent(after(3600), FAILOVER);
    assert!(elections.contains("new") && !elections.contains("old"));
    elections.forget_silent(after(3601), FAILOVER);
    assert!(elections.contains("busy") && elections.len() == 1, "a request of it is being stored");
    elections.ended("busy", "a", End::Refused, after(3602));
    elections.forget_silent(after(3602), FAILOVER);
    assert!(elections.is_empty());
}

/// The time after which the replica's samples are accepted. `None` if none of them are.
fn after(vote: Vote) -> Option<i64> {
    match vote {
        Vote::Elected(after_ms) | Vote::After(after_ms) => Some(after_ms),
        Vote::Duplicate | Vote::Undecided | Vote::UndecidedFrom(_) => None,
    }
}

/// Three replicas send at random times, with pauses, and some requests are refused. The samples stored from one must never
/// overlap with those of another.
#[test]
fn replicas_never_mix() {
    let mut rng = Rng::announced();
    let began = Instant::now();
    let mut failovers = 0;
    for _ in 0..300 {
        let mut elections = Elections::default();
        let (mut now_ms, mut elected, mut is_stored) = (1_000_000, None, false);
        let mut next_ms = BTreeMap::from(["a", "b", "c"].map(|replica| (replica, now_ms)));
        let mut newest_of_others_ms = i64::MIN;
        let mut newest_ms = i64::MIN;
        for _ in 0..200 {
            now_ms += if rng.chance(0.05) { rng.below(60_000) } else { rng.below(8000) };
            let replica = ["a", "b", "c"][rng.below(3) as usize];
            // each replica has one sample per second, and sends some of those it has not sent yet
            let first_ms = next_ms[replica];
            let until_ms = first_ms + rng.below(now_ms - first_ms + 1);
            let vote = elections.vote("c", replica, at(began, now_ms));
            let accepted: Vec<_> = (first_ms as i64..until_ms as i64)
                .step_by(1000)
                .filter(|sample_ms| after(vote).is_some_and(|after_ms| *sample_ms > after_ms))
                .collect();
            match (vote, elected) {
                (Vote::Duplicate | Vote::Undecided, Some((last, heard_ms))) => {
                    assert!(last != replica && now_ms < heard_ms + 30_000);
                    assert_eq!(vote == Vote::Duplicate, is_stored);
                    if is_stored {
                        next_ms.insert(replica, until_ms); // otherwise, the replica keeps these samples
                    }
                    continue;
                }
                (Vote::Duplicate | Vote::Undecided, None) => panic!("the first replica is a duplicate"),
                (Vote::Elected(_), Some((last, heard_ms))) => {
                    assert!(last != replica);
                    assert!(now_ms >= heard_ms + 30_000, "{replica} after {last}");
                    newest_of_others_ms = newest_ms;
                    (elected, is_stored) = (Some((replica, now_ms)), false);
                    failovers += 1;
                }
                (Vote::Elected(_), None) => elected = Some((replica, now_ms)),
                (Vote::UndecidedFrom(_), _) => panic!("no request waits"),
                (Vote::After(_), last) => assert_eq!(last.map(|(last, _)| last), Some(replica)),
            }
            let end = match accepted.last() {
                None => End::Nothing,
                Some(_) if rng.chance(0.1) => End::Refused,
                Some(_) if rng.chance(0.1) => End::Repeated,
                Some(last_ms) => End::Stored(*last_ms),
            };
            elections.ended("c", replica, end, at(began, now_ms).now);
            let was_elected_now = matches!(vote, Vote::Elected(_));
            if was_elected_now || end != End::Refused && (end != End::Nothing || is_stored) {
                elected = Some((replica, now_ms));
            }
            if end != End::Repeated {
                next_ms.insert(replica, until_ms);
            }
            is_stored = matches!(end, End::Stored(_)) || (end == End::Nothing && is_stored);
            if let (Some(oldest_ms), End::Stored(last_ms)) = (accepted.first(), end) {
                assert!(*oldest_ms > newest_of_others_ms, "{replica} at {now_ms}");
                newest_ms = newest_ms.max(last_ms);
            }
            // samples that no other replica can have sent are not treated as duplicates
            assert!(after(vote).is_some_and(|after_ms| after_ms <= newest_of_others_ms));
        }
    }
    assert!(failovers > 100, "{failovers}");
}
