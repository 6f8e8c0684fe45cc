//! Replacements in Go's syntax: `$1`, `$name`, `${1}`, `${name}`, and `$$` for a dollar sign.

use super::label_set::{ADDED_BYTES_MAX, TooMuch};

/// A replacement whose groups are looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

impl Template {
    /// Parses a replacement. As in Go, groups that the expression does not have are empty. `named` returns the number of
    /// a group with a name, and `count` is the number of groups, including the whole match.
    pub(super) fn parse(text: &str, count: usize, named: impl Fn(&str) -> Option<usize>) -> Self {
        let mut parts = vec![Part::Text(String::new())];
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            push(&mut parts, &rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                push(&mut parts, "$");
                rest = after;
                continue;
            }
            let Some((name, after)) = reference(rest) else {
                push(&mut parts, "$");
                continue;
            };
            rest = after;
            let group = match number(name) {
                Some(number) => Some(number).filter(|number| *number < count),
                None => named(name),
            };
            parts.extend(group.map(Part::Group));
        }
        push(&mut parts, rest);
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Self(parts)
    }

    /// The largest number of a group.
    pub(super) fn last_group(&self) -> usize {
        let groups = self.0.iter().map(|part| if let Part::Group(number) = part { *number } else { 0 });
        groups.max().unwrap_or(0)
    }

    /// Fails if the text would be longer than rules may make the labels of a series.
    pub(super) fn expand<'g>(&self, group: impl Fn(usize) -> &'g str) -> Result<String, TooMuch> {
        let mut expanded = String::new();
        for part in &self.0 {
            let text = match part {
                Part::Text(text) => text,
                Part::Group(number) => group(*number),
            };
            if expanded.len() + text.len() > ADDED_BYTES_MAX {
                return Err(TooMuch::Bytes);
            }
            expanded.push_str(text);
        }
        Ok(expanded)
    }
}

fn push(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

/// Splits the name off that follows a dollar sign. Returns `None` if there is none, so that the sign stands for itself.
fn reference(text: &str) -> Option<(&str, &str)> {
    let is_braced = text.starts_with('{');
    let body = &text[usize::from(is_braced)..];
    let end = body.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(body.len());
    let (name, after) = body.split_at(end);
    let after = if is_braced { after.strip_prefix('}')? } else { after };
    (!name.is_empty()).then_some((name, after))
}

/// The number of a group. As in Go, a number with a leading zero is a name.
fn number(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    is_number.then(|| name.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are what Go's `Regexp.ExpandString` returns for `(?P<first>a+)(b*)` on `aab`.
    #[test]
    fn templates_expand_as_in_go() {
        for (text, expanded) in [
            ("", ""),
            ("x", "x"),
            ("$1-$2", "aa-b"),
            ("${1}0", "aa0"),
            ("$10", ""),
            ("$1x", ""),
            ("$first", "aa"),
            ("${first}x", "aax"),
            ("$firstx", ""),
            ("$0", "aab"),
            ("$00", ""),
            ("$01", ""),
            ("$$1", "$1"),
            ("$", "$"),
            ("a$", "a$"),
            ("$-", "$-"),
            ("${1", "${1"),
            ("${}", "${}"),
            ("${a-b}", "${a-b}"),
            ("$99999999999999999999", ""),
            ("é$1é", "é"),
            ("é${1}é", "éaaé"),
        ] {
            let template = Template::parse(text, 3, |name| (name == "first").then_some(1));
            assert_eq!(template.expand(|group| ["aab", "aa", "b"][group]).unwrap(), expanded, "{text}");
        }
        let long = Template::parse(&"$1".repeat(20_000), 2, |_| None);
        let value = "x".repeat(16 << 10);
        assert_eq!(long.expand(|_| &value), Err(TooMuch::Bytes));
        let of = |text| Template::parse(text, 3, |_| None);
        assert_eq!((of("$2$1").last_group(), of("x").last_group()), (2, 0));
    }
}
