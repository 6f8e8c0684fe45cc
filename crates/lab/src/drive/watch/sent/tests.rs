use super::*;
use crate::generate::plan::tests::small;
use crate::generate::values::ValueModel;

const BEGIN_MS: i64 = 1_795_284_000_000;

/// The slot and the series of it whose values are looked at.
const SLOT: usize = 1;
const INDEX: u32 = 3;

/// A plan whose values are different in each round.
fn plan() -> Plan {
    Plan { values: ValueModel::Random, ..small() }
}

/// A slot of which a round is sent at fixed distances.
struct Load {
    plan: Plan,
    times: SentTimes,
    rounds_per_s: f64,
    sent: u32,
}

impl Load {
    fn new(rounds_per_s: f64, commit_ms: i64) -> Self {
        let plan = plan();
        let times = SentTimes::new(plan.slots_count(), commit_ms);
        Self { plan, times, rounds_per_s, sent: 0 }
    }

    /// When a round is sent, in ms since the beginning.
    fn sent_ms(&self, round: u32) -> f64 {
        f64::from(round) * 1_000.0 / self.rounds_per_s
    }

    /// Sends all rounds up to a time.
    fn send_until(&mut self, to_ms: i64) {
        while self.sent_ms(self.sent) <= to_ms as f64 {
            self.times.note(SLOT, self.sent, BEGIN_MS + self.sent_ms(self.sent) as i64);
            self.sent += 1;
        }
    }

    /// The latest round that was sent at a time.
    fn round_at(&self, at_ms: i64) -> u32 {
        (at_ms as f64 * self.rounds_per_s / 1_000.0) as u32
    }

    /// What is known of the value of a round, which the target has stored with this time.
    fn judge(&self, round: u32, at_ms: i64) -> Sent {
        self.judge_value(value_of(&self.plan, SLOT, INDEX, round), at_ms)
    }

    fn judge_value(&self, value: f64, at_ms: i64) -> Sent {
        let value = Value { slot: SLOT, index: INDEX, at_ms: BEGIN_MS + at_ms, value };
        self.times.rounds_of(&self.plan, vec![value])[0].1
    }
}

/// The target stores the latest value at the end of each second, and the lab looks at it once it is durable.
#[test]
fn rounds_are_found_at_each_rate_and_commit_interval() {
    for (rounds_per_s, commit_ms) in
        [(0.01, 1_000), (2.0, 1_000), (2.0, 60_000), (200.0, 1_000), (1_000.0, 20_000), (20_000.0, 1_000)]
    {
        let mut load = Load::new(rounds_per_s, commit_ms);
        for look in 0..20 {
            let at_ms = commit_ms + 5_000 + look * 1_000;
            load.send_until(at_ms + commit_ms + 500);
            // some datagrams are a tenth of a second late
            let round = load.round_at(at_ms - 100 * (look % 2));
            assert_eq!(load.judge(round, at_ms), Sent::Round(round), "{rounds_per_s}/s, {commit_ms} ms");
        }
        let spans = load.times.of(SLOT).spans.len();
        assert!(spans <= SPANS_MAX, "{spans}");
    }
}

#[test]
fn values_of_intervals_that_are_stamped_with_their_beginning_are_early() {
    for (rounds_per_s, interval_ms) in [(0.5, 10_000), (2.0, 10_000), (200.0, 60_000), (1_000.0, 10_000)] {
        let mut load = Load::new(rounds_per_s, 1_000);
        let begin_ms = 200_000;
        load.send_until(begin_ms + interval_ms + 1_500);
        let round = load.round_at(begin_ms + interval_ms - 10);
        let early = load.judge(round, begin_ms);
        assert!(matches!(early, Sent::Early(found, _) if found == round), "{rounds_per_s}/s: {early:?}");
    }
    // a clock that is five seconds behind
    let mut load = Load::new(2.0, 1_000);
    load.send_until(60_000);
    assert_eq!(load.judge(118, 54_000), Sent::Early(118, 5_000));
}

#[test]
fn only_what_a_later_round_should_have_replaced_is_stale() {
    for rounds_per_s in [2.0, 200.0, 5_000.0] {
        let mut load = Load::new(rounds_per_s, 1_000);
        load.send_until(21_500);
        let fresh = load.round_at(18_200);
        assert_eq!(load.judge(fresh, 20_000), Sent::Round(fresh), "{rounds_per_s}/s");
        // no datagram has arrived for five seconds
        let stale = load.round_at(15_000);
        assert_eq!(load.judge(stale, 20_000), Sent::Stale(stale), "{rounds_per_s}/s");
    }
    // nothing was sent later, so that the value stays right
    let mut load = Load::new(2.0, 1_000);
    load.send_until(10_000);
    assert_eq!(load.judge(20, 80_000), Sent::Round(20));
}

#[test]
fn a_value_is_wrong_only_if_it_is_of_no_round() {
    let foreign = 0.5;
    let mut load = Load::new(2.0, 1_000);
    assert_eq!(load.judge_value(foreign, 0), Sent::Before, "nothing was sent");
    load.send_until(30_000);
    assert_eq!(load.judge_value(foreign, 1_500), Sent::Before, "perhaps of an earlier run");
    assert_eq!(load.judge_value(foreign, 20_000), Sent::Never);
    let mut bits = value_of(&load.plan, SLOT, INDEX, 39).to_bits();
    bits ^= 1;
    assert_eq!(load.judge_value(f64::from_bits(bits), 20_000), Sent::Never);
    // after the window, all rounds are searched
    load.send_until(300_000);
    assert_eq!(load.judge_value(foreign, 299_000), Sent::Never);
    assert_eq!(load.judge(3, 299_000), Sent::Stale(3));
    // but it is not known when they were sent
    assert_eq!(load.judge(3, 100_000), Sent::Unknown);
    // there are too many rounds to compare with all of them
    let mut load = Load::new(20_000.0, 1_000);
    load.send_until(15_000);
    assert_eq!(load.judge_value(foreign, 13_000), Sent::Unknown);
}

#[test]
fn a_course_says_when_values_are_expected() {
    let mut load = Load::new(0.5, 1_000);
    load.send_until(60_000);
    let course = load.times.course(SLOT);
    let expected = |interval_ms, early_ms| {
        let found = course.expected(interval_ms, early_ms);
        found.map(|(first_ms, last_ms)| (first_ms - BEGIN_MS, last_ms - BEGIN_MS))
    };
    assert_eq!(expected(2_000, 0), Some((2_000, 60_000)));
    assert_eq!(expected(10_000, 0), Some((2_000, 68_000)));
    assert_eq!(expected(10_000, 9_500), Some((2_000, 58_500)));
    assert_eq!(expected(1_000, 0), None, "an interval may have no round");
    assert!(load.times.course(0).expected(2_000, 0).is_none(), "nothing was sent");
}

#[test]
fn the_nearest_rounds_come_first() {
    let rounds = |from, before, centre| outward(from, before, centre).collect::<Vec<_>>();
    assert_eq!(rounds(2, 7, 4), [4, 3, 5, 2, 6]);
    assert_eq!(rounds(2, 5, 9), [4, 3, 2]);
    assert_eq!(rounds(2, 5, 0), [2, 3, 4]);
    assert_eq!(rounds(3, 3, 3), [0; 0]);
}
