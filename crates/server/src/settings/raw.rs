//! What is given: the file, and the command line before it.

use super::{SettingsError, StoreOptions, TablesUrl};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The configuration file: everything optional, nothing unknown.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// See [`super::Settings::data_dir`].
    pub data_dir: Option<PathBuf>,
    /// See [`super::Settings::http`]; as `"localhost:9009"`, or `":9009"` for all addresses.
    pub http: Option<String>,
    /// See [`crate::limits::budget::Budget::total_bytes`]; as `"2GiB"`.
    pub memory: Option<String>,
    /// `"fsync"` or `"os"`.
    pub durability: Option<String>,
    /// See [`super::Settings::partitions`].
    pub partitions: Option<usize>,
    /// See [`super::Settings::future_ms`]; as `"10m"`.
    pub future_limit: Option<String>,
    /// See [`super::Settings::past_ms`]; as `"10y"`.
    pub past_limit: Option<String>,
    /// See [`super::Settings::series_idle_s`]; as `"1h"`.
    pub series_idle: Option<String>,
    /// See [`super::Settings::query_timeout_ms`]; as `"2m"`.
    pub query_timeout: Option<String>,
    /// See [`super::Settings::query_lookback_ms`]; as `"5m"`.
    pub query_lookback: Option<String>,
    /// See [`super::Settings::query_concurrency`].
    pub query_concurrency: Option<usize>,
    /// See [`super::Settings::inflight_requests_max`].
    pub inflight_requests: Option<usize>,
    /// See [`super::Settings::creating_requests_max`].
    pub creating_requests: Option<usize>,
    /// See [`super::Settings::connections_max`].
    pub connections: Option<usize>,
    /// See [`super::Settings::allow_host`].
    pub allow_host: Vec<String>,
    /// See [`super::Settings::tenants_max`].
    pub tenants: Option<usize>,
    /// See [`super::Settings::tenant_burst`].
    pub tenant_burst: Option<usize>,
    /// See [`super::Settings::tenants_per_minute`].
    pub tenants_per_minute: Option<usize>,
    /// See [`super::Settings::body_timeout_ms`]; as `"30s"`.
    pub body_timeout: Option<String>,
    /// See [`super::Settings::transfer_rate`]; as `"64KiB"`.
    pub transfer_rate: Option<String>,
    /// See [`super::Settings::segment_bytes`]; as `"128MiB"`.
    pub segment_size: Option<String>,
    /// See [`super::LakeSettings::url`].
    pub tables: Option<TablesUrl>,
    /// See [`super::LakeSettings::options`].
    pub tables_options: StoreOptions,
    /// See [`super::LakeSettings::seal_after_ms`]; as `"15m"`.
    pub seal_after: Option<String>,
    /// See [`super::LakeSettings::seal_bytes`]; as `"256MiB"`.
    pub seal_size: Option<String>,
    /// See [`super::LakeSettings::retention_ms`]; as `"90d"`.
    pub retention: Option<String>,
    /// See [`super::LakeSettings::tenant_retention_ms`].
    pub tenant_retention: BTreeMap<String, String>,
    /// See [`super::LakeSettings::retention_wait_ms`]; as `"10m"`.
    pub retention_wait: Option<String>,
    /// See [`super::LakeSettings::rollups`]; as `["5m", "1h"]`.
    pub rollups: Option<Vec<String>>,
    /// See [`super::LakeSettings::tenant_rollups`].
    pub tenant_rollups: BTreeMap<String, Vec<String>>,
    /// See [`super::LakeSettings::rollup_retention_ms`]; as `"5y"`.
    pub rollup_retention: Option<String>,
    /// See [`super::LakeSettings::tenant_rollup_retention_ms`].
    pub tenant_rollup_retention: BTreeMap<String, String>,
    /// See [`super::Settings::query_resolution`].
    pub query_resolution: Option<String>,
    /// See [`super::Settings::tenant_query_resolution`].
    pub tenant_query_resolution: BTreeMap<String, String>,
    /// See [`super::LakeSettings::flush_interval_ms`]; as `"2s"`.
    pub flush_interval: Option<String>,
    /// See [`super::LakeSettings::compaction`].
    pub compaction: Option<bool>,
    /// See [`super::LakeSettings::vacuum_grace_ms`]; as `"1h"`.
    pub vacuum_grace: Option<String>,
}

/// What the command line says; it goes before the file.
#[derive(Debug, Default, Clone)]
pub struct Flags {
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--http`
    pub http: Option<String>,
    /// `--memory`
    pub memory: Option<String>,
    /// `--durability`
    pub durability: Option<String>,
    /// `--tables`
    pub tables: Option<TablesUrl>,
    /// `--seal-after`
    pub seal_after: Option<String>,
    /// `--retention`
    pub retention: Option<String>,
    /// `--config`
    pub config: Option<PathBuf>,
}

impl ConfigFile {
    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Read { path: path.into(), source })?;
        toml::from_str(&text)
            .map_err(|source| SettingsError::Parse { path: path.into(), reason: Box::new(source) })
    }

    /// What the command line says, and where it says nothing, the file.
    pub(super) fn given(flags: Flags, file: Self) -> Self {
        Self {
            data_dir: flags.data_dir.or(file.data_dir),
            http: flags.http.or(file.http),
            memory: flags.memory.or(file.memory),
            durability: flags.durability.or(file.durability),
            tables: flags.tables.or(file.tables),
            seal_after: flags.seal_after.or(file.seal_after),
            retention: flags.retention.or(file.retention),
            ..file
        }
    }
}

impl Flags {
    /// The file that they name.
    pub(super) fn file(&self) -> Result<ConfigFile, SettingsError> {
        Ok(self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default())
    }
}
