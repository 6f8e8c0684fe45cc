//! Graphite's render API: targets, times and functions, with the semantics of graphite-web 1.1.10.
//!
//! ```text
//!   text ──parse──▶ ast ──bind──▶ Target ──render──▶ Vec<Series>
//!                    templates,     │        ▲
//!                    types          ▼        │  one series at a time
//!                                 Source ────┘
//! ```
//!
//! - [`at_time`]: times such as `-1h` and `midnight+2h`
//! - [`parse`](mod@parse), `ast`, `bind`: text to a checked tree
//! - [`glob`]: patterns of paths
//! - [`tag`]: the expressions of `seriesByTag`
//! - [`source`], [`slots`]: what storage implements, and how samples become values at equal steps
//! - [`series`], [`consolidate`]: a series, and many values to one
//! - `eval`, `call`, `held`: evaluation, and what a function may ask for
//! - `stacks`: what calls of `stacked` hand to each other
//! - [`functions`]: all functions
//! - `name`: names that functions put together, with their limit
//! - `moving`, `intervals`, `holt_winters`: computations of several functions
//! - `pattern`: regular expressions in arguments
//! - `rounding`, `text`, `calendar`: numbers and days as graphite-web has them
//!
//! Evaluation pushes one series after the other through the functions. Only functions that need several series
//! at once hold them (`held`), and memory for them is counted before it is taken.

mod ast;
pub mod at_time;
mod bind;
mod calendar;
mod call;
pub mod consolidate;
mod eval;
pub mod functions;
pub mod glob;
mod held;
mod holt_winters;
mod intervals;
pub mod label_source;
mod moving;
mod name;
mod parse;
mod pattern;
mod rounding;
pub mod series;
pub mod slots;
pub mod source;
mod stacks;
pub mod tag;
mod text;

pub use consolidate::Aggregate;
pub use glob::Glob;
pub use label_source::{LabelSource, Schemas};
pub use series::{Series, Tags};
pub use slots::{Archive, Layout, Schema, Slots};
pub use source::{Selection, Source, Stored};

use crate::QueryError;
use crate::allowance::Allowance;
use crate::interrupt::Interrupt;
use crate::meter::Meter;
use crate::usage::Usage;
use jiff::tz::TimeZone;

/// Longest target in bytes. Users list thousands of hosts in braces.
pub const TARGET_BYTES_MAX: usize = 256 << 10;

/// Maximum nesting of calls. Each pipe counts as a level.
pub const TARGET_DEPTH_MAX: usize = 64;

/// A target that is parsed, and whose calls are checked.
#[derive(Debug)]
pub struct Target {
    root: bind::Node,
}

/// Values for the variables of `template`, by name. They override those in the target.
pub type Variables = [(String, String)];

/// Parses a target within the limits of a request.
pub fn parse(text: &str, variables: &Variables, allowance: &mut Allowance) -> Result<Target, QueryError> {
    let ast = parse::target(text, allowance)?;
    Ok(Target { root: bind::target(text, &ast, variables, false, allowance)? })
}

#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The first slot is the first one that begins after this time, in seconds since 1970.
    pub from_s: i64,
    /// The last slot is the one that contains this time.
    pub until_s: i64,
    pub now_s: i64,
    pub time_zone: &'a TimeZone,
    /// Fraction (0 to 1) of an interval's values that must be present. Applies to all aggregating functions.
    pub x_files_factor: Option<f64>,
    /// Number of points for which the client has room. Functions may use it; the answer is not consolidated yet,
    /// see [`consolidate::fit`].
    pub max_data_points: Option<u64>,
    /// Values for the variables of `template`. They also apply to targets that functions build.
    pub variables: &'a Variables,
    /// Maximum number of values held at once, at 16 bytes each.
    pub samples_max: u64,
    /// Paths without samples in the range are left out if they would leave less than this of `samples_max` free, so that metrics which
    /// ended long ago do not cause a query of others to fail. `countSeries` gets all of them nevertheless.
    pub kept_free: u64,
    /// Memory that the source may take for the list of paths that a glob with wildcards matches. What the list takes is charged
    /// while the series of the glob are read.
    pub listed_bytes: u64,
    /// Limits on targets that functions build while the request is evaluated.
    pub built: &'a Allowance,
    pub canceled: &'a dyn Interrupt,
    pub usage: Option<&'a Usage>,
}

/// Evaluates the targets in their order, and returns the series of all of them.
pub fn render(
    targets: &[Target],
    source: &dyn Source,
    options: &Options<'_>,
) -> Result<Vec<Series>, QueryError> {
    let meter = Meter::new(options.samples_max, options.canceled, options.usage);
    let evaluator = eval::Evaluator::new(source, &meter, options);
    let context = eval::Context::of(options);
    let mut all = held::Held::new(&meter);
    for target in targets {
        evaluator.each(&target.root, &context, source::Order::ByName, &mut |series| all.push(series))?;
    }
    Ok(all.into_series())
}

#[cfg(test)]
mod test_store;
#[cfg(test)]
mod tests;
