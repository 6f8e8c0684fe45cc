//! Floats in the form `mantissa / 10^exponent`, exact to the bit: 1.25 is 125 / 10^2.

/// Largest exponent to try. A double has only 16 digits.
const EXPONENT_MAX: u8 = 15;

/// All integers below this limit are exact as doubles, and so are the powers in [`POW10`].
const MANTISSA_MAX: f64 = (1u64 << 53) as f64;

pub(super) const POW10: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Finds the smallest exponent, starting at `from`, for which `value` is exactly `mantissa / 10^exponent`.
/// Returns this exponent and the mantissa.
pub(super) fn decimal_form(value: f64, from: u8) -> Option<(u8, i64)> {
    (from..=EXPONENT_MAX).find_map(|e| Some((e, mantissa_at(value, e)?)))
}

/// The integer `m` below 2^53 for which `m / 10^exponent` equals `value` to the bit.
#[inline]
pub(super) fn mantissa_at(value: f64, exponent: u8) -> Option<i64> {
    let power = POW10[exponent as usize];
    let scaled = value * power;
    // Rounds without a library call. If the result is off by one, or the value is -0.0, the check below
    // fails.
    let mantissa = (scaled + 0.5f64.copysign(scaled)) as i64;
    let exact = scaled.abs() < MANTISSA_MAX && (mantissa as f64 / power).to_bits() == value.to_bits();
    exact.then_some(mantissa)
}

#[inline]
pub(super) fn decimal(mantissa: i64, exponent: u8) -> f64 {
    mantissa as f64 / POW10[exponent as usize]
}
