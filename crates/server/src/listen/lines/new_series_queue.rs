//! Points of series that do not exist yet, until the series are created. Also points of known series that cannot be stored now, if
//! their sender must not wait for them ([`Expected::Known`]).
//!
//! Creating a series costs much more than storing a point, so points of new series must not delay points of known
//! series. The queue is not durable. Its memory is part of the account `inflight`, of which each tenant may use a share.
//! When there is no room, the newest points are dropped.
//!
//! ```text
//!   push ─┬─ first points of a series ──────▶ order ─┐
//!         ├─ more points ─▶ the same entry           ├─▶ take ─▶ chunk: in creation ─▶ dropped: stored, or lost
//!         └─ points of a series in creation,         │
//!            or of a known series ──────────▶ known ─┘
//! ```
//!
//! A series stays in the queue until its points are stored. Points that arrive meanwhile join them
//! ([`WaitingSeries`]). Otherwise, they would overtake older points, and of two values for the same time, the older
//! would win.
//!
//! Senders that start may bring a million series at once, so a series takes little memory while it waits ([`entry`],
//! [`slots`]). A chunk takes more, so it has a limit, and is reserved ahead: taking points never fails.

mod entry;
mod slots;

use super::ticket::Ticket;
use crate::limits::budget::Budget;
use crate::partition::submission::{NewPart, NewSeries};
use crate::write_path::known::{NewSamples, WaitingSeries};
use admission::gate::MULTIPLE;
use entry::{COPY_BYTES_MAX, Entry, POINT_BYTES, Point, Size};
use model::{Batch, BatchSeries, Labels, SeriesKey, TenantId, ValuesRef};
use parking_lot::Mutex;
use protocol::labels::describe_labels;
use slots::{EntryList, Slots};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::sync::Notify;

/// Limit on the series of a chunk. The series of a chunk are created together.
pub(super) const CHUNK_SERIES_MAX: usize = 4096;

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
    /// Memory reserved for all entries, and for the chunk that is in creation, or the next one.
    memory: Reservation,
    began: Instant,
    slots: Slots,
    /// Series to be created, in the order in which their first points arrived.
    order: EntryList,
    /// Series with points that arrived while earlier points were in creation, and others that are expected to exist. Their points do
    /// not wait for new series.
    known: EntryList,
    /// True while a chunk of `known` is being stored.
    stores_known: bool,
    /// Number of points, without those of the chunk in creation.
    points: u64,
    /// Number of points of the chunk in creation.
    chunk_points: u64,
    /// The earliest `since_ms` of its series.
    chunk_since_ms: Option<u32>,
    /// Memory of the entries, without the part that belongs to the chunk in creation.
    entry_bytes: u64,
    /// What all waiting points would take in one chunk.
    copy_bytes: u64,
    /// Memory of the chunk in creation, without the entries.
    chunk_bytes: u64,
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
    /// If only some points of the last series fitted: memory of this series in the next chunk, besides its points.
    rest_bytes: u64,
}

/// Points that were removed from a queue.
#[derive(Debug, Default)]
struct Removed {
    batch: Batch,
    tickets: Vec<Ticket>,
    /// Memory of the entries that belongs to the chunk now.
    entry_bytes: u64,
    /// Memory of the batch.
    copy_bytes: u64,
    /// If only some points of the last series fitted: memory of this series in the next chunk, besides its points.
    rest_bytes: u64,
}

/// Limits on a chunk. It has at least one point.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkLimits {
    pub(super) series: usize,
    /// Limit on the memory of the chunk.
    pub(super) bytes: u64,
}

/// What is queued and not stored yet, of one tenant or of all, including the chunk in creation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) points: u64,
    pub(crate) series: u64,
    /// When the series that has waited longest was queued. The rest of a series that was divided between
    /// chunks counts only once it is the next to be stored.
    pub(crate) since: Option<Instant>,
}

/// Whether series that are queued are expected to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    New,
    /// The points do not wait for new series. If a series does not exist after all, the points that are written together with it
    /// wait for its creation.
    Known,
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
    /// The tenant had no queue before. The caller must start the task that serves it.
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
        (new, expected): (&NewSamples, Expected),
        ticket: &Ticket,
        now: Instant,
    ) -> (Pushed, Option<Dropped>) {
        let mut tenants = self.tenants.lock();
        let pushed = if tenants.contains_key(tenant) { Pushed::Later } else { Pushed::First };
        let queue = tenants.entry(tenant.clone()).or_insert_with(|| Queue::new(self.account.part(), now));
        // an account may be filled by its only user, but here the points of a tenant may wait for hours
        let (multiple, all_bytes) = (MULTIPLE * share_weight, self.account.limit_bytes());
        queue.account.share(multiple, all_bytes - all_bytes / (multiple + 1));
        let mut dropped: Option<Dropped> = None;
        for part in &new.parts {
            if let Err(lost) = queue.push(part, expected, ticket, now) {
                ticket.lost();
                let all = dropped.get_or_insert(Dropped { points: 0, series: lost.series });
                all.points += lost.points;
            }
        }
        (pushed, dropped)
    }

    /// Removes points of series that exist already or are about to. Nothing else of the tenant may be in creation.
    pub(super) fn take_known(self: &Arc<Self>, tenant: &TenantId, limits: ChunkLimits) -> Option<Chunk> {
        self.take_from(tenant, limits, true)
    }

    /// Removes the points of the series that wait longest for their creation. Nothing else of the tenant may be in
    /// creation.
    pub(super) fn take(self: &Arc<Self>, tenant: &TenantId, limits: ChunkLimits) -> Option<Chunk> {
        self.take_from(tenant, limits, false)
    }

    fn take_from(self: &Arc<Self>, tenant: &TenantId, limits: ChunkLimits, are_known: bool) -> Option<Chunk> {
        let mut tenants = self.tenants.lock();
        let queue = tenants.get_mut(tenant)?;
        let Removed { batch, tickets, entry_bytes, rest_bytes, .. } = queue.take(limits, are_known)?;
        let series = batch.floats.series.iter().map(|series| series.key).collect();
        let taken = Taken { queue: Arc::clone(self), tenant: tenant.clone(), series, rest_bytes };
        Some(Chunk { batch, tickets, _taken: taken, _memory: queue.memory.split(entry_bytes) })
    }

    /// True if the tenant has series that wait for their creation.
    pub(super) fn has_new(&self, tenant: &TenantId) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|queue| !queue.order.is_empty())
    }

    /// Forgets the tenant if none of its points waits. Returns false otherwise.
    pub(super) fn forget(&self, tenant: &TenantId) -> bool {
        let mut tenants = self.tenants.lock();
        let is_empty = tenants.get(tenant).is_none_or(|queue| queue.slots.is_empty());
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

    /// The number of points of each tenant that has some, with those in creation.
    pub(super) fn points(&self) -> Vec<(TenantId, u64)> {
        let tenants = self.tenants.lock();
        let points = tenants.iter().map(|(tenant, queue)| (tenant.clone(), queue.queued().points));
        points.filter(|(_, points)| *points > 0).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenants.lock().is_empty()
    }
}

impl WaitingSeries for NewSeriesQueue {
    fn mark(&self, tenant: &TenantId, series: &[BatchSeries], waiting: &mut Vec<bool>) {
        if let Some(queue) = self.tenants.lock().get(tenant) {
            waiting.extend(series.iter().map(|series| queue.slots.find(series.key).is_some()));
        }
    }

    fn waits(&self, tenant: &TenantId, key: SeriesKey) -> bool {
        self.tenants.lock().get(tenant).is_some_and(|queue| queue.slots.find(key).is_some())
    }

    fn labels(&self, tenant: &TenantId, key: SeriesKey) -> Option<Labels> {
        let tenants = self.tenants.lock();
        let slots = &tenants.get(tenant)?.slots;
        Some(slots.get(slots.find(key)?).labels().clone())
    }
}

impl Queued {
    /// Time for which the oldest of the series has waited.
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
    fn new(account: Account, now: Instant) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let (order, known) = (EntryList::default(), EntryList::default());
        Self {
            account,
            memory,
            began: now,
            slots: Slots::default(),
            order,
            known,
            stores_known: false,
            points: 0,
            chunk_points: 0,
            chunk_since_ms: None,
            entry_bytes: 0,
            copy_bytes: 0,
            chunk_bytes: 0,
        }
    }

    fn queued(&self) -> Queued {
        let first = [self.order.first(), self.known.first()].into_iter().flatten();
        let since_ms = first.map(|number| self.slots.get(number).since_ms).chain(self.chunk_since_ms).min();
        let since = since_ms.map(|since_ms| self.began + Duration::from_millis(since_ms.into()));
        Queued { points: self.points + self.chunk_points, series: self.slots.len() as u64, since }
    }

    fn push(
        &mut self,
        part: &NewPart,
        expected: Expected,
        ticket: &Ticket,
        now: Instant,
    ) -> Result<(), Dropped> {
        let ValuesRef::Floats(values) = part.values.as_ref() else {
            return Err(Dropped::from(part, 0)); // no protocol that uses this queue has histograms
        };
        for (i, new) in part.series.iter().enumerate() {
            let samples = new.samples.start as usize..new.samples.end as usize;
            let points =
                part.timestamps[samples.clone()].iter().copied().zip(values[samples].iter().copied());
            if points.len() > 0 && self.add(new, points, expected, ticket, now).is_err() {
                return Err(Dropped::from(part, i));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        new: &NewSeries,
        points: impl ExactSizeIterator<Item = Point>,
        expected: Expected,
        ticket: &Ticket,
        now: Instant,
    ) -> Result<(), Exhausted> {
        let found = self.slots.find(new.key);
        let (before, after) = match found {
            Some(number) => {
                let entry = self.slots.get(number);
                (entry.size(), entry.size_with(points.len(), ticket))
            }
            None => (Size::default(), Size::of_new(&new.labels, points.len())),
        };
        let entry_bytes = self.entry_bytes + after.entry_bytes - before.entry_bytes;
        let copy_bytes = self.copy_bytes + after.copy_bytes - before.copy_bytes;
        self.memory.resize(entry_bytes + self.ahead_bytes(copy_bytes))?;
        (self.entry_bytes, self.copy_bytes) = (entry_bytes, copy_bytes);
        let since_ms = now.saturating_duration_since(self.began).as_millis();
        let since_ms = u32::try_from(since_ms).unwrap_or(u32::MAX);
        let (number, list) = match found {
            // if it is in no list, its other points are in creation
            Some(number) => (number, &mut self.known),
            None => {
                let number = self.slots.insert(Entry::new(new.key, new.labels.clone(), since_ms));
                let list = match expected {
                    Expected::New => &mut self.order,
                    Expected::Known => &mut self.known,
                };
                (number, list)
            }
        };
        if self.slots.get(number).is_in_creation() {
            self.slots.get_mut(number).since_ms = since_ms;
            self.slots.push(list, number);
        }
        self.points += points.len() as u64;
        self.slots.get_mut(number).add(points, ticket);
        Ok(())
    }

    /// What is reserved for chunks: enough for the one in creation, or for the next one. If few points wait, they need less
    /// than the largest chunk.
    fn ahead_bytes(&self, copy_bytes: u64) -> u64 {
        (copy_bytes + self.chunk_bytes).min(COPY_BYTES_MAX)
    }

    /// Removes points of the first series that wait. `None` if no series waits.
    fn take(&mut self, limits: ChunkLimits, are_known: bool) -> Option<Removed> {
        let Self { slots, order, known, .. } = self;
        let (bytes_max, mut removed, mut divided) =
            (limits.bytes.min(COPY_BYTES_MAX), Removed::default(), None);
        let list = if are_known { &mut *known } else { order };
        let is_first = |batch: &Batch| batch.floats.series.is_empty();
        while (is_first(&removed.batch) || removed.batch.floats.series.len() < limits.series)
            && let Some(number) = list.first()
        {
            let series_bytes = slots.get(number).series_copy_bytes();
            let room = bytes_max.saturating_sub(removed.copy_bytes + series_bytes) / POINT_BYTES as u64;
            if room == 0 && !is_first(&removed.batch) {
                break;
            }
            slots.pop(list);
            let entry = slots.get_mut(number);
            self.chunk_since_ms = self.chunk_since_ms.into_iter().chain([entry.since_ms]).min();
            let count = entry.points().min(usize::try_from(room.max(1)).unwrap_or(usize::MAX));
            removed.take(entry, count);
            let copied_bytes = series_bytes + (count * POINT_BYTES) as u64;
            removed.copy_bytes += copied_bytes;
            self.points -= count as u64;
            self.copy_bytes -= copied_bytes;
            if !entry.is_in_creation() {
                (removed.rest_bytes, divided) = (series_bytes, Some(number));
                break;
            }
        }
        // the points that did not fit follow once their series exists
        if let Some(number) = divided {
            slots.push(known, number);
        }
        let is_empty = is_first(&removed.batch);
        self.stores_known = are_known && !is_empty;
        self.entry_bytes -= removed.entry_bytes;
        self.chunk_bytes += removed.copy_bytes;
        self.chunk_points += removed.batch.floats.values.len() as u64;
        (!is_empty).then_some(removed)
    }

    /// The points in creation are stored or lost.
    fn end_creation(&mut self, series: &[SeriesKey], rest_bytes: u64) {
        for key in series {
            if let Some(number) = self.slots.find(*key)
                && self.slots.get(number).is_in_creation()
            {
                self.slots.remove(number);
            }
        }
        (self.stores_known, self.chunk_bytes) = (false, 0);
        (self.chunk_points, self.chunk_since_ms) = (0, None);
        self.copy_bytes += rest_bytes;
        let bytes = self.entry_bytes + self.ahead_bytes(self.copy_bytes);
        self.memory.resize(bytes).expect("BUG: cannot shrink a reservation");
        if self.slots.is_empty() {
            self.slots = Slots::default();
        }
    }
}

impl Removed {
    /// Moves the first points of an entry.
    fn take(&mut self, entry: &mut Entry, count: usize) {
        for ticket in entry.tickets() {
            if self.tickets.last().is_none_or(|last| !last.is(ticket)) {
                self.tickets.push(ticket.clone());
            }
        }
        let before = entry.size();
        let Batch { bytes, floats, .. } = &mut self.batch;
        let (start, sample) = (bytes.len() as u32, floats.timestamps.len() as u32);
        bytes.extend_from_slice(entry.labels().as_bytes());
        entry.take(count, |(at_ms, value)| {
            floats.timestamps.push(at_ms);
            floats.values.push(value);
        });
        let samples = sample..floats.timestamps.len() as u32;
        floats.series.push(BatchSeries { key: entry.key(), labels: start..bytes.len() as u32, samples });
        self.entry_bytes += before.entry_bytes - entry.size().entry_bytes;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut tenants = self.queue.tenants.lock();
        if let Some(queue) = tenants.get_mut(&self.tenant) {
            queue.end_creation(&self.series, self.rest_bytes);
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

    /// The sender of more than half of the series. If there is none, one of the senders.
    pub(super) fn main_sender(&self) -> Option<IpAddr> {
        let (mut candidate, mut lead) = (None, 0);
        for sender in self.tickets.iter().filter_map(Ticket::sender) {
            match lead {
                0 => (candidate, lead) = (Some(sender), 1),
                _ if candidate == Some(sender) => lead += 1,
                _ => lead -= 1,
            }
        }
        candidate
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
