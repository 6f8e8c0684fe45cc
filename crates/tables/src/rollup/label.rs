//! Label that rollups add to each series.

/// Label with the statistic of a series. It sorts before all label names without special characters, so that adding it
/// keeps the order of series.
pub const LABEL: &str = "$rollup";

/// Value of [`LABEL`] in the series that counts omitted series.
pub const OMITTED: &str = "left_out";
