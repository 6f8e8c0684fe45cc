/// Aggregate of a series' samples in one interval, called a bucket. Staleness markers do not count as
/// samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    Count,
    /// The first value, with its timestamp.
    First,
    /// Increase of a counter from the first to the last sample of the bucket, across resets.
    Increase,
    /// The last value, with its timestamp.
    Last,
    /// Greatest value, or NaN if all values are NaN. The first of equal values counts.
    Max,
    /// Least value, or NaN if all values are NaN. The first of equal values counts.
    Min,
    /// Sum of the values in time order.
    Sum,
}

impl Statistic {
    /// All statistics, sorted by name. `statistic as usize` is the index.
    pub const ALL: [Self; 7] =
        [Self::Count, Self::First, Self::Increase, Self::Last, Self::Max, Self::Min, Self::Sum];

    /// Name of the statistic. Rollup tables store it, so it never changes.
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
