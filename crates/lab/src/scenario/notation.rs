//! Parses durations, numbers, headers and times as users write them.

use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Parses `15s`, `250ms`, `1h30m`, `2d`, or a number of seconds without a unit.
pub fn duration(text: &str) -> Result<Duration> {
    stdx::units::duration(text)
        .with_context(|| format!("{text:?} is not a duration such as 15s, 250ms or 1h30m"))
}

/// Parses a positive number such as `2000`, `10_000`, `200k`, `1.5M` or `2G`. The prefixes are decimal.
pub fn count(text: &str) -> Result<f64> {
    let bad = || format!("{text:?} is not a number such as 2000, 200k or 1.5M");
    let plain = text.replace('_', "");
    let (digits, factor) = match plain.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'm' | 'M')) => (&plain[..at], 1e6),
        Some((at, 'g' | 'G')) => (&plain[..at], 1e9),
        _ => (plain.as_str(), 1.0),
    };
    let number = digits.parse::<f64>().with_context(bad)? * factor;
    ensure!(number.is_finite() && number >= 0.0, bad());
    Ok(number)
}

/// Like [`count`], but refuses fractions.
pub fn whole(text: &str) -> Result<u64> {
    let number = count(text)?;
    ensure!(number.fract() == 0.0 && number < 1e18, "{text:?} is not a whole number");
    Ok(number as u64)
}

/// Parses a header in the form `Name: value`, like `-H` of curl.
pub fn header(text: &str) -> Result<(String, String)> {
    let (name, value) =
        text.split_once(':').with_context(|| format!("{text:?} is not a header such as \"Name: value\""))?;
    let (name, value) = (name.trim(), value.trim());
    hyper::header::HeaderName::try_from(name)
        .with_context(|| format!("{name:?} is not a valid header name"))?;
    hyper::header::HeaderValue::try_from(value)
        .with_context(|| format!("the value of header {name} is not valid"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a time and returns it in milliseconds since 1970. It can be `now`, a time before now such as `-1h`, Unix
/// seconds such as `1795284000`, or Unix milliseconds.
pub fn time(text: &str, now_ms: i64) -> Result<i64> {
    if text == "now" {
        return Ok(now_ms);
    }
    if let Some(ago) = text.strip_prefix("now-").or_else(|| text.strip_prefix('-')) {
        let ago_ms = i64::try_from(duration(ago)?.as_millis()).context("the time is out of range")?;
        return now_ms.checked_sub(ago_ms).context("the time is out of range");
    }
    let number: f64 = text
        .parse()
        .with_context(|| format!("{text:?} is not a time: now, -1h, or Unix seconds or milliseconds"))?;
    ensure!(number.is_finite() && number.abs() < 1e15, "the time {text:?} is out of range");
    // smaller numbers are seconds: 10^11 is the year 5138 in seconds, but 1973 in milliseconds
    Ok(if number.abs() < 1e11 { (number * 1000.0).round() as i64 } else { number as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text, ms| assert_eq!(duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        check("15s", 15_000);
        check("250ms", 250);
        check("1h30m", 5_400_000);
        check("1.5s", 1_500);
        check("2d", 172_800_000);
        check("45", 45_000);
        for bad in ["", "s", "15x", "-3s", "1e999", "nan", "3 s", "9999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn counts() {
        let check = |text, n| assert_eq!(count(text).unwrap(), n, "{text}");
        check("2000", 2000.0);
        check("10_000", 10_000.0);
        check("200k", 200_000.0);
        check("1.5M", 1_500_000.0);
        assert_eq!(whole("2G").unwrap(), 2_000_000_000);
        for bad in ["", "k", "-1", "inf", "é", "1.5"] {
            assert!(whole(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn headers_and_times() {
        assert_eq!(header("X-Scope-OrgID: a:b ").unwrap(), ("X-Scope-OrgID".into(), "a:b".into()));
        for bad in ["", "a", "a b: c", "a: \u{7f}\n"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
        let check = |text, ms| assert_eq!(time(text, 1_795_284_000_000).unwrap(), ms, "{text}");
        check("now", 1_795_284_000_000);
        check("-1h", 1_795_280_400_000);
        check("now-1s", 1_795_283_999_000);
        check("1795284000.5", 1_795_284_000_500);
        check("1795284000500", 1_795_284_000_500);
        assert!(time("yesterday", 0).is_err());
    }
}
