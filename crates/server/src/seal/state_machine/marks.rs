//! Updates of `floodmarks.json` before and after a round's commits.

use crate::seal::manifest::{Mark, TenantMark};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};

/// A change of the marks. Each vector has one element for each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MarkUpdate {
    /// Commits of records up to `ends` are about to begin for the tenants in `pending`.
    Attempt { ends: Vec<u64>, pending: BTreeSet<TenantId>, blocked: BTreeSet<TenantId> },
    /// The commit of a blocked tenant is about to begin. `ends` has `None` for partitions without samples of this
    /// tenant.
    OwnAttempt { tenant: TenantId, ends: Vec<Option<u64>> },
    /// Commits of records up to `ends` are done, except those of `blocked` tenants and of tenants that this round has
    /// blocked.
    Committed {
        ends: Vec<u64>,
        blocked: BTreeSet<TenantId>,
        newly_blocked: BTreeMap<TenantId, BTreeSet<usize>>,
    },
    /// The commit of a blocked tenant is done. `ends` has `None` for partitions without samples of this tenant.
    OwnCommitted { tenant: TenantId, ends: Vec<Option<u64>> },
    /// Samples of blocked tenants were copied to the journal's end, where the copy starts at `from`.
    Relocated { partition: usize, from: u64, tenants: BTreeSet<TenantId> },
}

impl MarkUpdate {
    pub(crate) fn apply(&self, partition: usize, mark: &mut Mark) {
        match self {
            Self::Attempt { ends, pending, blocked } => {
                let attempt = Some(ends[partition]);
                for tenant in blocked {
                    mark.tenants.insert(tenant.as_str().into(), mark.of(tenant));
                }
                for tenant in pending {
                    if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                        if !own.is_open() {
                            own.source.clone_from(&mark.source);
                        }
                        own.attempt = attempt;
                    }
                }
                mark.attempt = attempt;
            }
            Self::OwnAttempt { tenant, ends } => {
                if let Some(end) = ends[partition] {
                    let own = mark.tenants.get_mut(tenant.as_str());
                    own.expect("BUG: a blocked tenant has no mark").attempt = Some(end);
                }
            }
            Self::Committed { ends, blocked, newly_blocked } => {
                let upto = ends[partition];
                let source = mark.source.clone();
                let own =
                    |tenant: &TenantId, partitions: &BTreeSet<usize>| match partitions.contains(&partition) {
                        true => mark.of(tenant),
                        false => TenantMark { source: source.clone(), upto, attempt: None, passes: None },
                    };
                let new = newly_blocked.iter().map(|(tenant, partitions)| (tenant, own(tenant, partitions)));
                let old = blocked.iter().map(|tenant| (tenant, mark.of(tenant)));
                mark.tenants = new.chain(old).map(|(tenant, own)| (tenant.as_str().into(), own)).collect();
                (mark.upto, mark.attempt) = (upto, None);
            }
            Self::OwnCommitted { tenant, ends } => {
                if let (Some(end), Some(own)) = (ends[partition], mark.tenants.get_mut(tenant.as_str())) {
                    (own.upto, own.attempt, own.passes) = (end, None, None);
                }
            }
            Self::Relocated { partition: of, from, tenants } if *of == partition => {
                for tenant in tenants {
                    if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                        own.upto = own.upto.max(*from);
                    }
                }
            }
            Self::Relocated { .. } => {}
        }
    }
}
