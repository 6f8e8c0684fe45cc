//! Determines what upkeep may do to a table, from the settings and the memory budget.

use super::rollups::SPARED_MS;
use super::{FirstError, SWEEP_EVERY, Upkeep, UpkeepError};
use crate::events;
use crate::seal::Lake;
use crate::seal::tenant_tables::TenantTable;
use model::TenantId;
use std::time::Duration;
use tables::compact::CompactLimits;
use tables::upkeep::Policy;

const CHECKPOINT_VERSIONS: u64 = 20;

/// An old version of a table can be read for at least this long.
const LOG_KEPT_MS: i64 = 86_400_000;

/// Ages at which data of a tenant expire, in milliseconds. `None` keeps everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) samples_ms: Option<i64>,
    pub(super) rollups_ms: Option<i64>,
}

impl Upkeep {
    /// The retention of a tenant that applies now. A shorter one that was configured applies later.
    pub(super) fn kept(&mut self, tenant: &TenantId) -> Kept {
        let context = &self.control.context;
        let (tenants, rules) = (context.overrides.current(), context.rules.current());
        let (own, schemas) = (tenants.of(tenant), rules.schemas.rules());
        let (samples_ms, rollups_ms) = (own.samples_kept_ms(schemas), own.rollups_kept_ms(schemas));
        let wait_ms = u64::try_from(context.settings.lake.retention_wait_ms).unwrap_or(0);
        let (wait, now) = (Duration::from_millis(wait_ms), self.control.instant());
        let [samples_ms, rollups_ms] = self.retentions.applied(tenant, [samples_ms, rollups_ms], wait, now);
        Kept { samples_ms, rollups_ms }
    }

    /// Notices whether shorter retentions are still configured, also for tables that are not checked now.
    pub(super) fn note_retentions(&mut self) {
        for tenant in self.retentions.waiting() {
            self.kept(&tenant);
        }
    }

    /// Removes the events of all tenants that are older than the retention of their tenant.
    pub(super) fn expire_events(&mut self) {
        for tenant in self.control.context.events.tenants() {
            if self.control.is_stopping() {
                return;
            }
            let kept_ms = self.kept(&tenant).samples_ms;
            let context = &self.control.context;
            let before_ms = events::before_ms(kept_ms, &context.wall, &*context.clock);
            if let Err(error) = context.events.expire(&tenant, before_ms) {
                tracing::warn!(%tenant, %error, "cannot remove the events that are older than the retention");
            }
        }
    }

    pub(super) fn policy(
        &mut self,
        tenant: &TenantId,
        kind: TenantTable,
        all: bool,
        failed: &mut FirstError,
    ) -> Result<Policy, UpkeepError> {
        let kept = self.kept(tenant);
        let context = &self.control.context;
        let settings = &context.settings.lake;
        // nothing expires while the clock is in doubt
        let today_ms = context.wall.doubt(&*context.clock).is_none().then(|| self.control.now().wall_ms);
        let keep_ms = match kind {
            TenantTable::Samples => kept.samples_ms,
            TenantTable::Rollup(_) => kept.rollups_ms,
        };
        let before_ms = today_ms.zip(keep_ms).map(|(today_ms, keep_ms)| today_ms.saturating_sub(keep_ms));
        let expire_before_ms = match before_ms {
            Some(before_ms) if kind == TenantTable::Samples => {
                let spared_ms = failed.note(self.spare_for_rollups(tenant, before_ms, kept.samples_ms))?;
                // the rollup cannot be read, so it is unknown which days it still needs
                Some(spared_ms.unwrap_or(before_ms.saturating_sub(SPARED_MS)))
            }
            before_ms => before_ms,
        };
        Ok(Policy {
            expire_before_ms,
            deletes_upto: i64::MAX,
            compact: (settings.compaction || all).then(|| limits(self.lake(), settings.merged_file_bytes)),
            grace_ms: settings.vacuum_grace_ms,
            sweep_every_ms: SWEEP_EVERY.as_millis() as i64,
            checkpoint_every: CHECKPOINT_VERSIONS,
            log_keep_ms: today_ms.map_or(i64::MAX, |_| LOG_KEPT_MS),
        })
    }
}

/// Limits compaction to half of the account `flush`. With the smallest possible budget, it may need some MiB more in
/// the worst case.
fn limits(lake: &Lake, file_bytes: u64) -> CompactLimits {
    let half = (lake.flush.limit_bytes() / 2) as usize;
    let mut limits = CompactLimits { file_bytes, job_bytes: 4 * file_bytes, ..CompactLimits::default() };
    while limits.memory_bytes() > half && limits.fan_in > 4 {
        limits.fan_in /= 2;
        limits.window_bytes = (limits.window_bytes / 2).max(128 << 10);
        limits.row_group_bytes = (limits.row_group_bytes / 2).max(512 << 10);
    }
    limits
}
