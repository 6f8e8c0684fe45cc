//! Creates, reads and checkpoints the log.

use super::failure::{self, damaged, foreign, guarded};
use super::listing::Listing;
use super::repair::repair;
use super::{ENGINE_INFO, Files, PendingDeletes, Table, columns, commit, pending_deletes};
use crate::error::TableError;
use crate::kind::{DATE, Kind};
use crate::read::Depth;
use crate::store::Location;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::snapshot::{IncrementalReplay, Snapshot, SnapshotRef};
use delta_kernel::transaction::CommitResult;
use delta_kernel::transaction::create_table::create_table;
use delta_kernel::transaction::data_layout::DataLayout;
use delta_kernel::{Engine, KernelError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Table {
    /// Writes a checkpoint of the latest version seen. It is no error if the checkpoint exists. After a failure, call
    /// this again.
    pub fn checkpoint(&self) -> Result<(), TableError> {
        let (_, snapshot) = self.reading(|| self.snapshot().checkpoint(&self.engine, None))?;
        self.checkpointed.fetch_max(snapshot.version(), Ordering::Relaxed);
        // a checksum file has floodmarks and file counts, so that tables open without replaying the log
        let (_, snapshot) = self.reading(|| snapshot.write_checksum(&self.engine))?;
        self.see(snapshot);
        Ok(())
    }
}

/// Creates the first version; `None` if another process was first.
pub(super) fn create(
    kind: &Kind,
    location: &Location,
    engine: &dyn Engine,
) -> Result<Option<Loaded>, TableError> {
    location.check_exclusive()?;
    // the library fails if the folder is missing
    location.create_folder()?;
    let error = |e| failure::of(location, e);
    let columns = columns::columns(kind).map_err(error)?;
    let statistics = kind.statistics().join(",");
    let transaction = create_table(location.url().as_str(), columns, ENGINE_INFO, true)
        .with_table_properties([("delta.dataSkippingStatsColumns", statistics)])
        .with_data_layout(DataLayout::partitioned([DATE]))
        .build(engine, Box::new(FileSystemCommitter::new()));
    let transaction = match transaction {
        Err(KernelError::TableAlreadyExistsAtPath(_)) => return Ok(None),
        transaction => transaction.map_err(error)?,
    };
    match transaction.commit(engine).map_err(error)? {
        CommitResult::Committed(done) => Ok(done.post_commit_snapshot().map(|snapshot| Loaded {
            files: Files::new(location, snapshot.version(), Vec::new(), PendingDeletes::default()),
            snapshot: Arc::clone(snapshot),
            checkpoint: None,
        })),
        CommitResult::Conflicted(_) => Ok(None),
        CommitResult::Retryable(again) => Err(error(again.error)),
    }
}

pub(super) struct Loaded {
    pub(super) snapshot: SnapshotRef,
    pub(super) files: Files,
    pub(super) checkpoint: Option<u64>,
}

/// Reads the log whose files are in `listing`. If the last checkpoint is unusable, the log is read without that
/// checkpoint.
pub(super) fn load(
    kind: &Kind,
    location: &Location,
    engine: &dyn Engine,
    listing: &Listing,
) -> Result<Loaded, TableError> {
    let repaired = repair(location, listing, None)?;
    match open(kind, location, engine, repaired.checkpoint) {
        Err(TableError::Log { reason, .. }) => {
            let repaired = repair(location, &Listing::read(location)?, Some(Depth::Rows))?;
            if repaired.any {
                return open(kind, location, engine, repaired.checkpoint);
            }
            let from = repaired
                .checkpoint
                .map(|version| format!(" (read from the checkpoint of version {version})"));
            Err(damaged(location, reason + &from.unwrap_or_default()))
        }
        done => done,
    }
}

fn open(
    kind: &Kind,
    location: &Location,
    engine: &dyn Engine,
    checkpoint: Option<u64>,
) -> Result<Loaded, TableError> {
    let snapshot = guarded(location, || {
        Snapshot::builder_for(location.url().as_str())
            .with_incremental_crc_replay(IncrementalReplay::Unlimited)
            .build(engine)
            .map_err(|e| failure::of(location, e))
    })?;
    columns::check(kind, &snapshot).map_err(|reason| foreign(location, reason))?;
    let floodmark = |source: &str| {
        let found = guarded(location, || {
            snapshot.get_app_id_version(source, engine).map_err(|e| failure::of(location, e))
        });
        Ok(found?.and_then(|found| u64::try_from(found).ok()))
    };
    let pending = pending_deletes::load(location, floodmark, None)?;
    let files = commit::live_files(kind, location, engine, &snapshot, pending)?;
    Ok(Loaded { snapshot, files, checkpoint })
}
