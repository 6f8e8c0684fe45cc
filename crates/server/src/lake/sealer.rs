//! The thread that seals: when it is due, and one round of it.

use super::fault;
use super::stage::{self, Staged, Workspace};
use super::upkeep::SWEEP_EVERY;
use crate::node::Shared;
use crate::owner::{Frozen, Owners};
use crate::refusal::Refusal;
use model::TenantId;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use stdx::budget::Exhausted;
use tables::{Outcome, StagedBlock, TableError};
use tokio::sync::oneshot;

/// How often it is looked whether sealing is due.
const TICK: Duration = Duration::from_millis(200);

/// What is waited after a failed attempt: twice as long each time.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long what was committed stays in the head for the sake of queries that began before.
const OUTLIVE_AFTER: Duration = Duration::from_secs(10);

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

/// What a round came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) tables: u64,
    pub(crate) commits: u64,
    pub(crate) files: u64,
    pub(crate) rows: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
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
    #[error(
        "the table of {tenant} does not take offsets of {journal}; its journal goes on under another name"
    )]
    Renamed { tenant: TenantId, journal: String },
    #[error("what was staged has waited for so long that it may be swept away; it is staged again")]
    Stale,
    #[error("the server is shutting down")]
    Stopping,
    #[cfg(test)]
    #[error("injected at {0}")]
    Injected(&'static str),
}

/// The node is going: nothing of a round is done any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

/// The sealing thread's state.
#[derive(Debug)]
pub(crate) struct Sealer<O> {
    node: Arc<Shared>,
    owners: O,
    orders: Receiver<Order>,
    stopping: Arc<AtomicBool>,
    round: Option<Round>,
    /// Who waits for a round that is not begun yet.
    waiting: Vec<oneshot::Sender<Flushed>>,
    failures: u32,
    /// What the heads held when the last round ended.
    head_bytes: u64,
    ended: Instant,
}

/// One round: what has been done of it. Each step can be repeated.
#[derive(Debug)]
struct Round {
    began: Instant,
    /// When the oldest sample of it came.
    since_ms: i64,
    /// Everything is to leave the journal.
    all: bool,
    answers: Vec<oneshot::Sender<Flushed>>,
    parts: Vec<Part>,
    /// Tenants whose commit is done.
    committed: BTreeMap<TenantId, Flushed>,
    noted: bool,
    flushed: Flushed,
}

/// One partition's share of a round.
#[derive(Debug, Default)]
struct Part {
    frozen: Option<Frozen>,
    staged: Option<Staged>,
    released: bool,
}

impl Round {
    /// Lets go of files that were staged before `most` and are not committed: nothing tells them from files that were
    /// left behind, and those are swept away. What is frozen is staged again from the head; a tenant that has committed
    /// stays as it is. True where there was something.
    fn forget_stale(&mut self, now: Instant, most: Duration) -> bool {
        let is_stale = |staged: &mut Staged| now.duration_since(staged.began) >= most;
        !self.noted && self.parts.iter_mut().filter_map(|part| part.staged.take_if(is_stale)).count() > 0
    }
}

/// How long staged files may wait for their commit. A file is deleted only when two sweeps have seen it dead, and the grace
/// has passed between them.
fn staged_max(vacuum_grace_ms: i64) -> Duration {
    Duration::from_millis(vacuum_grace_ms.unsigned_abs()).max(SWEEP_EVERY) / 2
}

impl<O: Owners> Sealer<O> {
    pub(crate) fn new(
        node: Arc<Shared>,
        owners: O,
        orders: Receiver<Order>,
        stopping: Arc<AtomicBool>,
    ) -> Self {
        let ended = node.clock.instant();
        Self {
            node,
            owners,
            orders,
            stopping,
            round: None,
            waiting: Vec::new(),
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
            let wait = if self.round.is_some() {
                retry_at.saturating_duration_since(self.node.clock.instant())
            } else if self.waiting.is_empty() {
                TICK
            } else {
                Duration::ZERO
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
        self.waiting.retain(|waits| !waits.is_closed());
        self.waiting.push(answer);
    }

    /// Begins a round where one is due, and does what is left of it; says how long to wait after a failure.
    pub(crate) fn turn(&mut self) -> Result<Option<Duration>, Stopping> {
        self.publish();
        if self.round.is_none() && (!self.waiting.is_empty() || self.is_due()) {
            self.begin();
        }
        match self.advance() {
            Ok(()) => Ok(None),
            Err(SealError::Stopping) => Err(Stopping),
            Err(error) => Ok(Some(self.failed(&error))),
        }
    }

    fn begin(&mut self) {
        let answers = std::mem::take(&mut self.waiting);
        self.round = Some(Round {
            began: self.node.clock.instant(),
            since_ms: self.oldest_ms().unwrap_or(i64::MAX),
            all: !answers.is_empty(),
            answers,
            parts: self.node.partitions().iter().map(|_| Part::default()).collect(),
            committed: BTreeMap::new(),
            noted: false,
            flushed: Flushed::default(),
        });
    }

    /// When the oldest sample came that is in no round yet.
    fn oldest_ms(&self) -> Option<i64> {
        let since = self.node.partitions().iter().map(|p| p.unsealed_since_ms.load(Ordering::Relaxed));
        since.filter(|ms| *ms != 0).min()
    }

    fn is_due(&self) -> bool {
        let settings = &self.node.settings.lake;
        let Some(oldest_ms) = self.oldest_ms() else { return false };
        if !self.node.is_ready() {
            return false;
        }
        // a clock that was set back must not put sealing off
        let is_old = self.node.clock.now_ms().abs_diff(oldest_ms) >= settings.seal_after_ms.unsigned_abs();
        let is_long = |p: &crate::owner::PartitionShared| {
            p.unsealed_bytes.load(Ordering::Relaxed) >= settings.seal_bytes
        };
        is_old || self.node.partitions().iter().any(|p| is_long(p)) || self.is_under_pressure()
    }

    /// The head fills, and sealing may help.
    fn is_under_pressure(&self) -> bool {
        let limit = self.node.settings.budget.head_bytes;
        let used = self.node.head_bytes();
        let grown = used.saturating_sub(self.head_bytes);
        used > limit / 100 * PRESSURE_PERCENT
            && (grown > limit / 100 * PRESSURE_STEP_PERCENT
                || self.node.clock.instant().duration_since(self.ended) > PRESSURE_PAUSE)
    }

    /// Tells how far behind the tables are.
    fn publish(&self) {
        let in_round = self.round.as_ref().map_or(i64::MAX, |r| r.since_ms);
        let oldest_ms = self.oldest_ms().unwrap_or(i64::MAX).min(in_round);
        let lag_ms = match oldest_ms {
            i64::MAX => 0,
            ms => self.node.clock.now_ms().saturating_sub(ms).max(0),
        };
        self.node.lake.metrics.floodmark_lag_seconds.set(lag_ms as f64 / 1000.0);
        let frozen = self.round.iter().flat_map(|r| &r.parts).filter(|p| !p.released);
        let frozen: u64 = frozen.filter_map(|p| p.frozen).map(|f| f.samples).sum();
        self.node.lake.metrics.frozen_samples.set(frozen as f64);
    }

    /// Counts a failure, and says how long to wait. The log has one line for each change of state.
    fn failed(&mut self, error: &SealError) -> Duration {
        self.node.lake.metrics.failures.inc();
        if self.failures == 0 {
            tracing::warn!(%error, "sealing does not get on; the journal keeps everything, and it is tried again");
        } else {
            tracing::debug!(%error, failures = self.failures, "sealing still does not get on");
        }
        let wait = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures += 1;
        wait
    }

    /// Does what is left of the round.
    fn advance(&mut self) -> Result<(), SealError> {
        let Some(mut round) = self.round.take() else { return Ok(()) };
        let done = self.advance_round(&mut round);
        if let Err(error) = done {
            self.round = Some(round);
            return Err(error);
        }
        let metrics = &self.node.lake.metrics;
        metrics.rounds.inc();
        let seconds = self.node.clock.instant().duration_since(round.began).as_secs_f64();
        metrics.round_seconds.observe(seconds);
        let Flushed { tables, commits, files, rows, samples, bytes } = round.flushed;
        if std::mem::take(&mut self.failures) > 0 {
            tracing::warn!(samples, "sealing gets on again");
        }
        tracing::info!(samples, rows, files, bytes, tables, commits, seconds, "sealed");
        for answer in round.answers {
            let _ = answer.send(round.flushed); // who asked may be gone
        }
        self.head_bytes = self.node.head_bytes();
        self.ended = self.node.clock.instant();
        self.publish();
        Ok(())
    }

    fn advance_round(&mut self, round: &mut Round) -> Result<(), SealError> {
        let node = Arc::clone(&self.node);
        let lake = &node.lake;
        self.forget_stale(round);
        if round.parts.iter().any(|part| part.staged.is_none()) {
            let began = Instant::now();
            let workspace = Workspace::buy(&lake.flush)?;
            // one after the other: only one partition's files are held at a time
            for (number, part) in round.parts.iter_mut().enumerate() {
                self.stage(number, part, round.all, &workspace)?;
            }
            lake.metrics.stage_seconds.observe(began.elapsed().as_secs_f64());
        }
        fault::point("staged", &lake.faults)?;
        if !round.noted {
            self.commit(round)?;
        }
        self.release(round)
    }

    fn stage(
        &mut self,
        number: usize,
        part: &mut Part,
        all: bool,
        workspace: &Workspace,
    ) -> Result<(), SealError> {
        if part.staged.is_some() {
            return Ok(());
        }
        if part.frozen.is_none() {
            part.frozen = Some(self.owners.freeze(number, all).ok_or(SealError::Closed(number))?);
        }
        fault::point("frozen", &self.node.lake.faults)?;
        let partition = &self.node.partitions()[number];
        part.staged = Some(stage::stage(&self.node, partition, workspace, &self.stopping)?);
        Ok(())
    }

    fn forget_stale(&self, round: &mut Round) -> bool {
        round.forget_stale(self.node.clock.instant(), staged_max(self.node.settings.lake.vacuum_grace_ms))
    }

    /// Commits what is staged: one log entry for each tenant. The manifest says before that it is tried, and afterwards
    /// that it is done.
    fn commit(&self, round: &mut Round) -> Result<(), SealError> {
        let lake = &self.node.lake;
        let began = Instant::now();
        let upto: Vec<u64> = round.parts.iter().map(|part| part.frozen.map_or(0, |f| f.upto.0)).collect();
        lake.change_marks(|(number, mark)| mark.attempt = Some(upto[number]))?;
        fault::point("attempt_noted", &lake.faults)?;
        let staged = round.parts.iter().filter_map(|part| part.staged.as_ref());
        let tenants: Vec<TenantId> = staged.flat_map(|s| s.tenants.iter().map(|(t, _)| t.clone())).collect();
        for tenant in tenants {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(SealError::Stopping);
            }
            if !round.committed.contains_key(&tenant) {
                if self.forget_stale(round) {
                    return Err(SealError::Stale);
                }
                let flushed = self.commit_tenant(round, &tenant, &upto)?;
                round.committed.insert(tenant, flushed);
            }
        }
        fault::point("committed", &lake.faults)?;
        lake.change_marks(|(number, mark)| (mark.upto, mark.attempt) = (upto[number], None))?;
        round.noted = true;
        lake.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
        fault::point("floodmark_noted", &lake.faults)?;
        round.flushed = Flushed::sum(round.committed.values());
        Ok(())
    }

    fn commit_tenant(&self, round: &Round, tenant: &TenantId, upto: &[u64]) -> Result<Flushed, SealError> {
        let lake = &self.node.lake;
        fault::point("before_commit", &lake.faults)?;
        let table = lake.table(tenant)?;
        table.refresh()?;
        let mut blocks = Vec::new();
        for (number, part) in round.parts.iter().enumerate() {
            let Some(files) = part.staged.as_ref().and_then(|staged| staged.of(tenant)) else { continue };
            let source = lake.mark(number).source;
            let after = table.floodmarks([source.as_str()])?.remove(&source);
            blocks.push(StagedBlock { source, after, upto: upto[number], files: files.to_vec() });
        }
        let outcomes = table.commit(&blocks, self.node.clock.now_ms())?;
        fault::point("after_commit", &lake.faults)?;
        let mut flushed = Flushed { tables: 1, ..Flushed::default() };
        for (block, outcome) in blocks.iter().zip(outcomes) {
            match outcome {
                Outcome::Committed { .. } => flushed.add(block),
                // an earlier attempt, whose answer was lost
                Outcome::Already { floodmark } if floodmark == block.upto => flushed.add(block),
                Outcome::Already { .. } | Outcome::Apart { .. } => {
                    let number = lake.partition_of(&block.source);
                    number.into_iter().for_each(|number| lake.rename_source(number));
                    return Err(SealError::Renamed { tenant: tenant.clone(), journal: block.source.clone() });
                }
            }
        }
        flushed.commits = 1;
        flushed.count(&lake.metrics);
        Ok(flushed)
    }

    /// What is committed leaves the heads and the journals.
    fn release(&mut self, round: &mut Round) -> Result<(), SealError> {
        let node = Arc::clone(&self.node);
        let lake = &node.lake;
        let ended = lake.pins.end_generation();
        let until = Instant::now() + OUTLIVE_AFTER;
        while !lake.pins.wait(ended, TICK) {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(SealError::Stopping);
            }
            if Instant::now() >= until {
                lake.metrics.outlived.inc();
                lake.pins.outlive(ended);
                break;
            }
        }
        for (number, part) in round.parts.iter_mut().enumerate().filter(|(_, part)| !part.released) {
            let Some(Frozen { upto, .. }) = part.frozen else { continue };
            self.owners.release(number, upto).ok_or(SealError::Closed(number))?;
            part.released = true;
            fault::point("released", &lake.faults)?;
        }
        Ok(())
    }
}

/// The head's fill above which sealing starts by itself: new series are refused from 85 %.
const PRESSURE_PERCENT: u64 = 60;

/// Under pressure it seals again when the head has grown by so much, or after this pause: what the index of the series
/// takes, sealing does not give back.
const PRESSURE_STEP_PERCENT: u64 = 10;
const PRESSURE_PAUSE: Duration = Duration::from_secs(30);

impl Flushed {
    fn add(&mut self, block: &StagedBlock) {
        for file in &block.files {
            self.files += 1;
            self.rows += file.summary.rows;
            self.samples += file.summary.samples;
            self.bytes += file.summary.bytes;
        }
    }

    fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            tables: a.tables + b.tables,
            commits: a.commits + b.commits,
            files: a.files + b.files,
            rows: a.rows + b.rows,
            samples: a.samples + b.samples,
            bytes: a.bytes + b.bytes,
        })
    }

    fn count(&self, metrics: &super::telemetry::LakeMetrics) {
        metrics.commits.add(self.commits);
        metrics.files.add(self.files);
        metrics.rows.add(self.rows);
        metrics.samples.add(self.samples);
        metrics.bytes.add(self.bytes);
    }
}

/// Asks for a flush and waits for it.
pub(crate) async fn flush(node: &crate::Node) -> Result<Flushed, Refusal> {
    let (answer, flushed) = oneshot::channel();
    node.orders().try_send(Order::Flush(answer)).map_err(|_| {
        Refusal::busy("flushing", "too many flushes wait already, or the server is shutting down")
    })?;
    flushed.await.map_err(|_| Refusal::stopping())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_wait_for_too_long_are_staged_again_unless_they_are_committed() {
        let staged = || Some(Staged { began: Instant::now(), tenants: Vec::new() });
        let part = |staged| Part { staged, ..Part::default() };
        let mut round = Round {
            began: Instant::now(),
            since_ms: 0,
            all: false,
            answers: Vec::new(),
            parts: vec![part(staged()), part(None)],
            committed: BTreeMap::new(),
            noted: true,
            flushed: Flushed::default(),
        };
        let now = Instant::now();
        assert!(!round.forget_stale(now, Duration::ZERO), "all is committed");
        round.noted = false;
        assert!(!round.forget_stale(now, Duration::from_secs(3600)) && round.parts[0].staged.is_some());
        assert!(round.forget_stale(now, Duration::ZERO) && round.parts[0].staged.is_none());
        // whatever the grace, the second sweep that sees a file comes later
        for grace_ms in [1, 3_600_000, 86_400_000] {
            let deleted = SWEEP_EVERY.max(Duration::from_millis(grace_ms as u64));
            assert!(staged_max(grace_ms) < deleted, "{grace_ms}");
        }
    }
}
