//! Sealing as a state machine: events in, commands out, no I/O, locks or clocks.
//!
//! ```text
//!           ┌── events ───────────────────────────────────┐
//!   driver ─┤                                             ├─ Sealing ── round, blocked tenants' rounds, flushes
//!           └── commands: freeze, stage, commit, release ─┘
//! ```
//!
//! The driver, [`super::sealer`], executes the commands one by one and reports each result. A *turn* begins with
//! [`Event::Tick`] and ends when [`Sealing::poll`] returns nothing. A turn advances the round, relocates samples,
//! retries one blocked tenant, and replays for closed tenants.
//!
//! - [`io`]: events, commands, and the observed state of the node
//! - [`round`]: one round; [`part`]: a partition's share of it; [`marks`]: its updates of `floodmarks.json`
//! - [`blocked`]: tenants that others do not wait for
//! - [`flushes`]: flush requests that wait for a round

mod blocked;
pub(crate) mod flushes;
pub(crate) mod io;
pub(crate) mod marks;
mod part;
pub(crate) mod round;
#[cfg(test)]
mod tests;

use super::error::SealError;
use crate::partition::ClosedTurn;
use admission::watermarks;
use blocked::{Blocked, Relocation, Reopening};
use flushes::Flushes;
use io::{Command, Event, Report, View};
use model::TenantId;
use round::{Next, Round};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// While nothing else is due, the machine checks this often whether a round is due.
const TICK: Duration = Duration::from_millis(200);

/// Delay before a retry, doubled after each failure.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// If the heads remain full after a round, the next round begins when they have grown by this share of their limit,
/// or after a pause.
const PRESSURE_STEP_PERCENT: u64 = 10;

/// While tenants are refused for lack of memory, and the last round has freed some, this pause is so many times as long as
/// the last round took, but at least [`PRESSURE_PAUSE_MIN`]. Otherwise, rounds in short succession would only write many small
/// files, so the pause is [`PRESSURE_PAUSE`].
const PRESSURE_PAUSE_FACTOR: u32 = 4;
const PRESSURE_PAUSE_MIN: Duration = Duration::from_secs(3);
const PRESSURE_PAUSE: Duration = Duration::from_secs(30);

/// A round has freed memory if the heads took less afterwards than at its beginning, by this share of their limit.
const FREED_PERCENT: u64 = 5;

#[derive(Debug, Clone)]
pub(crate) struct Thresholds {
    pub(crate) partitions: usize,
    /// A round is due if the oldest unsealed sample arrived this long ago.
    pub(crate) seal_after_ms: i64,
    /// A round is due if any journal has this many unsealed bytes.
    pub(crate) seal_bytes: u64,
    pub(crate) head_bytes: u64,
    pub(crate) segment_bytes: u64,
    /// Rounds for requested flushes begin at this interval on average.
    pub(crate) flush_interval: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// A round is running, since this time.
    Since(Instant),
    /// No round is running. If the heads are full, the next one begins at this time at the latest.
    Until(Instant),
}

#[derive(Debug)]
pub(crate) struct Sealing {
    thresholds: Thresholds,
    turn: Turn,
    round: Option<Round>,
    flushes: Flushes,
    blocked: BTreeMap<TenantId, Blocked>,
    relocation: Relocation,
    reopening: Reopening,
    /// True if a tenant has ceased to be blocked or closed. A round is then due, because [`View::unsealed_since_ms`]
    /// may not know of the tenant's oldest samples.
    has_caught_up: bool,
    /// True if the latest round that had tenants to seal could seal at least one of them.
    others_are_sealed: bool,
    failures: u32,
    retry_at: Instant,
    last_round: LastRound,
    is_stopped: bool,
    commands: VecDeque<Command>,
}

/// What the pause before the next round depends on.
#[derive(Debug)]
struct LastRound {
    ended: Instant,
    lasted: Duration,
    /// Memory that the heads took when the round began, and when it ended.
    begun_with_bytes: u64,
    ended_with_bytes: u64,
    /// The least memory that the heads took since the round ended. Series leave them some time after the round.
    least_bytes: u64,
    /// True if the round ended without a failure. Others take as long as an outage, and tell nothing about sealing.
    is_typical: bool,
}

/// The part of the machine that issued the last command, and that handles the event which answers it.
#[derive(Debug)]
enum Turn {
    /// No command is in progress.
    Idle,
    Round,
    Relocation {
        partition: usize,
        step: blocked::Step,
    },
    Blocked(TenantId),
    Reopening,
}

impl Sealing {
    pub(crate) fn new(thresholds: Thresholds, now: Instant) -> Self {
        Self {
            turn: Turn::Idle,
            round: None,
            flushes: Flushes::new(thresholds.flush_interval),
            blocked: BTreeMap::new(),
            relocation: Relocation::new(thresholds.partitions, thresholds.segment_bytes),
            reopening: Reopening::new(now),
            has_caught_up: false,
            others_are_sealed: false,
            failures: 0,
            retry_at: now,
            last_round: LastRound {
                ended: now,
                lasted: Duration::ZERO,
                begun_with_bytes: 0,
                ended_with_bytes: 0,
                least_bytes: 0,
                is_typical: false,
            },
            is_stopped: false,
            commands: VecDeque::new(),
            thresholds,
        }
    }

    /// Handles an event. Afterwards, [`Self::poll`] returns the commands that it causes.
    pub(crate) fn handle(&mut self, view: &View, event: Event) {
        match event {
            Event::Flush(id) => return self.flushes.request(id, None, view.now),
            Event::FlushTenant(id, tenant) => return self.flushes.request(id, Some(tenant), view.now),
            Event::Abandoned(id) => return self.flushes.abandon(id),
            Event::Failed(SealError::Stopping) => return self.stop(view),
            _ => {}
        }
        match std::mem::replace(&mut self.turn, Turn::Idle) {
            Turn::Idle if matches!(event, Event::Tick) => self.begin_turn(view),
            Turn::Round => {
                let round = self.round.as_mut().expect("BUG: the round with the command is gone");
                let next = round.handle(view.now, event);
                self.advance_round(view, next);
            }
            Turn::Relocation { partition, step } => self.advance_relocation(view, partition, step, event),
            Turn::Blocked(tenant) => {
                let blocked =
                    self.blocked.get_mut(&tenant).expect("BUG: the tenant with the command is gone");
                let next = blocked.round.handle(view.now, event);
                self.advance_blocked(view, tenant, next);
            }
            Turn::Reopening => self.advance_reopening(view, event),
            Turn::Idle => panic!("BUG: {event:?} answers no command"),
        }
    }

    /// Returns the next command, or `None` if the turn has ended.
    pub(crate) fn poll(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.turn, Turn::Idle) && self.commands.is_empty()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(crate) fn wake_in(&self, now: Instant) -> Duration {
        let round = match self.round {
            Some(_) => self.retry_at.saturating_duration_since(now),
            None => self.flushes.due_in(now).map_or(TICK, |due| due.min(TICK)),
        };
        self.retry_in(now).map_or(round, |retry| round.min(retry))
    }

    fn retry_in(&self, now: Instant) -> Option<Duration> {
        let blocked = self.blocked.values().map(|blocked| blocked.retry_at);
        let next = blocked.chain(self.reopening.wake_at).min();
        next.map(|at| at.saturating_duration_since(now))
    }

    /// True if there is work that is due now or will be retried later.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.round.is_some() || !self.blocked.is_empty() || self.reopening.wake_at.is_some()
    }

    /// When the tables of closed tenants are tried next. `None` if no tenant is closed, or if they are being tried.
    pub(crate) const fn reopens_at(&self) -> Option<Instant> {
        self.reopening.wake_at
    }

    /// Arrival time of the oldest sample that a round has frozen, in Unix milliseconds; `i64::MAX` if there is none.
    pub(crate) fn since_ms(&self) -> i64 {
        self.rounds().map(|round| round.since_ms).min().unwrap_or(i64::MAX)
    }

    pub(crate) fn samples_frozen(&self) -> u64 {
        self.rounds().map(Round::samples_frozen).sum()
    }

    fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.round.iter().chain(self.blocked.values().map(|blocked| &blocked.round))
    }

    fn begin_turn(&mut self, view: &View) {
        self.last_round.least_bytes = self.last_round.least_bytes.min(view.head_bytes);
        let is_requested = self.flushes.due_in(view.now) == Some(Duration::ZERO);
        if self.round.is_none() && view.can_freeze && (is_requested || self.is_due(view)) {
            let all = self.flushes.begin_round(view.now);
            let except = self.blocked.keys().chain(&view.closed).cloned().collect();
            let since_ms = view.unsealed_since_ms.unwrap_or(i64::MAX);
            self.has_caught_up = false;
            if self.last_round.is_typical {
                self.report(Report::Began { least_bytes: self.last_round.least_bytes });
            }
            self.last_round.begun_with_bytes = view.head_bytes;
            self.round = Some(Round::new(self.thresholds.partitions, view.now, since_ms, all, except));
        }
        match self.round.as_mut().map(Round::resume) {
            Some(next) => self.advance_round(view, next),
            None => self.relocate_from(view, 0),
        }
    }

    fn is_due(&self, view: &View) -> bool {
        if !view.is_ready {
            // during replay, samples are sealed only to make room
            return view.unsealed_since_ms.is_some() && self.is_under_pressure(view);
        }
        let Some(oldest_ms) = view.unsealed_since_ms else { return self.has_caught_up };
        // a clock that was set back must not delay sealing, so the difference counts in both directions
        let is_old = view.now_ms.abs_diff(oldest_ms) >= self.thresholds.seal_after_ms.unsigned_abs();
        let is_long = view.unsealed_bytes >= self.thresholds.seal_bytes;
        self.has_caught_up || is_old || is_long || self.is_under_pressure(view)
    }

    /// True if the heads are full and another round may free some of their memory.
    fn is_under_pressure(&self, view: &View) -> bool {
        let (last, percent) = (&self.last_round, self.thresholds.head_bytes / 100);
        let grown = view.head_bytes.saturating_sub(last.ended_with_bytes);
        view.is_filled
            && (grown > percent * PRESSURE_STEP_PERCENT
                || view.now.saturating_duration_since(last.ended) > self.pause(view))
    }

    /// Pause between the last round and the next one if the heads are full.
    fn pause(&self, view: &View) -> Duration {
        let (last, percent) = (&self.last_round, self.thresholds.head_bytes / 100);
        let has_freed = last.begun_with_bytes.saturating_sub(last.least_bytes) >= percent * FREED_PERCENT;
        match has_freed && view.head_bytes >= percent * watermarks::FAIR {
            true => (last.lasted * PRESSURE_PAUSE_FACTOR).clamp(PRESSURE_PAUSE_MIN, PRESSURE_PAUSE),
            false => PRESSURE_PAUSE,
        }
    }

    /// When the present round began, or else when the next one begins at the latest if the heads are full.
    pub(crate) fn schedule(&self, view: &View) -> Schedule {
        match &self.round {
            Some(round) => Schedule::Since(round.began),
            None => Schedule::Until(self.last_round.ended + self.pause(view)),
        }
    }

    fn advance_round(&mut self, view: &View, next: Next) {
        let round = self.round.as_mut().expect("BUG: no round to advance");
        if let Some(blocked) = round.take_noted() {
            let has_sealed = round.flushed.commits > 0;
            self.report(Report::Committed);
            if has_sealed || !blocked.is_empty() {
                self.others_are_sealed = has_sealed;
                self.report(Report::OthersAreSealed(has_sealed));
            }
            self.block(view, blocked);
        }
        match next {
            Next::Do(command) => return self.issue(Turn::Round, command),
            Next::Later => {
                self.retry_at = view.now;
                self.answer_round(view, false);
            }
            Next::Failed(SealError::Stopping) => return self.stop(view),
            Next::Failed(error) => {
                self.failures += 1;
                self.retry_at = view.now + backoff(self.failures);
                self.report(Report::Failed { error, failures: self.failures });
                self.answer_round(view, false);
            }
            Next::Ended => {
                self.answer_round(view, true);
                let Round { began, flushed, .. } = self.round.take().expect("BUG: no round to end");
                let duration = view.now.saturating_duration_since(began);
                let has_failed = std::mem::take(&mut self.failures) > 0;
                self.report(Report::Ended { flushed, duration, has_failed });
                self.last_round = LastRound {
                    ended: view.now,
                    lasted: duration,
                    ended_with_bytes: view.head_bytes,
                    least_bytes: view.head_bytes,
                    is_typical: !has_failed,
                    ..self.last_round
                };
            }
        }
        self.relocate_from(view, 0);
    }

    /// Answers the flush requests that the round has satisfied. Requests for all tenants need its commit. Requests for
    /// one tenant also need the release of its samples, which is done if `is_released` is true.
    fn answer_round(&mut self, view: &View, is_released: bool) {
        let Some(round) = self.round.as_ref().filter(|round| round.is_noted()) else { return };
        let closed = view.closed.len() as u64;
        // A tenant that was left out counts even if it is no longer blocked, because its newest samples are not in this
        // round.
        let is_partial = round.leaves_out().any(|tenant| !view.closed.contains(tenant));
        let leaves_out = |tenant: &TenantId| round.leaves_out().any(|other| other == tenant);
        let mut answers = self.flushes.commit_round(&round.flushed, is_partial, closed);
        answers.extend(self.flushes.answer_tenants(&round.flushed, leaves_out, is_released));
        self.answer(answers);
    }

    fn answer(&mut self, answers: Vec<flushes::Answer>) {
        self.commands.extend(answers.into_iter().map(|(flush, flushed)| Command::Answer { flush, flushed }));
    }

    fn report(&mut self, report: Report) {
        self.commands.push_back(Command::Report(report));
    }

    fn issue(&mut self, turn: Turn, command: Command) {
        self.turn = turn;
        self.commands.push_back(command);
    }

    fn end_turn(&mut self, view: &View) {
        let answers = self.flushes.expire_held(self.blocked.len() as u64, view.now);
        self.answer(answers);
    }

    /// Called when the node shuts down. Flushes are answered only if `floodmarks.json` already records the round's
    /// commits.
    fn stop(&mut self, view: &View) {
        (self.is_stopped, self.turn) = (true, Turn::Idle);
        self.answer_round(view, false);
    }
}

/// Time between a failure and the next attempt. `failures` is their number in succession, from 1.
pub(super) fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << (failures - 1).min(16)).min(BACKOFF_MAX)
}
