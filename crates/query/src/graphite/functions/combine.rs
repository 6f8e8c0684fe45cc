//! Functions that make one series of several.
//!
//! - [`aggregations`]: one result of all series
//! - [`groups`]: one result for each group of series
//! - [`pairs`]: series of two lists, pair by pair
//! - [`percent`]: parts of a total
//! - [`map_reduce`]: lists of series, and targets that are built for each group
//! - `fold`: adds series to a result

mod aggregations;
mod fold;
mod groups;
mod map_reduce;
mod pairs;
mod percent;

use super::table::{Function, Param, Type};

const SERIES_LISTS: Param = Param::required("seriesLists", Type::SeriesList).multiple();
const NODES: Param = Param::optional("nodes", Type::NodeOrTag).multiple();
const X_FILES_FACTOR: Param = Param::optional("xFilesFactor", Type::Float);
const FUNC: Param = Param::required("func", Type::AggFunc);

pub(super) const AGGREGATIONS: &[Function] = aggregations::FUNCTIONS;
pub(super) const GROUPS: &[Function] = groups::FUNCTIONS;
pub(super) const MAP_REDUCE: &[Function] = map_reduce::FUNCTIONS;
pub(super) const PAIRS: &[Function] = pairs::FUNCTIONS;
pub(super) const PERCENT: &[Function] = percent::FUNCTIONS;

#[cfg(test)]
mod tests;
