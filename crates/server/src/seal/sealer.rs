//! The thread that executes the commands of the state machine, [`Sealing`].
//!
//! - [`heads`]: freeze, stage, release; [`commit`]: floodmarks and commits of tables
//! - [`blocked`]: relocation for blocked tenants, replay for closed tenants
//! - [`report`]: log, metrics, and the list of blocked tenants for admission

mod blocked;
mod commit;
mod heads;
mod report;

use super::error::SealError;
use super::flushed::Flushed;
use super::state_machine::flushes::FlushId;
use super::state_machine::io::{Command, Event, View};
use super::state_machine::{Sealing, Thresholds};
use super::workers::Workers;
use crate::limits::pacer::Pacer;
use crate::partition::{ClosedReplay, Owners};
use crate::seal::Context;
use model::TenantId;
use report::Stopwatch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

pub(crate) const QUEUE_MAX: usize = 64;

#[derive(Debug)]
pub(crate) enum Message {
    /// Seal everything that was accepted before, and answer once it is in tables.
    Flush(oneshot::Sender<Flushed>),
    /// Seal everything that was accepted before, and answer once this tenant's samples have left the heads.
    FlushTenant(TenantId, oneshot::Sender<Flushed>),
    Stop,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

#[derive(Debug)]
pub(crate) struct Sealer<O> {
    context: Arc<Context>,
    owners: O,
    messages: Receiver<Message>,
    stopping: Arc<AtomicBool>,
    pacer: Pacer,
    workers: Workers,
    sealing: Sealing,
    flushes: BTreeMap<FlushId, oneshot::Sender<Flushed>>,
    next_flush: u64,
    closed_replay: Option<ClosedReplay>,
    stopwatch: Stopwatch,
}

impl<O: Owners> Sealer<O> {
    pub(crate) fn new(
        context: Arc<Context>,
        owners: O,
        messages: Receiver<Message>,
        stopping: Arc<AtomicBool>,
        workers: Workers,
    ) -> Self {
        let settings = &context.settings;
        let thresholds = Thresholds {
            partitions: context.partitions.len(),
            seal_after_ms: settings.lake.seal_after_ms,
            seal_bytes: settings.lake.seal_bytes,
            head_bytes: settings.budget.head_bytes,
            segment_bytes: settings.segment_bytes,
            flush_interval: Duration::from_millis(settings.lake.flush_interval_ms.unsigned_abs()),
        };
        Self {
            sealing: Sealing::new(thresholds, context.clock.instant()),
            pacer: context.pacer(),
            context,
            owners,
            messages,
            stopping,
            workers,
            flushes: BTreeMap::new(),
            next_flush: 0,
            closed_replay: None,
            stopwatch: Stopwatch::default(),
        }
    }

    pub(crate) fn run(mut self) {
        // requests are more urgent than sealing
        let _ = rustix::process::nice(5);
        loop {
            let wait = self.sealing.wake_in(self.context.clock.instant());
            match self.messages.recv_timeout(wait) {
                Ok(Message::Flush(answer)) => {
                    self.flush(None, answer);
                    continue;
                }
                Ok(Message::FlushTenant(tenant, answer)) => {
                    self.flush(Some(tenant), answer);
                    continue;
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.turn().is_err() {
                return;
            }
        }
    }

    /// Requests a flush of one tenant, or of all tenants if `of` is `None`.
    pub(crate) fn flush(&mut self, of: Option<TenantId>, answer: oneshot::Sender<Flushed>) {
        let view = self.view();
        // abandoned requests must not accumulate while the store is unavailable
        let abandoned = self.flushes.extract_if(.., |_, answer| answer.is_closed());
        for (id, _) in abandoned {
            self.sealing.handle(&view, Event::Abandoned(id));
        }
        let id = FlushId(self.next_flush);
        self.next_flush += 1;
        self.flushes.insert(id, answer);
        let event = of.map_or(Event::Flush(id), |tenant| Event::FlushTenant(id, tenant));
        self.sealing.handle(&view, event);
    }

    /// Runs one turn. Returns true if some work is unfinished and will be continued or retried in a later turn.
    pub(crate) fn turn(&mut self) -> Result<bool, Stopping> {
        while self.step()? {}
        Ok(self.sealing.is_unfinished())
    }

    /// Executes the next command, or begins a turn. Returns false at the end of the turn.
    pub(crate) fn step(&mut self) -> Result<bool, Stopping> {
        if self.sealing.is_idle() && !self.sealing.is_stopped() {
            self.sealing.handle(&self.view(), Event::Tick);
            // published before the turn's commands: after a freeze, partitions no longer report when the frozen samples
            // arrived
            self.publish();
        }
        if let Some(command) = self.sealing.poll() {
            self.perform(command);
        }
        if !self.sealing.is_idle() {
            return Ok(true);
        }
        self.publish();
        if self.sealing.is_stopped() { Err(Stopping) } else { Ok(false) }
    }

    fn perform(&mut self, command: Command) {
        let began = self.stopwatch.begin(&command);
        let done = match command {
            Command::Answer { flush, flushed } => {
                if let Some(answer) = self.flushes.remove(&flush) {
                    let _ = answer.send(flushed); // the requester may be gone
                }
                return;
            }
            Command::Report(report) => return self.report(report),
            command => self.execute(command),
        };
        self.stopwatch.end(began);
        let event = done.unwrap_or_else(Event::Failed);
        self.sealing.handle(&self.view(), event);
    }

    fn execute(&mut self, command: Command) -> Result<Event, SealError> {
        match command {
            Command::Freeze { partition, all, except } => self.freeze(partition, all, &except),
            Command::Stage { partition, tenants } => Ok(self.stage(partition, &tenants)),
            Command::Check { tenants, is_own } => self.check(&tenants, is_own),
            Command::Rename(rename) => self.rename(&rename),
            Command::WriteMarks(update) => self.write_marks(&update),
            Command::Commit { blocks, is_own } => self.commit(&blocks, is_own),
            Command::AwaitReaders { since, at_most } => self.await_readers(since, at_most),
            Command::ExpireReaders(ended) => Ok(self.expire_readers(ended)),
            Command::Release { partition, what } => self.release(partition, what),
            Command::Relocate { partition, movable } => self.relocate(partition, &movable),
            Command::Truncate { partition } => self.truncate(partition),
            Command::AskClosed { first } => self.ask_closed(first),
            Command::ReplayClosed => Ok(self.replay_closed()),
            Command::Answer { .. } | Command::Report(_) => unreachable!("BUG: the command has no outcome"),
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn view(&self) -> View {
        let (context, clock) = (&self.context, &self.context.clock);
        let partitions = context.partitions.iter();
        View {
            now: clock.instant(),
            now_ms: clock.now_ms(),
            is_ready: context.partitions.is_ready(),
            can_freeze: context.partitions.can_freeze(),
            unsealed_since_ms: context.partitions.unsealed_since_ms(),
            unsealed_bytes: partitions.map(|p| p.unsealed_bytes.load(Ordering::Relaxed)).max().unwrap_or(0),
            head_bytes: context.heads.bytes(),
            is_filled: context.heads.needs_sealing(),
            closed: context.lake.closed.tenants(),
            journal_bytes: context
                .partitions
                .iter()
                .map(|p| p.journal_bytes.load(Ordering::Relaxed))
                .collect(),
        }
    }

    /// Publishes the arrival time of the oldest sample that is frozen for sealing. The metric of the lag is computed
    /// from it. Also publishes what refused senders wait for.
    fn publish(&self) {
        let lake = &self.context.lake;
        lake.in_rounds_since_ms.store(self.sealing.since_ms(), Ordering::Relaxed);
        lake.progress.publish(self.sealing.schedule(&self.view()));
        lake.progress.publish_reopening(self.sealing.reopens_at());
        lake.sealing.frozen_samples.set(self.sealing.samples_frozen() as f64);
    }
}
