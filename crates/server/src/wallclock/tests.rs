use super::judge::{Doubt, Judge, Word};
use tables::upkeep::Now;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const SETTLE: i64 = 10 * MINUTE;

/// What is true when a node starts: some day in 2027.
const TRUTH: i64 = 1_800_000_000_000;

/// A judge of a clock that is ahead of the truth by so much.
struct Node {
    judge: Judge,
    ahead_ms: i64,
    heard_ms: i64,
}

impl Node {
    fn start(ahead_ms: i64, found: &[i64]) -> Self {
        let mut node = Self { judge: Judge::new(TRUTH + ahead_ms), ahead_ms, heard_ms: i64::MIN };
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
        let word = Word { heard_ms: self.heard_ms, settle_ms: SETTLE };
        assert_eq!(self.judge.doubt(self.now(steady_ms), word), expected, "after {} min", steady_ms / MINUTE);
    }
}

#[test]
fn a_right_clock_is_believed_once_the_start_is_over() {
    for found in [&[TRUTH - MINUTE][..], &[TRUTH - 23 * HOUR, TRUTH - 90 * DAY]] {
        let mut node = Node::start(0, found);
        node.check(0, Some(Doubt::Settling));
        node.check(SETTLE - 1, Some(Doubt::Settling));
        node.check(SETTLE, None);
        node.found(SETTLE, TRUTH + 5 * MINUTE); // a commit of our own
        node.found(SETTLE, TRUTH - 80 * DAY); // another tenant's table
        node.ahead_ms = 50 * MINUTE; // drifts, or slept
        node.check(DAY, None);
        node.ahead_ms += 50 * MINUTE;
        node.check(2 * DAY, None);
    }
}

#[test]
fn a_clock_ahead_at_the_start_is_believed_after_a_day_or_an_hour_of_agreement() {
    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.check(23 * HOUR, Some(Doubt::Ahead));
    node.check(DAY, None);
    node.found(DAY, TRUTH - MINUTE);
    node.check(DAY, None);

    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.heard_ms = TRUTH + HOUR; // senders whose clock is right
    node.check(HOUR, Some(Doubt::Ahead));
    node.heard_ms += 365 * DAY; // or who live on the same machine
    node.check(HOUR, None);
}

#[test]
fn a_clock_that_is_put_right_is_believed() {
    let mut node = Node::start(365 * DAY, &[TRUTH - MINUTE]);
    node.check(0, Some(Doubt::Ahead));
    node.found(MINUTE, TRUTH + 365 * DAY + MINUTE); // a commit of our own tells nothing
    node.check(MINUTE, Some(Doubt::Ahead));
    node.ahead_ms = 0;
    node.check(2 * MINUTE, Some(Doubt::Settling));
    node.check(SETTLE, None);
    // the same behind, and from the first second of 1970
    for ahead_ms in [-30 * DAY, -TRUTH] {
        let mut node = Node::start(ahead_ms, &[TRUTH - MINUTE, TRUTH - 40 * DAY]);
        node.check(0, Some(Doubt::Behind));
        node.ahead_ms = 0;
        node.check(MINUTE, Some(Doubt::Settling));
        node.check(SETTLE, None);
    }
}

#[test]
fn what_is_found_late_counts_too() {
    let mut node = Node::start(365 * DAY, &[]);
    node.check(SETTLE, None); // the store is away
    node.found(HOUR, TRUTH - 90 * DAY);
    node.check(HOUR, Some(Doubt::Ahead));
    node.ahead_ms = 0;
    node.found(2 * HOUR, TRUTH - MINUTE);
    node.check(2 * HOUR, None);
    node.found(3 * HOUR, TRUTH + 5 * HOUR); // somebody writes whose clock is ahead of ours, or ours is behind
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
        node.ahead_ms = 3 * jump_ms; // again: from here on
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
