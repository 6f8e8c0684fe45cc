//! Memory pacing of replay: samples are sealed during replay, and replay waits while there is no room.
//!
//! ```text
//!   head │ 60 %   the sealer seals everything replayed so far; replay continues
//!        │ 100 %  replay waits for the sealer
//! ```
//!
//! With the same `--memory` as before, all unsealed samples usually fit, and replay does not wait. Replay drops
//! exemplars, and the series that only they need, before it waits.

use super::apply::Replay;
use super::references::References;
use super::{Halt, Owner};
use crate::partition::{Command, Freeze, Sealed};
use admission::watermarks;
use head::{Evicted, Idle};
use journal::Offset;
use model::TenantId;
use std::time::{Duration, Instant};

const ROOM_POLL: Duration = Duration::from_millis(20);

const ROOM_WAIT_LOGGED: Duration = Duration::from_secs(30);

/// While replay waits for memory that others use, it tries again at this interval, which grows by half with each attempt: an attempt
/// may read a whole dictionary, and takes memory while it does.
const MEMORY_RETRY: Duration = Duration::from_secs(1);

const MEMORY_RETRY_MAX: Duration = Duration::from_secs(30);

/// If the patterns of a record are tested for longer than this, operators are told.
const TESTS_LOGGED: Duration = Duration::from_secs(30);

/// Series that are not needed are evicted at most this often, because each eviction reads the dictionary to its end.
const EVICT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Wait {
    /// Number of records replayed when it began. A later wait for memory with the same number continues it.
    records: u64,
    began: Instant,
    logged: Option<Instant>,
}

impl Wait {
    const fn of(replay: &Replay, began: Instant) -> Self {
        Self { records: replay.records, began, logged: None }
    }
}

impl Owner {
    /// Called before the record at `next`. Handles commands of the sealer, and waits while the heads are full.
    pub(super) fn pace(&mut self, replay: &mut Replay, next: Offset) -> Result<(), Halt> {
        self.hear(replay, next)?;
        if self.has_room(replay) {
            return Ok(());
        }
        let mut wait = Wait::of(replay, self.context.clock.instant());
        self.wait_for(replay, next, &mut wait, Self::heads_are_full, |owner, replay| {
            owner.make_room(replay, next)?;
            Ok(owner.has_room(replay))
        })
    }

    /// Waits until the replay of another partition gives back memory of the account `replay`, but not longer than
    /// [`MEMORY_RETRY`] at first, because it may have done so before this call. The caller tries again, and may call this again.
    pub(super) fn wait_for_memory(&mut self, replay: &mut Replay, next: Offset) -> Result<(), Halt> {
        let (used_bytes, now) = (self.context.replay.used_bytes(), self.context.clock.instant());
        let earlier = replay.memory_wait.take().filter(|wait| wait.records == replay.records);
        let mut wait = earlier.unwrap_or_else(|| Wait::of(replay, now));
        let pause = (now.duration_since(wait.began) / 2).clamp(MEMORY_RETRY, MEMORY_RETRY_MAX);
        let others_may_have_given_back = move |owner: &mut Self, _: &mut Replay| {
            let is_due = owner.context.clock.instant().duration_since(now) >= pause;
            Ok(is_due || owner.context.replay.used_bytes() < used_bytes)
        };
        let why = |_: &Self| "replay waits for memory that the replay of other partitions uses".to_owned();
        self.wait_for(replay, next, &mut wait, why, others_may_have_given_back)?;
        replay.memory_wait = Some(wait);
        Ok(())
    }

    /// Waits for at least one interval, and then until `is_over` returns true. The reason is logged and shown as the
    /// partition's trouble.
    fn wait_for(
        &mut self,
        replay: &mut Replay,
        next: Offset,
        wait: &mut Wait,
        why: impl Fn(&Self) -> String,
        mut is_over: impl FnMut(&mut Self, &mut Replay) -> Result<bool, Halt>,
    ) -> Result<(), Halt> {
        loop {
            self.context.pause.pause(ROOM_POLL);
            self.hear(replay, next)?;
            if is_over(self, replay)? {
                self.partition.trouble.lock().clear();
                return Ok(());
            }
            self.tell(wait, || why(self));
        }
    }

    /// Shows a reason as the partition's trouble, and logs it at intervals.
    fn tell(&self, wait: &mut Wait, why: impl FnOnce() -> String) {
        let now = self.context.clock.instant();
        let logs = wait.logged.is_none_or(|at| now.duration_since(at) >= ROOM_WAIT_LOGGED);
        if logs || self.partition.trouble.lock().is_empty() {
            let trouble = why();
            if logs {
                wait.logged = Some(now);
                let waited = now.duration_since(wait.began);
                tracing::warn!(partition = self.number, ?waited, "{trouble}");
            }
            *self.partition.trouble.lock() = trouble;
        }
    }

    /// Like [`Self::hear`], while patterns of the record at `offset` are tested. If this takes long, tells why the node does not
    /// become ready.
    pub(super) fn hear_between_tests(&mut self, replay: &mut Replay, offset: Offset) -> Result<(), Halt> {
        self.hear(replay, offset)?;
        let now = self.context.clock.instant();
        let earlier = replay.testing.take().filter(|wait| wait.records == replay.records);
        let mut wait = earlier.unwrap_or_else(|| Wait::of(replay, now));
        if now.duration_since(wait.began) >= TESTS_LOGGED {
            let (offset, tested) = (offset.0, replay.tested);
            self.tell(&mut wait, || {
                format!(
                    "replay tests label values with the patterns of a delete, at offset {offset} of the journal; \
                     {tested} tests so far"
                )
            });
        }
        replay.testing = Some(wait);
        Ok(())
    }

    pub(super) fn end_tests(&self, replay: &mut Replay) {
        if replay.testing.take().is_some_and(|wait| wait.logged.is_some()) {
            self.partition.trouble.lock().clear();
        }
    }

    fn heads_are_full(&self) -> String {
        format!(
            "replay waits for room in the heads, which hold {} of {} MiB; it continues when their samples are sealed \
             (the log says what prevents sealing), or after a restart with a larger --memory",
            self.context.heads.bytes() >> 20,
            self.context.settings.budget.head_bytes >> 20
        )
    }

    /// True if replay may add more to the heads. Samples are sealed only once every partition can freeze its head. A
    /// partition that can do so before the others stops at a lower fill level, to leave memory for them.
    fn has_room(&self, replay: &Replay) -> bool {
        let percent =
            if replay.can_freeze && !self.context.partitions.can_freeze() { watermarks::SEAL } else { 100 };
        !self.context.heads.is_filled_to(percent)
    }

    pub(super) fn hear(&mut self, replay: &mut Replay, next: Offset) -> Result<(), Halt> {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => return Err(Halt::Stopped),
                Command::Write(submission) => {
                    submission.refuse_all(self.context.partitions.replaying());
                }
                Command::Freeze(Freeze { except, reply, .. }) if replay.can_freeze => {
                    let frozen = self.freeze_upto(next, &except);
                    let _ = reply.send(frozen); // the receiver may be gone: the next request gets the same answer
                }
                // dropping the reply ends the wait; the sealer repeats the request after replay
                Command::Freeze(_)
                | Command::Read(..)
                | Command::AddClosed(..)
                | Command::Discard(..)
                | Command::Relocate(_)
                | Command::Truncate(_)
                | Command::DeleteTenant(_)
                | Command::DeleteSeries(_) => {}
                Command::Sealed(sealed) => self.let_go(replay, next, sealed)?,
            }
        }
        Ok(())
    }

    pub(super) fn let_go(&mut self, replay: &mut Replay, next: Offset, sealed: Sealed) -> Result<(), Halt> {
        self.release(sealed);
        self.evict_rest(replay, next)
    }

    /// If the heads are full, evicts series without samples that the rest of the dictionary does not need.
    pub(super) fn make_room(&mut self, replay: &mut Replay, next: Offset) -> Result<(), Halt> {
        let now = self.context.clock.instant();
        let is_due = replay.looked_at.is_none_or(|at| now.duration_since(at) >= EVICT_EVERY);
        if !is_due || !self.context.heads.is_filled_to(watermarks::EVICT_AT_ONCE) {
            return Ok(());
        }
        replay.looked_at = Some(now);
        self.evict_rest(replay, next)
    }

    fn evict_rest(&self, replay: &mut Replay, next: Offset) -> Result<(), Halt> {
        let mut rest = self.references()?;
        if let Some(dictionary) = replay.dictionary {
            match self.survey(dictionary, next, &mut rest, |_, _| false) {
                // there was no memory for the survey, so it is unknown which series could be evicted
                Err(Halt::NoRoom) => return Ok(()),
                surveyed => surveyed?,
            }
        }
        self.evict_unneeded(replay, &rest);
        Ok(())
    }

    /// Evicts series that were restored only for exemplars that the head does not have any more, of tenants some of whose
    /// exemplars were deleted. Lists would name deleted series. Nobody holds a pin, because requests wait for replay.
    pub(super) fn evict_bereft(&self, replay: &Replay) {
        if replay.bereft.is_empty() {
            return;
        }
        let (head, now_s) = (&self.partition.head, replay.seen_s + 1);
        head.write().see_exemplars(now_s);
        let idle = Idle::evict_before(now_s);
        let evicted = loop {
            let is_bereft = |tenant: &TenantId| replay.bereft.contains(tenant);
            let evicted = head.write().evict_turn_of(|_| idle, is_bereft, |_, _| {});
            if let Evicted::Done(count) = evicted {
                break count;
            }
        };
        let mut partition = head.write();
        partition.see_exemplars(replay.seen_s);
        self.partition.grew(partition.take_change());
        self.context.metrics.series_evicted.add(evicted);
    }

    fn evict_unneeded(&self, replay: &mut Replay, rest: &References) {
        let now_s = replay.seen_s + 1;
        let head = &self.partition.head;
        for (tenant, slots) in replay.references.tenants_mut() {
            let mut partition = head.write();
            slots.retain(|given, series| {
                let is_needed = rest.is_needed(tenant, given);
                if is_needed {
                    partition.tenant_mut(tenant).set_seen(series, now_s);
                }
                is_needed
            });
        }
        // under memory pressure, exemplars do not keep their series
        if !self.context.heads.is_filled_to(watermarks::EVICT_AT_ONCE) {
            head.write().see_exemplars(now_s);
        }
        let idle = Idle::evict_before(now_s);
        let evicted = loop {
            let evicted = head.write().evict_turn(idle, |_, _| {});
            if let Evicted::Done(count) = evicted {
                break count;
            }
        };
        let mut partition = head.write();
        partition.see_exemplars(replay.seen_s);
        // metadata was restored a moment ago, so it does not count as idle
        partition.remove_empty(Idle::before(0), |_| {});
        for (tenant, slots) in replay.references.tenants_mut() {
            for series in slots.all() {
                partition.tenant_mut(tenant).set_seen(series, replay.seen_s);
            }
        }
        self.partition.grew(partition.take_change());
        self.context.metrics.series_evicted.add(evicted);
    }
}
