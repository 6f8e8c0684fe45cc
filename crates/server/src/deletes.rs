//! Deletes of samples by request.
//!
//! ```text
//!   flush the tenant ─▶ its samples are in its table, and in no head ─▶ tombstone in the table's log ─▶ answer
//!                                                                          └▶ rollups take it in        └▶ upkeep rewrites files
//! ```
//!
//! Everything acknowledged before the request is in the table when the tombstone is committed, and so comes before it in the order of writes.
//! What is written after the answer comes after it. What is written meanwhile may be on either side.

use crate::query_source::Context;
use crate::refusal::Refusal;
use crate::seal::Lake;
use crate::seal::flush::flush_tenant;
use crate::seal::tenant_tables::TenantTable;
use model::{ErrorKind, TenantId};
use std::sync::Arc;
use tables::rollup::{self, Resolution};
use tables::{Delete, Table, TableError};

/// Deletes what a tenant has of some samples. An error may mean that it is deleted all the same, or will be: repeat it.
pub(crate) async fn delete(node: &crate::Node, tenant: TenantId, delete: Delete) -> Result<(), Refusal> {
    delete.check().map_err(refused)?;
    flush_tenant(node, &tenant).await?;
    let context = Arc::clone(node.reads());
    let done = tokio::task::spawn_blocking(move || commit(&context, &tenant, &delete));
    done.await.unwrap_or_else(|_| Err(Refusal::new(ErrorKind::Internal, "internal", "the delete failed")))
}

/// Deletes samples from a tenant's tables. They must not be in the heads any more.
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
            let message = "the delete is stored, and not all rollups have taken it in yet: repeat it";
            Err(Refusal::busy("tables", message))
        }
        _ => Ok(()),
    }
}

/// Lets a tenant's rollups take in the deletes of its samples. Returns the sequence up to which all of them have.
pub(crate) fn pass_on(
    lake: &Lake,
    tenant: &TenantId,
    samples: &Table,
    now_ms: i64,
) -> Result<i64, TableError> {
    // one version throughout: a delete that comes meanwhile is neither passed on nor ended
    let files = samples.files()?;
    let mut upto = files.tombstones().last;
    if files.tombstones().list.is_empty() {
        return Ok(upto);
    }
    // after the tombstone was committed: a rollup that is made later is made without what it deletes
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
