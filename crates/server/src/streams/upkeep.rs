//! Upkeep of streams' tables, which the loader does while no stream is due: it merges small files, shortens logs and deletes
//! files that are no longer needed.

use super::buffer::Key;
use crate::seal::Lake;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tables::compact::CompactLimits;
use tables::upkeep::{Done, Now, Policy, Upkeep};
use tables::{FileStem, Table, TableError};

/// Upkeep of a stream's table is due this long after the first load since its last upkeep.
const AFTER: Duration = Duration::from_secs(60);

/// At most this many tables have a state. Those lose theirs whose upkeep is not due, and then those used longest ago, whose
/// upkeep is not due before their next load.
const STATES_MAX: usize = 1000;

/// Files are merged at least this many at a time. If there is no memory for so many, none are merged.
const FAN_IN_MIN: usize = 2;

#[derive(Debug)]
pub(super) struct StreamUpkeep {
    started: Instant,
    policy: Policy,
    states: BTreeMap<Key, State>,
}

#[derive(Debug)]
struct State {
    upkeep: Upkeep,
    /// When upkeep is due. `None` if nothing was loaded since the last time.
    due: Option<Instant>,
    /// When it was loaded, or files could be removed.
    used: Instant,
}

impl StreamUpkeep {
    pub(super) fn new(clock: &dyn Clock, memory_bytes: u64, grace_ms: i64) -> Self {
        let mut limits = CompactLimits::for_records();
        while limits.memory_bytes() as u64 > memory_bytes && limits.fan_in > FAN_IN_MIN {
            limits.fan_in = (limits.fan_in / 2).max(FAN_IN_MIN);
            limits.window_bytes = (limits.window_bytes / 2).max(128 << 10);
            limits.row_group_bytes = (limits.row_group_bytes / 2).max(256 << 10);
        }
        let compact = (limits.memory_bytes() as u64 <= memory_bytes).then_some(limits);
        let policy = Policy { compact, grace_ms, ..Policy::default() };
        Self { started: clock.instant(), policy, states: BTreeMap::new() }
    }

    /// Notes that a stream was loaded.
    pub(super) fn loaded(&mut self, key: &Key, now: Instant) {
        self.state_of(key, now).due.get_or_insert(now + AFTER);
    }

    /// Makes the upkeep of a stream's table due, because files can be removed.
    pub(super) fn note(&mut self, key: &Key, now: Instant) {
        self.state_of(key, now).due = Some(now);
    }

    fn state_of(&mut self, key: &Key, now: Instant) -> &mut State {
        if self.states.contains_key(key) {
            let state = self.states.get_mut(key).expect("BUG: a state is missing that was just there");
            state.used = now;
            return state;
        }
        if self.states.len() >= STATES_MAX
            && let Some((oldest, _)) =
                self.states.iter().min_by_key(|(_, state)| (state.due.is_some(), state.used))
        {
            let oldest = oldest.clone();
            self.states.remove(&oldest);
        }
        self.states.entry(key.clone()).or_insert_with(|| State {
            upkeep: Upkeep::new(),
            due: None,
            used: now,
        })
    }

    /// A table whose upkeep is due.
    pub(super) fn due(&self, now: Instant) -> Option<Key> {
        let due = self.states.iter().filter_map(|(key, state)| Some((state.due?, key)));
        let first = due.min_by_key(|(due, _)| *due)?;
        (first.0 <= now).then(|| first.1.clone())
    }

    /// Does what is due for a table, until `go_on` returns false. The rest is due again after [`AFTER`], and after an error
    /// with the next load. Files that were removed from the table are deleted after the grace period. Returns the number of
    /// files that expired.
    pub(super) fn run(
        &mut self,
        key: &Key,
        table: &Arc<Table>,
        lake: &Lake,
        clock: &dyn Clock,
        expire_before_ms: Option<i64>,
        go_on: impl Fn() -> bool,
    ) -> Result<usize, TableError> {
        let mut expired_files = 0;
        let Some(state) = self.states.get_mut(key) else { return Ok(expired_files) };
        state.due = None;
        let policy = Policy { expire_before_ms, ..self.policy };
        let steady_ms = clock.instant().saturating_duration_since(self.started).as_millis();
        let now = Now { wall_ms: clock.now_ms(), steady_ms: i64::try_from(steady_ms).unwrap_or(i64::MAX) };
        for step in state.upkeep.plan(table, now, &policy)? {
            if !go_on() {
                state.due = Some(clock.instant() + AFTER);
                return Ok(expired_files);
            }
            let stem = FileStem::rewritten(lake.random.fresh());
            match state.upkeep.run(table, &step, &stem, now, &policy, |_| go_on())? {
                Done::Expired(files) => expired_files += files,
                Done::Swept(swept) if swept.waiting > 0 => {
                    let grace =
                        Duration::from_millis(policy.grace_ms.max(policy.sweep_every_ms).unsigned_abs());
                    state.due = Some(clock.instant() + grace);
                }
                _ => {}
            }
        }
        Ok(expired_files)
    }
}
