//! Limits concurrent requests and their bytes. A gate has no queue: when it is full, it refuses. Each tenant
//! may hold a multiple of the capacity that is free at the moment, so that a tenant that floods the gate
//! always leaves some capacity to others.
//!
//! Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.

use model::TenantId;
use std::collections::HashMap;
use std::hash::Hash;

/// A gate of tenants, or of other parties that are told apart by a key.
#[derive(Debug)]
pub struct Gate<K = TenantId> {
    limit: usize,
    bytes_limit: u64,
    /// A tenant of weight 1 may hold this many times the free capacity.
    multiple: u64,
    inside: usize,
    peak: usize,
    bytes: u64,
    /// The requests that each tenant has in the gate. Tenants without any are removed, so there are at most
    /// `limit` entries.
    tenants: HashMap<K, Inside>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    pub requests: usize,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Gate,
    Share(Inside),
    Limit(usize),
    /// Earlier requests of the tenant wait for a place. Only a gate with a queue, which is built around this one, says so.
    Waiting,
}

#[derive(Debug)]
pub struct Entrant<'a, K = TenantId> {
    pub tenant: &'a K,
    /// Weight of the tenant's share, compared with the weights of other tenants. At least 1.
    pub weight: u64,
    /// The limit that an operator has set on the tenant's concurrent requests, if any.
    pub limit: Option<usize>,
    pub bytes: u64,
}

// not derived, because that would only work for keys that can be copied
impl<K> Clone for Entrant<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Entrant<'_, K> {}

/// For a gate with a large limit: a single tenant can take 8/9 of it, and two tenants 8/17 each.
pub const MULTIPLE: u64 = 8;

/// For a gate with a small limit, or for long requests: a single tenant can take half of the gate, and two
/// tenants a third each.
pub const MULTIPLE_OF_FEW: u64 = 1;

/// The largest number that a tenant of this weight can reach if others leave `left` to it, and it may hold `multiple` times its
/// weight of what stays free: while it holds less, one more is admitted.
pub fn share(multiple: u64, weight: u64, left: u64) -> u64 {
    let multiple = u128::from(multiple) * u128::from(weight);
    u64::try_from((multiple * u128::from(left)).div_ceil(multiple + 1)).unwrap_or(u64::MAX)
}

impl<K: Clone + Eq + Hash> Gate<K> {
    pub fn new(limit: usize, multiple: u64) -> Self {
        Self::with_bytes(limit, u64::MAX, multiple)
    }

    /// A gate for `limit` requests that have `bytes_limit` bytes together. When the gate is empty, it admits
    /// even a request with more bytes.
    pub fn with_bytes(limit: usize, bytes_limit: u64, multiple: u64) -> Self {
        Self { limit, bytes_limit, multiple, inside: 0, peak: 0, bytes: 0, tenants: HashMap::new() }
    }

    /// Admits a request, unless the gate is full or the tenant has used up its share or limit.
    pub fn enter(&mut self, entrant: Entrant<'_, K>) -> Result<(), Full> {
        self.check(entrant)?;
        let Entrant { tenant, bytes, .. } = entrant;
        self.inside += 1;
        self.peak = self.peak.max(self.inside);
        self.bytes = self.bytes.saturating_add(bytes);
        match self.tenants.get_mut(tenant) {
            Some(own) => own.add(bytes),
            None => self.tenants.entry(tenant.clone()).or_default().add(bytes),
        }
        Ok(())
    }

    /// Says whether [`Self::enter`] would admit the request.
    pub fn check(&self, entrant: Entrant<'_, K>) -> Result<(), Full> {
        let Entrant { tenant, bytes, .. } = entrant;
        let own = self.of(tenant);
        if let Some(limit) = entrant.limit.filter(|limit| own.requests >= *limit) {
            return Err(Full::Limit(limit));
        }
        let fits = self.inside < self.limit && self.bytes.saturating_add(bytes) <= self.bytes_limit;
        if self.inside > 0 && !fits {
            return Err(Full::Gate);
        }
        if own.requests > 0 && self.exceeds_share(own, entrant) {
            return Err(Full::Share(own));
        }
        Ok(())
    }

    fn exceeds_share(&self, own: Inside, entrant: Entrant<'_, K>) -> bool {
        let multiple = self.multiple.saturating_mul(entrant.weight);
        let free = (self.limit - self.inside) as u64;
        let free_bytes = self.bytes_limit - self.bytes.saturating_add(entrant.bytes);
        own.requests as u64 >= free.saturating_mul(multiple)
            || own.bytes > free_bytes.saturating_mul(multiple)
    }

    pub fn leave(&mut self, tenant: &K, bytes: u64) {
        self.inside -= 1;
        self.bytes -= bytes;
        let own = self.tenants.get_mut(tenant).expect("BUG: a request that was not inside left the gate");
        own.requests -= 1;
        own.bytes -= bytes;
        if own.requests == 0 {
            self.tenants.remove(tenant);
        }
    }

    pub fn of(&self, tenant: &K) -> Inside {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// How many requests a tenant of this weight may have inside as long as others have as many as now.
    pub fn share_of(&self, tenant: &K, weight: u64) -> usize {
        let others = self.inside - self.of(tenant).requests;
        share(self.multiple, weight, (self.limit - others) as u64) as usize
    }

    pub const fn limit(&self) -> usize {
        self.limit
    }

    pub const fn inside(&self) -> usize {
        self.inside
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub const fn peak(&self) -> usize {
        self.peak
    }
}

impl Inside {
    const fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    fn enter(gate: &mut Gate, tenant: &TenantId, bytes: u64) -> Result<(), Full> {
        gate.enter(Entrant { tenant, weight: 1, limit: None, bytes })
    }

    #[test]
    fn requests_are_bounded_by_number() {
        let mut gate = Gate::new(2, u64::MAX);
        let (a, b) = (id("a"), id("b"));
        assert_eq!([&a, &b, &a].map(|tenant| enter(&mut gate, tenant, 0)), [Ok(()), Ok(()), Err(Full::Gate)]);
        gate.leave(&b, 0);
        assert!(enter(&mut gate, &b, 0).is_ok());
        assert_eq!((gate.inside(), gate.peak()), (2, 2));
    }

    #[test]
    fn requests_are_bounded_by_bytes_unless_alone() {
        let mut gate = Gate::with_bytes(3, 100, MULTIPLE);
        let [a, b, c] = ["a", "b", "c"].map(id);
        assert!(enter(&mut gate, &a, 1000).is_ok(), "a request that is alone may exceed the limit on bytes");
        assert_eq!(enter(&mut gate, &a, 0), Err(Full::Gate));
        gate.leave(&a, 1000);
        assert_eq!([(&a, 60), (&b, 40)].map(|(of, bytes)| enter(&mut gate, of, bytes).is_ok()), [true; 2]);
        assert_eq!(enter(&mut gate, &c, 1), Err(Full::Gate));
        gate.leave(&b, 40);
        assert!(enter(&mut gate, &c, 40).is_ok());
    }

    fn flood(gate: &mut Gate, tenant: &TenantId, bytes: u64) -> usize {
        while enter(gate, tenant, bytes).is_ok() {}
        gate.of(tenant).requests
    }

    #[test]
    fn a_tenant_that_floods_leaves_places_for_others() {
        let mut gate = Gate::new(900, MULTIPLE);
        let (a, b, c) = (id("a"), id("b"), id("c"));
        assert_eq!(flood(&mut gate, &a, 0), 800);
        // two tenants that send as much as they can end up with equal shares
        for _ in 0..2000 {
            flood(&mut gate, &b, 0);
            flood(&mut gate, &a, 0);
            let larger = if gate.of(&a).requests >= gate.of(&b).requests { &a } else { &b };
            gate.leave(larger, 0);
        }
        let (of_a, of_b) = (gate.of(&a).requests, gate.of(&b).requests);
        assert!(of_a.abs_diff(of_b) < 10 && of_a + of_b <= 850, "{of_a} and {of_b}");
        for _ in 0..40 {
            assert!(enter(&mut gate, &c, 0).is_ok(), "places are left for a tenant with few requests");
        }
    }

    #[test]
    fn a_tenant_that_floods_leaves_bytes_for_others() {
        let mut gate = Gate::with_bytes(1000, 900, MULTIPLE);
        let (a, b) = (id("a"), id("b"));
        assert_eq!(flood(&mut gate, &a, 10), 80);
        assert!(matches!(enter(&mut gate, &a, 10), Err(Full::Share(_))));
        assert!(enter(&mut gate, &b, 100).is_ok());
    }

    #[test]
    fn a_small_limit_leaves_half_to_other_tenants() {
        for (limit, expected) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            assert_eq!(flood(&mut Gate::new(limit, MULTIPLE_OF_FEW), &id("a"), 0), expected, "of {limit}");
        }
    }

    #[test]
    fn a_share_is_what_a_flood_gets() {
        for limit in [1, 2, 3, 17, 900] {
            for (multiple, others) in [(1, 0), (1, limit / 2), (8, 0), (8, 1), (8, limit / 3)] {
                let mut gate = Gate::new(limit, multiple);
                for number in 0..others {
                    let _ = enter(&mut gate, &id(&format!("other-{number}")), 0);
                }
                let share = gate.share_of(&id("a"), 1);
                assert_eq!(flood(&mut gate, &id("a"), 0), share, "{limit} {multiple} {others}");
                assert_eq!(gate.share_of(&id("a"), 1), share);
            }
        }
    }

    #[test]
    fn a_heavy_tenant_gets_more_and_a_configured_limit_holds() {
        let (mut gate, a, b) = (Gate::new(400, 1), id("a"), id("b"));
        let heavy = Entrant { tenant: &a, weight: 3, limit: None, bytes: 0 };
        while gate.enter(heavy).is_ok() {}
        assert_eq!(gate.of(&a).requests, 300);
        let limited = Entrant { tenant: &b, weight: 1, limit: Some(2), bytes: 0 };
        assert_eq!([0; 3].map(|_| gate.enter(limited).is_ok()), [true, true, false]);
        assert_eq!(gate.enter(limited), Err(Full::Limit(2)));
    }

    #[test]
    fn tenants_without_requests_are_forgotten() {
        let mut gate = Gate::new(4, MULTIPLE);
        for number in 0..1000 {
            let tenant = id(&format!("t{number}"));
            enter(&mut gate, &tenant, 5).unwrap();
            gate.leave(&tenant, 5);
        }
        assert_eq!((gate.tenants.len(), gate.inside(), gate.bytes), (0, 0, 0));
    }
}
