//! Errors of tables.

use model::ErrorKind;

/// Reason why a table could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A Parquet file is damaged.
    #[error("cannot read file {file}: {reason}")]
    Damaged {
        /// Path in the table, or another name for the file.
        file: String,
        /// Description of the damage.
        reason: String,
    },
    /// A file that the log names is missing from the store.
    #[error("cannot read file {file}: the table's log names it, but the object store does not have it")]
    Missing {
        /// Path in the table.
        file: String,
    },
    /// The object store failed.
    #[error("the object store failed: {0}")]
    Store(#[from] object_store::Error),
    /// The writer's sink or the Parquet library failed.
    #[error("cannot write a file of the table: {0}")]
    Write(#[source] parquet::errors::ParquetError),
    /// The Delta log cannot be read or extended.
    #[error("cannot use the log of table {table}: {reason}")]
    Log {
        /// The table's URL.
        table: String,
        /// The cause.
        reason: String,
    },
    /// Another program created the table, or changed it in a way that Floodmark does not support.
    #[error("cannot use table {table}: {reason}")]
    Foreign {
        /// The table's URL.
        table: String,
        /// Reason why the table cannot be used.
        reason: String,
    },
    /// Other writers were first in every attempt.
    #[error("cannot commit to the table: other writers were first in all {attempts} attempts")]
    Contended {
        /// Number of attempts.
        attempts: usize,
    },
    /// A store on which two writers would overwrite each other's commits.
    #[error(
        "the object store at {url} does not support put-if-absent: two writers would silently overwrite each other's \
         commits. Use a store that does (if S3-compatible: one with conditional writes, If-None-Match)"
    )]
    NotExclusive {
        /// The location's URL.
        url: String,
    },
    /// A staged file that a sweep may have deleted before it was committed. Stage it again.
    #[error(
        "staged file {file} may have been deleted: it was not committed before the sweep at version {version}"
    )]
    Lapsed {
        /// Path in the table.
        file: String,
        /// The version of the sweep's log entry.
        version: u64,
    },
    /// The operation needs more files than one commit or one scan may have.
    #[error("the operation on the table needs {files} files at once, the limit is {max}")]
    TooManyFiles {
        /// Number of files.
        files: usize,
        /// The limit.
        max: usize,
    },
    /// The operation needs more memory than the caller permits.
    #[error("{what} take more than {limit_bytes} bytes")]
    TooLarge {
        /// Description of what needs the memory.
        what: &'static str,
        /// Limit on its memory.
        limit_bytes: usize,
    },
    /// The table has the maximum number of incomplete deletes.
    #[error(
        "{pending} deletes of this table are incomplete, which is the limit: wait until upkeep has \
         rewritten the files"
    )]
    TooManyDeletes {
        /// Number of incomplete deletes.
        pending: usize,
    },
    /// The [`crate::Stop`] of the read was set.
    #[error("the read was canceled: its result is no longer needed")]
    Canceled,
    /// The location of a table is not valid.
    #[error("cannot use table location {url:?}: {reason}")]
    Location {
        /// URL as given.
        url: String,
        /// Reason why the location is not valid.
        reason: String,
    },
}

impl TableError {
    /// Kind of the error, by what the caller should do.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } | Self::Missing { .. } | Self::Log { .. } => ErrorKind::Data,
            Self::Store(_)
            | Self::Contended { .. }
            | Self::Lapsed { .. }
            | Self::TooManyDeletes { .. }
            | Self::Canceled => ErrorKind::Unavailable,
            Self::Foreign { .. } | Self::NotExclusive { .. } => ErrorKind::Unsupported,
            Self::Write(_) => ErrorKind::Internal,
            Self::TooManyFiles { .. } | Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Location { .. } => ErrorKind::Invalid,
        }
    }

    /// True if the error concerns one file, so that others can still be read.
    pub(crate) const fn is_of_one_file(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing { .. })
    }

    /// An error about the content of `file`.
    pub(crate) fn damaged(file: &str, reason: impl ToString) -> Self {
        Self::Damaged { file: file.into(), reason: reason.to_string() }
    }
}
