//! Points of series that do not exist yet, until the series are created.
//!
//! Creating a series costs much more than storing a point, so points of new series must not delay points of known
//! series. The queue is not durable. Its memory is part of the account `inflight`, of which each tenant may use a share.
//! When there is no room, the newest points are dropped.
//!
//! ```text
//!   push ─┬─ first points of a series ──────▶ order ─┐
//!         ├─ more points ─▶ the same entry           ├─▶ take ─▶ chunk: in creation ─▶ dropped: stored, or lost
//!         └─ points of a series in creation ─▶ known ─┘
//! ```
//!
//! A series stays in the queue until its points are stored. Points that arrive meanwhile join them
//! ([`WaitingSeries`]). Otherwise, they would overtake older points, and of two values for the same time, the older
//! would win.

use super::ticket::Ticket;
use crate::limits::budget::Budget;
use crate::partition::submission::{NewPart, NewSeries};
use crate::write_path::known::{NewSamples, WaitingSeries};
use admission::gate::MULTIPLE;
use model::{Batch, BatchSeries, Labels, SeriesKey, TenantId, ValuesRef};
use parking_lot::Mutex;
use protocol::labels::describe_labels;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::sync::Notify;

/// Limit on the series of a chunk. The series of a chunk are created together.
pub(super) const CHUNK_SERIES_MAX: usize = 4096;

/// Upper bound on the memory of a waiting series with one ticket, without its labels and points: an entry of a map that
/// is at least 7/16 full, a key in a queue and a series in a chunk, of vectors that are at least half full.
const SERIES_BYTES: usize = size_of::<(SeriesKey, Entry)>() * 16 / 7
    + 2 * size_of::<SeriesKey>()
    + 2 * size_of::<BatchSeries>()
    + TICKET_BYTES as usize;

/// Memory of a ticket: in the entry, and in the chunk.
const TICKET_BYTES: u64 = 3 * size_of::<Ticket>() as u64;

/// Upper bound on the memory of a point: in the entry and in the chunk, in vectors that are at least half full.
const POINT_BYTES: usize = 4 * size_of::<(i64, f64)>();

#[derive(Debug)]
pub(crate) struct NewSeriesQueue {
    account: Account,
    tenants: Mutex<HashMap<TenantId, Queue>>,
    /// Notified when points were stored or dropped.
    ended: Notify,
}

#[derive(Debug)]
struct Queue {
    account: Account,
    /// For all entries.
    memory: Reservation,
    series: HashMap<SeriesKey, Entry>,
    /// Series to be created, in the order in which their first points arrived.
    order: VecDeque<SeriesKey>,
    /// Series with points that arrived while earlier points were in creation. These series exist soon, so they wait for
    /// no others.
    known: VecDeque<SeriesKey>,
    /// True while a chunk of `known` is being stored.
    stores_known: bool,
    /// Number of waiting points.
    points: u64,
}

/// A series with points that are not stored yet.
#[derive(Debug)]
struct Entry {
    labels: Labels,
    /// Timestamps in milliseconds and values, in the order in which they arrived. Empty if all are in creation.
    points: VecDeque<(i64, f64)>,
    /// Those of the connections from which the points came.
    tickets: Vec<Ticket>,
    /// When the first of the points arrived.
    since: Instant,
    /// Memory that is reserved for the points.
    bytes: u64,
}

/// Points whose series are created together. Until this is dropped, the queue knows that they are not stored yet.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Has only floats.
    pub(super) batch: Batch,
    tickets: Vec<Ticket>,
    _taken: Taken,
    _memory: Reservation,
}

/// Series that were taken from a tenant's queue. When this is dropped, they are no longer in creation.
#[derive(Debug)]
struct Taken {
    queue: Arc<NewSeriesQueue>,
    tenant: TenantId,
    series: Vec<SeriesKey>,
}

/// Limits on a chunk. It has at least one point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub(super) series: usize,
    /// Limit on the memory of the series and points.
    pub(super) bytes: u64,
}

/// What waits for the creation of series, of one tenant or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) points: u64,
    pub(crate) series: u64,
    pub(crate) since: Option<Instant>,
}

/// Points that could not be queued.
#[derive(Debug)]
pub(super) struct Dropped {
    pub(super) points: u64,
    /// Labels of one of the series.
    pub(super) series: String,
}

#[derive(Debug)]
pub(super) enum Pushed {
    /// The tenant had no waiting points before, so somebody has to start to create its series.
    First,
    Later,
}

impl NewSeriesQueue {
    pub(crate) fn new(inflight: &Account, budget: &Budget) -> Self {
        let account = inflight.part();
        account.share(u64::MAX, budget.new_series_queue_bytes());
        Self { account, tenants: Mutex::default(), ended: Notify::new() }
    }

    /// Adds points behind those of the same series. The points of a partition are dropped together if there is no
    /// room.
    pub(super) fn push(
        &self,
        tenant: &TenantId,
        share_weight: u64,
        new: &NewSamples,
        ticket: &Ticket,
        now: Instant,
    ) -> (Pushed, Option<Dropped>) {
        let mut tenants = self.tenants.lock();
        let pushed = if tenants.contains_key(tenant) { Pushed::Later } else { Pushed::First };
        let queue = tenants.entry(tenant.clone()).or_insert_with(|| Queue::new(self.account.part()));
        queue.account.share(MULTIPLE * share_weight, u64::MAX);
        let mut dropped: Option<Dropped> = None;
        for part in &new.parts {
            if let Err(lost) = queue.push(part, ticket, now) {
                ticket.lost();
                let all = dropped.get_or_insert(Dropped { points: 0, series: lost.series });
                all.points += lost.points;
            }
        }
        (pushed, dropped)
    }

    /// Removes points of series that exist already or are about to. Nothing else of the tenant may be in creation.
    pub(super) fn take_known(self: &Arc<Self>, tenant: &TenantId, most: Most) -> Option<Chunk> {
        self.take_from(tenant, most, true)
    }

    /// Removes the points of the series that wait longest for their creation. Nothing else of the tenant may be in
    /// creation.
    pub(super) fn take(self: &Arc<Self>, tenant: &TenantId, most: Most) -> Option<Chunk> {
        self.take_from(tenant, most, false)
    }

    fn take_from(self: &Arc<Self>, tenant: &TenantId, most: Most, are_known: bool) -> Option<Chunk> {
        let mut tenants = self.tenants.lock();
        let queue = tenants.get_mut(tenant)?;
        let (batch, tickets, bytes) = queue.take(most, are_known)?;
        let series = batch.floats.series.iter().map(|series| series.key).collect();
        let taken = Taken { queue: Arc::clone(self), tenant: tenant.clone(), series };
        Some(Chunk { batch, tickets, _taken: taken, _memory: queue.memory.split(bytes) })
    }

    /// True if the tenant has series that wait for their creation.
    pub(super) fn has_new(&self, tenant: &TenantId) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|queue| !queue.order.is_empty())
    }

    /// Forgets the tenant if none of its points waits. Returns false otherwise.
    pub(super) fn forget(&self, tenant: &TenantId) -> bool {
        let mut tenants = self.tenants.lock();
        let is_empty = tenants.get(tenant).is_none_or(|queue| queue.series.is_empty());
        if is_empty {
            tenants.remove(tenant);
        }
        is_empty
    }

    /// Waits until no points of series that exist already are queued, but not longer than until `deadline`.
    pub(super) async fn known_are_stored(&self, tenant: &TenantId, deadline: tokio::time::Instant) {
        loop {
            let ended = self.ended.notified(); // before looking, so that no notification is missed
            let has_known = |queue: &Queue| queue.stores_known || !queue.known.is_empty();
            if !self.tenants.lock().get(tenant).is_some_and(has_known)
                || tokio::time::timeout_at(deadline, ended).await.is_err()
            {
                return;
            }
        }
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Queued {
        self.tenants.lock().get(tenant).map_or_else(Queued::default, Queue::queued)
    }

    pub(crate) fn all(&self) -> Queued {
        self.tenants.lock().values().map(Queue::queued).fold(Queued::default(), Queued::and)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenants.lock().is_empty()
    }
}

impl WaitingSeries for NewSeriesQueue {
    fn mark(&self, tenant: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>) {
        if let Some(queue) = self.tenants.lock().get(tenant) {
            waiting.extend(series.iter().map(|series| queue.series.contains_key(&series.key)));
        }
    }

    fn waits(&self, tenant: &TenantId, key: SeriesKey) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|queue| queue.series.contains_key(&key))
    }
}

impl Queued {
    /// Age of the oldest point.
    pub(crate) fn seconds(self, now: Instant) -> f64 {
        self.since.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64())
    }

    fn and(self, other: Self) -> Self {
        Self {
            points: self.points + other.points,
            series: self.series + other.series,
            since: self.since.into_iter().chain(other.since).min(),
        }
    }
}

impl Queue {
    fn new(account: Account) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let (series, order, known) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Self { account, memory, series, order, known, stores_known: false, points: 0 }
    }

    fn queued(&self) -> Queued {
        let oldest = self.order.front().or(self.known.front());
        let since = oldest.and_then(|key| self.series.get(key)).map(|entry| entry.since);
        Queued { points: self.points, series: self.series.len() as u64, since }
    }

    fn push(&mut self, part: &NewPart, ticket: &Ticket, now: Instant) -> Result<(), Dropped> {
        let ValuesRef::Floats(values) = part.values.as_ref() else {
            return Err(Dropped::from(part, 0)); // no protocol that uses this queue has histograms
        };
        for (i, new) in part.series.iter().enumerate() {
            let samples = new.samples.start as usize..new.samples.end as usize;
            let points =
                part.timestamps[samples.clone()].iter().copied().zip(values[samples].iter().copied());
            if self.add(new, points, ticket, now).is_err() {
                return Err(Dropped::from(part, i));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        new: &NewSeries,
        points: impl ExactSizeIterator<Item = (i64, f64)>,
        ticket: &Ticket,
        now: Instant,
    ) -> Result<(), Exhausted> {
        let Self { memory, series, order, known, .. } = self;
        let mut bytes = (points.len() * POINT_BYTES) as u64;
        let entry = match series.entry(new.key) {
            MapEntry::Occupied(entry) => {
                let entry = entry.into_mut();
                if entry.points.is_empty() {
                    bytes += series_bytes(&new.labels);
                } else if entry.is_from_another(ticket) {
                    bytes += TICKET_BYTES;
                }
                memory.resize(memory.bytes() + bytes)?;
                if entry.points.is_empty() {
                    known.push_back(new.key); // its other points are in creation
                    entry.since = now;
                }
                entry
            }
            MapEntry::Vacant(vacant) => {
                bytes += series_bytes(&new.labels);
                memory.resize(memory.bytes() + bytes)?;
                order.push_back(new.key);
                let labels = new.labels.clone();
                vacant.insert(Entry {
                    labels,
                    points: VecDeque::new(),
                    tickets: Vec::new(),
                    since: now,
                    bytes: 0,
                })
            }
        };
        entry.bytes += bytes;
        if entry.is_from_another(ticket) {
            entry.tickets.reserve_exact(1);
            entry.tickets.push(ticket.clone());
        }
        if entry.points.is_empty() {
            entry.points.reserve_exact(points.len());
        }
        let before = entry.points.len();
        entry.points.extend(points);
        self.points += (entry.points.len() - before) as u64;
        Ok(())
    }

    /// Removes points of the first series that wait. Returns them with their tickets and the reserved memory. `None` if no
    /// series waits.
    fn take(&mut self, most: Most, are_known: bool) -> Option<(Batch, Vec<Ticket>, u64)> {
        let lane = if are_known { &mut self.known } else { &mut self.order };
        let (mut batch, mut tickets, mut bytes, mut rest) = (Batch::default(), Vec::new(), 0, None);
        while batch.floats.series.is_empty() || batch.floats.series.len() < most.series && bytes < most.bytes
        {
            let Some(key) = lane.pop_front() else { break };
            let entry = self.series.get_mut(&key).expect("BUG: a queued series has no entry");
            for ticket in &entry.tickets {
                if tickets.last().is_none_or(|last: &Ticket| !last.is(ticket)) {
                    tickets.push(ticket.clone());
                }
            }
            let (points, points_bytes) = entry.take(most.bytes.saturating_sub(bytes));
            bytes += points_bytes;
            rest = (!entry.points.is_empty()).then_some(key);
            let floats = &mut batch.floats;
            let (start, sample) = (batch.bytes.len() as u32, floats.timestamps.len() as u32);
            batch.bytes.extend_from_slice(entry.labels.as_bytes());
            floats.timestamps.extend(points.iter().map(|(at_ms, _)| at_ms));
            floats.values.extend(points.iter().map(|(_, value)| value));
            let samples = sample..floats.timestamps.len() as u32;
            floats.series.push(BatchSeries { key, labels: start..batch.bytes.len() as u32, samples });
            self.points -= points.len() as u64;
            if rest.is_some() {
                break;
            }
        }
        // the points that did not fit follow once their series exists
        self.known.extend(rest);
        self.stores_known = are_known && !batch.floats.series.is_empty();
        (!batch.floats.series.is_empty()).then_some((batch, tickets, bytes))
    }

    /// The points of a series that were in creation are stored or lost.
    fn end_creation(&mut self, key: SeriesKey) {
        if let MapEntry::Occupied(entry) = self.series.entry(key)
            && entry.get().points.is_empty()
        {
            entry.remove();
        }
    }
}

impl Entry {
    /// Removes the first points, at least one, with at most `most_bytes` of memory. Its time does not grow with the points
    /// that are left, because the queue is locked.
    fn take(&mut self, most_bytes: u64) -> (VecDeque<(i64, f64)>, u64) {
        let count = usize::try_from(most_bytes).unwrap_or(usize::MAX) / POINT_BYTES;
        let count = count.max(1);
        if self.bytes <= most_bytes || count >= self.points.len() {
            self.tickets = Vec::new();
            return (std::mem::take(&mut self.points), std::mem::take(&mut self.bytes));
        }
        let taken = self.points.drain(..count).collect();
        // the memory of the points that are gone belongs to the chunk now; with room for some more, each point is moved
        // about once by this, even if points are added and taken by turns
        if self.points.capacity() > 2 * self.points.len() {
            self.points.shrink_to(self.points.len() / 2 * 3);
        }
        let taken_bytes = (count * POINT_BYTES) as u64;
        self.bytes -= taken_bytes;
        (taken, taken_bytes)
    }

    fn is_from_another(&self, ticket: &Ticket) -> bool {
        self.tickets.last().is_none_or(|last| !last.is(ticket))
    }
}

/// Memory of a series without its points. Its labels are copied into the chunk.
fn series_bytes(labels: &Labels) -> u64 {
    (SERIES_BYTES + 2 * labels.as_bytes().len()) as u64
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut tenants = self.queue.tenants.lock();
        if let Some(queue) = tenants.get_mut(&self.tenant) {
            self.series.iter().for_each(|key| queue.end_creation(*key));
            queue.stores_known = false;
            if queue.series.is_empty() {
                queue.series = HashMap::new();
                queue.order = VecDeque::new();
                queue.known = VecDeque::new();
            }
        }
        drop(tenants);
        self.queue.ended.notify_waiters();
    }
}

impl Chunk {
    pub(super) fn points(&self) -> u64 {
        self.batch.floats.values.len() as u64
    }

    /// Marks the points as lost, so that their senders' connections are not closed as if everything were stored.
    pub(super) fn lost(&self) {
        self.tickets.iter().for_each(Ticket::lost);
    }
}

impl Dropped {
    fn from(part: &NewPart, first: usize) -> Self {
        let points =
            part.series[first..].iter().map(|new| u64::from(new.samples.end - new.samples.start)).sum();
        Self {
            points,
            series: part
                .series
                .get(first)
                .map_or_else(String::new, |new| describe_labels(new.labels.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests;
