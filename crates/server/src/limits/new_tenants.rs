//! Limits the rate of new tenants.
//!
//! Every client that may write can name a new tenant, and each takes a slot, memory and in the end a table. A token
//! bucket admits a burst of them, and then so many per minute. Idle tenants leave memory (see [`crate::partition`]) and free
//! their slots faster than the bucket admits new ones. A tenant that has tables is not new.

use model::TenantId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Tenants that were let in last and may not be in memory yet: their next requests, on their way at the same time, need
/// no token.
const RECENT_MAX: usize = 64;

/// The bucket, and who got a token last.
#[derive(Debug)]
pub(crate) struct NewTenants {
    /// A token comes once in so much time.
    interval: Duration,
    /// What fills an empty bucket.
    burst: Duration,
    /// When the bucket will be full; it is where this is past.
    full_at: Option<Instant>,
    recent: VecDeque<TenantId>,
}

impl NewTenants {
    /// A full bucket.
    pub(crate) fn new(burst: usize, per_minute: usize) -> Self {
        let interval = Duration::from_secs(60) / u32::try_from(per_minute).unwrap_or(u32::MAX);
        let burst = interval.saturating_mul(u32::try_from(burst).unwrap_or(u32::MAX));
        Self { interval, burst, full_at: None, recent: VecDeque::new() }
    }

    /// Whether `tenant`, which nobody knows, may begin at `now`.
    pub(crate) fn admit(&mut self, tenant: &TenantId, now: Instant) -> bool {
        if self.recent.contains(tenant) {
            return true;
        }
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        if full_at.duration_since(now) > self.burst {
            return false;
        }
        self.full_at = Some(full_at);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(tenant.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_so_many_a_minute() {
        let began = Instant::now();
        let mut bucket = NewTenants::new(100, 60);
        let mut number = 0;
        let mut admitted = |seconds: u64| {
            let now = began + Duration::from_secs(seconds);
            let mut admit = || {
                number += 1;
                bucket.admit(&TenantId::parse(&format!("t{number}")).unwrap(), now)
            };
            (0..1000).filter(|_| admit()).count()
        };
        assert_eq!((admitted(0), admitted(0), admitted(1), admitted(11)), (100, 0, 1, 10));
        assert_eq!(admitted(100_000), 100, "no more than the burst is saved up");
    }

    #[test]
    fn requests_of_one_tenant_take_one_token() {
        let now = Instant::now();
        let mut bucket = NewTenants::new(2, 1);
        let [a, b, c] = ["a", "b", "c"].map(|name| TenantId::parse(name).unwrap());
        assert!(bucket.admit(&a, now) && bucket.admit(&a, now) && bucket.admit(&b, now));
        assert!(!bucket.admit(&c, now) && bucket.admit(&a, now));
        assert!(bucket.admit(&c, now + Duration::from_secs(60)));
    }
}
