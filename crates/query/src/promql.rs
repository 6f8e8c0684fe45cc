//! PromQL: text to expression to answer.
//!
//! ```text
//!   text ──parse──▶ Expr ──instant / range──▶ Answer
//!                            │        ▲
//!                            ▼        │  one series at a time, all its steps at once
//!                        SeriesSource ┘
//! ```
//!
//! A selector reads each series once and computes all steps ([`functions::range`]). Later operations take a
//! whole row ([`stream`]). Aggregations add the row to a group ([`aggregate`]). Only vector matching and
//! sorting hold many series ([`matrix`]).

mod aggregate;
mod ast;
mod binary;
mod eval;
mod float;
mod functions;
mod grid;
mod label_set;
mod matrix;
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
pub const EXPR_BYTES_MAX: usize = 256 << 10;

/// Maximum depth of an expression. Each operator of a chain counts as a level.
pub const EXPR_DEPTH_MAX: usize = 200;

/// Maximum number of warnings of one evaluation. Infos have the same limit, and are counted separately.
pub const ANNOTATIONS_MAX: usize = 100;

/// Maximum length of a warning or info in bytes. Longer texts are cut.
const ANNOTATION_BYTES_MAX: usize = 1 << 10;

#[derive(Debug, Clone)]
pub struct Expr {
    root: ast::Node,
}

impl Expr {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Scalar,
    String,
    Vector,
    Matrix,
}

impl ValueType {
    /// Name of the type in answers of the HTTP API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
        }
    }

    const fn described(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// An instant selector ignores samples of this age or older.
    pub lookback_delta_ms: i64,
    /// Step of subqueries that specify none, such as `[1h:]`.
    pub subquery_step_ms: i64,
    /// Maximum number of values held at once. A value is a sample, a computed point (up to 16 bytes), or
    /// eight bytes of labels.
    pub samples_max: u64,
    /// Once this interrupt is set, evaluation ends with [`QueryError::Canceled`].
    pub canceled: &'a dyn Interrupt,
    /// Receives the memory that the evaluation holds and the number of samples that it reads.
    pub usage: Option<&'a Usage>,
    /// True if metric names are dropped only at the end of the evaluation (Prometheus' feature
    /// `promql-delayed-name-removal`, off by default there).
    pub delayed_name_removal: bool,
}

impl<'a> Options<'a> {
    /// Options with the defaults of Prometheus.
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

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub value: Value,
    /// Probable mistakes in the query or the data, in Prometheus' words, sorted.
    pub warnings: Vec<String>,
    /// Possible mistakes, in Prometheus' words, sorted.
    pub infos: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number at the evaluation time.
    Scalar { timestamp_ms: i64, value: f64 },
    /// A text at the evaluation time.
    String { timestamp_ms: i64, value: String },
    /// Labels, time in milliseconds and value of each series. Only sorting functions define the order.
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
    Timeout,
    Canceled,
    /// Storage cannot answer now. The query may succeed later.
    Unavailable,
    /// Storage failed, or there is a bug.
    Internal,
}

impl QueryErrorKind {
    /// Value of `errorType` in answers of Prometheus' HTTP API.
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("{0}")]
    Parse(String),
    /// The request does not suit the expression: a range query of a range vector, or a step of zero.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Execution(String),
    /// The query exceeds [`Options::samples_max`].
    #[error("query processing would load too many samples into memory in query execution")]
    TooLarge,
    /// The query took longer than its caller allows. This crate never returns this error; its callers do.
    #[error("query timed out in expression evaluation")]
    Timeout,
    #[error("query was canceled in expression evaluation")]
    Canceled,
    #[error("expanding series: {0}")]
    Source(#[from] SourceError),
}

impl QueryError {
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

/// Parses an expression within the limits of a request, without a limit on memory.
pub fn parse(text: &str) -> Result<Expr, QueryError> {
    parse_within(text, &mut Allowance::new(u64::MAX))
}

pub fn parse_within(text: &str, allowance: &mut Allowance) -> Result<Expr, QueryError> {
    Ok(Expr { root: parse::expression(text, allowance)? })
}

/// Parses a series selector of a parameter `match[]`, for example `up{job=~"a|b"}`.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse_selector_within(text, &mut Allowance::new(u64::MAX))
}

pub fn parse_selector_within(text: &str, allowance: &mut Allowance) -> Result<Vec<Matcher>, QueryError> {
    parse::selector(text, allowance)
}

pub fn instant(
    expr: &Expr,
    at_ms: i64,
    source: &dyn SeriesSource,
    options: &Options<'_>,
) -> Result<Answer, QueryError> {
    eval::instant(&expr.root, at_ms, source, options)
}

/// Evaluates an expression at `start_ms` and each `step_ms` later, to `end_ms` inclusive. The caller limits
/// the number of steps.
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
