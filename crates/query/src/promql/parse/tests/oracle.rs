//! Parser for comparison, based on the `promql-parser` crate. [`guard`] first refuses input on which the
//! crate would panic or overflow the stack.

mod guard;

use super::super::types;
use crate::matcher::{MatchOp, Matcher};
use crate::promql::ast::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Call, Grouping, Many, Matching, Node, Selector, Subquery,
    TimeShift,
};
use crate::promql::functions::Function;
use crate::promql::{QueryError, ValueType};
use model::labels::METRIC_NAME;
use promql_parser::label::Matcher as RawMatcher;
use promql_parser::parser::token as t;
use promql_parser::parser::{self as raw, AtModifier, LabelModifier, Offset, VectorMatchCardinality};
use std::time::{Duration, SystemTime};

pub(in crate::promql::parse) fn expression(text: &str) -> Result<Node, QueryError> {
    let checked = guard::check(text)?;
    let expr = raw::parse(&checked.text).map_err(|message| guard::error(text, &message))?;
    Converter { strings: checked.strings, patterns: 0 }.node(expr)
}

fn parse_error(message: impl std::fmt::Display) -> QueryError {
    QueryError::Parse(format!("parse error: {message}"))
}

/// Maximum number of an expression's regular expressions that need the regex engine.
const PATTERNS_MAX: usize = 64;

struct Converter {
    /// The strings of the expression. In the tree, each string is replaced by its index in this list.
    strings: Vec<(MatchOp, String)>,
    /// Number of matchers so far that need the regex engine.
    patterns: usize,
}

impl Converter {
    fn node(&mut self, expr: raw::Expr) -> Result<Node, QueryError> {
        match expr {
            raw::Expr::NumberLiteral(number) => Ok(Node::Number(number.val)),
            raw::Expr::StringLiteral(text) => Ok(Node::Text(self.text(&text.val).into())),
            raw::Expr::Paren(paren) => self.node(*paren.expr),
            raw::Expr::VectorSelector(raw) => Ok(Node::Selector(self.vector_selector(raw)?)),
            raw::Expr::MatrixSelector(raw) => {
                Ok(Node::Range(self.vector_selector(raw.vs)?, positive_ms(raw.range)?))
            }
            raw::Expr::Subquery(raw) => self.subquery(raw),
            raw::Expr::Unary(raw) => negate(self.node(*raw.expr)?),
            raw::Expr::Binary(raw) => self.binary(raw),
            raw::Expr::Aggregate(raw) => self.aggregate(raw),
            raw::Expr::Call(raw) => self.call(raw),
            raw::Expr::Extension(_) => Err(parse_error("unexpected extension")),
        }
    }

    fn vector_selector(&mut self, selector: raw::VectorSelector) -> Result<Selector, QueryError> {
        if !selector.matchers.or_matchers.is_empty() {
            return Err(parse_error("unexpected <op:or> inside braces"));
        }
        let mut matchers = Vec::with_capacity(selector.matchers.matchers.len() + 1);
        matchers.extend(selector.name.iter().map(|name| Matcher::equal(METRIC_NAME, name)));
        for raw in &selector.matchers.matchers {
            let matcher = self.matcher(raw)?;
            if let Some(name) = selector.name.as_ref().filter(|_| matcher.name == METRIC_NAME) {
                return Err(parse_error(format_args!(
                    "metric name must not be set twice: {name:?} or {:?}",
                    matcher.value
                )));
            }
            matchers.push(matcher);
        }
        if matchers.iter().all(Matcher::matches_empty) {
            return Err(parse_error("vector selector must contain at least one non-empty matcher"));
        }
        Ok(Selector { matchers, time: time_shift(selector.at, selector.offset)? })
    }

    fn matcher(&mut self, raw: &RawMatcher) -> Result<Matcher, QueryError> {
        let (op, value) = self.string(&raw.value);
        let matcher = Matcher::new(&self.name(&raw.name), op, value).map_err(parse_error)?;
        self.patterns += usize::from(matcher.needs_engine());
        if self.patterns > PATTERNS_MAX {
            return Err(parse_error(format_args!(
                "more than {PATTERNS_MAX} regular expressions that are not simple"
            )));
        }
        Ok(matcher)
    }

    fn subquery(&mut self, raw: raw::SubqueryExpr) -> Result<Node, QueryError> {
        let expr = self.node(*raw.expr)?;
        if expr.value_type() != ValueType::Vector {
            return Err(parse_error(format_args!(
                "subquery is only allowed on instant vector, got {} instead",
                expr.value_type().as_str()
            )));
        }
        Ok(Node::Subquery(Box::new(Subquery {
            expr,
            range_ms: positive_ms(raw.range)?,
            step_ms: raw.step.map(positive_ms).transpose()?,
            time: time_shift(raw.at, raw.offset)?,
        })))
    }

    fn binary(&mut self, raw: raw::BinaryExpr) -> Result<Node, QueryError> {
        let modifier = raw.modifier.unwrap_or_default();
        let (many, include) = match modifier.card {
            VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany => (Many::None, Vec::new()),
            VectorMatchCardinality::ManyToOne(include) => (Many::Left, self.names(include.labels)),
            VectorMatchCardinality::OneToMany(include) => (Many::Right, self.names(include.labels)),
        };
        let (on, labels) = match modifier.matching {
            None => (false, Vec::new()),
            Some(LabelModifier::Include(labels)) => (true, self.names(labels.labels)),
            Some(LabelModifier::Exclude(labels)) => (false, self.names(labels.labels)),
        };
        let binary = Binary {
            op: binary_op(raw.op.id())?,
            lhs: self.node(*raw.lhs)?,
            rhs: self.node(*raw.rhs)?,
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
        types::check_operator(&binary).and_then(|()| types::check_binary(&binary)).map_err(parse_error)?;
        Ok(Node::Binary(Box::new(binary)))
    }

    fn aggregate(&mut self, raw: raw::AggregateExpr) -> Result<Node, QueryError> {
        let grouping = match raw.modifier {
            None => Grouping::By(Vec::new()),
            Some(LabelModifier::Include(labels)) => Grouping::By(self.names(labels.labels)),
            Some(LabelModifier::Exclude(labels)) => Grouping::Without(self.names(labels.labels)),
        };
        let aggregate = Aggregate {
            op: aggregate_op(raw.op.id())?,
            expr: self.node(*raw.expr)?,
            param: raw.param.map(|param| self.node(*param)).transpose()?,
            grouping,
        };
        types::check_aggregate(&aggregate).map_err(|(_, message)| parse_error(message))?;
        Ok(Node::Aggregate(Box::new(aggregate)))
    }

    fn call(&mut self, raw: raw::Call) -> Result<Node, QueryError> {
        let function = Function::from_name(raw.func.name)
            .ok_or_else(|| parse_error(format_args!("unknown function with name {:?}", raw.func.name)))?;
        let args = raw.args.args.into_iter().map(|arg| self.node(*arg)).collect::<Result<Vec<_>, _>>()?;
        let call = Call { function, args };
        types::check_call(&call).map_err(|(_, message)| parse_error(message))?;
        Ok(Node::Call(call))
    }

    fn text(&self, number: &str) -> &str {
        self.string(number).1
    }

    fn string(&self, number: &str) -> (MatchOp, &str) {
        let string = number.parse().ok().and_then(|i: usize| self.strings.get(i));
        let (op, text) = string.expect("BUG: the index of a string is invalid");
        (*op, text)
    }

    fn names(&self, names: Vec<String>) -> Vec<String> {
        let mut names: Vec<_> = names.iter().map(|name| self.name(name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn name(&self, name: &str) -> String {
        if name.starts_with(|c: char| c.is_ascii_digit()) { self.text(name).into() } else { name.into() }
    }
}

fn negate(inner: Node) -> Result<Node, QueryError> {
    match (inner.value_type(), inner) {
        (_, Node::Number(value)) => Ok(Node::Number(-value)),
        (ValueType::Scalar | ValueType::Vector, inner) => Ok(Node::Negate(Box::new(inner))),
        (other, _) => Err(parse_error(format_args!(
            "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
            other.described()
        ))),
    }
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
        .filter(|ms| *ms <= super::super::DURATION_MS_MAX)
        .ok_or_else(|| parse_error("duration out of range"))
}

fn positive_ms(duration: Duration) -> Result<i64, QueryError> {
    match milliseconds(duration)? {
        0 => Err(parse_error("duration must be greater than 0")),
        ms => Ok(ms),
    }
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
