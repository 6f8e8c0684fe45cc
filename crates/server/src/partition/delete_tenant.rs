//! Deletion of a tenant from a partition.
//!
//! ```text
//!   record in the journal: metadata and exemplars of earlier records are void ─▶ drop them from the head ─▶ evict ─▶ answer
//! ```
//!
//! A tombstone in the tenant's table deletes its samples. This module drops metadata, exemplars and series without
//! samples. Samples that arrive meanwhile stay, with their series.

use super::Owner;
use super::evict::Eviction;
use super::sums::shared::Deletion;
use crate::refusal::Refusal;
use model::TenantId;
use std::sync::Arc;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct DeleteTenant {
    pub(crate) tenant: TenantId,
    pub(crate) deletion: Arc<Deletion>,
    /// Answered once memory is free and the journal says that the tenant's earlier metadata and exemplars are void.
    pub(crate) reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Owner {
    pub(super) fn delete_tenant(&mut self, request: DeleteTenant) {
        let DeleteTenant { tenant, deletion, reply } = request;
        let recorded = match self.evicting.is_full() {
            true => Err(Eviction::too_many()),
            false => self.record_delete(|encoder| encoder.deleted(&tenant)),
        };
        if let Err(refusal) = recorded {
            let _ = reply.send(Err(refusal)); // the receiver may be gone
            return;
        }
        // replay does not remember references of deleted series either
        self.dictionary.remove_tenant(&tenant);
        self.sums.delete_tenant(&tenant, deletion.number, self.context.steady_s());
        deletion.recorded();
        let extras = {
            let mut head = self.partition.head.write();
            let extras = head.take_extras(&tenant);
            self.partition.grew(head.take_change());
            extras
        };
        drop(extras); // freeing takes time, so it happens after the lock is released
        self.evicting.evict(Eviction { tenant, reply }, self.context.clock.instant());
    }
}
