//! Label matchers. The regex engine runs only for expressions other than literals, alternatives, `prefix.*`
//! and `.+`.

mod classes;
mod pattern;
mod program;

use crate::graphite::Glob;
use model::LabelsRef;
use pattern::Pattern;
pub(crate) use program::Program;

pub const REGEX_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a compiled regular expression, in bytes. The limit also bounds the time of a match, which
/// cannot be canceled.
pub const REGEX_COMPILED_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchOp {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

impl MatchOp {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Matcher {
    pub name: String,
    pub op: MatchOp,
    /// The text after the operator. A regular expression is kept as written and must match the whole value.
    pub value: String,
    pattern: Pattern,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// The expression is not a valid regular expression, or its compiled form is too large.
    #[error("error parsing regexp: {0}")]
    Regex(String),
    #[error("regular expression has {0} bytes, the limit is {REGEX_BYTES_MAX}")]
    TooLong(usize),
    /// The request exceeds one of its limits ([`crate::Allowance`]).
    #[error("{0}")]
    TooMuch(String),
}

impl Matcher {
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        Self::within(name, op, value, |_| Ok(()))
    }

    /// Like [`Self::new`]. Calls `reserve` with an upper bound on the temporary memory of this call, and again with a larger one
    /// if the expression needs the regex engine. If `reserve` fails, so does this call.
    pub fn new_reserving(
        name: &str,
        op: MatchOp,
        value: &str,
        mut reserve: impl FnMut(usize) -> Result<(), String>,
    ) -> Result<Self, MatcherError> {
        reserve(Pattern::simple_bytes(value)).map_err(MatcherError::TooMuch)?;
        Self::within(name, op, value, |text| reserve(Program::compilation_bytes(text)))
    }

    /// Creates a matcher. Calls `may_compile` first if the expression needs the regex engine.
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

    pub fn equal(name: &str, value: &str) -> Self {
        let pattern = Pattern::literal(value);
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), pattern }
    }

    /// A matcher of the values that a glob of Graphite matches.
    pub fn glob(name: &str, glob: &Glob) -> Self {
        let pattern = Pattern::glob(glob.clone());
        Self { name: name.into(), op: MatchOp::Regex, value: glob.text().into(), pattern }
    }

    /// Memory that [`Self::glob`] takes to list the values, with the copies of the list that the tables make.
    pub(crate) fn glob_list_bytes(glob: &Glob) -> usize {
        Pattern::glob_set_bytes(glob)
    }

    /// A matcher of these values.
    pub fn one_of(name: &str, values: Vec<String>) -> Self {
        let value = values.join("|");
        Self { name: name.into(), op: MatchOp::Regex, value, pattern: Pattern::set_of(values) }
    }

    /// The glob, if [`Self::matches`] would match one.
    pub fn as_glob(&self) -> Option<&Glob> {
        match &self.pattern {
            Pattern::Glob { glob, .. } => Some(glob),
            _ => None,
        }
    }

    /// True if a label with this value satisfies the matcher. A missing label has the empty value.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        self.pattern.matches(value) != self.is_negative()
    }

    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }

    /// True if the regex engine is needed, or a glob is matched. [`Self::matches`] may then take long.
    pub fn needs_engine(&self) -> bool {
        matches!(self.pattern, Pattern::Engine { .. } | Pattern::Glob { .. })
    }

    /// Memory of the pattern, with the memory that matching may add.
    pub fn pattern_bytes(&self) -> usize {
        self.pattern.memory_bytes()
    }

    pub fn is_negative(&self) -> bool {
        matches!(self.op, MatchOp::NotEqual | MatchOp::NotRegex)
    }

    /// All values that `=` or `=~` accepts, or that `!=` or `!~` rejects, sorted. `None` if they cannot be
    /// listed.
    pub fn set_matches(&self) -> Option<&[String]> {
        self.pattern.set()
    }

    /// Common prefix of the values that `=` or `=~` accepts, or that `!=` or `!~` rejects. Empty if unknown.
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

pub fn matches_all(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}

#[cfg(test)]
mod tests;
