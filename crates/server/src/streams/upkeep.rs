//! Upkeep of streams' tables, which the loader does while no stream is due: it merges small files, shortens logs and deletes
//! files that are no longer needed.

use super::buffer::Key;
use crate::seal::Lake;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tables::compact::CompactLimits;
use tables::upkeep::{Done, Now, Policy, Step, Upkeep};
use tables::{FileStem, Table, TableError};

/// Upkeep of a stream's table is due this long after the first load since its last upkeep.
const AFTER: Duration = Duration::from_secs(60);

/// At most this many tables have a state. Those lose theirs whose upkeep is not due, and then those used longest ago, whose
/// upkeep is not due before their next load.
const STATES_MAX: usize = 1000;

/// Merges are at most this large while other work waits, so that they end within their turn.
const SHORT_JOB_BYTES: u64 = 64 << 20;

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
    /// When files that were removed from the table can be deleted. `None` if there are none.
    sweep: Option<Instant>,
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
        let state = self.state_of(key, now);
        (state.due, state.sweep) = (Some(now), Some(now));
    }

    fn state_of(&mut self, key: &Key, now: Instant) -> &mut State {
        if self.states.contains_key(key) {
            let state = self.states.get_mut(key).expect("BUG: a state is missing that was just there");
            state.used = now;
            return state;
        }
        if self.states.len() >= STATES_MAX
            && let Some((oldest, _)) =
                self.states.iter().min_by_key(|(_, state)| (state.next().is_some(), state.used))
        {
            let oldest = oldest.clone();
            self.states.remove(&oldest);
        }
        self.states.entry(key.clone()).or_insert_with(|| State {
            upkeep: Upkeep::new(),
            due: None,
            sweep: None,
            used: now,
        })
    }

    /// A table whose upkeep is due.
    pub(super) fn due(&self, now: Instant) -> Option<Key> {
        let due = self.states.iter().filter_map(|(key, state)| Some((state.next()?, key)));
        let first = due.min_by_key(|(due, _)| *due)?;
        (first.0 <= now).then(|| first.1.clone())
    }

    /// Does what is due for a table, until `go_on` returns false. The rest is due again after [`AFTER`], and after an error
    /// with the next load. Returns the number of files that expired.
    pub(super) fn run(
        &mut self,
        key: &Key,
        table: &Arc<Table>,
        lake: &Lake,
        clock: &dyn Clock,
        terms: Terms,
        go_on: impl Fn() -> bool,
    ) -> Result<usize, TableError> {
        let Some(state) = self.states.get_mut(key) else { return Ok(0) };
        let mut policy = Policy { expire_before_ms: terms.expire_before_ms, ..self.policy };
        if let Some(limits) = policy.compact.as_mut().filter(|_| terms.is_short) {
            limits.job_bytes = limits.job_bytes.min(SHORT_JOB_BYTES);
        }
        let steady_ms = clock.instant().saturating_duration_since(self.started).as_millis();
        let now = Now { wall_ms: clock.now_ms(), steady_ms: i64::try_from(steady_ms).unwrap_or(i64::MAX) };
        state.due = None;
        let mut done = Pass { expired_files: 0, leaves_files: state.sweep.take().is_some() };
        let mut ended = state.upkeep.plan(table, now, &policy).map(|mut steps| {
            // a merge may take all of the turn
            steps.sort_by_key(|step| matches!(step, Step::Compact(_) | Step::Purge(_)));
            steps
        });
        if let Ok(steps) = &mut ended {
            for step in std::mem::take(steps) {
                if !go_on() {
                    state.due = Some(clock.instant() + AFTER);
                    break;
                }
                let stem = FileStem::rewritten(lake.random.fresh());
                match state.upkeep.run(table, &step, &stem, now, &policy, |_| go_on()) {
                    Ok(result) => done.note(&result),
                    Err(error) => {
                        ended = Err(error);
                        break;
                    }
                }
            }
        }
        if done.leaves_files {
            let wait_ms = policy.grace_ms.max(policy.sweep_every_ms);
            state.sweep = Some(clock.instant() + Duration::from_millis(wait_ms.unsigned_abs()));
        }
        ended.map(|_| done.expired_files)
    }
}

/// What the upkeep of a table may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Records before this time are dropped.
    pub(super) expire_before_ms: Option<i64>,
    /// True if other work waits.
    pub(super) is_short: bool,
}

/// What was done for a table.
#[derive(Debug)]
struct Pass {
    expired_files: usize,
    /// True if files may be left that were removed from the table.
    leaves_files: bool,
}

impl Pass {
    const fn note(&mut self, done: &Done) {
        match done {
            Done::Expired(files) => {
                self.expired_files += *files;
                self.leaves_files |= *files > 0;
            }
            Done::Swept(swept) => self.leaves_files = swept.waiting > 0,
            Done::Dropped(files) => self.leaves_files |= *files > 0,
            Done::Compacted(_) | Done::Abandoned => self.leaves_files = true,
            Done::Clean | Done::Deleted(_) | Done::Damaged(_) | Done::Checkpointed | Done::Cleaned(_) => {}
        }
    }
}

impl State {
    /// When something is due.
    fn next(&self) -> Option<Instant> {
        [self.due, self.sweep].into_iter().flatten().min()
    }
}
