//! Set of values accepted by a regular expression or a glob. Simple expressions are matched without the regex engine.

use super::{MatcherError, Program, REGEX_BYTES_MAX};
use crate::graphite::Glob;

/// Maximum number of alternatives in a set. The regex engine matches longer lists.
const SET_LEN_MAX: usize = 10_000;

/// Maximum size of the values that a glob becomes. Other globs are matched.
const SET_BYTES_MAX: usize = 1 << 20;

/// Copies of a set: its own, and those that the tables make.
const SET_COPIES: usize = 3;

const ALLOCATION_BYTES_MIN: usize = 16;

#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// `.*`
    Any,
    /// `.+`
    AnyNonEmpty,
    /// Exactly these values, sorted.
    Set(Vec<String>),
    /// `prefix.*` (`more` is 0) or `prefix.+` (`more` is 1).
    Prefix { prefix: String, more: usize },
    /// Any other expression. All values that it accepts begin with `prefix`.
    Engine { prefix: String, program: Program },
    /// Paths that a glob of Graphite matches. All of them begin with `prefix`.
    Glob { prefix: String, glob: Glob },
}

impl Pattern {
    pub(super) fn literal(value: &str) -> Self {
        Self::Set(vec![value.into()])
    }

    pub(super) fn set_of(mut values: Vec<String>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self::Set(values)
    }

    pub(super) fn glob(glob: Glob) -> Self {
        match glob.literals(SET_LEN_MAX, SET_BYTES_MAX) {
            Some(paths) => Self::Set(paths),
            None => Self::Glob { prefix: glob.prefix(), glob },
        }
    }

    /// Memory on the heap of the set that a glob becomes, with its copies. 0 if it becomes no set.
    pub(super) fn glob_set_bytes(glob: &Glob) -> usize {
        match glob.literals_size() {
            Some((count, bytes)) if count <= SET_LEN_MAX && bytes <= SET_BYTES_MAX => {
                SET_COPIES * (count * (size_of::<String>() + ALLOCATION_BYTES_MIN) + bytes)
            }
            _ => 0,
        }
    }

    /// Parses a regular expression as in Prometheus: anchored at both ends, and `.` matches a newline. Calls
    /// `may_compile` first if the expression needs the regex engine.
    pub(super) fn parse(
        text: &str,
        may_compile: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<Self, MatcherError> {
        if text.len() > REGEX_BYTES_MAX {
            return Err(MatcherError::TooLong(text.len()));
        }
        if let Some(simple) = Self::parse_simple(text) {
            return Ok(simple);
        }
        may_compile(text).map_err(MatcherError::TooMuch)?;
        Ok(Self::Engine { prefix: literal_head(text), program: Program::compile(text)? })
    }

    /// Upper bound on the temporary memory of a pattern that does not need the regex engine.
    pub(super) fn simple_bytes(text: &str) -> usize {
        let alternatives = text.matches('|').count() + 1;
        // a list of texts that is filled grows by doubling
        text.len() + alternatives * (2 * size_of::<String>() + ALLOCATION_BYTES_MIN)
    }

    fn parse_simple(text: &str) -> Option<Self> {
        match text {
            ".*" => return Some(Self::Any),
            ".+" => return Some(Self::AnyNonEmpty),
            _ => {}
        }
        if let Some(head) = text.strip_suffix(".*") {
            return Some(Self::Prefix { prefix: unescape(head)?, more: 0 });
        }
        if let Some(head) = text.strip_suffix(".+") {
            return Some(Self::Prefix { prefix: unescape(head)?, more: 1 });
        }
        let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
        let inner = inner.strip_prefix("?:").unwrap_or(inner);
        if inner.matches('|').count() >= SET_LEN_MAX {
            return None;
        }
        let mut set = inner.split('|').map(unescape).collect::<Option<Vec<_>>>()?;
        set.sort_unstable();
        set.dedup();
        set.shrink_to_fit();
        Some(Self::Set(set))
    }

    #[inline]
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::AnyNonEmpty => !value.is_empty(),
            Self::Set(set) if set.len() == 1 => set[0] == value,
            Self::Set(set) => set.binary_search_by(|s| s.as_str().cmp(value)).is_ok(),
            Self::Prefix { prefix, more } => {
                value.starts_with(prefix.as_str()) && value.len() >= prefix.len() + more
            }
            Self::Engine { prefix, program } => value.starts_with(prefix.as_str()) && program.is_match(value),
            Self::Glob { prefix, glob } => value.starts_with(prefix.as_str()) && glob.matches(value),
        }
    }

    /// Memory on the heap, including the copies of the alternatives that the tables make.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Any | Self::AnyNonEmpty => 0,
            Self::Set(set) => {
                let text = |s: &String| s.len().max(ALLOCATION_BYTES_MIN);
                set.iter().map(|s| SET_COPIES * (size_of::<String>() + text(s))).sum()
            }
            Self::Prefix { prefix, .. } => prefix.len(),
            Self::Engine { prefix, program } => prefix.len() + program.memory_bytes(),
            Self::Glob { prefix, glob } => prefix.len() + glob.memory_bytes(),
        }
    }

    pub(super) fn set(&self) -> Option<&[String]> {
        match self {
            Self::Set(set) => Some(set),
            _ => None,
        }
    }

    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::Any | Self::AnyNonEmpty => "",
            Self::Set(set) => {
                if set.len() == 1 {
                    &set[0]
                } else {
                    ""
                }
            }
            Self::Prefix { prefix, .. } | Self::Engine { prefix, .. } | Self::Glob { prefix, .. } => prefix,
        }
    }
}

/// The pattern as plain text; `None` if it has an operator.
fn unescape(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if c.is_ascii_punctuation() => out.push(c),
                _ => return None,
            },
            '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '|' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// The text of a regular expression before its first operator: `node_` for `node_.*_total`.
fn literal_head(pattern: &str) -> String {
    if has_alternatives(pattern) {
        return String::new();
    }
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => chars.next().filter(char::is_ascii_punctuation),
            '*' | '?' | '{' => {
                out.pop(); // the operator may make the character before it optional
                None
            }
            '.' | '+' | '(' | ')' | '[' | ']' | '}' | '^' | '$' | '|' => None,
            c => Some(c),
        };
        match literal {
            Some(c) => out.push(c),
            None => break,
        }
    }
    out
}

/// True if a `|` may stand outside of all groups.
fn has_alternatives(pattern: &str) -> bool {
    if pattern.contains('[') {
        return pattern.contains('|');
    }
    let (mut depth, mut bytes) = (0i64, pattern.bytes());
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => {
                bytes.next();
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'|' if depth <= 0 => return true,
            _ => {}
        }
    }
    false
}
