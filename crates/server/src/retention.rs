//! Delays a shorter retention.
//!
//! A file of overrides or storage schemas that is not replaced at once may be read while it is incomplete, and an
//! incomplete file is often valid. What expires then is lost. So a shorter retention applies only after it was
//! configured for `retention_wait` without a break. A longer retention applies at once.
//!
//! Only tenants whose tables are open or listed are remembered. If a node has more tenants than upkeep lists at a time, a
//! shorter retention may apply to some of them at once.

use model::TenantId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The retention of tenants, for each of `N` kinds of data.
#[derive(Debug)]
pub(crate) struct Retentions<const N: usize>(HashMap<TenantId, [Delayed; N]>);

/// Ages at which the kinds of data expire, in milliseconds. `None` keeps everything.
pub(crate) type Kept<const N: usize> = [Option<i64>; N];

#[derive(Debug, Clone, Copy)]
struct Delayed {
    /// The age that applies. [`FOREVER`] keeps everything.
    applied_ms: i64,
    /// If a shorter retention is configured: since when, and the longest that was configured since then.
    shorter: Option<(Instant, i64)>,
}

const FOREVER: i64 = i64::MAX;

impl<const N: usize> Default for Retentions<N> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<const N: usize> Retentions<N> {
    /// Returns the retention that applies. Call this more often than once in `wait`. The first call for a tenant has no
    /// earlier retention to keep to, but nothing expires for `wait` after a start.
    pub(crate) fn applied(
        &mut self,
        tenant: &TenantId,
        configured: Kept<N>,
        wait: Duration,
        now: Instant,
    ) -> Kept<N> {
        let new = configured.map(|ms| ms.unwrap_or(FOREVER));
        let known = match self.0.get_mut(tenant) {
            Some(known) => known,
            None => self.0.entry(tenant.clone()).or_insert(new.map(Delayed::new)),
        };
        known.iter_mut().zip(new).for_each(|(known, new_ms)| known.note(new_ms, wait, now));
        known.map(|known| Some(known.applied_ms).filter(|ms| *ms != FOREVER))
    }

    pub(crate) fn has(&self, tenant: &TenantId) -> bool {
        self.0.contains_key(tenant)
    }

    /// Tenants for which a shorter retention is configured than applies.
    pub(crate) fn waiting(&self) -> Vec<TenantId> {
        let waits = |known: &[Delayed; N]| known.iter().any(|known| known.shorter.is_some());
        self.0.iter().filter(|(_, known)| waits(known)).map(|(tenant, _)| tenant.clone()).collect()
    }

    pub(crate) fn retain(&mut self, exists: impl Fn(&TenantId) -> bool) {
        self.0.retain(|tenant, _| exists(tenant));
    }
}

impl Delayed {
    const fn new(applied_ms: i64) -> Self {
        Self { applied_ms, shorter: None }
    }

    fn note(&mut self, configured_ms: i64, wait: Duration, now: Instant) {
        if configured_ms >= self.applied_ms {
            *self = Self::new(configured_ms);
            return;
        }
        let (since, longest_ms) = self.shorter.unwrap_or((now, configured_ms));
        let longest_ms = longest_ms.max(configured_ms);
        self.shorter = Some((since, longest_ms));
        if now.saturating_duration_since(since) >= wait {
            self.applied_ms = longest_ms;
            self.shorter = (configured_ms < longest_ms).then_some((now, configured_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use stdx::rng::Rng;

    /// Compares with the longest retention of all that were configured within the wait.
    #[test]
    fn a_retention_is_never_shorter_than_any_within_the_wait() {
        const WAIT: u64 = 10;
        let (mut rng, tenant, began) = (Rng::announced(), TenantId::anonymous(), Instant::now());
        let (mut retentions, mut recent) = (Retentions::default(), VecDeque::new());
        let mut same_since = (None, 0);
        for at in 0..2000_u64 {
            if at == 0 || rng.chance(0.1) {
                let samples_ms = Some(rng.below(6) as i64).filter(|ms| *ms > 0);
                if samples_ms != same_since.0 || at == 0 {
                    same_since = (samples_ms, at);
                }
            }
            let configured = [same_since.0, None];
            recent.push_back(same_since.0.unwrap_or(FOREVER));
            if recent.len() > WAIT as usize {
                recent.pop_front();
            }
            let now = began + Duration::from_secs(at);
            let applied = retentions.applied(&tenant, configured, Duration::from_secs(WAIT), now);
            assert_eq!(applied[1], None);
            let applied_ms = applied[0].unwrap_or(FOREVER);
            assert!(applied_ms >= *recent.iter().max().unwrap(), "at {at}: {applied:?}, {recent:?}");
            if at - same_since.1 >= 2 * WAIT {
                assert_eq!(applied, configured, "at {at}");
            }
            assert_eq!(retentions.waiting().is_empty(), applied == configured, "at {at}");
        }
        retentions.retain(|_| false);
        assert!(retentions.0.is_empty());
    }
}
