use std::time::Duration;

const DURATIONS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Parses a duration in Prometheus' notation, such as `1h30m`, to milliseconds. A duration that is
/// too long becomes `i64::MAX`. Returns `None` if the text is no duration.
pub fn duration_ms(text: &str) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    let (mut rest, mut total, mut next) = (text, 0i64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[digits..digits + letters];
        let at = DURATIONS.iter().position(|(name, _)| *name == unit).filter(|at| *at >= next)?;
        total = total.saturating_add(number.saturating_mul(DURATIONS[at].1));
        (next, rest) = (at + 1, &rest[digits + letters..]);
    }
    Some(total)
}

/// Parses a duration such as `1h30m`, `1.5s` or `20us`, or a number of seconds. Units may be in any
/// order. Returns `None` if the text is no duration.
pub fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    loop {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, tail) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        let unit_s = match unit {
            "us" | "µs" => 1e-6,
            unit => DURATIONS.iter().find(|(name, _)| *name == unit)?.1 as f64 / 1000.0,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_s).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// Parses a size such as `512MiB`, `1.5 GB` or `4096` to bytes. Returns `None` if the text is no
/// size, or if it is 10^18 bytes or more.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "kib" | "ki" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" | "mi" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" | "gi" => 1 << 30,
        "t" | "tb" => 1_000_000_000_000,
        "tib" | "ti" => 1 << 40,
        _ => return None,
    };
    let bytes = number.replace('_', "").parse::<f64>().ok()? * factor as f64;
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

/// Formats a duration so that [`duration_ms`] can parse it. Days are the longest unit. Negative
/// durations become `0s`.
pub fn duration_text(ms: i64) -> String {
    let (mut rest, mut text) = (ms.max(0), String::new());
    // "365d" is easier to read than "52w1d"
    for (unit, unit_ms) in &DURATIONS[2..] {
        if rest >= *unit_ms {
            text += &format!("{}{unit}", rest / unit_ms);
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Formats a size so that [`bytes`] parses it to exactly the same number, such as `512MiB`. The
/// unit is the largest that needs no fraction.
pub fn bytes_text(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    whole.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// Formats a number for people. Numbers from 10,000 on are cut to three digits: `950`, `12.3k`,
/// `4.56M`.
pub fn short(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        1e9.. => (number / 1e9, "G"),
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => return format!("{number:.0}"),
    };
    let decimals = if scaled.abs() < 10.0 {
        2
    } else if scaled.abs() < 100.0 {
        1
    } else {
        0
    };
    format!("{scaled:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ms: Option<i64>| assert_eq!(duration_ms(text), ms, "{text}");
        check("5m", Some(300_000));
        check("500ms", Some(500));
        check("1h30m", Some(5_400_000));
        check("1y2w3d4h5m6s7ms", Some(((((365 + 14 + 3) * 24 + 4) * 60 + 5) * 60 + 6) * 1000 + 7));
        check("0s", Some(0));
        check("99999999999y", Some(i64::MAX));
        for bad in ["", "m", "1m1h", "1m1m", "5", "-5", "99999999999999999999y", "1.5h", "5 m", "5x", "5mé"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn durations_with_fractions() {
        let check = |text, us| assert_eq!(duration(text), Some(Duration::from_micros(us)), "{text}");
        check("15s", 15_000_000);
        check("1h30m", 5_400_000_000);
        check("1m1h", 3_660_000_000);
        check("1.5s", 1_500_000);
        check("250ms20us", 250_020);
        check("1w", 7 * 86_400_000_000);
        check("45", 45_000_000);
        for bad in ["", "s", "15x", "-3s", "1e999", "nan", "3 s", "9999999999999999999d", "1.2.3s"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn formatted_durations_and_sizes_round_trip() {
        for ms in [0, 1, 999, 1000, 90_000, 5_400_000, 86_400_000 * 400 + 3, i64::MAX / 2] {
            assert_eq!(duration_ms(&duration_text(ms)), Some(ms), "{}", duration_text(ms));
        }
        assert_eq!(duration_text(5_400_000), "1h30m");
        for size in [0, 1, 1023, 1 << 10, 3 << 29, (1 << 40) + 1, 1 << 50] {
            assert_eq!(bytes(&bytes_text(size)), Some(size), "{}", bytes_text(size));
        }
        assert_eq!(bytes_text(3 << 29), "1536MiB");
    }

    #[test]
    fn sizes() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(bytes(text), expected, "{text}");
        check("512MiB", Some(512 << 20));
        check("1.5 GB", Some(1_500_000_000));
        check("4096", Some(4096));
        check("1_000k", Some(1_000_000));
        for bad in ["", "GiB", "-1", "1XB", "1e400", "99999999TiB", "é", "1.2.3", "_"] {
            check(bad, None);
        }
    }

    #[test]
    fn numbers_are_short() {
        let check = |n: f64, text: &str| assert_eq!(short(n), text);
        check(0.0, "0");
        check(9_999.0, "9999");
        check(12_345.0, "12.3k");
        check(999_999.0, "1000k");
        check(4_560_000.0, "4.56M");
        check(2.5e9, "2.50G");
    }
}
