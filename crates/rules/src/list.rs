//! `whitelist.conf` and `blacklist.conf`: expressions, one a line.

use crate::{RULES_MAX, RuleError, pattern};
use regex::Regex;

/// The expressions of a file.
#[derive(Debug, Default)]
pub struct NameList {
    patterns: Vec<Regex>,
}

impl NameList {
    /// Empty lines and lines that begin with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut patterns = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if patterns.len() == RULES_MAX {
                return Err(RuleError::new(number, format!("more than {RULES_MAX} expressions")));
            }
            patterns.push(pattern::compile(line).map_err(|reason| RuleError::new(number, reason))?);
        }
        Ok(Self { patterns })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Tells whether one of the expressions is found in the name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_searched() {
        let list = NameList::parse("# c\n\n^collectd\\.\n \\.tmp$ \n").unwrap();
        assert!(list.contains("collectd.a") && list.contains("a.tmp"));
        assert!(!list.contains("a.collectd.b") && !list.is_empty());
        assert!(NameList::parse("# nothing\n").unwrap().is_empty());
        let error = NameList::parse("a\n[\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: expression \"[\": unclosed character class");
    }
}
