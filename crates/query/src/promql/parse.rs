//! Text to tree. The only module that knows the `promql-parser` crate.
//!
//! The crate is trusted with nothing but the grammar: [`guard`] refuses beforehand what would make it
//! panic or overflow the stack, and types are checked again here while its tree is turned into ours.

mod guard;
mod types;

use super::ast::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Call, Function, Grouping, Many, Matching, Node, Selector,
    Subquery, TimeShift,
};
use super::{QueryError, ValueKind};
use crate::matcher::{MatchOp, Matcher};
use model::labels::METRIC_NAME;
use promql_parser::label::{MatchOp as RawMatchOp, Matcher as RawMatcher};
use promql_parser::parser::token as t;
use promql_parser::parser::{self as raw, AtModifier, LabelModifier, Offset, VectorMatchCardinality};
use std::time::{Duration, SystemTime};

/// Parses and checks an expression.
pub(super) fn expression(text: &str) -> Result<Node, QueryError> {
    guard::check(text)?;
    let expr = raw::parse(text).map_err(|message| guard::error(text, &message))?;
    node(expr)
}

/// Parses a series selector without modifiers.
pub(super) fn selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    match expression(text)? {
        Node::Selector(Selector { matchers, time: TimeShift { at: None, offset_ms: 0 } }) => Ok(matchers),
        _ => Err(parse_error("expected a series selector without modifiers")),
    }
}

fn parse_error(message: impl std::fmt::Display) -> QueryError {
    QueryError::Parse(format!("parse error: {message}"))
}

fn node(expr: raw::Expr) -> Result<Node, QueryError> {
    match expr {
        raw::Expr::NumberLiteral(number) => Ok(Node::Number(number.val)),
        raw::Expr::StringLiteral(text) => Ok(Node::Text(text.val)),
        raw::Expr::Paren(paren) => node(*paren.expr),
        raw::Expr::VectorSelector(raw) => Ok(Node::Selector(vector_selector(raw)?)),
        raw::Expr::MatrixSelector(raw) => Ok(Node::Range(vector_selector(raw.vs)?, positive_ms(raw.range)?)),
        raw::Expr::Subquery(raw) => subquery(raw),
        raw::Expr::Unary(raw) => negate(node(*raw.expr)?),
        raw::Expr::Binary(raw) => binary(raw),
        raw::Expr::Aggregate(raw) => aggregate(raw),
        raw::Expr::Call(raw) => call(raw),
        raw::Expr::Extension(_) => Err(parse_error("unexpected extension")),
    }
}

fn negate(inner: Node) -> Result<Node, QueryError> {
    match (inner.kind(), inner) {
        (_, Node::Number(value)) => Ok(Node::Number(-value)),
        (ValueKind::Scalar | ValueKind::Vector, inner) => Ok(Node::Negate(Box::new(inner))),
        (kind, _) => Err(parse_error(format_args!(
            "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
            kind.described()
        ))),
    }
}

fn vector_selector(selector: raw::VectorSelector) -> Result<Selector, QueryError> {
    if !selector.matchers.or_matchers.is_empty() {
        return Err(parse_error("unexpected <op:or> inside braces"));
    }
    let mut matchers = Vec::with_capacity(selector.matchers.matchers.len() + 1);
    matchers.extend(selector.name.iter().map(|name| Matcher::equal(METRIC_NAME, name)));
    for raw in &selector.matchers.matchers {
        matchers.push(matcher(raw)?);
    }
    if matchers.iter().all(Matcher::matches_empty) {
        return Err(parse_error("vector selector must contain at least one non-empty matcher"));
    }
    Ok(Selector { matchers, time: time_shift(selector.at, selector.offset)? })
}

fn matcher(raw: &RawMatcher) -> Result<Matcher, QueryError> {
    let op = match raw.op {
        RawMatchOp::Equal => MatchOp::Equal,
        RawMatchOp::NotEqual => MatchOp::NotEqual,
        RawMatchOp::Re(_) => MatchOp::Regex,
        RawMatchOp::NotRe(_) => MatchOp::NotRegex,
    };
    Matcher::new(&raw.name, op, &raw.value).map_err(parse_error)
}

fn time_shift(at: Option<AtModifier>, offset: Option<Offset>) -> Result<TimeShift, QueryError> {
    let at = match at {
        None => None,
        Some(AtModifier::Start) => Some(At::Start),
        Some(AtModifier::End) => Some(At::End),
        Some(AtModifier::At(time)) => Some(At::Time(unix_ms(time)?)),
    };
    let offset_ms = match offset {
        None => 0,
        Some(Offset::Pos(duration)) => milliseconds(duration)?,
        Some(Offset::Neg(duration)) => -milliseconds(duration)?,
    };
    Ok(TimeShift { at, offset_ms })
}

fn unix_ms(time: SystemTime) -> Result<i64, QueryError> {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => milliseconds(after),
        Err(before) => Ok(-milliseconds(before.duration())?),
    }
}

fn milliseconds(duration: Duration) -> Result<i64, QueryError> {
    i64::try_from(duration.as_millis())
        .ok()
        .filter(|ms| *ms <= guard::DURATION_MS_MAX)
        .ok_or_else(|| parse_error("duration out of range"))
}

fn positive_ms(duration: Duration) -> Result<i64, QueryError> {
    match milliseconds(duration)? {
        0 => Err(parse_error("duration must be greater than 0")),
        ms => Ok(ms),
    }
}

fn subquery(raw: raw::SubqueryExpr) -> Result<Node, QueryError> {
    let expr = node(*raw.expr)?;
    if expr.kind() != ValueKind::Vector {
        return Err(parse_error(format_args!(
            "subquery is only allowed on instant vector, got {} instead",
            expr.kind().as_str()
        )));
    }
    Ok(Node::Subquery(Box::new(Subquery {
        expr,
        range_ms: positive_ms(raw.range)?,
        step_ms: raw.step.map(positive_ms).transpose()?,
        time: time_shift(raw.at, raw.offset)?,
    })))
}

fn binary(raw: raw::BinaryExpr) -> Result<Node, QueryError> {
    let modifier = raw.modifier.unwrap_or_default();
    let (many, include) = match modifier.card {
        VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany => (Many::None, Vec::new()),
        VectorMatchCardinality::ManyToOne(include) => (Many::Left, include.labels),
        VectorMatchCardinality::OneToMany(include) => (Many::Right, include.labels),
    };
    let (on, mut labels) = match modifier.matching {
        None => (false, Vec::new()),
        Some(LabelModifier::Include(labels)) => (true, labels.labels),
        Some(LabelModifier::Exclude(labels)) => (false, labels.labels),
    };
    labels.sort_unstable();
    labels.dedup();
    let binary = Binary {
        op: binary_op(raw.op.id())?,
        lhs: node(*raw.lhs)?,
        rhs: node(*raw.rhs)?,
        return_bool: modifier.return_bool,
        matching: Matching {
            on,
            labels,
            many,
            include,
            fill_left: modifier.fill_values.lhs,
            fill_right: modifier.fill_values.rhs,
        },
    };
    types::check_binary(&binary)?;
    Ok(Node::Binary(Box::new(binary)))
}

fn binary_op(token: t::TokenId) -> Result<BinaryOp, QueryError> {
    Ok(match token {
        t::T_ADD => BinaryOp::Add,
        t::T_SUB => BinaryOp::Sub,
        t::T_MUL => BinaryOp::Mul,
        t::T_DIV => BinaryOp::Div,
        t::T_MOD => BinaryOp::Mod,
        t::T_POW => BinaryOp::Pow,
        t::T_ATAN2 => BinaryOp::Atan2,
        t::T_EQLC => BinaryOp::Eq,
        t::T_NEQ => BinaryOp::Ne,
        t::T_GTR => BinaryOp::Gt,
        t::T_LSS => BinaryOp::Lt,
        t::T_GTE => BinaryOp::Ge,
        t::T_LTE => BinaryOp::Le,
        t::T_LAND => BinaryOp::And,
        t::T_LOR => BinaryOp::Or,
        t::T_LUNLESS => BinaryOp::Unless,
        _ => return Err(parse_error("unknown binary operator")),
    })
}

fn aggregate(raw: raw::AggregateExpr) -> Result<Node, QueryError> {
    let sorted = |mut labels: Vec<String>| {
        labels.sort_unstable();
        labels.dedup();
        labels
    };
    let grouping = match raw.modifier {
        None => Grouping::By(Vec::new()),
        Some(LabelModifier::Include(labels)) => Grouping::By(sorted(labels.labels)),
        Some(LabelModifier::Exclude(labels)) => Grouping::Without(sorted(labels.labels)),
    };
    let aggregate = Aggregate {
        op: aggregate_op(raw.op.id())?,
        expr: node(*raw.expr)?,
        param: raw.param.map(|param| node(*param)).transpose()?,
        grouping,
    };
    types::check_aggregate(&aggregate)?;
    Ok(Node::Aggregate(Box::new(aggregate)))
}

fn aggregate_op(token: t::TokenId) -> Result<AggregateOp, QueryError> {
    Ok(match token {
        t::T_SUM => AggregateOp::Sum,
        t::T_AVG => AggregateOp::Avg,
        t::T_COUNT => AggregateOp::Count,
        t::T_MIN => AggregateOp::Min,
        t::T_MAX => AggregateOp::Max,
        t::T_GROUP => AggregateOp::Group,
        t::T_STDDEV => AggregateOp::Stddev,
        t::T_STDVAR => AggregateOp::Stdvar,
        t::T_TOPK => AggregateOp::Topk,
        t::T_BOTTOMK => AggregateOp::Bottomk,
        t::T_COUNT_VALUES => AggregateOp::CountValues,
        t::T_QUANTILE => AggregateOp::Quantile,
        t::T_LIMITK => AggregateOp::Limitk,
        t::T_LIMIT_RATIO => AggregateOp::LimitRatio,
        _ => return Err(parse_error("unknown aggregation operator")),
    })
}

fn call(raw: raw::Call) -> Result<Node, QueryError> {
    let function = Function::from_name(raw.func.name)
        .ok_or_else(|| parse_error(format_args!("unknown function with name {:?}", raw.func.name)))?;
    let args = raw.args.args.into_iter().map(|arg| node(*arg)).collect::<Result<Vec<_>, _>>()?;
    let call = Call { function, args };
    types::check_call(&call)?;
    Ok(Node::Call(call))
}

#[cfg(test)]
mod tests;
