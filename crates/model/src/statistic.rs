//! Aggregates that represent a series' samples over an interval.

/// A figure of the samples of a stretch of time, called a bucket. Staleness markers are not samples here; NaNs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// How many samples.
    Count,
    /// The first value, with its time.
    First,
    /// By how much a counter grew from the bucket's first to its last sample, across resets: their difference, and the value
    /// before each reset. What lies between two buckets is told by the last value of one and the first of the next.
    Increase,
    /// The last value, with its time.
    Last,
    /// The first of the greatest that are not NaN; else the last NaN.
    Max,
    /// The first of the least that are not NaN; else the last NaN.
    Min,
    /// Their sum, added up in order of time.
    Sum,
}

impl Statistic {
    /// All of them, by name; `statistic as usize` is the place of each.
    pub const ALL: [Self; 7] =
        [Self::Count, Self::First, Self::Increase, Self::Last, Self::Max, Self::Min, Self::Sum];

    /// Its name. Rollup tables keep it as a label: it never changes.
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
    fn they_are_in_order() {
        assert!(Statistic::ALL.is_sorted_by_key(|s| s.name()));
        assert!(Statistic::ALL.iter().enumerate().all(|(i, s)| *s as usize == i));
    }
}
