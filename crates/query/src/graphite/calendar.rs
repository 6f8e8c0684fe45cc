//! Units of the calendar, and when they begin.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// Reads a unit with any ending: `h`, `hour` and `hours` are the same.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let begins = [
            ("s", Self::Second),
            ("min", Self::Minute),
            ("h", Self::Hour),
            ("d", Self::Day),
            ("w", Self::Week),
            ("mon", Self::Month),
            ("y", Self::Year),
        ];
        begins.iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, unit)| *unit)
    }

    /// The longest of minute, hour and day that is not longer than this.
    pub(super) const fn longest_within(length_s: i64) -> Option<Self> {
        match length_s {
            DAY_S.. => Some(Self::Day),
            HOUR_S.. => Some(Self::Hour),
            MINUTE_S.. => Some(Self::Minute),
            _ => None,
        }
    }

    /// When the unit that contains a time began. A week begins on `first_day`, where Monday is 1. As in graphite-web,
    /// the offset of the time zone is the one of `time_s`, also if clocks changed in between.
    pub(super) fn begin_s(self, time_s: i64, first_day: i64, time_zone: &TimeZone) -> i64 {
        let Ok(time) = Timestamp::from_second(time_s) else { return time_s };
        let offset_s = i64::from(time_zone.to_offset(time).seconds());
        let local_s = time_s + offset_s;
        let date = time.to_zoned(time_zone.clone()).date();
        let begin_s = match self {
            Self::Second => local_s,
            Self::Minute => local_s - local_s.rem_euclid(MINUTE_S),
            Self::Hour => local_s - local_s.rem_euclid(HOUR_S),
            Self::Day => local_s - local_s.rem_euclid(DAY_S),
            Self::Week => {
                let days = i64::from(date.weekday().to_monday_one_offset()) - first_day;
                let days = if days < 0 { days + 7 } else { days };
                date.checked_sub(Span::new().days(days)).map_or(local_s, midnight_s)
            }
            Self::Month => midnight_s(date.first_of_month()),
            Self::Year => midnight_s(date.first_of_year()),
        };
        begin_s - offset_s
    }
}

/// The beginning of a day, in seconds since 1970 without a time zone.
fn midnight_s(date: Date) -> i64 {
    date.to_zoned(TimeZone::UTC).map_or(0, |zoned| zoned.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_begin_where_calendars_say() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let local = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
        // a Friday
        let time_s = local("2026-11-27T15:04:05+02");
        for (unit, first_day, begin) in [
            ("seconds", 1, "2026-11-27T15:04:05+02"),
            ("min", 1, "2026-11-27T15:04:00+02"),
            ("hours", 1, "2026-11-27T15:00:00+02"),
            ("d", 1, "2026-11-27T00:00:00+02"),
            ("weeks", 1, "2026-11-23T00:00:00+02"),
            ("weeks6", 6, "2026-11-21T00:00:00+02"),
            ("months", 1, "2026-11-01T00:00:00+02"),
            ("years", 1, "2026-01-01T00:00:00+02"),
        ] {
            let unit = Unit::parse(unit).unwrap();
            assert_eq!(unit.begin_s(time_s, first_day, &zone), local(begin), "{unit:?}");
        }
        assert_eq!(Unit::parse("fortnight"), None);
    }
}
