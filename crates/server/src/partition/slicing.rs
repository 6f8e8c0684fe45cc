//! Admission into groups: small submissions as a whole, large submissions in slices.
//!
//! ```text
//!   submission ─▶ admit: estimate ─┬─ small ─▶ group
//!                                  └─ large ─▶ slicing ─ a slice a turn ─▶ group
//! ```
//!
//! A group has a few milliseconds of work. It takes one slice of a large submission, which is answered after its last
//! slice. Meanwhile, small submissions go first, but not those of the same stream: they wait behind the large one, so that the
//! later of two values for the same time wins. Each tenant's part of a stream is a stream of its own.

use super::fair_queue::FairQueue;
use super::{KNOWN_LATELY, Owner};
use crate::partition::submission::{StreamId, Submission, SubmittedExponential};
use crate::refusal::Refusal;
use admission::Postponed;
use head::TenantHead;
use model::accumulator::PIECES_MAX;
use model::{BatchExponential, SeriesRef, SeriesRefusal, TenantId};
use protocol::labels::describe_labels;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

/// A submission that costs more than this is stored in slices. The unit is the cost of one in-order sample; the limit
/// is about three milliseconds of work.
const COST_MAX: usize = 1 << 16;

/// A late sample costs as much as this many in-order samples.
const LATE_COST: usize = 12;

/// Cost of listing a hidden series with ten labels again, besides the cost of its sample or exemplar. Exemplars are not sliced: a
/// submission with very many of hidden series may hold up a partition for half a second, again after each delete that hides them.
const HIDDEN_COST: usize = 7;

/// The sum of a late increment is stored again with each of the pieces behind it.
const LATE_INCREMENT_COST: usize = LATE_COST * (PIECES_MAX + 1);

/// An increment is looked up and recorded with its sum, which costs as much as this many in-order samples.
const INCREMENT_COST: usize = 4;

/// An increment that is an exponential histogram is added and recorded with all buckets of the sum, which takes up to 20 µs.
const EXPONENTIAL_COST: usize = 400;

/// So many bytes of such a sum cost as much as one in-order sample. All its open intervals are recorded again.
const BYTES_PER_COST: usize = 16;

/// Upper bound on such increments in a slice.
#[cfg(test)]
pub(super) const EXPONENTIALS_MAX: usize = COST_MAX / EXPONENTIAL_COST;

/// Late samples are counted this often. In between, they may exceed their share of the head.
pub(super) const LATE_COUNT_EVERY: Duration = Duration::from_millis(100);

/// While requests of known series arrive, the pause after a slice is this many times as long as the slice took.
const PAUSE_FACTOR: u32 = 2;

#[derive(Debug)]
pub(super) struct Slicing {
    waiting: FairQueue,
    /// Number of a tenant's submissions in each stream that are waiting, or of which a slice is in the group.
    streams: HashMap<(StreamId, TenantId), usize>,
    due: Instant,
    began: Option<Instant>,
    late_counted: Instant,
}

impl Slicing {
    pub(super) fn new(now: Instant) -> Self {
        Self { waiting: FairQueue::new(1), streams: HashMap::new(), due: now, began: None, late_counted: now }
    }

    /// True if it is time to count the memory of late samples. If so, schedules the next count.
    pub(super) fn counts_late(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.late_counted) >= LATE_COUNT_EVERY;
        if is_due {
            self.late_counted = now;
        }
        is_due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn wants_turn(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.due)
    }

    fn enqueue(&mut self, mut submission: Submission, weight: usize) {
        submission.is_sliced = true;
        if let Some(stream) = submission.stream {
            *self.streams.entry((stream, submission.tenant.clone())).or_default() += 1;
        }
        self.waiting.push(submission, weight);
    }

    /// Queues the rest of a submission after one of its slices.
    pub(super) fn enqueue_rest(&mut self, submission: Submission, weight: usize) {
        self.waiting.push_front(submission, weight);
    }

    /// True if an earlier submission of the same stream and tenant is not stored yet.
    fn holds_earlier(&self, submission: &Submission) -> bool {
        let is_held = |stream| self.streams.contains_key(&(stream, submission.tenant.clone()));
        !self.streams.is_empty() && submission.stream.is_some_and(is_held)
    }

    /// Must be called for each submission of a group that is stored completely, or refused.
    pub(super) fn ended(&mut self, submission: &Submission) {
        let Some(stream) = submission.stream.filter(|_| submission.is_sliced) else { return };
        if let Entry::Occupied(mut count) = self.streams.entry((stream, submission.tenant.clone())) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Owner {
    /// Admits a submission whose series all exist. A small one is added to the group, and its cost is returned. A
    /// large one is queued to be stored in slices, and so are all of its stream behind it.
    pub(super) fn admit(&mut self, mut submission: Submission) -> usize {
        if self.sums.is_stale(&submission) {
            submission.refuse_all(being_deleted());
            return 0;
        }
        self.leave_out_metadata(&mut submission);
        let exponentials = &submission.increments.exponentials;
        let exponentials = exponentials
            .iter()
            .map(|one| self.exponential_cost(&submission.tenant, &one.point))
            .sum::<usize>();
        let others = submission.metadata.len() + submission.exemplars.len() + exponentials;
        let mut cost = Cost { total: others, ..Cost::of(&submission) };
        self.estimate(&mut submission, &mut cost);
        if cost.total > COST_MAX || self.slicing.holds_earlier(&submission) {
            let weight = self.context.weight(&submission.tenant);
            self.slicing.enqueue(submission, weight);
            return 0;
        }
        submission.slice = 0..submission.refs.len();
        self.group.push(submission);
        cost.total
    }

    pub(super) fn take_slice(&mut self) {
        let now = self.context.clock.instant();
        if now < self.slicing.due && !self.stopping {
            return;
        }
        let Some(mut submission) = self.slicing.waiting.pop() else { return };
        self.slicing.waiting.charge(&submission.tenant, 1);
        if self.sums.is_stale(&submission) {
            self.slicing.ended(&submission);
            return submission.refuse_all(being_deleted());
        }
        // the room for late samples may have been used up since the submission was admitted
        if let Some(head) = self.partition.head.read().tenant(&submission.tenant)
            && let Err(error) = self.context.heads.room_for_late_samples(head.late_bytes())
        {
            let from = submission.slice.end;
            leave_out_late(&mut submission, from, head, &error);
        }
        submission.slice = submission.slice.end..self.end_of_slice(&submission);
        self.slicing.began = Some(now);
        self.group.push(submission);
    }

    pub(super) fn slice_done(&mut self) {
        let Some(began) = self.slicing.began.take() else { return };
        let now = self.context.clock.instant();
        let protects = now.duration_since(self.known_at) < KNOWN_LATELY;
        let pause = if protects { now.duration_since(began) * PAUSE_FACTOR } else { Duration::ZERO };
        self.slicing.due = now + pause;
    }

    /// How many increments of a submission that are exponential histograms are added now.
    pub(super) fn exponentials_of_slice(&self, submission: &Submission) -> usize {
        let all = &submission.increments.exponentials;
        if !submission.is_sliced {
            return all.len();
        }
        let mut total = 0;
        let fits = |one: &&SubmittedExponential| {
            total += self.exponential_cost(&submission.tenant, &one.point);
            total <= COST_MAX
        };
        all.iter().take_while(fits).count().max(1).min(all.len())
    }

    fn exponential_cost(&self, tenant: &TenantId, point: &BatchExponential) -> usize {
        let sum = self.sums.get(tenant, point.key).and_then(|sum| sum.exponential.as_ref());
        let (bytes, pieces_bytes) = sum.map_or((0, 0), |sum| sum.heap_bytes());
        EXPONENTIAL_COST + (bytes + pieces_bytes + point.heap_bytes()) / BYTES_PER_COST
    }

    fn end_of_slice(&self, submission: &Submission) -> usize {
        let from = submission.slice.end;
        let partition = self.partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let mut cost = Cost::of(submission);
        let samples = submission.refs[from..].iter().zip(&submission.timestamps[from..]);
        let fits = |(series, timestamp_ms): &(&SeriesRef, &i64)| {
            cost.add(head, **series, **timestamp_ms);
            cost.total <= COST_MAX
        };
        from + samples.take_while(fits).count()
    }

    /// Adds the cost of all samples to `cost`, and the cost of listing hidden series for exemplars. If late samples exceed
    /// their share of the head, they are refused.
    fn estimate(&self, submission: &mut Submission, cost: &mut Cost) {
        let partition = self.partition.head.read();
        let head = partition.tenant(&submission.tenant);
        for (series, timestamp_ms) in submission.refs.iter().zip(&submission.timestamps) {
            cost.add(head, *series, *timestamp_ms);
        }
        if let Some(head) = head {
            let hidden = submission.exemplars.iter().filter(|(series, _)| head.is_hidden(*series)).count();
            cost.total += hidden * HIDDEN_COST;
        }
        if cost.late > 0
            && let Some(head) = head
            && let Err(error) = self.context.heads.room_for_late_samples(head.late_bytes())
        {
            cost.total -= leave_out_late(submission, 0, head, &error) * cost.of_late;
        }
    }
}

fn being_deleted() -> Refusal {
    let message = "the tenant is being deleted, and the request has deltas: repeat the request";
    Refusal::busy("deletes", message).of_tenant()
}

/// Refuses the late samples at index `from` and after it. Returns their number.
fn leave_out_late(
    submission: &mut Submission,
    from: usize,
    head: &TenantHead,
    error: &SeriesRefusal,
) -> usize {
    let Submission { refs, timestamps, values, increments, outcome, .. } = submission;
    let mut removed = Vec::new();
    let mut newest = Newest::default();
    let mut kept = from;
    let mut refused = None;
    for i in from..refs.len() {
        let (series, timestamp_ms) = (refs[i], timestamps[i]);
        // a sample with an equal timestamp is kept, because it usually belongs to a repeated request
        if timestamp_ms >= newest.before(Some(head), series, timestamp_ms) {
            (refs[kept], timestamps[kept]) = (series, timestamp_ms);
            values.keep(i, kept);
            kept += 1;
            continue;
        }
        if !increments.is_empty() {
            removed.push(i as u32);
        }
        if refused == Some(series) {
            outcome.refuse_more(1);
        } else {
            refused = Some(series);
            outcome.refuse(error.clone(), 1, || labels_text(head, series));
            outcome.postpone(Postponed::LateSamples);
        }
    }
    increments.leave_out(&removed);
    let left_out = refs.len() - kept;
    refs.truncate(kept);
    timestamps.truncate(kept);
    values.truncate(kept);
    left_out
}

#[derive(Debug)]
struct Cost {
    total: usize,
    of_late: usize,
    of_others: usize,
    /// Number of samples that are not newer than the previous sample of their series.
    late: usize,
    newest: Newest,
}

impl Cost {
    /// If some samples are increments, all of them count as such.
    fn of(submission: &Submission) -> Self {
        let (of_late, of_others) = match submission.increments.is_empty() {
            true => (LATE_COST, 1),
            false => (LATE_INCREMENT_COST, INCREMENT_COST),
        };
        Self { total: 0, of_late, of_others, late: 0, newest: Newest::default() }
    }

    #[inline]
    fn add(&mut self, head: Option<&TenantHead>, series: SeriesRef, timestamp_ms: i64) {
        let is_hidden = !self.newest.is_last(series) && head.is_some_and(|head| head.is_hidden(series));
        let is_late = timestamp_ms <= self.newest.before(head, series, timestamp_ms);
        self.late += usize::from(is_late);
        self.total += if is_late { self.of_late } else { self.of_others };
        self.total += if is_hidden { HIDDEN_COST } else { 0 };
    }
}

/// Estimates the newest timestamp of a series, from the head and the directly preceding samples.
#[derive(Debug, Default)]
struct Newest {
    last: Option<(SeriesRef, i64)>,
}

impl Newest {
    #[inline]
    fn is_last(&self, series: SeriesRef) -> bool {
        self.last.is_some_and(|(last, _)| last == series)
    }

    #[inline]
    fn before(&mut self, head: Option<&TenantHead>, series: SeriesRef, timestamp_ms: i64) -> i64 {
        let newest_ms = match self.last {
            Some((last, newest_ms)) if last == series => newest_ms,
            _ => head.map_or(i64::MIN, |head| head.newest_ms(series)),
        };
        self.last = Some((series, newest_ms.max(timestamp_ms)));
        newest_ms
    }
}

pub(super) fn labels_text(head: &TenantHead, series: SeriesRef) -> String {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    describe_labels(&bytes)
}
