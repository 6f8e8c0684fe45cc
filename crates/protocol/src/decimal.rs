//! Parses decimal numbers. Short ones, which are most, take a few nanoseconds. The results are exactly those of the
//! standard library.

/// Powers of ten that a float represents exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Up to this number of digits, a number fits into 64 bits.
const DIGITS_MAX: usize = 19;

/// Up to this integer, a float represents all integers exactly.
const EXACT_MAX: u64 = 1 << 53;

/// Parses a decimal number at the start of `text`, and returns it with its length. Returns `None` if the number is of
/// another form or has too many digits, so that [`float`] has to parse it.
///
/// Both the digits and the power of ten are exact floats here. Their quotient is rounded once, so it is the float that is
/// closest to the number (W. D. Clinger, "How to read floating point numbers accurately", 1990).
#[inline]
pub(crate) fn short_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let is_negative = text.first() == Some(&b'-');
    let start = usize::from(is_negative);
    let (whole, whole_end) = digits(text, start, 0);
    let (all, end, decimals) = match text.get(whole_end) {
        Some(b'.') => {
            let (all, end) = digits(text, whole_end + 1, whole);
            (all, end, end - whole_end - 1)
        }
        _ => (whole, whole_end, 0),
    };
    let count = (whole_end - start) + decimals;
    if count == 0 || count > DIGITS_MAX || all > EXACT_MAX {
        return None;
    }
    let number = all as f64 / POWERS[decimals];
    Some((if is_negative { -number } else { number }, end))
}

/// Appends the digits from `at` on to the number `before`. Returns the number and where the digits end. With more than
/// [`DIGITS_MAX`] digits, the number is wrong.
#[inline(always)]
pub(crate) fn digits(text: &[u8], at: usize, before: u64) -> (u64, usize) {
    let (mut number, mut end) = (before, at);
    while let Some(digit) = text.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        end += 1;
    }
    (number, end)
}

pub(crate) fn float(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn short_decimals_are_those_of_the_standard_library() {
        let mut rng = Rng::announced();
        let mut short = 0;
        for _ in 0..300_000 {
            let mut text = String::new();
            if rng.below(3) == 0 {
                text.push('-');
            }
            let zeros = rng.below(4) as usize;
            text.push_str(&"0".repeat(zeros));
            let length = rng.below(24) as usize;
            let dot = rng.below(24) as usize;
            for i in 0..length {
                if i == dot {
                    text.push('.');
                }
                text.push(char::from(b'0' + rng.below(10) as u8));
            }
            text.push_str(["", " 1", "e5", ".", "x", "\n"][rng.below(6) as usize]);
            let Some((number, end)) = short_decimal(text.as_bytes()) else { continue };
            short += 1;
            let expected: f64 = text[..end].parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert_eq!(number.to_bits(), expected.to_bits(), "{text:?}");
        }
        assert!(short > 100_000, "only {short} numbers were short");
    }

    #[test]
    fn limits_of_short_decimals() {
        let check = |text: &str, expected: Option<(f64, usize)>| {
            let found = short_decimal(text.as_bytes());
            let bits = |(number, end): (f64, usize)| (number.to_bits(), end);
            assert_eq!(found.map(bits), expected.map(bits), "{text:?}");
        };
        check("9007199254740992", Some((9_007_199_254_740_992.0, 16)));
        check("9007199254740993", None);
        check("0.0000000000000000001", None); // twenty digits
        check(".000000000000000001", Some((1e-18, 19)));
        check("99999999999999999999999", None);
        check("-0", Some((-0.0, 2)));
        check("1.", Some((1.0, 2)));
        check(".5", Some((0.5, 2)));
        check("0.1 ", Some((0.1, 3)));
        for text in ["", "-", ".", "-.", "+1", "e5", "inf", "x"] {
            check(text, None);
        }
    }
}
