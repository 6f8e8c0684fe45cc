//! The rule by which the time of a record is found.
//!
//! It is in the first of these attributes that has a time: `@timestamp`, `timestamp`, `time`, `ts`, `_time`. A time is a text
//! of RFC 3339, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by its size:
//!
//! ```text
//!   below 10^8    no time, but a duration or a counter, such as {"time":0.25}
//!   below 10^11   seconds, from March 1973 to the year 5138
//!   below 10^14   milliseconds, likewise
//!   below 10^17   microseconds, likewise
//!   others        nanoseconds
//! ```
//!
//! If this time is not one of the [`Times`] that records may have, the record is left out: no other attribute is its time instead.

use super::Reason;
use crate::rfc3339::rfc3339_us;
use model::AttributeValue;
use model::caps::{TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN};

/// Attributes that may have the time, best first.
pub(super) const PATHS: [&str; 5] = ["@timestamp", "timestamp", "time", "ts", "_time"];

const DURATIONS_BELOW: u64 = 100_000_000;
const SECONDS_BELOW: u64 = 100_000_000_000;
const MILLISECONDS_BELOW: u64 = 1000 * SECONDS_BELOW;
const MICROSECONDS_BELOW: u64 = 1000 * MILLISECONDS_BELOW;

/// Which times records may have, in microseconds since 1970. Each day of a stream has files of its own, so this limits their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub earliest_us: i64,
    pub latest_us: i64,
}

impl Times {
    pub const ANY: Self = Self { earliest_us: i64::MIN, latest_us: i64::MAX };

    #[inline]
    pub(super) const fn check(self, time_us: i64) -> Result<(), Reason> {
        if time_us < self.earliest_us {
            Err(Reason::TooOld)
        } else if time_us > self.latest_us {
            Err(Reason::TooNew)
        } else {
            Ok(())
        }
    }
}

/// The place of a path in [`PATHS`].
#[inline]
pub(super) fn rank(path: &str) -> Option<u8> {
    match path {
        "@timestamp" => Some(0),
        "timestamp" => Some(1),
        "time" => Some(2),
        "ts" => Some(3),
        "_time" => Some(4),
        _ => None,
    }
}

/// The time that a value stands for, in microseconds since 1970. It may be out of bounds.
pub(super) fn time_us(value: AttributeValue<'_>) -> Option<i64> {
    match value {
        AttributeValue::Text(text) => rfc3339_us(text.as_bytes()),
        AttributeValue::Int(number) => of_integer(number),
        AttributeValue::Float(number) => of_float(number),
        // an integer beyond 64 bits, among others
        AttributeValue::Json(text) => {
            text.parse().ok().filter(|number: &f64| number.is_finite()).and_then(of_float)
        }
        AttributeValue::Bool(_) => None,
    }
}

fn of_integer(number: i64) -> Option<i64> {
    let us = match u64::try_from(number).ok()? {
        0..DURATIONS_BELOW => return None,
        DURATIONS_BELOW..SECONDS_BELOW => number * 1_000_000,
        SECONDS_BELOW..MILLISECONDS_BELOW => number * 1000,
        MILLISECONDS_BELOW..MICROSECONDS_BELOW => number,
        _ => number / 1000,
    };
    Some(us)
}

fn of_float(number: f64) -> Option<i64> {
    let us = if number < DURATIONS_BELOW as f64 {
        return None;
    } else if number < SECONDS_BELOW as f64 {
        number * 1e6
    } else if number < MILLISECONDS_BELOW as f64 {
        number * 1e3
    } else if number < MICROSECONDS_BELOW as f64 {
        number
    } else {
        number / 1e3
    };
    // numbers that are too large become the largest integer
    Some(us.round() as i64)
}

pub(super) const fn is_within_bounds(time_us: i64) -> bool {
    TIMESTAMP_MS_MIN * 1000 <= time_us && time_us <= TIMESTAMP_MS_MAX * 1000 + 999
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_rank() {
        for (at, path) in PATHS.iter().enumerate() {
            assert_eq!(rank(path), Some(at as u8));
        }
        assert_eq!((rank("Time"), rank(""), rank("a.time")), (None, None, None));
    }

    #[test]
    fn units_are_told_apart_by_size() {
        let check = |value: AttributeValue<'_>, expected: Option<i64>| {
            assert_eq!(time_us(value), expected, "{value:?}");
        };
        let expected = Some(1_795_284_000_000_000);
        check(AttributeValue::Int(1_795_284_000), expected);
        check(AttributeValue::Int(1_795_284_000_000), expected);
        check(AttributeValue::Int(1_795_284_000_000_000), expected);
        check(AttributeValue::Int(1_795_284_000_000_000_999), expected);
        check(AttributeValue::Float(1_795_284_000.0), expected);
        check(AttributeValue::Float(1_795_284_000_000.0), expected);
        check(AttributeValue::Float(1_795_284_000.000_001_1), Some(1_795_284_000_000_001));
        check(AttributeValue::Text("2026-11-21T18:00:00Z"), expected);
        check(AttributeValue::Int(99_999_999_999), Some(99_999_999_999_000_000));
        check(AttributeValue::Int(100_000_000_000), Some(100_000_000_000_000));
        check(AttributeValue::Int(100_000_000), Some(100_000_000_000_000));
        check(AttributeValue::Int(99_999_999), None);
        check(AttributeValue::Float(99_999_999.9), None);
        check(AttributeValue::Int(0), None);
        check(AttributeValue::Int(i64::MIN), None);
        check(AttributeValue::Float(-1_795_284_000.0), None);
        check(AttributeValue::Json("99999999999999999999"), Some(100_000_000_000_000_000));
        check(AttributeValue::Json("[1]"), None);
        check(AttributeValue::Text("1795284000"), None);
        check(AttributeValue::Bool(true), None);
        check(AttributeValue::Float(1e300), Some(i64::MAX));
    }
}
