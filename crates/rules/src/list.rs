//! `whitelist.conf` and `blacklist.conf`: expressions, one a line.

use crate::{RULES_MAX, RuleError, pattern};
use regex::{Regex, RegexSet};

/// Limit on the expressions of a set, which are searched for in one pass. The automaton of a larger set may have more states than fit
/// into its memory, and then a search is slow.
const SET_EXPRESSIONS_MAX: usize = 64;

/// The expressions of a file.
#[derive(Debug, Default)]
pub struct NameList {
    searches: Vec<Search>,
    len: usize,
}

#[derive(Debug)]
enum Search {
    Set(RegexSet),
    /// An expression whose set would be too large.
    One(Regex),
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
        Ok(Self {
            len: patterns.len(),
            searches: patterns.chunks(SET_EXPRESSIONS_MAX).flat_map(searches).collect(),
        })
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Tells whether one of the expressions is found in the name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.searches.iter().any(|search| match search {
            Search::Set(set) => set.is_match(name),
            Search::One(pattern) => pattern.is_match(name),
        })
    }
}

fn searches(patterns: &[Regex]) -> Vec<Search> {
    match pattern::set(patterns.iter().map(Regex::as_str), pattern::COMPILED_BYTES_MAX) {
        Some(set) if patterns.len() > 1 => vec![Search::Set(set)],
        _ => patterns.iter().cloned().map(Search::One).collect(),
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
        // more than one set, and expressions that are too large for one
        let many: String = (0..200).map(|number| format!("^host{number}\\.\n")).collect();
        let large = "\\w{3}x\n".repeat(70);
        for text in [many.clone(), many + &large] {
            let list = NameList::parse(&text).unwrap();
            for number in [0, 63, 64, 199] {
                assert!(list.contains(&format!("host{number}.load")), "{number}");
            }
            assert!(!list.contains("host200.load") && !list.contains("a.host1.load"));
        }
        assert!(NameList::parse(&large).unwrap().contains(&("a".repeat(3) + "x")));
        let error = NameList::parse("a\n[\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: expression \"[\": unclosed character class");
    }
}
