//! Parses values and times.

use crate::decimal::{digits, float};

/// Parses a whole number of seconds at the start of `text`, and returns it with its length. `None` if it has no digit or
/// too many.
#[inline]
pub(super) fn short_seconds(text: &[u8]) -> Option<(i64, usize)> {
    /// With more digits, the milliseconds might not fit into 64 bits.
    const SECONDS_DIGITS_MAX: usize = 15;
    let (seconds, end) = digits(text, 0, 0);
    (1..=SECONDS_DIGITS_MAX).contains(&end).then_some((seconds as i64, end))
}

/// Parses a value. A NaN is refused, because Graphite has none.
pub(super) fn value_of(word: &[u8]) -> Option<f64> {
    float(word).filter(|value| !value.is_nan())
}

/// Parses a Unix time in seconds, which may have decimals, to milliseconds.
pub(super) fn time_of(word: &[u8]) -> Option<i64> {
    if let Ok(seconds) = std::str::from_utf8(word).ok()?.parse::<i64>() {
        return Some(seconds.saturating_mul(1000));
    }
    float(word).and_then(seconds_ms)
}

/// Converts seconds to milliseconds, saturating; points with such times are refused later. `None` if
/// `seconds` is infinite or NaN.
pub(super) fn seconds_ms(seconds: f64) -> Option<i64> {
    seconds.is_finite().then(|| (seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_short_times() {
        assert_eq!(short_seconds(b"1795284000\n"), Some((1_795_284_000, 10)));
        assert_eq!(short_seconds(b"999999999999999"), Some((999_999_999_999_999, 15)));
        for text in ["", "-1", "1000000000000000", "x"] {
            assert_eq!(short_seconds(text.as_bytes()), None, "{text:?}");
        }
    }
}
