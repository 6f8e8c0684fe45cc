//! Determines what upkeep may do to a table, from the settings and the memory budget.

use super::rollups::SPARED_MS;
use super::{FirstError, SWEEP_EVERY, Upkeep, UpkeepError};
use crate::events::expired_before_ms;
use crate::seal::Lake;
use crate::seal::tenant_tables::TenantTable;
use model::TenantId;
use tables::compact::CompactLimits;
use tables::upkeep::Policy;

const CHECKPOINT_VERSIONS: u64 = 20;

/// An old version of a table can be read for at least this long.
const LOG_KEPT_MS: i64 = 86_400_000;

impl Upkeep {
    /// Removes the events of all tenants that are older than the retention of their tenant.
    pub(super) fn expire_events(&self) {
        let context = &self.control.context;
        for tenant in context.events.tenants() {
            if self.control.is_stopping() {
                return;
            }
            let (tenants, rules) = (context.overrides.current(), context.rules.current());
            let own = tenants.of(&tenant);
            let before_ms = expired_before_ms(own, &rules, &context.wall, &*context.clock);
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
        let context = &self.control.context;
        let (settings, tenants) = (&context.settings.lake, context.overrides.current());
        let (own, rules) = (tenants.of(tenant), context.rules.current());
        // nothing expires while the clock is in doubt
        let today_ms = context.wall.doubt(&*context.clock).is_none().then(|| self.control.now().wall_ms);
        let keep_ms = match kind {
            TenantTable::Samples => own.samples_kept_ms(rules.schemas.rules()),
            TenantTable::Rollup(_) => own.rollups_kept_ms(rules.schemas.rules()),
        };
        let before_ms = today_ms.zip(keep_ms).map(|(today_ms, keep_ms)| today_ms.saturating_sub(keep_ms));
        let expire_before_ms = match before_ms {
            Some(before_ms) if kind == TenantTable::Samples => {
                let spared_ms = failed.note(self.spare_for_rollups(tenant, before_ms))?;
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
