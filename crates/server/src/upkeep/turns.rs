//! The order in which tenants are served. Each check does the short steps of all tables, while tenants take turns for
//! *jobs*.
//!
//! A job is a merge, a rewrite of a file without its deleted samples, or the rollup of a day. A turn consists of
//! several jobs of one tenant, up to [`TURN_BYTES`] or [`TURN_TIME`], because the jobs must be planned anew for each turn.
//! [`admission::Turns`] decides whose turn it is. If there are other tenants, a job that takes too long is interrupted
//! ([`super::slow_jobs`]).

use super::slow_jobs::SlowJobs;
use super::{Compacted, EVERY, Key, Upkeep};
use crate::seal::tenant_tables::TenantTable;
use model::TenantId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A turn is over when its jobs have processed this many bytes. The last job may exceed this: a merge by four times
/// `merged_file_bytes`, and a rollup by a whole day.
pub(super) const TURN_BYTES: u64 = 64 << 20;

/// A turn is over when its jobs have taken this long together, unless there is only one tenant. A tenant is charged for
/// time as for bytes: this time counts as [`TURN_BYTES`].
const TURN_TIME: Duration = Duration::from_secs(10);

/// Each job counts as this many bytes more than it processes, for its requests to the store and its commit.
const JOB_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Turn<'c> {
    /// True if everything is to be done now, even if the settings or a recent attempt would delay it.
    pub(super) all: bool,
    pub(super) compacted: &'c mut Compacted,
    limit_bytes: u64,
    /// Bytes processed by jobs that succeeded. Only these end the turn. Bytes of failed jobs do not, because a job
    /// that always fails would keep other jobs waiting.
    done_bytes: u64,
    /// Bytes processed by all jobs, including those that failed. A slow job counts by its time.
    cost_bytes: u64,
    /// True if other tenants have tables, which must not wait too long.
    is_timed: bool,
    /// Time that all jobs took, including those that failed.
    worked: Duration,
    /// True if the table that is being maintained has jobs that must wait for a later turn.
    pub(super) has_more: bool,
}

impl<'c> Turn<'c> {
    const fn new(all: bool, limit_bytes: u64, is_timed: bool, compacted: &'c mut Compacted) -> Self {
        Self {
            all,
            compacted,
            limit_bytes,
            done_bytes: 0,
            cost_bytes: 0,
            is_timed,
            worked: Duration::ZERO,
            has_more: false,
        }
    }

    /// True if the turn is over. The job that was about to begin is then left for a later turn.
    pub(super) fn is_over(&mut self) -> bool {
        let is_late = self.is_timed && self.worked >= TURN_TIME;
        let is_over = is_late || self.done_bytes >= self.limit_bytes;
        self.has_more |= is_over;
        is_over
    }

    /// When a job that begins `now` is interrupted. `None` if nobody waits for it.
    pub(super) fn end_of(&self, slow: &SlowJobs, job: &str, bytes: u64, now: Instant) -> Option<Instant> {
        now.checked_add(slow.allowed(job, bytes)).filter(|_| self.is_timed)
    }

    /// Counts a job that took `time`.
    pub(super) fn count(&mut self, bytes: u64, time: Duration, is_success: bool) {
        let bytes = bytes.saturating_add(JOB_BYTES);
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let time_bytes = ms.saturating_mul(TURN_BYTES / TURN_TIME.as_millis() as u64);
        self.cost_bytes = self.cost_bytes.saturating_add(bytes.max(time_bytes));
        self.worked = self.worked.saturating_add(time);
        if is_success {
            self.done_bytes = self.done_bytes.saturating_add(bytes);
        }
    }
}

impl Upkeep {
    /// Visits all tables and does their short steps. Tenants that have had no more than their share also take a turn.
    pub(super) fn visit(&mut self, tenants: &BTreeSet<TenantId>, all: bool, compacted: &mut Compacted) {
        let is_timed = self.is_shared();
        for tenant in tenants {
            let limit_bytes = if self.turns.is_next(tenant) { self.turn_bytes } else { 0 };
            self.take_turn(tenant, &TenantTable::ALL, Turn::new(all, limit_bytes, is_timed, compacted));
            if self.control.is_stopping() {
                return;
            }
        }
    }

    /// Gives turns to tenants with waiting jobs. If `all` is true, continues until no job waits. Otherwise, continues
    /// for as long as the visit of all tables took (`visiting`), but at least until the next check is due.
    pub(super) fn take_turns(&mut self, visiting: Duration, all: bool, compacted: &mut Compacted) {
        let (began, most, is_timed) = (self.control.instant(), visiting.max(EVERY), self.is_shared());
        while let Some(tenant) = self.turns.next(self.waiting.iter().map(|(tenant, _)| tenant)).cloned() {
            if self.control.is_stopping() || !all && self.control.since(began) >= most {
                return;
            }
            let waits = |kind: &TenantTable| self.waiting.contains(&(tenant.clone(), *kind));
            let mut kinds: Vec<_> = TenantTable::ALL.into_iter().filter(waits).collect();
            // slow jobs of one table must not keep the others from their turn
            kinds.sort_by_key(|kind| {
                self.states.get(&(tenant.clone(), *kind)).is_some_and(|state| !state.slow.is_empty())
            });
            self.take_turn(&tenant, &kinds, Turn::new(all, self.turn_bytes, is_timed, compacted));
        }
    }

    /// True if several tenants have tables. Even tables without jobs need their checks.
    fn is_shared(&self) -> bool {
        self.lake().tables.tenants(true).len() > 1
    }

    fn take_turn(&mut self, tenant: &TenantId, kinds: &[TenantTable], mut turn: Turn<'_>) {
        for kind in kinds {
            let key: Key = (tenant.clone(), *kind);
            turn.has_more = false;
            let mut state = self.states.remove(&key).unwrap_or_default();
            let done = self.maintain(&key, &mut state, &mut turn);
            if turn.has_more {
                self.waiting.insert(key.clone());
            } else {
                self.waiting.remove(&key);
                turn.compacted.failures += u64::from(done.is_err());
                turn.compacted.damaged += state.upkeep.damaged().count() as u64;
            }
            let is_there = !matches!(done, Ok(false)) || state.lacks_room;
            self.note(&key, &mut state, done);
            if is_there {
                self.states.insert(key, state);
            }
            if self.control.is_stopping() {
                break;
            }
        }
        let weight = self.control.context.overrides.current().of(tenant).share_weight as u64;
        self.turns.charge(tenant, turn.cost_bytes, weight);
    }
}
