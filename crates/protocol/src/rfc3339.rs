//! Reads times of RFC 3339, such as `2026-11-21T18:00:00.123+01:00`.

use stdx::calendar::Date;

/// Digits of a fraction that count: microseconds.
const FRACTION_DIGITS: usize = 6;

/// Reads a time to microseconds since the Unix epoch. Further digits are cut off. A blank may stand for the `T`. A leap second
/// is the first second of the next minute.
pub(crate) fn rfc3339_us(word: &[u8]) -> Option<i64> {
    let (&[y0, y1, y2, y3, b'-', mo0, mo1, b'-', d0, d1, b'T' | b't' | b' ', clock @ ..], rest) =
        word.split_first_chunk::<19>()?
    else {
        return None;
    };
    let [h0, h1, b':', mi0, mi1, b':', s0, s1] = clock else { return None };
    let (year, month, day) = (pair(y0, y1)? * 100 + pair(y2, y3)?, pair(mo0, mo1)?, pair(d0, d1)?);
    let (hour, minute, second) = (pair(h0, h1)?, pair(mi0, mi1)?, pair(s0, s1)?);
    if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (us, offset) = match rest {
        [b'.', fraction @ ..] => fraction_us(fraction)?,
        _ => (0, rest),
    };
    let days = Date { year, month, day }.days();
    let minutes = (days * 24 + hour) * 60 + minute - offset_minutes(offset)?;
    Some((minutes * 60 + second) * 1_000_000 + us)
}

#[inline(always)]
fn pair(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then_some(i64::from(tens) * 10 + i64::from(ones))
}

/// Reads the digits behind the point. Returns microseconds, and what follows the digits.
fn fraction_us(fraction: &[u8]) -> Option<(i64, &[u8])> {
    let end = fraction.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(fraction.len());
    let (digits, rest) = fraction.split_at(end);
    let counted = &digits[..end.min(FRACTION_DIGITS)];
    let number = counted.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let us = number * 10_i64.pow((FRACTION_DIGITS - counted.len()) as u32);
    (end > 0).then_some((us, rest))
}

fn offset_minutes(offset: &[u8]) -> Option<i64> {
    match *offset {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (pair(h0, h1)?, pair(m0, m1)?);
            let all = (hours <= 23 && minutes <= 59).then_some(hours * 60 + minutes)?;
            Some(if sign == b'-' { -all } else { all })
        }
        _ => None,
    }
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds() {
        let check = |word: &str, expected: Option<i64>| {
            assert_eq!(rfc3339_us(word.as_bytes()), expected, "{word:?}");
        };
        check("1970-01-01T00:00:00Z", Some(0));
        check("2026-11-21T18:00:00.1234567Z", Some(1_795_284_000_123_456));
        check("2026-11-21t18:00:00.12-00:01", Some(1_795_284_060_120_000));
        check("2026-11-21 19:00:00.000001+01:00", Some(1_795_284_000_000_001));
        check("1969-12-31T23:59:59.999999Z", Some(-1));
        check("9999-12-31T23:59:60Z", Some(253_402_300_800_000_000));
        for bad in [
            "",
            "2026-11-21T18:00:00",
            "2026-11-21T18:00:00.Z",
            "2026-11-21T18:00:00Z ",
            "2026-11-21x18:00:00Z",
        ] {
            check(bad, None);
        }
    }
}
