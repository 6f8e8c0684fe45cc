/// What a rollup stores about the samples that a series has in one interval, called a bucket.
/// Staleness markers do not count as samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    Count,
    /// The value of the first sample. The sample's timestamp is stored, too.
    First,
    /// How much a counter increased from the first to the last sample of the bucket. A reset counts
    /// as a restart from zero.
    Increase,
    /// The value of the last sample. The sample's timestamp is stored, too.
    Last,
    /// Greatest value, or NaN if all values are NaN. If values are equal (such as 0 and -0), it is
    /// the first of them.
    Max,
    /// Least value, or NaN if all values are NaN. If values are equal (such as 0 and -0), it is the
    /// first of them.
    Min,
    /// Values are added in time order, because the order affects rounding.
    Sum,
}

impl Statistic {
    /// Sorted by name, so that `statistic as usize` is the index of a statistic.
    pub const ALL: [Self; 7] =
        [Self::Count, Self::First, Self::Increase, Self::Last, Self::Max, Self::Min, Self::Sum];

    /// Rollup tables store these names, so they never change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::First => "first",
            Self::Increase => "increase",
            Self::Last => "last",
            Self::Max => "max",
            Self::Min => "min",
            Self::Sum => "sum",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_sorted_by_name() {
        assert!(Statistic::ALL.is_sorted_by_key(|s| s.name()));
        assert!(Statistic::ALL.iter().enumerate().all(|(i, s)| *s as usize == i));
    }
}
