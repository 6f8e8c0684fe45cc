//! Deletes of everything that a tenant has.
//!
//! ```text
//!   flush ─▶ each partition: record in the journal, metadata and exemplars are dropped, series without samples leave the head
//!         ─▶ tombstone of everything in the table's log: all samples are hidden at once ─▶ files are removed ─▶ answer
//! ```
//!
//! The tombstone decides: without it nothing is deleted but metadata and exemplars, which senders repeat; with it, upkeep finishes
//! whatever is left. Each step may be repeated. The tables stay, without files: their floodmarks say that what journals have of
//! the tenant is not to be stored again.

use super::{commit, refused};
use crate::node::Node;
use crate::partition::{Command, Forget};
use crate::query_source::Context;
use crate::refusal::Refusal;
use crate::seal::Lake;
use crate::seal::flush::flush_tenant;
use crate::seal::tenant_tables::TenantTable;
use model::{ErrorKind, TenantId};
use std::sync::Arc;
use tables::{Delete, TableError};
use tokio::sync::oneshot;

/// What a delete of a tenant removes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Files of all tables of the tenant.
    pub(crate) files: u64,
    /// Size of these files.
    pub(crate) bytes: u64,
}

/// Deletes all that a tenant has. An error may mean that its samples are deleted all the same: repeat it.
pub(crate) async fn delete_tenant(node: &Node, tenant: &TenantId) -> Result<Removed, Refusal> {
    let reads = node.reads();
    reads.lake.closed.check(tenant)?;
    flush_tenant(node, tenant).await?;
    forget(node, tenant).await?;
    let (context, of) = (Arc::clone(reads), tenant.clone());
    let done = tokio::task::spawn_blocking(move || {
        commit(&context, &of, &Delete::everything())?;
        remove_files(&context, &of).map_err(refused)
    });
    let failed = |_| Err(Refusal::new(ErrorKind::Internal, "internal", "the delete failed"));
    let removed = done.await.unwrap_or_else(failed)?;
    reads.queried.forget(tenant);
    node.writes().tenants.forget(tenant);
    let Removed { files, bytes } = removed;
    tracing::info!(target: "audit", %tenant, files, bytes, "a tenant is deleted");
    Ok(removed)
}

/// Lets all partitions drop what they have of a tenant beside samples.
async fn forget(node: &Node, tenant: &TenantId) -> Result<(), Refusal> {
    let mut answers = Vec::new();
    for commands in &node.writes().commands {
        let (reply, answer) = oneshot::channel();
        let forget = Command::Forget(Forget { tenant: tenant.clone(), reply });
        let is_busy =
            |_| Refusal::busy("queue_full", "too many requests wait for a partition: repeat the delete");
        commands.try_send(forget).map_err(is_busy)?;
        answers.push(answer);
    }
    for answer in answers {
        answer.await.map_err(|_| Refusal::stopping())??;
    }
    Ok(())
}

/// Removes the files that deletes of everything hide, from the tables and from the store.
pub(crate) fn remove_files(context: &Context, tenant: &TenantId) -> Result<Removed, TableError> {
    let lake = &context.lake;
    let mut removed = Removed::default();
    for kind in TenantTable::ALL {
        let Some(table) = lake.tables.existing_now(tenant, kind)? else { continue };
        loop {
            let files = table.drop_deleted(i64::MAX)?;
            lake.tables.show(tenant, kind, &table);
            if files.is_empty() {
                break;
            }
            removed.files += files.len() as u64;
            removed.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
            if let Err(error) = table.erase(&files) {
                tracing::warn!(%tenant, table = kind.folder(), %error, "cannot delete files of a deleted tenant now; vacuum does it later");
            }
        }
    }
    Ok(removed)
}

/// Number and size of the files of all tables of a tenant.
pub(crate) fn files(lake: &Lake, tenant: &TenantId) -> Result<Removed, TableError> {
    let mut found = Removed::default();
    for kind in TenantTable::ALL {
        if let Some(table) = lake.tables.existing_now(tenant, kind)? {
            let files = table.files()?;
            found.files += files.all().len() as u64;
            found.bytes += files.all().iter().map(|file| file.bytes).sum::<u64>();
        }
    }
    Ok(found)
}
