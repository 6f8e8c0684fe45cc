//! Blocked and closed tenants, for which other tenants do not wait.
//!
//! A *blocked* tenant's table fails, or its samples need several passes. The tenant gets its own round, which is
//! retried. The tenant's frozen samples retain the journal. If the journal gets long, these samples are relocated to
//! the journal's end.
//!
//! A *closed* tenant's table could not be read at the start. Once the table can be read, the journal is replayed for
//! the tenant.

use super::io::{Command, Event, Moved, Report, View};
use super::marks::MarkUpdate;
use super::round::{Blocking, Next, READERS_WAIT, Round};
use super::{ClosedTurn, SealError, Sealing, Turn, backoff};
use model::TenantId;
use std::time::Instant;

/// A journal is long enough to be shortened if it has this many segments.
const SEGMENTS: u64 = 2;

/// After a journal was shortened, it is shortened again when it has grown by this factor. After a failed attempt, the
/// next attempt is made when it has grown by [`SEGMENTS`].
const GROWTH: u64 = 4;

#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) round: Round,
    since_ms: i64,
    failures: u32,
    pub(super) retry_at: Instant,
}

/// For each journal, the length in bytes at which its blocked samples are relocated.
#[derive(Debug)]
pub(super) struct Relocation {
    limits: Vec<u64>,
    least: u64,
}

#[derive(Debug)]
pub(super) enum Step {
    Relocate,
    Note { tenants: usize },
    Truncate { tenants: usize },
}

#[derive(Debug)]
pub(super) struct Reopening {
    replaying: Option<usize>,
    /// The partition for which closed tenants' tables are tried first: the one after the partition that was replayed
    /// last.
    first: usize,
    failures: u32,
    retry_at: Instant,
    /// When closed tenants need the next turn; `None` if no tenant is closed.
    pub(super) wake_at: Option<Instant>,
}

impl Relocation {
    pub(super) fn new(partitions: usize, segment_bytes: u64) -> Self {
        let least = SEGMENTS * segment_bytes;
        Self { limits: vec![least; partitions], least }
    }

    fn ended(&mut self, partition: usize, is_shorter: bool, bytes: u64) {
        self.limits[partition] = if is_shorter { self.least.max(GROWTH * bytes) } else { bytes + self.least };
    }
}

impl Reopening {
    pub(super) const fn new(now: Instant) -> Self {
        Self { replaying: None, first: 0, failures: 0, retry_at: now, wake_at: None }
    }
}

impl Sealing {
    pub(super) fn block(&mut self, view: &View, blocked: Vec<Blocking>) {
        let (count, since_ms) = (blocked.len(), view.now_ms);
        for (number, Blocking { tenant, error, round }) in blocked.into_iter().enumerate() {
            let failures = u32::from(error.is_some());
            let retry_at = if failures == 0 { view.now } else { view.now + backoff(failures) };
            self.blocked.insert(tenant.clone(), Blocked { round, since_ms, failures, retry_at });
            self.report(Report::Blocked { tenant, since_ms, error, number, count });
        }
    }

    /// Retries the blocked tenant whose retry is most overdue.
    fn retry_blocked(&mut self, view: &View) {
        let due = self.blocked.iter_mut().filter(|(_, blocked)| blocked.retry_at <= view.now);
        match due.min_by_key(|(_, blocked)| blocked.retry_at) {
            Some((tenant, blocked)) => {
                let (tenant, next) = (tenant.clone(), blocked.round.resume());
                self.advance_blocked(view, tenant, next);
            }
            None => self.reopen(view),
        }
    }

    pub(super) fn advance_blocked(&mut self, view: &View, tenant: TenantId, next: Next) {
        let blocked = self.blocked.get_mut(&tenant).expect("BUG: no blocked tenant to advance");
        if blocked.round.take_noted().is_some() {
            self.commands.push_back(Command::Report(Report::Committed));
        }
        match next {
            Next::Do(command) => self.issue(Turn::Blocked(tenant), command),
            Next::Later => {
                let is_committed = blocked.round.is_noted();
                blocked.retry_at = if is_committed { view.now + READERS_WAIT } else { view.now };
                self.reopen(view);
            }
            Next::Failed(SealError::Stopping) => self.stop(view),
            Next::Failed(error) => {
                blocked.failures += 1;
                blocked.retry_at = view.now + backoff(blocked.failures);
                let failures = blocked.failures;
                self.report(Report::StillBlocked { tenant, error, failures });
                self.reopen(view);
            }
            Next::Ended => {
                let Blocked { round, since_ms, .. } =
                    self.blocked.remove(&tenant).expect("BUG: the tenant is not blocked");
                self.has_caught_up = true;
                self.flushes.add_unblocked(&round.flushed);
                let blocked_ms = view.now_ms.saturating_sub(since_ms);
                self.report(Report::Unblocked { tenant, samples: round.flushed.samples, blocked_ms });
                self.reopen(view);
            }
        }
    }

    /// Shortens journals that have become long because of blocked tenants, by relocating the samples of these
    /// tenants. Only tried while other tenants can be sealed.
    pub(super) fn relocate_from(&mut self, view: &View, first: usize) {
        if !self.blocked.is_empty() && view.is_ready && self.others_are_sealed {
            for partition in first..self.thresholds.partitions {
                let bytes = view.journal_bytes[partition];
                if bytes < self.relocation.limits[partition] {
                    continue;
                }
                let movable = self.blocked.iter().filter(|(_, blocked)| blocked.round.is_movable());
                let movable = movable.map(|(tenant, _)| tenant.clone()).collect();
                let turn = Turn::Relocation { partition, step: Step::Relocate };
                return self.issue(turn, Command::Relocate { partition, movable });
            }
        }
        self.retry_blocked(view);
    }

    pub(super) fn advance_relocation(&mut self, view: &View, partition: usize, step: Step, event: Event) {
        let is_shorter = match (step, event) {
            (Step::Relocate, Event::Relocated(Some(moved))) => {
                for tenant in moved.tenants.keys() {
                    let blocked =
                        self.blocked.get_mut(tenant).expect("BUG: a relocated tenant is not blocked");
                    blocked.round.relocated(partition, &moved);
                }
                if let Moved { from: Some(from), tenants, .. } = moved {
                    let step = Step::Note { tenants: tenants.len() };
                    let tenants = tenants.into_keys().collect();
                    let update = MarkUpdate::Relocated { partition, from: from.0, tenants };
                    let turn = Turn::Relocation { partition, step };
                    return self.issue(turn, Command::WriteMarks(update));
                }
                false
            }
            (Step::Relocate, Event::Relocated(None)) => false,
            (Step::Note { tenants }, Event::Done) => {
                let turn = Turn::Relocation { partition, step: Step::Truncate { tenants } };
                return self.issue(turn, Command::Truncate { partition });
            }
            (Step::Truncate { tenants }, Event::Done) => {
                self.report(Report::Relocated { partition, tenants });
                true
            }
            (_, Event::Failed(error)) => {
                self.report(Report::RelocationFailed { partition, error });
                false
            }
            (step, event) => panic!("BUG: {event:?} does not answer {step:?}"),
        };
        self.relocation.ended(partition, is_shorter, view.journal_bytes[partition]);
        self.relocate_from(view, partition + 1);
    }

    /// Continues a replay for closed tenants. If there is none, tries to read their tables when a retry is due.
    fn reopen(&mut self, view: &View) {
        self.reopening.wake_at = None;
        if view.closed.is_empty() || !view.is_ready {
            return self.end_turn(view);
        }
        if self.reopening.replaying.is_some() {
            return self.issue(Turn::Reopening, Command::ReplayClosed);
        }
        if view.now >= self.reopening.retry_at {
            return self.issue(Turn::Reopening, Command::AskClosed { first: self.reopening.first });
        }
        self.reopening.wake_at = Some(self.reopening.retry_at);
        self.end_turn(view);
    }

    pub(super) fn advance_reopening(&mut self, view: &View, event: Event) {
        let (reopening, partitions) = (&mut self.reopening, self.thresholds.partitions);
        match event {
            Event::Asked { replaying: Some(partition) } => {
                reopening.replaying = Some(partition);
                reopening.first = (partition + 1) % partitions;
                return self.issue(Turn::Reopening, Command::ReplayClosed);
            }
            Event::Replayed(ClosedTurn::More) => reopening.retry_at = view.now,
            Event::Replayed(ClosedTurn::Done) => {
                (reopening.replaying, reopening.failures, reopening.retry_at) = (None, 0, view.now);
                self.has_caught_up = true;
            }
            Event::Asked { replaying: None } | Event::Replayed(ClosedTurn::NoRoom) | Event::Failed(_) => {
                reopening.replaying = None;
                reopening.failures += 1;
                reopening.retry_at = view.now + backoff(reopening.failures);
            }
            event => panic!("BUG: {event:?} answers no command for closed tenants"),
        }
        self.reopening.wake_at = (!view.closed.is_empty()).then_some(self.reopening.retry_at);
        self.end_turn(view);
    }
}
