//! What enters a group: small submissions whole, large ones a slice at a time.
//!
//! ```text
//!   submission ─▶ admit: leave out the too old, estimate ─┬─ small ─▶ group
//!                                                         └─ large ─▶ slicing ─ a slice a turn ─▶ group
//! ```
//!
//! A group is bounded to a few milliseconds of work. A submission that costs more is stored in slices, one in a group, in
//! turn with others. Each slice is durable before it is visible, like any group; the answer comes after the last one.

use super::{KNOWN_LATELY, Owner};
use crate::ingest::submission::Submission;
use head::TenantHead;
use model::{SeriesError, SeriesRef};
use protocol::labels::describe_labels;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The cost, in in-order samples, up to which a submission enters a group whole: some three milliseconds.
const COST_MAX: usize = 1 << 16;

/// A late sample costs as much as so many in order: a lookup in a tree and its share of a rewritten chunk.
const LATE_COST: usize = 12;

/// While requests of known series come in, slices pause for so many times as long as the last one took.
const PAUSE_FACTOR: u32 = 2;

/// Submissions that are stored in slices, in order of their turns.
#[derive(Debug)]
pub(super) struct Slicing {
    waiting: VecDeque<Submission>,
    /// When the next slice may be taken.
    due: Instant,
    /// When the slice in the current group was taken.
    began: Option<Instant>,
}

impl Slicing {
    pub(super) const fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), due: now, began: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When there is something to do again.
    pub(super) fn wants_turn(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.due)
    }

    /// A submission that is not stored to its end waits for its next turn.
    pub(super) fn waits(&mut self, submission: Submission) {
        self.waiting.push_back(submission);
    }
}

impl Owner {
    /// Takes a submission whose series all exist: into the group, or to those that are stored in slices. Says what it
    /// adds to the group, in samples in order.
    pub(super) fn admit(&mut self, mut submission: Submission) -> usize {
        self.leave_out_metadata(&mut submission);
        let others = submission.metadata.len() + submission.exemplars.len();
        let mut cost = Cost { total: others, last: None };
        self.leave_out_the_too_old(&mut submission, &mut cost);
        if cost.total > COST_MAX {
            self.slicing.waits(submission);
            return 0;
        }
        submission.slice = 0..submission.refs.len();
        self.group.push(submission);
        cost.total
    }

    /// Adds the next slice of those that wait to the group, if its time has come.
    pub(super) fn take_slice(&mut self) {
        let now = self.node.clock.instant();
        if now < self.slicing.due && !self.stopping {
            return;
        }
        let Some(mut submission) = self.slicing.waiting.pop_front() else { return };
        submission.slice = submission.slice.end..self.end_of_slice(&submission);
        self.slicing.began = Some(now);
        self.group.push(submission);
    }

    /// The group is committed.
    pub(super) fn slice_done(&mut self) {
        let Some(began) = self.slicing.began.take() else { return };
        let now = self.node.clock.instant();
        let protects = now.duration_since(self.known_at) < KNOWN_LATELY;
        let pause = if protects { now.duration_since(began) * PAUSE_FACTOR } else { Duration::ZERO };
        self.slicing.due = now + pause;
    }

    fn end_of_slice(&self, submission: &Submission) -> usize {
        let from = submission.slice.end;
        let partition = self.partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let mut cost = Cost::default();
        let samples = submission.refs[from..].iter().zip(&submission.timestamps[from..]);
        let fits = |(series, timestamp_ms): &(&SeriesRef, &i64)| {
            cost.add(head, **series, **timestamp_ms);
            cost.total <= COST_MAX
        };
        from + samples.take_while(fits).count()
    }

    /// Samples before the out-of-order window of their series are not accepted. All others are added to `cost`.
    fn leave_out_the_too_old(&self, submission: &mut Submission, cost: &mut Cost) {
        let window_ms = self.node.settings.out_of_order_window_ms;
        let partition = self.partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let mut any = false;
        for (series, timestamp_ms) in submission.refs.iter().zip(&submission.timestamps) {
            let newest_ms = cost.add(head, *series, *timestamp_ms);
            any |= *timestamp_ms < newest_ms.saturating_sub(window_ms);
        }
        let Some(head) = head.filter(|_| any) else { return };
        let mut kept = 0;
        let mut refused = None;
        for i in 0..submission.refs.len() {
            let (series, timestamp_ms) = (submission.refs[i], submission.timestamps[i]);
            let newest_ms = head.newest_ms(series);
            if timestamp_ms >= newest_ms.saturating_sub(window_ms) {
                submission.refs[kept] = series;
                submission.timestamps[kept] = timestamp_ms;
                submission.values[kept] = submission.values[i];
                kept += 1;
            } else if refused == Some(series) {
                submission.outcome.refuse_more(1);
            } else {
                refused = Some(series);
                let error = SeriesError::TooOld { timestamp_ms, newest_ms, window_ms };
                submission.outcome.refuse(error, 1, || labels_text(head, series));
            }
        }
        submission.refs.truncate(kept);
        submission.timestamps.truncate(kept);
        submission.values.truncate(kept);
    }
}

/// What samples will cost, in samples in order. An estimate: a series that comes again after others is taken for one
/// that got nothing in between.
#[derive(Debug, Default)]
struct Cost {
    total: usize,
    /// The series of the last sample, its newest sample in the head, and its newest in the submission so far.
    last: Option<(SeriesRef, i64, i64)>,
}

impl Cost {
    /// Adds a sample; returns the time of the newest sample that its series has in the head.
    #[inline]
    fn add(&mut self, head: Option<&TenantHead>, series: SeriesRef, timestamp_ms: i64) -> i64 {
        let (in_head_ms, newest_ms) = match self.last {
            Some((last, in_head_ms, newest_ms)) if last == series => (in_head_ms, newest_ms),
            _ => {
                let in_head_ms = head.map_or(i64::MIN, |head| head.newest_ms(series));
                (in_head_ms, in_head_ms)
            }
        };
        self.total += if timestamp_ms > newest_ms { 1 } else { LATE_COST };
        self.last = Some((series, in_head_ms, newest_ms.max(timestamp_ms)));
        in_head_ms
    }
}

fn labels_text(head: &TenantHead, series: SeriesRef) -> String {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    describe_labels(&bytes)
}
