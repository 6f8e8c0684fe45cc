//! Finds tables of streams whose records have expired, also of streams that get no more records.

use super::buffer::Key;
use super::listing::Listing;
use crate::retention::Retentions;
use crate::seal::tenant_tables::TenantTables;
use crate::settings::Overrides;
use crate::wallclock::WallClock;
use model::TenantId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tables::TableError;

/// The tables of all tenants that have a retention are visited at this interval.
const EVERY: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Retention {
    overrides: Arc<Overrides>,
    wall: Arc<WallClock>,
    /// A shorter retention applies after this time.
    wait: Duration,
    retentions: Retentions<1>,
    /// When the next round begins, if none is under way.
    due: Instant,
    /// Tenants that are next in this round.
    tenants: VecDeque<TenantId>,
    /// Streams of the tenant that is being visited.
    streams: Option<Listing>,
}

impl Retention {
    pub(super) fn new(
        overrides: Arc<Overrides>,
        wall: Arc<WallClock>,
        wait: Duration,
        clock: &dyn Clock,
    ) -> Self {
        Self {
            overrides,
            wall,
            wait,
            retentions: Retentions::default(),
            due: clock.instant() + wait,
            tenants: VecDeque::new(),
            streams: None,
        }
    }

    /// Records of the tenant before this time have expired. `None` if none have, or the clock is in doubt.
    pub(super) fn before_ms(&mut self, tenant: &TenantId, clock: &dyn Clock) -> Option<i64> {
        let configured = self.overrides.current().of(tenant).stream_retention_ms;
        let [kept_ms] = self.retentions.applied(tenant, [configured], self.wait, clock.instant());
        let kept_ms = kept_ms.filter(|_| self.wall.doubt(clock).is_none())?;
        Some(clock.now_ms().saturating_sub(kept_ms))
    }

    /// The next table to be visited, and the time before which its records have expired. `None` if there is nothing to do now.
    pub(super) fn next(
        &mut self,
        tables: &TenantTables,
        clock: &dyn Clock,
    ) -> Result<Option<(Key, i64)>, TableError> {
        loop {
            while let Some(streams) = &mut self.streams {
                let tenant = streams.tenant().clone();
                match streams.next(tables) {
                    Ok(Some(key)) => {
                        if let Some(before_ms) = self.before_ms(&tenant, clock) {
                            return Ok(Some((key, before_ms)));
                        }
                        self.streams = None;
                    }
                    Ok(None) => self.streams = None,
                    Err(error) => {
                        self.streams = None;
                        return Err(error);
                    }
                }
            }
            if let Some(tenant) = self.tenants.pop_front() {
                // without a retention, its streams need not be listed
                self.streams = self.before_ms(&tenant, clock).map(|_| Listing::of(tenant));
            } else if clock.instant() < self.due {
                return Ok(None);
            } else {
                self.due = clock.instant() + EVERY;
                let tenants = tables.tenants(true);
                self.retentions.retain(|tenant| tenants.contains(tenant));
                self.tenants = tenants.into_iter().collect();
            }
        }
    }
}
