use super::judge::{Evidence, Judge, LastTrusted};
use admission::age::Doubt;
use tables::upkeep::Now;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const SETTLE: i64 = 10 * MINUTE;

/// The true time when the node starts, in 2027.
const TRUTH: i64 = 1_800_000_000_000;

/// A judge, and how far the clock that it judges is ahead of the true time.
struct Node {
    judge: Judge,
    ahead_ms: i64,
    sender_lead_ms: Option<i64>,
}

impl Node {
    fn start(ahead_ms: i64, found: &[i64]) -> Self {
        Self::start_again(ahead_ms, LastTrusted::Unknown, found)
    }

    fn start_again(ahead_ms: i64, last_trusted: LastTrusted, found: &[i64]) -> Self {
        let judge = Judge::new(TRUTH + ahead_ms, last_trusted);
        let mut node = Self { judge, ahead_ms, sender_lead_ms: None };
        found.iter().for_each(|date_ms| node.found(0, *date_ms));
        node
    }

    fn now(&self, steady_ms: i64) -> Now {
        Now { wall_ms: TRUTH + steady_ms + self.ahead_ms, steady_ms }
    }

    fn found(&mut self, steady_ms: i64, date_ms: i64) {
        self.judge.found(date_ms, self.now(steady_ms));
    }

    #[track_caller]
    fn check(&mut self, steady_ms: i64, expected: Option<Doubt>) {
        let evidence = Evidence { sender_lead_ms: self.sender_lead_ms, settle_ms: SETTLE };
        assert_eq!(
            self.judge.doubt(self.now(steady_ms), evidence),
            expected,
            "after {} min",
            steady_ms / MINUTE
        );
    }
}

#[test]
fn a_right_clock_is_believed_once_the_start_is_over() {
    for found in [&[TRUTH - MINUTE][..], &[TRUTH - 23 * HOUR, TRUTH - 90 * DAY]] {
        let mut node = Node::start(0, found);
        node.check(0, Some(Doubt::Settling));
        node.check(SETTLE - 1, Some(Doubt::Settling));
        node.check(SETTLE, None);
        node.found(SETTLE, TRUTH + 5 * MINUTE); // the node's own commit
        node.found(SETTLE, TRUTH - 80 * DAY); // another tenant's table
        node.ahead_ms = 50 * MINUTE; // drift, or sleep of the machine
        node.check(DAY, None);
        node.ahead_ms += 50 * MINUTE;
        node.check(2 * DAY, None);
    }
}

#[test]
fn a_clock_ahead_at_the_start_is_believed_later_the_less_agrees_with_it() {
    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.check(23 * HOUR, Some(Doubt::Ahead));
    node.check(DAY, None);
    node.found(DAY, TRUTH - MINUTE);
    node.check(DAY, None);

    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.sender_lead_ms = Some(TRUTH); // senders with a correct clock
    node.check(7 * DAY - 1, Some(Doubt::Ahead));
    node.check(7 * DAY, None);

    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.sender_lead_ms = Some(TRUTH + 365 * DAY); // senders on the same machine
    node.check(HOUR - 1, Some(Doubt::Ahead));
    node.check(HOUR, None);
}

#[test]
fn a_clock_that_is_put_right_is_believed() {
    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.found(MINUTE, TRUTH + 365 * DAY + MINUTE); // the node's own commit proves nothing
    node.check(MINUTE, Some(Doubt::Ahead));
    node.ahead_ms = 0;
    node.check(2 * MINUTE, Some(Doubt::Settling));
    node.check(SETTLE, None);
    // the same holds for a clock that is behind, and for one that starts in the first second of 1970
    for ahead_ms in [-30 * DAY, -TRUTH] {
        let mut node = Node::start(ahead_ms, &[TRUTH - MINUTE, TRUTH - 40 * DAY]);
        node.check(0, Some(Doubt::Behind));
        node.ahead_ms = 0;
        node.check(MINUTE, Some(Doubt::Settling));
        node.check(SETTLE, None);
    }
}

#[test]
fn evidence_found_later_counts_too() {
    let mut node = Node::start(365 * DAY, &[]);
    node.check(SETTLE, None); // the store is not available
    node.found(HOUR, TRUTH - 90 * DAY);
    node.check(HOUR, Some(Doubt::Ahead));
    node.ahead_ms = 0;
    node.found(2 * HOUR, TRUTH - MINUTE);
    node.check(2 * HOUR, None);
    node.found(3 * HOUR, TRUTH + 5 * HOUR); // another writer's clock is ahead, or ours is behind
    node.check(3 * HOUR, Some(Doubt::Behind));
}

#[test]
fn a_clock_that_jumps_is_not_believed_until_it_has_held() {
    for (jump_ms, doubt) in [(2 * HOUR, Doubt::Ahead), (-11 * MINUTE, Doubt::Behind)] {
        let mut node = Node::start(0, &[TRUTH - MINUTE]);
        node.check(SETTLE, None);
        node.ahead_ms = jump_ms;
        node.check(HOUR, Some(doubt));
        node.ahead_ms = 0;
        node.check(2 * HOUR, None);
        node.ahead_ms = jump_ms;
        node.check(3 * HOUR, Some(doubt));
        node.ahead_ms = 3 * jump_ms; // after a second jump, the full time must pass again
        node.check(4 * HOUR, Some(doubt));
        node.check(27 * HOUR, Some(doubt));
        node.check(28 * HOUR, None);
    }
}

#[test]
fn no_clock_is_right_that_is_older_than_the_program() {
    let mut node = Node::start(-TRUTH, &[]);
    node.check(0, Some(Doubt::Behind));
    node.check(23 * HOUR, Some(Doubt::Behind));
    node.ahead_ms = 0;
    node.check(23 * HOUR, None);
}

#[test]
fn a_clock_that_stays_wrong_is_not_confirmed_by_what_it_dated_in_an_earlier_life() {
    let dated = TRUTH + 365 * DAY - MINUTE;
    for last_trusted in [LastTrusted::At(TRUTH - HOUR), LastTrusted::Never] {
        let mut node = Node::start_again(365 * DAY, last_trusted, &[dated, TRUTH - MINUTE]);
        let doubt = if last_trusted == LastTrusted::Never { Doubt::Settling } else { Doubt::Ahead };
        node.check(SETTLE, Some(doubt));
        node.sender_lead_ms = Some(TRUTH);
        node.check(6 * DAY, Some(doubt));
        assert!(!node.judge.is_confirmed() || last_trusted != LastTrusted::Never);
    }
    // if the clock is corrected, it is trusted regardless of the dates that the earlier run has written
    let mut node = Node::start_again(0, LastTrusted::At(TRUTH - HOUR), &[dated, TRUTH - MINUTE]);
    node.check(SETTLE, None);
}

#[test]
fn a_young_data_directory_waits_for_an_hour_of_agreement() {
    let mut node = Node::start_again(0, LastTrusted::Never, &[TRUTH - MINUTE]);
    node.sender_lead_ms = Some(TRUTH);
    node.check(MINUTE, Some(Doubt::Settling));
    node.check(HOUR, Some(Doubt::Settling));
    assert!(!node.judge.is_confirmed());
    node.check(HOUR + MINUTE, None);
    assert!(node.judge.is_confirmed());
}

#[test]
fn senders_are_evidence_if_there_is_no_other() {
    let mut node = Node::start(365 * DAY, &[]);
    node.check(SETTLE, None);
    assert!(!node.judge.is_confirmed(), "nothing was there to expire");
    node.sender_lead_ms = Some(TRUTH);
    node.check(SETTLE, Some(Doubt::Ahead));
    node.ahead_ms = 0;
    node.check(SETTLE, None);
    assert!(node.judge.is_confirmed());
}

#[test]
fn late_samples_do_not_confirm_a_clock_that_is_behind() {
    let mut node = Node::start_again(-3 * HOUR, LastTrusted::At(TRUTH - MINUTE), &[]);
    node.sender_lead_ms = Some(TRUTH - 3 * HOUR);
    node.check(2 * HOUR, Some(Doubt::Behind));
    node.check(23 * HOUR, Some(Doubt::Behind));
    node.ahead_ms = 0;
    node.check(23 * HOUR, None);
}

#[test]
fn senders_that_agreed_with_a_new_node_speak_against_a_clock_that_is_set_back() {
    let mut node = Node::start(0, &[]);
    node.sender_lead_ms = Some(TRUTH);
    node.ahead_ms = -HOUR; // before the first verdict of this run
    node.check(SETTLE, Some(Doubt::Behind));
    node.ahead_ms = 0;
    node.check(SETTLE, None);
}
