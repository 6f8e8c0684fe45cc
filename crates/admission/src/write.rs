use crate::watermarks::REFUSE_ABOVE_SHARE;
use crate::{TableBytes, WriteRefusal, tenant_slots};
use model::{Principal, TenantId};

/// Facts about the node. Each is asked for only if all earlier checks have passed.
pub trait Facts: tenant_slots::Facts {
    fn is_stopping(&self) -> bool;

    /// Why the journal is not fully replayed yet. `None` once it is.
    fn replaying(&self) -> Option<String>;

    /// Why the tenant's table cannot be read. `None` if it can.
    fn closed(&self, tenant: &TenantId) -> Option<String>;

    /// The fill level of the head, in percent, at which writes are refused because the tenant's table cannot
    /// be written. `None` if the table can be written.
    fn blocked_from(&self, tenant: &TenantId) -> Option<u64>;

    /// The tenant's share of the head in bytes, if the tenant holds more than that.
    fn exceeded_share(&self, tenant: &TenantId) -> Option<u64>;

    fn table_bytes(&self, tenant: &TenantId) -> TableBytes;
}

pub fn check(principal: &Principal, facts: &impl Facts) -> Result<(), WriteRefusal> {
    let tenant = &principal.tenant;
    check_node(principal, facts)?;
    let head = facts.head();
    if head.is_full() {
        return Err(WriteRefusal::HeadFull {
            used_mib: head.used_bytes >> 20,
            limit_mib: head.limit_bytes >> 20,
        });
    }
    if let Some(percent) = facts.blocked_from(tenant)
        && head.is_filled_to(percent)
    {
        return Err(WriteRefusal::Blocked { tenant: tenant.clone(), percent });
    }
    if head.is_filled_to(REFUSE_ABOVE_SHARE)
        && let Some(share_bytes) = facts.exceeded_share(tenant)
    {
        let (percent, share_mib) = (REFUSE_ABOVE_SHARE, share_bytes >> 20);
        return Err(WriteRefusal::TenantShare { tenant: tenant.clone(), percent, share_mib });
    }
    check_table_bytes(tenant, facts)?;
    tenant_slots::check(tenant, facts)
}

/// Like [`check`], for records. They take no memory of heads, but have an account of their own. `has_streams` tells that the
/// tenant has streams already.
pub fn check_records(
    principal: &Principal,
    has_streams: bool,
    facts: &impl Facts,
) -> Result<(), WriteRefusal> {
    check_node(principal, facts)?;
    check_table_bytes(&principal.tenant, facts)?;
    if has_streams { Ok(()) } else { tenant_slots::check_records(&principal.tenant, facts) }
}

fn check_node(principal: &Principal, facts: &impl Facts) -> Result<(), WriteRefusal> {
    rights(principal)?;
    let tenant = &principal.tenant;
    if facts.is_stopping() {
        return Err(WriteRefusal::Stopping);
    }
    if let Some(why) = facts.replaying() {
        return Err(WriteRefusal::Replaying(why));
    }
    match facts.closed(tenant) {
        Some(why) => Err(WriteRefusal::Closed { tenant: tenant.clone(), why }),
        None => Ok(()),
    }
}

fn check_table_bytes(tenant: &TenantId, facts: &impl Facts) -> Result<(), WriteRefusal> {
    let table_bytes = facts.table_bytes(tenant);
    if let Some(limit_bytes) = table_bytes.reached() {
        return Err(WriteRefusal::DiskBytes {
            tenant: tenant.clone(),
            used_kib: table_bytes.used_bytes >> 10,
            limit_kib: limit_bytes >> 10,
            is_configured: table_bytes.is_configured,
        });
    }
    Ok(())
}

pub fn rights(principal: &Principal) -> Result<(), WriteRefusal> {
    match principal.rights.write {
        true => Ok(()),
        false => Err(WriteRefusal::Rights { tenant: principal.tenant.clone() }),
    }
}

#[cfg(test)]
mod tests;
