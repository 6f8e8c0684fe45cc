//! Deletion of a tenant from a partition.
//!
//! ```text
//!   record in the journal: metadata and exemplars of earlier records are void ─▶ drop them from the head ─▶ evict ─▶ answer
//! ```
//!
//! A tombstone in the tenant's table deletes its samples. This module drops metadata, exemplars and series without
//! samples. Samples that arrive meanwhile stay, with their series.

use super::Owner;
use super::sums::shared::Deletion;
use crate::refusal::Refusal;
use head::Idle;
use journal::JournalError;
use model::TenantId;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Evicts all series without samples, even if they were seen recently.
pub(super) const UNSEALED_ONLY: Idle = Idle { retire_before_s: 0, evict_before_s: u32::MAX };

#[derive(Debug)]
pub(crate) struct DeleteTenant {
    pub(crate) tenant: TenantId,
    pub(crate) deletion: Arc<Deletion>,
    /// Answered once memory is free and the journal says that the tenant's earlier metadata and exemplars are void.
    pub(crate) reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Owner {
    pub(super) fn delete_tenant(&mut self, request: DeleteTenant) {
        if self.evicting.is_full() {
            let message = "too many tenants are being deleted; repeat the delete later";
            let _ = request.reply.send(Err(Refusal::busy("deletes", message))); // the receiver may be gone
            return;
        }
        if let Err(error) = self.record_deleted(&request.tenant) {
            // the discarded records defined series, which must be defined again in later records
            self.dictionary.forget();
            self.journal.abandon();
            self.context.metrics.group_failures.inc();
            let _ = request.reply.send(Err(Refusal::from(&error))); // the receiver may be gone
            return;
        }
        self.sums.delete_tenant(&request.tenant, request.deletion.number, self.context.steady_s());
        request.deletion.recorded();
        let extras = {
            let mut head = self.partition.head.write();
            let extras = head.take_extras(&request.tenant);
            self.partition.grew(head.take_change());
            extras
        };
        drop(extras); // freeing takes time, so it happens after the lock is released
        self.evicting.evict_tenant(request, self.context.clock.instant());
    }

    fn record_deleted(&mut self, tenant: &TenantId) -> Result<(), JournalError> {
        self.dictionary.enter(self.journal.begin()?);
        self.journal.append(self.encoder.deleted(tenant))?;
        self.journal.sync()?;
        // replay does not remember references of deleted series either
        self.dictionary.remove_tenant(tenant);
        Ok(())
    }
}
