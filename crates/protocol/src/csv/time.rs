//! Times in the cells of a table.

use crate::decimal::float;
use crate::rfc3339::rfc3339_us;

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
            Self::Rfc3339 => rfc3339_us(word).map(|us| us.div_euclid(1000)),
        }
    }
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
