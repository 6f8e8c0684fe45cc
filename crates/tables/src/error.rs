//! Errors of tables.

use model::ErrorKind;

/// Why a table could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A Parquet file that cannot be what its reader was promised.
    #[error("file {file}: {reason}")]
    Damaged {
        /// Path in the table, or a name in its place.
        file: String,
        /// Description of the damage.
        reason: String,
    },
    /// A file of the table that the store does not have.
    #[error("file {file}: the log names it, but the store does not have it")]
    Missing {
        /// Path in the table.
        file: String,
    },
    /// The object store failed.
    #[error("object store: {0}")]
    Store(#[from] object_store::Error),
    /// The writer's sink or the Parquet library failed.
    #[error("a file of the table cannot be written: {0}")]
    Write(#[source] parquet::errors::ParquetError),
    /// A Delta log that cannot be read or extended.
    #[error("log of table {table}: {reason}")]
    Log {
        /// The table's URL.
        table: String,
        /// The cause.
        reason: String,
    },
    /// A table that another program made, or changed in a way that this one does not follow.
    #[error("table {table} cannot be used: {reason}")]
    Foreign {
        /// The table's URL.
        table: String,
        /// Why the table cannot be used.
        reason: String,
    },
    /// Other writers were always first.
    #[error("table is contended: other writers were first {attempts} times")]
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
    #[error("{files} files at once, the limit is {max}")]
    TooManyFiles {
        /// Number of files.
        files: usize,
        /// The limit.
        max: usize,
    },
    /// The operation needs more than the caller has room for.
    #[error("{what} take more than {limit_bytes} bytes")]
    TooLarge {
        /// The part that needs so much.
        what: &'static str,
        /// The room there was.
        limit_bytes: usize,
    },
    /// As many deletes as a table may have at a time are not complete.
    #[error(
        "{pending} deletes of this table are not complete yet, which are as many as it may have: wait until upkeep has \
         rewritten the files"
    )]
    TooManyDeletes {
        /// Their number.
        pending: usize,
    },
    /// A read whose [`crate::Stop`] was set.
    #[error("the read was cancelled: its result is no longer needed")]
    Interrupted,
    /// A location that is none.
    #[error("table location {url:?}: {reason}")]
    Location {
        /// URL as given.
        url: String,
        /// Why it is invalid.
        reason: String,
    },
}

impl TableError {
    /// Reaction expected of the caller.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } | Self::Missing { .. } | Self::Log { .. } => ErrorKind::Data,
            Self::Store(_)
            | Self::Contended { .. }
            | Self::Lapsed { .. }
            | Self::TooManyDeletes { .. }
            | Self::Interrupted => ErrorKind::Unavailable,
            Self::Foreign { .. } | Self::NotExclusive { .. } => ErrorKind::Unsupported,
            Self::Write(_) => ErrorKind::Internal,
            Self::TooManyFiles { .. } | Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Location { .. } => ErrorKind::Invalid,
        }
    }

    /// True for an error about one file: others can be read.
    pub(crate) const fn is_of_one_file(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing { .. })
    }

    /// An error about the content of `file`.
    pub(crate) fn damaged(file: &str, reason: impl ToString) -> Self {
        Self::Damaged { file: file.into(), reason: reason.to_string() }
    }
}
