//! Label that rollups add to each series.

/// Label with a series' statistic. It sorts before all label names in Prometheus' former character set, so that it
/// keeps the order of series.
pub const LABEL: &str = "$rollup";

/// Value of [`LABEL`] in the series that counts omitted series.
pub const OMITTED: &str = "left_out";
