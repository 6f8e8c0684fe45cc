//! Upkeep of streams' tables, which the loader does while no stream is due: it merges small files, shortens logs and deletes
//! files that are no longer needed.

use super::buffer::Key;
use crate::seal::Lake;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tables::compact::CompactLimits;
use tables::upkeep::{Now, Policy, Upkeep};
use tables::{FileStem, Table, TableError};

/// A stream's table is kept up this long after the first load since the last time.
const AFTER: Duration = Duration::from_secs(60);

/// At most this many tables have a state that saves work; those that were loaded longest ago lose theirs.
const STATES_MAX: usize = 1000;

/// Files are merged at most this many at a time, even if memory is short.
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
    loaded: Instant,
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
        if let Some(state) = self.states.get_mut(key) {
            state.loaded = now;
            state.due.get_or_insert(now + AFTER);
            return;
        }
        if self.states.len() >= STATES_MAX
            && let Some((oldest, _)) = self.states.iter().min_by_key(|(_, state)| state.loaded)
        {
            let oldest = oldest.clone();
            self.states.remove(&oldest);
        }
        let state = State { upkeep: Upkeep::new(), due: Some(now + AFTER), loaded: now };
        self.states.insert(key.clone(), state);
    }

    /// A table whose upkeep is due.
    pub(super) fn due(&self, now: Instant) -> Option<Key> {
        let due = self.states.iter().filter_map(|(key, state)| Some((state.due?, key)));
        let first = due.min_by_key(|(due, _)| *due)?;
        (first.0 <= now).then(|| first.1.clone())
    }

    /// Does what is due for a table, until `go_on` returns false. The rest is due again after [`AFTER`], and after an error
    /// with the next load.
    pub(super) fn run(
        &mut self,
        key: &Key,
        table: &Arc<Table>,
        lake: &Lake,
        clock: &dyn Clock,
        go_on: impl Fn() -> bool,
    ) -> Result<(), TableError> {
        let Some(state) = self.states.get_mut(key) else { return Ok(()) };
        state.due = None;
        let steady_ms = clock.instant().saturating_duration_since(self.started).as_millis();
        let now = Now { wall_ms: clock.now_ms(), steady_ms: i64::try_from(steady_ms).unwrap_or(i64::MAX) };
        for step in state.upkeep.plan(table, now, &self.policy)? {
            if !go_on() {
                state.due = Some(clock.instant() + AFTER);
                return Ok(());
            }
            let stem = FileStem::rewritten(lake.random.fresh());
            state.upkeep.run(table, &step, &stem, now, &self.policy, |_| go_on())?;
        }
        Ok(())
    }
}
