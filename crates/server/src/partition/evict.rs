//! Eviction of idle series: series without new samples become inactive, and leave the head once their samples are in
//! tables.

use super::Owner;
use super::extras::trim_exemplars;
use super::time_share::{SLICES_MAX, TimeShare};
use admission::watermarks;
use head::{Evicted, Idle};
use model::TenantId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Intervals between evictions, without and with memory pressure.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Interval between checks whether readers have dropped their pins. The next step of an eviction waits for that.
const WAIT: Duration = Duration::from_millis(20);

/// Fill levels of the head, each with the idle time allowed to series from there on, in seconds. All series without
/// samples in the head are evicted before new series are refused.
const UNDER_PRESSURE: [(u64, u32); 2] = [(watermarks::EVICT_ALL, 0), (watermarks::EVICT_SOON, 60)];

/// Idle time allowed to series, in seconds, when the number of tenants is near its limit.
const CROWDED_S: u32 = 60;

/// Progress of an eviction.
#[derive(Debug)]
pub(super) struct Evicting {
    pub(super) time_share: TimeShare,
    /// Idle times of the eviction in progress; `None` between evictions.
    idle: Option<Idle>,
}

impl Evicting {
    pub(super) fn new(now: Instant) -> Self {
        Self { time_share: TimeShare::from(now + EVERY_UNDER_PRESSURE), idle: None }
    }
}

impl Owner {
    /// Runs slices of an eviction that are due.
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
        let idle = *self.evicting.idle.get_or_insert_with(|| Idle {
            retire_before_s: now_s.saturating_sub(self.context.settings.series_idle_s),
            evict_before_s: now_s.saturating_sub(idle_s),
        });
        // When a closed tenant opens, its metadata and exemplars are not replayed again, so its series stay in the
        // head. If the head is full, these series are evicted nevertheless: series kept only for exemplars must not
        // take memory that the tenant's samples need.
        let context = Arc::clone(&self.context);
        let is_open = |tenant: &TenantId| !context.lake.closed.contains(tenant);
        let is_full = context.heads.is_filled_to(watermarks::EVICT_ALL);
        let goes = |tenant: &TenantId| is_full || is_open(tenant);
        let evicted = {
            let Self { partition, dictionary, number, .. } = self;
            let mut head = partition.head.write();
            let evicted = head.evict_turn_of(idle, goes, |tenant, series| dictionary.remove(tenant, series));
            if matches!(evicted, Evicted::Done(1..)) {
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
            Evicted::More => self.evicting.time_share.worked(began, now),
            Evicted::Waits => self.evicting.time_share.rest(now + WAIT),
            Evicted::Done(count) => {
                self.evicting.idle = None;
                self.note_tenants();
                self.context.metrics.series_evicted.add(count);
                self.evicting.time_share.rest(now + if is_pressed { EVERY_UNDER_PRESSURE } else { EVERY });
            }
        }
    }

    /// Idle time allowed to series, in seconds, and whether it is shortened because the head is full of series or tenants.
    fn idle_s(&self) -> (u32, bool) {
        let idle_s = self.context.settings.series_idle_s;
        let pressed = UNDER_PRESSURE.iter().find(|(percent, _)| self.context.heads.is_filled_to(*percent));
        let pressed = pressed.map(|(_, pressed_s)| *pressed_s);
        // a tenant is removed with its last series
        let is_crowded = || {
            let tenants = self.partition.head.read().tenant_count();
            tenants * 100 >= self.context.settings.tenants_max * watermarks::TENANTS
        };
        let pressed = pressed.or_else(|| is_crowded().then_some(CROWDED_S));
        pressed.map_or((idle_s, false), |pressed_s| (idle_s.min(pressed_s), true))
    }
}
