//! Type checks of operands. The caller adds the position to an error.

use crate::promql::ValueType;
use crate::promql::ast::{Aggregate, AggregateOp, Binary, Call, Many, Node};
use crate::promql::functions::Signature;

/// Checks the modifiers of an operator: `bool`, and labels that are both in `on` and in `group_left` or
/// `group_right`.
pub(super) fn check_operator(binary: &Binary) -> Result<(), String> {
    let scalars = [&binary.lhs, &binary.rhs].iter().all(|side| side.value_type() == ValueType::Scalar);
    let matching = &binary.matching;
    if binary.return_bool && !binary.op.is_comparison() {
        return Err("bool modifier can only be used on comparison operators".into());
    }
    if binary.op.is_comparison() && scalars && !binary.return_bool {
        return Err("comparisons between scalars must use BOOL modifier".into());
    }
    match matching.include.iter().find(|l| matching.on && matching.labels.contains(l)) {
        Some(label) => Err(format!("label {label:?} must not occur in ON and GROUP clause at once")),
        None => Ok(()),
    }
}

pub(super) fn check_binary(binary: &Binary) -> Result<(), String> {
    let (lhs, rhs) = (binary.lhs.value_type(), binary.rhs.value_type());
    for value_type in [lhs, rhs] {
        if !matches!(value_type, ValueType::Scalar | ValueType::Vector) {
            return Err("binary expression must contain only scalar and instant vector types".into());
        }
    }
    let vectors = lhs == ValueType::Vector && rhs == ValueType::Vector;
    let matching = &binary.matching;
    let name = || format!("{:?}", binary.op).to_lowercase();
    if !vectors && (!matching.labels.is_empty() || matching.on) {
        return Err("vector matching only allowed between instant vectors".into());
    }
    if binary.op.is_set() && !vectors {
        return Err(format!("set operator {:?} not allowed in binary scalar expression", name()));
    }
    if binary.op.is_set() && matching.many != Many::None {
        return Err(format!("no grouping allowed for {:?} operation", name()));
    }
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    if fills && binary.op.is_set() {
        return Err("filling in missing series not allowed for set operators".into());
    }
    Ok(())
}

pub(super) const fn parameter_of(op: AggregateOp) -> Option<ValueType> {
    match op {
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Quantile
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio => Some(ValueType::Scalar),
        AggregateOp::CountValues => Some(ValueType::String),
        _ => None,
    }
}

/// Checks the operand types of an aggregation. The flag of an error is true if the parameter is wrong.
pub(super) fn check_aggregate(aggregate: &Aggregate) -> Result<(), (bool, String)> {
    let context = "aggregation expression";
    expect(ValueType::Vector, &aggregate.expr, context).map_err(|message| (false, message))?;
    match (parameter_of(aggregate.op), &aggregate.param) {
        (Some(wanted), Some(param)) => {
            expect(wanted, param, "aggregation parameter").map_err(|message| (true, message))
        }
        _ => Ok(()),
    }
}

/// Checks the number and types of a function's arguments. An error may have the index of the wrong argument.
pub(super) fn check_call(call: &Call) -> Result<(), (Option<usize>, String)> {
    let Signature { types, least, most } = call.function.signature();
    let (name, count) = (call.function.name(), call.args.len());
    let wanted = match (count < least, count > most) {
        (false, false) => None,
        _ if least == most => Some(least.to_string()),
        (true, _) => Some(format!("at least {least}")),
        (_, true) => Some(format!("at most {most}")),
    };
    if let Some(wanted) = wanted {
        return Err((None, format!("expected {wanted} argument(s) in call to {name:?}, got {count}")));
    }
    for (i, arg) in call.args.iter().enumerate() {
        let value_type =
            types.get(i).or(types.last()).expect("BUG: a function with arguments has no signature");
        expect(*value_type, arg, &format!("call to function {name:?}"))
            .map_err(|message| (Some(i), message))?;
    }
    Ok(())
}

fn expect(wanted: ValueType, node: &Node, context: &str) -> Result<(), String> {
    if node.value_type() == wanted {
        return Ok(());
    }
    Err(format!("expected type {} in {context}, got {}", wanted.described(), node.value_type().described()))
}
