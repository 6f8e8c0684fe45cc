//! The reference of a time: a day and a time of day.

use super::is_digits;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("sun", Weekday::Sunday),
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
];

/// Parses a reference in lower case, without spaces. Returns seconds since 1970.
pub(super) fn parse(text: &str, now_s: i64, time_zone: &TimeZone) -> Result<i64, String> {
    if text.is_empty() || text == "now" {
        return Ok(now_s);
    }
    let (hour, minute, day) = time_of_day(text)?;
    let now = Timestamp::from_second(now_s).map_err(|_| "the present time is out of range".to_owned())?;
    let today = now.to_zoned(time_zone.clone()).date();
    let date = day_of(day, today)?.ok_or_else(|| format!("{day:?} is not a day"))?;
    let hour = i8::try_from(hour).map_err(|_| "the hour is out of range".to_owned())?;
    let minute = i8::try_from(minute).map_err(|_| "the minute is out of range".to_owned())?;
    let time = jiff::civil::Time::new(hour, minute, 0, 0)
        .map_err(|_| "the time of day is out of range".to_owned())?;
    seconds_of(date.to_datetime(time), time_zone)
}

/// Seconds since 1970 at which clocks show `time`. If they show it twice, the second time counts. If they skip it, it is later by
/// what they skip: when clocks go from 2:00 to 3:00, 2:30 means 3:30.
fn seconds_of(time: DateTime, time_zone: &TimeZone) -> Result<i64, String> {
    let zoned = time_zone.to_ambiguous_timestamp(time).later();
    zoned.map(Timestamp::as_second).map_err(|_| "the time is out of range".to_owned())
}

/// Splits the time of day from the beginning of a reference. Returns hour, minute and the rest.
fn time_of_day(text: &str) -> Result<(u32, u32, &str), String> {
    let number = |digits: &str| match is_digits(digits) {
        true => digits.parse::<u32>().map_err(|_| format!("{digits} is too large")),
        false => Err(format!("{digits:?} is not an hour or minute")),
    };
    let (mut hour, mut minute, mut rest) = (0, 0, text);
    if let Some(at @ 1..=2) = rest.find(':') {
        hour = number(&rest[..at])?;
        let digits = rest.get(at + 1..at + 3).or_else(|| rest.get(at + 1..)).unwrap_or_default();
        minute = number(digits)?;
        rest = rest.get(at + 1 + digits.len()..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix("am") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("pm") {
            (hour, rest) = ((hour + 12) % 24, after);
        }
    }
    if let Some(at @ 1..=2) = rest.find("am") {
        hour = number(&rest[..at])?;
        rest = &rest[at + 2..];
    }
    if let Some(at @ 1..=2) = rest.find("pm") {
        hour = (number(&rest[..at])? + 12) % 24;
        rest = &rest[at + 2..];
    }
    for (word, hour_of_word) in [("noon", 12), ("midnight", 0), ("teatime", 16)] {
        if let Some(after) = rest.strip_prefix(word) {
            return Ok((hour_of_word, 0, after));
        }
    }
    Ok((hour, minute, rest))
}

/// The day that a text means, or `None` if it means none.
fn day_of(text: &str, today: Date) -> Result<Option<Date>, String> {
    let days = |count: i64| {
        today.checked_add(Span::new().days(count)).map_err(|_| "the day is out of range".to_owned())
    };
    let date = |year: &str, month: &str, day: &str| {
        let part = |digits: &str| if is_digits(digits) { digits.parse::<i16>().ok() } else { None };
        let (Some(mut year), Some(month), Some(day)) = (part(year), part(month), part(day)) else {
            return Err(format!("{text:?} is not a date"));
        };
        if year < 1900 {
            year += 1900;
        }
        if year < 1970 {
            year += 100;
        }
        new_date(year, i64::from(month), i64::from(day))
    };
    let begin = text.get(..3).unwrap_or_default();
    Ok(Some(match text {
        "" | "today" => today,
        "yesterday" => days(-1)?,
        "tomorrow" => days(1)?,
        _ if text.matches('/').count() == 2 => {
            let mut parts = text.split('/');
            let (month, day, year) = (parts.next(), parts.next(), parts.next());
            date(year.unwrap_or_default(), month.unwrap_or_default(), day.unwrap_or_default())?
        }
        _ if text.len() == 8 && is_digits(text) => {
            let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap_or_default();
            new_date(part(0..4) as i16, part(4..6), part(6..8))?
        }
        _ if MONTHS.contains(&begin) => {
            let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let day = &text[text.len() - digits.min(2)..];
            let day = day.parse().map_err(|_| "a day must follow the month".to_owned())?;
            let month = MONTHS.iter().position(|month| *month == begin).unwrap_or_default();
            new_date(today.year(), month as i64 + 1, day)?
        }
        _ => match WEEKDAYS.iter().find(|(name, _)| *name == begin) {
            Some((_, weekday)) => days(-i64::from(today.weekday().since(*weekday)))?,
            None => return Ok(None),
        },
    }))
}

fn new_date(year: i16, month: i64, day: i64) -> Result<Date, String> {
    let parts = i8::try_from(month).ok().zip(i8::try_from(day).ok());
    let date = parts.and_then(|(month, day)| Date::new(year, month, day).ok());
    date.ok_or_else(|| format!("{year:04}-{month:02}-{day:02} is not a date"))
}
