//! Points of series that do not exist yet, until the series are created.
//!
//! Creating a series costs much more than storing a point, so points of new series must not delay points of known
//! series. The queue is not durable. Its memory is part of the account `inflight`, of which each tenant may use a share.
//! When there is no room, the newest points are dropped.

use super::ticket::Ticket;
use crate::limits::budget::Budget;
use crate::partition::submission::NewPart;
use crate::settings::TenantSettings;
use crate::write_path::known::NewSamples;
use admission::gate::MULTIPLE;
use model::{Batch, BatchSeries, SeriesKey, TenantId, ValuesRef};
use parking_lot::Mutex;
use protocol::labels::describe_labels;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use stdx::budget::{Account, Reservation};

/// Limit on the series of a chunk. The series of a chunk are created together.
pub(super) const CHUNK_SERIES_MAX: usize = 4096;

/// Upper bound on the memory of a tenant's entry for one waiting series, in a map that is at least 7/16 full.
const SERIES_ENTRY_BYTES: usize = 80;

#[derive(Debug)]
pub(crate) struct NewSeriesQueue {
    account: Account,
    tenants: Mutex<HashMap<TenantId, Queue>>,
}

#[derive(Debug)]
struct Queue {
    account: Account,
    chunks: VecDeque<Chunk>,
    /// Number of waiting points of each series.
    series: HashMap<SeriesKey, u32>,
}

/// Points that wait together, in the order in which they arrived.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Has only floats. Each entry of its `series` is one or more points.
    pub(super) batch: Batch,
    tickets: Vec<Ticket>,
    since: Instant,
    /// `None` if this chunk was split off from another one, which keeps the reservation for both.
    memory: Option<Reservation>,
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
        Self { account, tenants: Mutex::default() }
    }

    /// Adds points at the end of the tenant's queue. The points of a partition are dropped together if there is no
    /// room.
    pub(super) fn push(
        &self,
        tenant: &TenantId,
        own: &TenantSettings,
        new: NewSamples,
        ticket: &Ticket,
        now: Instant,
    ) -> (Pushed, Option<Dropped>) {
        let mut tenants = self.tenants.lock();
        let pushed = if tenants.contains_key(tenant) { Pushed::Later } else { Pushed::First };
        let queue = tenants.entry(tenant.clone()).or_insert_with(|| Queue {
            account: self.account.part(),
            chunks: VecDeque::new(),
            series: HashMap::new(),
        });
        queue.account.share(MULTIPLE * own.share_weight as u64, u64::MAX);
        let mut dropped: Option<Dropped> = None;
        for part in new.parts {
            if let Err(lost) = queue.push(&part, ticket, now) {
                ticket.lost();
                let all = dropped.get_or_insert(Dropped { points: 0, series: lost.series });
                all.points += lost.points;
            }
        }
        (pushed, dropped)
    }

    /// Removes the tenant's oldest points, of at most `series_max` series. If nothing waits, the tenant is forgotten.
    pub(super) fn take(&self, tenant: &TenantId, series_max: usize) -> Option<Chunk> {
        let mut tenants = self.tenants.lock();
        let queue = tenants.get_mut(tenant)?;
        let chunk = queue.take(series_max);
        if chunk.is_none() {
            tenants.remove(tenant);
        }
        chunk
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
    fn queued(&self) -> Queued {
        let points = self.chunks.iter().map(|chunk| chunk.batch.floats.values.len() as u64).sum();
        let since = self.chunks.front().map(|chunk| chunk.since);
        Queued { points, series: self.series.len() as u64, since }
    }

    fn push(&mut self, part: &NewPart, ticket: &Ticket, now: Instant) -> Result<(), Dropped> {
        let ValuesRef::Floats(values) = part.values.as_ref() else {
            return Err(Dropped::of(part)); // no protocol that uses this queue has histograms
        };
        for (i, new) in part.series.iter().enumerate() {
            if self.chunks.back().is_none_or(Chunk::is_full) {
                let Ok(memory) = self.account.reserve(0) else { return Err(Dropped::from(part, i)) };
                let (batch, tickets) = (Batch::default(), Vec::new());
                self.chunks.push_back(Chunk { batch, tickets, since: now, memory: Some(memory) });
            }
            let chunk = self.chunks.back_mut().expect("BUG: there is no chunk");
            let samples = new.samples.start as usize..new.samples.end as usize;
            let (times, values) = (&part.timestamps[samples.clone()], &values[samples]);
            if chunk.add(new.key, new.labels.as_bytes(), times, values, ticket).is_err() {
                if chunk.batch.floats.series.is_empty() {
                    self.chunks.pop_back();
                }
                return Err(Dropped::from(part, i));
            }
            *self.series.entry(new.key).or_default() += values.len() as u32;
        }
        Ok(())
    }

    fn take(&mut self, series_max: usize) -> Option<Chunk> {
        let first = self.chunks.front_mut()?;
        let taken = match first.batch.floats.series.len() <= series_max {
            true => self.chunks.pop_front()?,
            false => first.split_off_front(series_max)?,
        };
        for series in &taken.batch.floats.series {
            if let Some(points) = self.series.get_mut(&series.key) {
                *points = points.saturating_sub(series.samples.len() as u32);
                if *points == 0 {
                    self.series.remove(&series.key);
                }
            }
        }
        if self.series.is_empty() {
            self.series = HashMap::new();
        }
        Some(taken)
    }
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.memory.is_none() || self.batch.floats.series.len() >= CHUNK_SERIES_MAX
    }

    fn add(
        &mut self,
        key: SeriesKey,
        labels: &[u8],
        timestamps: &[i64],
        values: &[f64],
        ticket: &Ticket,
    ) -> Result<(), stdx::budget::Exhausted> {
        let is_other = self.tickets.last().is_none_or(|last| !last.is(ticket));
        let added = labels.len()
            + timestamps.len() * 16
            + size_of::<BatchSeries>()
            + SERIES_ENTRY_BYTES
            + if is_other { size_of::<Ticket>() } else { 0 };
        if let Some(memory) = &mut self.memory {
            // vectors grow by doubling, so that half of their memory may be unused
            memory.resize(memory.bytes() + 2 * added as u64)?;
        }
        if is_other {
            self.tickets.push(ticket.clone());
        }
        let Batch { bytes, floats, .. } = &mut self.batch;
        let (start, sample) = (bytes.len() as u32, floats.timestamps.len() as u32);
        bytes.extend_from_slice(labels);
        floats.timestamps.extend_from_slice(timestamps);
        floats.values.extend_from_slice(values);
        let samples = sample..floats.timestamps.len() as u32;
        floats.series.push(BatchSeries { key, labels: start..bytes.len() as u32, samples });
        Ok(())
    }

    /// Moves the first `count` series, at least one, into a chunk of their own.
    fn split_off_front(&mut self, count: usize) -> Option<Self> {
        let mut front =
            Self { batch: Batch::default(), tickets: self.tickets.clone(), since: self.since, memory: None };
        let Batch { bytes, floats, .. } = &mut self.batch;
        let last = floats.series[..count].last()?.clone();
        let (bytes_end, samples_end) = (last.labels.end, last.samples.end);
        front.batch.bytes = bytes.drain(..bytes_end as usize).collect();
        front.batch.floats.series = floats.series.drain(..count).collect();
        front.batch.floats.timestamps = floats.timestamps.drain(..samples_end as usize).collect();
        front.batch.floats.values = floats.values.drain(..samples_end as usize).collect();
        for series in &mut floats.series {
            series.labels = series.labels.start - bytes_end..series.labels.end - bytes_end;
            series.samples = series.samples.start - samples_end..series.samples.end - samples_end;
        }
        Some(front)
    }

    pub(super) fn points(&self) -> u64 {
        self.batch.floats.values.len() as u64
    }

    /// Marks the points as lost, so that their senders' connections are not closed as if everything were stored.
    pub(super) fn lost(&self) {
        self.tickets.iter().for_each(Ticket::lost);
    }
}

impl Dropped {
    fn of(part: &NewPart) -> Self {
        Self::from(part, 0)
    }

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
