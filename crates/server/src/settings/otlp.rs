//! Settings of OpenTelemetry's metrics: which series they become, and their address for gRPC.

use super::admin_listen::is_reachable;
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use crate::limits::budget::{Budget, PROCESS_BYTES, TOTAL_BYTES_MIN};
use crate::listen::http2::connection_bytes;
use protocol::otlp::Translation;
use std::net::SocketAddr;
use std::sync::Arc;

/// Scale to which exponential histograms are converted. There are 2 to the power of the scale buckets per power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale(pub(super) i32);

/// Limit on connections, whatever the memory.
const CONNECTIONS_MAX: u64 = 1024;

/// The smallest budget has room for a connection.
const _: () = assert!((TOTAL_BYTES_MIN - PROCESS_BYTES) / 100 * 15 / 8 >= connection_bytes(true) as u64);

/// Settings of OpenTelemetry's protocol over gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtlpGrpcSettings {
    pub address: Option<SocketAddr>,
    /// 0 without an address.
    pub(crate) connections_max: usize,
    /// Memory of all connections.
    pub(crate) connections_bytes: u64,
}

impl OtlpGrpcSettings {
    /// `files_left` is the number of files that may be open in addition to all others.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        is_authenticated: bool,
        is_encrypted: bool,
        budget: &Budget,
        files_left: usize,
    ) -> Result<Self, SettingsError> {
        let Some(address) = reader.read(&table::OTLP_GRPC)? else {
            return Ok(Self { address: None, connections_max: 0, connections_bytes: 0 });
        };
        if is_reachable(address) && !is_authenticated && !reader.is_true(&table::ALLOW_UNAUTHENTICATED)? {
            let reason = "other machines can reach this address, but requests are not authenticated: set auth_file, \
                or allow_unauthenticated to let everyone write";
            return Err(reader.error(&table::OTLP_GRPC, reason.into()));
        }
        let each_bytes = connection_bytes(is_encrypted) as u64;
        let most = (budget.grpc_bytes() / each_bytes).min(CONNECTIONS_MAX) as usize;
        let connections_max = most.min(files_left).max(1);
        let connections_bytes = connections_max as u64 * each_bytes;
        Ok(Self { address: Some(address), connections_max, connections_bytes })
    }
}

pub(super) fn general(reader: &mut Reader<'_>) -> Result<Arc<Translation>, SettingsError> {
    Ok(Arc::new(Translation {
        naming: reader.read(&table::OTLP_TRANSLATION)?,
        promoted: reader.read(&table::OTLP_PROMOTE)?,
        keeps_identifying: reader.read(&table::OTLP_KEEP_IDENTIFYING)?,
        has_target_info: reader.read(&table::OTLP_TARGET_INFO)?,
        has_scope_labels: reader.read(&table::OTLP_SCOPE_LABELS)?,
        delta: reader.read(&table::OTLP_DELTA)?,
        scale: reader.read(&table::OTLP_BUCKETS)?.0,
    }))
}

pub(super) fn own(reader: &mut Reader<'_>, general: &Translation) -> Result<Arc<Translation>, SettingsError> {
    Ok(Arc::new(Translation {
        naming: reader.inherit(&table::OTLP_TRANSLATION, &general.naming)?,
        promoted: reader.inherit(&table::OTLP_PROMOTE, &general.promoted)?,
        keeps_identifying: reader.inherit(&table::OTLP_KEEP_IDENTIFYING, &general.keeps_identifying)?,
        has_target_info: reader.inherit(&table::OTLP_TARGET_INFO, &general.has_target_info)?,
        has_scope_labels: reader.inherit(&table::OTLP_SCOPE_LABELS, &general.has_scope_labels)?,
        delta: reader.inherit(&table::OTLP_DELTA, &general.delta)?,
        scale: reader.inherit(&table::OTLP_BUCKETS, &Scale(general.scale))?.0,
    }))
}
