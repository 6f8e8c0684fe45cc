//! Long constants are shared by all rows.
//!
//! DataFusion makes a column of a constant by repeating it. Repeating a text copies it, repeating a view of a text does not. So a
//! constant of a few KiB could take hundreds of megabytes.

use datafusion::common::Result;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Values};

/// A shorter text may be copied.
pub(crate) const BYTES_MAX: usize = 32;

/// Makes views of the long texts in a plan that has no types yet.
pub(crate) fn share(plan: LogicalPlan) -> Result<LogicalPlan> {
    let shared = plan.transform_up_with_subqueries(|plan| {
        if let LogicalPlan::Values(values) = plan {
            return share_values(values);
        }
        let names = NamePreserver::new(&plan);
        let changed = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr.transform_up(|expr| Ok(share_literal(expr)))?.update_data(|expr| name.restore(expr)))
        })?;
        match changed.transformed {
            true => changed.map_data(LogicalPlan::recompute_schema),
            false => Ok(changed),
        }
    })?;
    // the schemas of plans above depend on those below
    match shared.transformed {
        true => Ok(shared
            .data
            .transform_up_with_subqueries(|plan| Ok(Transformed::yes(plan.recompute_schema()?)))?
            .data),
        false => Ok(shared.data),
    }
}

/// All texts of a column must have the same type.
fn share_values(values: Values) -> Result<Transformed<LogicalPlan>> {
    let is_long = |expr: &Expr| share_literal(expr.clone()).transformed;
    let mut has_long = false;
    for expr in values.values.iter().flatten() {
        has_long |= expr.exists(|expr| Ok(is_long(expr)))?;
    }
    if !has_long {
        return Ok(Transformed::no(LogicalPlan::Values(values)));
    }
    let view = |expr: Expr| {
        Ok(match expr {
            Expr::Literal(ScalarValue::Utf8(text), metadata) => {
                Transformed::yes(Expr::Literal(ScalarValue::Utf8View(text), metadata))
            }
            other => Transformed::no(other),
        })
    };
    let row = |row: Vec<Expr>| {
        row.into_iter().map(|expr| Ok(expr.transform_up(view)?.data)).collect::<Result<Vec<_>>>()
    };
    let rows = values.values.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlanBuilder::values(rows)?.build()?))
}

fn share_literal(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) if text.len() > BYTES_MAX => {
            Transformed::yes(Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata))
        }
        other => Transformed::no(other),
    }
}
