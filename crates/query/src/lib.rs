//! PromQL over a source of series that the caller provides, with the semantics of Prometheus 3.
//!
//! The crate has no HTTP, no async, no clock and no threads. An expression, times and a [`SeriesSource`] go
//! in. An [`Answer`] comes out.
//!
//! - [`graphite`]: Graphite's targets, functions and times
//! - [`source`]: the trait that storage implements
//! - [`interrupt`]: how the caller ends an evaluation
//! - [`allowance`]: limits on the expressions of one request
//! - [`matcher`]: label matchers
//! - [`memory_source`]: a source in memory, for tests and benchmarks
//! - [`promql`]: parse and evaluate
//! - [`usage`]: memory and samples of an evaluation, readable from other threads

pub mod allowance;
pub mod graphite;
pub mod interrupt;
pub mod matcher;
pub mod memory_source;
mod meter;
pub mod promql;
pub mod source;
pub mod usage;

pub use allowance::Allowance;
pub use interrupt::Interrupt;
pub use matcher::{MatchOp, Matcher, MatcherError};
pub use promql::{
    Answer, Expr, Options, QueryError, QueryErrorKind, Value, ValueType, instant, parse, parse_selector,
    parse_selector_within, parse_within, range,
};
pub use source::{
    Bucket, BucketSet, RangeWindows, Rolled, RolledSelect, Select, SelectGlob, SeriesSet, SeriesSource,
    Silent, SourceError,
};
pub use usage::Usage;
