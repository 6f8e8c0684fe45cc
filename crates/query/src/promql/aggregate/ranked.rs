//! Aggregations that choose series: topk, bottomk, limitk, limit_ratio.

use crate::promql::QueryError;
use crate::promql::ast::{Aggregate, AggregateOp};
use crate::promql::eval::Evaluator;
use crate::promql::float::{is_present, to_text};
use crate::promql::grid::Grid;
use crate::promql::label_set::Groups;
use crate::promql::matrix::Matrix;
use crate::promql::row::{Row, RowName};
use model::SeriesKey;

/// A count (the `k` of `topk`) of at least this size overflows an `int64`. It is refused, as in Prometheus.
const INTEGER_MAX: f64 = 9_223_372_036_854_774_784.0;
const INTEGER_MIN: f64 = -9_223_372_036_854_775_808.0;

#[derive(Debug, Clone, Copy)]
struct Entry {
    value: f64,
    name: usize,
}

/// The best entries of one group at one step: a heap with the worst entry on top. Built as in Go's
/// `container/heap`, so equal values rank as in Prometheus.
#[derive(Debug, Clone, Default)]
struct Heap(Vec<Entry>);

impl Heap {
    fn push(&mut self, entry: Entry, worse: impl Fn(f64, f64) -> bool) {
        self.0.push(entry);
        let mut at = self.0.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !worse(self.0[at].value, self.0[parent].value) {
                break;
            }
            self.0.swap(at, parent);
            at = parent;
        }
    }

    fn replace_top(&mut self, entry: Entry, worse: impl Fn(f64, f64) -> bool) {
        self.0[0] = entry;
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            if left >= self.0.len() {
                break;
            }
            let right = left + 1;
            let other = right < self.0.len() && worse(self.0[right].value, self.0[left].value);
            let child = if other { right } else { left };
            if !worse(self.0[child].value, self.0[at].value) {
                break;
            }
            self.0.swap(at, child);
            at = child;
        }
    }
}

/// True if `a` ranks below `b` for `topk`. NaN ranks lowest.
fn worse_for_top(a: f64, b: f64) -> bool {
    a.is_nan() || a < b
}

fn worse_for_bottom(a: f64, b: f64) -> bool {
    a.is_nan() || a > b
}

impl<'a> Evaluator<'a> {
    pub(super) fn ranked(&mut self, aggregate: &Aggregate, grid: &Grid) -> Result<Matrix<'a>, QueryError> {
        let params = self.parameter(aggregate, grid)?;
        let ratio = aggregate.op == AggregateOp::LimitRatio;
        if ratio {
            if !self.check_ratios(&params)? {
                return Ok(Matrix::new(self.meter, grid.count));
            }
        } else if !check_counts(&params)? {
            return Ok(Matrix::new(self.meter, grid.count));
        }
        let count = grid.count;
        let mut groups = Groups::new(&aggregate.grouping, self.meter);
        let mut heaps = Vec::<Heap>::new();
        let mut names = Vec::<RowName>::new();
        let mut charge = self.meter.charge();
        let mut buffer = Vec::new();
        let op = aggregate.op;
        self.stream(&aggregate.expr, grid, &mut |mut row: Row<'_>| {
            let labels = row.labels(&mut buffer);
            let group = groups.of(labels)?;
            let share = if ratio { share_of(labels.as_bytes()) } else { 0.0 };
            if heaps.len() <= group * count {
                charge.add(count * size_of::<Heap>() / 4)?; // twice the size: the vector grows by doubling
                heaps.resize((group + 1) * count, Heap::default());
            }
            let name = names.len();
            let mut chosen = false;
            for (step, value) in row.values.iter().copied().enumerate() {
                if is_present(value) {
                    let heap = &mut heaps[group * count + step];
                    let before = heap.0.len();
                    chosen |= offer(op, heap, Entry { value, name }, params[step], share);
                    charge.add((heap.0.len() - before) * size_of::<Entry>() / 4)?;
                }
            }
            if chosen {
                let (name, _) = row.into_name();
                charge.add_series(name.labels.as_ref())?;
                names.push(name);
            }
            Ok(())
        })?;
        chosen_rows(self, op, heaps, names, count)
    }

    /// Checks the ratios of `limit_ratio`. Returns false if all are 0, so that no series can be chosen.
    fn check_ratios(&mut self, ratios: &[f64]) -> Result<bool, QueryError> {
        if ratios.iter().all(|r| *r == 0.0) {
            return Ok(false);
        }
        if ratios.iter().any(|r| r.is_nan()) {
            return Err(QueryError::Execution("Ratio value is NaN".into()));
        }
        let max = ratios.iter().copied().fold(f64::MIN, f64::max);
        let min = ratios.iter().copied().fold(f64::MAX, f64::min);
        for (bad, value, bound) in [(max > 1.0, max, 1), (min < -1.0, min, -1)] {
            if bad {
                let value = to_text(value);
                self.warn(format_args!(
                    "ratio value should be between -1 and 1, got {value}, capping to {bound}"
                ));
            }
        }
        Ok(true)
    }
}

/// Checks the counts of `topk`, `bottomk` and `limitk`. Returns false if all are below 1, so that no series
/// can be chosen.
fn check_counts(counts: &[f64]) -> Result<bool, QueryError> {
    let nan = counts.iter().any(|k| k.is_nan());
    let max = counts.iter().copied().fold(f64::MIN, f64::max);
    let min = counts.iter().copied().fold(f64::MAX, f64::min);
    if max < 1.0 && !nan {
        return Ok(false);
    }
    let fail = |message: String| Err(QueryError::Execution(message));
    if nan {
        fail("Parameter value is NaN".into())
    } else if min <= INTEGER_MIN {
        fail(format!("Scalar value {} underflows int64", to_text(min)))
    } else if max >= INTEGER_MAX {
        fail(format!("Scalar value {} overflows int64", to_text(max)))
    } else {
        Ok(true)
    }
}

/// Puts an entry into a heap if it ranks high enough. Returns true if it does.
fn offer(op: AggregateOp, heap: &mut Heap, entry: Entry, param: f64, share: f64) -> bool {
    if op == AggregateOp::LimitRatio {
        let ratio = param.clamp(-1.0, 1.0);
        let taken = if ratio >= 0.0 { share < ratio } else { share >= 1.0 + ratio };
        if taken {
            heap.0.push(entry);
        }
        return taken;
    }
    let worse = if op == AggregateOp::Bottomk { worse_for_bottom } else { worse_for_top };
    if param < 1.0 {
        return false;
    }
    if heap.0.len() < param as usize {
        if op == AggregateOp::Limitk {
            heap.0.push(entry);
        } else {
            heap.push(entry, worse);
        }
        return true;
    }
    let top = heap.0[0].value;
    let better = op != AggregateOp::Limitk
        && (if op == AggregateOp::Topk { top < entry.value } else { top > entry.value }
            || top.is_nan() && !entry.value.is_nan());
    if better {
        heap.replace_top(entry, worse);
    }
    better
}

/// Hash of the labels, from 0 to 1. `limit_ratio` compares it with the ratio.
fn share_of(labels: &[u8]) -> f64 {
    (SeriesKey::of(labels, 0).0 >> 64) as f64 / u64::MAX as f64
}

fn chosen_rows<'a>(
    eval: &Evaluator<'a>,
    op: AggregateOp,
    heaps: Vec<Heap>,
    names: Vec<RowName>,
    steps: usize,
) -> Result<Matrix<'a>, QueryError> {
    let mut charge = eval.meter.charge();
    charge.add_bytes(names.len() * size_of::<Option<usize>>())?;
    let mut rows = vec![None; names.len()];
    let mut out = Matrix::new(eval.meter, steps);
    for (i, mut heap) in heaps.into_iter().enumerate() {
        eval.check_canceled()?;
        let worse = match op {
            AggregateOp::Topk => worse_for_top,
            AggregateOp::Bottomk => worse_for_bottom,
            _ => |_, _| false,
        };
        heap.0.sort_by(|a, b| worse(a.value, b.value).cmp(&worse(b.value, a.value)));
        for entry in heap.0 {
            let row = match rows[entry.name] {
                Some(row) => row,
                None => *rows[entry.name].insert(out.push_empty(names[entry.name].clone())?),
            };
            out.row_mut(row)[i % steps] = entry.value;
        }
    }
    Ok(out)
}
