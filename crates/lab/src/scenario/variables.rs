//! Replaces variables in queries, which are written as `$name`, `${name}`, `${name:format}` or `[[name]]`.

use super::units::Count;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Values {
    List(Vec<String>),
    /// The values are the prefix followed by a number from 0.
    Numbered {
        prefix: String,
        count: Count,
    },
}

impl Values {
    pub fn len(&self) -> u64 {
        match self {
            Self::List(values) => values.len() as u64,
            Self::Numbered { count, .. } => count.whole(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, at: u64) -> String {
        match self {
            Self::List(values) => values[at as usize].clone(),
            Self::Numbered { prefix, .. } => format!("{prefix}{at}"),
        }
    }
}

/// Replaces variables with their values. A variable without a value is left as it is, and formats are ignored.
pub(super) fn fill(text: &str, value_of: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (name, len) = variable(rest);
        match value_of(name).filter(|_| !name.is_empty()) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[..len]),
        }
        rest = &rest[len..];
    }
    out + rest
}

/// Name of the variable with which `text` begins, and how many bytes the reference takes. The name is empty if there
/// is none.
fn variable(text: &str) -> (&str, usize) {
    for (open, close) in [("${", "}"), ("[[", "]]")] {
        if let Some((inside, _)) = text.strip_prefix(open).and_then(|rest| rest.split_once(close)) {
            let name = inside.split(':').next().unwrap_or_default();
            return (name, open.len() + inside.len() + close.len());
        }
    }
    let name = text.strip_prefix('$').unwrap_or_default();
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
    (&name[..end], 1 + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let check = |text: &str, expected: &str| {
            let value_of = |name: &str| match name {
                "a" => Some("1".to_owned()),
                "ab" => Some("$a".to_owned()),
                _ => None,
            };
            assert_eq!(fill(text, value_of), expected);
        };
        check("x{c=\"$a\"}[$a]", "x{c=\"1\"}[1]");
        check("${a}-${a:regex}-[[a]]-[[a:csv]]-$a", "1-1-1-1-1");
        check("$ab $abc ${abc} [[abc]]", "$a $abc ${abc} [[abc]]");
        check("$", "$");
        check("é$é${a", "é$é${a");
        check("x=~\"y$\"", "x=~\"y$\"");
        check("rate(x[5m]) [[", "rate(x[5m]) [[");
        check("[[a${a}", "[[a1");
        check("", "");
    }
}
