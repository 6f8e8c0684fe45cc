//! Errors of tables.

use model::ErrorKind;

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot read file {file}: {reason}")]
    Damaged {
        /// Path in the table, or another name of the file.
        file: String,
        reason: String,
    },
    #[error("cannot read file {file}: the table's log names it, but the object store does not have it")]
    Missing { file: String },
    #[error("the object store failed: {0}")]
    Store(#[from] object_store::Error),
    /// The writer's sink or the Parquet library failed.
    #[error("cannot write a file of the table: {0}")]
    Write(#[source] parquet::errors::ParquetError),
    #[error("cannot use the log of table {table}: {reason}")]
    Log {
        /// URL of the table.
        table: String,
        reason: String,
    },
    /// The table has a form that Floodmark does not support.
    #[error("cannot use table {table}: {reason}")]
    Foreign {
        /// URL of the table.
        table: String,
        reason: String,
    },
    #[error("cannot commit to the table: other writers were first in all {attempts} attempts")]
    Contended { attempts: usize },
    #[error(
        "the object store at {url} does not support put-if-absent: two writers would silently overwrite each other's \
         commits. Use a store that does (if S3-compatible: one with conditional writes, If-None-Match)"
    )]
    NotExclusive { url: String },
    /// A sweep may have deleted a staged file before its commit. Stage the file again.
    #[error(
        "staged file {file} may have been deleted: it was not committed before the sweep at version {version}"
    )]
    Lapsed {
        /// Path in the table.
        file: String,
        /// Version of the sweep's log entry.
        version: u64,
    },
    /// Another process gave this name, or another name for this attribute, to a column meanwhile. Stage the file again.
    #[error("staged file {file} does not fit the table: its column {column:?} contradicts a later one")]
    Outdated {
        /// Path in the table.
        file: String,
        column: String,
    },
    #[error("the operation on the table needs {files} files at once, the limit is {max}")]
    TooManyFiles { files: usize, max: usize },
    #[error("{what} take more than {limit_bytes} bytes")]
    TooLarge { what: &'static str, limit_bytes: usize },
    #[error(
        "{pending} deletes of this table are incomplete, which is the limit: wait until upkeep has \
         rewritten the files"
    )]
    TooManyDeletes { pending: usize },
    /// The read was canceled by its [`crate::Stop`].
    #[error("the read was canceled: its result is no longer needed")]
    Canceled,
    #[error("cannot use table location {url:?}: {reason}")]
    Location {
        /// URL as given.
        url: String,
        reason: String,
    },
}

impl TableError {
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } | Self::Missing { .. } | Self::Log { .. } => ErrorKind::Data,
            Self::Store(_)
            | Self::Contended { .. }
            | Self::Lapsed { .. }
            | Self::Outdated { .. }
            | Self::TooManyDeletes { .. }
            | Self::Canceled => ErrorKind::Unavailable,
            Self::Foreign { .. } | Self::NotExclusive { .. } => ErrorKind::Unsupported,
            Self::Write(_) => ErrorKind::Internal,
            Self::TooManyFiles { .. } | Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Location { .. } => ErrorKind::Invalid,
        }
    }

    /// True if the damage is limited to one file, so that a merge can go on without it.
    pub(crate) const fn is_of_one_file(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing { .. })
    }

    pub(crate) fn damaged(file: &str, reason: impl ToString) -> Self {
        Self::Damaged { file: file.into(), reason: reason.to_string() }
    }
}
