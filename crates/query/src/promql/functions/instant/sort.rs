//! sort, sort_desc, sort_by_label, sort_by_label_desc.

use crate::meter::Meter;
use crate::promql::QueryError;
use crate::promql::ast::{Call, Node};
use crate::promql::eval::Evaluator;
use crate::promql::functions::Function;
use crate::promql::grid::Grid;
use crate::promql::matrix::Matrix;
use crate::promql::row::Sink;
use hashbrown::HashSet;
use model::LabelsRef;
use std::cmp::Ordering;

impl Evaluator<'_> {
    pub(super) fn sort(&mut self, call: &Call, grid: &Grid, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        if !self.is_instant() {
            self.warn("sort is ineffective for range queries since results are always ordered by labels");
        }
        let matrix = self.matrix(&call.args[0], grid)?;
        if grid.count > 1 {
            return matrix.emit(sink);
        }
        let mut charge = self.meter.charge();
        charge.add_bytes(matrix.len() * size_of::<usize>())?;
        let mut order: Vec<usize> = (0..matrix.len()).collect();
        let value = |i: &usize| matrix.row(*i)[0];
        match call.function {
            Function::Sort => order.sort_by(|a, b| nan_last(value(a), value(b), false)),
            Function::SortDesc => order.sort_by(|a, b| nan_last(value(a), value(b), true)),
            function => {
                let mut present = names_in(&matrix, self.meter)?;
                let mut names: Vec<&str> = Vec::new();
                for name in call.args[1..].iter().map(text) {
                    if present.remove(name) {
                        names.push(name);
                    }
                }
                let reverse = function == Function::SortByLabelDesc;
                let labels = |i: usize| matrix.names[i].labels.as_ref();
                charge.add_bytes(matrix.len() * size_of::<usize>())?; // the buffer for merging
                order = merge_sorted(order, |a, b| {
                    self.check_canceled()?;
                    let ordering = by_labels(labels(a), labels(b), &names);
                    Ok(if reverse { ordering.reverse() } else { ordering })
                })?;
            }
        }
        let mut sorted = Matrix::new(self.meter, grid.count);
        for i in order {
            self.check_canceled()?;
            sorted.push(matrix.names[i].clone(), matrix.row(i))?;
        }
        sorted.emit(sink)
    }
}

fn text(node: &Node) -> &str {
    match node {
        Node::Text(text) => text,
        _ => panic!("BUG: types were checked, but an argument is not a string"),
    }
}

fn nan_last(a: f64, b: f64, descending: bool) -> Ordering {
    let by_value = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let by_value = if descending { by_value.reverse() } else { by_value };
    a.is_nan().cmp(&b.is_nan()).then(by_value)
}

fn names_in<'m>(matrix: &'m Matrix<'_>, meter: &Meter<'_>) -> Result<HashSet<&'m str>, QueryError> {
    let (mut names, mut charge) = (HashSet::new(), meter.charge());
    for name in &matrix.names {
        meter.check()?;
        for (name, _) in name.labels.iter() {
            if names.insert(name) {
                charge.add_bytes(NAME_BYTES)?;
            }
        }
    }
    Ok(names)
}

/// Memory that a label name takes in a growing hash set.
const NAME_BYTES: usize = 64;

/// A stable sort whose comparison can fail.
fn merge_sorted(
    mut from: Vec<usize>,
    mut compare: impl FnMut(usize, usize) -> Result<Ordering, QueryError>,
) -> Result<Vec<usize>, QueryError> {
    let mut to = Vec::with_capacity(from.len());
    let mut width = 1;
    while width < from.len() {
        to.clear();
        for pair in from.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            let (mut l, mut r) = (0, 0);
            while l < left.len() && r < right.len() {
                if compare(left[l], right[r])?.is_gt() {
                    to.push(right[r]);
                    r += 1;
                } else {
                    to.push(left[l]);
                    l += 1;
                }
            }
            to.extend_from_slice(&left[l..]);
            to.extend_from_slice(&right[r..]);
        }
        std::mem::swap(&mut from, &mut to);
        width *= 2;
    }
    Ok(from)
}

/// Compares the values of the named labels in natural order, then all labels.
fn by_labels(a: LabelsRef<'_>, b: LabelsRef<'_>, names: &[&str]) -> Ordering {
    for name in names {
        let ordering = natural(a.get(name).unwrap_or(""), b.get(name).unwrap_or(""));
        if ordering.is_ne() {
            return ordering;
        }
    }
    a.iter().cmp(b.iter())
}

/// Compares runs of digits as numbers, and other text as text.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    while !a.is_empty() && !b.is_empty() {
        let (chunk_a, rest_a) = chunk(a);
        let (chunk_b, rest_b) = chunk(b);
        let digits = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
        let ordering = if digits(chunk_a) && digits(chunk_b) {
            let (x, y) = (chunk_a.trim_start_matches('0'), chunk_b.trim_start_matches('0'));
            x.len().cmp(&y.len()).then(x.cmp(y)).then(chunk_a.len().cmp(&chunk_b.len()))
        } else {
            chunk_a.cmp(chunk_b)
        };
        if ordering.is_ne() {
            return ordering;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

/// Splits off the first run of digits, or of other characters.
fn chunk(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    text.split_at(text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    #[test]
    fn merging_sorts_as_the_library_does_and_keeps_the_order_of_equals() {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for len in [0, 1, 2, 3, 7, 64, 1000] {
            let keys: Vec<u64> = (0..len).map(|_| rng.below(20)).collect();
            let mut expected: Vec<usize> = (0..len).collect();
            expected.sort_by_key(|i| keys[*i]);
            let sorted = merge_sorted((0..len).collect(), |a, b| Ok(keys[a].cmp(&keys[b])));
            assert_eq!(sorted, Ok(expected));
        }
    }

    #[test]
    fn sorting_ends_with_the_first_comparison_that_fails() {
        let mut left = 100;
        let sorted = merge_sorted((0..1000).collect(), |a, b| {
            left -= 1;
            if left == 0 { Err(QueryError::Canceled) } else { Ok(a.cmp(&b)) }
        });
        assert_eq!((sorted, left), (Err(QueryError::Canceled), 0));
    }
}
