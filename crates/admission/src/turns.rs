//! Decides which tenant's background work is done next: that of the tenant for which the least work was done
//! so far, relative to its weight.
//!
//! ```text
//!   work done per weight    clock                    a, waiting: next
//!   ────────────────────────┼────────●────────●──▶   b, waiting
//!   absent: as at the clock          a        b
//! ```
//!
//! The clock is the work of the waiting tenant that has got the least. A newcomer starts at the clock. So it
//! does not have to wait because of work that was done for it long ago, and the others do not wait until it
//! has caught up.

use model::TenantId;
use std::collections::BTreeMap;

/// Work done for the tenants that are ahead of the clock. It is forgotten when no tenant waits, so there are
/// at most as many entries as tenants that had work since then.
#[derive(Debug, Default)]
pub struct Turns {
    /// Bytes divided by the tenant's weight. All are greater than `clock`.
    ahead: BTreeMap<TenantId, u64>,
    clock: u64,
}

impl Turns {
    /// True if this tenant is among those for which the least work was done.
    pub fn is_next(&self, tenant: &TenantId) -> bool {
        !self.ahead.contains_key(tenant)
    }

    /// Chooses the waiting tenant for which the least work was done, or the first of them if there are
    /// several. If no tenant waits, all past work is forgotten.
    pub fn next<'t>(&mut self, waiting: impl Iterator<Item = &'t TenantId>) -> Option<&'t TenantId> {
        let Some(next) = waiting.min_by_key(|tenant| self.done(tenant)) else {
            *self = Self::default();
            return None;
        };
        let clock = self.done(next);
        self.clock = clock;
        self.ahead.retain(|_, done| *done > clock);
        Some(next)
    }

    pub fn charge(&mut self, tenant: &TenantId, bytes: u64, weight: u64) {
        let done = self.done(tenant).saturating_add(bytes.div_ceil(weight.max(1)));
        if done > self.clock {
            self.ahead.insert(tenant.clone(), done);
        }
    }

    pub fn retain(&mut self, exists: impl Fn(&TenantId) -> bool) {
        self.ahead.retain(|tenant, _| exists(tenant));
    }

    fn done(&self, tenant: &TenantId) -> u64 {
        self.ahead.get(tenant).copied().unwrap_or(self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants<const N: usize>(names: [&str; N]) -> [TenantId; N] {
        names.map(|name| TenantId::parse(name).unwrap())
    }

    /// Takes `number` turns, and returns how many bytes of work each tenant has got. A waiting tenant is
    /// given with the bytes of each of its turns and its weight.
    fn served(turns: &mut Turns, waiting: &[(&TenantId, u64, u64)], number: usize) -> Vec<u64> {
        let mut served = vec![0; waiting.len()];
        for _ in 0..number {
            let next = turns.next(waiting.iter().map(|(tenant, _, _)| *tenant)).unwrap();
            let at = waiting.iter().position(|(tenant, _, _)| *tenant == next).unwrap();
            let (tenant, bytes, weight) = waiting[at];
            turns.charge(tenant, bytes, weight);
            served[at] += bytes;
        }
        served
    }

    #[test]
    fn work_is_divided_by_weight_whatever_the_size_of_the_jobs() {
        let [a, b, c] = tenants(["a", "b", "c"]);
        let mut turns = Turns::default();
        let waiting = [(&a, 500, 1), (&b, 10, 1), (&c, 30, 3)];
        let served = served(&mut turns, &waiting, 5 * (1 + 50 + 50));
        assert_eq!(served, [2500, 2500, 7500]);
    }

    #[test]
    fn newcomers_start_at_the_clock() {
        let [a, b, new] = tenants(["a", "b", "new"]);
        let mut turns = Turns::default();
        served(&mut turns, &[(&a, 100, 1), (&b, 100, 1)], 100);
        assert!(turns.is_next(&new));
        // each got a third, give or take one turn
        let served = served(&mut turns, &[(&a, 100, 1), (&b, 100, 1), (&new, 100, 1)], 30);
        assert!(served.iter().all(|bytes| bytes.abs_diff(1000) <= 100), "{served:?}");
    }

    #[test]
    fn work_is_forgotten_when_the_others_have_caught_up_or_none_waits() {
        let [a, b] = tenants(["a", "b"]);
        let mut turns = Turns::default();
        turns.charge(&a, 300, 1);
        assert!(!turns.is_next(&a) && turns.is_next(&b));
        served(&mut turns, &[(&b, 100, 1)], 3);
        assert!(!turns.is_next(&a));
        assert_eq!(turns.next([&b].into_iter()), Some(&b));
        assert!(turns.is_next(&a) && turns.ahead.is_empty(), "{turns:?}");
        turns.charge(&a, 300, 1);
        assert_eq!(turns.next(std::iter::empty()), None);
        assert!(turns.is_next(&a));
        turns.charge(&a, 300, 1);
        turns.retain(|tenant| *tenant != a);
        assert!(turns.is_next(&a));
    }

    #[test]
    fn a_lone_tenant_is_always_next() {
        let [a] = tenants(["a"]);
        let mut turns = Turns::default();
        for bytes in [u64::MAX, u64::MAX, 1] {
            assert_eq!(turns.next([&a].into_iter()), Some(&a));
            turns.charge(&a, bytes, 0);
        }
    }
}
