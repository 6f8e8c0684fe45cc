//! How long series may be idle, by how full the head is and by whether their tenant has more than its share of it.
//!
//! A tenant that fills the head loses its idle series first. The other tenants lose those that have probably ended, and the
//! rest only if nothing else makes room.

use crate::limits::tenant_state::Division;
use crate::partition::Context;
use crate::settings;
use admission::watermarks::{EVICT_AT_ONCE, EVICT_EVERYTHING, EVICT_SOON, NO_NEW_SERIES_WITHIN_SHARE};
use head::Idle;
use model::TenantId;
use std::time::Instant;

/// For how many seconds series may be idle from a fill level of the head on.
#[derive(Debug, Clone, Copy)]
struct Level {
    percent: u64,
    limits: Limits,
}

const LEVELS: [Level; 3] = [
    Level { percent: EVICT_EVERYTHING, limits: Limits { above_share_s: 0, within_share_s: 0 } },
    // Senders rarely have intervals longer than five minutes. Series that are idle for longer have probably ended, and
    // should leave before series of the tenants above their share that are still written.
    Level { percent: EVICT_AT_ONCE, limits: Limits { above_share_s: 0, within_share_s: 300 } },
    Level { percent: EVICT_SOON, limits: Limits { above_share_s: 60, within_share_s: 900 } },
];

/// Series that got newer samples in different seconds may be idle for so many seconds even if their tenant is above its share: for an
/// interval of a minute, and some more for delays. Otherwise, a flood of series would evict those of the same tenant that get a sample
/// every few seconds, and each of their samples would be one of a new series. This ends when tenants within their share are refused new
/// series, too ([`NO_NEW_SERIES_WITHIN_SHARE`]).
const LASTING_S: u32 = 90;

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
        let Self { above_share_s, within_share_s } =
            level.map_or(Self { above_share_s: most_s, within_share_s: most_s }, |level| level.limits);
        Self { above_share_s: above_share_s.min(most_s), within_share_s: within_share_s.min(most_s) }
    }
}

/// The shares are those of the eviction's beginning. What a tenant holds is compared with its share at each visit.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleTimes {
    now_s: u32,
    series_idle_s: u32,
    is_crowded: bool,
    /// The limit for tenants above their share when the eviction began. It holds until the end, or else a large tenant
    /// would make just so much room that the next eviction has to begin. The limit for other tenants falls and rises with
    /// the head, so that a short spike does not cost them all their series.
    above_share_s: u32,
    division: Division,
}

impl IdleTimes {
    /// `is_crowded` tells that there are almost too many tenants. Evicting all series of a tenant also removes the tenant.
    pub(super) fn now(context: &Context, is_crowded: bool) -> Self {
        let level = level_of(context);
        // if the head is fuller than this, the aim is still this level, at which tenants get new series again
        let percent = level.map_or(EVICT_SOON, |level| level.percent.min(EVICT_AT_ONCE));
        let (settings, now) = (context.overrides.current(), context.clock.instant());
        let division = context.heads.division_to(percent, &context.tenants, &settings, now);
        let series_idle_s = context.settings.series_idle_s;
        let Limits { above_share_s, .. } = Limits::of(level, is_crowded, series_idle_s);
        Self { now_s: context.steady_s(), series_idle_s, is_crowded, above_share_s, division }
    }

    fn limits(&self, context: &Context) -> Limits {
        Limits::of(level_of(context), self.is_crowded, self.series_idle_s)
    }

    /// Seconds for which a tenant's series may be idle.
    pub(super) fn seconds_of(
        &self,
        tenant: &TenantId,
        context: &Context,
        settings: &settings::Tenants,
        now: Instant,
    ) -> u32 {
        let limits = self.limits(context);
        // The shares are those of the level at the beginning. At a higher level, tenants that are above them may be within theirs, so
        // only the last level counts; another eviction begins a second after this one.
        let above_share_s = self.above_share_s.min(limits.within_share_s);
        if above_share_s == limits.within_share_s {
            return above_share_s;
        }
        let is_above = context
            .tenants
            .get(tenant)
            .is_some_and(|tenant| self.division.exceeded_share(&tenant, settings, now).is_some());
        if is_above { above_share_s } else { limits.within_share_s }
    }

    pub(super) fn of(
        &self,
        tenant: &TenantId,
        context: &Context,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Idle {
        let seconds = self.seconds_of(tenant, context, settings, now);
        let is_nearly_full = context.heads.is_filled_to(NO_NEW_SERIES_WITHIN_SHARE);
        let most_s = if is_nearly_full { 0 } else { self.limits(context).within_share_s };
        let lasting_s = LASTING_S.min(most_s).max(seconds);
        Idle {
            retire_before_s: self.now_s.saturating_sub(self.series_idle_s),
            evict_before_s: self.now_s.saturating_sub(seconds),
            evict_lasting_before_s: self.now_s.saturating_sub(lasting_s),
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
        check(60, false, [60, 900]);
        check(74, false, [60, 900]);
        check(75, false, [0, 300]);
        check(93, false, [0, 300]);
        check(94, false, [0, 0]);
        check(0, true, [60, 60]);
        check(75, true, [0, 60]);
        check(100, true, [0, 0]);
    }
}
