use super::paths::PathIndexes;
use super::queried::QueriedMetrics;
use crate::events::Events;
use crate::limits::headroom::Headroom;
use crate::limits::pacer::Traffic;
use crate::partition::shared::Partitions;
use crate::partition::steady_s;
use crate::seal::Lake;
use model::TenantId;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Account;
use stdx::clock::Clock;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) seed: u64,
    pub(crate) lake: Arc<Lake>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) queried: QueriedMetrics,
    pub(crate) paths: PathIndexes,
    pub(crate) events: Arc<Events>,
    /// Account for the memory of queries sent as forms, and of answers until they are sent.
    pub(crate) answers: Account,
    pub(crate) headroom: Arc<Headroom>,
    /// Counts the write requests in progress, because queries yield to them.
    pub(crate) traffic: Arc<Traffic>,
}

impl Context {
    /// True if the tenant has data: tables, according to their last listing, series in memory, or events.
    pub(crate) fn has_data(&self, tenant: &TenantId) -> bool {
        self.lake.tables.is_known(tenant)
            || self.partitions.iter().any(|partition| partition.head.read().tenant(tenant).is_some())
            || self.events.file_bytes(tenant).0 > 0
    }

    pub(crate) fn steady_s(&self) -> u32 {
        steady_s(&*self.clock, self.started)
    }
}
