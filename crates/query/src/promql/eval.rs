//! Evaluates a tree at given times.

use super::ast::{At, BinaryOp, Node, TimeShift};
use super::float::{drop_stale, is_present};
use super::grid::{Grid, Shift};
use super::label_set::{sort_key, without_name};
use super::matrix::{Column, Matrix, Merged, same_labelset};
use super::operator::{arithmetic, compare};
use super::{ANNOTATION_BYTES_MAX, ANNOTATIONS_MAX, Answer, Options, QueryError, Value, ValueType};
use crate::meter::{Charge, Meter};
use crate::source::SeriesSource;
use model::{Labels, Samples, SeriesSamples};
use std::collections::BTreeSet;
use std::ops::Range;

pub(super) struct Evaluator<'a> {
    pub(super) source: &'a dyn SeriesSource,
    pub(super) options: &'a Options<'a>,
    pub(super) meter: &'a Meter<'a>,
    /// Times of the whole query, for `@ start()` and `@ end()`.
    pub(super) query_start_ms: i64,
    pub(super) query_end_ms: i64,
    pub(super) query_step_ms: i64,
    /// Buffer for the samples of one series, and the charge for its memory.
    pub(super) samples: (SeriesSamples, Charge<'a>),
    warnings: BTreeSet<String>,
    infos: BTreeSet<String>,
}

pub(super) fn instant(
    root: &Node,
    at_ms: i64,
    source: &dyn SeriesSource,
    options: &Options<'_>,
) -> Result<Answer, QueryError> {
    let meter = Meter::new(options.samples_max, options.canceled, options.usage);
    let mut eval = Evaluator::new(source, options, &meter, (at_ms, at_ms, 0));
    let grid = Grid::single(at_ms);
    let value = match root.value_type() {
        ValueType::String => match root {
            Node::Text(text) => Value::String { timestamp_ms: at_ms, value: text.clone() },
            _ => panic!("BUG: a string is not a literal"),
        },
        ValueType::Scalar => Value::Scalar { timestamp_ms: at_ms, value: eval.scalar(root, &grid)?[0] },
        ValueType::Vector => {
            let matrix = eval.matrix(root, &grid)?;
            let matrix = eval.clean_names(matrix)?;
            let mut all = Vec::with_capacity(matrix.len());
            matrix.drain(|name, row| all.push((name.labels, at_ms, row[0])));
            Value::Vector(all)
        }
        ValueType::Matrix => {
            let mut series = eval.samples_of(root, at_ms)?;
            sort_series(&mut series, &meter)?;
            Value::Matrix(series)
        }
    };
    Ok(eval.answer(value))
}

pub(super) fn range(
    root: &Node,
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
    source: &dyn SeriesSource,
    options: &Options<'_>,
) -> Result<Answer, QueryError> {
    if step_ms <= 0 {
        return Err(QueryError::Invalid(
            "zero or negative query resolution step widths are not accepted. Try a positive integer".into(),
        ));
    }
    let meter = Meter::new(options.samples_max, options.canceled, options.usage);
    let mut eval = Evaluator::new(source, options, &meter, (start_ms, end_ms, step_ms));
    let grid = Grid::new(start_ms, end_ms, step_ms, meter.max())?;
    let series = match root.value_type() {
        ValueType::Scalar => {
            let column = eval.scalar(root, &grid)?;
            let timestamps = (0..grid.count).map(|step| grid.time_ms(step)).collect();
            vec![(Labels::empty(), Samples { timestamps, values: column.values })]
        }
        ValueType::Vector => {
            let matrix = eval.matrix(root, &grid)?;
            let matrix = eval.clean_names(matrix)?;
            let mut series = Vec::with_capacity(matrix.len());
            matrix.drain(|name, row| series.push((name.labels, present(row, &grid))));
            sort_series(&mut series, &meter)?;
            series
        }
        other => {
            return Err(QueryError::Invalid(format!(
                "invalid expression type {:?} for range query, must be Scalar or instant Vector",
                other.described()
            )));
        }
    };
    Ok(eval.answer(Value::Matrix(series)))
}

fn present(row: &[f64], grid: &Grid) -> Samples {
    let count = row.iter().copied().filter(|v| is_present(*v)).count();
    let mut samples = Samples { timestamps: Vec::with_capacity(count), values: Vec::with_capacity(count) };
    for (step, value) in row.iter().copied().enumerate() {
        if is_present(value) {
            samples.push(grid.time_ms(step), value);
        }
    }
    samples
}

/// Sorts series by labels in Prometheus' order.
fn sort_series(series: &mut Vec<(Labels, Samples)>, meter: &Meter<'_>) -> Result<(), QueryError> {
    meter.check()?;
    let mut charge = meter.charge();
    let text: usize = series.iter().map(|(labels, _)| labels.as_bytes().len()).sum();
    charge.add_bytes(text + series.len() * SORTING_BYTES)?;
    // a key is shorter than the canonical form of the labels
    let mut arena = Vec::with_capacity(text);
    let keys = series.iter().map(|(labels, _)| {
        let start = arena.len();
        sort_key(&mut arena, labels.as_ref());
        start..arena.len()
    });
    let keys: Vec<_> = keys.collect();
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by(|a, b| arena[keys[*a].clone()].cmp(&arena[keys[*b].clone()]));
    let mut slots: Vec<_> = std::mem::take(series).into_iter().map(Some).collect();
    *series =
        order.into_iter().map(|i| slots[i].take().expect("BUG: an index occurs twice in an order")).collect();
    Ok(())
}

/// Memory that sorting takes for each series, besides its key.
const SORTING_BYTES: usize =
    size_of::<Range<usize>>() + size_of::<usize>() + 2 * size_of::<(Labels, Samples)>();

impl<'a> Evaluator<'a> {
    fn new(
        source: &'a dyn SeriesSource,
        options: &'a Options<'a>,
        meter: &'a Meter<'a>,
        (query_start_ms, query_end_ms, query_step_ms): (i64, i64, i64),
    ) -> Self {
        Self {
            source,
            options,
            meter,
            query_start_ms,
            query_end_ms,
            query_step_ms,
            samples: (SeriesSamples::default(), meter.charge()),
            warnings: BTreeSet::new(),
            infos: BTreeSet::new(),
        }
    }

    fn answer(self, value: Value) -> Answer {
        Answer {
            value,
            warnings: self.warnings.into_iter().collect(),
            infos: self.infos.into_iter().collect(),
        }
    }

    pub(super) fn check_canceled(&self) -> Result<(), QueryError> {
        self.meter.check()
    }

    pub(super) const fn is_instant(&self) -> bool {
        self.query_start_ms == self.query_end_ms
    }

    pub(super) fn warn(&mut self, message: impl std::fmt::Display) {
        if self.warnings.len() < ANNOTATIONS_MAX {
            self.warnings.insert(annotation("warning", message));
        }
    }

    pub(super) fn info(&mut self, message: impl std::fmt::Display) {
        if self.infos.len() < ANNOTATIONS_MAX {
            self.infos.insert(annotation("info", message));
        }
    }

    pub(super) fn shift(&self, shift: &TimeShift) -> Shift {
        let fixed_ms = shift.at.map(|at| match at {
            At::Start => self.query_start_ms,
            At::End => self.query_end_ms,
            At::Time(ms) => ms,
        });
        Shift { fixed_ms, offset_ms: shift.offset_ms }
    }

    pub(super) fn scalar(&mut self, node: &Node, grid: &Grid) -> Result<Column<'a>, QueryError> {
        self.check_canceled()?;
        if grid.count > 1 && node.is_step_invariant() && !matches!(node, Node::Number(_)) {
            let value = self.scalar(node, &Grid::single(grid.start_ms))?[0];
            return Column::new(self.meter, grid.count, value);
        }
        match node {
            Node::Number(value) => Column::new(self.meter, grid.count, *value),
            Node::Negate(inner) => {
                let mut column = self.scalar(inner, grid)?;
                column.values.iter_mut().for_each(|v| *v = -*v);
                Ok(column)
            }
            Node::Binary(b) => {
                let (mut lhs, rhs) = (self.scalar(&b.lhs, grid)?, self.scalar(&b.rhs, grid)?);
                for (l, r) in lhs.values.iter_mut().zip(rhs.iter()) {
                    *l = scalars(b.op, *l, *r);
                }
                Ok(lhs)
            }
            Node::Call(call) => self.scalar_call(call, grid),
            _ => panic!("BUG: types were checked, but a scalar is a {}", node.value_type().as_str()),
        }
    }

    /// Drops the metric names that operations only marked with `drop_name`, at the end of the evaluation.
    fn clean_names(&self, matrix: Matrix<'a>) -> Result<Matrix<'a>, QueryError> {
        if !matrix.names.iter().any(|name| name.drop_name) {
            return Ok(matrix);
        }
        let instant = matrix.steps == 1;
        let mut merged = Merged::new(self.meter, matrix.steps);
        for (i, name) in matrix.names.iter().enumerate() {
            self.check_canceled()?;
            let mut name = name.clone();
            if name.drop_name {
                name.labels = without_name(name.labels.as_ref());
            }
            if instant && merged.contains(&name) {
                return Err(same_labelset());
            }
            merged.add(&name, matrix.row(i))?;
        }
        Ok(merged.matrix)
    }

    /// The samples of a range selector or a subquery that is the whole expression.
    fn samples_of(&mut self, node: &Node, at_ms: i64) -> Result<Vec<(Labels, Samples)>, QueryError> {
        let (mut series, mut charge) = (Vec::new(), self.meter.charge());
        match node {
            Node::Range(selector, range_ms) => {
                let end_ms = self.shift(&selector.time).apply(at_ms);
                let range = model::TimeRange::new(end_ms.saturating_sub(range_ms - 1), end_ms);
                self.each_series(&selector.matchers, range, &mut |set, samples| {
                    drop_stale(samples);
                    if !samples.is_empty() {
                        let labels = set.labels().to_owned();
                        charge.add_series(labels.as_ref())?;
                        charge.add(samples.len())?;
                        series.push((labels, samples.clone()));
                    }
                    Ok(())
                })?;
            }
            Node::Subquery(subquery) => {
                let inner = self.subquery_grid(subquery, &Grid::single(at_ms))?;
                let matrix = self.matrix(&subquery.expr, &inner)?;
                let matrix = self.clean_names(matrix)?;
                matrix.drain(|name, row| series.push((name.labels, present(row, &inner))));
            }
            _ => panic!("BUG: types were checked, but a range vector is a {}", node.value_type().as_str()),
        }
        Ok(series)
    }
}

/// Text of a warning or info, cut to a limit because it can contain long label values.
fn annotation(kind: &str, message: impl std::fmt::Display) -> String {
    let mut text = format!("PromQL {kind}: {message}");
    if text.len() > ANNOTATION_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ANNOTATION_BYTES_MAX));
        text.push('…');
    }
    text
}

fn scalars(op: BinaryOp, l: f64, r: f64) -> f64 {
    match compare(op, l, r) {
        Some(holds) => f64::from(u8::from(holds)),
        None => arithmetic(op, l, r),
    }
}
