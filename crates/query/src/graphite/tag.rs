//! Expressions of tags: `tag=value`, `tag!=value`, `tag=~pattern`, `tag!=~pattern`.

use crate::allowance::Allowance;
use crate::matcher::{MatchOp, Matcher};
use model::labels::METRIC_NAME;

/// Graphite's tag for the metric name.
pub const NAME_TAG: &str = "name";

/// The label of a tag.
pub fn label_of(tag: &str) -> &str {
    if tag == NAME_TAG { METRIC_NAME } else { tag }
}

/// The tag of a label.
pub fn tag_of(label: &str) -> &str {
    if label == METRIC_NAME { NAME_TAG } else { label }
}

/// Writes the full name of a tagged series: `name;k=v`. `tags` must be sorted by name. They are written in carbon's order,
/// which is that of the texts `k=v`: `dc1=a` comes before `dc=b`.
pub fn write_full_name<'a>(
    out: &mut String,
    name: &str,
    tags: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) {
    out.push_str(name);
    // the two orders can differ only where the name of a tag begins with the name before it
    let is_before = |tag: &str, next: &str| {
        next.strip_prefix(tag).is_some_and(|rest| rest.as_bytes().first().is_some_and(|byte| *byte < b'='))
    };
    if !tags.clone().zip(tags.clone().skip(1)).any(|((tag, _), (next, _))| is_before(tag, next)) {
        tags.for_each(|(tag, value)| out.extend([";", tag, "=", value]));
        return;
    }
    let mut texts: Vec<_> = tags.map(|(tag, value)| format!(";{tag}={value}")).collect();
    texts.sort_unstable();
    out.extend(texts);
}

/// Parses an expression. A regular expression must match the beginning of a value, as in Graphite, not the whole value.
pub fn parse(expression: &str, allowance: &mut Allowance) -> Result<Matcher, String> {
    let wrong = || {
        format!(
            "invalid tag expression {expression:?}: expected tag=value, tag!=value, tag=~pattern or tag!=~pattern"
        )
    };
    let at = expression.find(['=', '!']).filter(|at| *at > 0).ok_or_else(wrong)?;
    let (tag, rest) = expression.split_at(at);
    let operators = [
        ("!=~", MatchOp::NotRegex),
        ("=~", MatchOp::Regex),
        ("!=", MatchOp::NotEqual),
        ("=", MatchOp::Equal),
    ];
    let found = operators.iter().find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?)));
    let (op, value) = found.ok_or_else(wrong)?;
    allowance.matcher(expression.len())?;
    let pattern;
    let value = match op {
        MatchOp::Regex | MatchOp::NotRegex => {
            pattern = anchored(value);
            &pattern
        }
        MatchOp::Equal | MatchOp::NotEqual => value,
    };
    let matcher = Matcher::within(label_of(tag), op, value, |pattern| allowance.compilation(pattern))
        .map_err(|error| format!("invalid tag expression {expression:?}: {error}"))?;
    allowance.built(&matcher)?;
    Ok(matcher)
}

/// Parses all expressions of a selection. At least one of them must exclude series without its tag, so that no
/// selection means all series.
pub fn parse_all<'a>(
    expressions: impl IntoIterator<Item = &'a str>,
    allowance: &mut Allowance,
) -> Result<Vec<Matcher>, String> {
    let matchers =
        expressions.into_iter().map(|text| parse(text, allowance)).collect::<Result<Vec<_>, _>>()?;
    if matchers.iter().all(Matcher::matches_empty) {
        return Err("at least one tag expression must require a value".into());
    }
    Ok(matchers)
}

/// A pattern that must match the whole value, made of one that must match its beginning.
fn anchored(pattern: &str) -> String {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    match pattern.strip_suffix('$') {
        // an anchor that is escaped, or in an alternative, is part of the pattern
        Some(whole) if !whole.ends_with('\\') && !whole.contains('|') => whole.into(),
        _ if pattern.contains('|') => format!("(?:{pattern}).*"),
        _ if pattern.ends_with(".*") && !pattern.ends_with("\\.*") => pattern.into(),
        _ => format!("{pattern}.*"),
    }
}

#[cfg(test)]
mod tests;
