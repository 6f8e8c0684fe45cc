//! Label that rollups add to each series.

/// Label with the statistic of a series in a rollup table. The label sorts before all label names that
/// Prometheus allowed before it permitted arbitrary UTF-8. So adding the label keeps the order of series.
pub const LABEL: &str = "$rollup";

/// Value of [`LABEL`] in the series that records how many series of a metric were omitted.
pub const OMITTED: &str = "left_out";
