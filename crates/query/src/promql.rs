//! PromQL: text to expression to answer.
//!
//! ```text
//!   text ──parse──▶ Expr ──instant / range──▶ Answer
//!                            │        ▲
//!                            ▼        │  one series at a time, all its steps at once
//!                        SeriesSource ┘
//! ```
//!
//! Evaluation goes over series, not over steps. Each selector pulls every series once and computes all steps
//! in one pass ([`functions::range`]). Later operations are applied to the whole row ([`stream`]). An
//! aggregation adds the row to its group and drops the row ([`aggregate`]). Only operations that need several
//! series at once (vector matching, sorting) hold a [`matrix`].

mod aggregate;
mod ast;
mod binary;
mod eval;
mod float;
mod functions;
mod grid;
mod label_set;
mod matrix;
mod meter;
mod operator;
mod parse;
mod row;
mod rows;
mod select;
mod stream;

use crate::allowance::Allowance;
use crate::interrupt::Interrupt;
use crate::matcher::Matcher;
use crate::source::{SeriesSource, SourceError};
use crate::usage::Usage;
use model::{Labels, Samples};
/// Longest expression, in bytes.
pub const EXPR_BYTES_MAX: usize = 256 << 10;

/// Maximum depth of an expression, because evaluation recurses. Each operator of a chain counts as a level.
pub const EXPR_DEPTH_MAX: usize = 200;

/// Maximum number of warnings, and of infos, that are kept for one evaluation.
pub const ANNOTATIONS_MAX: usize = 100;

/// Maximum length of a warning or info in bytes. Longer texts are cut. Texts can be long, because they can
/// contain label values.
const ANNOTATION_BYTES_MAX: usize = 1 << 10;

/// A parsed expression, ready to be evaluated any number of times.
#[derive(Debug, Clone)]
pub struct Expr {
    root: ast::Node,
}

impl Expr {
    /// Type of the expression's value.
    pub fn value_type(&self) -> ValueType {
        self.root.value_type()
    }

    /// Matchers of each selector of the expression, from left to right.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let mut all = Vec::new();
        self.root.selectors(&mut all);
        all
    }
}

/// The types of PromQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A number for each step.
    Scalar,
    /// A text.
    String,
    /// A set of series with one value a step.
    Vector,
    /// A set of series with many samples.
    Matrix,
}

impl ValueType {
    /// The word that the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
        }
    }

    /// The words that Prometheus' messages use.
    const fn described(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
        }
    }
}

/// Options of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Time for which an instant selector looks back for a sample (exclusive).
    pub lookback_delta_ms: i64,
    /// The step of subqueries that specify none.
    pub subquery_step_ms: i64,
    /// Maximum number of values held at once. Each value takes up to 16 bytes of memory. One value is a
    /// sample, a computed point, or eight bytes of a held series' labels. Each held series counts as a few
    /// more values.
    pub samples_max: u64,
    /// Checked in every loop that can be long. Once the interrupt is set, evaluation ends with
    /// [`QueryError::Canceled`].
    pub canceled: &'a dyn Interrupt,
    /// Counters for the values that the evaluation holds and reads.
    pub usage: Option<&'a Usage>,
    /// Metric names are dropped at the very end and not at each operation (Prometheus' feature
    /// `promql-delayed-name-removal`, off by default there).
    pub delayed_name_removal: bool,
}

impl<'a> Options<'a> {
    /// Prometheus' defaults.
    pub const fn new(canceled: &'a dyn Interrupt) -> Self {
        Self {
            lookback_delta_ms: 5 * 60 * 1000,
            subquery_step_ms: 60 * 1000,
            samples_max: 50_000_000,
            canceled,
            usage: None,
            delayed_name_removal: false,
        }
    }
}

/// Result of an expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub value: Value,
    /// Probable mistakes in the query or the data, in Prometheus' words, sorted.
    pub warnings: Vec<String>,
    /// Possible mistakes, in Prometheus' words, sorted.
    pub infos: Vec<String>,
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number at the evaluation time.
    Scalar { timestamp_ms: i64, value: f64 },
    /// A text at the evaluation time.
    String { timestamp_ms: i64, value: String },
    /// Series with one value each: labels, milliseconds, value. The order is meaningful only for sorting
    /// functions.
    Vector(Vec<(Labels, i64, f64)>),
    /// Series with their points, sorted by labels.
    Matrix(Vec<(Labels, Samples)>),
}

/// Kind of failure, as named by Prometheus' HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryErrorKind {
    /// The expression or a parameter is wrong.
    BadData,
    /// The data does not allow the operation, or the query exceeds a limit.
    Execution,
    /// The query took too long.
    Timeout,
    /// The query was canceled.
    Canceled,
    /// Storage cannot answer now: the same query may succeed later.
    Unavailable,
    /// Storage failed, or there is a bug.
    Internal,
}

impl QueryErrorKind {
    /// Prometheus' `errorType`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadData => "bad_data",
            Self::Execution => "execution",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// Failure of a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The expression cannot be parsed.
    #[error("{0}")]
    Parse(String),
    /// The expression does not fit the request.
    #[error("{0}")]
    Invalid(String),
    /// The data does not allow the operation.
    #[error("{0}")]
    Execution(String),
    /// The query exceeds [`Options::samples_max`].
    #[error("query processing would load too many samples into memory in query execution")]
    TooLarge,
    /// Time limit reached. This crate has no clock and never returns this error. A caller that cancels a
    /// query because of its time limit replaces [`QueryError::Canceled`] by this error.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// [`Options::canceled`] became true.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// Storage failed.
    #[error("expanding series: {0}")]
    Source(#[from] SourceError),
}

impl QueryError {
    /// Kind of this failure.
    pub fn kind(&self) -> QueryErrorKind {
        match self {
            Self::Parse(_) | Self::Invalid(_) => QueryErrorKind::BadData,
            Self::Execution(_) | Self::TooLarge => QueryErrorKind::Execution,
            Self::Timeout => QueryErrorKind::Timeout,
            Self::Canceled => QueryErrorKind::Canceled,
            Self::Source(error) => match error.kind {
                model::ErrorKind::Internal | model::ErrorKind::Data => QueryErrorKind::Internal,
                model::ErrorKind::Unavailable => QueryErrorKind::Unavailable,
                _ => QueryErrorKind::Execution,
            },
        }
    }
}

/// Parses an expression within the fixed limits of a request, without a limit on its memory.
pub fn parse(text: &str) -> Result<Expr, QueryError> {
    parse_within(text, &mut Allowance::new(u64::MAX))
}

/// Parses one of a request's expressions within the request's limits.
pub fn parse_within(text: &str, allowance: &mut Allowance) -> Result<Expr, QueryError> {
    Ok(Expr { root: parse::expression(text, allowance)? })
}

/// Parses a series selector, as `match[]` takes it: `up`, `{job="x"}`, `up{job=~"a|b"}`.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse_selector_within(text, &mut Allowance::new(u64::MAX))
}

/// Parses one of a request's series selectors within the request's limits.
pub fn parse_selector_within(text: &str, allowance: &mut Allowance) -> Result<Vec<Matcher>, QueryError> {
    parse::selector(text, allowance)
}

/// Evaluates an expression at one time.
pub fn instant(
    expr: &Expr,
    at_ms: i64,
    source: &dyn SeriesSource,
    options: &Options<'_>,
) -> Result<Answer, QueryError> {
    eval::instant(&expr.root, at_ms, source, options)
}

/// Evaluates an expression at `start_ms` and every `step_ms` after that, up to and including `end_ms`. The
/// caller limits the number of steps.
pub fn range(
    expr: &Expr,
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
    source: &dyn SeriesSource,
    options: &Options<'_>,
) -> Result<Answer, QueryError> {
    eval::range(&expr.root, start_ms, end_ms, step_ms, source, options)
}

#[cfg(test)]
mod tests;
