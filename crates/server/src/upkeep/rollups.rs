//! Decides when each day of each tenant is rolled up.
//!
//! A day is rolled up when it is over, its samples are sealed, and most late samples have arrived. Later samples make
//! the day due again, at most once an hour.

use super::slow_jobs::SlowJobs;
use super::turns::Turn;
use super::{LOG_EVERY, TableState, Upkeep, UpkeepError};
use crate::seal::tenant_tables::TenantTable;
use model::TenantId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::DAY_MS;
use tables::rollup::{self, Resolution, Rolled, RollupLimits};
use tables::{Date, FileStem, Table, TableError, WriteLimits};

/// After an attempt to roll up a day, the day is not tried again for this long.
const PAUSE: Duration = Duration::from_secs(3600);

/// For this long after midnight, samples of the previous day are still expected to arrive.
const LATE_AS_A_RULE_MS: i64 = 3_600_000;

/// Samples whose retention is over are kept for at most this much longer while their rollup is not done.
pub(super) const SPARED_MS: i64 = 2 * DAY_MS;

/// Days that were rolled up or tried recently, with the time of the attempt.
#[derive(Debug, Default)]
pub(super) struct RolledDays {
    tried: BTreeMap<Date, Instant>,
    /// Days whose rollup was interrupted.
    slow: SlowJobs,
}

impl RolledDays {
    fn is_resting(&self, date: Date, now: Instant) -> bool {
        self.tried.get(&date).is_some_and(|at| now.saturating_duration_since(*at) < PAUSE)
    }

    fn tried(&mut self, date: Date, now: Instant) {
        self.tried.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        self.tried.insert(date, now);
    }
}

impl Upkeep {
    pub(super) fn roll_up(
        &mut self,
        tenant: &TenantId,
        resolution: Resolution,
        state: &mut TableState,
        turn: &mut Turn<'_>,
    ) -> Result<(), UpkeepError> {
        let lacks_room = self.is_wanted(tenant, resolution) && self.lacks_room(tenant, resolution)?;
        if lacks_room && !state.lacks_room {
            let table = resolution.folder();
            tracing::warn!(%tenant, table, "a rollup is not made: the tenant has as many tables as tenant_tables allows");
        }
        state.lacks_room = lacks_room;
        let kept_ms = self.kept(tenant).samples_ms;
        let mut days = self.days_due(tenant, resolution, turn.all, kept_ms)?;
        let now = self.control.instant();
        days.retain(|date| turn.all || !state.rolled.is_resting(*date, now));
        days.retain(|date| !state.rolled.slow.rests(&date.to_string(), now));
        days.sort_by_key(|date| state.rolled.slow.interruptions(&date.to_string()));
        if days.is_empty() {
            return Ok(());
        }
        let Some(samples) = self.lake().tables.visit(tenant, TenantTable::Samples)? else { return Ok(()) };
        if turn.is_over() {
            return Ok(());
        }
        let table = self.lake().tables.open_or_create(tenant, TenantTable::Rollup(resolution))?;
        for (done, date) in days.iter().enumerate() {
            if turn.is_over() {
                break;
            }
            self.lake().metrics.rollup_days_waiting.set((days.len() - done) as f64);
            let bytes = samples.files()?.all().iter().filter(|f| f.date == *date).map(|f| f.bytes).sum();
            let (job, began) = (date.to_string(), self.control.instant());
            let ends = turn.end_of(&state.rolled.slow, &job, bytes, began);
            let rolled = self.roll_up_day(tenant, resolution, &samples, &table, *date, ends);
            let is_success = rolled.as_ref().is_ok_and(|rolled| rolled.committed);
            turn.count(bytes, self.control.since(began), is_success);
            if rolled.is_ok() && !is_success && self.control.is_past(ends) {
                let key = (tenant.clone(), TenantTable::Rollup(resolution));
                self.interrupted(&key, &mut state.rolled.slow, &job, bytes, turn);
                continue;
            }
            state.rolled.slow.ended(&job);
            match rolled {
                Ok(rolled) => turn.compacted.rollups += u64::from(rolled.committed),
                Err(UpkeepError::Table(
                    error @ (TableError::Damaged { .. } | TableError::Missing { .. }),
                )) => {
                    turn.compacted.failures += 1;
                    self.lake().metrics.upkeep_failures.inc();
                    tracing::error!(%tenant, %date, %error, "cannot roll up a day with damaged files; queries read its remaining samples");
                }
                Err(error) => return Err(error),
            }
            state.rolled.tried(*date, self.control.instant());
        }
        self.lake().metrics.rollup_days_waiting.set(0.0);
        Ok(())
    }

    /// The days that must be rolled up. Samples are kept for `kept_ms`, or forever.
    fn days_due(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
        all: bool,
        kept_ms: Option<i64>,
    ) -> Result<Vec<Date>, UpkeepError> {
        let settings = &self.control.context.settings;
        if !self.is_wanted(tenant, resolution) {
            return Ok(Vec::new());
        }
        let Some(samples) = self.lake().tables.visit(tenant, TenantTable::Samples)? else {
            return Ok(Vec::new());
        };
        self.lake().tables.measure(tenant, TenantTable::Samples, &samples);
        let now_ms = self.control.now().wall_ms;
        let settled_ms = LATE_AS_A_RULE_MS.saturating_add(settings.lake.seal_after_ms);
        let today = Date::of(if all { now_ms } else { now_ms.saturating_sub(settled_ms) });
        let whole_from_ms = kept_ms.map_or(i64::MIN, |keep_ms| now_ms.saturating_sub(keep_ms));
        match self.lake().tables.visit(tenant, TenantTable::Rollup(resolution))? {
            Some(table) => {
                table.refresh()?;
                Ok(rollup::due(&samples, &table, today, whole_from_ms)?)
            }
            None if self.lacks_room(tenant, resolution)? => Ok(Vec::new()),
            None => Ok(samples.dates()?.into_iter().filter(|date| *date < today).collect()),
        }
    }

    fn is_wanted(&self, tenant: &TenantId, resolution: Resolution) -> bool {
        self.control.context.overrides.current().of(tenant).rollups.contains(&resolution)
    }

    /// True if the rollup's table would have to be created, but the tenant already has as many tables as it may have.
    fn lacks_room(&self, tenant: &TenantId, resolution: Resolution) -> Result<bool, UpkeepError> {
        let limit = self.control.context.overrides.current().of(tenant).limits.tenant_tables;
        let tables = &self.lake().tables;
        Ok(tables.usage(tenant).tables >= limit
            && tables.visit(tenant, TenantTable::Rollup(resolution))?.is_none())
    }

    /// Samples before the returned time may expire. This is `before_ms`, or up to [`SPARED_MS`] earlier if days must
    /// still be rolled up. Samples are kept for `kept_ms`, or forever.
    pub(super) fn spare_for_rollups(
        &self,
        tenant: &TenantId,
        before_ms: i64,
        kept_ms: Option<i64>,
    ) -> Result<i64, UpkeepError> {
        let mut spared_ms = before_ms;
        for resolution in Resolution::ALL {
            if let Some(first) = self.days_due(tenant, resolution, true, kept_ms)?.first() {
                spared_ms = spared_ms.min(first.start_ms());
            }
        }
        Ok(spared_ms.max(before_ms.saturating_sub(SPARED_MS)))
    }

    fn roll_up_day(
        &mut self,
        tenant: &TenantId,
        resolution: Resolution,
        samples: &Table,
        table: &Arc<Table>,
        date: Date,
        ends: Option<Instant>,
    ) -> Result<Rolled, UpkeepError> {
        let context = Arc::clone(&self.control.context);
        let half = context.lake.flush.limit_bytes() / 2;
        let _memory = context.lake.flush.reserve(half)?;
        let (began, now_ms) = (self.control.instant(), self.control.now().wall_ms);
        let (mut logged_at, mut counted) = (began, 0);
        let (limits, stop) = (limits(half as usize), self.control.stop_at(ends));
        let go_on = |rolled: &Rolled| {
            context.lake.metrics.rollup_samples.add(rolled.samples - counted);
            counted = rolled.samples;
            if self.control.since(logged_at) >= LOG_EVERY {
                logged_at = self.control.instant();
                tracing::info!(%tenant, %date, series = rolled.series, samples = rolled.samples, "a rollup is in progress");
            }
            self.control.go_on() && !self.control.is_past(ends)
        };
        let stem = FileStem::rewritten(context.lake.random.fresh());
        let rolled = rollup::run(samples, table, date, resolution, &stem, &limits, now_ms, &stop, go_on)?;
        if self.control.is_stopping() && !rolled.committed {
            return Err(UpkeepError::Stopping);
        }
        context.lake.metrics.rollup_samples.add(rolled.samples.saturating_sub(counted));
        if rolled.committed {
            context.lake.metrics.rollup_days(resolution).inc();
            let Rolled { series, samples, omitted, .. } = rolled;
            let seconds = self.control.since(began).as_secs_f64();
            let table = resolution.folder();
            tracing::info!(%tenant, table, %date, series, samples, left_out = omitted, seconds, "rolled up a day");
        }
        Ok(rolled)
    }
}

fn limits(bytes: usize) -> RollupLimits {
    // seven files are open at the same time, and an encoder takes up to three times the memory of its row group
    let row_group_bytes = (bytes / 48).clamp(64 << 10, 4 << 20);
    let write = WriteLimits { row_group_bytes, open_bytes: bytes / 2, ..WriteLimits::default() };
    RollupLimits { window_bytes: bytes / 4, write }
}
