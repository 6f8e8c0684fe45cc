//! Limits on the number of write requests that are in progress.

use crate::limits::fair_permits::{FairPermits, Permit};
use crate::limits::gate::{Gate, Pass};
use crate::settings::{Settings, TenantSettings};
use admission::WriteRefusal;
use admission::gate::{Entrant, Full, Inside};
use model::TenantId;
use stdx::telemetry::Registry;

/// Requests that wait for histograms which others use may together hold at most 1/`SUMMING_PART` of the memory for write requests.
const SUMMING_PART: u64 = 4;

/// Requests that create series may together hold at most 1/`CREATING_PART` of the memory for write requests.
const CREATING_PART: u64 = 2;

/// The place of a request among those in progress.
#[derive(Debug)]
pub(super) struct Place {
    /// Its pass through the gate of known series.
    pub(super) pass: Pass,
    /// Permission to write a body whose sender gets no answer.
    _intake: Option<Permit<TenantId>>,
}

impl Place {
    pub(super) const fn new(pass: Pass, intake: Option<Permit<TenantId>>) -> Self {
        Self { pass, _intake: intake }
    }
}

#[derive(Debug)]
pub(crate) struct Gates {
    /// Counts requests in progress, except those that create series.
    known: Gate,
    creating: Gate,
    /// Counts requests that wait for the requests before them which use the same histograms.
    summing: Gate,
    /// Gives out permits to decode large bodies. There is one permit for each core.
    decoding: FairPermits<TenantId>,
    /// Gives out turns to decode small bodies on threads with async code.
    turns: FairPermits<TenantId>,
}

impl Gates {
    pub(crate) fn new(settings: &Settings, r: &Registry) -> Self {
        let known = Gate::new(settings.inflight_requests_max);
        let creating =
            Gate::with_bytes(settings.creating_requests_max, settings.budget.inflight_bytes / CREATING_PART);
        let summing =
            Gate::with_bytes(settings.inflight_requests_max, settings.budget.inflight_bytes / SUMMING_PART);
        let gauge = |name, help, gate: &Gate, value: fn(&Gate) -> usize| {
            let gate = gate.clone();
            r.gauge_fn(name, help, &[], move || value(&gate) as f64);
        };
        gauge(
            "floodmark_write_creating_requests",
            "Write requests that wait for their new series.",
            &creating,
            Gate::inside,
        );
        gauge("floodmark_write_inflight_requests", "Write requests in progress.", &known, Gate::inside);
        gauge(
            "floodmark_write_inflight_requests_peak",
            "Peak number of write requests in progress.",
            &known,
            Gate::peak,
        );
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // one thread is left to whatever else is to be done; otherwise, all requests of a tenant with many senders would be
        // decoded before the next one of another tenant is even read
        let turns = cores.saturating_sub(1).max(1);
        Self { known, creating, summing, decoding: FairPermits::new(cores), turns: FairPermits::new(turns) }
    }

    /// Enters the gate of known series. Every request starts here, because it is not known yet whether it creates
    /// series.
    pub(crate) fn enter(&self, tenant: &TenantId, own: &TenantSettings) -> Result<Pass, WriteRefusal> {
        enter(&self.known, tenant, own, 0)
    }

    /// Enters the gate of requests that wait for others which use the same histograms. The request holds `bytes` of memory.
    ///
    /// Those inside wait only for requests that are being added up and stored, so a refused one finds a place before long.
    pub(super) fn enter_summing(
        &self,
        tenant: &TenantId,
        own: &TenantSettings,
        bytes: u64,
    ) -> Result<Pass, WriteRefusal> {
        enter(&self.summing, tenant, own, bytes)
    }

    /// Like [`Self::enter`], but waits instead of being refused, for a request that would otherwise have to be decoded and to have
    /// its rules applied again. New requests of the tenant are refused meanwhile.
    pub(super) async fn enter_when_free(&self, tenant: &TenantId, own: &TenantSettings) -> Pass {
        self.known.enter_when_free(entrant(tenant, own, 0)).await
    }

    /// Enters the gate of requests that create series. The request holds `bytes` of memory.
    pub(super) fn enter_creating(
        &self,
        tenant: &TenantId,
        own: &TenantSettings,
        bytes: u64,
    ) -> Result<Pass, WriteRefusal> {
        let limit = self.creating.limit();
        self.creating.enter(entrant(tenant, own, bytes)).map_err(|full| match full {
            Full::Gate => WriteRefusal::CreatingRequests { limit },
            Full::Limit(limit) => concurrent_writes(tenant, own, limit, true),
            Full::Share(Inside { requests: inside, .. }) => {
                WriteRefusal::ShareOfCreating { tenant: tenant.clone(), inside, limit }
            }
            Full::Waiting => WriteRefusal::EarlierRequests { tenant: tenant.clone() },
        })
    }

    pub(crate) async fn decoding_permit(&self, tenant: &TenantId) -> Permit<TenantId> {
        self.decoding.acquire(tenant).await
    }

    /// Like [`Self::decoding_permit`], for a body that has a place, for which others may wait. It comes before other bodies of
    /// its tenant.
    pub(super) async fn decoding_permit_first(&self, tenant: &TenantId) -> Permit<TenantId> {
        self.decoding.acquire_first(tenant).await
    }

    /// Waits for a turn to decode a small body. It must be given back before anything else is waited for.
    pub(crate) async fn decoding_turn(&self, tenant: &TenantId) -> Permit<TenantId> {
        self.turns.acquire(tenant).await
    }

    /// How much of each gate the tenant uses: first the gate of known series, then the gate of requests that create
    /// series.
    pub(crate) fn inside_of(&self, tenant: &TenantId) -> (Inside, Inside) {
        (self.known.inside_of(tenant), self.creating.inside_of(tenant))
    }

    pub(crate) const fn both(&self) -> (&Gate, &Gate) {
        (&self.known, &self.creating)
    }

    #[cfg(test)]
    pub(crate) fn served(&self) -> (u64, u64) {
        (self.known.served(), self.creating.served())
    }

    #[cfg(test)]
    pub(crate) fn inside(&self) -> (usize, usize) {
        (self.known.inside(), self.creating.inside())
    }
}

fn enter(gate: &Gate, tenant: &TenantId, own: &TenantSettings, bytes: u64) -> Result<Pass, WriteRefusal> {
    let limit = gate.limit();
    gate.enter(entrant(tenant, own, bytes)).map_err(|full| match full {
        Full::Gate => WriteRefusal::InflightRequests { limit },
        Full::Limit(limit) => concurrent_writes(tenant, own, limit, false),
        Full::Share(Inside { requests: inside, .. }) => {
            WriteRefusal::ShareOfRequests { tenant: tenant.clone(), inside, limit }
        }
        Full::Waiting => WriteRefusal::EarlierRequests { tenant: tenant.clone() },
    })
}

fn concurrent_writes(tenant: &TenantId, own: &TenantSettings, limit: usize, creates: bool) -> WriteRefusal {
    let is_configured = own.limits.concurrent_writes_is_given;
    WriteRefusal::ConcurrentWrites { tenant: tenant.clone(), limit, creates, is_configured }
}

const fn entrant<'a>(tenant: &'a TenantId, own: &TenantSettings, bytes: u64) -> Entrant<'a> {
    Entrant { tenant, weight: own.share_weight as u64, limit: own.limits.concurrent_writes, bytes }
}
