//! Functions that return a scalar.

use crate::promql::QueryError;
use crate::promql::ast::{Call, Node};
use crate::promql::eval::Evaluator;
use crate::promql::float::{extreme, is_present};
use crate::promql::functions::Function;
use crate::promql::grid::Grid;
use crate::promql::matrix::Column;
use crate::promql::row::Row;

impl<'a> Evaluator<'a> {
    pub(in crate::promql) fn scalar_call(
        &mut self,
        call: &Call,
        grid: &Grid,
    ) -> Result<Column<'a>, QueryError> {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let constant = match call.function {
            Function::Time => {
                let mut column = Column::new(self.meter, grid.count, 0.0)?;
                column.values.iter_mut().enumerate().for_each(|(step, v)| *v = seconds(grid.time_ms(step)));
                return Ok(column);
            }
            Function::Scalar => return self.scalar_of_vector(&call.args[0], grid),
            Function::MaxOf | Function::MinOf => {
                let (mut a, b) = (self.scalar(&call.args[0], grid)?, self.scalar(&call.args[1], grid)?);
                for (a, b) in a.values.iter_mut().zip(b.iter()) {
                    *a = extreme(*a, *b, call.function == Function::MaxOf);
                }
                return Ok(a);
            }
            Function::Pi => std::f64::consts::PI,
            Function::Start => seconds(self.query_start_ms),
            Function::End => seconds(self.query_end_ms),
            Function::Step => seconds(self.query_step_ms),
            Function::QueryRange => seconds(self.query_end_ms.saturating_sub(self.query_start_ms)),
            function => panic!("BUG: {} does not return a scalar", function.name()),
        };
        Column::new(self.meter, grid.count, constant)
    }

    /// `scalar(v)`: the value if there is exactly one, otherwise NaN.
    fn scalar_of_vector(&mut self, vector: &Node, grid: &Grid) -> Result<Column<'a>, QueryError> {
        let mut column = Column::new(self.meter, grid.count, f64::NAN)?;
        let mut seen = Column::new(self.meter, grid.count, 0.0)?;
        self.stream(vector, grid, &mut |row: Row<'_>| {
            for (step, value) in row.values.iter().copied().enumerate() {
                if is_present(value) {
                    column.values[step] = if seen[step] == 0.0 { value } else { f64::NAN };
                    seen.values[step] = 1.0;
                }
            }
            Ok(())
        })?;
        Ok(column)
    }
}
