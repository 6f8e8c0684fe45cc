//! PromQL's functions, grouped by their arguments and results.
//!
//! - [`table`]: the list of all functions: names, types of arguments and values
//! - [`instant`]: functions of values at one time, such as `abs`, `label_replace` and `histogram_quantile`
//! - [`scalar`]: functions that return a scalar, such as `time` and `scalar`
//! - [`range`]: functions of a window of samples, such as `rate` and `quantile_over_time`
//!
//! To add a function, add a line to the table and the computation to one of the other three modules.
//! Aggregations such as `sum` and `topk` are operators: see [`super::aggregate`].

mod instant;
pub(super) mod range;
mod scalar;
mod table;

pub(super) use table::{Function, Signature};
