//! Times in the style of `at`: `-1h`, `now-2d`, `midnight`, `noon+1day`, `6pm`, `20261127`, `04:00_20261127`,
//! `11/27/26`, `monday`, `1795284000`.
//!
//! A time is a reference (a day, a time of day, or both), and an offset. Times of day are in a time zone. As in
//! graphite-web, a month is 30 days and a year 365 days, and `12am` is noon.

mod reference;

use jiff::tz::TimeZone;

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;

/// Times are used as if they were at most this many seconds before or after 1970, which is 34,000 years, so that sums of a few of
/// them do not overflow.
const TIME_S_MAX: i64 = 1 << 40;

/// Limits a time to `TIME_S_MAX` seconds before or after 1970.
#[must_use]
pub const fn within_reach(time_s: i64) -> i64 {
    if time_s > TIME_S_MAX {
        TIME_S_MAX
    } else if time_s < -TIME_S_MAX {
        -TIME_S_MAX
    } else {
        time_s
    }
}

/// Longest offset: a thousand years.
const OFFSET_S_MAX: i64 = 1000 * 365 * DAY_S;

/// Limit on the bytes of a text. Useful ones have up to fifty.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {text:?}: {why}")]
pub struct TimeError {
    text: String,
    why: String,
}

/// Parses a time. Returns seconds since 1970. `now_s` is the reference of relative times.
pub fn parse(text: &str, now_s: i64, time_zone: &TimeZone) -> Result<i64, TimeError> {
    check_length(text)?;
    let wrong = |why: String| TimeError { text: text.into(), why };
    let plain: String = text.trim().chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    let plain = plain.to_ascii_lowercase();
    if is_digits(&plain) && !is_date(&plain) {
        return plain.parse().map_err(|_| wrong("the number is too large".into()));
    }
    let offset_at = plain.find('+').or_else(|| plain.find('-')).unwrap_or(plain.len());
    let (reference, offset) = plain.split_at(offset_at);
    let reference_s = reference::parse(reference, now_s, time_zone).map_err(wrong)?;
    Ok(reference_s.saturating_add(offset_s(offset).map_err(wrong)?)) // `now` is a parameter of the request
}

/// Parses an offset such as `1h`, `-2d` or `+1day6hours`. Returns seconds, which are negative after `-`.
pub fn parse_offset(text: &str) -> Result<i64, TimeError> {
    check_length(text)?;
    offset_s(text).map_err(|why| TimeError { text: text.into(), why })
}

/// Units may have any ending, so a text of any length could be an offset.
fn check_length(text: &str) -> Result<(), TimeError> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let text = text.chars().take(TEXT_BYTES_MAX).collect();
    Err(TimeError { text, why: format!("it has more than {TEXT_BYTES_MAX} bytes") })
}

fn offset_s(text: &str) -> Result<i64, String> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut total_s: i64 = 0;
    while !rest.is_empty() {
        let (number, after) =
            rest.split_at(rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        let (unit, after) =
            after.split_at(after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len());
        if number.is_empty() {
            return Err(format!("expected a number at {rest:?}"));
        }
        let count: i64 = number.parse().map_err(|_| format!("{number} is too large"))?;
        let unit_s = unit_s(unit).ok_or_else(|| format!("{unit:?} is not a unit of time"))?;
        total_s = total_s.saturating_add(count.saturating_mul(unit_s));
        rest = after;
    }
    match total_s > OFFSET_S_MAX {
        true => Err("the offset is longer than a thousand years".into()),
        false => Ok(sign * total_s),
    }
}

/// Units may have any ending: `h`, `hour` and `hours` are the same.
fn unit_s(unit: &str) -> Option<i64> {
    let begins = [
        ("s", 1),
        ("min", MINUTE_S),
        ("h", HOUR_S),
        ("d", DAY_S),
        ("w", 7 * DAY_S),
        ("mon", 30 * DAY_S),
        ("y", 365 * DAY_S),
    ];
    begins.iter().find(|(begin, _)| unit.starts_with(begin)).map(|(_, seconds)| *seconds)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True if eight digits are a date rather than seconds.
fn is_date(digits: &str) -> bool {
    let part = |range: std::ops::Range<usize>| digits.get(range).and_then(|text| text.parse::<u32>().ok());
    digits.len() == 8
        && part(0..4).is_some_and(|year| year > 1900)
        && part(4..6).is_some_and(|month| month < 13)
        && part(6..8).is_some_and(|day| day < 32)
}

#[cfg(test)]
mod tests;
