use super::aggregator::Aggregator;
use super::aliases::Aliases;
use super::gates::Gates;
use super::in_use::HistogramsInUse;
use super::ingest::Ingest;
use super::names::NameDecisions;
use crate::graphite_rules::GraphiteRules;
use crate::limits::head_memory::HeadMemory;
use crate::limits::headroom::Headroom;
use crate::limits::memory_drains::MemoryDrains;
use crate::limits::pacer::Traffic;
use crate::limits::tenant_state::{TenantState, TenantStates};
use crate::partition::shared::Partitions;
use crate::partition::{Commands, steady_s};
use crate::readiness::Readiness;
use crate::seal::Lake;
use crate::settings::{Overrides, Settings};
use crate::streams;
use crate::telemetry::WriteMetrics;
use crate::wallclock::WallClock;
use admission::NewTenants;
use admission::retry::{Wait, until_attempt};
use model::TenantId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) rules: Arc<GraphiteRules>,
    /// Rules on what is stored.
    pub(crate) ingest: Ingest,
    /// Decisions of the rules on names.
    pub(crate) names: NameDecisions,
    /// Keys of the series of text lines.
    pub(crate) aliases: Aliases,
    pub(crate) aggregator: Aggregator,
    pub(crate) tenants: Arc<TenantStates>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) wall: Arc<WallClock>,
    pub(crate) seed: u64,
    pub(crate) readiness: Readiness,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) commands: Vec<Commands>,
    pub(crate) lake: Arc<Lake>,
    pub(crate) streams: Arc<streams::Shared>,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// Account for the memory of write requests, from the first byte of each until it is answered.
    pub(crate) inflight: Account,
    /// Account for the memory of gRPC's connections.
    pub(crate) grpc: Account,
    /// Part of `inflight`: bytes that senders have sent without waiting for answers, and that are not durable yet.
    pub(crate) unwritten: Account,
    pub(crate) decoders: Account,
    pub(crate) memory_drains: MemoryDrains,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) headroom: Arc<Headroom>,
    pub(crate) gates: Gates,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) new_tenants: Mutex<NewTenants>,
    pub(crate) histograms: Arc<HistogramsInUse>,
}

impl Context {
    pub(crate) fn tenant(&self, id: &TenantId) -> Arc<TenantState> {
        self.tenants.of(id, || self.is_known(id), self.clock.instant())
    }

    /// Returns how long the sender of a request that is refused now should wait. Must be called once for each refusal, because
    /// refusals by a full gate are counted. The tenant is not known if the request was refused before it was read.
    pub(crate) fn time_until(&self, wait: Wait, tenant: Option<&TenantId>) -> Duration {
        let ((known, creating), now) = (self.gates.both(), self.clock.instant());
        match (wait, tenant) {
            (Wait::For(time), _) => time,
            (Wait::OwnRequests, Some(tenant)) => known.refused_of(tenant, now),
            (Wait::Requests | Wait::OwnRequests, _) => known.refused(now),
            (Wait::OwnCreatingRequests, Some(tenant)) => creating.refused_of(tenant, now),
            (Wait::CreatingRequests | Wait::OwnCreatingRequests, _) => creating.refused(now),
            (Wait::Memory { account, asked_kib }, _) => {
                self.memory_drains.refused(account, u64::from(asked_kib) * 1024, now)
            }
            (Wait::Replay, _) => self.partitions.time_to_replay(now),
            (Wait::Sealing(room), _) => self.lake.progress.rounds(room, now).wait(),
            (Wait::Round, _) => self.lake.progress.next_round(now).wait(),
            (Wait::ProcessMemory, _) => self.headroom.wait(),
            (Wait::Eviction, _) => self.partitions.time_to_eviction(now),
            (Wait::Table, Some(tenant)) => {
                self.lake.until_retry(tenant, now).map_or(wait.by_default(), until_attempt)
            }
            (Wait::Clusters, Some(tenant)) => {
                let state = self.tenants.get(tenant);
                state
                    .map_or(wait.by_default(), |state| until_attempt(state.replicas.lock().until_tidied(now)))
            }
            (Wait::Table | Wait::Clusters, None) => wait.by_default(),
        }
    }

    /// Like [`crate::partition::Context::steady_s`].
    pub(crate) fn steady_s(&self) -> u32 {
        steady_s(&*self.clock, self.started)
    }

    /// True if the tenant has tables or streams, or if the node writes its own metrics under this tenant.
    pub(crate) fn is_known(&self, id: &TenantId) -> bool {
        *id == self.settings.self_monitoring.tenant || self.lake.tables.is_known(id) || self.has_streams(id)
    }

    pub(super) fn has_streams(&self, id: &TenantId) -> bool {
        self.streams.known.streams_of(id).is_some_and(|streams| streams > 0)
    }
}
