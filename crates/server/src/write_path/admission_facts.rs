//! Tells admission what it must know about the node to decide on a request.

use super::Context;
use crate::settings::Settings;
use admission::tenant_slots::{Limits, Presence};
use admission::{Head, ProcessMemory, TableBytes, tenant_slots, write};
use model::TenantId;
use std::time::Duration;

pub(super) struct AdmissionFacts<'a>(pub(super) &'a Context);

impl write::Facts for AdmissionFacts<'_> {
    fn is_stopping(&self) -> bool {
        self.0.readiness.is_stopping()
    }

    fn replaying(&self) -> Option<String> {
        let partitions = &self.0.partitions;
        (!partitions.is_ready()).then(|| partitions.trouble())
    }

    fn closed(&self, tenant: &TenantId) -> Option<String> {
        self.0.lake.closed.why(tenant)
    }

    fn blocked_from(&self, tenant: &TenantId) -> Option<u64> {
        self.0.lake.blocked.head_percent(tenant)
    }

    fn exceeded_share(&self, tenant: &TenantId) -> Option<u64> {
        let Context { overrides, tenants, heads, clock, .. } = self.0;
        let state = tenants.get(tenant)?;
        heads.exceeded_share(tenants, &state, &overrides.current(), clock.instant())
    }

    fn table_bytes(&self, tenant: &TenantId) -> TableBytes {
        let settings = self.0.overrides.current();
        let own = settings.of(tenant);
        TableBytes {
            used_bytes: self.0.lake.tables.usage(tenant).bytes,
            limit_bytes: own.limits.disk_bytes,
            is_configured: own.limits.disk_bytes_is_given,
        }
    }
}

impl tenant_slots::Facts for AdmissionFacts<'_> {
    fn presence(&self, tenant: &TenantId) -> Presence {
        let Settings { tenants_max, self_monitoring, .. } = &*self.0.settings;
        let mut presence = Presence { is_in_memory: false, is_any_full: false };
        for partition in self.0.partitions.iter() {
            let head = partition.head.read();
            let is_known = head.tenant(tenant).is_some();
            presence.is_in_memory |= is_known;
            let own = usize::from(head.tenant(&self_monitoring.tenant).is_some());
            presence.is_any_full |= !is_known && head.tenant_count() - own >= *tenants_max;
        }
        presence
    }

    fn is_known(&self, tenant: &TenantId) -> bool {
        self.0.is_known(tenant)
    }

    fn head(&self) -> Head {
        self.0.heads.head()
    }

    fn is_any_above_share(&self) -> bool {
        let Context { overrides, tenants, heads, clock, .. } = self.0;
        heads.is_any_above_share(tenants, &overrides.current(), clock.instant())
    }

    fn process(&self) -> ProcessMemory {
        self.0.headroom.memory()
    }

    fn take_token(&self, tenant: &TenantId) -> Result<(), Duration> {
        let shared = self.0;
        shared.new_tenants.lock().admit(tenant, shared.clock.instant())
    }

    fn limits(&self) -> Limits {
        let settings = &self.0.settings;
        Limits {
            tenants: settings.tenants_max,
            burst: settings.tenant_burst,
            per_minute: settings.tenants_per_minute,
        }
    }
}
