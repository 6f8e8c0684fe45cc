//! The expression tree for evaluation. It has no parentheses, and its types are checked.

use super::ValueType;
use super::functions::Function;
use crate::matcher::{MatchOp, Matcher};
use model::labels::METRIC_NAME;

#[derive(Debug, Clone)]
pub(super) enum Node {
    Number(f64),
    Text(String),
    Selector(Selector),
    /// A range selector, and its range in milliseconds.
    Range(Selector, i64),
    Subquery(Box<Subquery>),
    Negate(Box<Self>),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Call),
}

/// `metric{matchers} @ time offset duration`
#[derive(Debug, Clone)]
pub(super) struct Selector {
    pub(super) matchers: Vec<Matcher>,
    pub(super) time: TimeShift,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeShift {
    pub(super) at: Option<At>,
    pub(super) offset_ms: i64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Start,
    End,
    Time(i64),
}

/// `expr[range:step]`
#[derive(Debug, Clone)]
pub(super) struct Subquery {
    pub(super) expr: Node,
    pub(super) range_ms: i64,
    pub(super) step_ms: Option<i64>,
    pub(super) time: TimeShift,
}

#[derive(Debug, Clone)]
pub(super) struct Binary {
    pub(super) op: BinaryOp,
    pub(super) lhs: Node,
    pub(super) rhs: Node,
    /// True if comparisons give 0 or 1 instead of filtering.
    pub(super) return_bool: bool,
    pub(super) matching: Matching,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    And,
    Or,
    Unless,
}

impl BinaryOp {
    pub(super) const fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Gt | Self::Lt | Self::Ge | Self::Le)
    }

    pub(super) const fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Matching {
    /// True for `on(labels)`, false for `ignoring(labels)`.
    pub(super) on: bool,
    /// Sorted.
    pub(super) labels: Vec<String>,
    pub(super) many: Many,
    /// Labels that `group_left` or `group_right` copies from the "one" side.
    pub(super) include: Vec<String>,
    /// Value substituted for a missing left or right side.
    pub(super) fill_left: Option<f64>,
    pub(super) fill_right: Option<f64>,
}

/// Side that may have several series in a match group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Many {
    #[default]
    None,
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub(super) struct Aggregate {
    pub(super) op: AggregateOp,
    pub(super) expr: Node,
    pub(super) param: Option<Node>,
    pub(super) grouping: Grouping,
}

/// `by` or `without`, with sorted names.
#[derive(Debug, Clone)]
pub(super) enum Grouping {
    By(Vec<String>),
    Without(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
    Limitk,
    LimitRatio,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) args: Vec<Node>,
}

impl Node {
    pub(super) fn value_type(&self) -> ValueType {
        match self {
            Self::Number(_) => ValueType::Scalar,
            Self::Text(_) => ValueType::String,
            Self::Selector(_) | Self::Aggregate(_) => ValueType::Vector,
            Self::Range(..) | Self::Subquery(_) => ValueType::Matrix,
            Self::Negate(inner) => inner.value_type(),
            Self::Binary(b) => match (b.lhs.value_type(), b.rhs.value_type()) {
                (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                _ => ValueType::Vector,
            },
            Self::Call(call) => call.function.value_type(),
        }
    }

    pub(super) fn selectors<'n>(&'n self, all: &mut Vec<&'n [Matcher]>) {
        match self {
            Self::Number(_) | Self::Text(_) => {}
            Self::Selector(selector) | Self::Range(selector, _) => all.push(&selector.matchers),
            Self::Subquery(subquery) => subquery.expr.selectors(all),
            Self::Negate(inner) => inner.selectors(all),
            Self::Binary(b) => [&b.lhs, &b.rhs].into_iter().for_each(|side| side.selectors(all)),
            Self::Aggregate(aggregate) => {
                aggregate.param.iter().chain([&aggregate.expr]).for_each(|part| part.selectors(all));
            }
            Self::Call(call) => call.args.iter().for_each(|arg| arg.selectors(all)),
        }
    }

    /// True if `@` pins all selected times, so that the value is the same at every step. As in Prometheus,
    /// the parameter of an aggregation is ignored.
    pub(super) fn is_step_invariant(&self) -> bool {
        match self {
            Self::Number(_) | Self::Text(_) => true,
            Self::Selector(selector) | Self::Range(selector, _) => selector.time.at.is_some(),
            Self::Subquery(subquery) => subquery.time.at.is_some(),
            Self::Negate(inner) => inner.is_step_invariant(),
            Self::Binary(b) => b.lhs.is_step_invariant() && b.rhs.is_step_invariant(),
            Self::Aggregate(aggregate) => aggregate.expr.is_step_invariant(),
            Self::Call(call) => call.is_step_invariant(),
        }
    }
}

impl Call {
    fn is_step_invariant(&self) -> bool {
        let args = || self.args.iter().all(Node::is_step_invariant);
        match self.function {
            Function::DaysInMonth
            | Function::DayOfMonth
            | Function::DayOfWeek
            | Function::DayOfYear
            | Function::Hour
            | Function::Minute
            | Function::Month
            | Function::Year
            | Function::PredictLinear
            | Function::Time => false,
            Function::Timestamp => matches!(self.args[0], Node::Selector(_)) && args(),
            _ => args(),
        }
    }
}

impl Selector {
    /// The metric name, if only one can match.
    pub(super) fn metric_name(&self) -> Option<&str> {
        let mut names = self.matchers.iter().filter(|m| m.name == METRIC_NAME);
        names.find_map(|m| match (m.op, m.set_matches()) {
            (MatchOp::Equal | MatchOp::Regex, Some([one])) if !one.is_empty() => Some(one.as_str()),
            _ => None,
        })
    }
}
