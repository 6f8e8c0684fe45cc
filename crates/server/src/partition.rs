//! A partition's owner: one thread that creates series, writes the journal and fills the head.
//!
//! ```text
//!   submissions ─▶ gather ─▶ known ─ in turns ─┐
//!                     │                        ├─▶ admit ─────────▶ commit: record → sync → head → answer
//!                     └─▶ new ─ a slice a turn ┘
//! ```
//!
//! One sync makes a whole group of submissions durable (group commit). If submissions exceed one group, tenants take
//! turns. New series are created in slices between groups, to keep writes to known series fast. Queries see only
//! durable samples.

mod commit;
mod context;
mod delete_series;
mod delete_tenant;
mod dictionary;
mod evict;
mod extras;
mod fair_queue;
mod group_limit;
mod handles;
mod outage;
mod relocate;
mod replay;
mod replay_progress;
mod seal;
pub(crate) mod shared;
mod slicing;
pub(crate) mod submission;
pub(crate) mod sums;
#[cfg(test)]
mod tests;
mod time_share;

use crate::refusal::Refusal;
pub(crate) use context::{Context, STARTED_S, steady_s};
pub(crate) use delete_series::DeleteSeries;
use delete_series::Deleting;
pub(crate) use delete_tenant::DeleteTenant;
use dictionary::Dictionary;
use evict::Evicting;
use extras::Incoming;
use fair_queue::FairQueue;
use group_limit::GroupLimit;
pub(crate) use handles::Owners;
use head::TenantHead;
use journal::{Journal, JournalError, Offset, RecordEncoder};
use model::{SeriesRefusal, TenantId};
use outage::Outage;
use relocate::Relocating;
pub(crate) use relocate::{Relocate, Relocated};
pub(crate) use replay::closed_tenants::{ClosedBatch, ClosedReplay, ClosedTurn};
use seal::Sealing;
pub(crate) use seal::{Freeze, Frozen, Sealed, SealedSamples};
pub(crate) use shared::PartitionShared;
use slicing::Slicing;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use submission::Submission;
use sums::Sums;

/// The channel to an owner holds this many commands, as many as the largest default of `inflight_requests`.
pub(crate) const QUEUE_MAX: usize = 4096;

/// A tenant may add work of about this cost before it is another tenant's turn. The unit is the cost of one in-order
/// sample. A turn is less than the smallest group, so that each tenant has a turn in almost every group.
const GROUP_QUANTUM: u32 = 2_000;

/// The cost of adding a batch of a closed tenant.
const CLOSED_BATCH_COST: usize = 25_000;

/// Even a submission with few samples costs this much, because it must be recorded and answered. The unit is the cost
/// of one in-order sample.
const SUBMISSION_COST_MIN: usize = 100;

/// Number of series that are created between two groups, which takes about a quarter of a millisecond.
const CREATE_SLICE: usize = 256;

/// Refusing a series takes less time than creating one, so this many refused series count as one that was created.
const REFUSED_FOR_EACH_CREATED: usize = 8;

/// At most this many series of a submission are created at a time. In each round of the queue, a tenant of weight 1
/// gets about this many.
const CREATE_SHARE: usize = 32;

/// The creation of series slows down if samples of known series were admitted this recently. After each slice, it
/// then pauses for [`CREATE_PAUSE_FACTOR`] times as long as the slice took.
const KNOWN_LATELY: Duration = Duration::from_millis(200);
const CREATE_PAUSE_FACTOR: u32 = 12;

#[derive(Debug)]
pub(crate) enum Command {
    Write(Box<Submission>),
    Freeze(Freeze),
    Sealed(Sealed),
    /// Opens a reader of the journal. Reading begins with the dictionary in which this offset lies, because its
    /// records are needed to resolve series.
    Read(Offset, SyncSender<Read>),
    AddClosed(ClosedBatch, SyncSender<()>),
    /// Removes and returns the samples of a closed tenant in the head.
    Discard(TenantId, SyncSender<Option<Box<TenantHead>>>),
    /// Copies the samples of blocked tenants to the journal's end, so that older records can be deleted.
    Relocate(Relocate),
    /// Deletes the journal's records that no tenant needs any more.
    Truncate(SyncSender<()>),
    DeleteTenant(DeleteTenant),
    DeleteSeries(DeleteSeries),
    Stop,
}

#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) reader: Result<Box<dyn journal::Reader>, JournalError>,
    pub(crate) end: Offset,
}

pub(crate) type Commands = SyncSender<Command>;

#[derive(Debug)]
pub(crate) struct Owner {
    number: usize,
    context: Arc<Context>,
    partition: Arc<PartitionShared>,
    journal: Box<dyn Journal>,
    commands: Receiver<Command>,
    group: Vec<Submission>,
    /// Submissions whose series all exist. They wait for room in a group.
    known: FairQueue,
    group_limit: GroupLimit,
    creating: FairQueue,
    slicing: Slicing,
    dictionary: Dictionary,
    encoder: RecordEncoder,
    label_bytes: Vec<u8>,
    outage: Outage,
    sealing: Sealing,
    sums: Sums,
    relocating: Option<Relocating>,
    evicting: Evicting,
    deleting: Deleting,
    incoming: Incoming,
    /// Bytes of replayed records that were not frozen for sealing yet. The journal itself counts the bytes that are
    /// appended after replay.
    unsealed_bytes: u64,
    known_at: Instant,
    create_at: Instant,
    stopping: bool,
}

impl Owner {
    pub(crate) fn new(
        number: usize,
        context: Arc<Context>,
        partition: Arc<PartitionShared>,
        journal: Box<dyn Journal>,
        commands: Receiver<Command>,
    ) -> Self {
        let now = context.clock.instant();
        let sums = Sums::new(Arc::clone(&context.heads), now);
        Self {
            number,
            context,
            partition,
            journal,
            commands,
            group: Vec::new(),
            known: FairQueue::new(GROUP_QUANTUM),
            group_limit: GroupLimit::default(),
            creating: FairQueue::new(CREATE_SHARE as u32),
            slicing: Slicing::new(now),
            dictionary: Dictionary::default(),
            encoder: RecordEncoder::new(),
            label_bytes: Vec::new(),
            outage: Outage::default(),
            sealing: Sealing::default(),
            sums,
            relocating: None,
            evicting: Evicting::new(now),
            deleting: Deleting::new(now),
            incoming: Incoming::default(),
            unsealed_bytes: 0,
            known_at: now,
            create_at: now,
            stopping: false,
        }
    }

    /// Runs the owner until the node stops and every submission is answered.
    pub(crate) fn run(mut self) {
        match self.begin() {
            Ok(true) => {}
            Ok(false) => return,
            Err(refusal) => {
                tracing::error!(partition = self.number, error = %refusal, "the partition stays closed");
                *self.partition.trouble.lock() = format!("closed: {refusal}");
                return self.refuse_until_stopped(&refusal);
            }
        }
        while !(self.stopping && self.is_idle()) {
            self.turn(self.time_to_sleep());
        }
    }

    fn is_idle(&self) -> bool {
        self.group.is_empty() && self.known.is_empty() && self.creating.is_empty() && self.slicing.is_empty()
    }

    pub(crate) fn journal(&self) -> &dyn Journal {
        &*self.journal
    }

    /// Replays the journal. Returns false if the node is stopping. After an error, the partition stays closed.
    pub(crate) fn begin(&mut self) -> Result<bool, Refusal> {
        match self.replay() {
            Ok(replay::End::Complete) => {}
            Ok(replay::End::Stopped) => return Ok(false),
            Err(error) => return Err(Refusal::from(&error)),
        }
        let newest_ms = self.partition.head.read().newest_ms();
        if let Some(newest_ms) = newest_ms {
            // the sample may have been up to `future_ms` ahead of the clock when it arrived
            let came_ms = newest_ms.saturating_sub(self.context.settings.future_ms);
            self.context.wall.found(came_ms, &*self.context.clock);
        }
        self.sums.publish();
        self.publish_stats();
        self.note_tenants();
        self.partition.can_freeze.store(true, Ordering::Release);
        self.partition.count_late(&self.partition.head.read(), &self.context.lake.blocked);
        self.partition.ready.store(true, Ordering::Release);
        Ok(true)
    }

    /// Does one round of each kind of work. If `wait` is set and no command is waiting, first waits up to this long
    /// for one.
    pub(crate) fn turn(&mut self, wait: Option<Duration>) {
        let cost = self.gather(wait);
        self.fill_group(cost);
        self.create_slice();
        self.take_slice();
        self.turn_away_relocating();
        if !self.group.is_empty() {
            self.commit();
        }
        self.slice_done();
        self.seal_turn();
        self.relocate_turn();
        self.evict_turn();
        self.hide_turn();
        self.sums_turn();
    }

    /// Handles the waiting commands, and returns the cost of the samples that they added to the head. If `wait` is
    /// set and no command is waiting, first waits up to this long for one.
    fn gather(&mut self, wait: Option<Duration>) -> usize {
        let first = match wait {
            Some(timeout) => match self.commands.recv_timeout(timeout) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => return 0,
                Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
            },
            None => None,
        };
        let now = self.context.clock.instant();
        let group_cost = self.group_limit.cost(now);
        let (mut cost, mut taken) = (0, 0);
        let mut next = first.or_else(|| self.commands.try_recv().ok());
        while let Some(command) = next {
            taken += 1;
            match command {
                Command::Stop => self.stopping = true,
                Command::Write(s) => {
                    let weight = self.context.weight(&s.tenant);
                    self.group_limit.arrived(&s.tenant, now);
                    let queue = if s.is_resolved() { &mut self.known } else { &mut self.creating };
                    queue.push(*s, weight);
                }
                Command::Freeze(freeze) => self.sealing.requested = Some(freeze),
                Command::Sealed(sealed) => self.sealed(sealed),
                Command::Read(from, reply) => {
                    let reader = self.journal.read(self.journal.dictionary_start(from));
                    let _ = reply.send(Read { reader, end: self.journal.durable_end() }); // the receiver may be gone
                }
                Command::AddClosed(batch, reply) => {
                    self.add_closed(&batch);
                    let _ = reply.send(()); // the receiver may be gone
                    cost += CLOSED_BATCH_COST;
                }
                Command::Discard(tenant, reply) => {
                    let _ = reply.send(self.discard(&tenant)); // the receiver may be gone
                }
                Command::Relocate(request) => {
                    self.relocating = Some(Relocating::new(request, self.context.clock.instant()));
                }
                Command::Truncate(reply) => {
                    self.truncate_to_mark();
                    let _ = reply.send(()); // the receiver may be gone
                }
                Command::DeleteTenant(request) => self.delete_tenant(request),
                Command::DeleteSeries(request) => self.delete_series(request),
            }
            let is_enough = cost >= group_cost || taken >= QUEUE_MAX;
            next = if is_enough { None } else { self.commands.try_recv().ok() };
        }
        cost
    }

    fn fill_group(&mut self, mut cost: usize) {
        let group_cost = self.group_limit.cost(self.context.clock.instant());
        while cost < group_cost
            && let Some(submission) = self.known.pop()
        {
            let tenant = submission.tenant.clone();
            let added = self.admit(submission);
            if added > 0 {
                self.known_at = self.context.clock.instant();
            }
            let added = added.max(SUBMISSION_COST_MIN);
            self.known.charge(&tenant, added);
            cost += added;
        }
    }

    /// Time to wait for a command before other work is due; `None` if work is due now.
    fn time_to_sleep(&self) -> Option<Duration> {
        if self.stopping || !self.known.is_empty() {
            return None;
        }
        let creates = (!self.creating.is_empty()).then_some(self.create_at);
        let relocates = self.relocating.as_ref().map(Relocating::wants_turn);
        let sums = Some(self.sums.wants_turn());
        let (slices, seals) = (self.slicing.wants_turn(), self.sealing.wants_turn());
        let others = [creates, slices, seals, relocates, sums, self.deleting.wants_turn()];
        let others = others.into_iter().flatten();
        let next = others.fold(self.evicting.time_share.due(), Instant::min);
        let left = next.saturating_duration_since(self.context.clock.instant());
        (!left.is_zero()).then_some(left)
    }

    fn create_slice(&mut self) {
        let began = self.context.clock.instant();
        if self.creating.is_empty() || (began < self.create_at && !self.stopping) {
            return;
        }
        self.create_up_to(CREATE_SLICE);
        let now = self.context.clock.instant();
        let protects = now.duration_since(self.known_at) < KNOWN_LATELY;
        let pause = if protects { now.duration_since(began) * CREATE_PAUSE_FACTOR } else { Duration::ZERO };
        self.create_at = now + pause;
    }

    /// Creates up to `most` series, or refuses [`REFUSED_FOR_EACH_CREATED`] times as many.
    fn create_up_to(&mut self, most: usize) {
        let mut left = most * REFUSED_FOR_EACH_CREATED; // in units of a refused series
        while left > 0
            && let Some(mut submission) = self.creating.pop()
        {
            let before = submission.new.len();
            let wanted =
                left.div_ceil(REFUSED_FOR_EACH_CREATED).min(CREATE_SHARE).min(before - submission.created);
            let wanted = self.refuse_beyond_metric_limit(&mut submission, wanted, left);
            let mut created = 0;
            if wanted > 0 {
                match self.context.room_for_series(&submission, wanted) {
                    Ok(room) => {
                        created = self.create_some(&mut submission, room);
                        submission.note_created();
                    }
                    // the submission's samples of existing series are still stored
                    Err(error) => submission.refuse_new(&error, left, self.context.clock.instant()),
                }
            }
            let cost = created * REFUSED_FOR_EACH_CREATED + (before - submission.new.len());
            left = left.saturating_sub(cost);
            self.creating.charge(&submission.tenant, cost.div_ceil(REFUSED_FOR_EACH_CREATED).max(1));
            if submission.is_resolved() {
                self.admit(submission);
            } else {
                let weight = self.context.weight(&submission.tenant);
                self.creating.push(submission, weight);
            }
        }
        self.partition.creating.store(self.creating.len() as u64, Ordering::Relaxed);
    }

    /// Refuses new series whose metric has reached the tenant's limit on series per metric, at most `refused_max`.
    /// Returns how many of the next `wanted` series may be created.
    fn refuse_beyond_metric_limit(
        &self,
        submission: &mut Submission,
        wanted: usize,
        refused_max: usize,
    ) -> usize {
        let settings = self.context.overrides.current();
        let limits = &settings.of(&submission.tenant).limits;
        let Some(limit) = limits.binding_series_per_metric() else { return wanted };
        let error = SeriesRefusal::SeriesPerMetric {
            limit: limit as u64,
            is_configured: limits.series_per_metric_is_given,
        };
        let (partitions, tenant) = (&self.context.partitions, submission.tenant.clone());
        submission.refuse_beyond_metric_limit(wanted, refused_max, limit as u64, &error, |metric| {
            let series_in = |partition: &Arc<PartitionShared>| {
                let head = partition.head.read();
                head.tenant(&tenant).map_or(0, |head| head.series_with(model::labels::METRIC_NAME, metric))
            };
            partitions.iter().map(series_in).sum()
        })
    }

    fn create_some(&mut self, submission: &mut Submission, most: usize) -> usize {
        let from = submission.created;
        let to = submission.new.len().min(from + most);
        {
            let mut partition = self.partition.head.write();
            let (before_bytes, now_s) =
                (partition.memory_bytes_of(&submission.tenant), self.context.steady_s());
            let head = partition.tenant_mut(&submission.tenant);
            let before = head.series_count();
            for new in &mut submission.new[from..to] {
                let kind = submission.values.kind();
                let series = head.create_sent(kind, new.key, new.labels.as_ref(), now_s);
                let samples = new.samples.start as usize..new.samples.end as usize;
                submission.increments.add_new(&submission.new_increments, &samples, submission.refs.len());
                submission.refs.extend(std::iter::repeat_n(series, samples.len()));
                submission.timestamps.extend_from_slice(&submission.new_timestamps[samples.clone()]);
                submission.values.extend(submission.new_values.as_ref().slice(samples));
                submission.exemplars.extend(new.exemplars.drain(..).map(|e| (series, e)));
            }
            let created = head.series_count() - before; // some may have existed, by other spellings of their labels
            submission.outcome.has_created |= created > 0;
            self.context.metrics.series_created.add(created as u64);
            self.partition.grew(head.memory_bytes() as isize - before_bytes as isize);
            submission.state.created(to - from, self.number, head.series_count(), head.memory_bytes());
        }
        submission.created = to;
        to - from
    }

    fn note_tenants(&self) {
        let now = self.context.clock.instant();
        for (tenant, head) in self.partition.head.read().tenants() {
            let is_own = *tenant == self.context.settings.self_monitoring.tenant;
            let is_known = || is_own || self.context.lake.tables.is_known(tenant);
            let state = self.context.tenants.of(tenant, is_known, now);
            state.hold(self.number, head.series_count(), head.memory_bytes());
        }
    }

    fn publish_stats(&self) {
        let stats = self.journal.stats();
        self.partition.journal_bytes.store(stats.bytes, Ordering::Relaxed);
        self.partition.journal_segments.store(stats.dictionaries, Ordering::Relaxed);
        let unsealed = self.unsealed_bytes + stats.appended_bytes.saturating_sub(self.sealing.appended_bytes);
        self.partition.unsealed_bytes.store(unsealed, Ordering::Relaxed);
        self.partition.sums.store(self.sums.count() as u64, Ordering::Relaxed);
    }

    fn refuse_until_stopped(&self, refusal: &Refusal) {
        loop {
            match self.commands.recv() {
                Ok(Command::Write(submission)) => submission.refuse_all(refusal.clone()),
                Ok(Command::Stop) | Err(_) => return,
                Ok(_) => {} // dropping the reply ends the caller's wait
            }
        }
    }
}
