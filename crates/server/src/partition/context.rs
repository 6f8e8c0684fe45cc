use super::shared::Partitions;
use super::submission::Submission;
use crate::limits::head_memory::HeadMemory;
use crate::limits::tenant_state::TenantStates;
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

/// The clock of [`Context::steady_s`] starts at this value, so that replayed series can have an earlier time of last
/// use.
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
    /// Account for the memory that replay needs in addition to the heads. Replay may use the memory meant for
    /// queries, because queries run only afterwards.
    pub(crate) replay: Account,
    pub(crate) lake: Arc<Lake>,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) partitions: Arc<Partitions>,
}

impl Context {
    /// Returns how many of `wanted` new series of a submission may be created now, and charges them to the tenant's rate limit.
    pub(super) fn room_for_series(
        &self,
        submission: &Submission,
        wanted: usize,
    ) -> Result<usize, SeriesRefusal> {
        let (tenant, now, settings) = (&submission.state, self.clock.instant(), self.overrides.current());
        self.heads.room_for_series(&self.tenants, tenant, &settings, now)?;
        tenant.room_for_series(settings.of(&tenant.id), wanted, submission.is_of_node, now)
    }

    pub(super) fn weight(&self, tenant: &TenantId) -> usize {
        self.overrides.current().of(tenant).share_weight
    }

    /// Seconds of a monotonic clock, used to tell how long a series has been idle.
    pub(crate) fn steady_s(&self) -> u32 {
        steady_s(&*self.clock, self.started)
    }
}

pub(crate) fn steady_s(clock: &dyn Clock, started: Instant) -> u32 {
    let since = clock.instant().saturating_duration_since(started);
    u32::try_from(since.as_secs()).map_or(u32::MAX, |s| s.saturating_add(STARTED_S))
}
