//! Values as `mantissa / 10^exponent`, exact to the bit.

/// Largest exponent that is tried: a double has only about 16 digits.
const EXPONENT_MAX: u8 = 15;

/// Mantissas stay below this, so that they are exact as doubles. The powers of ten in [`POW10`] are exact,
/// too.
const MANTISSA_MAX: f64 = (1u64 << 53) as f64;

pub(super) const POW10: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Smallest exponent of at least `from` at which `value` is an exact decimal, and the mantissa at that
/// exponent.
pub(super) fn decimal_form(value: f64, from: u8) -> Option<(u8, i64)> {
    (from..=EXPONENT_MAX).find_map(|e| Some((e, mantissa_at(value, e)?)))
}

/// Returns the integer `m` below 2^53 for which `m / 10^exponent` equals `value` to the bit. Both operands of
/// this division are exact, so the quotient is rounded correctly at every exponent.
#[inline]
pub(super) fn mantissa_at(value: f64, exponent: u8) -> Option<i64> {
    let power = POW10[exponent as usize];
    let scaled = value * power;
    // Rounds without a library call. Near 2^53 the result may be off by one: the check below then fails, and
    // the value is stored in another form. An integer cannot hold -0.0, so the check fails for it, too.
    let mantissa = (scaled + 0.5f64.copysign(scaled)) as i64;
    let exact = scaled.abs() < MANTISSA_MAX && (mantissa as f64 / power).to_bits() == value.to_bits();
    exact.then_some(mantissa)
}

#[inline]
pub(super) fn decimal(mantissa: i64, exponent: u8) -> f64 {
    mantissa as f64 / POW10[exponent as usize]
}
