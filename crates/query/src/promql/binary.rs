//! Binary operations.

use super::QueryError;
use super::ast::{Binary, BinaryOp, Grouping, Many, Matching};
use super::eval::Evaluator;
use super::float::{ABSENT, is_absent, is_present};
use super::grid::Grid;
use super::label_set::{Groups, is_metadata, keep, to_text, with};
use super::matrix::{Matrix, Merged};
use super::operator::with_scalar;
use super::row::RowName;
use crate::meter::{Charge, Meter};
use hashbrown::HashMap;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsRef};

impl<'a> Evaluator<'a> {
    pub(super) fn vectors(&mut self, b: &Binary, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let lhs = self.matrix(&b.lhs, grid)?;
        let rhs = self.matrix(&b.rhs, grid)?;
        let join = Join::new(self.meter, &b.matching, &lhs, &rhs)?;
        if b.op.is_set() {
            return set_operation(self.meter, b.op, lhs, rhs, &join);
        }
        let swapped = b.matching.many == Many::Right;
        let (many, one) = if swapped { (&rhs, &lhs) } else { (&lhs, &rhs) };
        let mut pairing = Pairing {
            meter: self.meter,
            b,
            many,
            one,
            active: active_steps(self.meter, &b.matching, many, one)?,
            drops_name: !b.op.is_comparison() || (b.return_bool && !self.options.delayed_name_removal),
            out: Merged::new(self.meter, grid.count),
            rows: HashMap::new(),
            written: Vec::new(),
            touched: Vec::new(),
            charge: self.meter.charge(),
        };
        for group in 0..join.count {
            self.check_canceled()?;
            let (many, one) = (&join.lhs[group], &join.rhs[group]);
            let (many, one) = if swapped { (one, many) } else { (many, one) };
            pairing.group(many, one)?;
        }
        Ok(pairing.out.matrix)
    }
}

struct Join {
    count: usize,
    /// For each match group, the rows of the left matrix that belong to it.
    lhs: Vec<Vec<usize>>,
    rhs: Vec<Vec<usize>>,
}

impl Join {
    fn new(
        meter: &Meter<'_>,
        matching: &Matching,
        lhs: &Matrix<'_>,
        rhs: &Matrix<'_>,
    ) -> Result<Self, QueryError> {
        let labels = matching.labels.clone();
        let grouping = if matching.on { Grouping::By(labels) } else { Grouping::Without(labels) };
        let mut groups = Groups::new(&grouping, meter);
        let mut sides = [Vec::new(), Vec::new()];
        for (side, matrix) in sides.iter_mut().zip([lhs, rhs]) {
            for (i, name) in matrix.names.iter().enumerate() {
                meter.check()?;
                let group = groups.of(name.labels.as_ref())?;
                if side.len() <= group {
                    side.resize_with(group + 1, Vec::new);
                }
                side[group].push(i);
            }
        }
        let count = groups.labels.len();
        let [mut lhs, mut rhs] = sides;
        lhs.resize_with(count, Vec::new);
        rhs.resize_with(count, Vec::new);
        Ok(Self { count, lhs, rhs })
    }
}

/// `and`, `or`, `unless`.
fn set_operation<'m>(
    meter: &'m Meter<'m>,
    op: BinaryOp,
    mut lhs: Matrix<'m>,
    mut rhs: Matrix<'m>,
    join: &Join,
) -> Result<Matrix<'m>, QueryError> {
    let mut there = vec![false; lhs.steps];
    let mark = |there: &mut Vec<bool>, matrix: &Matrix<'_>, rows: &[usize]| {
        there.fill(false);
        for row in rows {
            meter.check()?;
            there.iter_mut().zip(matrix.row(*row)).for_each(|(t, v)| *t |= is_present(*v));
        }
        Ok::<_, QueryError>(())
    };
    let filter = |matrix: &mut Matrix<'_>, rows: &[usize], there: &[bool], keep: bool| {
        for row in rows {
            meter.check()?;
            for (value, there) in matrix.row_mut(*row).iter_mut().zip(there) {
                if *there != keep {
                    *value = ABSENT;
                }
            }
        }
        Ok::<_, QueryError>(())
    };
    for group in 0..join.count {
        let (l, r) = (&join.lhs[group], &join.rhs[group]);
        if op == BinaryOp::Or {
            mark(&mut there, &lhs, l)?;
            filter(&mut rhs, r, &there, false)?;
        } else {
            mark(&mut there, &rhs, r)?;
            filter(&mut lhs, l, &there, op == BinaryOp::And)?;
        }
    }
    if op != BinaryOp::Or {
        return Ok(lhs);
    }
    let mut out = Merged::new(meter, lhs.steps);
    for matrix in [&lhs, &rhs] {
        for (i, name) in matrix.names.iter().enumerate() {
            meter.check()?;
            if matrix.row(i).iter().copied().any(is_present) {
                out.add(name, matrix.row(i))?;
            }
        }
    }
    Ok(out.matrix)
}

/// True for each step at which the operation can have results: both sides have a value or, if missing values
/// are filled, at least one side does.
fn active_steps(
    meter: &Meter<'_>,
    matching: &Matching,
    many: &Matrix<'_>,
    one: &Matrix<'_>,
) -> Result<Vec<bool>, QueryError> {
    let any = |matrix: &Matrix<'_>| {
        let mut any = vec![false; matrix.steps];
        for i in 0..matrix.len() {
            meter.check()?;
            any.iter_mut().zip(matrix.row(i)).for_each(|(a, v)| *a |= is_present(*v));
        }
        Ok::<_, QueryError>(any)
    };
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    let (many, one) = (any(many)?, any(one)?);
    Ok(many.iter().zip(&one).map(|(m, o)| if fills { *m || *o } else { *m && *o }).collect())
}

const NO_ROW: usize = usize::MAX;

/// Memory that an entry of `Pairing::rows` takes while the map is half full.
const PAIR_BYTES: usize = 2 * (size_of::<((usize, usize), usize)>() + 1);

/// Memory that a result row takes in `Pairing::written` and `Pairing::touched` while they are half full,
/// without its steps.
const WRITTEN_STEPS_BYTES: usize = 2 * (size_of::<WrittenSteps>() + size_of::<usize>());

/// Steps at which the current match group wrote to a result row, even if a comparison filtered the value out.
#[derive(Debug, Default)]
struct WrittenSteps {
    steps: Vec<bool>,
    touched: bool,
}

/// Evaluation of an arithmetic or comparison operation, match group by match group. At each step, a group may
/// have one row on the "one" side, and several on the "many" side.
struct Pairing<'p, 'm> {
    meter: &'p Meter<'p>,
    b: &'p Binary,
    many: &'p Matrix<'m>,
    one: &'p Matrix<'m>,
    active: Vec<bool>,
    drops_name: bool,
    out: Merged<'m>,
    rows: HashMap<(usize, usize), usize>,
    /// State of each result row. Kept only with `group_left` or `group_right`.
    written: Vec<WrittenSteps>,
    /// Rows of `written` that the current match group uses.
    touched: Vec<usize>,
    charge: Charge<'p>,
}

impl Pairing<'_, '_> {
    fn group(&mut self, many: &[usize], one: &[usize]) -> Result<(), QueryError> {
        let matching = &self.b.matching;
        // Prometheus swaps the sides of `group_right`, but not their fill values.
        let (fill_many, fill_one) = (matching.fill_left, matching.fill_right);
        if one.is_empty() && fill_one.is_none() || many.is_empty() && fill_many.is_none() && one.len() < 2 {
            return Ok(());
        }
        let partner = self.partners(one)?;
        let mut matched = vec![false; self.active.len()];
        for row in many {
            self.meter.check()?;
            self.pair_row(*row, &partner, fill_one, &mut matched)?;
        }
        for row in self.touched.drain(..) {
            self.meter.check()?;
            let written = &mut self.written[row];
            written.steps.fill(false);
            written.touched = false;
        }
        if let Some(fill) = fill_many {
            for row in one {
                self.meter.check()?;
                self.fill_row(*row, fill, &matched)?;
            }
        }
        Ok(())
    }

    /// For each step, the row of the "one" side that has a value, or [`NO_ROW`].
    fn partners(&self, one: &[usize]) -> Result<Vec<usize>, QueryError> {
        let mut partner = vec![NO_ROW; self.active.len()];
        for row in one {
            self.meter.check()?;
            for (step, value) in self.one.row(*row).iter().enumerate() {
                if is_absent(*value) || !self.active[step] {
                    continue;
                }
                if partner[step] != NO_ROW {
                    return Err(self.duplicate(partner[step], *row));
                }
                partner[step] = *row;
            }
        }
        Ok(partner)
    }

    fn pair_row(
        &mut self,
        row: usize,
        partner: &[usize],
        fill_one: Option<f64>,
        matched: &mut [bool],
    ) -> Result<(), QueryError> {
        let grouped = self.b.matching.many != Many::None;
        let mut last = (NO_ROW, None);
        for step in 0..partner.len() {
            let value = self.many.row(row)[step];
            if is_absent(value) || !self.active[step] {
                continue;
            }
            let other = match partner[step] {
                NO_ROW => match fill_one {
                    Some(fill) => fill,
                    None => continue,
                },
                one => self.one.row(one)[step],
            };
            if !grouped && matched[step] {
                return Err(QueryError::Execution(
                    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                        .into(),
                ));
            }
            matched[step] = true;
            let out = match last {
                (one, Some(out)) if one == partner[step] => out,
                _ => {
                    let out = self.row_of(row, partner[step])?;
                    self.touch(out)?;
                    out
                }
            };
            last = (partner[step], Some(out));
            if grouped && std::mem::replace(&mut self.written[out].steps[step], true) {
                return Err(QueryError::Execution(
                    "multiple matches for labels: grouping labels must ensure unique matches".into(),
                ));
            }
            self.put(out, step, value, other)?;
        }
        Ok(())
    }

    fn touch(&mut self, out: usize) -> Result<(), QueryError> {
        if self.b.matching.many == Many::None {
            return Ok(());
        }
        if self.written.len() <= out {
            self.charge.add_bytes((out + 1 - self.written.len()) * WRITTEN_STEPS_BYTES)?;
            self.written.resize_with(out + 1, WrittenSteps::default);
        }
        let written = &mut self.written[out];
        if written.touched {
            return Ok(());
        }
        if written.steps.is_empty() {
            self.charge.add_bytes(self.active.len())?;
            written.steps.resize(self.active.len(), false);
        }
        written.touched = true;
        self.touched.push(out);
        Ok(())
    }

    /// Pairs a row of the "one" side with a fill value at the steps where it has no match.
    fn fill_row(&mut self, row: usize, fill: f64, matched: &[bool]) -> Result<(), QueryError> {
        let mut out = None;
        for (step, matched) in matched.iter().enumerate() {
            let value = self.one.row(row)[step];
            if is_absent(value) || !self.active[step] || *matched {
                continue;
            }
            let out = match out {
                Some(out) => out,
                None => *out.insert(self.row_of(NO_ROW, row)?),
            };
            self.put(out, step, fill, value)?;
        }
        Ok(())
    }

    fn put(&mut self, out: usize, step: usize, many: f64, one: f64) -> Result<(), QueryError> {
        let swapped = self.b.matching.many == Many::Right;
        let (l, r) = if swapped { (one, many) } else { (many, one) };
        let value = with_scalar(self.b.op, l, r, l, self.b.return_bool);
        if is_present(value) { self.out.set(out, step, value) } else { Ok(()) }
    }

    /// Finds the result row for a pair of rows, or adds it.
    fn row_of(&mut self, many: usize, one: usize) -> Result<usize, QueryError> {
        if let Some(row) = self.rows.get(&(many, one)) {
            return Ok(*row);
        }
        let name = |matrix: &Matrix<'_>, row: usize| matrix.names.get(row).map(|n| n.labels.clone());
        let (many_labels, one_labels) = (name(self.many, many), name(self.one, one));
        let matching = &self.b.matching;
        let stand_in = |of: &Option<Labels>| match of {
            Some(labels) => match_labels(labels.as_ref(), matching),
            None => panic!("BUG: both sides of a pair are fill values"),
        };
        let many_labels = many_labels.unwrap_or_else(|| stand_in(&one_labels));
        let one_labels = one_labels.unwrap_or_else(|| stand_in(&Some(many_labels.clone())));
        let labels = self.result_labels(many_labels.as_ref(), one_labels.as_ref())?;
        let row = self.out.row_of(&RowName { labels, drop_name: self.b.return_bool && !self.drops_name })?;
        self.charge.add_bytes(PAIR_BYTES)?;
        self.rows.insert((many, one), row);
        Ok(row)
    }

    fn result_labels(&self, many: LabelsRef<'_>, one: LabelsRef<'_>) -> Result<Labels, QueryError> {
        let matching = &self.b.matching;
        let plain = matching.many == Many::None;
        let kept = keep(many, |name| {
            !(self.drops_name && is_metadata(name))
                && (!plain || matching.on == is_listed(&matching.labels, name))
        });
        if matching.include.is_empty() {
            return Ok(kept);
        }
        // loops over the labels of the series and not over `include`, which may be far longer
        let changed = kept.iter().map(|(name, _)| (name, one.get(name).unwrap_or("")));
        let added = one.iter().filter(|(name, _)| kept.get(name).is_none());
        let changes = changed.chain(added).filter(|(name, _)| is_listed(&matching.include, name));
        with(kept.as_ref(), &changes.collect::<Vec<_>>())
    }

    fn duplicate(&self, first: usize, second: usize) -> QueryError {
        let text = |row: usize| to_text(self.one.names[row].labels.as_ref());
        let (a, b) = (text(first), text(second));
        let (a, b) = if a > b { (b, a) } else { (a, b) };
        let group = match_labels(self.one.names[second].labels.as_ref(), &self.b.matching);
        let side = if self.b.matching.many == Many::Right { "left" } else { "right" };
        QueryError::Execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the operation: [{a}, {b}]\
             ;many-to-many matching not allowed: matching labels must be unique on one side",
            to_text(group.as_ref())
        ))
    }
}

fn is_listed(names: &[String], name: &str) -> bool {
    names.binary_search_by(|listed| listed.as_str().cmp(name)).is_ok()
}

fn match_labels(labels: LabelsRef<'_>, matching: &Matching) -> Labels {
    keep(labels, |name| {
        let listed = is_listed(&matching.labels, name);
        if matching.on { listed } else { !listed && name != METRIC_NAME }
    })
}
