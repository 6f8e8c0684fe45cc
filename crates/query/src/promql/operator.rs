//! Binary operators on two numbers.

use super::ast::BinaryOp;
use super::float::ABSENT;

#[inline]
pub(super) fn arithmetic(op: BinaryOp, l: f64, r: f64) -> f64 {
    match op {
        BinaryOp::Add => l + r,
        BinaryOp::Sub => l - r,
        BinaryOp::Mul => l * r,
        BinaryOp::Div => l / r,
        BinaryOp::Mod => l % r,
        BinaryOp::Pow => l.powf(r),
        BinaryOp::Atan2 => l.atan2(r),
        _ => panic!("BUG: {op:?} is not arithmetic"),
    }
}

/// Applies a comparison; `None` for other operators.
#[inline]
pub(super) fn compare(op: BinaryOp, l: f64, r: f64) -> Option<bool> {
    Some(match op {
        BinaryOp::Eq => l == r,
        BinaryOp::Ne => l != r,
        BinaryOp::Gt => l > r,
        BinaryOp::Lt => l < r,
        BinaryOp::Ge => l >= r,
        BinaryOp::Le => l <= r,
        _ => return None,
    })
}

/// Applies an operator to a vector's value and a scalar. A true comparison returns `kept`, the vector's
/// value.
#[inline]
pub(super) fn with_scalar(op: BinaryOp, l: f64, r: f64, kept: f64, return_bool: bool) -> f64 {
    match compare(op, l, r) {
        None => arithmetic(op, l, r),
        Some(holds) if return_bool => f64::from(u8::from(holds)),
        Some(true) => kept,
        Some(false) => ABSENT,
    }
}
