//! Aggregations, such as `sum`. Each series is added to its group as soon as it is read, and is not kept.

mod cells;
mod ranked;

use super::QueryError;
use super::ast::{Aggregate, AggregateOp, Node};
use super::eval::Evaluator;
use super::float::is_present;
use super::float::{nan_first, quantile_sorted};
use super::grid::Grid;
use super::label_set::{Groups, with};
use super::matrix::{Column, Matrix, Merged};
use super::row::{Row, RowName};
use super::rows::Rows;
use cells::{AvgCell, Cell, CountCell, GroupCell, MaxCell, MinCell, StddevCell, StdvarCell, SumCell};

impl<'a> Evaluator<'a> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        match aggregate.op {
            AggregateOp::Sum => self.fold::<SumCell>(aggregate, grid),
            AggregateOp::Avg => self.fold::<AvgCell>(aggregate, grid),
            AggregateOp::Count => self.fold::<CountCell>(aggregate, grid),
            AggregateOp::Min => self.fold::<MinCell>(aggregate, grid),
            AggregateOp::Max => self.fold::<MaxCell>(aggregate, grid),
            AggregateOp::Group => self.fold::<GroupCell>(aggregate, grid),
            AggregateOp::Stddev => self.fold::<StddevCell>(aggregate, grid),
            AggregateOp::Stdvar => self.fold::<StdvarCell>(aggregate, grid),
            AggregateOp::Quantile => self.quantile(aggregate, grid),
            AggregateOp::CountValues => self.count_values(aggregate, grid),
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => {
                self.ranked(aggregate, grid)
            }
        }
    }

    fn fold<C: Cell>(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let count = grid.count;
        let mut groups = Groups::new(&aggregate.grouping, self.meter);
        let single = groups.is_single();
        let (mut cells, mut drop_names) = (Rows::<C>::new(count), Vec::new());
        let mut charge = self.meter.charge();
        let mut buffer = Vec::new();
        self.stream(&aggregate.expr, grid, &mut |mut row: Row<'_>| {
            let group = if single { groups.single() } else { groups.of(row.labels(&mut buffer))? };
            if group == drop_names.len() {
                charge.add(count * size_of::<C>() / 8)?;
                cells.push(C::EMPTY);
                drop_names.push(false);
            }
            drop_names[group] |= row.drop_name;
            for (cell, value) in cells.row_mut(group).iter_mut().zip(row.values.iter().copied()) {
                if is_present(value) {
                    cell.push(value);
                }
            }
            Ok(())
        })?;
        let mut out = Matrix::new(self.meter, count);
        for (group, (labels, drop_name)) in groups.labels.into_iter().zip(drop_names).enumerate() {
            self.check_canceled()?;
            let row = out.push_empty(RowName { labels, drop_name })?;
            out.row_mut(row)
                .iter_mut()
                .zip(cells.row(group))
                .for_each(|(value, cell)| *value = cell.finish());
        }
        Ok(out)
    }

    fn parameter(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Column<'a>, QueryError> {
        let param = aggregate.param.as_ref().expect("BUG: types were checked, but a parameter is missing");
        self.scalar(param, grid)
    }

    pub(super) fn warn_quantiles(&mut self, quantiles: &[f64]) {
        let bad = |q: f64| q.is_nan() || !(0.0..=1.0).contains(&q);
        let mut last = None;
        for q in quantiles.iter().copied().filter(|q| bad(*q)) {
            if last != Some(q.to_bits()) {
                last = Some(q.to_bits());
                self.warn(format_args!(
                    "quantile value should be between 0 and 1, got {}",
                    super::float::to_text(q)
                ));
            }
        }
    }

    fn quantile(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let quantiles = self.parameter(aggregate, grid)?;
        self.warn_quantiles(&quantiles);
        let mut groups = Groups::new(&aggregate.grouping, self.meter);
        let single = groups.is_single();
        // the values of each group, one series after the other
        let (mut values, mut drop_names) = (Vec::<Vec<f64>>::new(), Vec::new());
        let mut charge = self.meter.charge();
        let mut buffer = Vec::new();
        self.stream(&aggregate.expr, grid, &mut |mut row: Row<'_>| {
            let group = if single { groups.single() } else { groups.of(row.labels(&mut buffer))? };
            if group == drop_names.len() {
                values.push(Vec::new());
                drop_names.push(false);
            }
            drop_names[group] |= row.drop_name;
            let room = &mut values[group];
            if room.capacity() - room.len() < row.values.len() {
                // charges twice the growth, because the old and the new memory exist at the same time while
                // the vector grows
                charge.add(2 * (room.len() / 2 + row.values.len()))?;
                room.reserve_exact(room.len() / 2 + row.values.len());
            }
            room.extend_from_slice(row.values);
            Ok(())
        })?;
        let mut out = Matrix::new(self.meter, grid.count);
        let mut sorted = Vec::new();
        for (group, (labels, drop_name)) in groups.labels.into_iter().zip(drop_names).enumerate() {
            let row = out.push_empty(RowName { labels, drop_name })?;
            for (step, cell) in out.row_mut(row).iter_mut().enumerate() {
                self.check_canceled()?;
                sorted.clear();
                let column = values[group][step..].iter().step_by(grid.count).copied();
                sorted.extend(column.filter(|v| is_present(*v)));
                if !sorted.is_empty() {
                    sorted.sort_unstable_by(nan_first);
                    *cell = quantile_sorted(quantiles[step], sorted.len(), |i| sorted[i]);
                }
            }
        }
        Ok(out)
    }

    fn count_values(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let Some(Node::Text(label)) = &aggregate.param else {
            panic!("BUG: types were checked, but the parameter is not a string");
        };
        if label.is_empty() {
            return Err(QueryError::Execution(format!("invalid label name {label:?}")));
        }
        // the label with the value is added to the group's labels below, whether or not the grouping lists it
        let mut groups = Groups::new(&aggregate.grouping, self.meter);
        let single = groups.is_single();
        let mut out = Merged::new(self.meter, grid.count);
        let mut rows = hashbrown::HashMap::<(usize, u64), usize>::new();
        let meter = self.meter;
        let mut buffer = Vec::new();
        self.stream(&aggregate.expr, grid, &mut |mut row: Row<'_>| {
            let group = if single { groups.single() } else { groups.of(row.labels(&mut buffer))? };
            for (step, value) in row.values.iter().copied().enumerate() {
                if !is_present(value) {
                    continue;
                }
                let key = (group, if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() });
                let cell = match rows.get(&key) {
                    Some(row) => *row,
                    None => {
                        meter.check()?;
                        let text = decimal(value);
                        let labels = with(groups.labels[group].as_ref(), &[(label, &text)])?;
                        let row = out.row_of(&RowName { labels, drop_name: false })?;
                        rows.insert(key, row);
                        row
                    }
                };
                let cell = &mut out.matrix.row_mut(cell)[step];
                *cell = if is_present(*cell) { *cell + 1.0 } else { 1.0 };
            }
            Ok(())
        })?;
        Ok(out.matrix)
    }
}

/// Formats a value without an exponent, for the label that `count_values` adds.
fn decimal(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value if value.is_nan() => "NaN".into(),
        value => value.to_string(),
    }
}
