//! Aggregates that represent a series' samples over an interval.

/// Aggregate of a series' samples in one interval, called a bucket. Staleness markers do not count as samples, but
/// other NaNs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// Number of samples.
    Count,
    /// The first value, with its timestamp.
    First,
    /// Increase of a counter from the bucket's first to its last sample, across resets: the difference of these two,
    /// plus the value before each reset. The increase between two buckets follows from the last value of the earlier
    /// bucket and the first value of the later one.
    Increase,
    /// The last value, with its timestamp.
    Last,
    /// Greatest value that is not NaN; among equal values, the first. If all values are NaN: the last NaN.
    Max,
    /// Least value that is not NaN; among equal values, the first. If all values are NaN: the last NaN.
    Min,
    /// Sum of the values, added in time order.
    Sum,
}

impl Statistic {
    /// All statistics, sorted by name. The index of a statistic is `statistic as usize`.
    pub const ALL: [Self; 7] =
        [Self::Count, Self::First, Self::Increase, Self::Last, Self::Max, Self::Min, Self::Sum];

    /// Name of the statistic. The name never changes, because rollup tables store it as a label.
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
