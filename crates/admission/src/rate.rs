//! Limits rates by token buckets that may go into debt. A request is admitted if the bucket has no debt. Its
//! tokens are taken after it is decoded, because its size is known only then. So the mean rate is right for
//! requests of any size.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_s: u64,
    /// How long it takes to fill an empty bucket. So it is also how long a sender must pause before it may
    /// send the largest burst.
    pub burst: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// When the bucket will be full. `None` if it was never used.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Fails if the bucket is in debt, with the time until the debt is paid.
    pub fn check(&self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let missing = self.missing(now);
        if missing > rate.burst { Err(missing - rate.burst) } else { Ok(()) }
    }

    /// Returns how many tokens the bucket has, at least one. Fails like [`Self::check`].
    pub fn available(&self, rate: Rate, now: Instant) -> Result<u64, Duration> {
        self.check(rate, now)?;
        let saved = rate.burst.saturating_sub(self.missing(now));
        let tokens = saved.as_nanos() * u128::from(rate.per_s) / 1_000_000_000;
        Ok(u64::try_from(tokens).unwrap_or(u64::MAX).max(1))
    }

    /// Takes `tokens` even if the bucket has fewer, so that it goes into debt.
    pub fn take(&mut self, tokens: u64, rate: Rate, now: Instant) {
        let nanos = u128::from(tokens) * 1_000_000_000 / u128::from(rate.per_s.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // the debt is limited, because a huge request or a limit lowered later must not block a tenant
        // forever
        let missing = self.missing(now).saturating_add(cost).min(rate.burst + DEBT_MAX);
        self.full_at = Some(now + missing);
    }

    pub fn is_full(&self, now: Instant) -> bool {
        self.missing(now).is_zero()
    }

    fn missing(&self, now: Instant) -> Duration {
        self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

const DEBT_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_s: 100, burst: Duration::from_secs(10) };

    #[test]
    fn a_burst_and_then_the_rate() {
        let began = Instant::now();
        let mut bucket = TokenBucket::default();
        // every 10 ms, the sender tries to send 10 samples, which is ten times the rate
        let mut taken = 0;
        for tick in 0..10_000 {
            let now = began + Duration::from_millis(10 * tick);
            if bucket.check(RATE, now).is_ok() {
                bucket.take(10, RATE, now);
                taken += 10;
            }
        }
        assert!((10_990..=11_010).contains(&taken), "{taken} in 100 s at 100/s with a burst of 1000");
        assert!(!bucket.is_full(began + Duration::from_secs(100)));
        assert!(bucket.is_full(began + Duration::from_secs(111)));
    }

    #[test]
    fn a_request_above_the_burst_is_admitted_as_debt() {
        let now = Instant::now();
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.check(RATE, now), Ok(()));
        bucket.take(3000, RATE, now);
        assert_eq!(bucket.check(RATE, now), Err(Duration::from_secs(20)));
        assert_eq!(bucket.check(RATE, now + Duration::from_secs(20)), Ok(()));
        let available = |seconds| bucket.available(RATE, now + Duration::from_secs(seconds));
        assert_eq!(available(5), Err(Duration::from_secs(15)));
        assert_eq!((available(20), available(23), available(99)), (Ok(1), Ok(300), Ok(1000)));
    }

    #[test]
    fn debt_is_bounded() {
        let now = Instant::now();
        let mut bucket = TokenBucket::default();
        let slow = Rate { per_s: 1, burst: Duration::from_secs(1) };
        bucket.take(u64::MAX, slow, now);
        assert_eq!(bucket.check(slow, now), Err(DEBT_MAX));
        bucket.take(1, Rate { per_s: 0, burst: Duration::MAX - DEBT_MAX }, now);
    }
}
