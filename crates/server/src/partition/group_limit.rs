//! Decides how much work a group of submissions may have.
//!
//! All submissions of a group wait until the whole group is recorded, synced and in the head, and so do those that arrive
//! meanwhile. So while several tenants write, the work of a group takes about as long as its sync: otherwise, the many
//! requests of one tenant would make those of the others wait. The groups of a single tenant may be large, because large
//! groups cost less.

use model::TenantId;
use std::time::{Duration, Instant};

/// Limits on the cost of a group. The unit is the cost of one in-order sample, of which about 4,000 take a millisecond.
const COST_MAX: usize = 200_000;
const COST_MIN: usize = COST_PER_MS;
const COST_PER_MS: usize = 4_000;

/// Several tenants write if a submission arrived this recently that was not of the same tenant as the one before it.
const LATELY: Duration = Duration::from_millis(200);

/// The duration of a sync is a moving mean: each sync counts this part.
const MEAN_PART: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct GroupLimit {
    last_tenant: Option<TenantId>,
    several_at: Option<Instant>,
    sync: Duration,
}

impl GroupLimit {
    pub(super) fn arrived(&mut self, tenant: &TenantId, now: Instant) {
        if self.last_tenant.as_ref() != Some(tenant) {
            if self.last_tenant.is_some() {
                self.several_at = Some(now);
            }
            self.last_tenant = Some(tenant.clone());
        }
    }

    pub(super) fn synced(&mut self, took: Duration) {
        self.sync = self.sync * (MEAN_PART - 1) / MEAN_PART + took / MEAN_PART;
    }

    /// Returns the cost at which a group is complete.
    pub(super) fn cost(&self, now: Instant) -> usize {
        match self.several_at {
            Some(at) if now.saturating_duration_since(at) < LATELY => {
                let sync_us = usize::try_from(self.sync.as_micros()).unwrap_or(usize::MAX);
                (sync_us.saturating_mul(COST_PER_MS) / 1000).clamp(COST_MIN, COST_MAX)
            }
            _ => COST_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_small_while_several_tenants_write() {
        let (mut limit, now) = (GroupLimit::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
        let at = |ms| now + Duration::from_millis(ms);
        (0..9).for_each(|ms| limit.arrived(&a, at(ms)));
        assert_eq!(limit.cost(at(9)), COST_MAX);
        limit.arrived(&b, at(10));
        assert_eq!((limit.cost(at(209)), limit.cost(at(210))), (COST_MIN, COST_MAX));
        limit.arrived(&b, at(300));
        assert_eq!(limit.cost(at(300)), COST_MAX);
        // the work takes as long as a sync
        limit.arrived(&a, at(400));
        (0..99).for_each(|_| limit.synced(Duration::from_millis(10)));
        assert!((39_000..=40_000).contains(&limit.cost(at(400))));
        (0..99).for_each(|_| limit.synced(Duration::from_secs(1)));
        assert_eq!(limit.cost(at(400)), COST_MAX);
    }
}
