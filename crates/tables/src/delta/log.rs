//! The log as a whole: made, read, checked, shortened.

use super::{Table, columns};
use crate::error::TableError;
use crate::schema;
use crate::store::Location;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::snapshot::{IncrementalReplay, Snapshot, SnapshotRef};
use delta_kernel::transaction::CommitResult;
use delta_kernel::transaction::create_table::create_table;
use delta_kernel::transaction::data_layout::DataLayout;
use delta_kernel::{Engine, KernelError};
use futures::TryStreamExt;
use object_store::ObjectStore;

/// What the log says of who wrote an entry.
pub(super) const ENGINE_INFO: &str = concat!("floodmark/", env!("CARGO_PKG_VERSION"));

/// The log's folder in a table.
pub(super) const FOLDER: &str = "_delta_log";

impl Table {
    /// Writes a checkpoint of the version seen last, so that readers need not replay the log before it. One
    /// that is there already is no error; one that failed is simply written again.
    pub fn checkpoint(&self) -> Result<(), TableError> {
        let error = |e| error(&self.location, e);
        let (_, snapshot) = self.snapshot().checkpoint(&self.engine, None).map_err(error)?;
        // Floodmarks and counts of files beside it: what opens the table then need not replay for them.
        let (_, snapshot) = snapshot.write_checksum(&self.engine).map_err(error)?;
        self.see(snapshot);
        Ok(())
    }
}

pub(super) fn exists(location: &Location) -> Result<bool, TableError> {
    let prefix = location.path(FOLDER)?;
    let store = location.store();
    let first = location.wait(async move { store.list(Some(&prefix)).try_next().await })?;
    Ok(first.is_some())
}

/// Refuses log entries without a byte, as a power loss leaves them where files are not synced. The library
/// takes one for a commit of nothing, and what was in it would be gone without a word.
pub(super) fn check_entries(location: &Location, after: Option<u64>) -> Result<(), TableError> {
    let prefix = location.path(FOLDER)?;
    let first = match after {
        Some(version) => format!("{FOLDER}/{version:020}.json"),
        None => format!("{FOLDER}/0"),
    };
    let (first, store) = (location.path(&first)?, location.store());
    let empty = location.wait(async move {
        let mut entries = store.list_with_offset(Some(&prefix), &first);
        while let Some(entry) = entries.try_next().await? {
            let name = entry.location.filename().unwrap_or_default();
            if entry.size == 0 && version_of(name, ".json").is_some() {
                return Ok(Some(name.to_string()));
            }
        }
        Ok::<_, object_store::Error>(None)
    })?;
    let table = location.url().to_string();
    empty.map_or(Ok(()), |name| Err(TableError::Log { table, reason: format!("its entry {name} is empty") }))
}

/// The version in the name of a log file that ends in `suffix`.
pub(super) fn version_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

pub(super) fn create(location: &Location, engine: &dyn Engine) -> Result<(), TableError> {
    // The library wants the folder of a local table to be there.
    if let Ok(folder) = location.url().to_file_path() {
        let failed = |e: std::io::Error| TableError::Location {
            url: location.url().to_string(),
            reason: e.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let error = |e| error(location, e);
    let columns = columns::columns().map_err(error)?;
    let statistics = [schema::NAME, schema::START, schema::END].join(",");
    let transaction = create_table(location.url().as_str(), columns, ENGINE_INFO, true)
        .with_table_properties([("delta.dataSkippingStatsColumns", statistics)])
        .with_data_layout(DataLayout::partitioned([schema::DATE]))
        .build(engine, Box::new(FileSystemCommitter::new()));
    let transaction = match transaction {
        // another process was first
        Err(KernelError::TableAlreadyExistsAtPath(_)) => return Ok(()),
        transaction => transaction.map_err(error)?,
    };
    match transaction.commit(engine).map_err(error)? {
        CommitResult::Committed(_) | CommitResult::Conflicted(_) => Ok(()),
        CommitResult::Retryable(again) => Err(error(again.error)),
    }
}

pub(super) fn load(location: &Location, engine: &dyn Engine) -> Result<SnapshotRef, TableError> {
    check_entries(location, None)?;
    let snapshot = Snapshot::builder_for(location.url().as_str())
        .with_incremental_crc_replay(IncrementalReplay::Unlimited)
        .build(engine)
        .map_err(|e| error(location, e))?;
    columns::check(&snapshot).map_err(|reason| foreign(location, reason))?;
    Ok(snapshot)
}

pub(super) fn foreign(location: &Location, reason: String) -> TableError {
    TableError::Foreign { table: location.url().to_string(), reason }
}

pub(super) fn error(location: &Location, error: KernelError) -> TableError {
    let table = location.url().to_string();
    match error {
        KernelError::Backtraced { source, .. } => self::error(location, *source),
        KernelError::ObjectStore(error @ object_store::Error::NotFound { .. }) => {
            TableError::Log { table, reason: error.to_string() }
        }
        KernelError::ObjectStore(error) => TableError::Store(error),
        KernelError::Unsupported(reason) => TableError::Foreign { table, reason },
        error => TableError::Log { table, reason: error.to_string() },
    }
}
