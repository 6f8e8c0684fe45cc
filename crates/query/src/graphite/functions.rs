//! All functions of Graphite's targets.
//!
//! Each family has a module with its functions and a list of them. To add a function, write it, add it to the list of
//! its family, and test it beside it. A function gets a [`Call`](super::call::Call), from which it takes its
//! arguments by the names of its parameters, and a sink for the series it makes.

mod alias;
mod combine;
mod each;
mod filter;
mod forecast;
mod gaps;
mod generate;
mod graph;
mod key;
mod legend;
mod moving;
mod percentile;
mod ranked;
mod rates;
mod shift;
mod special;
mod summarize;
pub mod table;
mod transform;

pub use table::{Function, Group, Param, Type};

/// The functions of all families.
const FAMILIES: &[&[Function]] = &[
    alias::FUNCTIONS,
    combine::AGGREGATIONS,
    combine::GROUPS,
    combine::MAP_REDUCE,
    combine::PAIRS,
    combine::PERCENT,
    filter::FUNCTIONS,
    forecast::FUNCTIONS,
    gaps::FUNCTIONS,
    generate::FUNCTIONS,
    graph::FUNCTIONS,
    legend::FUNCTIONS,
    moving::FUNCTIONS,
    percentile::FUNCTIONS,
    ranked::FUNCTIONS,
    rates::FUNCTIONS,
    shift::FUNCTIONS,
    special::FUNCTIONS,
    summarize::FUNCTIONS,
    transform::FUNCTIONS,
];

/// All functions, without their aliases.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// Finds a function by its name or an alias.
pub fn find(name: &str) -> Option<&'static Function> {
    all().find(|function| function.name == name || function.aliases.contains(&name))
}

#[cfg(test)]
mod tests;
