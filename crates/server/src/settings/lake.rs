//! How data leaves the head for the tables, and how long it stays there.

use super::effective::without_secrets;
use super::value::{duration, duration_or, of_tenants, size, wrong};
use super::{ConfigFile, SettingsError};
use model::TenantId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use stdx::units;
use tables::compact::CompactLimits;
use tables::rollup::Resolution;

/// How data leaves the head for the tables, and how long it stays there.
#[derive(Debug, Clone)]
pub struct LakeSettings {
    /// Where the tables lie: `file:///…`, `s3://…`, `gs://…`, `az://…`. Default: `tables` in the data directory.
    pub url: TablesUrl,
    /// Options of the object store, as the crate `object_store` names them (`aws_endpoint`, …): those of the
    /// environment, and those of the file before them.
    pub options: StoreOptions,
    /// The head's data is sealed when its oldest part is so old. Default 15 minutes: with files of that length a
    /// day of one table is some hundred commits, and a restart replays no more than it.
    pub seal_after_ms: i64,
    /// It is sealed earlier where a partition's journal holds more than this since the last seal. Default 256
    /// MiB, which bounds the disk and the replay: some seconds.
    pub seal_bytes: u64,
    /// The least interval between rounds that flush requests start, after a burst of ten; requests in between share the
    /// next one. Default two seconds: it bounds the files that a loop of flushes makes.
    pub flush_interval_ms: i64,
    /// Samples older than this are dropped, a day at a time. Default: never.
    pub retention_ms: Option<i64>,
    /// The same per tenant; takes precedence over the general setting.
    pub tenant_retention_ms: BTreeMap<TenantId, i64>,
    /// How long after a start nothing is dropped for its age. Default ten minutes: a clock that is wrong when a machine
    /// starts is put right by then.
    pub retention_wait_ms: i64,
    /// Which rollups are made of days that are over. Default: none; they cost space, and not everybody looks back so far.
    pub rollups: Vec<Resolution>,
    /// The same per tenant; takes precedence over the general setting.
    pub tenant_rollups: BTreeMap<TenantId, Vec<Resolution>>,
    /// How long rollups are kept; never shorter than their samples. Default: as long as those.
    pub rollup_retention_ms: Option<i64>,
    /// The same per tenant; takes precedence over the general setting.
    pub tenant_rollup_retention_ms: BTreeMap<TenantId, i64>,
    /// Small files are merged into larger ones. Default: yes; another engine may do it instead.
    pub compaction: bool,
    /// Bytes of a file that merges make, at least, where there is so much. No flag: only simulations change it.
    pub merged_file_bytes: u64,
    /// A file that left its table is deleted after so long, for the sake of readers. Default one hour.
    pub vacuum_grace_ms: i64,
}

/// The URL of an object store. It may have a password or a signature in it, which are never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct TablesUrl(pub String);

impl<T: Into<String>> From<T> for TablesUrl {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl std::fmt::Debug for TablesUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        without_secrets(&self.0).fmt(f)
    }
}

/// Options of an object store, by name. Some are secrets, so no value is ever shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StoreOptions(pub BTreeMap<String, String>);

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl LakeSettings {
    /// Whatever is not given has its default.
    pub(super) fn resolve(given: &ConfigFile, data_dir: &Path) -> Result<Self, SettingsError> {
        Ok(Self {
            url: TablesUrl(tables_url(given.tables.as_ref(), data_dir)?),
            options: store_options(&given.tables_options),
            seal_after_ms: duration_or("seal_after", given.seal_after.as_ref(), 900_000)?,
            seal_bytes: given.seal_size.as_ref().map_or(Ok(256 << 20), |text| size("seal_size", text))?,
            flush_interval_ms: duration_or("flush_interval", given.flush_interval.as_ref(), 2_000)?,
            retention_ms: given.retention.as_ref().map(|text| duration("retention", text)).transpose()?,
            tenant_retention_ms: of_tenants("tenant_retention", &given.tenant_retention, |name, text| {
                duration(name, text)
            })?,
            retention_wait_ms: duration_or("retention_wait", given.retention_wait.as_ref(), 600_000)?,
            rollups: rollups("rollups", given.rollups.as_deref().unwrap_or_default())?,
            tenant_rollups: of_tenants("tenant_rollups", &given.tenant_rollups, |name, texts| {
                rollups(name, texts)
            })?,
            rollup_retention_ms: given
                .rollup_retention
                .as_ref()
                .map(|text| duration("rollup_retention", text))
                .transpose()?,
            tenant_rollup_retention_ms: of_tenants(
                "tenant_rollup_retention",
                &given.tenant_rollup_retention,
                |name, text| duration(name, text),
            )?,
            compaction: given.compaction.unwrap_or(true),
            merged_file_bytes: CompactLimits::default().file_bytes,
            vacuum_grace_ms: duration_or("vacuum_grace", given.vacuum_grace.as_ref(), 3_600_000)?,
        })
    }

    /// How long a tenant's samples are kept; `None` for ever.
    pub(crate) fn retention_ms_of(&self, tenant: &TenantId) -> Option<i64> {
        self.tenant_retention_ms.get(tenant).copied().or(self.retention_ms)
    }

    /// How long a tenant's rollups are kept; `None` for ever.
    pub(crate) fn rollup_retention_ms_of(&self, tenant: &TenantId) -> Option<i64> {
        let samples_ms = self.retention_ms_of(tenant)?;
        let own_ms = self.tenant_rollup_retention_ms.get(tenant).copied().or(self.rollup_retention_ms);
        Some(own_ms.unwrap_or(samples_ms).max(samples_ms))
    }

    /// Which rollups a tenant gets.
    pub(crate) fn rollups_of(&self, tenant: &TenantId) -> &[Resolution] {
        self.tenant_rollups.get(tenant).unwrap_or(&self.rollups)
    }
}

/// The URL as given, or that of the folder `tables` in the data directory.
fn tables_url(given: Option<&TablesUrl>, data_dir: &Path) -> Result<String, SettingsError> {
    if let Some(TablesUrl(url)) = given {
        let reason = "a URL such as file:///var/lib/tables or s3://bucket/folder";
        if !url.contains("://") {
            return Err(wrong("tables", url, reason));
        }
        let checked = tables::store::check_url(url);
        // the value may hold a secret; the reason has the URL without it
        return checked
            .map(|()| url.clone())
            .map_err(|e| wrong("tables", &without_secrets(url), e.to_string()));
    }
    let whole = std::path::absolute(data_dir.join("tables"));
    let url = whole.ok().and_then(|path| url::Url::from_directory_path(path).ok());
    let shown = data_dir.display().to_string();
    url.map(String::from).ok_or_else(|| wrong("data_dir", &shown, "a path that can be made absolute"))
}

/// What the environment says about object stores (`AWS_…`, `AZURE_…`, `GOOGLE_…`), and the file before it.
fn store_options(file: &StoreOptions) -> StoreOptions {
    let ours = |name: &str| ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix));
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut options: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(text)
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    options.extend(file.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
    StoreOptions(options)
}

fn rollups(name: &'static str, texts: &[String]) -> Result<Vec<Resolution>, SettingsError> {
    let one = |text: &String| {
        let ms = units::duration_ms(text);
        let found = Resolution::ALL.into_iter().find(|resolution| ms == Some(resolution.ms()));
        found.ok_or_else(|| wrong(name, text, "either 5m or 1h"))
    };
    let mut rollups = texts.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    rollups.sort_unstable();
    rollups.dedup();
    Ok(rollups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flags, Settings};
    use tables::Location;

    #[test]
    fn no_debug_output_has_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        let text = "tables = \"s3://box/x\"\n[tables_options]\naws_region = \"eu\"\n\
                    aws_access_key_id = \"hunter1\"\naws_secret_access_key = \"hunter2\"";
        std::fs::write(&path, text).unwrap();
        let file = ConfigFile::read(&path).unwrap();
        let settings = Settings::resolve(Flags { config: Some(path), ..Flags::default() }).unwrap();
        assert_eq!(settings.lake.options.0["aws_secret_access_key"], "hunter2");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let open = |url: &str| Location::open(url, settings.lake.options.0.clone(), runtime.handle().clone());
        let location = open("s3://user:hunter3@box/x?sig=hunter4");
        let error = open("nonsense://user:hunter3@box/x?sig=hunter4").unwrap_err();
        for text in [
            format!("{file:?} {settings:#?} {location:?}"),
            format!("{error} {error:?}"),
            format!("{}", open("hunter5").unwrap_err()),
        ] {
            assert!(!text.contains("hunter"), "{text}");
        }
    }
}
