//! Durations, as `1h30m`.

/// Longest duration, in milliseconds: a thousand years.
pub(super) const DURATION_MS_MAX: i64 = 1000 * 365 * 24 * 3600 * 1000;

/// The units, longest first, and their milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Milliseconds of a duration; none where it is not one. Each unit at most once, the longer ones first.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    let (mut rest, mut total, mut next) = (text, 0i64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[digits..digits + letters];
        let at = UNITS.iter().position(|(name, _)| *name == unit).filter(|at| *at >= next)?;
        total = total.saturating_add(number.saturating_mul(UNITS[at].1));
        (next, rest) = (at + 1, &rest[digits + letters..]);
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ms: Option<i64>| assert_eq!(milliseconds(text), ms, "{text}");
        check("5m", Some(300_000));
        check("1h30m", Some(5_400_000));
        check("1y2w3d4h5m6s7ms", Some(((((365 + 14 + 3) * 24 + 4) * 60 + 5) * 60 + 6) * 1000 + 7));
        check("0s", Some(0));
        check("99999999999y", Some(i64::MAX));
        for bad in ["", "m", "1m1h", "1m1m", "5", "-5", "99999999999999999999y", "1.5h", "5 m", "5x", "5mé"]
        {
            check(bad, None);
        }
    }
}
