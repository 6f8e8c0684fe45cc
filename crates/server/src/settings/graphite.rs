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

/// What precedes an address of the pickle protocol in `graphite_tenants`.
pub(super) const PICKLE: &str = "pickle:";

const OPEN_TO_ALL: &str = "other machines can reach this address, but senders of Graphite's protocols cannot be authenticated: \
    set graphite_allow_unauthenticated to let everyone write to the tenant";

/// Limit on the addresses in `graphite_tenants`, because each has sockets.
const TENANT_ADDRESSES_MAX: usize = 256;

/// Sockets of an address in `graphite_tenants`, at most: for TCP and UDP.
const SOCKETS_EACH: usize = 2;

/// An address whose points belong to a tenant of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantAddress {
    /// True for the pickle protocol, false for lines.
    pub is_pickle: bool,
    pub address: SocketAddr,
    pub tenant: TenantId,
}

impl std::fmt::Display for TenantAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = if self.is_pickle { PICKLE } else { "" };
        write!(f, "{protocol}{}={}", self.address, self.tenant.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphiteSettings {
    /// Address of the plaintext protocol, over TCP and UDP.
    pub plaintext: Option<SocketAddr>,
    pub has_udp: bool,
    pub pickle: Option<SocketAddr>,
    pub protobuf: Option<SocketAddr>,
    /// Address of the plaintext protocol over TLS.
    pub encrypted: Option<SocketAddr>,
    /// Further addresses, each with its tenant.
    pub of_tenants: Vec<TenantAddress>,
    /// Tenant of the points that all other addresses receive.
    pub tenant: TenantId,
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
    /// True if there is an address of one of Graphite's protocols.
    pub(crate) fn is_served(&self) -> bool {
        let addresses = [self.plaintext, self.pickle, self.protobuf, self.encrypted];
        addresses.iter().any(Option::is_some) || !self.of_tenants.is_empty()
    }

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
        let of_tenants = tenant_addresses(reader, own_tenant)?;
        let tenant_from_path = reader.read(&table::GRAPHITE_TENANT_FROM_PATH)?;
        if tenant_from_path && (pickle.is_some() || protobuf.is_some()) {
            let reason =
                "works only with the plaintext protocol: unset graphite_pickle and graphite_protobuf";
            return Err(reader.error(&table::GRAPHITE_TENANT_FROM_PATH, reason.into()));
        }
        if tenant_from_path && plaintext.is_none() && encrypted.is_none() && !of_tenants.is_empty() {
            let reason = "has no effect on graphite_tenants: set graphite or graphite_tls, or unset this";
            return Err(reader.error(&table::GRAPHITE_TENANT_FROM_PATH, reason.into()));
        }
        let commit_ms = reader.read(&table::GRAPHITE_COMMIT_INTERVAL)?;
        let is_open_to_all = reader.read(&table::GRAPHITE_ALLOW_UNAUTHENTICATED)?
            || (!is_authenticated && reader.is_true(&table::ALLOW_UNAUTHENTICATED)?);
        if let Some(of) = of_tenants.iter().find(|of| is_reachable(of.address))
            && !is_open_to_all
        {
            return Err(reader.error(&table::GRAPHITE_TENANTS, format!("{of}: {OPEN_TO_ALL}")));
        }
        for (address, setting) in [
            (plaintext, &table::GRAPHITE),
            (pickle, &table::GRAPHITE_PICKLE),
            (protobuf, &table::GRAPHITE_PROTOBUF),
            // with `auth_file`, these senders are authenticated
            (encrypted.filter(|_| !is_authenticated), &table::GRAPHITE_TLS),
        ] {
            if address.is_some_and(is_reachable) && !is_open_to_all {
                return Err(reader.error(setting, OPEN_TO_ALL.into()));
            }
        }
        let default = (budget.inflight_bytes / CONNECTION_PER_BYTES).clamp(128, 10_000) as usize;
        let files_left = files_left.saturating_sub(SOCKETS_EACH * of_tenants.len());
        let connections_max = reader.derive(&table::GRAPHITE_CONNECTIONS, default)?.min(files_left).max(1);
        reader.adjust(&table::GRAPHITE_CONNECTIONS, &connections_max);
        let aggregator_intervals = reader.read(&table::GRAPHITE_AGGREGATOR_INTERVALS)? as u32;
        Ok(Self {
            plaintext,
            has_udp,
            pickle,
            protobuf,
            encrypted,
            of_tenants,
            tenant: tenant.unwrap_or_else(TenantId::anonymous),
            tenant_from_path,
            commit_interval: Duration::from_millis(commit_ms.unsigned_abs()),
            connections_max,
            aggregator_intervals,
        })
    }
}

fn tenant_addresses(
    reader: &mut Reader<'_>,
    own_tenant: &TenantId,
) -> Result<Vec<TenantAddress>, SettingsError> {
    let all = reader.read(&table::GRAPHITE_TENANTS)?;
    if all.iter().any(|of| of.tenant == *own_tenant) {
        let reason = format!("only the server may write to {own_tenant} (setting self_monitoring_tenant)");
        return Err(reader.error(&table::GRAPHITE_TENANTS, reason));
    }
    if all.len() > TENANT_ADDRESSES_MAX {
        let reason = format!("must be at most {TENANT_ADDRESSES_MAX} addresses");
        return Err(reader.error(&table::GRAPHITE_TENANTS, reason));
    }
    Ok(all)
}
