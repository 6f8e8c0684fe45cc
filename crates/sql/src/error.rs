use crate::source::SourceError;
use datafusion::common::DataFusionError;
use model::ErrorKind;

/// Why a statement has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The statement is wrong, or is not allowed.
    #[error("{0}")]
    Statement(String),
    /// The statement is right, but cannot be evaluated over these rows.
    #[error("{0}")]
    Execution(String),
    /// The query needs more memory than it may take.
    #[error("the query needs too much memory: {0}")]
    Memory(String),
    /// The answer was refused by its receiver, which knows why.
    #[error("the answer cannot be written")]
    Answer,
    #[error("the query was canceled")]
    Canceled,
    /// A table has changed. The same query can succeed.
    #[error("a table has changed while it was read; try again")]
    Expired,
    #[error("{message}")]
    Source { kind: ErrorKind, message: String },
    #[error("the query failed because of a bug: {0}")]
    Bug(String),
}

/// A longer message is cut. Messages of parsers quote the statement.
const MESSAGE_BYTES_MAX: usize = 1000;

impl SqlError {
    /// `is_planning` is true before rows are read.
    pub(crate) fn of(error: &DataFusionError, is_planning: bool) -> Self {
        if let Some(cause) = cause(error) {
            return cause;
        }
        let root = error.find_root();
        let text = short(&root.strip_backtrace());
        match root {
            DataFusionError::ResourcesExhausted(message) => Self::Memory(short(message)),
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Configuration(_) => Self::Statement(text + &place(error)),
            DataFusionError::Internal(_) => Self::Bug(text),
            _ if is_planning => Self::Statement(text + &place(error)),
            _ => Self::Execution(text),
        }
    }
}

/// An error of ours that DataFusion has passed on.
fn cause(error: &DataFusionError) -> Option<SqlError> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(source) = error.downcast_ref::<SourceError>() {
            return Some(source.clone().into());
        }
        if let Some(error) = error.downcast_ref::<SqlError>() {
            return Some(error.clone());
        }
        next = error.source();
    }
    None
}

/// Where in the statement the error is, if the message does not say it.
fn place(error: &DataFusionError) -> String {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    span.map_or_else(String::new, |span| {
        format!(" at Line: {}, Column: {}", span.start.line, span.start.column)
    })
}

fn short(text: &str) -> String {
    match text.len() <= MESSAGE_BYTES_MAX {
        true => text.into(),
        false => format!("{}…", &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]),
    }
}

impl From<SourceError> for SqlError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Expired => Self::Expired,
            SourceError::Stopped => Self::Canceled,
            SourceError::Memory(message) => Self::Memory(message),
            SourceError::Failed { kind, message } => Self::Source { kind, message },
        }
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<SourceError> for DataFusionError {
    fn from(error: SourceError) -> Self {
        Self::External(Box::new(error))
    }
}
