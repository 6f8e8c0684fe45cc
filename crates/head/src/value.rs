//! The kinds of value that a head stores.

use crate::late::LateValue;
use model::Histogram;

pub trait Value: LateValue {}

impl Value for f64 {}
impl Value for Histogram {}

#[cfg(test)]
pub(crate) mod tests;
