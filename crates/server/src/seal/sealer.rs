//! The thread that seals: when a round is due, and (in [`behind`]) what becomes of tenants that cannot be sealed.
//!
//! A tenant whose table fails stays frozen in the heads, and keeps the journal from there on, while all others go on. It is
//! tried again by itself, sooner or later as it fails the first time or the tenth, and comes back alone.

mod behind;
mod relocate;
mod reopen;

use super::flush::{FlushPace, Flushed, Waiter};
use super::round::Round;
use super::workers::{Late, Workers};
use crate::limits::head_watermarks;
use crate::limits::pacer::Courtesy;
use crate::node::Shared;
use crate::partition::Owners;
use behind::Behind;
use model::TenantId;
use relocate::Relocation;
use reopen::Reopening;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use stdx::budget::Exhausted;
use tables::TableError;
use tokio::sync::oneshot;

/// How often it is looked whether sealing is due.
const TICK: Duration = Duration::from_millis(200);

/// What is waited after a failed attempt: twice as long each time.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Where the head is so full that sealing begins by itself, it does so again when the head has grown by so much, or after
/// this pause: what the index of the series takes, sealing does not give back.
const PRESSURE_STEP_PERCENT: u64 = 10;
const PRESSURE_PAUSE: Duration = Duration::from_secs(30);

/// Flushes that may wait.
pub(crate) const ORDERS_MAX: usize = 64;

/// What the sealer can be told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Seal and commit everything that was accepted before; answered when that is done.
    Flush(oneshot::Sender<Flushed>),
    /// End.
    Stop,
}

/// Why a round did not get on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("floodmarks.json: {0}")]
    Manifest(#[from] io::Error),
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("partition {0} is closed")]
    Closed(usize),
    #[error("the table of {tenant} does not take offsets of {journal}: another journal uses that name")]
    Renamed { tenant: TenantId, journal: String },
    #[error("what was staged may have been swept away; it is staged again")]
    Lapsed,
    #[error(transparent)]
    Late(#[from] Late),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("the server is shutting down")]
    Stopping,
    #[cfg(test)]
    #[error("injected at {0}")]
    Injected(&'static str),
}

impl SealError {
    /// Other tenants are not concerned.
    pub(super) const fn is_of_one_table(&self) -> bool {
        matches!(self, Self::Table(_) | Self::Late(_))
    }
}

/// The node is going: nothing of a round is done any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

/// The sealing thread's state.
#[derive(Debug)]
pub(crate) struct Sealer<O> {
    pub(super) node: Arc<Shared>,
    pub(super) owners: O,
    orders: Receiver<Order>,
    pub(super) stopping: Arc<AtomicBool>,
    /// Requests go first.
    pub(super) courtesy: Courtesy,
    pub(super) workers: Workers,
    round: Option<Round>,
    /// Who waits for a round that is not begun yet.
    waiting: Vec<Waiter>,
    flush_pace: FlushPace,
    /// Who waits for tenants that could not be sealed.
    held: Vec<Waiter>,
    behind: BTreeMap<TenantId, Behind>,
    reopening: Reopening,
    relocation: Relocation,
    /// A tenant is no longer behind: what came of it meanwhile is older than it looks.
    caught_up: bool,
    failures: u32,
    /// What the heads held when the last round ended.
    head_bytes: u64,
    ended: Instant,
}

impl<O: Owners> Sealer<O> {
    pub(crate) fn new(
        node: Arc<Shared>,
        owners: O,
        orders: Receiver<Order>,
        stopping: Arc<AtomicBool>,
        workers: Workers,
    ) -> Self {
        let (ended, courtesy) = (node.clock.instant(), Courtesy::new(&node));
        let flush_interval = Duration::from_millis(node.settings.lake.flush_interval_ms.unsigned_abs());
        let relocation = Relocation::new(node.partitions().len(), node.settings.segment_bytes);
        Self {
            relocation,
            flush_pace: FlushPace::new(flush_interval),
            courtesy,
            workers,
            node,
            owners,
            orders,
            stopping,
            round: None,
            waiting: Vec::new(),
            held: Vec::new(),
            behind: BTreeMap::new(),
            reopening: Reopening::new(ended),
            caught_up: false,
            failures: 0,
            head_bytes: 0,
            ended,
        }
    }

    /// The sealer's life: rounds, until it is told to stop.
    pub(crate) fn run(mut self) {
        // ingest and queries come first
        let _ = rustix::process::nice(5);
        let mut retry_at = self.node.clock.instant();
        loop {
            let retry_in = retry_at.saturating_duration_since(self.node.clock.instant());
            let wait = if self.round.is_some() {
                retry_in
            } else {
                let flush_in = self.flush_in().unwrap_or(TICK).min(TICK);
                if self.behind.is_empty() && self.node.lake.closed.is_empty() {
                    flush_in
                } else {
                    flush_in.min(retry_in)
                }
            };
            match self.orders.recv_timeout(wait) {
                Ok(Order::Flush(answer)) => {
                    self.take(answer);
                    continue;
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            match self.turn() {
                Ok(None) => {}
                Ok(Some(wait)) => retry_at = self.node.clock.instant() + wait,
                Err(Stopping) => return,
            }
        }
    }

    /// Somebody waits for a flush.
    pub(crate) fn take(&mut self, answer: oneshot::Sender<Flushed>) {
        // who gave up must not take up memory while the store is away
        for waiters in [&mut self.waiting, &mut self.held] {
            waiters.retain(|waits| !waits.answer.is_closed());
        }
        let asked = self.node.clock.instant();
        self.waiting.push(Waiter { answer, asked, flushed: Flushed::default() });
    }

    /// When a round may begin for those who wait for one; `None` where nobody does.
    fn flush_in(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.flush_pace.wait(self.node.clock.instant()))
    }

    /// Begins a round where one is due, does what is left of it, and tries one of the tenants again that were set aside;
    /// says how long to wait where something is left.
    pub(crate) fn turn(&mut self) -> Result<Option<Duration>, Stopping> {
        self.publish();
        if self.round.is_none()
            && self.node.can_freeze()
            && (self.flush_in() == Some(Duration::ZERO) || self.is_due())
        {
            self.begin();
        }
        let round = match self.advance() {
            Ok(true) => None,
            Ok(false) => Some(Duration::ZERO), // it waited already
            Err(SealError::Stopping) => return Err(Stopping),
            Err(error) => Some(self.failed(&error)),
        };
        self.relocate_some()?;
        self.retry_one()?;
        let closed = self.reopen_some();
        self.answer_held();
        let now = self.node.clock.instant();
        let behind = self.behind.values().map(|b| b.retry_at.saturating_duration_since(now)).min();
        Ok([round, behind, closed].into_iter().flatten().min())
    }

    fn begin(&mut self) {
        let waiters = std::mem::take(&mut self.waiting);
        if !waiters.is_empty() {
            self.flush_pace.begin(self.node.clock.instant());
        }
        let closed = self.node.lake.closed.tenants();
        let except = self.behind.keys().cloned().chain(closed).collect();
        let since_ms = self.node.unsealed_since_ms().unwrap_or(i64::MAX);
        self.caught_up = false;
        self.round = Some(Round::of_all(&self.node, since_ms, except, waiters));
        self.publish();
    }

    fn is_due(&self) -> bool {
        let settings = &self.node.settings.lake;
        if !self.node.is_ready() {
            // what is being replayed is sealed only to make room for the rest
            return self.node.unsealed_since_ms().is_some() && self.is_under_pressure();
        }
        let Some(oldest_ms) = self.node.unsealed_since_ms() else { return self.caught_up };
        // a clock that was set back must not put sealing off
        let is_old = self.node.clock.now_ms().abs_diff(oldest_ms) >= settings.seal_after_ms.unsigned_abs();
        let is_long = |p: &crate::partition::PartitionShared| {
            p.unsealed_bytes.load(Ordering::Relaxed) >= settings.seal_bytes
        };
        self.caught_up
            || is_old
            || self.node.partitions().iter().any(|p| is_long(p))
            || self.is_under_pressure()
    }

    /// The head fills, and sealing may help.
    fn is_under_pressure(&self) -> bool {
        let grown = self.node.head_bytes().saturating_sub(self.head_bytes);
        self.node.is_filled_to(head_watermarks::SEAL)
            && (grown > self.node.settings.budget.head_bytes / 100 * PRESSURE_STEP_PERCENT
                || self.node.clock.instant().duration_since(self.ended) > PRESSURE_PAUSE)
    }

    /// Publishes when the oldest sample in rounds came. The lag is computed from that and the clock when it is read, so it
    /// is right even while this thread hangs.
    fn publish(&self) {
        let rounds = || self.round.iter().chain(self.behind.values().map(|behind| &behind.round));
        let in_rounds = rounds().map(|round| round.since_ms).min().unwrap_or(i64::MAX);
        self.node.lake.in_rounds_since_ms.store(in_rounds, Ordering::Relaxed);
        let metrics = &self.node.lake.metrics;
        metrics.frozen_samples.set(rounds().map(Round::samples_frozen).sum::<u64>() as f64);
    }

    /// Counts a failure, and says how long to wait. The log has one line for each change of state.
    fn failed(&mut self, error: &SealError) -> Duration {
        self.node.lake.metrics.failures.inc();
        if self.failures == 0 {
            tracing::warn!(%error, "sealing failed and will be retried; the journal keeps everything");
        } else {
            tracing::debug!(%error, failures = self.failures, "sealing still does not get on");
        }
        self.failures += 1;
        backoff(self.failures)
    }

    /// Does what is left of the round; true where nothing is.
    fn advance(&mut self) -> Result<bool, SealError> {
        let Some(mut round) = self.round.take() else { return Ok(true) };
        let mut aside = Vec::new();
        let done = self.advance_round(&mut round, &mut aside);
        if round.flushed.commits > 0 || !aside.is_empty() {
            self.node.lake.laggards.others_are_sealed(round.flushed.commits > 0);
        }
        self.set_aside(aside);
        if round.noted {
            self.answer(&mut round);
        }
        match done {
            Ok(true) => self.ended(&round),
            Ok(false) | Err(_) => self.round = Some(round),
        }
        done
    }

    /// Answers who waits for a round that is committed.
    fn answer(&mut self, round: &mut Round) {
        for mut waiter in round.waiters.drain(..) {
            waiter.flushed = Flushed::sum([waiter.flushed, round.flushed].iter());
            if self.behind.is_empty() {
                waiter.flushed.behind = self.node.lake.closed.len() as u64;
                let _ = waiter.answer.send(waiter.flushed); // who asked may be gone
            } else {
                self.held.push(waiter);
            }
        }
    }

    fn ended(&mut self, round: &Round) {
        let metrics = &self.node.lake.metrics;
        metrics.rounds.inc();
        let seconds = self.node.clock.instant().duration_since(round.began).as_secs_f64();
        metrics.round_seconds.observe(seconds);
        let Flushed { tables, commits, files, rows, samples, bytes, .. } = round.flushed;
        if std::mem::take(&mut self.failures) > 0 {
            tracing::warn!(samples, "sealing gets on again");
        }
        tracing::info!(samples, rows, files, bytes, tables, commits, seconds, "sealed");
        self.head_bytes = self.node.head_bytes();
        self.ended = self.node.clock.instant();
        self.publish();
    }
}

/// What is waited after so many failures.
fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << (failures - 1).min(16)).min(BACKOFF_MAX)
}
