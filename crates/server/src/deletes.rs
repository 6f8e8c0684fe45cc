//! Deletes of samples by request.
//!
//! ```text
//!   flush the tenant ─▶ its samples are in its table, and in no head ─▶ tombstone in the table's log ─▶ answer
//!                                                                          └▶ rollups apply it          └▶ upkeep rewrites files
//! ```
//!
//! Samples acknowledged before the request are in the table when the tombstone is committed, so they precede the
//! tombstone in the order of writes. Samples written after the answer follow the tombstone. Samples written in between
//! may precede or follow it; those that are sealed in between leave the heads before the answer. Otherwise, the head would take
//! a sample that is sent again for a duplicate of a sample that was just deleted.
//!
//! - [`tenant`]: deletes of whole tenants

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

/// Deletes samples of a tenant. After an error, the samples may be deleted nevertheless, now or later, so the request
/// should be repeated.
pub(crate) async fn delete(node: &crate::Node, tenant: TenantId, delete: Delete) -> Result<(), Refusal> {
    delete.check().map_err(refused)?;
    flush_tenant(node, &tenant).await?;
    let (context, of) = (Arc::clone(node.reads()), tenant.clone());
    let done = tokio::task::spawn_blocking(move || commit(&context, &of, &delete));
    done.await
        .unwrap_or_else(|_| Err(Refusal::new(ErrorKind::Internal, "internal", "the delete panicked")))?;
    release(node, &tenant).await
}

/// Waits until samples of a tenant that are in its table have left the heads.
async fn release(node: &crate::Node, tenant: &TenantId) -> Result<(), Refusal> {
    let is_frozen = |partition: &PartitionShared| {
        partition.head.read().tenant(tenant).is_some_and(head::TenantHead::is_frozen)
    };
    // usually there are none
    if node.reads().partitions.iter().any(|partition| is_frozen(partition)) {
        flush_tenant(node, tenant).await?;
    }
    Ok(())
}

/// Deletes samples from a tenant's tables. The samples must no longer be in the heads.
pub(crate) fn commit(context: &Context, tenant: &TenantId, delete: &Delete) -> Result<(), Refusal> {
    let (lake, now_ms) = (&context.lake, context.clock.now_ms());
    lake.closed.check(tenant)?;
    let Some(table) = lake.tables.existing_now(tenant, TenantTable::Samples).map_err(refused)? else {
        return Ok(());
    };
    let has_rollups = !rollups(lake, tenant).map_err(refused)?.is_empty();
    let deleted = table.delete(delete, &Default::default(), has_rollups, now_ms).map_err(refused)?;
    lake.show(tenant, &table);
    if let Some(sequence) = deleted {
        lake.metrics.deletes.inc();
        tracing::info!(%tenant, sequence, %delete, "samples are deleted; upkeep rewrites their files");
    }
    let taken = pass_on(lake, tenant, &table, now_ms).map_err(refused)?;
    match deleted {
        Some(sequence) if has_rollups && taken < sequence => {
            let message = "the delete is stored, but is not applied to all rollups yet; repeat the request";
            Err(Refusal::busy("tables", message))
        }
        _ => Ok(()),
    }
}

/// Applies the deletes of a tenant's samples to its rollups. Returns the sequence up to which the deletes are applied
/// to all rollups.
pub(crate) fn pass_on(
    lake: &Lake,
    tenant: &TenantId,
    samples: &Table,
    now_ms: i64,
) -> Result<i64, TableError> {
    // one version throughout: a delete that comes meanwhile is neither applied to rollups nor completed
    let files = samples.files()?;
    let mut upto = files.tombstones().last;
    if files.tombstones().list.is_empty() {
        return Ok(upto);
    }
    // list the rollups after the tombstone was committed: a rollup that is created later omits the deleted samples
    for (resolution, table) in rollups(lake, tenant)? {
        rollup::take_in(&files, &table, resolution, now_ms)?;
        lake.tables.show(tenant, TenantTable::Rollup(resolution), &table);
        upto = upto.min(rollup::taken(&table)?);
    }
    Ok(upto)
}

fn rollups(lake: &Lake, tenant: &TenantId) -> Result<Vec<(Resolution, Arc<Table>)>, TableError> {
    let mut all = Vec::new();
    for resolution in Resolution::ALL {
        if let Some(table) = lake.tables.existing_now(tenant, TenantTable::Rollup(resolution))? {
            all.push((resolution, table));
        }
    }
    Ok(all)
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
