//! Functions over instant vectors.

mod calendar;
mod histogram;
mod labels;
mod sort;

use crate::matcher::{MatchOp, Matcher};
use crate::promql::QueryError;
use crate::promql::ast::{Call, Node};
use crate::promql::eval::Evaluator;
use crate::promql::float::{ABSENT, extreme, is_present};
use crate::promql::functions::Function;
use crate::promql::grid::Grid;
use crate::promql::matrix::Column;
use crate::promql::row::{Row, Sink};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder};

impl<'a> Evaluator<'a> {
    pub(in crate::promql) fn stream_call(
        &mut self,
        call: &Call,
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        use Function as F;
        let args = call.args.as_slice();
        if let Some(map) = elementwise(call.function) {
            return self.stream_mapped(&args[0], grid, true, |_, v| map(v), sink);
        }
        match call.function {
            F::AbsentOverTime => self.absent_over_time(call, grid, sink),
            f if f.is_over_range() => self.select_range(call, grid, sink),
            F::Clamp | F::ClampMin | F::ClampMax => self.clamp(call, grid, sink),
            F::Round => self.round(args, grid, sink),
            F::Timestamp => self.timestamp(&args[0], grid, sink),
            F::Absent => self.absent(&args[0], grid, sink),
            F::Vector => {
                let mut column = self.scalar(&args[0], grid)?;
                emit_one(Labels::empty(), &mut column.values, sink)
            }
            F::LabelReplace => self.label_replace(args, grid, sink),
            F::LabelJoin => self.label_join(args, grid, sink),
            F::Sort | F::SortDesc | F::SortByLabel | F::SortByLabelDesc => self.sort(call, grid, sink),
            F::HistogramQuantile => self.histogram_quantile(args, grid, sink),
            F::HistogramQuantiles => self.histogram_quantiles(args, grid, sink),
            F::HistogramFraction => self.histogram_fraction(args, grid, sink),
            // Native histograms cannot be evaluated yet. For floats, the result is empty.
            F::HistogramAvg
            | F::HistogramCount
            | F::HistogramStddev
            | F::HistogramStdvar
            | F::HistogramSum => self.stream(&args[0], grid, &mut |_| Ok(())),
            function => match calendar::part(function) {
                Some(part) => self.calendar(part, args, grid, sink),
                None => panic!("BUG: {} does not return a vector", function.name()),
            },
        }
    }

    fn clamp(&mut self, call: &Call, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let mut bound = |at: Option<usize>, or: f64| match at {
            Some(at) => self.scalar(&call.args[at], grid),
            None => Column::new(self.meter, grid.count, or),
        };
        let (low, high) = match call.function {
            Function::Clamp => (Some(1), Some(2)),
            Function::ClampMin => (Some(1), None),
            _ => (None, Some(1)),
        };
        let (low, high) = (bound(low, f64::NEG_INFINITY)?, bound(high, f64::INFINITY)?);
        let map = |step: usize, value: f64| {
            if high[step] < low[step] {
                return ABSENT;
            }
            extreme(low[step], extreme(high[step], value, false), true)
        };
        self.stream_mapped(&call.args[0], grid, true, map, sink)
    }

    fn round(&mut self, args: &[Node], grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let to = match args.get(1) {
            Some(to) => self.scalar(to, grid)?,
            None => Column::new(self.meter, grid.count, 1.0)?,
        };
        // As in Prometheus, multiplies by the inverse: a division would lose more precision.
        let map = |step: usize, value: f64| {
            let inverse = 1.0 / to[step];
            (value * inverse + 0.5).floor() / inverse
        };
        self.stream_mapped(&args[0], grid, true, map, sink)
    }

    /// `timestamp(v)`: times of samples for a selector, evaluation times for any other expression.
    fn timestamp(&mut self, arg: &Node, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let Node::Selector(selector) = arg else {
            let map = |step: usize, _: f64| grid.time_ms(step) as f64 / 1000.0;
            return self.stream_mapped(arg, grid, true, map, sink);
        };
        let delayed = self.options.delayed_name_removal;
        let mut merged = crate::promql::matrix::Merged::new(self.meter, grid.count);
        let merge = !delayed && arg.may_collide_without_name();
        self.select_instant(selector, grid, true, &mut |mut row: Row<'_>| {
            row.without_name(delayed);
            if merge { merged.add_row(row) } else { sink(row) }
        })?;
        merged.matrix.emit(sink)
    }

    fn absent(&mut self, arg: &Node, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let mut column = Column::new(self.meter, grid.count, 1.0)?;
        self.stream(arg, grid, &mut |row: Row<'_>| {
            clear_where_present(&mut column.values, row.values);
            Ok(())
        })?;
        emit_one(absent_labels(arg)?, &mut column.values, sink)
    }

    fn absent_over_time(&mut self, call: &Call, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let mut column = Column::new(self.meter, grid.count, 1.0)?;
        self.select_range(call, grid, &mut |row: Row<'_>| {
            clear_where_present(&mut column.values, row.values);
            Ok(())
        })?;
        emit_one(absent_labels(&call.args[0])?, &mut column.values, sink)
    }
}

fn clear_where_present(column: &mut [f64], row: &[f64]) {
    for (cell, value) in column.iter_mut().zip(row) {
        if is_present(*value) {
            *cell = ABSENT;
        }
    }
}

fn emit_one(mut labels: Labels, values: &mut [f64], sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let row = Row { labels: &mut labels, strip: false, drop_name: false, values };
    if row.is_empty() { Ok(()) } else { sink(row) }
}

/// Labels of the series that `absent` returns. It has a label if the label's only matcher is an equality:
/// `job` for `{job="api"}`.
fn absent_labels(arg: &Node) -> Result<Labels, QueryError> {
    let matchers: &[Matcher] = match arg {
        Node::Selector(selector) | Node::Range(selector, _) => &selector.matchers,
        _ => &[],
    };
    let mut builder = LabelsBuilder::new();
    for matcher in matchers {
        let alone = matchers.iter().filter(|m| m.name == matcher.name).count() == 1;
        if alone && matcher.op == MatchOp::Equal && matcher.name != METRIC_NAME {
            builder.push(&matcher.name, &matcher.value);
        }
    }
    builder.build().map_err(|error| QueryError::Execution(error.to_string()))
}

/// The computation of a function that maps each value on its own, such as `abs`; `None` for other functions.
fn elementwise(function: Function) -> Option<fn(f64) -> f64> {
    Some(match function {
        Function::Abs => f64::abs,
        Function::Acos => f64::acos,
        Function::Acosh => f64::acosh,
        Function::Asin => f64::asin,
        Function::Asinh => f64::asinh,
        Function::Atan => f64::atan,
        Function::Atanh => f64::atanh,
        Function::Ceil => f64::ceil,
        Function::Cos => f64::cos,
        Function::Cosh => f64::cosh,
        Function::Deg => |v| v * 180.0 / std::f64::consts::PI,
        Function::Exp => f64::exp,
        Function::Floor => f64::floor,
        Function::Ln => f64::ln,
        Function::Log10 => f64::log10,
        Function::Log2 => f64::log2,
        Function::Rad => |v| v * std::f64::consts::PI / 180.0,
        Function::Sgn => |v| {
            if v < 0.0 {
                -1.0
            } else if v > 0.0 {
                1.0
            } else {
                v
            }
        },
        Function::Sin => f64::sin,
        Function::Sinh => f64::sinh,
        Function::Sqrt => f64::sqrt,
        Function::Tan => f64::tan,
        Function::Tanh => f64::tanh,
        _ => return None,
    })
}
