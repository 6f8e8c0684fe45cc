//! Limits on plans, and on what they may evaluate.

use crate::error::SqlError;
use crate::literals;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

/// Parts of expressions, if each column is replaced by the expression that computes it, as the optimizer may do. Each
/// takes some hundred bytes.
const PARTS_MAX: u64 = 100_000;

/// Columns of an answer, or of any operator. A table of a stream has at most 206.
pub(crate) const COLUMNS_MAX: usize = 250;

/// Columns of a join before unneeded ones are left out. The time to plan grows with the square.
const JOINED_MAX: usize = 5000;

/// Patterns of a plan, and how long each may be. They are compiled for each batch, each to up to 10 MB.
const PATTERNS_MAX: usize = 20;
const PATTERN_BYTES_MAX: usize = 1000;

/// Refuses a plan whose expressions could become too large, such as `b + b` with `b` as `a + a` and so on.
pub(crate) fn check_size(plan: &LogicalPlan) -> Result<(), SqlError> {
    plan.apply_with_subqueries(|plan| {
        let columns = plan.schema().fields().len();
        match columns > JOINED_MAX {
            true => Err(SqlError::Statement(format!(
                "tables have {columns} columns together; the limit is {JOINED_MAX}"
            ))
            .into()),
            false => Ok(TreeNodeRecursion::Continue),
        }
    })
    .map_err(|error| SqlError::of(&error, true))?;
    let mut sizes = Sizes { total: 0 };
    sizes.columns(plan);
    match sizes.total > PARTS_MAX {
        true => Err(SqlError::Statement(format!(
            "the statement is too long: its expressions have more than {PARTS_MAX} parts when each is written in full"
        ))),
        false => Ok(()),
    }
}

struct Sizes {
    total: u64,
}

impl Sizes {
    /// Sizes of the expressions that compute the columns of a plan.
    fn columns(&mut self, plan: &LogicalPlan) -> Vec<u64> {
        let inputs = plan.inputs();
        let within: Vec<u64> = inputs.iter().flat_map(|input| self.columns(input)).collect();
        let schema = merge_schema(&inputs);
        let mut own = Vec::new();
        let applied = plan.apply_expressions(|expr| {
            let size = self.size(expr, &schema, &within);
            self.total = self.total.saturating_add(size);
            own.push(size);
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(applied.is_ok());
        let columns = plan.schema().fields().len();
        match plan {
            LogicalPlan::Projection(_) => own,
            // groups, which conditions on them replace, and then aggregates
            LogicalPlan::Aggregate(_) => own,
            LogicalPlan::Union(_) => {
                let most = |at: usize| within.iter().skip(at).step_by(columns.max(1)).max().copied();
                (0..columns).map(|at| most(at).unwrap_or(1)).collect()
            }
            // inputs first, and then perhaps what is computed; or the columns of the first input only
            _ => within.into_iter().chain(std::iter::repeat(1)).take(columns).collect(),
        }
    }

    /// Parts of an expression, as often as the optimizer may copy them.
    fn size(&mut self, expr: &Expr, schema: &DFSchema, columns: &[u64]) -> u64 {
        let subquery = match expr {
            Expr::ScalarSubquery(subquery) => Some(subquery),
            Expr::Exists(exists) => Some(&exists.subquery),
            Expr::InSubquery(within) => Some(&within.subquery),
            Expr::SetComparison(compared) => Some(&compared.subquery),
            _ => None,
        };
        if let Some(subquery) = subquery {
            self.columns(&subquery.subquery);
        }
        let mut size = match expr {
            Expr::Column(column) => {
                schema.maybe_index_of_column(column).and_then(|at| columns.get(at)).copied().unwrap_or(1)
            }
            _ => 1,
        };
        let copies = copies(expr, schema);
        let applied = expr.apply_children(|part| {
            size = size.saturating_add(self.size(part, schema, columns).saturating_mul(copies));
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(applied.is_ok());
        size
    }
}

/// How often the optimizer may write the parts of an expression: `a BETWEEN b AND c` becomes `a >= b AND a <= c`.
fn copies(expr: &Expr, schema: &DFSchema) -> u64 {
    let is_call = |expr: &Expr| matches!(expr, Expr::ScalarFunction(_));
    match expr {
        Expr::Between(_) => 2,
        // it becomes `c1 AND a OR NOT c1 AND c2 AND b OR …`
        Expr::Case(case) => {
            let is_boolean = |then: &Expr| {
                then.get_type(schema).is_ok_and(|of| matches!(of, DataType::Boolean | DataType::Null))
            };
            match case.when_then_expr.first() {
                Some((_, then)) if is_boolean(then) => case.when_then_expr.len() as u64 + 2,
                _ => 1,
            }
        }
        // `^(a|b|c|d)$` becomes four comparisons
        Expr::BinaryExpr(of) if is_pattern(of.op) => 4,
        Expr::SimilarTo(_) => 4,
        Expr::ScalarFunction(call) => match call.name() {
            "coalesce" | "ifnull" | "nvl" | "nvl2" => 2,
            "regexp_like" => 4,
            _ => 1,
        },
        // `date_part('year', t) = 2026` becomes a range of `t`
        Expr::BinaryExpr(of) if of.op.supports_propagation() && (is_call(&of.left) || is_call(&of.right)) => {
            3
        }
        Expr::InList(list) if list.list.len() <= 3 => 2 * list.list.len() as u64,
        _ => 1,
    }
}

/// Refuses what an optimized plan must not evaluate:
///
/// - patterns that differ from row to row: each is compiled, and all are kept
/// - lists and structures, and texts and bytes that are no views: a copy of a long one for each row may be much larger than all
///   memory
pub(crate) fn check_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut patterns = 0;
    plan.apply_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        plan.apply_expressions(|expr| {
            expr.apply(|part| {
                check_expression(part, &schema, &mut patterns)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn check_expression(expr: &Expr, schema: &DFSchema, patterns: &mut usize) -> Result<()> {
    let mut pattern = |pattern: &Expr| {
        let Expr::Literal(value, _) = pattern else {
            return Err(SqlError::Statement("a pattern must be a constant".into()));
        };
        *patterns += 1;
        let bytes = value.try_as_str().flatten().map_or(0, str::len);
        match *patterns > PATTERNS_MAX || bytes > PATTERN_BYTES_MAX {
            true => Err(SqlError::Statement(format!(
                "at most {PATTERNS_MAX} patterns are allowed, of at most {PATTERN_BYTES_MAX} bytes each"
            ))),
            false => Ok(()),
        }
    };
    match expr {
        Expr::BinaryExpr(binary) if is_pattern(binary.op) => pattern(&binary.right)?,
        Expr::Like(like) | Expr::SimilarTo(like) => pattern(&like.pattern)?,
        Expr::ScalarFunction(call) if call.name().starts_with("regexp_") => {
            call.args.iter().skip(1).try_for_each(&mut pattern)?;
        }
        Expr::Cast(cast) => check_cast(&cast.expr, cast.field.data_type(), schema)?,
        Expr::TryCast(cast) => check_cast(&cast.expr, cast.field.data_type(), schema)?,
        Expr::Literal(value, _) if value.data_type().is_nested() => return Err(nested().into()),
        Expr::Literal(value, _) if is_long(value) => {
            return Err(SqlError::Statement("a long constant can only be a text".into()).into());
        }
        Expr::Unnest(_) | Expr::HigherOrderFunction(_) => return Err(nested().into()),
        _ => {}
    }
    Ok(())
}

/// True for a constant that is copied for each row, and is too long for this.
fn is_long(value: &ScalarValue) -> bool {
    use ScalarValue::{Binary, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8};
    let bytes = match value {
        Utf8(text) | LargeUtf8(text) => text.as_ref().map(String::len),
        Binary(bytes) | LargeBinary(bytes) | FixedSizeBinary(_, bytes) => bytes.as_ref().map(Vec::len),
        _ => None,
    };
    bytes.is_some_and(|bytes| bytes > literals::BYTES_MAX)
}

const fn is_pattern(op: Operator) -> bool {
    matches!(
        op,
        Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::RegexNotMatch
            | Operator::RegexNotIMatch
            | Operator::LikeMatch
            | Operator::ILikeMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch
    )
}

fn check_cast(of: &Expr, to: &DataType, schema: &DFSchema) -> Result<()> {
    if to.is_nested() {
        return Err(nested().into());
    }
    let is_view = |of: &DataType| matches!(of, DataType::Utf8View | DataType::BinaryView);
    let is_copied = matches!(
        to,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::FixedSizeBinary(_)
            | DataType::Dictionary(..)
            | DataType::RunEndEncoded(..)
    );
    match is_copied && of.get_type(schema).is_ok_and(|of| is_view(&of)) {
        true => Err(SqlError::Statement(format!(
            "a cast of {of} to {to} is not supported; only constants can be cast to this type"
        ))
        .into()),
        false => Ok(()),
    }
}

fn nested() -> SqlError {
    SqlError::Statement("lists and structures are not supported".into())
}
