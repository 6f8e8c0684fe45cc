//! Dependencies of partition owners.

use super::shared::Partitions;
use crate::limits::head_memory::HeadMemory;
use crate::limits::tenant_state::{TenantState, TenantStates};
use crate::seal::Lake;
use crate::settings::{Overrides, Settings};
use crate::telemetry::WriteMetrics;
use crate::wallclock::WallClock;
use crate::world::Pause;
use model::{SeriesRefusal, TenantId};
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Account;
use stdx::clock::Clock;

/// Initial value of [`Context::steady_s`], so that restored series count as seen earlier.
pub(crate) const STARTED_S: u32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) tenants: Arc<TenantStates>,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) pause: Arc<dyn Pause>,
    pub(crate) wall: Arc<WallClock>,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// Memory that replay uses in addition to the heads: the queries' memory, because queries run only after replay.
    pub(crate) replay: Account,
    pub(crate) lake: Arc<Lake>,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) partitions: Arc<Partitions>,
}

impl Context {
    /// Number of series of a tenant that may be created now, at most `wanted`. Charges the tenant's rate limit on new
    /// series.
    pub(super) fn room_for_series(
        &self,
        tenant: &TenantState,
        wanted: usize,
    ) -> Result<usize, SeriesRefusal> {
        let (now, settings) = (self.clock.instant(), self.overrides.current());
        self.heads.room_for_series(&self.tenants, tenant, &settings, now)?;
        tenant.room_for_series(settings.of(&tenant.id), wanted, now)
    }

    pub(super) fn weight(&self, tenant: &TenantId) -> usize {
        self.overrides.current().of(tenant).share_weight
    }

    /// Seconds of the monotonic clock, for idle times.
    pub(crate) fn steady_s(&self) -> u32 {
        steady_s(&*self.clock, self.started)
    }
}

pub(crate) fn steady_s(clock: &dyn Clock, started: Instant) -> u32 {
    let since = clock.instant().saturating_duration_since(started);
    u32::try_from(since.as_secs()).map_or(u32::MAX, |s| s.saturating_add(STARTED_S))
}
