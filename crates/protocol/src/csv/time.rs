//! Times in the cells of a table.

use crate::decimal::float;

/// How the cells of a column write the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeForm {
    /// Seconds since the Unix epoch, which may have decimals.
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    /// `2026-11-21T18:00:00.123Z`, with any offset.
    Rfc3339,
}

impl TimeForm {
    pub(super) const NAMES: &str = "unix_s, unix_ms, unix_us, unix_ns or rfc3339";

    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "unix_s" => Self::Seconds,
            "unix_ms" => Self::Milliseconds,
            "unix_us" => Self::Microseconds,
            "unix_ns" => Self::Nanoseconds,
            "rfc3339" => Self::Rfc3339,
            _ => return None,
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "unix_s",
            Self::Milliseconds => "unix_ms",
            Self::Microseconds => "unix_us",
            Self::Nanoseconds => "unix_ns",
            Self::Rfc3339 => "rfc3339",
        }
    }

    /// Reads a time to milliseconds. Fractions of a millisecond are cut off. A time out of range becomes the largest or
    /// smallest integer, which is refused later.
    pub(super) fn read(self, word: &[u8]) -> Option<i64> {
        let integer = || std::str::from_utf8(word).ok()?.parse::<i64>().ok();
        match self {
            Self::Seconds => match integer() {
                Some(seconds) => Some(seconds.saturating_mul(1000)),
                None => {
                    let seconds = float(word).filter(|seconds| seconds.is_finite())?;
                    Some((seconds * 1000.0).round() as i64)
                }
            },
            Self::Milliseconds => integer(),
            Self::Microseconds => integer().map(|us| us.div_euclid(1000)),
            Self::Nanoseconds => integer().map(|ns| ns.div_euclid(1_000_000)),
            Self::Rfc3339 => rfc3339(word),
        }
    }
}

/// Reads a time of RFC 3339, such as `2026-11-21T18:00:00.123+01:00`. A blank may stand for the `T`.
fn rfc3339(word: &[u8]) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        let digits = word.get(range)?;
        digits.iter().try_fold(0_i64, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let is = |at: usize, bytes: &[u8]| word.get(at).is_some_and(|byte| bytes.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let mut at = 19;
    let mut ms = 0;
    if is(at, b".") {
        let digits = word[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        ms =
            (0..3).fold(0, |ms, i| ms * 10 + if i < digits { i64::from(word[at + 1 + i] - b'0') } else { 0 });
        at += 1 + digits;
    }
    let offset_minutes = match word.get(at..)? {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(at + 1..at + 3)?, number(at + 4..at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let days_of_month = match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    // a leap second is the first second of the next minute
    if !(1..=days_of_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds =
        ((days_since_epoch(year, month, day) * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
    Some(seconds * 1000 + ms)
}

/// Number of days from 1 January 1970 to a day of the Gregorian calendar. Years begin in March here, so that the leap day
/// is the last day of a year.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_forms() {
        let check = |name: &str, word: &str, expected: Option<i64>| {
            let form = TimeForm::parse(name).unwrap();
            assert_eq!((form.read(word.as_bytes()), form.name()), (expected, name), "{word:?}");
        };
        check("unix_s", "1795284000", Some(1_795_284_000_000));
        check("unix_s", "1795284000.1239", Some(1_795_284_000_124));
        check("unix_s", "99999999999999999999", Some(i64::MAX));
        check("unix_s", "nan", None);
        check("unix_ms", "1795284000123", Some(1_795_284_000_123));
        check("unix_us", "-1", Some(-1));
        check("unix_ns", "1999999", Some(1));
        check("unix_ms", "1.5", None);
        check("unix_ms", "", None);
        check("rfc3339", "1970-01-01T00:00:00Z", Some(0));
        check("rfc3339", "2026-11-21T18:00:00Z", Some(1_795_284_000_000));
        check("rfc3339", "2026-11-21 19:00:00.5+01:00", Some(1_795_284_000_500));
        check("rfc3339", "2026-11-21T12:30:00.1239-05:30", Some(1_795_284_000_123));
        check("rfc3339", "2024-02-29T00:00:00z", Some(1_709_164_800_000));
        check("rfc3339", "1969-12-31T23:59:59.999Z", Some(-1));
        check("rfc3339", "0000-01-01T00:00:00Z", Some(-62_167_219_200_000));
        check("rfc3339", "9999-12-31T23:59:60Z", Some(253_402_300_800_000));
        for bad in [
            "2023-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-31T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T18:60:00Z",
            "2026-11-21T18:00:61Z",
            "2026-11-21T18:00:00",
            "2026-11-21T18:00:00.Z",
            "2026-11-21",
            "2026-11-21T18:00:00+1:00",
            "2026-11-21T18:00:00+24:00",
            "20a6-11-21T18:00:00Z",
            "",
        ] {
            check("rfc3339", bad, None);
        }
        assert_eq!(TimeForm::parse("unix"), None);
    }
}
