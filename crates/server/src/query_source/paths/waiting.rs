//! Queries that wait for an index while it is built. They keep threads of queries from other work, so their number is limited, and their
//! time.

use crate::query_source::Context;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A request waits for indexes for at most this time, however many targets it has.
pub(super) const BUILD_WAIT: Duration = Duration::from_secs(5);

/// Like [`BUILD_WAIT`], if there is only one thread for queries: no other query runs meanwhile. An index of some ten thousand names is built
/// in this time.
const ONLY_THREAD_WAIT: Duration = Duration::from_millis(200);

/// Places for queries that wait.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    of_tenant: usize,
    pub(super) wait_max: Duration,
    /// Tenants with waiting queries, and how many they have.
    taken: Mutex<HashMap<TenantId, usize>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'p> {
    places: &'p Places,
    tenant: TenantId,
}

impl Places {
    /// At most half of the threads wait, and at most half of these for the same tenant, but at least one in both cases.
    pub(super) fn new(query_threads: usize) -> Self {
        let all = (query_threads / 2).max(1);
        let wait_max = if query_threads > 1 { BUILD_WAIT } else { ONLY_THREAD_WAIT };
        Self { all, of_tenant: (all / 2).max(1), wait_max, taken: Mutex::default() }
    }

    /// `None` if all places are taken, or those of the tenant.
    pub(super) fn take(&self, tenant: &TenantId) -> Option<Place<'_>> {
        let mut taken = self.taken.lock();
        let own = taken.get(tenant).copied().unwrap_or(0);
        if taken.values().sum::<usize>() >= self.all || own >= self.of_tenant {
            return None;
        }
        taken.insert(tenant.clone(), own + 1);
        Some(Place { places: self, tenant: tenant.clone() })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        let own = taken.get_mut(&self.tenant).expect("BUG: a place is not counted");
        *own -= 1;
        if *own == 0 {
            taken.remove(&self.tenant);
        }
    }
}

/// How long a request may still wait for indexes. The time begins with its first wait.
#[derive(Debug, Default)]
pub(crate) struct BuildWait {
    ends: Option<Instant>,
    until: OnceLock<Instant>,
}

impl BuildWait {
    /// For a request that times out at `ends`. It may wait for half of the time that it has left, so that there is time to
    /// answer without an index.
    pub(crate) const fn of_request(ends: Instant) -> Self {
        Self { ends: Some(ends), until: OnceLock::new() }
    }

    pub(super) fn is_over(&self, context: &Context, wait_max: Duration) -> bool {
        let now = context.clock.instant();
        let until = self.until.get_or_init(|| {
            let left = self.ends.map_or(Duration::MAX, |ends| ends.saturating_duration_since(now));
            now + wait_max.min(left / 2)
        });
        now >= *until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_half_of_the_places_or_one() {
        let [a, b] = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
        let check = |query_threads, all: usize, of_tenant: usize| {
            let places = Places::new(query_threads);
            let take = |tenant| std::iter::from_fn(|| places.take(tenant)).collect::<Vec<_>>();
            let of_a = take(&a);
            let of_b = take(&b);
            assert_eq!((of_a.len(), of_a.len() + of_b.len()), (of_tenant, all), "{query_threads} threads");
            drop(of_a);
            drop(of_b);
            assert!(places.taken.lock().is_empty());
        };
        check(16, 8, 4);
        check(4, 2, 1);
        check(2, 1, 1);
        check(1, 1, 1);
        assert!(Places::new(1).wait_max < Places::new(2).wait_max);
    }
}
