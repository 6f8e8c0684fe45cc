//! Settings that can differ between tenants.

use super::file::quoted;
use super::given::{Given, SettingsError};
use super::reader::{EffectiveSetting, Reader};
use super::table;
use crate::query_source::detail::Detail;
use model::TenantId;
use std::collections::BTreeMap;
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

    pub(super) fn general(reader: &mut Reader<'_>) -> Result<Self, SettingsError> {
        Ok(Self {
            retention_ms: reader.read(&table::RETENTION)?,
            rollups: reader.read(&table::ROLLUPS)?,
            rollup_retention_ms: reader.read(&table::ROLLUP_RETENTION)?,
            query_resolution: reader.read(&table::QUERY_RESOLUTION)?,
        })
    }

    fn own(reader: &mut Reader<'_>, general: &Self) -> Result<Self, SettingsError> {
        Ok(Self {
            retention_ms: reader.inherit(&table::RETENTION, &general.retention_ms)?,
            rollups: reader.inherit(&table::ROLLUPS, &general.rollups)?,
            rollup_retention_ms: reader.inherit(&table::ROLLUP_RETENTION, &general.rollup_retention_ms)?,
            query_resolution: reader.inherit(&table::QUERY_RESOLUTION, &general.query_resolution)?,
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
