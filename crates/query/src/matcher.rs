//! Label matchers.
//!
//! Most regular expressions in queries are a literal, a few alternatives, `prefix.*` or `.+`. Those are
//! recognised once, when the matcher is built, and never reach the regex engine; an index asks
//! [`Matcher::set_matches`] and [`Matcher::prefix`] to look values up instead of testing them all.

mod classes;
mod pattern;
mod program;

use model::LabelsRef;
use pattern::Pattern;
pub(crate) use program::Program;

/// Longest regular expression, in bytes.
pub const REGEX_BYTES_MAX: usize = 64 << 10;

/// Largest compiled regular expression, in bytes: what a hostile `((a{99}){99}){99}` runs into. It bounds time as well:
/// where the lazy automaton gives up, each byte of a value visits each of some 8,000 states, so that the longest value
/// (16 KiB) takes half a second, and nothing can be cancelled meanwhile.
pub const REGEX_COMPILED_BYTES_MAX: usize = 256 << 10;

/// Operator of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl MatchOp {
    /// The operator in PromQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

/// One label matcher, compiled.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The label's name.
    pub name: String,
    /// Operator.
    pub op: MatchOp,
    /// Operand; for the regex operators the expression as written, which must match the whole value.
    pub value: String,
    /// Values accepted by `value`, before a negation.
    pattern: Pattern,
}

/// Why a matcher cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// The expression is not a regular expression, or compiles to too much.
    #[error("error parsing regexp: {0}")]
    Regex(String),
    #[error("regular expression has {0} bytes, the limit is {REGEX_BYTES_MAX}")]
    TooLong(usize),
    /// Beyond what the request may come to.
    #[error("{0}")]
    TooMuch(String),
}

impl Matcher {
    /// Compiles a matcher.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        Self::within(name, op, value, |_| Ok(()))
    }

    /// Creates a matcher; `may_compile` is asked first if the regex engine is needed.
    pub(crate) fn within(
        name: &str,
        op: MatchOp,
        value: &str,
        may_compile: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<Self, MatcherError> {
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => Pattern::literal(value),
            MatchOp::Regex | MatchOp::NotRegex => Pattern::parse(value, may_compile)?,
        };
        Ok(Self { name: name.into(), op, value: value.into(), pattern })
    }

    /// `name="value"`.
    pub fn equal(name: &str, value: &str) -> Self {
        let pattern = Pattern::literal(value);
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), pattern }
    }

    /// True where a label of this value satisfies the matcher; a missing label is the empty value.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        self.pattern.matches(value) != self.is_negative()
    }

    /// True where series without the label satisfy the matcher.
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }

    /// True if the regex engine is needed, so that [`Self::matches`] may take long. Otherwise it takes no longer than a few
    /// comparisons of the value.
    pub fn needs_engine(&self) -> bool {
        matches!(self.pattern, Pattern::Engine { .. })
    }

    /// Memory held by the pattern.
    pub fn pattern_bytes(&self) -> usize {
        self.pattern.memory_bytes()
    }

    /// True for `!=` and `!~`.
    pub fn is_negative(&self) -> bool {
        matches!(self.op, MatchOp::NotEqual | MatchOp::NotRegex)
    }

    /// The only values that `=` or `=~` accepts, sorted, where they can be listed; of a negative matcher,
    /// the only values that it refuses.
    pub fn set_matches(&self) -> Option<&[String]> {
        self.pattern.set()
    }

    /// Common prefix of all values accepted by `=` or `=~` (refused, for a negative matcher); empty if unknown.
    pub fn prefix(&self) -> &str {
        self.pattern.prefix()
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op.as_str(), self.value)
    }
}

/// True where labels satisfy all matchers.
pub fn matches_all(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}

#[cfg(test)]
mod tests;
