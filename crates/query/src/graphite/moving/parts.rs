//! Partial aggregates of consecutive values (a monoid), so that a window is combined from two parts. Missing
//! values are left out.

use super::precise::Precise;

pub(super) trait PartialAggregate: Copy {
    /// Of no values.
    const EMPTY: Self;

    /// Aggregate of one value, which must not be NaN.
    fn of(value: f64) -> Self;

    /// Combines this with the aggregate of the values that follow.
    fn and(self, other: Self) -> Self;

    /// Number of values.
    fn count(&self) -> usize;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub(super) count: usize,
    pub(super) sum: f64,
}

impl PartialAggregate for Totals {
    const EMPTY: Self = Self { count: 0, sum: 0.0 };

    fn of(value: f64) -> Self {
        Self { count: 1, sum: value }
    }

    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum + other.sum }
    }

    fn count(&self) -> usize {
        self.count
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Extremes {
    count: usize,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl PartialAggregate for Extremes {
    const EMPTY: Self = Self { count: 0, min: f64::NAN, max: f64::NAN };

    fn of(value: f64) -> Self {
        Self { count: 1, min: value, max: value }
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            // the smaller or larger one, or the one that is not NaN
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn count(&self) -> usize {
        self.count
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Latest {
    count: usize,
    pub(super) last: f64,
}

impl PartialAggregate for Latest {
    const EMPTY: Self = Self { count: 0, last: f64::NAN };

    fn of(value: f64) -> Self {
        Self { count: 1, last: value }
    }

    fn and(self, other: Self) -> Self {
        let last = if other.count > 0 { other.last } else { self.last };
        Self { count: self.count + other.count, last }
    }

    fn count(&self) -> usize {
        self.count
    }
}

/// The first value minus all others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Difference {
    count: usize,
    pub(super) difference: f64,
    sum: f64,
}

impl PartialAggregate for Difference {
    const EMPTY: Self = Self { count: 0, difference: f64::NAN, sum: 0.0 };

    fn of(value: f64) -> Self {
        Self { count: 1, difference: value, sum: value }
    }

    fn and(self, other: Self) -> Self {
        let difference = if self.count > 0 { self.difference - other.sum } else { other.difference };
        Self { count: self.count + other.count, difference, sum: self.sum + other.sum }
    }

    fn count(&self) -> usize {
        self.count
    }
}

/// A number `fraction` × 2^`exponent`, which may be out of the range of a float.
#[derive(Debug, Clone, Copy)]
struct Scaled {
    /// From 1 to 2, or negative; or zero, infinite or NaN.
    fraction: f64,
    exponent: i64,
}

impl Scaled {
    const ONE: Self = Self { fraction: 1.0, exponent: 0 };

    fn normal(fraction: f64, exponent: i64) -> Self {
        let bits = fraction.to_bits();
        match (bits >> 52 & 0x7ff) as i64 {
            0 | 0x7ff => Self { fraction, exponent },
            biased => {
                let fraction = f64::from_bits(bits & !(0x7ff << 52) | 1023 << 52);
                Self { fraction, exponent: exponent + biased - 1023 }
            }
        }
    }

    fn of(value: f64) -> Self {
        match value.is_subnormal() {
            true => Self::normal(value * 2f64.powi(64), -64),
            false => Self::normal(value, 0),
        }
    }

    fn times(self, other: Self) -> Self {
        Self::normal(self.fraction * other.fraction, self.exponent + other.exponent)
    }

    fn is_above(self, other: Self) -> bool {
        (self.exponent, self.fraction.abs()) > (other.exponent, other.fraction.abs())
    }

    fn value(self) -> f64 {
        if self.fraction == 0.0 {
            return self.fraction;
        }
        // in two steps, because the power may be out of range where the product is not
        let exponent = self.exponent.clamp(-2200, 2200) as i32;
        let (half, rest) = (exponent / 2, exponent - exponent / 2);
        let power = |exponent: i32| {
            let whole = exponent.clamp(-1022, 1023);
            f64::from_bits(((whole + 1023) as u64) << 52) * 2f64.powi(exponent - whole)
        };
        self.fraction * power(half) * power(rest)
    }
}

/// A product that can be put together from parts that are out of the range of a float. graphite-web multiplies from left to
/// right, and what is once out of range stays so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    count: usize,
    all: Scaled,
    /// The greatest and the smallest product on the way from left to right, up to the first zero.
    highest: Scaled,
    lowest: Scaled,
}

impl Product {
    pub(super) fn value(self) -> f64 {
        let (is_too_large, is_too_small) = (self.highest.exponent > 1023, self.lowest.exponent < -1075);
        match (is_too_large, is_too_small) {
            (true, false) => self.all.fraction * f64::INFINITY,
            (false, true) => self.all.fraction * 0.0,
            // if both, it is not known which came first
            _ => self.all.value(),
        }
    }
}

impl PartialAggregate for Product {
    const EMPTY: Self = Self { count: 0, all: Scaled::ONE, highest: Scaled::ONE, lowest: Scaled::ONE };

    fn of(value: f64) -> Self {
        let all = Scaled::of(value);
        // before a zero, there is nothing
        let on_the_way = if value == 0.0 { Scaled::ONE } else { all };
        Self { count: 1, all, highest: on_the_way, lowest: on_the_way }
    }

    fn and(self, other: Self) -> Self {
        let (count, all) = (self.count + other.count, self.all.times(other.all));
        if self.all.fraction == 0.0 {
            return Self { count, all, ..self };
        }
        let (high, low) = (self.all.times(other.highest), self.all.times(other.lowest));
        Self {
            count,
            all,
            highest: if high.is_above(self.highest) { high } else { self.highest },
            lowest: if self.lowest.is_above(low) { low } else { self.lowest },
        }
    }

    fn count(&self) -> usize {
        self.count
    }
}

/// Sums with twice the precision of the values, so that the small difference of two large ones is known. The values are
/// at most 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    count: usize,
    sum: Precise,
    squares: Precise,
}

impl Spread {
    /// Standard deviation of the population.
    pub(super) fn deviation(self) -> f64 {
        let count = self.count as f64;
        let variance = self.squares.minus(self.sum.squared().divided(count)).divided(count).rounded();
        // rounding can make the difference negative
        if variance < 0.0 { 0.0 } else { variance.sqrt() }
    }
}

impl PartialAggregate for Spread {
    const EMPTY: Self = Self { count: 0, sum: Precise::ZERO, squares: Precise::ZERO };

    fn of(value: f64) -> Self {
        Self { count: 1, sum: Precise::of(value), squares: Precise::of(value).squared() }
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum.plus(other.sum),
            squares: self.squares.plus(other.squares),
        }
    }

    fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<P: PartialAggregate>(values: &[f64]) -> P {
        values.iter().fold(P::EMPTY, |part, value| part.and(P::of(*value)))
    }

    #[test]
    fn products_of_any_order() {
        let check = |values: &[f64], expected: f64| {
            for split in 0..=values.len().min(10) {
                let (left, right) = values.split_at(split);
                let found = of::<Product>(left).and(of::<Product>(right)).value();
                assert!(found == expected || found.is_nan() && expected.is_nan(), "{values:?}: {found}");
            }
        };
        check(&[], 1.0);
        check(&[3.0, -0.5, 4.0], -6.0);
        check(&[0.0, 5.0], 0.0);
        check(&[2f64.powi(999), 2f64.powi(-999), 3.0 * 2f64.powi(20)], 3.0 * 2f64.powi(20));
        check(&[2f64.powi(-1000), 2f64.powi(-60)], 2f64.powi(-1000) * 2f64.powi(-60));
        check(&[5e-324, 2f64.powi(1023)], 2f64.powi(-51));
        check(&[1e-300, 1e-300], 0.0);
        check(&[-1e300, 1e300], f64::NEG_INFINITY);
        check(&[f64::INFINITY, -2.0], f64::NEG_INFINITY);
        check(&[f64::INFINITY, 0.0], f64::NAN);
        check(&[f64::MAX], f64::MAX);
        // once out of range, always out of range
        check(&[1e300, 1e300, 1e-300], f64::INFINITY);
        check(&[1e300, 1e300, 0.0], f64::NAN);
        check(&[1e300, 0.0, 1e300, 1e300], 0.0);
        check(&[1e-300, 1e-300, 1e300, 1e300], 0.0);
        check(&vec![2.0; 1023], 2f64.powi(1023));
        check(&vec![2.0; 100_000], f64::INFINITY);
    }

    #[test]
    fn deviations_of_large_numbers_that_differ_little() {
        for base in [0.0, 1.0, 1e6, 1e9] {
            // exact numbers, whose deviation is known
            let values: Vec<_> = (0..100_000).map(|i| (base + f64::from(i % 2)) / 2f64.powi(40)).collect();
            let found = of::<Spread>(&values).deviation() * 2f64.powi(40);
            assert!((found - 0.5).abs() < 1e-12, "{base}: {found}");
        }
        assert!(of::<Spread>(&[]).deviation().is_nan());
        assert!(of::<Spread>(&[0.1; 1000]).deviation() < 1e-15);
    }
}
