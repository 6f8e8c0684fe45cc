//! Limits background work on the head to a share of the owner's time. The work is done in slices of about 50 µs.

use std::time::{Duration, Instant};

/// The pause after a slice is this many times as long as the slice took.
const PAUSE_FACTOR: u32 = 4;

/// If a slice starts late, the next pause is shortened by up to this much.
const OWED_MAX: Duration = Duration::from_millis(1);

pub(super) const SLICES_MAX: usize = 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct TimeShare(Instant);

impl TimeShare {
    pub(super) const fn from(first: Instant) -> Self {
        Self(first)
    }

    pub(super) const fn due(self) -> Instant {
        self.0
    }

    pub(super) const fn suspend(&mut self, until: Instant) {
        self.0 = until;
    }

    pub(super) fn record_slice(&mut self, began: Instant, ended: Instant) {
        let owed = began.saturating_duration_since(self.0).min(OWED_MAX);
        self.0 = began - owed + ended.duration_since(began) * (1 + PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_time_whether_groups_come_in_between_or_not() {
        const SLICE: Duration = Duration::from_micros(50);
        let start = Instant::now();
        for group in [0, 300, 900].map(Duration::from_micros) {
            let (mut now, mut time_share, mut worked) = (start, TimeShare::from(start), Duration::ZERO);
            while now < start + Duration::from_secs(1) {
                now += group;
                for _ in 0..SLICES_MAX {
                    if time_share.due() > now {
                        break;
                    }
                    time_share.record_slice(now, now + SLICE);
                    (now, worked) = (now + SLICE, worked + SLICE);
                }
                now += Duration::from_micros(10);
            }
            let percent = worked.as_micros() * 100 / (now - start).as_micros();
            assert!((18..=20).contains(&percent), "{percent} % beside groups of {group:?}");
        }
    }

    #[test]
    fn saved_time_is_limited_after_a_long_suspension() {
        let start = Instant::now();
        let (mut now, mut time_share, mut slices) =
            (start + Duration::from_secs(9), TimeShare::from(start), 0);
        while time_share.due() <= now {
            let ended = now + Duration::from_micros(50);
            time_share.record_slice(now, ended);
            (now, slices) = (ended, slices + 1);
        }
        assert_eq!(slices, 6);
        time_share.suspend(now + OWED_MAX);
        assert_eq!(time_share.due(), now + OWED_MAX);
    }
}
