use super::Lake;
use crate::limits::head_memory::HeadMemory;
use crate::limits::pacer::{Pacer, Traffic};
use crate::limits::tenant_state::TenantStates;
use crate::partition::shared::Partitions;
use crate::settings::{Overrides, Settings};
use std::sync::Arc;
use stdx::clock::Clock;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) lake: Arc<Lake>,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) tenants: Arc<TenantStates>,
    pub(crate) traffic: Arc<Traffic>,
}

impl Context {
    pub(super) fn pacer(&self) -> Pacer {
        Pacer::new(Arc::clone(&self.clock), Arc::clone(&self.traffic), Arc::clone(&self.heads))
    }
}
