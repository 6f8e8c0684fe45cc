//! Numbers in the grammar of JSON.

use crate::decimal::{digits, short_decimal};
use model::AttributeValue;

/// With up to this number of digits, an integer fits into 63 bits.
const INTEGER_DIGITS: usize = 18;

/// Reads the number that begins at `at`, which must be a boundary of characters. Returns its value, and where it ends. `None`
/// if there is no number. The caller checks what follows.
///
/// Integers beyond 64 bits, and numbers that are too large for a float, are JSON text, so that nothing of them is lost.
#[inline]
pub(super) fn number(text: &str, at: usize) -> Option<(AttributeValue<'_>, usize)> {
    let bytes = text.as_bytes();
    let is_negative = bytes.get(at) == Some(&b'-');
    let start = at + usize::from(is_negative);
    let (whole, end) = digits(bytes, start, 0);
    let count = end - start;
    if count == 0 || (count > 1 && bytes[start] == b'0') {
        return None;
    }
    if matches!(bytes.get(end), Some(b'.' | b'e' | b'E')) {
        return float(text, at, end);
    }
    let value = match count {
        0..=INTEGER_DIGITS => AttributeValue::Int(if is_negative { -(whole as i64) } else { whole as i64 }),
        _ => {
            let word = &text[at..end];
            word.parse().map_or(AttributeValue::Json(word), AttributeValue::Int)
        }
    };
    Some((value, end))
}

/// Reads a number with a fraction or an exponent. Its digits before them end at `end`.
fn float(text: &str, at: usize, mut end: usize) -> Option<(AttributeValue<'_>, usize)> {
    let bytes = text.as_bytes();
    let more = |from: usize| {
        let found = digits(bytes, from, 0).1;
        (found > from).then_some(found)
    };
    if bytes[end] == b'.' {
        end = more(end + 1)?;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        end = more(end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-'))))?;
    }
    let word = &text[at..end];
    let value = match short_decimal(word.as_bytes()) {
        Some((value, length)) if length == word.len() => value,
        _ => word.parse().ok()?,
    };
    Some((if value.is_finite() { AttributeValue::Float(value) } else { AttributeValue::Json(word) }, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_grammar_of_json() {
        let check = |text: &str, expected: Option<(AttributeValue<'_>, usize)>| {
            assert_eq!(number(text, 0), expected, "{text:?}");
        };
        check("0", Some((AttributeValue::Int(0), 1)));
        check("-0", Some((AttributeValue::Int(0), 2)));
        check("12,", Some((AttributeValue::Int(12), 2)));
        check("-9223372036854775808", Some((AttributeValue::Int(i64::MIN), 20)));
        check("9223372036854775807", Some((AttributeValue::Int(i64::MAX), 19)));
        check("9223372036854775808", Some((AttributeValue::Json("9223372036854775808"), 19)));
        check("1.5", Some((AttributeValue::Float(1.5), 3)));
        check("-0.0", Some((AttributeValue::Float(-0.0), 4)));
        check("1e3 ", Some((AttributeValue::Float(1000.0), 3)));
        check("1E-3", Some((AttributeValue::Float(0.001), 4)));
        check("1.25e+2", Some((AttributeValue::Float(125.0), 7)));
        check("1e400", Some((AttributeValue::Json("1e400"), 5)));
        check("0.1234567890123456789012", Some((AttributeValue::Float(0.123_456_789_012_345_68), 24)));
        for bad in ["", "-", "01", "00", "+1", ".5", "1.", "1.e3", "1e", "1e+", "-x", "NaN"] {
            check(bad, None);
        }
    }
}
