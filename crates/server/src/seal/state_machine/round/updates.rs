//! Changes of the marks before and after a round's commits.

use super::Round;
use crate::seal::state_machine::marks::MarkUpdate;
use crate::seal::state_machine::part::Part;
use model::TenantId;
use std::collections::BTreeSet;

impl Round {
    pub(super) fn attempt(&self, pending: BTreeSet<TenantId>) -> MarkUpdate {
        if let Some(tenant) = &self.only {
            let is_pending = pending.contains(tenant);
            let end = |part: &Part| part.staged_of(tenant).filter(|_| is_pending).map(|_| part.upto());
            return MarkUpdate::OwnAttempt {
                tenant: tenant.clone(),
                ends: self.parts.iter().map(end).collect(),
            };
        }
        let blocked = self.failed.keys().chain(&self.except).cloned().collect();
        MarkUpdate::Attempt { ends: self.ends(), pending, blocked }
    }

    pub(super) fn committed(&self, passing: &BTreeSet<TenantId>) -> MarkUpdate {
        if let Some(tenant) = &self.only {
            let end = |part: &Part| part.tenants.contains(tenant).then(|| part.upto());
            return MarkUpdate::OwnCommitted {
                tenant: tenant.clone(),
                ends: self.parts.iter().map(end).collect(),
            };
        }
        let partitions = |tenant: &TenantId| {
            let parts = self.parts.iter().enumerate();
            parts.filter(|(_, part)| part.tenants.contains(tenant)).map(|(number, _)| number).collect()
        };
        let newly_blocked = self.failed.keys().chain(passing);
        let newly_blocked = newly_blocked.map(|tenant| (tenant.clone(), partitions(tenant))).collect();
        MarkUpdate::Committed { ends: self.ends(), blocked: self.except.clone(), newly_blocked }
    }

    pub(super) fn ends(&self) -> Vec<u64> {
        self.parts.iter().map(Part::upto).collect()
    }
}
