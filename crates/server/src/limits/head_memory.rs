//! Memory of all heads together, and admission by it.

use super::budget::Budget;
use super::headroom::Headroom;
use super::tenant_state::{Division, TenantState, TenantStates};
use crate::partition::shared::Partitions;
use crate::partition::sums::shared::SharedSums;
use crate::settings;
use admission::new_series::Memory;
use admission::{Head, watermarks};
use model::SeriesRefusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stdx::budget::Account;

#[derive(Debug)]
pub(crate) struct HeadMemory {
    partitions: Arc<Partitions>,
    headroom: Arc<Headroom>,
    limit_bytes: u64,
    exemplars_bytes: usize,
    metadata_bytes: usize,
    /// Memory for the replicas elected in the clusters of all tenants.
    pub(crate) replicas: Account,
    /// Memory for the indexes of names of all tenants.
    pub(crate) paths: Account,
    /// Memory of series that aggregation rules compute, of all tenants.
    pub(crate) aggregator: Account,
    /// Memory for the sums of series whose samples are sent as increments, of all tenants.
    pub(crate) sums: Account,
    /// Memory for the latest increments of these series, between which others are missing.
    pub(crate) pieces: Account,
    /// Memory of records that are not in tables yet.
    pub(crate) records: Account,
    /// Memory of the keys of batches of records.
    pub(crate) record_ids: Account,
    /// Memory of the names of streams.
    pub(crate) stream_names: Account,
    /// Memory in which records become files of tables.
    pub(crate) loading: Account,
    pub(crate) shared_sums: SharedSums,
    /// Memory of the tenants that have events.
    pub(crate) events: Account,
    peak_bytes: AtomicU64,
}

impl HeadMemory {
    pub(crate) fn new(partitions: Arc<Partitions>, headroom: Arc<Headroom>, budget: &Budget) -> Self {
        let pieces = Account::new("pieces", budget.pieces_bytes());
        let sums = Account::new("sums", budget.sums_bytes() - budget.pieces_bytes());
        Self {
            shared_sums: SharedSums::new(&sums, &pieces),
            sums,
            pieces,
            exemplars_bytes: budget.exemplars_bytes() as usize / partitions.len(),
            metadata_bytes: budget.metadata_bytes() as usize / partitions.len(),
            replicas: Account::new("replicas", budget.replicas_bytes()),
            paths: Account::new("paths", budget.paths_bytes()),
            aggregator: Account::new("aggregator", budget.aggregator_bytes()),
            records: Account::new("records", budget.records_bytes()),
            record_ids: Account::new("record_ids", budget.record_names_bytes()),
            stream_names: Account::new("stream_names", budget.record_names_bytes()),
            loading: Account::new("loading", budget.loading_bytes()),
            events: Account::new("events", budget.events_bytes()),
            limit_bytes: budget.head_bytes,
            partitions,
            headroom,
            peak_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let heads_bytes: u64 = self.partitions.iter().map(|p| p.head_bytes.load(Ordering::Relaxed)).sum();
        heads_bytes + self.bytes_besides_heads()
    }

    /// Memory of the account that eviction does not free at once.
    fn bytes_besides_heads(&self) -> u64 {
        let others = [
            &self.replicas,
            &self.paths,
            &self.aggregator,
            &self.sums,
            &self.pieces,
            &self.records,
            &self.record_ids,
            &self.stream_names,
            &self.loading,
            &self.events,
        ];
        others.map(Account::used_bytes).iter().sum()
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    fn noted_bytes(&self) -> u64 {
        let bytes = self.bytes();
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
        bytes
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.noted_bytes();
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Returns the current memory with its limit, and updates the peak.
    pub(crate) fn head(&self) -> Head {
        Head { used_bytes: self.noted_bytes(), limit_bytes: self.limit_bytes }
    }

    pub(crate) fn is_filled_to(&self, percent: u64) -> bool {
        self.head().is_filled_to(percent)
    }

    /// Checks whether more late samples can be kept of a tenant that has `own_bytes` of them in one of the partitions. A tenant's
    /// series are spread over all partitions.
    pub(crate) fn room_for_late_samples(&self, own_bytes: usize) -> Result<(), SeriesRefusal> {
        let own_bytes = own_bytes as u64 * self.partitions.len() as u64;
        self.head().room_for_late(self.late_bytes(), own_bytes)
    }

    pub(crate) fn late_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.late_bytes.load(Ordering::Relaxed)).sum()
    }

    /// True if the heads must be sealed to make room: because of their size, or because of the late samples
    /// in them.
    pub(crate) fn needs_sealing(&self) -> bool {
        self.head().needs_sealing(self.late_bytes())
    }

    /// Limit on the memory of one partition's exemplars. The limit falls to a fifth while the head is short of memory.
    pub(crate) fn exemplar_limit_bytes(&self) -> usize {
        let share = self.exemplars_bytes;
        if self.is_filled_to(watermarks::EVICT_AT_ONCE) { share / 5 } else { share }
    }

    pub(crate) const fn metadata_limit_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// If the tenant has so much more than its share that its writes are refused once the heads are almost full, returns
    /// the share. While the heads have enough room, shares do not matter, and the result is `None`.
    ///
    /// Memory besides heads does not make this share smaller: a tenant shall not be refused because others send records.
    pub(crate) fn exceeded_share(
        &self,
        tenants: &TenantStates,
        tenant: &TenantState,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Option<u64> {
        let division =
            self.is_filled_to(watermarks::FAIR).then(|| tenants.division(settings, self.limit_bytes, now))?;
        division.exceeded_share(tenant, settings, now)
    }

    /// True if shares matter and any tenant has more than its own, so that it gets no new series.
    pub(crate) fn is_any_above_share(
        &self,
        tenants: &TenantStates,
        settings: &settings::Tenants,
        now: Instant,
    ) -> bool {
        self.division_for_series(tenants, settings, now).is_some_and(|division| division.is_any_above)
    }

    /// Returns the shares that decide who gets no new series. They are those that decide whose series are evicted: otherwise,
    /// nobody might get new series although nothing can be evicted. `None` if shares do not matter.
    fn division_for_series(
        &self,
        tenants: &TenantStates,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Option<Division> {
        let division = self
            .is_filled_to(watermarks::FAIR)
            .then(|| self.division_to(watermarks::FAIR, tenants, settings, now))?;
        division.is_shared.then_some(division)
    }

    /// Returns the shares of the memory that tenants may hold if the heads are to be filled to `percent` at most. Some tenant
    /// always has more than its share.
    pub(crate) fn division_to(
        &self,
        percent: u64,
        tenants: &TenantStates,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Division {
        let room_bytes = (self.limit_bytes / 100 * percent).saturating_sub(self.bytes_besides_heads());
        tenants.division_of_room(percent, room_bytes, settings, self.limit_bytes, now)
    }

    pub(crate) fn room_for_series(
        &self,
        tenants: &TenantStates,
        tenant: &TenantState,
        settings: &settings::Tenants,
        now: Instant,
    ) -> Result<(), SeriesRefusal> {
        let division = self.division_for_series(tenants, settings, now);
        let share_bytes = division.and_then(|division| division.exceeded_share(tenant, settings, now));
        Memory {
            head: self.head(),
            process: self.headroom.memory(),
            above_share: share_bytes.map(|share_bytes| (tenant.bytes(), share_bytes)),
            is_any_above_share: division.is_some_and(|division| division.is_any_above),
        }
        .room()
    }
}
