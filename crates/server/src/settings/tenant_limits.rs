//! Limits that can differ between tenants.
//!
//! A new limit has a row in [`super::table`] with `.per_tenant()`, and a field here. The crate `admission` decides on it,
//! [`crate::limits::tenant_state`] has a tenant's current use, and [`crate::http::limit_rows`] shows limit and use.

use super::disk::DiskDefault;
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use admission::rate::Rate;
use std::time::Duration;

/// Limits of one tenant. `None` means no limit, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimits {
    pub requests_per_second: Option<usize>,
    pub samples_per_second: Option<usize>,
    pub bytes_per_second: Option<u64>,
    pub new_series_per_second: Option<usize>,
    /// Tenants may send in bursts. A burst may be as large as what the four rate limits allow in this time.
    pub rate_burst_ms: i64,
    pub active_series: Option<usize>,
    pub series_per_metric: Option<usize>,
    pub disk_bytes: Option<u64>,
    /// False if `disk_bytes` is the default that was derived from the size of the disk.
    pub disk_bytes_is_given: bool,
    pub tenant_tables: usize,
    /// Limit on the tenant's file of events.
    pub events_bytes: u64,
    /// Limit on the write requests in progress. `None` if the tenant's share of the node's limit is the only
    /// limit.
    pub concurrent_writes: Option<usize>,
    /// Limit on the memory of write requests in progress. `None` if the tenant's share of the node's limit is
    /// the only limit.
    pub inflight_bytes: Option<u64>,
    pub concurrent_queries: Option<usize>,
    /// Limit on the memory of a query. `None` if the node's limit is the only limit.
    pub query_memory_bytes: Option<u64>,
    /// Limit on the samples that a query holds at a time. `None` if only its memory limits them.
    pub query_samples: Option<usize>,
    pub streams: usize,
    /// False if `streams` is the default.
    pub streams_is_given: bool,
    pub ha_clusters: usize,
    /// False if `ha_clusters` is the default.
    pub ha_clusters_is_given: bool,
}

impl TenantLimits {
    pub fn requests_rate(&self) -> Option<Rate> {
        self.requests_per_second.map(|per_s| self.rate(per_s as u64))
    }

    pub fn samples_rate(&self) -> Option<Rate> {
        self.samples_per_second.map(|per_s| self.rate(per_s as u64))
    }

    pub fn bytes_rate(&self) -> Option<Rate> {
        self.bytes_per_second.map(|per_s| self.rate(per_s))
    }

    pub fn new_series_rate(&self) -> Option<Rate> {
        self.new_series_per_second.map(|per_s| self.rate(per_s as u64))
    }

    const fn rate(&self, per_s: u64) -> Rate {
        Rate { per_s, burst: Duration::from_millis(self.rate_burst_ms.unsigned_abs()) }
    }

    pub(super) fn general(reader: &mut Reader<'_>, disk: &DiskDefault) -> Result<Self, SettingsError> {
        let general = Self {
            requests_per_second: reader.read(&table::REQUESTS_PER_SECOND)?,
            samples_per_second: reader.read(&table::SAMPLES_PER_SECOND)?,
            bytes_per_second: reader.read(&table::BYTES_PER_SECOND)?,
            new_series_per_second: reader.read(&table::NEW_SERIES_PER_SECOND)?,
            rate_burst_ms: reader.read(&table::RATE_BURST)?,
            active_series: reader.read(&table::ACTIVE_SERIES)?,
            series_per_metric: reader.read(&table::SERIES_PER_METRIC)?,
            disk_bytes: reader.derive(&table::DISK_BYTES, disk.bytes)?,
            disk_bytes_is_given: reader.is_given(&table::DISK_BYTES),
            tenant_tables: reader.read(&table::TENANT_TABLES)?,
            events_bytes: reader.read(&table::EVENTS_BYTES)?,
            concurrent_writes: reader.read(&table::CONCURRENT_WRITES)?,
            inflight_bytes: reader.read(&table::INFLIGHT_BYTES)?,
            concurrent_queries: reader.read(&table::CONCURRENT_QUERIES)?,
            query_memory_bytes: reader.read(&table::QUERY_MEMORY)?,
            query_samples: reader.read(&table::QUERY_SAMPLES)?,
            streams: reader.read(&table::STREAMS)?,
            streams_is_given: reader.is_given(&table::STREAMS),
            ha_clusters: reader.read(&table::HA_CLUSTERS)?,
            ha_clusters_is_given: reader.is_given(&table::HA_CLUSTERS),
        };
        reader.explain(&table::DISK_BYTES, &disk.how);
        Ok(general)
    }

    pub(super) fn own(reader: &mut Reader<'_>, general: &Self) -> Result<Self, SettingsError> {
        Ok(Self {
            requests_per_second: reader.inherit(&table::REQUESTS_PER_SECOND, &general.requests_per_second)?,
            samples_per_second: reader.inherit(&table::SAMPLES_PER_SECOND, &general.samples_per_second)?,
            bytes_per_second: reader.inherit(&table::BYTES_PER_SECOND, &general.bytes_per_second)?,
            new_series_per_second: reader
                .inherit(&table::NEW_SERIES_PER_SECOND, &general.new_series_per_second)?,
            rate_burst_ms: reader.inherit(&table::RATE_BURST, &general.rate_burst_ms)?,
            active_series: reader.inherit(&table::ACTIVE_SERIES, &general.active_series)?,
            series_per_metric: reader.inherit(&table::SERIES_PER_METRIC, &general.series_per_metric)?,
            disk_bytes: reader.inherit(&table::DISK_BYTES, &general.disk_bytes)?,
            disk_bytes_is_given: reader.is_given(&table::DISK_BYTES) || general.disk_bytes_is_given,
            tenant_tables: reader.inherit(&table::TENANT_TABLES, &general.tenant_tables)?,
            events_bytes: reader.inherit(&table::EVENTS_BYTES, &general.events_bytes)?,
            concurrent_writes: reader.inherit(&table::CONCURRENT_WRITES, &general.concurrent_writes)?,
            inflight_bytes: reader.inherit(&table::INFLIGHT_BYTES, &general.inflight_bytes)?,
            concurrent_queries: reader.inherit(&table::CONCURRENT_QUERIES, &general.concurrent_queries)?,
            query_memory_bytes: reader.inherit(&table::QUERY_MEMORY, &general.query_memory_bytes)?,
            query_samples: reader.inherit(&table::QUERY_SAMPLES, &general.query_samples)?,
            streams: reader.inherit(&table::STREAMS, &general.streams)?,
            streams_is_given: reader.is_given(&table::STREAMS) || general.streams_is_given,
            ha_clusters: reader.inherit(&table::HA_CLUSTERS, &general.ha_clusters)?,
            ha_clusters_is_given: reader.is_given(&table::HA_CLUSTERS) || general.ha_clusters_is_given,
        })
    }
}
