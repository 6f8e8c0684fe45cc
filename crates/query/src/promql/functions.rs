//! PromQL's functions, by what they read.
//!
//! - [`instant`]: functions of values at one time, such as `abs`, `label_replace` and `histogram_quantile`
//! - [`range`]: functions of a window of samples, such as `rate` and `quantile_over_time`
//!
//! A new function is a variant of [`super::ast::Function`], with its name and the types of its arguments there, and its
//! computation here. Aggregations such as `sum` and `topk` are operators: see [`super::aggregate`].

mod instant;
pub(super) mod range;
