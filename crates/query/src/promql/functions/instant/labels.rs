//! label_replace and label_join.

use crate::matcher::Program;
use crate::promql::QueryError;
use crate::promql::ast::Node;
use crate::promql::eval::Evaluator;
use crate::promql::grid::Grid;
use crate::promql::label_set::with;
use crate::promql::matrix::Merged;
use crate::promql::row::{Row, Sink};
use model::caps::LABEL_VALUE_BYTES_MAX;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsRef};
use regex_automata::util::captures::Captures;

fn text(node: &Node) -> &str {
    match node {
        Node::Text(text) => text,
        _ => panic!("BUG: types were checked, but an argument is not a string"),
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
        self.check_canceled()?;
        let mut charge = self.meter.charge();
        charge.add_bytes(Program::compilation_bytes(pattern))?;
        let program = Program::compile_with_groups(pattern);
        drop(charge);
        let program = match program {
            Ok(program) => program,
            Err(why) => return fail(format!("invalid regular expression in label_replace(): {why}")),
        };
        let mut charge = self.meter.charge();
        charge.add_bytes(program.memory_bytes())?;
        if to.is_empty() {
            return fail(format!("invalid destination label name in label_replace(): {to}"));
        }
        let (mut value, mut groups) = (LabelValue::new("label_replace", to), program.groups());
        self.relabel(&args[0], grid, to, sink, |labels| {
            let from = labels.get(from).unwrap_or("");
            let found = program.find_groups(from, &mut groups);
            if !found.or_else(|why| fail(format!("label_replace(): {why}")))? {
                return Ok(None);
            }
            value.clear();
            expand(template, from, &groups, &mut value)?;
            with(labels, &[(to, &value.text)]).map(Some)
        })
    }

    pub(super) fn label_join(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let (to, separator) = (text(&args[1]), text(&args[2]));
        let from = &args[3..];
        if let Some(bad) = from.iter().map(text).find(|name| name.is_empty()) {
            return fail(format!("invalid source label name in label_join(): {bad}"));
        }
        if to.is_empty() {
            return fail(format!("invalid destination label name in label_join(): {to}"));
        }
        let mut value = LabelValue::new("label_join", to);
        self.relabel(&args[0], grid, to, sink, |labels| {
            value.clear();
            for (i, name) in from.iter().map(text).enumerate() {
                if i > 0 {
                    value.push(separator)?;
                }
                value.push(labels.get(name).unwrap_or(""))?;
            }
            with(labels, &[(to, &value.text)]).map(Some)
        })
    }

    /// Gives each series the labels that `change` returns for it, if any. Series with equal new labels are
    /// merged.
    fn relabel(
        &mut self,
        vector: &Node,
        grid: &Grid,
        to: &str,
        sink: &mut Sink<'_>,
        mut change: impl FnMut(LabelsRef<'_>) -> Result<Option<Labels>, QueryError>,
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

/// A label value under construction. Its length never exceeds the limit of label values.
struct LabelValue<'a> {
    text: String,
    function: &'static str,
    label: &'a str,
}

impl<'a> LabelValue<'a> {
    const fn new(function: &'static str, label: &'a str) -> Self {
        Self { text: String::new(), function, label }
    }

    fn clear(&mut self) {
        self.text.clear();
    }

    fn push(&mut self, part: &str) -> Result<(), QueryError> {
        if self.text.len() + part.len() > LABEL_VALUE_BYTES_MAX {
            let Self { function, label, .. } = self;
            return fail(format!(
                "{function}() makes a value of label {label:?} that exceeds {LABEL_VALUE_BYTES_MAX} bytes, the limit \
                 for label values"
            ));
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Expands `$1`, `${1}`, `$name` and `$$` as in Go. An unknown name expands to nothing. Any other `$` stands
/// for itself.
fn expand(
    template: &str,
    haystack: &str,
    groups: &Captures,
    out: &mut LabelValue<'_>,
) -> Result<(), QueryError> {
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push(&rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push("$")?;
            rest = after;
            continue;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let braced = rest.strip_prefix('{');
        let body = braced.unwrap_or(rest);
        let len = body.find(|c| !is_name(c)).unwrap_or(body.len());
        let closed = braced.is_none() || body[len..].starts_with('}');
        if len == 0 || !closed {
            out.push("$")?;
            continue;
        }
        let name = &body[..len];
        let group = match name.parse::<usize>() {
            Ok(number) => groups.get_group(number),
            Err(_) => groups.get_group_by_name(name),
        };
        out.push(group.map_or("", |span| &haystack[span.range()]))?;
        rest = &body[len + usize::from(braced.is_some())..];
    }
    out.push(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let program = Program::compile_with_groups("(a+)(?P<tail>.*)(x)?").unwrap();
        let mut groups = program.groups();
        assert!(program.find_groups("aab", &mut groups).unwrap());
        let check = |template: &str, expected: &str| {
            let mut value = LabelValue::new("label_replace", "to");
            expand(template, "aab", &groups, &mut value).unwrap();
            assert_eq!(value.text, expected, "{template}");
        };
        check("$1-$2", "aa-b");
        check("${1}x$1x", "aax");
        check("$tail$$", "b$");
        check("$3$9$none", "");
        check("$ ${1 $", "$ ${1 $");
        check("é${1}é", "éaaé");
    }

    #[test]
    fn memory_and_time_of_capture_groups_are_limited() {
        // the first value that is too long for backtracking allocates memory
        for (groups, repeats) in [(2_000, 1), (300, 200)] {
            let pattern = format!("{}{}.*", "()".repeat(groups), "(?:.*a)".repeat(repeats));
            let program = Program::compile_with_groups(&pattern).unwrap();
            let states = 2 * groups + repeats;
            let table = states * 2 * groups * size_of::<usize>();
            assert!(program.memory_bytes() > 2 * table, "{groups}: {}", program.memory_bytes());
            let long = "a".repeat(LABEL_VALUE_BYTES_MAX);
            let refused = program.find_groups(&long, &mut program.groups()).unwrap_err();
            assert!(refused.contains("16384 bytes"), "{refused}");
            assert!(program.find_groups(&"a".repeat(repeats), &mut program.groups()).unwrap());
        }
        // a common pattern is small, and finds groups in the longest values
        let program = Program::compile_with_groups("(?P<job>[^-]+)-(.*?)[_-](\\d+)(?::(\\w{1,8}))?").unwrap();
        assert!(program.memory_bytes() < 1 << 20, "{}", program.memory_bytes());
        let long = format!("a-{}_1", "b".repeat(LABEL_VALUE_BYTES_MAX - 4));
        assert!(program.find_groups(&long, &mut program.groups()).unwrap());
    }

    #[test]
    fn a_value_is_refused_before_it_is_longer_than_a_value_may_be() {
        let program = Program::compile_with_groups("(.*)").unwrap();
        let (mut groups, long) = (program.groups(), "a".repeat(LABEL_VALUE_BYTES_MAX));
        assert!(program.find_groups(&long, &mut groups).unwrap());
        let mut value = LabelValue::new("label_replace", "to");
        expand("$1", &long, &groups, &mut value).unwrap();
        value.clear();
        let refused = expand(&"$1".repeat(1 << 16), &long, &groups, &mut value).unwrap_err().to_string();
        assert!(refused.contains("label_replace()") && refused.contains("16384 bytes"), "{refused}");
        assert!(value.text.capacity() <= 2 * LABEL_VALUE_BYTES_MAX, "{}", value.text.capacity());
    }
}
