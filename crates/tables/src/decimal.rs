//! Values as integers over a power of ten: `value = mantissa / 10^exponent`, exact to the bit.
//!
//! Most measured values are decimal numbers. Differences of their mantissas are small and take a third of the bytes of
//! doubles. One division restores the identical double: both operands are exact (`|mantissa| < 2^53`, `exponent <=
//! 22`), and IEEE 754 rounds a quotient correctly.

/// Largest exponent. Beyond it, mantissas are no shorter than doubles.
pub const EXPONENT_MAX: u8 = 15;

/// Mantissas of values with a fraction must be smaller than this. Otherwise, adding and subtracting [`ROUNDER`] does
/// not round them.
const FRACTION_MANTISSA_MAX: f64 = (1u64 << 51) as f64;

/// 1.5 * 2^52. Doubles of this size have no fraction, so adding this number rounds to an integer.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

const POWERS: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Number of values that are tried with one exponent at a time: enough for vectorisation, and few enough to repeat
/// with a larger exponent.
const CHUNK: usize = 64;

/// Value of a mantissa; `None` for an exponent that Floodmark never writes.
#[inline]
pub fn value(mantissa: i64, exponent: u8) -> Option<f64> {
    POWERS.get(exponent as usize).map(|power| mantissa as f64 / power)
}

/// Decodes `mantissas`, from which the writer subtracted `base`, and appends the values to `values`. Returns `false`
/// for an exponent that Floodmark never writes.
#[must_use]
pub fn values(mantissas: &[i64], base: i64, exponent: u8, values: &mut Vec<f64>) -> bool {
    let Some(power) = POWERS.get(exponent as usize) else { return false };
    // this overflows only in files of other programs
    values.extend(mantissas.iter().map(|&m| m.wrapping_add(base) as f64 / power));
    true
}

/// Finds the smallest exponent that holds all of `values` exactly, and appends their mantissas.
///
/// Returns `None`, with `mantissas` unchanged, if there is none: for infinities, NaNs, negative zero, binary fractions,
/// or very different magnitudes.
pub fn mantissas(values: &[f64], mantissas: &mut Vec<i64>) -> Option<u8> {
    let start = mantissas.len();
    let exponent = append(values, mantissas);
    if exponent.is_none() {
        mantissas.truncate(start);
    }
    exponent
}

/// True if some exponent represents this value exactly.
pub fn is_decimal(value: f64) -> bool {
    (0..=EXPONENT_MAX).any(|exponent| mantissa(value, exponent).is_some())
}

fn append(values: &[f64], mantissas: &mut Vec<i64>) -> Option<u8> {
    let start = mantissas.len();
    mantissas.resize(start + values.len(), 0);
    let out = &mut mantissas[start..];
    let mut exponent = 0;
    // Mantissas before this position were computed with a smaller exponent.
    let mut since = 0;
    let mut at = 0;
    while at < values.len() {
        let end = (at + CHUNK).min(values.len());
        if fill(&values[at..end], exponent, &mut out[at..end]) {
            at = end;
            continue;
        }
        let misfit = *values[at..end].iter().find(|v| mantissa(**v, exponent).is_none())?;
        exponent = (exponent + 1..=EXPONENT_MAX).find(|e| mantissa(misfit, *e).is_some())?;
        since = at;
    }
    // A larger exponent adds trailing zeros to earlier mantissas, if they fit.
    (since == 0 || fill(&values[..since], exponent, &mut out[..since])).then_some(exponent)
}

/// Computes the mantissas of `values` with this exponent. Returns `false` if a value has none.
fn fill(values: &[f64], exponent: u8, out: &mut [i64]) -> bool {
    let mut fits = true;
    if exponent == 0 {
        for (value, out) in values.iter().zip(out) {
            // Comparing bits refuses saturated values, NaN and negative zero.
            let mantissa = *value as i64;
            fits &= (mantissa as f64).to_bits() == value.to_bits();
            *out = mantissa;
        }
        return fits;
    }
    let power = POWERS[exponent as usize];
    for (value, out) in values.iter().zip(out) {
        let rounded = (value * power) + ROUNDER - ROUNDER;
        fits &= rounded.abs() < FRACTION_MANTISSA_MAX;
        fits &= (rounded / power).to_bits() == value.to_bits();
        *out = rounded as i64;
    }
    fits
}

fn mantissa(value: f64, exponent: u8) -> Option<i64> {
    let mut out = [0];
    fill(&[value], exponent, &mut out).then_some(out[0])
}

#[cfg(test)]
mod tests;
