//! What a tenant has, as tables of SQL.
//!
//! - [`catalog`]: the tables of a tenant
//! - [`stream`]: a stream as a table: batches in the buffer, and files

mod catalog;
mod stream;

pub(crate) use catalog::TenantCatalog;

use sql::SourceError;
use tables::TableError;

fn unreadable(error: TableError) -> SourceError {
    match error {
        TableError::Canceled => SourceError::Stopped,
        error => SourceError::Failed { kind: error.kind(), message: format!("cannot read tables: {error}") },
    }
}
