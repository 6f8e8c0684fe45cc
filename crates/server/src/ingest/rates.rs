//! Rates of tenants: requests and samples, each with a token bucket.

use crate::settings::TenantSettings;
use admission::rate::TokenBucket;
use admission::{RateLimited, Refused};
use model::TenantId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Instant;

/// Buckets of the tenants that used any lately.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    tenants: HashMap<TenantId, Buckets>,
    /// Number of tenants from which full buckets are dropped: they are as good as new ones.
    tidy_at: usize,
}

#[derive(Debug, Default)]
struct Buckets {
    requests: TokenBucket,
    samples: TokenBucket,
}

/// Smallest number of tenants from which full buckets are dropped.
const TIDY_MIN: usize = 64;

impl Rates {
    /// Admits a request of a tenant that may write, or refuses it. Its samples are taken when they are known:
    /// [`Self::take_samples`].
    pub(crate) fn admit(&self, tenant: &TenantId, own: &TenantSettings, now: Instant) -> Result<(), Refused> {
        let (requests, samples) = (own.requests_rate(), own.samples_rate());
        if requests.is_none() && samples.is_none() {
            return Ok(());
        }
        let mut kept = self.0.lock();
        let buckets = kept.of(tenant, now);
        let refused = |limit, rate: admission::rate::Rate| {
            move |wait| Refused::Rate { tenant: tenant.clone(), limit, per_s: rate.per_s, wait }
        };
        if let Some(rate) = samples {
            buckets.samples.check(rate, now).map_err(refused(RateLimited::Samples, rate))?;
        }
        if let Some(rate) = requests {
            buckets.requests.check(rate, now).map_err(refused(RateLimited::Requests, rate))?;
            buckets.requests.take(1, rate, now);
        }
        Ok(())
    }

    /// Takes the samples of an admitted request, those included that are refused later.
    pub(crate) fn take_samples(&self, tenant: &TenantId, own: &TenantSettings, samples: u64, now: Instant) {
        if let Some(rate) = own.samples_rate() {
            self.0.lock().of(tenant, now).samples.take(samples, rate, now);
        }
    }
}

impl Kept {
    fn of(&mut self, tenant: &TenantId, now: Instant) -> &mut Buckets {
        if !self.tenants.contains_key(tenant) {
            if self.tenants.len() >= self.tidy_at.max(TIDY_MIN) {
                self.tenants.retain(|_, buckets| !buckets.is_full(now));
                self.tidy_at = 2 * self.tenants.len();
            }
            self.tenants.insert(tenant.clone(), Buckets::default());
        }
        self.tenants.get_mut(tenant).expect("BUG: it was just put there")
    }
}

impl Buckets {
    fn is_full(&self, now: Instant) -> bool {
        self.requests.is_full(now) && self.samples.is_full(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::tests::small_settings;
    use std::time::Duration;

    #[test]
    fn tenants_are_forgotten_once_their_buckets_are_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = small_settings(dir.path()).tenants.general;
        (own.requests_per_second, own.rate_burst_ms) = (Some(1), 1000);
        let (rates, began) = (Rates::default(), Instant::now());
        for number in 0..100_000_u64 {
            let tenant = TenantId::parse(&format!("t{number}")).unwrap();
            // a thousand tenants a second, each with a bucket that is full again after a second
            rates.admit(&tenant, &own, began + Duration::from_millis(number)).unwrap();
        }
        let kept = rates.0.lock();
        assert!(kept.tenants.len() <= 2 * 1001, "{} tenants", kept.tenants.len());
    }
}
