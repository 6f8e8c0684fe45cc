//! Evicts idle series: a series without new samples leaves the head once its samples are in tables.

use super::Owner;
use super::delete_tenant::{DeleteTenant, UNSEALED_ONLY};
use super::extras::trim_exemplars;
use super::time_share::{SLICES_MAX, TimeShare};
use admission::watermarks;
use head::{Evicted, Idle};
use model::TenantId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Series are evicted at this interval, and more often under memory pressure.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Interval at which the owner checks whether readers have let go of series that it wants to evict.
const WAIT: Duration = Duration::from_millis(20);

/// While the head is filled to at least this percentage of its limit, series may only be idle for this many seconds.
const UNDER_PRESSURE: [(u64, u32); 2] = [(watermarks::EVICT_ALL, 0), (watermarks::EVICT_SOON, 60)];

/// Series may only be idle for this many seconds while there are almost too many tenants.
const CROWDED_S: u32 = 60;

const DELETED_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Evicting {
    pub(super) time_share: TimeShare,
    /// Decides which series count as idle in the eviction in progress; `None` between evictions.
    idle: Option<Idle>,
    /// The deleted tenant for which the eviction runs; `None` if it runs for all tenants.
    deleted: Option<DeleteTenant>,
    /// Deleted tenants for which an eviction must still run, at most [`DELETED_MAX`].
    waiting: VecDeque<DeleteTenant>,
}

impl Evicting {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            time_share: TimeShare::from(now + EVERY_UNDER_PRESSURE),
            idle: None,
            deleted: None,
            waiting: VecDeque::new(),
        }
    }

    /// True if no further tenant can be deleted now. Requests whose client has gone away do not count.
    pub(super) fn is_full(&mut self) -> bool {
        self.waiting.retain(|request| !request.reply.is_closed());
        self.waiting.len() >= DELETED_MAX
    }

    pub(super) fn evict_tenant(&mut self, request: DeleteTenant, now: Instant) {
        self.waiting.push_back(request);
        self.time_share.suspend(now);
    }

    /// Returns which series count as idle. This is decided when an eviction begins, and holds until its end. If a
    /// deleted tenant is waiting, the eviction is for this tenant only; otherwise it is for all tenants, and `all`
    /// decides.
    fn idle(&mut self, all: impl FnOnce() -> Idle) -> Idle {
        *self.idle.get_or_insert_with(|| {
            self.deleted = self.waiting.pop_front();
            if self.deleted.is_some() { UNSEALED_ONLY } else { all() }
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
        let (idle_s, is_pressed) = self.idle_s();
        let now_s = self.context.steady_s();
        let series_idle_s = self.context.settings.series_idle_s;
        let idle = self.evicting.idle(|| Idle {
            retire_before_s: now_s.saturating_sub(series_idle_s),
            evict_before_s: now_s.saturating_sub(idle_s),
        });
        let deleted = self.evicting.deleted.as_ref().map(|request| request.tenant.clone());
        let is_meant = |tenant: &TenantId| deleted.as_ref().is_none_or(|deleted| deleted == tenant);
        // When a closed tenant opens, replay does not restore its metadata and exemplars, so these must stay in the
        // head together with their series. Only if the head is full are the series evicted, because samples need the
        // memory.
        let context = Arc::clone(&self.context);
        let is_open = |tenant: &TenantId| is_meant(tenant) && !context.lake.closed.contains(tenant);
        let is_full = context.heads.is_filled_to(watermarks::EVICT_ALL);
        let goes = |tenant: &TenantId| is_meant(tenant) && (is_full || is_open(tenant));
        let evicted = {
            let Self { partition, dictionary, number, .. } = self;
            let mut head = partition.head.write();
            let evicted = head.evict_turn_of(idle, goes, |tenant, series| dictionary.remove(tenant, series));
            if matches!(evicted, Evicted::Done(count) if count > 0 || deleted.is_some()) {
                head.remove_empty_of(idle, is_open, |tenant| {
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
                if let Some(DeleteTenant { reply, .. }) = self.evicting.deleted.take() {
                    let _ = reply.send(Ok(())); // the receiver may be gone
                }
                let is_next_due = !self.evicting.waiting.is_empty();
                let pause = if is_pressed { EVERY_UNDER_PRESSURE } else { EVERY };
                self.evicting.time_share.suspend(if is_next_due { now } else { now + pause });
            }
        }
    }

    /// Returns the seconds for which series may be idle, and true if this time was shortened because memory is short
    /// or because there are almost too many tenants.
    fn idle_s(&self) -> (u32, bool) {
        let idle_s = self.context.settings.series_idle_s;
        let pressed = UNDER_PRESSURE.iter().find(|(percent, _)| self.context.heads.is_filled_to(*percent));
        let pressed = pressed.map(|(_, pressed_s)| *pressed_s);
        // evicting all series of a tenant also removes the tenant
        let is_crowded = || {
            let tenants = self.partition.head.read().tenant_count();
            tenants * 100 >= self.context.settings.tenants_max * watermarks::TENANTS
        };
        let pressed = pressed.or_else(|| is_crowded().then_some(CROWDED_S));
        pressed.map_or((idle_s, false), |pressed_s| (idle_s.min(pressed_s), true))
    }
}
