//! Limits how many tenants are in memory, and how fast new ones appear.

use crate::{Head, ProcessMemory, WriteRefusal, watermarks};
use model::TenantId;
use std::time::Duration;

pub trait Facts {
    fn presence(&self, tenant: &TenantId) -> Presence;

    /// True if the tenant has tables or streams, or is the tenant of the node's own metrics.
    fn is_known(&self, tenant: &TenantId) -> bool;

    fn head(&self) -> Head;

    /// True if any tenant holds more than its share of the head.
    fn is_any_above_share(&self) -> bool;

    fn process(&self) -> ProcessMemory;

    /// Takes a token for a new tenant. If there is none, returns the time until the next one.
    fn take_token(&self, tenant: &TenantId) -> Result<(), Duration>;

    fn limits(&self) -> Limits;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    pub is_in_memory: bool,
    /// True if adding the tenant would exceed the maximum number of tenants of a partition.
    pub is_any_full: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub tenants: usize,
    /// How many new tenants are admitted at the same time.
    pub burst: usize,
    /// How many new tenants are admitted per minute after such a burst.
    pub per_minute: usize,
}

pub fn check(tenant: &TenantId, facts: &impl Facts) -> Result<(), WriteRefusal> {
    check_with(tenant, facts, true)
}

/// Like [`check`], for a tenant that sends records and has none yet. They need no room in the head.
pub fn check_records(tenant: &TenantId, facts: &impl Facts) -> Result<(), WriteRefusal> {
    check_with(tenant, facts, false)
}

fn check_with(tenant: &TenantId, facts: &impl Facts, needs_head: bool) -> Result<(), WriteRefusal> {
    let Presence { is_in_memory, is_any_full } = facts.presence(tenant);
    if is_any_full && !facts.is_known(tenant) {
        return Err(WriteRefusal::Tenants { limit: facts.limits().tenants });
    }
    if is_in_memory {
        return Ok(());
    }
    facts.process().room().map_err(WriteRefusal::NoRoomForTenant)?;
    if needs_head {
        // a tenant that returns has no part in a flood of others
        let is_spared = facts.is_known(tenant) && facts.is_any_above_share();
        let percent = watermarks::no_new_series_from(is_spared);
        facts.head().room_for_series(percent).map_err(WriteRefusal::NoRoomForTenant)?;
    }
    if facts.is_known(tenant) {
        return Ok(());
    }
    facts.take_token(tenant).map_err(|wait| {
        let Limits { burst, per_minute, .. } = facts.limits();
        WriteRefusal::NewTenants { burst, per_minute, wait }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Wait;
    use model::ErrorKind;

    #[derive(Clone, Copy)]
    struct Tenant {
        presence: Presence,
        is_known: bool,
        is_any_above_share: bool,
        head_percent: u64,
        process_percent: u64,
        has_token: bool,
    }

    impl Facts for Tenant {
        fn presence(&self, _: &TenantId) -> Presence {
            self.presence
        }
        fn is_known(&self, _: &TenantId) -> bool {
            self.is_known
        }
        fn head(&self) -> Head {
            Head { used_bytes: self.head_percent, limit_bytes: 100 }
        }
        fn is_any_above_share(&self) -> bool {
            self.is_any_above_share
        }
        fn process(&self) -> ProcessMemory {
            ProcessMemory { held_bytes: self.process_percent, limit_bytes: 100 }
        }
        fn take_token(&self, _: &TenantId) -> Result<(), Duration> {
            if self.has_token { Ok(()) } else { Err(Duration::from_secs(7)) }
        }
        fn limits(&self) -> Limits {
            Limits { tenants: 3, burst: 2, per_minute: 1 }
        }
    }

    const NEW: Tenant = Tenant {
        presence: Presence { is_in_memory: false, is_any_full: false },
        is_known: false,
        is_any_above_share: false,
        head_percent: 0,
        process_percent: 0,
        has_token: true,
    };

    #[test]
    fn new_tenants_need_a_slot_and_memory_and_a_token() {
        let check = |tenant: Tenant, expected: Option<&str>| {
            let refused = check(&TenantId::anonymous(), &tenant).err();
            assert_eq!(refused.as_ref().map(WriteRefusal::reason), expected);
            assert_eq!(refused.map(|refused| refused.kind()), expected.map(|_| ErrorKind::Unavailable));
        };
        let full = Presence { is_in_memory: false, is_any_full: true };
        check(NEW, None);
        check(Tenant { presence: full, ..NEW }, Some("tenants"));
        check(Tenant { presence: Presence { is_in_memory: true, ..full }, ..NEW }, Some("tenants"));
        check(Tenant { presence: full, is_known: true, has_token: false, ..NEW }, None);
        check(Tenant { process_percent: 95, ..NEW }, Some("process_memory"));
        check(Tenant { head_percent: 85, ..NEW }, Some("head_full"));
        check(Tenant { head_percent: 85, is_known: true, ..NEW }, Some("head_full"));
        let flooded = Tenant { head_percent: 91, is_any_above_share: true, ..NEW };
        check(flooded, Some("head_full"));
        check(Tenant { is_known: true, ..flooded }, None);
        check(Tenant { is_known: true, head_percent: 92, ..flooded }, Some("head_full"));
        check(Tenant { has_token: false, ..NEW }, Some("new_tenants"));
        let known = Presence { is_in_memory: true, is_any_full: false };
        check(
            Tenant { presence: known, process_percent: 99, head_percent: 99, has_token: false, ..NEW },
            None,
        );
    }

    #[test]
    fn a_refused_new_tenant_learns_when_the_next_token_comes() {
        let refused = check(&TenantId::anonymous(), &Tenant { has_token: false, ..NEW }).unwrap_err();
        assert_eq!(refused.retry_after(), Some(Wait::For(Duration::from_secs(7))));
    }
}
