//! Updates of `floodmarks.json` around a round's commits.

use crate::seal::manifest::{Mark, TenantMark};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};

/// A change of marks. Vectors have one element per partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MarkUpdate {
    /// Commits of the `pending` tenants up to `ends` begin.
    Attempt { ends: Vec<u64>, pending: BTreeSet<TenantId>, blocked: BTreeSet<TenantId> },
    /// A blocked tenant's commit begins; `None` for partitions without its samples.
    OwnAttempt { tenant: TenantId, ends: Vec<Option<u64>> },
    /// Commits up to `ends` are done, except of tenants `blocked` before or blocked by this round.
    Committed {
        ends: Vec<u64>,
        blocked: BTreeSet<TenantId>,
        newly_blocked: BTreeMap<TenantId, BTreeSet<usize>>,
    },
    /// A blocked tenant's commits are done; `None` for partitions without its samples.
    OwnCommitted { tenant: TenantId, ends: Vec<Option<u64>> },
    /// Blocked tenants' samples were relocated to `from`.
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
