//! Choice between raw samples and rollups for a query.

use tables::rollup::Resolution;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Samples,
    /// Use the coarsest rollup that gives the same answer as the samples, or the samples if there is no such rollup.
    Auto,
    /// Use this rollup if it gives the same answer as the samples, and the samples otherwise.
    Rollup(Resolution),
}

impl Detail {
    pub const WORDS: &str = "one of raw, auto, 5m, 1h";

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "raw" => Self::Samples,
            "auto" => Self::Auto,
            "5m" => Self::Rollup(Resolution::FiveMinutes),
            "1h" => Self::Rollup(Resolution::Hour),
            _ => return None,
        })
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Samples => "raw",
            Self::Auto => "auto",
            Self::Rollup(Resolution::FiveMinutes) => "5m",
            Self::Rollup(Resolution::Hour) => "1h",
        }
    }
}
