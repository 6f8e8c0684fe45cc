//! Values as `mantissa / 10^exponent`, exact to the bit.

/// Larger exponents are not tried: 16 digits are all a double has.
const EXPONENT_MAX: u8 = 15;

/// Mantissas stay below this, so that they are exact as doubles and so is every power of ten used.
const MANTISSA_MAX: f64 = (1u64 << 53) as f64;

pub(super) const POW10: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Smallest exponent of at least `from` at which `value` is an exact decimal, and the mantissa at that
/// exponent.
pub(super) fn decimal_form(value: f64, from: u8) -> Option<(u8, i64)> {
    (from..=EXPONENT_MAX).find_map(|e| Some((e, mantissa_at(value, e)?)))
}

/// The integer `m` below 2^53 with `m / 10^exponent == value` to the bit. Both operands of that division
/// are exact, so it rounds the true quotient correctly, whatever exponent was chosen.
#[inline]
pub(super) fn mantissa_at(value: f64, exponent: u8) -> Option<i64> {
    let power = POW10[exponent as usize];
    let scaled = value * power;
    // Rounds without a call to the library; where this is off by one (near 2^53) the check below fails and
    // the value is kept in another form. Through the integer, so that -0.0, which it cannot hold, fails too.
    let mantissa = (scaled + 0.5f64.copysign(scaled)) as i64;
    let exact = scaled.abs() < MANTISSA_MAX && (mantissa as f64 / power).to_bits() == value.to_bits();
    exact.then_some(mantissa)
}

#[inline]
pub(super) fn decimal(mantissa: i64, exponent: u8) -> f64 {
    mantissa as f64 / POW10[exponent as usize]
}
