//! Numbers with twice the precision of a float: the sum of a float and of its rounding error.
//!
//! The operations are those of T. J. Dekker, "A floating-point technique for extending the available precision" (1971).

#[derive(Debug, Clone, Copy)]
pub(super) struct Precise {
    high: f64,
    low: f64,
}

impl Precise {
    pub(super) const ZERO: Self = Self { high: 0.0, low: 0.0 };

    pub(super) const fn of(value: f64) -> Self {
        Self { high: value, low: 0.0 }
    }

    /// The exact sum of two floats.
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let of_b = high - a;
        Self { high, low: (a - (high - of_b)) + (b - of_b) }
    }

    fn with(self, low: f64) -> Self {
        Self::sum(self.high, self.low + low)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self::sum(self.high, other.high).with(self.low + other.low)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(Self { high: -other.high, low: -other.low })
    }

    pub(super) fn squared(self) -> Self {
        let high = self.high * self.high;
        Self { high, low: self.high.mul_add(self.high, -high) }.with(2.0 * self.high * self.low)
    }

    pub(super) fn divided(self, by: f64) -> Self {
        let high = self.high / by;
        let rest = high.mul_add(-by, self.high) + self.low;
        Self { high, low: 0.0 }.with(rest / by)
    }

    pub(super) fn rounded(self) -> f64 {
        self.high + self.low
    }
}
