//! Which operands go with which operation.

use super::parse_error;
use crate::promql::ast::{Aggregate, AggregateOp, Binary, Call, Function, Many, Node};
use crate::promql::{QueryError, ValueKind};

/// Operands of a binary operator.
pub(super) fn check_binary(binary: &Binary) -> Result<(), QueryError> {
    let (lhs, rhs) = (binary.lhs.kind(), binary.rhs.kind());
    for kind in [lhs, rhs] {
        if !matches!(kind, ValueKind::Scalar | ValueKind::Vector) {
            return Err(parse_error("binary expression must contain only scalar and instant vector types"));
        }
    }
    let vectors = lhs == ValueKind::Vector && rhs == ValueKind::Vector;
    let scalars = lhs == ValueKind::Scalar && rhs == ValueKind::Scalar;
    let matching = &binary.matching;
    if binary.return_bool && !binary.op.is_comparison() {
        return Err(parse_error("bool modifier can only be used on comparison operators"));
    }
    if binary.op.is_comparison() && scalars && !binary.return_bool {
        return Err(parse_error("comparisons between scalars must use BOOL modifier"));
    }
    if binary.op.is_set() && !vectors {
        return Err(parse_error(format_args!(
            "set operator {:?} not allowed in binary scalar expression",
            format!("{:?}", binary.op).to_lowercase()
        )));
    }
    if binary.op.is_set() && matching.many != Many::None {
        return Err(parse_error(format_args!(
            "no grouping allowed for {:?} operation",
            format!("{:?}", binary.op).to_lowercase()
        )));
    }
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    if fills && binary.op.is_set() {
        return Err(parse_error("filling in missing series not allowed for set operators"));
    }
    if !vectors && (!matching.labels.is_empty() || matching.on) {
        return Err(parse_error("vector matching only allowed between vectors"));
    }
    let both = matching.include.iter().find(|l| matching.on && matching.labels.contains(l));
    match both {
        Some(label) => {
            Err(parse_error(format_args!("label {label:?} must not occur in ON and GROUP clause at once")))
        }
        None => Ok(()),
    }
}

/// Operands of an aggregation.
pub(super) fn check_aggregate(aggregate: &Aggregate) -> Result<(), QueryError> {
    expect(ValueKind::Vector, &aggregate.expr, "aggregation expression")?;
    let wanted = match aggregate.op {
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Quantile
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio => ValueKind::Scalar,
        AggregateOp::CountValues => ValueKind::String,
        _ => return Ok(()),
    };
    match &aggregate.param {
        Some(param) => expect(wanted, param, "aggregation parameter"),
        None => {
            Err(parse_error("wrong number of arguments for aggregate expression provided, expected 2, got 1"))
        }
    }
}

/// Arguments of a function: how many, and their types.
pub(super) fn check_call(call: &Call) -> Result<(), QueryError> {
    let (kinds, least, most) = signature(call.function);
    let (name, count) = (call.function.name(), call.args.len());
    if least == most && count != least {
        return Err(parse_error(format_args!(
            "expected {least} argument(s) in call to {name:?}, got {count}"
        )));
    }
    if count < least {
        return Err(parse_error(format_args!(
            "expected at least {least} argument(s) in call to {name:?}, got {count}"
        )));
    }
    if count > most {
        return Err(parse_error(format_args!(
            "expected at most {most} argument(s) in call to {name:?}, got {count}"
        )));
    }
    for (i, arg) in call.args.iter().enumerate() {
        let kind = kinds.get(i).or(kinds.last()).expect("BUG: a function with arguments has a signature");
        expect(*kind, arg, &format!("call to function {name:?}"))?;
    }
    Ok(())
}

fn expect(wanted: ValueKind, node: &Node, context: &str) -> Result<(), QueryError> {
    if node.kind() == wanted {
        return Ok(());
    }
    Err(parse_error(format_args!(
        "expected type {} in {context}, got {}",
        wanted.described(),
        node.kind().described()
    )))
}

/// Types of the arguments (the last one may repeat), the least and the most number of them.
fn signature(function: Function) -> (&'static [ValueKind], usize, usize) {
    use Function as F;
    use ValueKind::{Matrix as M, Scalar as S, String as T, Vector as V};
    match function {
        F::Time | F::Pi | F::Start | F::End | F::Step | F::QueryRange => (&[], 0, 0),
        F::DaysInMonth
        | F::DayOfMonth
        | F::DayOfWeek
        | F::DayOfYear
        | F::Hour
        | F::Minute
        | F::Month
        | F::Year => (&[V], 0, 1),
        F::Vector => (&[S], 1, 1),
        F::MaxOf | F::MinOf => (&[S, S], 2, 2),
        F::Round => (&[V, S], 1, 2),
        F::ClampMin | F::ClampMax => (&[V, S], 2, 2),
        F::Clamp => (&[V, S, S], 3, 3),
        F::HistogramQuantile => (&[S, V], 2, 2),
        F::HistogramFraction => (&[S, S, V], 3, 3),
        F::HistogramQuantiles => (&[V, T, S], 3, 12),
        F::LabelReplace => (&[V, T, T, T, T], 5, 5),
        F::LabelJoin => (&[V, T, T, T], 3, usize::MAX),
        F::SortByLabel | F::SortByLabelDesc => (&[V, T], 1, usize::MAX),
        F::QuantileOverTime => (&[S, M], 2, 2),
        F::PredictLinear => (&[M, S], 2, 2),
        F::DoubleExponentialSmoothing => (&[M, S, S], 3, 3),
        f if f.is_over_range() => (&[M], 1, 1),
        _ => (&[V], 1, 1),
    }
}
