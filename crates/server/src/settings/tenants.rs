//! Settings that can differ between tenants.

use super::file::quoted;
use super::given::{Given, SettingsError};
use super::reader::{EffectiveSetting, Reader};
use super::table;
use crate::query_source::detail::Detail;
use admission::rate::Rate;
use model::TenantId;
use std::collections::BTreeMap;
use std::time::Duration;
use tables::rollup::Resolution;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSettings {
    /// Age at which samples are dropped; `None`: never.
    pub retention_ms: Option<i64>,
    /// Rollups that are made.
    pub rollups: Vec<Resolution>,
    /// Age at which rollups are dropped, as configured; see [`Self::rollups_kept_ms`].
    pub rollup_retention_ms: Option<i64>,
    /// Resolution of queries that name none.
    pub query_resolution: Detail,
    /// Limit on write requests; `None`: no limit.
    pub requests_per_second: Option<usize>,
    /// Limit on samples; `None`: no limit.
    pub samples_per_second: Option<usize>,
    /// Time whose worth of requests and samples may come at once.
    pub rate_burst_ms: i64,
}

/// Settings of all tenants.
#[derive(Debug, Clone)]
pub struct Tenants {
    /// Settings of tenants without settings of their own.
    pub general: TenantSettings,
    /// Settings of tenants that have a `[tenant.NAME]`; the others are inherited from `general`.
    pub own: BTreeMap<TenantId, TenantSettings>,
}

impl Tenants {
    /// Settings of `tenant`.
    pub fn of(&self, tenant: &TenantId) -> &TenantSettings {
        self.own.get(tenant).unwrap_or(&self.general)
    }
}

impl TenantSettings {
    /// Age at which rollups are dropped: never before their samples; `None`: never.
    pub fn rollups_kept_ms(&self) -> Option<i64> {
        let samples_ms = self.retention_ms?;
        Some(self.rollup_retention_ms.map_or(samples_ms, |ms| ms.max(samples_ms)))
    }

    /// Limit on the rate of write requests, if there is one.
    pub fn requests_rate(&self) -> Option<Rate> {
        self.requests_per_second.map(|per_s| self.rate(per_s))
    }

    /// Limit on the rate of samples, if there is one.
    pub fn samples_rate(&self) -> Option<Rate> {
        self.samples_per_second.map(|per_s| self.rate(per_s))
    }

    const fn rate(&self, per_s: usize) -> Rate {
        Rate { per_s: per_s as u64, burst: Duration::from_millis(self.rate_burst_ms.unsigned_abs()) }
    }

    pub(super) fn general(reader: &mut Reader<'_>) -> Result<Self, SettingsError> {
        Ok(Self {
            retention_ms: reader.read(&table::RETENTION)?,
            rollups: reader.read(&table::ROLLUPS)?,
            rollup_retention_ms: reader.read(&table::ROLLUP_RETENTION)?,
            query_resolution: reader.read(&table::QUERY_RESOLUTION)?,
            requests_per_second: reader.read(&table::REQUESTS_PER_SECOND)?,
            samples_per_second: reader.read(&table::SAMPLES_PER_SECOND)?,
            rate_burst_ms: reader.read(&table::RATE_BURST)?,
        })
    }

    fn own(reader: &mut Reader<'_>, general: &Self) -> Result<Self, SettingsError> {
        Ok(Self {
            retention_ms: reader.inherit(&table::RETENTION, &general.retention_ms)?,
            rollups: reader.inherit(&table::ROLLUPS, &general.rollups)?,
            rollup_retention_ms: reader.inherit(&table::ROLLUP_RETENTION, &general.rollup_retention_ms)?,
            query_resolution: reader.inherit(&table::QUERY_RESOLUTION, &general.query_resolution)?,
            requests_per_second: reader.inherit(&table::REQUESTS_PER_SECOND, &general.requests_per_second)?,
            samples_per_second: reader.inherit(&table::SAMPLES_PER_SECOND, &general.samples_per_second)?,
            rate_burst_ms: reader.inherit(&table::RATE_BURST, &general.rate_burst_ms)?,
        })
    }
}

/// Settings of the tenants that have any, and the list of what is in effect.
pub(super) fn read(
    given: &Given,
    general: &TenantSettings,
) -> Result<(BTreeMap<TenantId, TenantSettings>, Vec<EffectiveSetting>), SettingsError> {
    let (mut tenants, mut rows) = (BTreeMap::new(), Vec::new());
    for (tenant, entries) in &given.tenants {
        let mut reader = Reader::new(entries, format!("tenant.{}.", quoted(tenant.as_str())));
        tenants.insert(tenant.clone(), TenantSettings::own(&mut reader, general)?);
        rows.extend(reader.into_rows());
    }
    Ok((tenants, rows))
}
