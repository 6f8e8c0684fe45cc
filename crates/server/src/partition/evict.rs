//! Series that nobody sends any more are no longer active, and leave the head once their samples are in tables.

use super::Owner;
use super::extras::trim_exemplars;
use super::time_share::{SLICES_MAX, TimeShare};
use admission::watermarks;
use head::{Evicted, Idle};
use model::TenantId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked for such series, with and without pressure.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Between two steps those who looked at the head before have to end.
const WAIT: Duration = Duration::from_millis(20);

/// How long a series may be unseen where the head is so full, in seconds: before new series are refused, room is made by
/// letting go of all that has no samples here.
const UNDER_PRESSURE: [(u64, u32); 2] = [(watermarks::EVICT_ALL, 0), (watermarks::EVICT_SOON, 60)];

/// The same where there are almost as many tenants as may be.
const CROWDED_S: u32 = 60;

/// Progress of an eviction.
#[derive(Debug)]
pub(super) struct Evicting {
    pub(super) time_share: TimeShare,
    /// Series to be evicted in the current eviction.
    idle: Option<Idle>,
}

impl Evicting {
    pub(super) fn new(now: Instant) -> Self {
        Self { time_share: TimeShare::from(now + EVERY_UNDER_PRESSURE), idle: None }
    }
}

impl Owner {
    /// Some slices, where it is time for them.
    pub(super) fn evict_turn(&mut self) {
        for _ in 0..SLICES_MAX {
            let began = self.node.clock.instant();
            if began < self.evicting.time_share.due() || self.stopping {
                return;
            }
            self.evict_slice(began);
        }
    }

    fn evict_slice(&mut self, began: Instant) {
        let (idle_s, is_pressed) = self.idle_s();
        let now_s = self.node.steady_s();
        let idle = *self.evicting.idle.get_or_insert_with(|| Idle {
            retire_before_s: now_s.saturating_sub(self.node.settings.series_idle_s),
            evict_before_s: now_s.saturating_sub(idle_s),
        });
        // what a closed tenant has here and in no table is not read again when it opens; but series that only exemplars
        // need must not keep out the samples that it waits for
        let node = Arc::clone(&self.node);
        let is_open = |tenant: &TenantId| !node.lake.closed.contains(tenant);
        let is_full = node.heads.is_filled_to(watermarks::EVICT_ALL);
        let goes = |tenant: &TenantId| is_full || is_open(tenant);
        let evicted = {
            let Self { partition, dictionary, .. } = self;
            let mut head = partition.head.write();
            let evicted = head.evict_turn_of(idle, goes, |tenant, series| dictionary.remove(tenant, series));
            if matches!(evicted, Evicted::Done(1..)) {
                head.remove_empty_of(idle, is_open, |tenant| dictionary.remove_tenant(tenant));
            }
            if matches!(evicted, Evicted::Done(_)) {
                trim_exemplars(&self.node, &mut head);
            }
            partition.grew(head.take_change());
            evicted
        };
        let now = self.node.clock.instant();
        match evicted {
            Evicted::More => self.evicting.time_share.worked(began, now),
            Evicted::Waits => self.evicting.time_share.rest(now + WAIT),
            Evicted::Done(count) => {
                self.evicting.idle = None;
                self.node.metrics.series_evicted.add(count);
                self.evicting.time_share.rest(now + if is_pressed { EVERY_UNDER_PRESSURE } else { EVERY });
            }
        }
    }

    /// How long a series may be unseen, in seconds, and whether that is because the head is full of series or tenants.
    fn idle_s(&self) -> (u32, bool) {
        let idle_s = self.node.settings.series_idle_s;
        let pressed = UNDER_PRESSURE.iter().find(|(percent, _)| self.node.heads.is_filled_to(*percent));
        let pressed = pressed.map(|(_, pressed_s)| *pressed_s);
        // tenants leave with their last series
        let is_crowded = || {
            let tenants = self.partition.head.read().tenant_count();
            tenants * 100 >= self.node.settings.tenants_max * watermarks::TENANTS
        };
        let pressed = pressed.or_else(|| is_crowded().then_some(CROWDED_S));
        pressed.map_or((idle_s, false), |pressed_s| (idle_s.min(pressed_s), true))
    }
}
