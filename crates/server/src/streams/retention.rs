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

/// A shorter retention must be configured all the time for a while before it applies, so it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(60);

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
    /// When shorter retentions are looked at next.
    looks: Instant,
    /// Number of rounds that have begun. The first visits all tenants: files that were removed before the start may be left.
    rounds: u64,
}

/// A table, and whether it has something to remove.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) key: Key,
    /// Records before this time have expired.
    pub(super) before_ms: Option<i64>,
    pub(super) is_first: bool,
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
            looks: clock.instant(),
            rounds: 0,
        }
    }

    /// Records of the tenant before this time have expired. `None` if none have, or the clock is in doubt.
    pub(super) fn before_ms(&mut self, tenant: &TenantId, clock: &dyn Clock) -> Option<i64> {
        let configured = self.overrides.current().of(tenant).stream_retention_ms;
        // the first time, it is not known what was configured before
        if !self.retentions.has(tenant) {
            self.retentions.applied(tenant, [None], self.wait, clock.instant());
        }
        let [kept_ms] = self.retentions.applied(tenant, [configured], self.wait, clock.instant());
        let kept_ms = kept_ms.filter(|_| self.wall.doubt(clock).is_none())?;
        Some(clock.now_ms().saturating_sub(kept_ms))
    }

    /// Notes the retentions that are configured now.
    pub(super) fn look(&mut self, tables: &TenantTables, clock: &dyn Clock) {
        if clock.instant() < self.looks {
            return;
        }
        self.looks = clock.instant() + LOOK_EVERY;
        let overrides = self.overrides.current();
        for tenant in tables.tenants(true) {
            if self.retentions.has(&tenant) || overrides.of(&tenant).stream_retention_ms.is_some() {
                self.before_ms(&tenant, clock);
            }
        }
    }

    /// The next table to be visited. `None` if there is none now.
    pub(super) fn next(
        &mut self,
        tables: &TenantTables,
        clock: &dyn Clock,
    ) -> Result<Option<Visit>, TableError> {
        loop {
            while let Some(streams) = &mut self.streams {
                let tenant = streams.tenant().clone();
                match streams.next(tables) {
                    Ok(Some(key)) => {
                        let (before_ms, is_first) = (self.before_ms(&tenant, clock), self.rounds == 1);
                        if before_ms.is_some() || is_first {
                            return Ok(Some(Visit { key, before_ms, is_first }));
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
                let is_visited = self.before_ms(&tenant, clock).is_some() || self.rounds == 1;
                self.streams = is_visited.then(|| Listing::of(tenant));
            } else if clock.instant() < self.due {
                return Ok(None);
            } else {
                self.due = clock.instant() + EVERY;
                let tenants = tables.tenants(true);
                let waiting = self.retentions.waiting();
                self.retentions.retain(|tenant| tenants.contains(tenant) || waiting.contains(tenant));
                self.rounds += 1;
                self.tenants = tenants.into_iter().collect();
            }
        }
    }
}
