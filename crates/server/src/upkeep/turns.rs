//! Order of tenants: each check does the short steps of all tables, and tenants take turns for *jobs*.
//!
//! A job is a merge, a rewrite without deleted samples, or the rollup of a day. Several jobs of a tenant are done in one
//! turn, up to [`TURN_BYTES`]: each turn plans anew. The order of turns is decided by [`admission::Turns`].

use super::{Compacted, EVERY, Key, Upkeep};
use crate::seal::tenant_tables::TenantTable;
use model::TenantId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes of jobs in a turn. The last job may exceed them: a merge by four times `merged_file_bytes`, a rollup by a day.
pub(super) const TURN_BYTES: u64 = 64 << 20;

/// Cost of a job without its bytes: requests to the store, and a commit.
const JOB_BYTES: u64 = 1 << 20;

/// One tenant's turn.
#[derive(Debug)]
pub(super) struct Turn<'c> {
    /// True if everything is to be done, regardless of settings and recent attempts.
    pub(super) all: bool,
    pub(super) compacted: &'c mut Compacted,
    limit_bytes: u64,
    /// Bytes of successful jobs. Only these end the turn: a job that fails each time must not keep the others waiting.
    done_bytes: u64,
    /// Bytes of all jobs.
    cost_bytes: u64,
    /// True if the current table has jobs for a later turn.
    pub(super) has_more: bool,
}

impl<'c> Turn<'c> {
    const fn new(all: bool, limit_bytes: u64, compacted: &'c mut Compacted) -> Self {
        Self { all, compacted, limit_bytes, done_bytes: 0, cost_bytes: 0, has_more: false }
    }

    /// True if no further job may begin. The job is then left for a later turn.
    pub(super) const fn is_over(&mut self) -> bool {
        let is_over = self.done_bytes >= self.limit_bytes;
        self.has_more |= is_over;
        is_over
    }

    pub(super) const fn count(&mut self, bytes: u64, is_success: bool) {
        let bytes = bytes.saturating_add(JOB_BYTES);
        self.cost_bytes = self.cost_bytes.saturating_add(bytes);
        if is_success {
            self.done_bytes = self.done_bytes.saturating_add(bytes);
        }
    }
}

impl Upkeep {
    /// Visits all tables. Tenants that are not ahead of others take a turn.
    pub(super) fn visit(&mut self, tenants: &BTreeSet<TenantId>, all: bool, compacted: &mut Compacted) {
        for tenant in tenants {
            let limit_bytes = if self.turns.is_next(tenant) { self.turn_bytes } else { 0 };
            self.take_turn(tenant, &TenantTable::ALL, Turn::new(all, limit_bytes, compacted));
            if self.control.is_stopping() {
                return;
            }
        }
    }

    /// Gives turns to the waiting tenants: until none waits if `all`, otherwise for as long as the tables were
    /// `visiting`, and at least until the next check is due.
    pub(super) fn take_turns(&mut self, visiting: Duration, all: bool, compacted: &mut Compacted) {
        let (began, most) = (self.control.instant(), visiting.max(EVERY));
        while let Some(tenant) = self.turns.next(self.waiting.iter().map(|(tenant, _)| tenant)).cloned() {
            if self.control.is_stopping() || !all && self.control.since(began) >= most {
                return;
            }
            let waits = |kind: &TenantTable| self.waiting.contains(&(tenant.clone(), *kind));
            let kinds: Vec<_> = TenantTable::ALL.into_iter().filter(waits).collect();
            self.take_turn(&tenant, &kinds, Turn::new(all, self.turn_bytes, compacted));
        }
    }

    /// Maintains a tenant's samples, then the rollups computed from them.
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
