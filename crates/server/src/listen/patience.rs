//! A timeout for slow peers that depends on the bytes transferred: a token bucket of waiting time.
//!
//! Waiting takes time out of the bucket. Transferred bytes put time back, up to the initial amount. A peer that
//! stalls is cut off after the initial amount at the latest.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    left: Duration,
    most: Duration,
    bytes_per_second: u64,
    since: Option<Instant>,
}

impl Patience {
    /// Allows waits of `most` in total. Transferred bytes give time back: one second for every
    /// `bytes_per_second` bytes.
    pub(crate) const fn new(most: Duration, bytes_per_second: u64) -> Self {
        Self { left: most, most, bytes_per_second, since: None }
    }

    /// Records that the caller begins to wait for the peer, unless it is waiting already. Returns the time at
    /// which the peer has used up its patience.
    pub(crate) fn waits(&mut self, now: Instant) -> Instant {
        *self.since.get_or_insert(now) + self.left
    }

    pub(crate) fn moved(&mut self, bytes: usize, now: Instant) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(now.saturating_duration_since(since));
        }
        let earned =
            Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second);
        self.left = self.left.saturating_add(earned).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Transfers `bytes` at intervals of `every`. Returns how many transfers succeed before the timeout, or
    /// `None` if there is no timeout.
    fn lasts(bytes: usize, every: Duration) -> Option<u32> {
        let mut patience = Patience::new(SECOND * 30, 1000);
        let mut now = Instant::now();
        patience.moved(1 << 40, now);
        for times in 0..10_000 {
            if patience.waits(now) < now + every {
                return Some(times);
            }
            now += every;
            patience.moved(bytes, now);
        }
        None
    }

    #[test]
    fn the_minimum_rate_is_enough_and_less_is_not() {
        assert_eq!(lasts(0, SECOND), Some(30), "earlier bytes are not saved up");
        assert_eq!(lasts(1000, SECOND), None);
        assert_eq!(lasts(900, SECOND), Some(291));
        assert_eq!(lasts(10_000, SECOND * 10), None);
        assert_eq!(lasts(1 << 30, SECOND * 31), Some(0), "no wait may exceed the initial amount");
    }
}
