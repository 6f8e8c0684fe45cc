//! Dependencies of the write path.

use super::gates::Gates;
use crate::limits::head_memory::HeadMemory;
use crate::limits::headroom::Headroom;
use crate::limits::pacer::Traffic;
use crate::limits::tenant_state::{TenantState, TenantStates};
use crate::partition::Commands;
use crate::partition::shared::Partitions;
use crate::readiness::Readiness;
use crate::seal::Lake;
use crate::settings::{Overrides, Settings};
use crate::telemetry::WriteMetrics;
use crate::wallclock::WallClock;
use admission::{NewTenants, Shortage};
use model::TenantId;
use parking_lot::Mutex;
use std::sync::Arc;
use stdx::budget::Account;
use stdx::clock::Clock;

/// Dependencies of a write, from the first byte of a request to its answer.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) tenants: Arc<TenantStates>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Trust in the wall clock.
    pub(crate) wall: Arc<WallClock>,
    /// Seed of series keys.
    pub(crate) seed: u64,
    pub(crate) readiness: Readiness,
    pub(crate) partitions: Arc<Partitions>,
    /// Queues of the partitions' owners.
    pub(crate) commands: Vec<Commands>,
    pub(crate) lake: Arc<Lake>,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// Memory of write requests, from their first byte to their answer.
    pub(crate) inflight: Account,
    /// Memory of idle decoders.
    pub(crate) decoders: Account,
    pub(crate) heads: Arc<HeadMemory>,
    /// Memory pressure of the whole process.
    pub(crate) headroom: Arc<Headroom>,
    /// Limits on concurrent write requests.
    pub(crate) gates: Gates,
    /// Write requests in progress.
    pub(crate) traffic: Arc<Traffic>,
    /// Shortage of memory for new series.
    pub(crate) head_shortage: Mutex<Shortage>,
    pub(crate) new_tenants: Mutex<NewTenants>,
}

impl Context {
    /// Returns the state of a tenant; creates it if absent.
    pub(crate) fn tenant(&self, id: &TenantId) -> Arc<TenantState> {
        self.tenants.of(id, || self.is_known(id), self.clock.instant())
    }

    /// True if a tenant is not new: it has tables, or it is the tenant of the node's own metrics.
    pub(crate) fn is_known(&self, id: &TenantId) -> bool {
        *id == self.settings.self_monitoring.tenant || self.lake.tables.is_known(id)
    }
}
