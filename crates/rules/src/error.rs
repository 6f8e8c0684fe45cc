//! Errors in rule files.

/// Why a file was not accepted. The caller adds the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RuleError {
    /// Counted from 1.
    pub line: usize,
    pub reason: String,
}

impl RuleError {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}
