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

    /// Parses a name. go-carbon also accepts `avg`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "avg" => Some(Self::Average),
            _ => Self::ALL.into_iter().find(|method| method.name() == name),
        }
    }

    /// The number in a Whisper file.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for method in Method::ALL {
            assert_eq!(Method::named(method.name()), Some(method));
        }
        assert_eq!(Method::named("avg"), Some(Method::Average));
        assert_eq!(Method::named("median"), None);
    }
}
