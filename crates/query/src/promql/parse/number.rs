//! Numbers in the syntax of Prometheus and Go.

/// Length of the number at the beginning of `text`, with attached characters, for example `5m`, `1e-3`,
/// `08x`.
pub(super) fn len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let hex = bytes.len() > 1 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X');
    let mut len = 0;
    while let Some(byte) = bytes.get(len) {
        let glued = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        // `1e-3`, but not `1h-3` or `0xe-3`
        let is_sign = matches!(byte, b'+' | b'-');
        let signed = is_sign && !hex && matches!(bytes[..len], [b'0'..=b'9' | b'.', .., b'e' | b'E']);
        if !glued && !signed {
            break;
        }
        len += 1;
    }
    len
}

/// The value of a number without a sign; `None` if `text` is not a number. Go's syntax: `0x1f`, `0755`
/// (octal), `08` (decimal), `1_000`, `1.5e3`, `.5`, `5.`, `Inf`, `NaN`.
pub(super) fn value(text: &str) -> Option<f64> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let digits = without_underscores(hex.strip_prefix('_').unwrap_or(hex))?;
        return plain_integer(&digits, 16);
    }
    let digits = without_underscores(text)?;
    // Rust's parsers would accept a sign
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let octal = digits.strip_prefix('0').filter(|rest| !rest.is_empty());
    // as in Prometheus, a number beyond the largest float is an error
    let decimal = || digits.parse().ok().filter(|value: &f64| value.is_finite());
    octal.and_then(|rest| plain_integer(rest, 8)).or_else(decimal)
}

fn plain_integer(digits: &str, radix: u32) -> Option<f64> {
    let all_digits = digits.chars().all(|c| c.is_digit(radix));
    i64::from_str_radix(digits, radix).ok().filter(|_| all_digits).map(|n| n as f64)
}

/// The text without underscores; `None` if one is not between two digits.
fn without_underscores(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    if !text.contains('_') {
        return Some(text.into());
    }
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let fits = |(at, _): (usize, &str)| is_digit(bytes[..at].last()) && is_digit(bytes.get(at + 1));
    text.match_indices('_').all(fits).then(|| text.replace('_', "").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |text: &str, expected: Option<f64>| assert_eq!(value(text), expected, "{text}");
        for (text, expected) in [
            ("0", 0.0),
            ("5", 5.0),
            ("5.", 5.0),
            (".5", 0.5),
            ("1.5e3", 1500.0),
            ("1e-3", 0.001),
            ("1E+3", 1000.0),
            ("0x1f", 31.0),
            ("0XFF", 255.0),
            ("0x_1F", 31.0),
            ("0x1_f", 31.0),
            ("0755", 493.0),
            ("08", 8.0),
            ("1_000", 1000.0),
            ("1_2_3.5", 123.5),
            ("Inf", f64::INFINITY),
        ] {
            check(text, Some(expected));
        }
        assert!(value("nAn").unwrap().is_nan());
        for bad in [
            "", ".", "x", "0x", "0xg", "1__0", "_1", "1_", "1._5", "5m", "+5", "-5", "1e", "1e999",
            "infinity", "0x+1",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn lengths() {
        let check = |text: &str, expected: usize| assert_eq!(len(text), expected, "{text}");
        check("1e-3 + 1", 4);
        check("1e-3-1", 4);
        check("1-1", 1);
        check("0xe-1", 3);
        check("5m-1", 2);
        check("1_000)", 5);
        check(".5,", 2);
    }
}
