//! A date that retention may trust.
//!
//! Where the machine's clock is set a year ahead by mistake, everything is a year older at once. What retention then drops
//! is gone for good, so a date that jumps ahead counts only when it has held for a while.

use tables::upkeep::Now;

/// A clock that is put right, or a machine that slept, jumps by less.
const JUMP_MS: i64 = 3_600_000;

/// What is known of the wall clock.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    /// How far the trusted wall clock is ahead of the steady one.
    offset_ms: Option<i64>,
    /// Since when the wall clock is ahead of what is trusted, by the steady clock.
    ahead_since_ms: Option<i64>,
}

impl Calendar {
    /// The wall clock's time; where it jumped ahead less than `hold_ms` ago, the time that it would have without that.
    pub(super) fn trusted_ms(&mut self, now: Now, hold_ms: i64) -> i64 {
        let offset_ms = now.wall_ms.saturating_sub(now.steady_ms);
        let known_ms = *self.offset_ms.get_or_insert(offset_ms);
        if offset_ms > known_ms.saturating_add(JUMP_MS) {
            if self.ahead_since_ms.is_none() {
                let seconds = (offset_ms - known_ms) / 1000;
                tracing::warn!(
                    seconds,
                    "the clock jumped ahead: retention goes by it once it has held for vacuum_grace"
                );
            }
            let since_ms = *self.ahead_since_ms.get_or_insert(now.steady_ms);
            if now.steady_ms.saturating_sub(since_ms) < hold_ms {
                return now.steady_ms.saturating_add(known_ms);
            }
        }
        self.offset_ms = Some(offset_ms);
        self.ahead_since_ms = None;
        now.wall_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_ahead_counts_later() {
        const DAY: i64 = 86_400_000;
        let mut calendar = Calendar::default();
        let mut check = |steady_ms, wall_ms, expected| {
            let trusted = calendar.trusted_ms(Now { wall_ms, steady_ms }, 1000);
            assert_eq!(trusted, expected, "{steady_ms} {wall_ms}");
        };
        check(0, DAY, DAY);
        check(10, DAY + 20, DAY + 20); // a drift
        check(20, 9 * DAY, DAY + 30);
        check(500, DAY + 510, DAY + 510); // put right
        check(600, 9 * DAY, DAY + 610);
        check(1599, 9 * DAY + 999, DAY + 1609);
        check(1600, 9 * DAY + 1000, 9 * DAY + 1000); // it has held
        check(1700, DAY, DAY); // back counts at once: it keeps more
    }
}
