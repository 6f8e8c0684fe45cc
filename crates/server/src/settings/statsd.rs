//! Settings of the address that receives statsd's datagrams.

use super::admin_listen::is_reachable;
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use model::TenantId;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsdSettings {
    pub address: Option<SocketAddr>,
    pub(crate) tenant: TenantId,
    pub(crate) flush_interval: Duration,
}

impl StatsdSettings {
    /// `own_tenant` is the tenant to which only the server may write.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        own_tenant: &TenantId,
        is_authenticated: bool,
    ) -> Result<Self, SettingsError> {
        let address = reader.read(&table::STATSD)?;
        let tenant = reader.read(&table::STATSD_TENANT)?;
        if tenant.as_ref() == Some(own_tenant) {
            let reason = "only the server may write to this tenant (setting self_monitoring_tenant)";
            return Err(reader.error(&table::STATSD_TENANT, reason.into()));
        }
        let flush_ms = reader.read(&table::STATSD_FLUSH_INTERVAL)?;
        let is_open_to_all = reader.read(&table::STATSD_ALLOW_UNAUTHENTICATED)?
            || (!is_authenticated && reader.is_true(&table::ALLOW_UNAUTHENTICATED)?);
        if address.is_some_and(is_reachable) && !is_open_to_all {
            let reason = "other machines can reach this address, but senders of statsd's datagrams cannot be authenticated: \
                set statsd_allow_unauthenticated to let everyone write to the tenant";
            return Err(reader.error(&table::STATSD, reason.into()));
        }
        Ok(Self {
            address,
            tenant: tenant.unwrap_or_else(TenantId::anonymous),
            flush_interval: Duration::from_millis(flush_ms.unsigned_abs()),
        })
    }
}
