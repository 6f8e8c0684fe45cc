//! How long series may be idle, by how full the head is and by whether their tenant has more than its share of it.
//!
//! A tenant that fills the head loses its idle series first. The other tenants lose theirs only if this does not make room.

use crate::limits::tenant_state::Division;
use crate::partition::Context;
use admission::watermarks::{EVICT_AT_ONCE, EVICT_EVERYTHING, EVICT_SOON, EVICT_WITHIN_SHARE};
use head::Idle;
use model::TenantId;

/// For how many seconds series may be idle from a fill level of the head on.
#[derive(Debug, Clone, Copy)]
struct Level {
    percent: u64,
    above_share_s: u32,
    /// For series of tenants within their share. `None`: not less than without pressure.
    within_share_s: Option<u32>,
}

const LEVELS: [Level; 4] = [
    Level { percent: EVICT_EVERYTHING, above_share_s: 0, within_share_s: Some(0) },
    Level { percent: EVICT_WITHIN_SHARE, above_share_s: 0, within_share_s: Some(WITHIN_SHARE_S) },
    Level { percent: EVICT_AT_ONCE, above_share_s: 0, within_share_s: None },
    Level { percent: EVICT_SOON, above_share_s: 60, within_share_s: None },
];

/// Senders rarely have intervals longer than this.
const WITHIN_SHARE_S: u32 = 300;

/// Series may only be idle for this many seconds while there are almost too many tenants.
const CROWDED_S: u32 = 60;

/// Seconds for which series may be idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    above_share_s: u32,
    within_share_s: u32,
}

impl Limits {
    /// `series_idle_s` is the limit without pressure.
    fn of(level: Option<Level>, is_crowded: bool, series_idle_s: u32) -> Self {
        let most_s = if is_crowded { series_idle_s.min(CROWDED_S) } else { series_idle_s };
        let above_share_s = level.map_or(most_s, |level| most_s.min(level.above_share_s));
        let within_share_s = level.and_then(|level| level.within_share_s);
        Self {
            above_share_s,
            within_share_s: within_share_s.map_or(most_s, |pressed_s| most_s.min(pressed_s)),
        }
    }
}

/// Decided when an eviction begins, and valid until its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleTimes {
    now_s: u32,
    series_idle_s: u32,
    limits: Limits,
    /// `None` if no tenant has more than its share, or if shares do not matter. All tenants are then treated as if they had
    /// more.
    division: Option<Division>,
}

impl IdleTimes {
    /// `is_crowded` tells that there are almost too many tenants. Evicting all series of a tenant also removes the tenant.
    pub(super) fn now(context: &Context, is_crowded: bool) -> Self {
        let level = level_of(context);
        let percent = level.map(|level| level.percent.min(EVICT_AT_ONCE));
        let division = percent.and_then(|percent| {
            let (settings, now) = (context.overrides.current(), context.clock.instant());
            context.heads.division_to(percent, &context.tenants, &settings, now)
        });
        let series_idle_s = context.settings.series_idle_s;
        let limits = Limits::of(level, is_crowded, series_idle_s);
        Self { now_s: context.steady_s(), series_idle_s, limits, division }
    }

    /// Seconds for which a tenant's series may be idle.
    pub(super) fn seconds_of(&self, tenant: &TenantId, context: &Context) -> u32 {
        let Limits { above_share_s, within_share_s } = self.limits;
        if above_share_s == within_share_s {
            return above_share_s;
        }
        let Some(division) = &self.division else { return above_share_s };
        let (settings, now) = (context.overrides.current(), context.clock.instant());
        let is_above = context
            .tenants
            .get(tenant)
            .is_some_and(|tenant| division.exceeded_share(&tenant, &settings, now).is_some());
        if is_above { above_share_s } else { within_share_s }
    }

    pub(super) fn of(&self, tenant: &TenantId, context: &Context) -> Idle {
        Idle {
            retire_before_s: self.now_s.saturating_sub(self.series_idle_s),
            evict_before_s: self.now_s.saturating_sub(self.seconds_of(tenant, context)),
        }
    }
}

/// True if some series may be idle for less than usual because memory is short.
pub(super) fn is_pressed(context: &Context) -> bool {
    level_of(context).is_some()
}

fn level_of(context: &Context) -> Option<Level> {
    let head = context.heads.head();
    LEVELS.into_iter().find(|level| head.is_filled_to(level.percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::Head;

    #[test]
    fn tenants_within_their_share_lose_series_last() {
        let check = |percent: u64, is_crowded, [above_share_s, within_share_s]: [u32; 2]| {
            let head = Head { used_bytes: percent, limit_bytes: 100 };
            let level = LEVELS.into_iter().find(|level| head.is_filled_to(level.percent));
            let limits = Limits::of(level, is_crowded, 3600);
            assert_eq!(limits, Limits { above_share_s, within_share_s }, "{percent} %");
            let Limits { above_share_s, within_share_s } = Limits::of(level, is_crowded, 10);
            assert!(above_share_s <= 10 && within_share_s <= 10, "{percent} %");
        };
        check(59, false, [3600, 3600]);
        check(60, false, [60, 3600]);
        check(74, false, [60, 3600]);
        check(75, false, [0, 3600]);
        check(91, false, [0, 3600]);
        check(92, false, [0, 300]);
        check(95, false, [0, 300]);
        check(96, false, [0, 0]);
        check(0, true, [60, 60]);
        check(75, true, [0, 60]);
        check(92, true, [0, 60]);
        check(100, true, [0, 0]);
    }
}
