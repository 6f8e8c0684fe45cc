//! Limits how fast new tenants appear, because any client can name one, and each takes memory. A token bucket
//! admits a burst of new tenants, then a fixed number per minute. Tenants that have tables are not new.

use model::TenantId;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// The last admitted tenants are remembered, so that requests of the same new tenant take only one token until its first
/// series exists. As many are remembered as may come in a burst, but at least the first and at most the second number.
const RECENT: (usize, usize) = (64, 4096);

#[derive(Debug)]
pub struct NewTenants {
    interval: Duration,
    burst: Duration,
    /// When the bucket will be full. If that time is past, the bucket is full.
    full_at: Option<Instant>,
    /// The highest number of tokens that were missing.
    peak: u64,
    recent: Recent,
}

/// The last tenants, without repetition.
#[derive(Debug)]
struct Recent {
    most: usize,
    order: VecDeque<TenantId>,
    all: HashSet<TenantId>,
}

impl NewTenants {
    /// A full bucket with `burst` tokens. `per_minute` tokens are added per minute.
    pub fn new(burst: usize, per_minute: usize) -> Self {
        let interval = Duration::from_secs(60) / u32::try_from(per_minute).unwrap_or(u32::MAX);
        let recent =
            Recent { most: burst.clamp(RECENT.0, RECENT.1), order: VecDeque::new(), all: HashSet::new() };
        let burst = interval.saturating_mul(u32::try_from(burst).unwrap_or(u32::MAX));
        Self { interval, burst, full_at: None, peak: 0, recent }
    }

    /// Takes a token for a new tenant. If there is none, returns the time until the next one.
    pub fn admit(&mut self, tenant: &TenantId, now: Instant) -> Result<(), Duration> {
        if self.recent.all.contains(tenant) {
            return Ok(());
        }
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        let owed = full_at.duration_since(now);
        if owed > self.burst {
            return Err(owed.saturating_sub(self.burst));
        }
        self.full_at = Some(full_at);
        self.peak = self.peak.max(self.missing(now));
        self.recent.add(tenant);
        Ok(())
    }

    /// How many tokens are missing: those that were taken and have not been added again.
    pub fn missing(&self, now: Instant) -> u64 {
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        u64::try_from(owed.as_nanos().div_ceil(self.interval.as_nanos().max(1))).unwrap_or(u64::MAX)
    }

    /// The highest number of tokens that were missing at a time.
    pub const fn peak(&self) -> u64 {
        self.peak
    }
}

impl Recent {
    fn add(&mut self, tenant: &TenantId) {
        if self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back(tenant.clone());
        self.all.insert(tenant.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tenants_are_admitted_in_a_burst_and_then_at_the_rate() {
        let began = Instant::now();
        let mut bucket = NewTenants::new(100, 60);
        let mut number = 0;
        let mut admitted = |seconds: u64| {
            let now = began + Duration::from_secs(seconds);
            let mut admit = || {
                number += 1;
                bucket.admit(&TenantId::parse(&format!("t{number}")).unwrap(), now)
            };
            (0..1000).filter(|_| admit().is_ok()).count()
        };
        assert_eq!((admitted(0), admitted(0), admitted(1), admitted(11)), (100, 0, 1, 10));
        assert_eq!(admitted(100_000), 100, "no more than the burst is saved up");
    }

    #[test]
    fn requests_of_one_tenant_take_one_token() {
        let now = Instant::now();
        let mut bucket = NewTenants::new(2, 1);
        let [a, b, c] = ["a", "b", "c"].map(|name| TenantId::parse(name).unwrap());
        let after = |seconds| now + Duration::from_secs(seconds);
        for tenant in [&a, &a, &b] {
            assert_eq!(bucket.admit(tenant, now), Ok(()));
        }
        assert_eq!(bucket.admit(&c, now), Err(Duration::from_secs(60)));
        assert_eq!(bucket.admit(&c, after(20)), Err(Duration::from_secs(40)));
        assert_eq!([0, 20, 60, 120].map(|second| bucket.missing(after(second))), [2, 2, 1, 0]);
        assert_eq!((bucket.admit(&a, after(20)), bucket.admit(&c, after(60))), (Ok(()), Ok(())));
        assert_eq!((bucket.missing(after(60)), bucket.missing(after(999)), bucket.peak()), (2, 0, 2));
    }

    /// Relays start again with the points of many tenants, each of which comes again before its series exist.
    #[test]
    fn each_tenant_of_a_burst_takes_one_token() {
        let (now, mut bucket) = (Instant::now(), NewTenants::new(1000, 1));
        let tenants: Vec<_> = (0..1001).map(|i| TenantId::parse(&format!("t{i}")).unwrap()).collect();
        for _ in 0..3 {
            let admitted = tenants.iter().filter(|tenant| bucket.admit(tenant, now).is_ok()).count();
            assert_eq!(admitted, 1000);
        }
        let later = now + Duration::from_secs(86_400);
        assert!(tenants.iter().skip(1000).all(|tenant| bucket.admit(tenant, later).is_ok()));
        assert_eq!((bucket.recent.order.len(), bucket.recent.all.len()), (1000, 1000), "only the last ones");
    }
}
