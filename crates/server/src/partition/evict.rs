//! Evicts idle series: a series without new samples leaves the head once its samples are in tables. [`idle_times`] says
//! which series count as idle.

mod idle_times;
#[cfg(test)]
mod tests;

use super::Owner;
use super::extras::trim_exemplars;
use super::time_share::{SLICES_MAX, TimeShare};
use crate::refusal::Refusal;
use admission::watermarks;
use head::{Evicted, Idle};
use idle_times::IdleTimes;
use model::TenantId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Series are evicted at this interval, and more often under pressure: if memory is short, or if there are almost too many
/// tenants.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Interval at which the owner checks whether readers have let go of series that it wants to evict.
const WAIT: Duration = Duration::from_millis(20);

/// Exports, which may wait for their clients, must give up their references to series after an eviction has waited this
/// long. They then select again.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

const DELETED_MAX: usize = 64;

/// Evicts all series without samples, even if they were seen recently.
const UNSEALED_ONLY: Idle = Idle::evict_before(u32::MAX);

/// An eviction of the series of a deleted tenant.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) tenant: TenantId,
    /// Answered when the memory of the series is free.
    pub(super) reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Eviction {
    pub(super) fn too_many() -> Refusal {
        Refusal::busy("deletes", "too many tenants are being deleted; repeat the delete later")
    }
}

#[derive(Debug)]
pub(super) struct Evicting {
    pub(super) time_share: TimeShare,
    /// Unless there is pressure, the next eviction does not begin before this time.
    rests_until: Instant,
    /// Tells which series count as idle in the eviction in progress; `None` between evictions.
    idle: Option<IdleTimes>,
    /// The delete for which the eviction runs; `None` if it runs for all tenants.
    deleted: Option<Eviction>,
    /// True if the last eviction was for a delete.
    was_for_delete: bool,
    /// Deletes for which an eviction must still run, at most [`DELETED_MAX`].
    waiting: VecDeque<Eviction>,
    /// The generation of pins that the eviction last waited for, and since when.
    waits: (u64, Instant),
}

impl Evicting {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            time_share: TimeShare::from(now + EVERY_UNDER_PRESSURE),
            rests_until: now,
            idle: None,
            deleted: None,
            was_for_delete: false,
            waiting: VecDeque::new(),
            waits: (0, now),
        }
    }

    /// Notes for which generation of pins the eviction waits. True once it has waited for [`LEASE_TIMEOUT`].
    fn note_wait(&mut self, generation: u64, now: Instant) -> bool {
        if self.waits.0 != generation {
            self.waits = (generation, now);
        }
        now.saturating_duration_since(self.waits.1) >= LEASE_TIMEOUT
    }

    /// True if no further eviction can be asked for now. Those that nobody waits for any more do not count.
    pub(super) fn is_full(&mut self) -> bool {
        self.waiting.retain(|eviction| !eviction.reply.is_closed());
        self.waiting.len() >= DELETED_MAX
    }

    pub(super) fn evict(&mut self, eviction: Eviction, now: Instant) {
        if self.is_full() {
            let _ = eviction.reply.send(Err(Eviction::too_many())); // the receiver may be gone
            return;
        }
        self.waiting.push_back(eviction);
        self.time_share.suspend(now);
    }

    /// True if no eviction is in progress and none is due.
    fn rests(&self, now: Instant, is_pressed: bool) -> bool {
        self.idle.is_none() && self.waiting.is_empty() && !self.is_due(now, is_pressed)
    }

    /// True if an eviction for all tenants is due.
    fn is_due(&self, now: Instant, is_pressed: bool) -> bool {
        is_pressed || now >= self.rests_until
    }

    /// Returns which series count as idle. `decide` is called when an eviction begins. If a delete is waiting, the eviction is
    /// for its tenant only, unless one for all tenants is due and the last one was for a delete: many deletes in a row must not
    /// keep the head from being emptied.
    fn idle(&mut self, is_due: bool, decide: impl FnOnce() -> IdleTimes) -> IdleTimes {
        *self.idle.get_or_insert_with(|| {
            self.deleted = if is_due && self.was_for_delete { None } else { self.waiting.pop_front() };
            self.was_for_delete = self.deleted.is_some();
            decide()
        })
    }
}

impl Owner {
    pub(super) fn evict_turn(&mut self) {
        for _ in 0..SLICES_MAX {
            let began = self.context.clock.instant();
            if began < self.evicting.time_share.due() || self.stopping {
                return;
            }
            self.evict_slice(began);
        }
    }

    fn evict_slice(&mut self, began: Instant) {
        let is_crowded = self.is_crowded();
        let is_pressed = is_crowded || idle_times::is_pressed(&self.context);
        if self.evicting.rests(began, is_pressed) {
            return self.evicting.time_share.suspend(began + EVERY_UNDER_PRESSURE);
        }
        let context = Arc::clone(&self.context);
        if self.evicting.idle.is_none() {
            self.note_tenants(); // the counts may lag behind, for example those of tenants whose replay goes on
        }
        let is_due = self.evicting.is_due(began, is_pressed);
        let idle_times = self.evicting.idle(is_due, || IdleTimes::now(&context, is_crowded));
        let settings = context.overrides.current();
        let deleted = self.evicting.deleted.as_ref().map(|eviction| eviction.tenant.clone());
        let idle_of = |tenant: &TenantId| match deleted {
            Some(_) => UNSEALED_ONLY,
            None => idle_times.of(tenant, &context, &settings, began),
        };
        let is_meant = |tenant: &TenantId| deleted.as_ref().is_none_or(|deleted| deleted == tenant);
        // When a closed tenant opens, replay does not restore its metadata and exemplars, so these must stay in the
        // head together with their series. Only if the head is full are the series evicted, because samples need the
        // memory.
        let is_open = |tenant: &TenantId| is_meant(tenant) && !context.lake.closed.contains(tenant);
        let is_needed = |tenant: &TenantId| {
            context.heads.is_filled_to(watermarks::EVICT_AT_ONCE)
                && (deleted.is_some() || idle_times.seconds_of(tenant, &context, &settings, began) == 0)
        };
        let goes = |tenant: &TenantId| is_open(tenant) || (is_meant(tenant) && is_needed(tenant));
        let evicted = {
            let Self { partition, dictionary, number, .. } = self;
            let mut head = partition.head.write();
            let evicted =
                head.evict_turn_of(idle_of, goes, |tenant, series| dictionary.remove(tenant, series));
            if matches!(evicted, Evicted::Done(count) if count > 0 || deleted.is_some()) {
                head.remove_empty_of(idle_of, is_open, |tenant| {
                    dictionary.remove_tenant(tenant);
                    if let Some(state) = context.tenants.get(tenant) {
                        state.hold(*number, 0, 0);
                    }
                });
            }
            if matches!(evicted, Evicted::Done(_)) {
                trim_exemplars(&self.context, &mut head);
            }
            partition.grew(head.take_change());
            if evicted == Evicted::WaitsForPins && self.evicting.note_wait(head.pin_generation(), began) {
                head.revoke_leases();
            }
            evicted
        };
        let now = self.context.clock.instant();
        match evicted {
            Evicted::More => self.evicting.time_share.record_slice(began, now),
            Evicted::WaitsForPins => self.evicting.time_share.suspend(now + WAIT),
            Evicted::Done(count) => {
                self.evicting.idle = None;
                self.note_tenants();
                self.context.metrics.series_evicted.add(count);
                match self.evicting.deleted.take() {
                    Some(Eviction { reply, .. }) => _ = reply.send(Ok(())), // the receiver may be gone
                    None => {
                        self.evicting.rests_until = now + EVERY;
                        let pause = if is_pressed { EVERY_UNDER_PRESSURE } else { EVERY };
                        *self.partition.next_eviction.lock() = Some(now + pause);
                    }
                }
                // deletes do not delay the next eviction for all tenants
                let is_next_due = self.evicting.was_for_delete || !self.evicting.waiting.is_empty();
                self.evicting.time_share.suspend(if is_next_due { now } else { now + EVERY_UNDER_PRESSURE });
            }
        }
    }

    /// True if there are almost too many tenants.
    fn is_crowded(&self) -> bool {
        let tenants = self.partition.head.read().tenant_count();
        tenants * 100 >= self.context.settings.tenants_max * watermarks::TENANTS
    }
}
