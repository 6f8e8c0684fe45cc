//! Limits the time for which one tenant of a sender keeps the sender's other tenants waiting.

use std::time::Duration;
use tokio::time::Instant;

/// Token bucket of waiting time: holds `most`, and refills at 1/`part` of real time.
#[derive(Debug)]
pub(super) struct Allowance {
    most: Duration,
    part: u32,
    /// When the bucket will be full, if nothing is taken until then.
    full_at: Instant,
}

impl Allowance {
    pub(super) fn new(most: Duration, part: u32) -> Self {
        Self { most, part, full_at: Instant::now() }
    }

    pub(super) fn left(&self, now: Instant) -> Duration {
        self.most.saturating_sub(self.full_at.saturating_duration_since(now) / self.part)
    }

    /// Records a use. It may be longer than what was left. Then it takes longer until something is left again.
    pub(super) fn take(&mut self, used: Duration, now: Instant) {
        self.full_at = self.full_at.max(now) + used * self.part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_refills_at_a_part_of_the_time() {
        let ms = Duration::from_millis;
        let mut allowance = Allowance::new(ms(100), 8);
        let began = Instant::now();
        assert_eq!(allowance.left(began), ms(100));
        allowance.take(ms(60), began);
        assert_eq!(allowance.left(began), ms(40));
        assert_eq!(allowance.left(began + ms(80)), ms(50));
        allowance.take(ms(90), began + ms(80));
        assert_eq!(allowance.left(began + ms(80)), ms(0));
        assert_eq!(allowance.left(began + ms(80 + 8 * 40)), ms(0), "more was used than was left");
        assert_eq!(allowance.left(began + ms(80 + 8 * 50)), ms(10));
        assert_eq!(allowance.left(began + ms(100_000)), ms(100));
    }
}
