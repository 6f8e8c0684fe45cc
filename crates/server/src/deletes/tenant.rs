//! Deletes everything that belongs to a tenant.
//!
//! ```text
//!   flush ─▶ each partition: record in the journal, metadata and exemplars are dropped, series without samples leave the head
//!         ─▶ tombstone of everything in the table's log: all samples are hidden at once ─▶ files are removed
//!         ─▶ streams: records are loaded, and the files of their tables removed ─▶ answer
//! ```
//!
//! Each step may be repeated. If a delete fails after the tombstone was written, upkeep finishes it. The tables
//! themselves remain without files, because their floodmarks keep old records in the journal from being sealed again.

use super::{commit, panicked, refused, release};
use crate::node::Node;
use crate::partition::sums::shared::Deletion;
use crate::partition::{Command, DeleteTenant};
use crate::query_source::Context;
use crate::refusal::Refusal;
use crate::seal::Lake;
use crate::seal::flush::flush_tenant;
use crate::seal::tenant_tables::TenantTable;
use crate::streams::tasks::{self, Scope};
use admission::retry::Wait;
use model::TenantId;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;
use tables::{Delete, TableError};
use tokio::sync::oneshot;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Add for Removed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { files: self.files + other.files, bytes: self.bytes + other.bytes }
    }
}

/// Queries and writes may keep series of a deleted tenant in the heads. The delete waits at most this long for them.
const EVICTIONS_WAIT: Duration = Duration::from_secs(20);

/// Deletes everything that belongs to a tenant. After an error, its samples may have been deleted, and the request
/// should be repeated.
pub(crate) async fn delete_tenant(node: &Node, tenant: &TenantId) -> Result<Removed, Refusal> {
    delete_within(node, tenant, EVICTIONS_WAIT).await
}

async fn delete_within(node: &Node, tenant: &TenantId, most: Duration) -> Result<Removed, Refusal> {
    let reads = node.reads();
    reads.lake.closed.check(tenant)?;
    node.writes().aggregator.delete(tenant);
    flush_tenant(node, tenant).await?;
    let dropped = delete_from_partitions(node, tenant, most).await;
    // queries may delay the eviction of series, but this must not delay the delete of the samples
    let (context, of) = (Arc::clone(reads), tenant.clone());
    let done = tokio::task::spawn_blocking(move || {
        commit(&context, &of, &Delete::everything())?;
        remove_files(&context, &of).map_err(refused)
    });
    let removed = done.await.unwrap_or_else(|_| Err(panicked()))?;
    release(node, tenant).await?;
    reads.events.delete(tenant).await?;
    reads.queried.forget(tenant);
    reads.paths.remove(tenant);
    node.writes().tenants.forget(tenant);
    dropped?;
    let of_streams = node.streams().delete(Scope::Tenant(tenant.clone())).await?;
    let Removed { files, bytes } = removed + of_streams;
    tracing::info!(target: "audit", %tenant, files, bytes, "a tenant is deleted");
    Ok(Removed { files, bytes })
}

/// In all partitions, drops the tenant's metadata, exemplars and series without samples. Fails if this takes longer
/// than `most`.
async fn delete_from_partitions(node: &Node, tenant: &TenantId, most: Duration) -> Result<(), Refusal> {
    let mut answers = Vec::new();
    let writes = node.writes();
    let deletion = Deletion::begin(&writes.heads, tenant, writes.commands.len());
    for commands in &node.writes().commands {
        let (reply, answer) = oneshot::channel();
        let request = Command::DeleteTenant(DeleteTenant {
            tenant: tenant.clone(),
            deletion: Arc::clone(&deletion),
            reply,
        });
        let is_busy = |_| {
            let message = "too many requests wait for a partition: repeat the delete";
            Refusal::busy("queue_full", message).until(Wait::Requests)
        };
        commands.try_send(request).map_err(is_busy)?;
        answers.push(answer);
    }
    drop(deletion);
    let all = async {
        for answer in answers {
            answer.await.map_err(|_| Refusal::stopping())??;
        }
        Ok(())
    };
    let is_busy = |_| {
        let message = "the samples are deleted, but names of series are still listed: queries or writes of any tenant that \
                       began before the delete keep them, or there are very many. Repeat the delete";
        Refusal::busy("deletes", message)
    };
    tokio::time::timeout(most, all).await.map_err(is_busy)?
}

/// Removes files from a tenant's tables if all their samples were deleted with the tenant. If this fails for a table,
/// the others are still processed.
pub(crate) fn remove_files(context: &Context, tenant: &TenantId) -> Result<Removed, TableError> {
    let (mut removed, mut failed) = (Removed::default(), None);
    for kind in TenantTable::ALL {
        if let Err(error) = remove_files_of(&context.lake, tenant, kind, &mut removed) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(removed), Err)
}

fn remove_files_of(
    lake: &Lake,
    tenant: &TenantId,
    kind: TenantTable,
    removed: &mut Removed,
) -> Result<(), TableError> {
    let Some(table) = lake.tables.existing_now(tenant, kind)? else { return Ok(()) };
    loop {
        let files = table.remove_fully_deleted(i64::MAX)?;
        lake.tables.publish_commits(tenant, kind, &table);
        if files.is_empty() {
            return Ok(());
        }
        removed.files += files.len() as u64;
        removed.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        if let Err(error) = table.erase(&files) {
            tracing::warn!(%tenant, table = kind.folder(), %error, "cannot delete files of a deleted tenant now; vacuum does it later");
        }
    }
}

/// Number and size of the files that the tenant has.
pub(crate) fn files(lake: &Lake, tenant: &TenantId) -> Result<Removed, TableError> {
    let mut found = tasks::files(&lake.tables, &Scope::Tenant(tenant.clone()))?;
    for kind in TenantTable::ALL {
        if let Some(table) = lake.tables.existing_now(tenant, kind)? {
            let files = table.files()?;
            found.files += files.all().len() as u64;
            found.bytes += files.all().iter().map(|file| file.bytes).sum::<u64>();
        }
    }
    Ok(found)
}

/// True if the tenant has data or tables. Those of a deleted tenant remain.
pub(crate) fn exists(node: &Node, tenant: &TenantId) -> Result<bool, TableError> {
    let reads = node.reads();
    if reads.has_data(tenant) || node.streams().shared.buffer.has_any_of(tenant) {
        return Ok(true);
    }
    for kind in TenantTable::ALL {
        if reads.lake.tables.existing_now(tenant, kind)?.is_some() {
            return Ok(true);
        }
    }
    tasks::has_tables(&reads.lake.tables, tenant)
}

/// True if the tenant has files.
pub(crate) fn has_files(lake: &Lake, tenant: &TenantId) -> Result<bool, TableError> {
    for kind in TenantTable::ALL {
        if let Some(table) = lake.tables.existing_now(tenant, kind)?
            && !table.files()?.all().is_empty()
        {
            return Ok(true);
        }
    }
    tasks::has_files(&lake.tables, tenant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::tests::{read_of, write_of};
    use crate::write_path::tests::small_node;
    use model::ErrorKind;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_does_not_end_keeps_no_samples_of_a_deleted_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        node.readiness().wait_for_replay().await;
        let tenant = TenantId::anonymous();
        write_of(&node, &tenant, 1000).await;
        let queries: Vec<_> = node.reads().partitions.iter().map(|p| p.head.read().pin()).collect();
        for _ in 0..100 {
            let refused = delete_within(&node, &tenant, Duration::ZERO).await.unwrap_err();
            assert_eq!((refused.kind, refused.reason), (ErrorKind::Unavailable, "deletes"), "{refused}");
        }
        let (there, of) = (node.clone(), tenant.clone());
        let left = tokio::task::spawn_blocking(move || read_of(&there, &of)).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        drop(queries);
        assert_eq!(delete_tenant(&node, &tenant).await.unwrap(), Removed::default());
        let is_known = |p: &crate::partition::PartitionShared| p.head.read().tenant(&tenant).is_some();
        assert!(!node.reads().partitions.iter().any(|partition| is_known(partition)));
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
