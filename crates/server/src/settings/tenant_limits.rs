//! Limits that can differ between tenants.
//!
//! A new limit has a row in [`super::table`] with `.per_tenant()`, and a field here. The crate `admission` decides on it,
//! [`crate::limits::tenant_state`] has a tenant's current use, and [`crate::http::limit_rows`] shows limit and use.

use super::capacity::Capacity;
use super::disk::DiskDefault;
use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use admission::rate::Rate;
use std::time::Duration;

/// What default limits are derived from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) disk: DiskDefault,
    pub(super) capacity: Capacity,
}

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
    /// False if `active_series` is the default that was derived from the size of the head.
    pub active_series_is_given: bool,
    pub series_per_metric: Option<usize>,
    /// False if `series_per_metric` is the default that was derived from the size of the head.
    pub series_per_metric_is_given: bool,
    pub disk_bytes: Option<u64>,
    /// False if `disk_bytes` is the default that was derived from the size of the disk.
    pub disk_bytes_is_given: bool,
    pub tenant_tables: usize,
    /// Limit on the tenant's file of events.
    pub events_bytes: u64,
    /// Limit on the write requests in progress. `None` if the tenant's share of the node's limit is the only
    /// limit.
    pub concurrent_writes: Option<usize>,
    /// False if `concurrent_writes` is the default that was derived from the node's limit.
    pub concurrent_writes_is_given: bool,
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

    /// The limit on the series of one metric name, if an operator has set one that is less than the limit on all series.
    /// Otherwise, nothing has to be counted: a metric name cannot have more series than the tenant, nor than the head.
    pub fn binding_series_per_metric(&self) -> Option<usize> {
        let all = self.active_series.unwrap_or(usize::MAX);
        self.series_per_metric.filter(|limit| self.series_per_metric_is_given && *limit < all)
    }

    const fn rate(&self, per_s: u64) -> Rate {
        Rate { per_s, burst: Duration::from_millis(self.rate_burst_ms.unsigned_abs()) }
    }

    /// For the server's own metrics: rates are meant for senders that may wait.
    pub(super) fn lift_rates(&mut self) {
        (self.requests_per_second, self.samples_per_second) = (None, None);
        (self.bytes_per_second, self.new_series_per_second) = (None, None);
    }

    pub(super) fn general(reader: &mut Reader<'_>, defaults: &Defaults) -> Result<Self, SettingsError> {
        let Defaults { disk, capacity } = defaults;
        let series = Some(capacity.series);
        let general = Self {
            requests_per_second: reader.read(&table::REQUESTS_PER_SECOND)?,
            samples_per_second: reader.read(&table::SAMPLES_PER_SECOND)?,
            bytes_per_second: reader.read(&table::BYTES_PER_SECOND)?,
            new_series_per_second: reader.derive(&table::NEW_SERIES_PER_SECOND, series)?,
            rate_burst_ms: reader.read(&table::RATE_BURST)?,
            active_series: reader.derive(&table::ACTIVE_SERIES, series)?,
            active_series_is_given: reader.is_given(&table::ACTIVE_SERIES),
            series_per_metric: reader.derive(&table::SERIES_PER_METRIC, series)?,
            series_per_metric_is_given: reader.is_given(&table::SERIES_PER_METRIC),
            disk_bytes: reader.derive(&table::DISK_BYTES, disk.bytes)?,
            disk_bytes_is_given: reader.is_given(&table::DISK_BYTES),
            tenant_tables: reader.read(&table::TENANT_TABLES)?,
            events_bytes: reader.read(&table::EVENTS_BYTES)?,
            concurrent_writes: reader.derive(&table::CONCURRENT_WRITES, Some(capacity.write_requests))?,
            concurrent_writes_is_given: reader.is_given(&table::CONCURRENT_WRITES),
            inflight_bytes: reader.derive(&table::INFLIGHT_BYTES, Some(capacity.inflight_bytes))?,
            concurrent_queries: reader.derive(&table::CONCURRENT_QUERIES, Some(capacity.queries))?,
            query_memory_bytes: reader.derive(&table::QUERY_MEMORY, Some(capacity.query_bytes))?,
            query_samples: reader.derive(&table::QUERY_SAMPLES, Some(capacity.query_samples))?,
            streams: reader.read(&table::STREAMS)?,
            streams_is_given: reader.is_given(&table::STREAMS),
            ha_clusters: reader.read(&table::HA_CLUSTERS)?,
            ha_clusters_is_given: reader.is_given(&table::HA_CLUSTERS),
        };
        reader.explain(&table::DISK_BYTES, &disk.how);
        capacity.explain(reader);
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
            active_series_is_given: reader.is_given(&table::ACTIVE_SERIES) || general.active_series_is_given,
            series_per_metric: reader.inherit(&table::SERIES_PER_METRIC, &general.series_per_metric)?,
            series_per_metric_is_given: reader.is_given(&table::SERIES_PER_METRIC)
                || general.series_per_metric_is_given,
            disk_bytes: reader.inherit(&table::DISK_BYTES, &general.disk_bytes)?,
            disk_bytes_is_given: reader.is_given(&table::DISK_BYTES) || general.disk_bytes_is_given,
            tenant_tables: reader.inherit(&table::TENANT_TABLES, &general.tenant_tables)?,
            events_bytes: reader.inherit(&table::EVENTS_BYTES, &general.events_bytes)?,
            concurrent_writes: reader.inherit(&table::CONCURRENT_WRITES, &general.concurrent_writes)?,
            concurrent_writes_is_given: reader.is_given(&table::CONCURRENT_WRITES)
                || general.concurrent_writes_is_given,
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
