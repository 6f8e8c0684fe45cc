//! Decides which timestamps are accepted, compared with the server's clock.

use model::caps;

/// Why the server does not trust its own clock at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The node has just started. Clocks that are wrong at boot are usually corrected within
    /// minutes.
    Settling,
    Ahead,
    /// The clock shows a time before an event that has already happened.
    Behind,
}

impl Doubt {
    /// All reasons, each with its name in metrics.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Settling, "settling"), (Self::Ahead, "ahead"), (Self::Behind, "behind")];
}

/// Start of 2026. A clock that shows an earlier time is wrong.
pub const EARLIEST_MS: i64 = 1_767_225_600_000;

#[derive(Debug, Clone, Copy)]
pub struct Window {
    past_ms: i64,
    earliest_ms: i64,
    latest_ms: i64,
}

impl Window {
    pub const fn at(now_ms: i64, past_ms: i64, future_ms: i64) -> Self {
        let (earliest_ms, latest_ms) = (now_ms.saturating_sub(past_ms), now_ms.saturating_add(future_ms));
        Self { past_ms, earliest_ms, latest_ms }
    }

    pub fn contains(&self, timestamp_ms: i64) -> bool {
        (self.earliest_ms.max(caps::TIMESTAMP_MS_MIN)..=self.latest_ms.min(caps::TIMESTAMP_MS_MAX))
            .contains(&timestamp_ms)
    }

    /// Why a sample outside of the window is refused, and whether a retry may succeed after the
    /// clock is corrected. A retry can succeed only if the clock is in `doubt`.
    pub fn reason(&self, timestamp_ms: i64, doubt: Option<Doubt>) -> (&'static str, bool) {
        match timestamp_ms {
            ..caps::TIMESTAMP_MS_MIN => ("before 1970", false),
            _ if timestamp_ms < self.earliest_ms => {
                let is_too_old_by_any_clock = timestamp_ms < EARLIEST_MS.saturating_sub(self.past_ms);
                if doubt == Some(Doubt::Ahead) && !is_too_old_by_any_clock {
                    ("too old by this server's clock, which seems to be ahead", true)
                } else {
                    ("too old (setting past_limit)", false)
                }
            }
            ..=caps::TIMESTAMP_MS_MAX if doubt == Some(Doubt::Behind) => {
                ("in the future by this server's clock, which seems to be behind", true)
            }
            _ => ("too far in the future (setting future_limit)", false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_possible_from_the_past_limit_to_the_future_limit() {
        const YEAR: i64 = 365 * 86_400_000;
        let now = EARLIEST_MS + YEAR;
        let window = Window::at(now, 10 * YEAR, 600_000);
        let check = |timestamp_ms, doubt, expected: Option<(&str, bool)>| {
            assert_eq!(window.contains(timestamp_ms), expected.is_none(), "{timestamp_ms}");
            if let Some((reason, is_in_doubt)) = expected {
                let found = window.reason(timestamp_ms, doubt);
                assert!(found.0.contains(reason) && found.1 == is_in_doubt, "{timestamp_ms}: {found:?}");
            }
        };
        for doubt in [None, Some(Doubt::Settling), Some(Doubt::Ahead), Some(Doubt::Behind)] {
            (0..3 * 365).for_each(|day| check(now - day * 86_400_000, doubt, None));
            check(now - 10 * YEAR, doubt, None);
            check(now + 600_000, doubt, None);
            check(-1, doubt, Some(("before 1970", false)));
            // these are refused whatever the clock says: timestamp 0, and times that no plausible
            // clock would accept
            check(0, doubt, Some(("past_limit", false)));
            check(EARLIEST_MS - 10 * YEAR - 1, doubt, Some(("past_limit", false)));
            check(caps::TIMESTAMP_MS_MAX + 1, doubt, Some(("future_limit", false)));
        }
        let (early, late) = (now - 10 * YEAR - 1, now + 600_001);
        check(early, None, Some(("past_limit", false)));
        check(early, Some(Doubt::Ahead), Some(("seems to be ahead", true)));
        check(early, Some(Doubt::Behind), Some(("past_limit", false)));
        check(late, None, Some(("future_limit", false)));
        check(late, Some(Doubt::Ahead), Some(("future_limit", false)));
        check(late, Some(Doubt::Behind), Some(("seems to be behind", true)));
        // with these limits, every sample since 1970 is accepted
        let all = Window::at(now, i64::MAX, i64::MAX);
        assert!(all.contains(0) && all.contains(caps::TIMESTAMP_MS_MAX) && !all.contains(-1));
    }
}
