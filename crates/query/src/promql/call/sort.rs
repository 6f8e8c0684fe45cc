//! sort, sort_desc, sort_by_label, sort_by_label_desc.

use crate::promql::QueryError;
use crate::promql::ast::{Call, Function, Node};
use crate::promql::eval::Evaluator;
use crate::promql::grid::Grid;
use crate::promql::label_set::sort_key;
use crate::promql::matrix::Matrix;
use crate::promql::stream::Sink;
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
        let mut order: Vec<usize> = (0..matrix.len()).collect();
        let value = |i: &usize| matrix.row(*i)[0];
        match call.function {
            Function::Sort => order.sort_by(|a, b| nan_last(value(a), value(b), false)),
            Function::SortDesc => order.sort_by(|a, b| nan_last(value(a), value(b), true)),
            function => {
                let names: Vec<&str> = call.args[1..].iter().map(text).collect();
                let reverse = function == Function::SortByLabelDesc;
                let labels = |i: &usize| matrix.names[*i].labels.as_ref();
                order.sort_by(|a, b| {
                    let ordering = by_labels(labels(a), labels(b), &names);
                    if reverse { ordering.reverse() } else { ordering }
                });
            }
        }
        let mut sorted = Matrix::new(self.meter, grid.count);
        for i in order {
            sorted.push(matrix.names[i].clone(), matrix.row(i))?;
        }
        sorted.emit(sink)
    }
}

fn text(node: &Node) -> &str {
    match node {
        Node::Text(text) => text,
        _ => panic!("BUG: types were checked, but an argument is no text"),
    }
}

fn nan_last(a: f64, b: f64, descending: bool) -> Ordering {
    let by_value = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let by_value = if descending { by_value.reverse() } else { by_value };
    a.is_nan().cmp(&b.is_nan()).then(by_value)
}

/// By the values of the named labels in natural order, then by all labels.
fn by_labels(a: LabelsRef<'_>, b: LabelsRef<'_>, names: &[&str]) -> Ordering {
    for name in names {
        let ordering = natural(a.get(name).unwrap_or(""), b.get(name).unwrap_or(""));
        if ordering.is_ne() {
            return ordering;
        }
    }
    let key = |labels| {
        let mut key = Vec::new();
        sort_key(&mut key, labels);
        key
    };
    key(a).cmp(&key(b))
}

/// Runs of digits compare as numbers, all else as text.
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

/// The first run of digits or of anything else.
fn chunk(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    text.split_at(text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len()))
}
