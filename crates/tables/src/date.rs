//! Days in UTC: the partitions of every table.

use stdx::calendar;

pub const DAY_MS: i64 = 86_400_000;

/// A day in UTC, as days since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

impl Date {
    /// Returns the day of a timestamp between the years 1970 and 9999 ([`model::caps`]).
    pub const fn of(timestamp_ms: i64) -> Self {
        Self(timestamp_ms.div_euclid(DAY_MS) as i32)
    }

    pub const fn start_ms(self) -> i64 {
        self.0 as i64 * DAY_MS
    }

    pub const fn end_ms(self) -> i64 {
        self.start_ms() + DAY_MS - 1
    }

    /// Parses `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<u16>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let days = calendar::Date { year: year.into(), month: month.into(), day: day.into() }.days();
        let date = Self(i32::try_from(days).ok()?);
        (text.len() == 10 && date.to_string() == text).then_some(date)
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        calendar::Date::of_days(self.0.into()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |ms: i64, text: &str| {
            assert_eq!(Date::of(ms).to_string(), text);
            assert_eq!(Date::parse(text), Some(Date::of(ms)));
        };
        check(0, "1970-01-01");
        check(DAY_MS - 1, "1970-01-01");
        check(DAY_MS, "1970-01-02");
        check(951_782_400_000, "2000-02-29");
        check(1_795_276_800_000, "2026-11-21");
        check(model::caps::TIMESTAMP_MS_MAX, "9999-12-31");
        for day in (0..2_932_896).step_by(61) {
            assert_eq!(Date::parse(&Date(day).to_string()), Some(Date(day)));
        }
        for bad in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-2-03",
            "-026-02-03",
            "2026-02-03x",
            "99999999999-1-1",
        ] {
            assert_eq!(Date::parse(bad), None, "{bad}");
        }
    }
}
