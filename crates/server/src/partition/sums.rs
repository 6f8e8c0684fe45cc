//! The sums of series whose samples were sent as increments (OpenTelemetry's delta temporality).
//!
//! ```text
//!   submission ─▶ sum_up: increments become sums ─▶ record: samples and sums ─▶ sync ─▶ head
//!                    │ from here on, there are only ordinary samples
//!                    └─ refused, or repeated: no sample
//! ```
//!
//! A record has the samples of a submission, and the sums of their series as they are afterwards. So the knowledge of what
//! was added is as durable as the samples. Tables do not contain it. Before a part of the journal is deleted, the sums in it
//! are written again ([`carry`]). Sums of series that got nothing for a long time are forgotten ([`forget`]). Then an
//! increment that is not newer than what was forgotten is refused, because it may have been added.
//!
//! The increments of an exponential histogram have no samples of their own. They are added up in one partition, where the
//! histogram has one sum. The sender's request then goes on with what they have added up to (`write_path/totals.rs`).
//!
//! If the bounds of a histogram change and change back, a bucket that was missing meanwhile must begin with 0 like the others.
//! So the sums also say when the bounds of a histogram changed last: as a sum whose key is made of the histogram ([`bounds_key`]).

mod carry;
mod forget;
pub(super) mod record;
pub(crate) mod shared;
mod tenant;
#[cfg(test)]
mod tests;

use super::slicing::labels_text;
use super::{Owner, STARTED_S};
use crate::limits::head_memory::HeadMemory;
use crate::partition::submission::{Changed, Outcome, Submission, SubmittedExponential, Summed};
use admission::Postponed;
use carry::Carrying;
use forget::{Forgetting, GRACE_S};
use head::TenantHead;
use model::accumulator::{Added, PIECES_MAX, Piece, Sum};
use model::exponential::BUCKETS_MAX;
use model::{
    Accumulator, BatchExponential, Exponential, ExponentialSum, Increment, SeriesKey, SeriesRef,
    SeriesRefusal, TenantId, ValuesRef,
};
use shared::{Forgotten, Stamp};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Reservation;
use tenant::{SAMPLE_BYTES, Share, TenantSums};

/// Memory that each increment of a request takes while its group is being written. The sum before it is kept, with its pieces.
pub(super) const INCREMENT_BYTES: usize =
    2 * size_of::<Change>() + PIECES_MAX * size_of::<Piece>() + 2 * size_of::<Changed>() + SAMPLE_BYTES;

/// Memory that an exponential histogram of a request takes besides itself, until it is decoded again. The buckets of the sum before it
/// may be kept meanwhile.
pub(crate) const EXPONENTIAL_BYTES: usize = 2 * size_of::<Change>()
    + size_of::<(u32, Result<ExponentialSum, SeriesRefusal>)>()
    + (PIECES_MAX + 2) * size_of::<(u64, Arc<Exponential>)>()
    + 2 * (size_of::<Exponential>() + BUCKETS_MAX * size_of::<u64>())
    + PIECES_MAX * size_of::<Piece>()
    + size_of::<SeriesKey>();

/// Submissions are numbered from 1 to this, again and again.
const NUMBERS: u32 = 1 << 31;

/// Memory of a tenant of which it is known what was forgotten.
const FORGOTTEN_BYTES: usize = 256;

/// The upper 96 bits of each [`bounds_key`]. Keys of series are random, so it is next to impossible that one begins like this.
const BOUNDS: u128 = 0x656e_6465_6420_6c61_796f_7574_u128 << 32;

/// The key of a sum, of any tenant, whose end is what was forgotten of all tenants that are not listed.
const OTHERS: SeriesKey = SeriesKey(0x6f74_6865_7220_7465_6e61_6e74_u128 << 32);

/// The key of a sum that says when the last bounds of a histogram ended.
const fn bounds_key(histogram: u32) -> SeriesKey {
    SeriesKey(BOUNDS | histogram as u128)
}

/// The histogram, if the key is such a key.
const fn histogram_of(key: SeriesKey) -> Option<u32> {
    if key.0 >> 32 == BOUNDS >> 32 { Some(key.0 as u32) } else { None }
}

#[derive(Debug)]
pub(super) struct Sums {
    tenants: BTreeMap<TenantId, TenantSums>,
    count: usize,
    /// Number of submissions that have had increments.
    submissions: u32,
    forgotten: Forgotten,
    forgotten_memory: Reservation,
    /// Tenants that were deleted in the last minutes, each with the number of the deletion and the end of this time.
    deleted: Vec<(TenantId, u64, u32)>,
    /// All sums that were last seen before this may have been removed.
    void_before_s: u32,
    heads: Arc<HeadMemory>,
    /// What the group that is being written has changed.
    changes: Vec<Change>,
    /// Whether some of these changes are of bounds. The others learn of them when the group is durable.
    has_new_bounds: bool,
    /// Memory was reserved for an increment that was refused afterwards.
    has_unused_room: bool,
    /// Working memory.
    sums: Vec<Sum>,
    /// The sum to which the last increment was added, if it is an exponential histogram.
    total: Option<ExponentialSum>,
    carrying: Carrying,
    forgetting: Forgetting,
}

#[derive(Debug, Clone)]
struct Entry {
    accumulator: Accumulator,
    /// When the request with the last increment arrived, in seconds of [`super::steady_s`]. It is the same in all partitions.
    seen_s: u32,
    /// The submission that it came in.
    submission: LastSubmission,
}

/// The last submission that had an increment of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastSubmission(u32);

impl LastSubmission {
    /// Before the start.
    const NONE: Self = Self(0);

    /// `has_added` says whether an increment of this submission was added.
    const fn new(number: u32, has_added: bool) -> Self {
        Self(number << 1 | has_added as u32)
    }

    const fn is(self, number: u32) -> bool {
        self.0 >> 1 == number
    }

    const fn has_added(self, number: u32) -> bool {
        self.0 == number << 1 | 1
    }
}

/// Where an increment comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Number of the submission.
    submission: u32,
    /// Weight of the tenant.
    weight: usize,
    stamp: Stamp,
}

#[derive(Debug)]
struct Change {
    tenant: TenantId,
    key: SeriesKey,
    before: Option<Entry>,
}

/// A place in all sums, in the order of tenants and keys.
type Place = (TenantId, SeriesKey);

impl Sums {
    pub(super) fn new(heads: Arc<HeadMemory>, now: Instant) -> Self {
        Self {
            tenants: BTreeMap::new(),
            count: 0,
            submissions: 0,
            forgotten: Forgotten::default(),
            forgotten_memory: heads.sums.reserve(0).expect("BUG: no memory was asked for"),
            deleted: Vec::new(),
            void_before_s: 0,
            heads,
            changes: Vec::new(),
            has_new_bounds: false,
            has_unused_room: false,
            sums: Vec::new(),
            total: None,
            carrying: Carrying::default(),
            forgetting: Forgetting::new(now),
        }
    }

    fn is_empty(&self) -> bool {
        self.count == 0 && self.forgotten.is_empty()
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// When there is work for [`Owner::sums_turn`].
    pub(super) fn wants_turn(&self) -> Instant {
        let forgets = self.forgetting.time_share.due();
        self.carrying.running.as_ref().map_or(forgets, |running| running.time_share.due().min(forgets))
    }

    pub(super) fn forgotten_ns(&self, tenant: &TenantId) -> u64 {
        self.forgotten.of(tenant)
    }

    /// Notes that sums of a tenant are void, the newest of which had an increment that ended at `end_ns`.
    fn note_forgotten(&mut self, tenant: &TenantId, end_ns: u64) {
        self.heads.shared_sums.forget(tenant, end_ns);
        self.raise_forgotten(tenant, end_ns);
    }

    fn raise_forgotten(&mut self, tenant: &TenantId, end_ns: u64) {
        self.forgotten.raise(tenant, end_ns);
        // the times must be kept even if there is no room for them; their number is limited
        let _ = self.forgotten_memory.resize((self.forgotten.len() * FORGOTTEN_BYTES) as u64);
    }

    pub(super) fn get(&self, tenant: &TenantId, key: SeriesKey) -> Option<&Accumulator> {
        Some(&self.tenants.get(tenant)?.of.get(&key)?.accumulator)
    }

    /// Adds an increment. The samples that must be stored are then in `self.sums`, or if it is an exponential histogram with
    /// `counts`, they can be made of `self.total`.
    fn add(
        &mut self,
        tenant: &TenantId,
        key: SeriesKey,
        (increment, counts): (&Increment, Option<&Arc<Exponential>>),
        origin: Origin,
    ) -> Result<Added, SeriesRefusal> {
        self.sums.clear();
        self.total = None;
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantSums::new(&self.heads));
        }
        let own = self.tenants.get_mut(tenant).expect("BUG: the tenant just added is missing");
        let Origin { submission, weight, stamp } = origin;
        let forgotten_ns = stamp.forgotten_ns.max(self.forgotten.of(tenant));
        let void_before_s = stamp.void_before_s.max(self.void_before_s);
        let limit_mib = (self.heads.sums.limit_bytes() + self.heads.pieces.limit_bytes()) >> 20;
        let share = Share::of(&self.heads, weight);
        let no_room = |_| SeriesRefusal::NoRoomForSums { limit_mib };
        let mut before = own.of.get(&key).cloned();
        // noted even if the increment is refused below: some series of a histogram may know that it was added, others only that
        // it is old, and all must be forgotten together. An old one with other bounds does not count, because it has no
        // increments for buckets that only the present bounds have
        let is_seen =
            |entry: &Entry| entry.seen_s >= void_before_s && entry.accumulator.layout == increment.layout;
        if let Some(entry) = before.as_mut().filter(|entry| is_seen(entry)) {
            entry.seen_s = entry.seen_s.max(stamp.arrived_s);
            own.of.entry(key).and_modify(|known| known.seen_s = entry.seen_s);
        }
        let continues = before.as_ref().is_some_and(|entry| entry.submission.is(submission));
        let has_added = before.as_ref().is_some_and(|entry| entry.submission.has_added(submission));
        let bounds_key = bounds_key(increment.histogram);
        let mut ended_ns = None;
        // where a new sum begins
        let new_ns = forgotten_ns.max(increment.other_end_ns);
        let mut accumulator = match &before {
            Some(entry) => {
                let accumulator = &entry.accumulator;
                let (layout, newest_ns) = (accumulator.layout, accumulator.newest_ns());
                let known_ns = own.of.get(&bounds_key).filter(|_| layout != 0 && self.has_new_bounds);
                let known_ns = known_ns.map_or(0, |entry| entry.accumulator.end_ns);
                let is_restored = entry.submission == LastSubmission::NONE;
                let is_void = layout != 0
                    && (is_restored && newest_ns <= stamp.replayed_ns
                        || increment.has_changed_since(newest_ns)
                        || newest_ns <= known_ns
                        || newest_ns <= self.heads.shared_sums.ended_ns(tenant, increment.histogram));
                if layout != 0 && layout != increment.layout && increment.end_ns > newest_ns {
                    let known_ns = own.of.get(&bounds_key).map(|entry| entry.accumulator.end_ns);
                    ended_ns =
                        Some(newest_ns).filter(|_| known_ns.is_none_or(|known_ns| known_ns < newest_ns));
                    // series of the histogram that are new refuse it, too
                    if increment.end_ns <= forgotten_ns {
                        return Err(SeriesRefusal::IncrementTooLate);
                    }
                }
                match entry.seen_s < void_before_s || is_void {
                    true => Accumulator::new(new_ns.max(newest_ns), increment.layout),
                    false => accumulator.clone(),
                }
            }
            None => {
                own.make_room(share).map_err(no_room)?;
                Accumulator::new(new_ns, increment.layout)
            }
        };
        let added = match counts {
            None => accumulator.add(increment, continues, &mut self.sums)?,
            Some(counts) => {
                let (added, total) = accumulator.add_exponential(increment, counts, continues)?;
                self.total = Some(total);
                added
            }
        };
        accumulator.keep_pieces(stamp.pieces_max);
        let seen_s = before.as_ref().map_or(0, |entry| entry.seen_s).max(stamp.arrived_s);
        if added == Added::Repeated {
            if has_added {
                // no request repeats itself: two sources have one series, and increments of the same size
                return Err(SeriesRefusal::IncrementOverlaps);
            }
            if let Some(entry) = own.of.get_mut(&key) {
                (entry.seen_s, entry.submission) = (seen_s, LastSubmission::new(submission, false));
            }
            return Ok(added);
        }
        if ended_ns.is_some() && !own.of.contains_key(&bounds_key) {
            own.make_room(share).map_err(no_room)?;
        }
        let submission = LastSubmission::new(submission, true);
        let late_samples = self.sums.len().saturating_sub(1);
        own.put(key, Entry { accumulator, seen_s, submission }, late_samples, share).map_err(no_room)?;
        self.count += usize::from(before.is_none());
        self.changes.push(Change { tenant: tenant.clone(), key, before });
        if let Some(end_ns) = ended_ns {
            let before = own.of.get(&bounds_key).cloned();
            let (accumulator, submission) = (Accumulator::new(end_ns, 0), LastSubmission::NONE);
            own.put(bounds_key, Entry { accumulator, seen_s, submission }, 0, share).map_err(no_room)?;
            self.count += usize::from(before.is_none());
            self.changes.push(Change { tenant: tenant.clone(), key: bounds_key, before });
            self.has_new_bounds = true;
        }
        Ok(added)
    }

    /// Must be called when the group is durable.
    pub(super) fn keep_changes(&mut self) {
        self.has_new_bounds = false;
        for Change { tenant, key, .. } in self.changes.drain(..) {
            let Some(own) = self.tenants.get_mut(&tenant) else { continue };
            if let (Some(histogram), Some(entry)) = (histogram_of(key), own.of.get(&key)) {
                self.heads.shared_sums.end_bounds(&tenant, histogram, entry.accumulator.end_ns);
            }
            own.settle();
        }
        if std::mem::take(&mut self.has_unused_room) {
            self.tenants.values_mut().for_each(TenantSums::settle);
        }
    }

    /// Undoes what was added since the last group.
    pub(super) fn discard_changes(&mut self) {
        self.has_new_bounds = false;
        for Change { tenant, key, before } in self.changes.drain(..).rev() {
            let Some(own) = self.tenants.get_mut(&tenant) else { continue };
            self.count -= usize::from(before.is_none());
            own.undo(key, before);
        }
        self.tenants.values_mut().for_each(TenantSums::settle);
    }

    /// Restores a sum from the journal. If there is no memory for it, it is forgotten.
    pub(super) fn restore(&mut self, tenant: &TenantId, key: SeriesKey, accumulator: &Accumulator) {
        if key == OTHERS {
            return self.forgotten.raise_others(accumulator.end_ns);
        }
        let own = self.tenants.entry(tenant.clone()).or_insert_with(|| TenantSums::new(&self.heads));
        let mut is_new = !own.of.contains_key(&key);
        if is_new && !own.is_forgotten(accumulator) && own.make_room(Share::ALL).is_err() {
            // sums that were removed before the restart are still in the journal, and may be taking the place of others
            self.count -= own.forget_restored(self.forgotten.of(tenant));
        }
        if is_new && (own.is_forgotten(accumulator) || own.make_room(Share::ALL).is_err()) {
            self.raise_forgotten(tenant, accumulator.newest_ns());
            return;
        }
        // at the same time in all partitions, however long each of them replays
        let (seen_s, submission) = (STARTED_S, LastSubmission::NONE);
        let entry = Entry { accumulator: accumulator.clone(), seen_s, submission };
        let mut put = own.put(key, entry.clone(), 0, Share::ALL);
        if put.is_err() && accumulator.exponential.is_some() {
            // the same for its buckets
            self.count -= own.forget_restored(self.forgotten.of(tenant));
            is_new = !own.of.contains_key(&key);
            if own.is_forgotten(accumulator) {
                return self.raise_forgotten(tenant, accumulator.newest_ns());
            }
            put = own.put(key, entry.clone(), 0, Share::ALL);
        }
        if put.is_err() {
            // there is less memory than before the restart
            let mut closed = entry;
            closed.accumulator.keep_pieces(0);
            if own.put(key, closed, 0, Share::ALL).is_err() {
                // the buckets of a histogram take more memory than was made room for
                own.remove(key);
                own.settle();
                self.count -= usize::from(!is_new);
                return self.raise_forgotten(tenant, accumulator.newest_ns());
            }
        }
        own.settle();
        self.count += usize::from(is_new);
    }

    pub(super) fn restore_forgotten(&mut self, tenant: &TenantId, forgotten_ns: u64) {
        if forgotten_ns > 0 {
            self.raise_forgotten(tenant, forgotten_ns);
        }
    }

    /// Tells the other partitions what was replayed. Must not be called before the end of the replay, because a tenant may have
    /// been deleted after an earlier record.
    pub(super) fn publish(&self) {
        let shared = &self.heads.shared_sums;
        shared.replayed(&self.forgotten);
        for (tenant, own) in &self.tenants {
            for (key, entry) in own.of.range(bounds_key(0)..=bounds_key(u32::MAX)) {
                let histogram = histogram_of(*key).expect("BUG: another key is among those of bounds");
                shared.end_bounds(tenant, histogram, entry.accumulator.end_ns);
            }
        }
    }

    pub(super) fn remove_tenant(&mut self, tenant: &TenantId) {
        if let Some(own) = self.tenants.remove(tenant) {
            self.count -= own.of.len();
        }
        self.forgotten.remove(tenant);
    }

    /// Removes the sums of a tenant that was deleted. Requests from before are then refused.
    pub(super) fn delete_tenant(&mut self, tenant: &TenantId, deletion: u64, now_s: u32) {
        self.remove_tenant(tenant);
        self.deleted.retain(|(of, _, until_s)| of != tenant && *until_s > now_s);
        self.deleted.push((tenant.clone(), deletion, now_s.saturating_add(GRACE_S)));
    }

    /// True if the submission has increments, or samples that were made of some, from before its tenant was deleted, or from while
    /// it was.
    pub(super) fn is_stale(&self, submission: &Submission) -> bool {
        let Submission { tenant, increments, in_use, .. } = submission;
        let own = (!increments.is_empty()).then_some(increments.stamp);
        // or what its samples were made of
        let added = in_use.as_ref().map(|in_use| in_use.stamp);
        own.into_iter().chain(added).any(|Stamp { deletion, arrived_s, .. }| {
            let is_later = |(of, number, until_s): &(TenantId, u64, u32)| {
                of == tenant && *number > deletion && arrived_s < *until_s
            };
            self.deleted.iter().any(is_later)
        })
    }

    /// The next sums after a place, at most `count`, all of the same tenant.
    fn after(&self, place: Option<&Place>, count: usize) -> Option<(&TenantId, Vec<SeriesKey>)> {
        let from = place.map_or(Bound::Unbounded, |(tenant, _)| Bound::Included(tenant));
        for (tenant, own) in self.tenants.range::<TenantId, _>((from, Bound::Unbounded)) {
            let after = match place {
                Some((at, key)) if at == tenant => Bound::Excluded(*key),
                _ => Bound::Unbounded,
            };
            let keys: Vec<_> =
                own.of.range((after, Bound::Unbounded)).take(count).map(|(key, _)| *key).collect();
            if !keys.is_empty() {
                return Some((tenant, keys));
            }
        }
        None
    }
}

impl Owner {
    pub(super) fn sums_turn(&mut self) {
        let began = self.context.clock.instant();
        if self.sums.carrying.running.as_ref().is_some_and(|running| running.time_share.due() <= began) {
            self.carry_slice(began);
        }
        if self.sums.forgetting.time_share.due() <= began {
            self.forget_slice(began);
        }
    }

    /// Replaces the increments among the samples of a submission's slice by sums. Refuses those that cannot be added.
    pub(super) fn sum_up(&mut self, submission: &mut Submission) {
        submission.increments.summed = None;
        if submission.increments.is_empty() {
            return;
        }
        let slice = submission.slice.clone();
        let increments = submission.increments.among(&slice).to_vec();
        if increments.is_empty() {
            return;
        }
        let origin = self.origin_of(submission);
        let ValuesRef::Floats(values) = submission.values.as_ref() else { return };
        let metrics = &self.context.metrics.increments;
        let partition = self.partition.head.read();
        let head = partition.tenant(&submission.tenant);
        let mut summed = Box::new(Summed::with_room_for(slice.len()));
        let mut next = increments.iter().peekable();
        let mut refused = Refused { head, last: None };
        for sample in slice {
            let (series, timestamp_ms) = (submission.refs[sample], submission.timestamps[sample]);
            let Some(submitted) = next.next_if(|submitted| submitted.sample as usize == sample) else {
                summed.push(series, timestamp_ms, values[sample]);
                continue;
            };
            let (key, increment) = (submitted.key, &submitted.increment);
            let before = self.sums.changes.len();
            match self.sums.add(&submission.tenant, key, (increment, None), origin) {
                Ok(added) => {
                    metrics.of(added).inc();
                    let first = summed.refs.len();
                    for (timestamp_ms, sum) in &self.sums.sums {
                        summed.push(series, *timestamp_ms, *sum);
                    }
                    let changes = self.sums.changes.iter().enumerate().skip(before);
                    summed.changed.extend(changes.map(|(change, Change { key, .. })| Changed {
                        first,
                        last: summed.refs.len() - 1,
                        key: *key,
                        change: change as u32,
                    }));
                }
                Err(error) => {
                    metrics.of_refused(&error).inc();
                    summed.refused += 1;
                    refused.push(series, error, &mut submission.outcome);
                }
            }
        }
        submission.increments.summed = Some(summed);
    }

    fn origin_of(&mut self, submission: &mut Submission) -> Origin {
        // 0 stands for none
        let number = submission.increments.number.get_or_insert_with(|| {
            self.sums.submissions = (self.sums.submissions + 1) % NUMBERS;
            self.sums.submissions = self.sums.submissions.max(1);
            self.sums.submissions
        });
        Origin {
            submission: *number,
            weight: self.context.weight(&submission.tenant),
            stamp: submission.increments.stamp,
        }
    }

    /// Adds the next increments of a submission that are exponential histograms. What they have added up to is then in the outcome.
    pub(super) fn add_exponentials(&mut self, submission: &mut Submission) {
        submission.increments.changed_exponentials.clear();
        if submission.increments.exponentials.is_empty() {
            return;
        }
        let count = self.exponentials_of_slice(submission);
        let exponentials: Vec<_> = submission.increments.exponentials.drain(..count).collect();
        let origin = self.origin_of(submission);
        let metrics = &self.context.metrics.increments;
        for SubmittedExponential { number, point } in exponentials {
            let BatchExponential { key, increment, counts, .. } = point;
            let total = match self.sums.add(&submission.tenant, key, (&increment, Some(&counts)), origin) {
                Ok(added) => {
                    metrics.of(added).inc();
                    if added != Added::Repeated {
                        submission.increments.changed_exponentials.push(key);
                    }
                    Ok(self.sums.total.take().expect("BUG: a histogram was added to a number"))
                }
                Err(error) => {
                    metrics.of_refused(&error).inc();
                    if let SeriesRefusal::NoRoomForSums { .. } = error {
                        submission.outcome.postpone(Postponed::SeriesState);
                        self.sums.has_unused_room = true;
                    }
                    Err(error)
                }
            };
            submission.outcome.totals.push((number, total));
        }
        let changed = &mut submission.increments.changed_exponentials;
        changed.sort_unstable();
        changed.dedup();
    }
}

/// Counts refused increments. Those of one series that follow each other and have the same reason are one refused series.
struct Refused<'a> {
    head: Option<&'a TenantHead>,
    last: Option<(SeriesRef, SeriesRefusal)>,
}

impl Refused<'_> {
    fn push(&mut self, series: SeriesRef, error: SeriesRefusal, outcome: &mut Outcome) {
        if let SeriesRefusal::NoRoomForSums { .. } = error {
            outcome.postpone(Postponed::SeriesState);
        }
        let last = Some((series, error.clone()));
        if std::mem::replace(&mut self.last, last.clone()) == last {
            return outcome.refuse_more(1);
        }
        outcome.refuse(error, 1, || self.head.map_or_else(String::new, |head| labels_text(head, series)));
    }
}
