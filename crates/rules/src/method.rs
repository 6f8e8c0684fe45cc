//! How values at a fine step become a value at a coarser step.

/// Whisper's aggregation methods. The number is their code in a Whisper file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Average = 1,
    Sum = 2,
    Last = 3,
    Max = 4,
    Min = 5,
    /// The average, where a missing value counts as zero.
    AvgZero = 6,
    /// The value with the largest absolute value, with its sign.
    AbsMax = 7,
    AbsMin = 8,
}

impl Method {
    pub const ALL: [Self; 8] = [
        Self::Average,
        Self::Sum,
        Self::Last,
        Self::Max,
        Self::Min,
        Self::AvgZero,
        Self::AbsMax,
        Self::AbsMin,
    ];

    /// The name in `storage-aggregation.conf`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Sum => "sum",
            Self::Last => "last",
            Self::Max => "max",
            Self::Min => "min",
            Self::AvgZero => "avg_zero",
            Self::AbsMax => "absmax",
            Self::AbsMin => "absmin",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Aggregates the values of one slot of the coarser step, in the order of time. NaN stands for a missing value.
    /// Returns none if fewer than `x_files_factor` of the values exist, or none exists.
    #[must_use]
    pub fn aggregate(self, values: &[f64], x_files_factor: f64) -> Option<f64> {
        let known = || values.iter().copied().filter(|value| !value.is_nan());
        let count = known().count();
        if count == 0 || (count as f64 / values.len() as f64) < x_files_factor {
            return None;
        }
        Some(match self {
            Self::Average => known().sum::<f64>() / count as f64,
            Self::AvgZero => known().sum::<f64>() / values.len() as f64,
            Self::Sum => known().sum(),
            Self::Last => known().next_back()?,
            Self::Max => first_best(known(), |new, best| new > best)?,
            Self::Min => first_best(known(), |new, best| new < best)?,
            Self::AbsMax => first_best(known(), |new, best| new.abs() > best.abs())?,
            Self::AbsMin => first_best(known(), |new, best| new.abs() < best.abs())?,
        })
    }
}

/// Returns the first of the best values: of `-1` and `1`, this is the one that comes first.
fn first_best(values: impl Iterator<Item = f64>, better: fn(f64, f64) -> bool) -> Option<f64> {
    values.reduce(|best, new| if better(new, best) { new } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_whisper() {
        let values = [1.0, f64::NAN, -4.0, 3.0];
        for (method, expected) in [
            (Method::Average, 0.0),
            (Method::Sum, 0.0),
            (Method::Last, 3.0),
            (Method::Max, 3.0),
            (Method::Min, -4.0),
            (Method::AvgZero, 0.0),
            (Method::AbsMax, -4.0),
            (Method::AbsMin, 1.0),
        ] {
            assert_eq!(method.aggregate(&values, 0.5), Some(expected), "{method:?}");
            assert_eq!(method.aggregate(&values, 0.75), Some(expected), "{method:?}");
            assert_eq!(method.aggregate(&values, 0.76), None, "{method:?}");
            assert_eq!(method.aggregate(&[f64::NAN], 0.0), None, "{method:?}");
            assert_eq!(Method::named(method.name()), Some(method));
        }
        assert_eq!(Method::AvgZero.aggregate(&[4.0, f64::NAN], 0.0), Some(2.0));
        assert_eq!(Method::AbsMax.aggregate(&[-1.0, 1.0], 0.0), Some(-1.0));
        assert_eq!(Method::named("median"), None);
    }
}
