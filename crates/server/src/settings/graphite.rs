//! Settings of the addresses that receive Graphite's protocols.

use super::admin_listen::is_reachable;
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use crate::limits::budget::Budget;
use model::TenantId;
use std::net::SocketAddr;
use std::time::Duration;

/// By default, there may be a connection for this many bytes of the account `inflight`.
const CONNECTION_PER_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphiteSettings {
    /// Address of the plaintext protocol, over TCP and UDP.
    pub plaintext: Option<SocketAddr>,
    pub has_udp: bool,
    pub pickle: Option<SocketAddr>,
    pub protobuf: Option<SocketAddr>,
    /// Address of the plaintext protocol over TLS.
    pub encrypted: Option<SocketAddr>,
    pub(crate) tenant: TenantId,
    /// True if the first part of each path names the tenant, and is removed.
    pub(crate) tenant_from_path: bool,
    pub(crate) commit_interval: Duration,
    /// Limit on the connections of all addresses together. It is below the setting's value if too few files may be
    /// open.
    pub(crate) connections_max: usize,
    /// Number of intervals that aggregation rules keep before the present one.
    pub(crate) aggregator_intervals: u32,
}

impl GraphiteSettings {
    /// `own_tenant` is the tenant to which only the server may write. `has_certificate` is true if the server has a TLS
    /// certificate. `files_left` is the number of files that may be
    /// open in addition to all others.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        own_tenant: &TenantId,
        is_authenticated: bool,
        has_certificate: bool,
        budget: &Budget,
        files_left: usize,
    ) -> Result<Self, SettingsError> {
        let plaintext = reader.read(&table::GRAPHITE)?;
        let has_udp = reader.read(&table::GRAPHITE_UDP)?;
        let pickle = reader.read(&table::GRAPHITE_PICKLE)?;
        let protobuf = reader.read(&table::GRAPHITE_PROTOBUF)?;
        let encrypted = reader.read(&table::GRAPHITE_TLS)?;
        if encrypted.is_some() && !has_certificate {
            return Err(
                reader.error(&table::GRAPHITE_TLS, "needs a certificate: set tls_cert and tls_key".into())
            );
        }
        let tenant = reader.read(&table::GRAPHITE_TENANT)?;
        if tenant.as_ref() == Some(own_tenant) {
            let reason = "only the server may write to this tenant (setting self_monitoring_tenant)";
            return Err(reader.error(&table::GRAPHITE_TENANT, reason.into()));
        }
        let tenant_from_path = reader.read(&table::GRAPHITE_TENANT_FROM_PATH)?;
        if tenant_from_path && (pickle.is_some() || protobuf.is_some()) {
            let reason =
                "works only with the plaintext protocol: unset graphite_pickle and graphite_protobuf";
            return Err(reader.error(&table::GRAPHITE_TENANT_FROM_PATH, reason.into()));
        }
        let commit_ms = reader.read(&table::GRAPHITE_COMMIT_INTERVAL)?;
        let is_open_to_all = reader.read(&table::GRAPHITE_ALLOW_UNAUTHENTICATED)?
            || (!is_authenticated && reader.is_true(&table::ALLOW_UNAUTHENTICATED)?);
        for (address, setting) in [
            (plaintext, &table::GRAPHITE),
            (pickle, &table::GRAPHITE_PICKLE),
            (protobuf, &table::GRAPHITE_PROTOBUF),
            // with `auth_file`, these senders are authenticated
            (encrypted.filter(|_| !is_authenticated), &table::GRAPHITE_TLS),
        ] {
            if address.is_some_and(is_reachable) && !is_open_to_all {
                let reason = "other machines can reach this address, but senders of Graphite's protocols cannot be \
                    authenticated: set graphite_allow_unauthenticated to let everyone write to the tenant";
                return Err(reader.error(setting, reason.into()));
            }
        }
        let default = (budget.inflight_bytes / CONNECTION_PER_BYTES).clamp(128, 10_000) as usize;
        let connections_max = reader.derive(&table::GRAPHITE_CONNECTIONS, default)?.min(files_left).max(1);
        reader.adjust(&table::GRAPHITE_CONNECTIONS, &connections_max);
        let aggregator_intervals = reader.read(&table::GRAPHITE_AGGREGATOR_INTERVALS)? as u32;
        Ok(Self {
            plaintext,
            has_udp,
            pickle,
            protobuf,
            encrypted,
            tenant: tenant.unwrap_or_else(TenantId::anonymous),
            tenant_from_path,
            commit_interval: Duration::from_millis(commit_ms.unsigned_abs()),
            connections_max,
            aggregator_intervals,
        })
    }
}
