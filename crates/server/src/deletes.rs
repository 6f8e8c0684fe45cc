//! Deletes of samples by request.
//!
//! ```text
//!   flush the tenant ─▶ its samples are in its table, and in no head
//!         ─▶ tombstone in the table's log ─▶ rollups apply it    (later, upkeep rewrites files)
//!         ─▶ heads: exemplars are dropped, and series without samples and exemplars hidden ─▶ answer
//! ```
//!
//! Samples and exemplars acknowledged before the request are deleted. Those written after the answer are kept. Those
//! written in between may be deleted or kept.
//!
//! - [`series`]: what a delete of samples does in the heads
//! - [`tenant`]: deletes of whole tenants

mod series;
pub(crate) mod tenant;

use crate::partition::PartitionShared;
use crate::query_source::Context;
use crate::refusal::Refusal;
use crate::seal::Lake;
use crate::seal::flush::flush_tenant;
use crate::seal::tenant_tables::TenantTable;
use model::{ErrorKind, TenantId};
use std::sync::Arc;
use tables::rollup::{self, Resolution};
use tables::{Delete, Table, TableError};

/// Refuses a delete whose selectors are too large.
pub(crate) fn check(delete: &Delete) -> Result<(), Refusal> {
    delete.check().map_err(refused)
}

/// Deletes samples and exemplars of a tenant. After an error, queries show either all of the samples or none, and the
/// request should be repeated.
pub(crate) async fn delete(node: &crate::Node, tenant: TenantId, delete: Delete) -> Result<(), Refusal> {
    check(&delete)?;
    flush_tenant(node, &tenant).await?;
    let delete = Arc::new(delete);
    let (context, of, what) = (Arc::clone(node.reads()), tenant.clone(), Arc::clone(&delete));
    let done = tokio::task::spawn_blocking(move || commit(&context, &of, &what));
    done.await.unwrap_or_else(|_| Err(panicked()))?;
    release(node, &tenant).await?;
    let unlisted = series::forget(node, &tenant, &delete).await;
    // only now, because until then an index may have got the names of the series
    node.reads().paths.forget(&tenant);
    unlisted
}

fn panicked() -> Refusal {
    Refusal::new(ErrorKind::Internal, "internal", "the delete panicked")
}

/// Waits until no head has samples of the tenant that are also in its table. During the delete, a round may have
/// committed samples that have not left the head yet. If such a sample was deleted and is sent again, the head would
/// discard it as a duplicate.
async fn release(node: &crate::Node, tenant: &TenantId) -> Result<(), Refusal> {
    if is_frozen(node.reads(), tenant) {
        flush_tenant(node, tenant).await?;
    }
    Ok(())
}

pub(crate) fn is_frozen(context: &Context, tenant: &TenantId) -> bool {
    let is_frozen = |partition: &PartitionShared| {
        partition.head.read().tenant(tenant).is_some_and(head::TenantHead::is_frozen)
    };
    context.partitions.iter().any(|partition| is_frozen(partition))
}

/// Deletes samples from the tables of a tenant. The samples must have left the heads before.
pub(crate) fn commit(context: &Context, tenant: &TenantId, delete: &Delete) -> Result<(), Refusal> {
    let (lake, now_ms) = (&context.lake, context.clock.now_ms());
    lake.closed.check(tenant)?;
    let Some(table) = lake.tables.existing_now(tenant, TenantTable::Samples).map_err(refused)? else {
        return Ok(());
    };
    // if a rollup cannot be read now, the delete is applied to it later
    let has_rollups = Resolution::ALL
        .into_iter()
        .any(|resolution| !matches!(rollup_of(lake, tenant, resolution), Ok(None)));
    let deleted = table.delete(delete, &Default::default(), has_rollups, now_ms).map_err(refused)?;
    lake.publish_commits(tenant, &table);
    context.paths.forget(tenant);
    if let Some(sequence) = deleted {
        lake.metrics.deletes.inc();
        tracing::info!(%tenant, sequence, %delete, "samples are deleted; upkeep rewrites their files");
    }
    let passed = apply_to_rollups(lake, tenant, &table, now_ms).map_err(refused)?;
    if let Some(error) = passed.failed {
        return Err(refused(error));
    }
    match deleted {
        Some(sequence) if has_rollups && passed.upto < sequence => {
            let message = "the delete is stored, but is not applied to all rollups yet; repeat the request";
            Err(Refusal::busy("tables", message))
        }
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) struct Passed {
    /// The deletes up to this sequence number are applied to all rollups; `i64::MIN` if some rollup could not be read
    /// or written.
    pub(crate) upto: i64,
    pub(crate) failed: Option<TableError>,
}

/// Applies deletes of a tenant's samples to its rollups. If this fails for a rollup, the result says so. An error is
/// returned only if the table of samples cannot be read.
pub(crate) fn apply_to_rollups(
    lake: &Lake,
    tenant: &TenantId,
    samples: &Table,
    now_ms: i64,
) -> Result<Passed, TableError> {
    // deletes that are committed from here on are applied by the next call
    let files = samples.files()?;
    let mut passed = Passed { upto: files.tombstones().last, failed: None };
    if files.tombstones().list.is_empty() {
        return Ok(passed);
    }
    // a rollup that was created after the delete was computed without the deleted samples
    for resolution in Resolution::ALL {
        let taken = rollup_of(lake, tenant, resolution).and_then(|table| match table {
            None => Ok(i64::MAX),
            Some(table) => {
                rollup::apply_deletes(&files, &table, resolution, now_ms)?;
                lake.tables.publish_commits(tenant, TenantTable::Rollup(resolution), &table);
                rollup::applied_deletes(&table)
            }
        });
        let upto = taken.unwrap_or_else(|error| {
            passed.failed.get_or_insert(error);
            i64::MIN
        });
        passed.upto = passed.upto.min(upto);
    }
    Ok(passed)
}

fn rollup_of(
    lake: &Lake,
    tenant: &TenantId,
    resolution: Resolution,
) -> Result<Option<Arc<Table>>, TableError> {
    lake.tables.existing_now(tenant, TenantTable::Rollup(resolution))
}

fn refused(error: TableError) -> Refusal {
    let reason = match error {
        TableError::TooManyDeletes { .. } | TableError::TooLarge { .. } => "deletes",
        _ => "tables",
    };
    Refusal::new(error.kind(), reason, error.to_string())
}

#[cfg(test)]
mod tests;
