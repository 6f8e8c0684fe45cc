//! Writes numbers with few decimal places, such as 42.125, faster than the general algorithm.
//!
//! A decimal of at most 15 digits is the shortest one that parses to its `f64`, because no other decimal of at most 15
//! digits parses to the same `f64`. So if `n / 10^places` is exactly the value, `n` are its shortest digits.

/// Powers of ten that are exact as `f64`. Values with more decimal places are left to the general algorithm.
const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// Integers below this have at most 15 digits.
const LIMIT: f64 = 1e15;

/// Smaller values may need an exponent.
const SMALLEST: f64 = 1e-3;

/// After a value with too many decimal places, as many values are not tried, because they probably have as many.
const SKIPPED: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Decimals {
    /// Decimal places of the last value. The next value probably has as many.
    places: usize,
    skip: u32,
}

impl Decimals {
    /// Returns the digits of `v` without trailing zeros, as an integer, and the number of decimal places. `None` if
    /// they are too many, or if the value needs an exponent.
    #[inline]
    pub(super) fn of(&mut self, v: f64) -> Option<(i64, usize)> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if !(SMALLEST..LIMIT).contains(&v.abs()) {
            return None;
        }
        let digits = match digits(v, self.places) {
            Some(digits) => digits,
            None => self.search(v)?,
        };
        Some(without_zeros(digits, self.places))
    }

    #[cold]
    fn search(&mut self, v: f64) -> Option<i64> {
        for places in 0..POWERS.len() {
            if let Some(digits) = digits(v, places) {
                self.places = places;
                return Some(digits);
            }
        }
        self.skip = SKIPPED;
        None
    }
}

/// Returns `n` if `n / 10^places` is exactly `v`. Both operands of this division are exact, so its result is what the
/// decimal parses to.
#[inline]
fn digits(v: f64, places: usize) -> Option<i64> {
    let power = POWERS[places];
    let scaled = v * power;
    let n = (scaled + 0.5_f64.copysign(scaled)) as i64;
    (scaled.abs() < LIMIT && n as f64 / power == v).then_some(n)
}

#[inline]
const fn without_zeros(mut n: i64, mut places: usize) -> (i64, usize) {
    while places > 0 && n % 10 == 0 {
        (n, places) = (n / 10, places - 1);
    }
    (n, places)
}
