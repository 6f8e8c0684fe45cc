//! The part of a round that concerns one partition.

use crate::partition::Frozen;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use tables::Date;
use tables::stage::Staged;

#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) frozen: Option<Frozen>,
    pub(super) tenants: BTreeSet<TenantId>,
    pub(super) staged: BTreeMap<TenantId, Staged>,
    /// Tenants whose table has all of their samples in this part.
    pub(super) known: BTreeSet<TenantId>,
    /// For tenants that are sealed in several passes, the last day that their table has.
    pub(super) passed: BTreeMap<TenantId, Date>,
    pub(super) is_released: bool,
}

impl Part {
    pub(super) fn upto(&self) -> u64 {
        self.frozen.map_or(0, |frozen| frozen.upto.0)
    }

    pub(super) fn staged_of(&self, tenant: &TenantId) -> Option<&Staged> {
        let staged = self.staged.get(tenant).filter(|staged| !staged.files.is_empty())?;
        (!self.known.contains(tenant)).then_some(staged)
    }

    pub(super) fn split_off(&mut self, tenant: &TenantId) -> Self {
        let has_some = self.tenants.remove(tenant);
        Self {
            frozen: self.frozen.map(|frozen| Frozen { samples: 0, ..frozen }),
            tenants: has_some.then(|| tenant.clone()).into_iter().collect(),
            staged: self.staged.remove_entry(tenant).into_iter().collect(),
            known: self.known.take(tenant).into_iter().collect(),
            passed: self.passed.remove_entry(tenant).into_iter().collect(),
            is_released: !has_some,
        }
    }

    /// Notes that the staged files of a tenant are committed. If the tenant has more days, its next pass begins after
    /// these files.
    pub(super) fn end_pass(&mut self, tenant: &TenantId) {
        match self.staged.get(tenant).map(|staged| staged.through) {
            Some(Some(through)) if !self.known.contains(tenant) => {
                self.passed.insert(tenant.clone(), through);
                self.staged.remove(tenant);
            }
            Some(_) => drop(self.known.insert(tenant.clone())),
            None => {}
        }
    }
}
