//! Evaluation of vectors. Series are passed on one by one, with the values of all steps. Operations on single
//! series hold no memory.

use super::ast::{BinaryOp, Node};
use super::eval::Evaluator;
use super::float::is_present;
use super::functions::Function;
use super::grid::Grid;
use super::matrix::{Column, Matrix, Merged};
use super::operator::with_scalar;
use super::row::{Row, Sink};
use super::{QueryError, ValueType};

impl<'a> Evaluator<'a> {
    /// Evaluates a vector, row by row, without empty rows.
    pub(super) fn stream(&mut self, node: &Node, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        self.check_canceled()?;
        if grid.count == 0 {
            return Ok(());
        }
        if grid.count > 1 && node.is_step_invariant() {
            return self.stream_invariant(node, grid, sink);
        }
        match node {
            Node::Selector(selector) => self.select_instant(selector, grid, false, sink),
            Node::Negate(inner) => self.stream_mapped(inner, grid, true, |_, v| -v, sink),
            Node::Binary(b) => match (b.lhs.value_type(), b.rhs.value_type()) {
                (ValueType::Vector, ValueType::Vector) => self.vectors(b, grid)?.emit(sink),
                _ => self.stream_with_scalar(b, grid, sink),
            },
            Node::Aggregate(aggregate) => self.aggregate(aggregate, grid)?.emit(sink),
            Node::Call(call) => self.stream_call(call, grid, sink),
            Node::Number(_) | Node::Text(_) | Node::Range(..) | Node::Subquery(_) => {
                panic!("BUG: types were checked, but a vector is a {}", node.value_type().as_str())
            }
        }
    }

    fn stream_invariant(&mut self, node: &Node, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let mut wide = Column::new(self.meter, grid.count, 0.0)?;
        self.stream(node, &Grid::single(grid.start_ms), &mut |row| {
            wide.values.fill(row.values[0]);
            sink(row.with_values(&mut wide.values))
        })
    }

    pub(super) fn stream_mapped(
        &mut self,
        inner: &Node,
        grid: &Grid,
        drops_name: bool,
        map: impl Fn(usize, f64) -> f64,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let delayed = self.options.delayed_name_removal;
        let apply = |row: &mut Row<'_>| {
            for (step, value) in row.values.iter_mut().enumerate() {
                if is_present(*value) {
                    *value = map(step, *value);
                }
            }
            if drops_name {
                row.without_name(delayed);
            }
        };
        if drops_name && !delayed && inner.may_collide_without_name() {
            let mut merged = Merged::new(self.meter, grid.count);
            self.stream(inner, grid, &mut |mut row| {
                apply(&mut row);
                merged.add_row(row)
            })?;
            return merged.matrix.emit(sink);
        }
        self.stream(inner, grid, &mut |mut row| {
            apply(&mut row);
            if row.is_empty() { Ok(()) } else { sink(row) }
        })
    }

    fn stream_with_scalar(
        &mut self,
        b: &super::ast::Binary,
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let swapped = b.lhs.value_type() == ValueType::Scalar;
        let (scalar, vector) = if swapped { (&b.lhs, &b.rhs) } else { (&b.rhs, &b.lhs) };
        let scalar = self.scalar(scalar, grid)?;
        let (op, return_bool) = (b.op, b.return_bool);
        let map = |step: usize, value: f64| {
            let (l, r) = if swapped { (scalar[step], value) } else { (value, scalar[step]) };
            with_scalar(op, l, r, value, return_bool)
        };
        self.stream_mapped(vector, grid, !op.is_comparison() || return_bool, map, sink)
    }

    pub(super) fn matrix(&mut self, node: &Node, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let mut matrix = Matrix::new(self.meter, grid.count);
        self.stream(node, grid, &mut |row| matrix.push_row(row))?;
        Ok(matrix)
    }
}

impl Node {
    /// True if two series may differ by metric name only.
    pub(super) fn may_collide_without_name(&self) -> bool {
        match self {
            Self::Selector(selector) | Self::Range(selector, _) => selector.metric_name().is_none(),
            Self::Subquery(subquery) => subquery.expr.may_collide_without_name(),
            Self::Number(_) | Self::Text(_) | Self::Negate(_) => false,
            Self::Binary(b) => match b.op {
                BinaryOp::Or => true,
                BinaryOp::And | BinaryOp::Unless => b.lhs.may_collide_without_name(),
                op if op.is_comparison() && !b.return_bool => true,
                _ => false,
            },
            Self::Aggregate(_) => true,
            Self::Call(call) => match call.function {
                Function::LastOverTime | Function::FirstOverTime => call.args[0].may_collide_without_name(),
                Function::LabelReplace
                | Function::LabelJoin
                | Function::HistogramQuantiles
                | Function::Sort
                | Function::SortDesc
                | Function::SortByLabel
                | Function::SortByLabelDesc => true,
                _ => false,
            },
        }
    }
}
