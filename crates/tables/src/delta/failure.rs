//! Converts errors of the Delta library.

use super::listing::FOLDER;
use crate::error::TableError;
use crate::read;
use crate::store::Location;
use delta_kernel::KernelError;

/// Runs a closure that decodes log files; see [`read::guarded`].
pub(super) fn guarded<T>(
    location: &Location,
    decode: impl FnOnce() -> Result<T, TableError>,
) -> Result<T, TableError> {
    read::guarded(FOLDER, decode).map_err(|error| match error {
        TableError::Damaged { reason, .. } => damaged(location, reason),
        error => error,
    })
}

pub(super) fn foreign(location: &Location, reason: String) -> TableError {
    TableError::Foreign { table: location.url().to_string(), reason }
}

pub(super) fn damaged(location: &Location, reason: String) -> TableError {
    TableError::Log { table: location.url().to_string(), reason }
}

pub(super) fn of(location: &Location, error: KernelError) -> TableError {
    match error {
        KernelError::Backtraced { source, .. } => of(location, *source),
        KernelError::ObjectStore(error @ object_store::Error::NotFound { .. }) => {
            damaged(location, error.to_string())
        }
        KernelError::ObjectStore(error) => TableError::Store(error),
        KernelError::Unsupported(reason) => foreign(location, reason),
        error => damaged(location, error.to_string()),
    }
}
