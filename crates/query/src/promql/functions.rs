//! PromQL's functions.
//!
//! - [`table`]: the list of all functions
//! - [`instant`]: functions of values at one time, such as `abs`
//! - [`scalar`]: functions that return a scalar
//! - [`range`]: functions of a window of samples, such as `rate`
//!
//! A new function needs a line in the table, and its computation in another module. Aggregations such as
//! `sum` are operators ([`super::aggregate`]).

mod instant;
pub(super) mod range;
mod scalar;
mod table;

pub(super) use table::{Function, Signature};
