//! label_replace and label_join.

use crate::matcher::compile;
use crate::promql::QueryError;
use crate::promql::ast::Node;
use crate::promql::eval::Evaluator;
use crate::promql::grid::Grid;
use crate::promql::label_set::with;
use crate::promql::matrix::Merged;
use crate::promql::stream::{Row, Sink};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsRef};
use regex::{Captures, Regex};

fn text(node: &Node) -> &str {
    match node {
        Node::Text(text) => text,
        _ => panic!("BUG: types were checked, but an argument is no text"),
    }
}

fn fail<T>(message: String) -> Result<T, QueryError> {
    Err(QueryError::Execution(message))
}

impl Evaluator<'_> {
    pub(super) fn label_replace(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let [to, template, from, pattern] = [1, 2, 3, 4].map(|i| text(&args[i]));
        let Ok(regex) = compile(pattern) else {
            return fail(format!("invalid regular expression in label_replace(): {pattern}"));
        };
        if to.is_empty() {
            return fail(format!("invalid destination label name in label_replace(): {to}"));
        }
        self.relabel(&args[0], grid, to, sink, |labels| {
            match regex.captures(labels.get(from).unwrap_or("")) {
                Some(captures) => Ok(Some(with(labels, &[(to, &expand(template, &captures, &regex))])?)),
                None => Ok(None),
            }
        })
    }

    pub(super) fn label_join(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let (to, separator) = (text(&args[1]), text(&args[2]));
        let from: Vec<_> = args[3..].iter().map(text).collect();
        if let Some(bad) = from.iter().find(|name| name.is_empty()) {
            return fail(format!("invalid source label name in label_join(): {bad}"));
        }
        if to.is_empty() {
            return fail(format!("invalid destination label name in label_join(): {to}"));
        }
        self.relabel(&args[0], grid, to, sink, |labels| {
            let values: Vec<_> = from.iter().map(|name| labels.get(name).unwrap_or("")).collect();
            with(labels, &[(to, &values.join(separator))]).map(Some)
        })
    }

    /// Changes the labels of each series (where `change` says so); those that become equal are merged.
    fn relabel(
        &mut self,
        vector: &Node,
        grid: &Grid,
        to: &str,
        sink: &mut Sink<'_>,
        change: impl Fn(LabelsRef<'_>) -> Result<Option<Labels>, QueryError>,
    ) -> Result<(), QueryError> {
        let mut merged = Merged::new(self.meter, grid.count);
        self.stream(vector, grid, &mut |row: Row<'_>| {
            let (mut name, values) = row.into_name();
            if let Some(labels) = change(name.labels.as_ref())? {
                name.labels = labels;
                name.drop_name &= to != METRIC_NAME;
            }
            merged.add(&name, values)
        })?;
        merged.matrix.emit(sink)
    }
}

/// Fills in `$1`, `${1}`, `$name` and `$$` as Go does: the longest possible name is meant, an unknown one
/// is empty, a `$` that begins nothing stands for itself.
fn expand(template: &str, captures: &Captures<'_>, regex: &Regex) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let braced = rest.strip_prefix('{');
        let body = braced.unwrap_or(rest);
        let len = body.find(|c| !is_name(c)).unwrap_or(body.len());
        let closed = braced.is_none() || body[len..].starts_with('}');
        if len == 0 || !closed {
            out.push('$');
            continue;
        }
        let name = &body[..len];
        let group = match name.parse::<usize>() {
            Ok(number) => captures.get(number),
            Err(_) if regex.capture_names().flatten().any(|n| n == name) => captures.name(name),
            Err(_) => None,
        };
        out.push_str(group.map_or("", |m| m.as_str()));
        rest = &body[len + usize::from(braced.is_some())..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let regex = Regex::new("^(?s:(a+)(?P<tail>.*)(x)?)$").unwrap();
        let captures = regex.captures("aab").unwrap();
        let check = |template: &str, expected: &str| {
            assert_eq!(expand(template, &captures, &regex), expected, "{template}");
        };
        check("$1-$2", "aa-b");
        check("${1}x$1x", "aax");
        check("$tail$$", "b$");
        check("$3$9$none", "");
        check("$ ${1 $", "$ ${1 $");
        check("é${1}é", "éaaé");
    }
}
